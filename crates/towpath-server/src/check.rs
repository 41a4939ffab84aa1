//! Validation of settings without a server: `towpath serve --check`, and the warnings at a start.

use std::{io, path::Path};

use rustls::pki_types::{CertificateDer, pem::PemObject as _};
use towpath_proto::http::date;
use towpath_store::sys::{clock, disk};

use crate::{
    ServeConfig,
    certificate::CertificateInfo,
    config::{AccessConfig, IssuerConfig, Right, TlsConfig},
    reload,
};

/// Remaining lifetime of a certificate below which a warning is due, in seconds: automatic renewals have been failing
/// by then.
const SOON_S: i64 = 7 * 24 * 3600;

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
pub fn warnings(config: &ServeConfig) -> Vec<Finding> {
    let access = &config.access;
    let is_remote = config.listen.iter().any(|address| !address.ip().is_loopback());
    let writable = access.anonymous.iter().filter(|rule| may_write(&rule.allow));
    let writable: Vec<&str> = writable.map(|rule| rule.path.as_str()).collect();
    let mut warnings = Vec::new();
    if is_remote && !writable.is_empty() {
        let detail = format!("every client that reaches this server may write below {}", writable.join(", "));
        warnings.push(Finding::new("access.anonymous", Severity::Warning, detail));
    }
    if !access.issuers.is_empty() && access.audiences.is_empty() {
        let detail = "no audience is configured: only tokens for any server are accepted";
        warnings.push(Finding::new("access.audiences", Severity::Warning, detail));
    }
    if !access.issuers.is_empty() && config.tls.certificate.is_none() {
        let detail = "no certificate is configured: clients do not send tokens without encryption";
        warnings.push(Finding::new("tls", Severity::Warning, detail));
    }
    warnings
}

fn may_write(rights: &[Right]) -> bool {
    rights.iter().any(|right| matches!(right, Right::Create | Right::Modify))
}

/// Returns the rights that `access` grants.
pub fn rights(access: &AccessConfig) -> Vec<RightsRow> {
    let words = |allow: &[Right]| match allow {
        [] => "nothing".to_owned(),
        rights => rights.iter().map(|right| right.name()).collect::<Vec<_>>().join(", "),
    };
    let row = |who: String, path: &str, allow: &[Right]| RightsRow {
        who,
        path: path.to_owned(),
        rights: words(allow),
        may_write: may_write(allow),
    };
    let anonymous = access.anonymous.iter().map(|rule| row("everyone".into(), &rule.path, &rule.allow));
    let users = access.users.iter().filter(|_| access.passwords.is_some()).map(|rule| {
        let who = rule.names.as_ref().map_or("all users with a password".into(), |names| names.join(", "));
        row(who, &rule.path, &rule.allow)
    });
    let tokens = access.issuers.iter().map(|IssuerConfig { issuer, base_path, .. }| RightsRow {
        who: format!("tokens of {issuer}"),
        path: base_path.clone(),
        rights: "what their scopes grant below this path".into(),
        may_write: true,
    });
    anonymous.chain(users).chain(tokens).collect()
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
