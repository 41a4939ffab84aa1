//! Validation of settings without a server: `towpath serve --check`, and the warnings at a start.

use std::{io, path::Path};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use towpath_proto::http::date;
use towpath_store::{
    StorePath,
    sys::{clock, disk},
};

use crate::{
    ServeConfig, StartError,
    access::{self, Activity, Callers, Rule},
    certificate::CertificateInfo,
    config::{ExportConfig, IssuerConfig, Right, TlsConfig},
    exports::Exports,
    reload,
};

/// Remaining lifetime of a certificate below which a warning is due, in seconds: automatic renewals have been failing
/// by then.
const SOON_S: i64 = 7 * 24 * 3600;

/// All callers, with or without credentials.
const EVERYONE: &str = "everyone";

/// The state of one part of the settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The part: `certificate /etc/cert.pem`.
    pub subject: String,
    /// The state in words, or the problem and its remedy.
    pub detail: String,
    /// Severity.
    pub severity: Severity,
}

/// Severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// The part works.
    Good,
    /// The part works, but probably not as intended.
    Warning,
    /// The part does not work.
    Failure,
}

/// The rights of a group of callers below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RightsRow {
    /// The callers.
    pub who: String,
    /// The path.
    pub path: String,
    /// The rights, in words.
    pub rights: String,
    /// Whether they may include creating or changing files.
    pub may_write: bool,
}

/// Checks the certificate, the access log, the access rules, and that token issuers can be reached, which takes up to
/// 8 s. [`warnings`] are separate. Nothing is served.
pub async fn check(config: &ServeConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(check_certificate(&config.tls));
    findings.extend(check_log(&config.access_log.path));
    match reload::secure(config, None) {
        Ok((access, _)) => findings.extend(access.check_issuers().await.into_iter().map(issuer)),
        Err(error) => findings.push(Finding::new("settings", Severity::Failure, error.to_string())),
    }
    findings
}

impl Finding {
    fn new(subject: impl Into<String>, severity: Severity, detail: impl Into<String>) -> Self {
        Self { subject: subject.into(), detail: detail.into(), severity }
    }
}

fn issuer((name, keys): (String, Result<usize, String>)) -> Finding {
    let subject = format!("issuer {name}");
    match keys {
        Ok(1) => Finding::new(subject, Severity::Good, "1 key"),
        Ok(count) => Finding::new(subject, Severity::Good, format!("{count} keys")),
        Err(error) => Finding::new(subject, Severity::Failure, error),
    }
}

/// Returns settings that are valid, but probably not intended.
///
/// # Errors
/// [`StartError`] for invalid exports or rules.
pub fn warnings(config: &ServeConfig) -> Result<Vec<Finding>, StartError> {
    let access = &config.access;
    let is_remote = config.listen.iter().any(|address| !address.ip().is_loopback());
    let rights = rights(config)?;
    let writable: Vec<&str> =
        rights.iter().filter(|row| row.who == EVERYONE && row.may_write).map(|row| row.path.as_str()).collect();
    let mut warnings = Vec::new();
    let mut warn = |subject: &str, detail: String| warnings.push(Finding::new(subject, Severity::Warning, detail));
    if is_remote && !writable.is_empty() {
        let detail = format!("every client that reaches this server may write below {}", writable.join(", "));
        warn("access.anonymous", detail);
    }
    if !access.issuers.is_empty() && access.audiences.is_empty() {
        warn("access.audiences", "no audience is configured: only tokens for any server are accepted".into());
    }
    if !access.issuers.is_empty() && config.tls.certificate.is_none() {
        warn("tls", "no certificate is configured: clients do not send tokens without encryption".into());
    }
    for (a, b) in overlapping(&config.export) {
        let detail = format!(
            "{} ({}) and {} ({}) share files, each with its own access rules: the wider ones decide",
            a.prefix,
            a.root.display(),
            b.prefix,
            b.root.display()
        );
        warn("export.root", detail);
    }
    for ExportConfig { prefix, access, .. } in &config.export {
        let anonymous = access.anonymous.iter().flatten().map(|rule| &rule.path);
        let users = access.users.iter().flatten().map(|rule| &rule.path);
        for path in anonymous.chain(users).filter(|path| is_below(path, prefix)) {
            let detail = format!("the path {path} begins at the prefix {prefix}: it means {prefix}{path}");
            warn("export.access", detail);
        }
    }
    Ok(warnings)
}

/// Returns the pairs of exports of which one directory contains the other, or is the same.
fn overlapping(exports: &[ExportConfig]) -> Vec<(&ExportConfig, &ExportConfig)> {
    // A directory that cannot be opened is an error of its own.
    let resolved = |export: &ExportConfig| disk::canonicalize(&export.root).unwrap_or_else(|_| export.root.clone());
    let exports: Vec<_> = exports.iter().map(|export| (export, resolved(export))).collect();
    let is_nested = |a: &Path, b: &Path| a.starts_with(b) || b.starts_with(a);
    let pairs = exports.iter().enumerate().flat_map(|(index, b)| exports[..index].iter().map(move |a| (a, b)));
    pairs.filter(|((_, a), (_, b))| is_nested(a, b)).map(|((a, _), (b, _))| (*a, *b)).collect()
}

/// Whether `path` is written as if it did not begin at the prefix.
fn is_below(path: &str, prefix: &str) -> bool {
    let [path, prefix] = [path, prefix].map(|path| StorePath::parse(path.as_bytes()));
    path.ok().zip(prefix.ok()).is_some_and(|(path, prefix)| !prefix.is_root() && path.is_within(&prefix))
}

fn may_write(rights: &[Right]) -> bool {
    rights.iter().any(|right| matches!(right, Right::Create | Right::Modify))
}

/// Returns the rights that the settings grant, and the exports that limit them.
///
/// # Errors
/// [`StartError`] for invalid exports or rules.
pub fn rights(config: &ServeConfig) -> Result<Vec<RightsRow>, StartError> {
    let exports = Exports::new(config)?;
    let row = |who: &str, path: &StorePath, allow: &[Right]| {
        let is_writable = exports.check(Activity::Modify, path).is_ok();
        let allow: Vec<_> = allow.iter().copied().filter(|right| is_writable || !may_write(&[*right])).collect();
        let rights = match &*allow {
            [] => "nothing".to_owned(),
            rights => rights.iter().map(|right| right.name()).collect::<Vec<_>>().join(", "),
        };
        RightsRow { who: who.to_owned(), path: path.to_string(), rights, may_write: may_write(&allow) }
    };
    let mut rows = Vec::new();
    for Rule { callers, paths, allow, .. } in access::rules(config, &exports)? {
        let who = match callers {
            Callers::Everyone => EVERYONE.to_owned(),
            Callers::Users(_) if config.access.passwords.is_none() => continue,
            Callers::Users(None) => "all users with a password".to_owned(),
            Callers::Users(Some(names)) => names.join(", "),
        };
        rows.extend(paths.iter().map(|path| row(&who, path, allow)));
    }
    rows.extend(config.access.issuers.iter().map(|IssuerConfig { issuer, base_path, .. }| {
        let base = StorePath::parse(base_path.as_bytes());
        RightsRow {
            who: format!("tokens of {issuer}"),
            path: base_path.clone(),
            rights: "what their scopes grant below this path".into(),
            may_write: base.is_ok_and(|base| exports.check(Activity::Modify, &base).is_ok()),
        }
    }));
    rows.extend(exports.read_only().map(|prefix| RightsRow {
        who: "nobody".into(),
        path: prefix.to_string(),
        rights: "change anything: the export is read-only".into(),
        may_write: false,
    }));
    Ok(rows)
}

fn check_log(path: &str) -> Option<Finding> {
    if path.is_empty() || path == "-" {
        return None;
    }
    let (subject, path) = (format!("access log {path}"), Path::new(path));
    // A missing file is not created here: its owner would be wrong if the server runs as another user.
    let problem = match disk::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
            disk::open(parent.unwrap_or(Path::new("."))).err()
        }
        _ => disk::append(path).err(),
    };
    Some(match problem {
        None => Finding::new(subject, Severity::Good, "can be written"),
        Some(error) => Finding::new(subject, Severity::Failure, error.to_string()),
    })
}

fn check_certificate(config: &TlsConfig) -> Option<Finding> {
    let path = config.certificate.as_ref()?;
    let subject = format!("certificate {}", path.display());
    Some(match certificate(path) {
        Ok(CertificateInfo { names, expires_s }) => {
            let left_s = expires_s - clock::unix_s();
            let day = date::format_rfc3339(expires_s);
            let (severity, when) = match left_s {
                ..=0 => (Severity::Failure, format!("it expired on {day}: renew it")),
                1..SOON_S => (Severity::Warning, format!("it expires soon, on {day}: renew it")),
                _ => (Severity::Good, format!("it expires on {day}")),
            };
            Finding::new(subject, severity, format!("for {}; {when}", names.join(", ")))
        }
        Err(problem) => Finding::new(subject, Severity::Failure, problem),
    })
}

fn certificate(path: &Path) -> Result<CertificateInfo, String> {
    let pem = disk::read(path, crate::tls::MAX_PEM_BYTES).map_err(|error| error.to_string())?;
    let der = CertificateDer::from_pem_slice(&pem).map_err(|error| error.to_string())?;
    CertificateInfo::parse(&der)
}
