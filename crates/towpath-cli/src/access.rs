//! The access rules of a server in words: `towpath serve --check`, `towpath access explain`, and the lines that a
//! server prints at its start.

use std::{
    fmt::Write as _,
    io::Write as _,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    path::Path,
};

use towpath_client::TokenSource;
use towpath_proto::{fault::Exit, http::date};
use towpath_server::{
    ServeConfig, Server, StartError,
    access::{Access, Activity, Channel, Identity},
    check::{self, Finding, RightsRow, Severity},
    metrics::Face,
};
use towpath_store::{Secret, StorePath};

use crate::{
    args::{self, AccessAction, AccessExplain},
    config::Layered,
    failure::{Failure, complain, print_error},
    serve,
};

/// Maximum size of a token on the standard input, in bytes.
const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Runs `towpath access`.
pub(crate) async fn run(arguments: &args::Access) -> Result<(), Failure> {
    let AccessAction::Explain(arguments) = &arguments.action;
    explain(arguments).await
}

/// Returns settings of a server that are valid, but probably not intended.
///
/// # Errors
/// The exports or the access rules are invalid.
pub(crate) fn warnings(layered: &Layered<ServeConfig>) -> Result<Vec<String>, StartError> {
    let mut warnings: Vec<String> = check::warnings(&layered.settings)?
        .into_iter()
        .map(|Finding { subject, detail, .. }| format!("{subject}: {detail}"))
        .collect();
    let is_default = layered.origins.get("access.anonymous").is_some_and(|(_, origin)| origin == "default");
    let exports = &layered.settings.export;
    let open: Vec<_> = exports.iter().filter(|export| export.access.anonymous.is_none()).collect();
    if is_default && !layered.settings.access.issuers.is_empty() && (exports.is_empty() || !open.is_empty()) {
        let prefixes = open.iter().map(|export| &*export.prefix).collect::<Vec<_>>().join(", ");
        let part = if exports.is_empty() { "everything".to_owned() } else { prefixes };
        warnings.push(format!(
            "access.anonymous: every client may read {part}, because this is the default: set `anonymous = []` in \
             [access] to let only tokens in"
        ));
    }
    Ok(warnings)
}

/// Returns the path in URLs and the directory of each export.
fn directories(settings: &ServeConfig) -> Vec<(&str, &Path)> {
    match &*settings.export {
        [] => vec![("/", &settings.root)],
        exports => exports.iter().map(|export| (&*export.prefix, &*export.root)).collect(),
    }
}

/// Returns what is served, where, who may write, and where the metrics are, in one line.
///
/// # Errors
/// The exports or the access rules are invalid.
pub(crate) fn summary(
    settings: &ServeConfig,
    addresses: &[SocketAddr],
    monitoring: &[SocketAddr],
) -> Result<String, StartError> {
    let directories: Vec<_> = directories(settings)
        .into_iter()
        .map(|(prefix, root)| match prefix {
            "/" => root.display().to_string(),
            prefix => format!("{} as {prefix}", root.display()),
        })
        .collect();
    let mut text = format!("serving {} at", directories.join(", "));
    let _ = write!(text, " {}", urls(settings, addresses));
    let writers: Vec<_> = check::rights(settings)?
        .into_iter()
        .filter(|row| row.may_write)
        .map(|RightsRow { who, path, .. }| format!("{who} below {path}"))
        .collect();
    let writers = if writers.is_empty() { "nobody".to_owned() } else { writers.join(", ") };
    let _ = write!(text, "; may write: {writers}");
    if let Some(places) = metrics_places(monitoring) {
        let _ = write!(text, "; {places}");
    }
    Ok(text)
}

/// Returns the URLs of a server, separated by spaces.
pub(crate) fn urls(settings: &ServeConfig, addresses: &[SocketAddr]) -> String {
    let [xrootd, http] = if settings.tls.certificate.is_some() { ["roots", "https"] } else { ["root", "http"] };
    let urls = addresses.iter().map(|address| format!("{xrootd}://{address}/ {http}://{address}/"));
    urls.collect::<Vec<_>>().join(" ")
}

/// Returns the URLs of the metrics at the addresses of the ports for monitoring, in words; `None` without such ports.
pub(crate) fn metrics_places(monitoring: &[SocketAddr]) -> Option<String> {
    let urls: Vec<_> = monitoring.iter().map(|address| format!("http://{address}/metrics")).collect();
    (!urls.is_empty()).then(|| format!("metrics at {}", urls.join(" ")))
}

/// Prints the state of the settings, and the access rules as a table. `open_root` tries to open a directory.
///
/// # Errors
/// A part of the settings does not work.
pub(crate) async fn check(
    layered: &Layered<ServeConfig>,
    open_root: impl Fn(&Path) -> towpath_store::Result<()>,
) -> Result<(), Failure> {
    let settings = &layered.settings;
    let roots = directories(settings).into_iter().map(|(_, root)| {
        let (word, detail) = match open_root(root) {
            Ok(()) => ("ok", "can be opened".to_owned()),
            Err(error) => ("FAILED", error.describe().to_string()),
        };
        (word, format!("root {}: {detail}", root.display()))
    });
    let findings = check::check(settings).await.into_iter().map(|Finding { severity, subject, detail }| {
        let word = match severity {
            Severity::Good => "ok",
            Severity::Warning => "WARNING",
            Severity::Failure => "FAILED",
        };
        (word, format!("{subject}: {detail}"))
    });
    let mut lines: Vec<_> = roots.chain(findings).collect();
    // An error of the rules is one of the findings.
    let warnings = warnings(layered).unwrap_or_default();
    lines.extend(warnings.into_iter().map(|warning| ("WARNING", warning)));

    let mut stdout = std::io::stdout().lock();
    for (word, line) in &lines {
        writeln!(stdout, "{word:<8}{line}")?;
    }
    let rows = check::rights(settings).unwrap_or_default();
    let rows = rows.into_iter().map(|RightsRow { who, path, rights, .. }| [who, path, rights]);
    let header = ["who", "path", "may"].map(str::to_owned);
    writeln!(stdout, "\n{}", table(&std::iter::once(header).chain(rows).collect::<Vec<_>>()))?;
    match lines.iter().filter(|(word, _)| *word == "FAILED").count() {
        0 => Ok(()),
        count => Err(Failure::Several { count, exit: Exit::Usage as u8 }),
    }
}

/// Aligns the columns of `rows`.
fn table(rows: &[[String; 3]]) -> String {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let (who, path) = (width(0), width(1));
    let lines: Vec<_> = rows.iter().map(|row| format!("{:<who$}  {:<path$}  {}", row[0], row[1], row[2])).collect();
    lines.join("\n")
}

/// Prints what a caller may do at a path, and why.
async fn explain(arguments: &AccessExplain) -> Result<(), Failure> {
    let settings = serve::load(arguments.config.as_deref(), toml::Table::new())?.settings;
    let path = StorePath::parse(arguments.path.as_bytes())
        .map_err(|error| Failure::Usage(format!("the path `{}` is invalid: {error}", arguments.path)))?;
    let access = Access::new(&settings)?;
    let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let channel = Channel { face: Face::Http, address, is_encrypted: true };
    let identity = match &arguments.user {
        Some(_) if settings.access.passwords.is_none() => {
            return Err(Failure::Usage("this server has no users with passwords: set access.passwords".into()));
        }
        Some(name) => access.user(name.as_str().into(), address),
        None => access.identify(token(arguments.token_file.as_deref())?.as_ref(), &channel).await,
    };
    // The refusal of the token is printed once, at the end.
    let refused = identity.refusal().map(|refusal| format!("{}; ", refusal.message())).unwrap_or_default();
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{} at {path}:", caller(&identity))?;
    for activity in Activity::ALL {
        let (answer, why) = match identity.explain(activity, &path) {
            Ok((grant, true)) => ("yes", format!("everyone may {} {}", grant.right.name(), grant.path)),
            Ok((grant, false)) => ("yes", format!("it may {} {}", grant.right.name(), grant.path)),
            Err(error) => ("no", error.message().trim_start_matches(&*refused).to_owned()),
        };
        writeln!(stdout, "  {:<20}{answer:<5}{why}", activity.name())?;
    }
    match identity.refusal() {
        Some(refusal) => {
            print_error(refusal);
            Err(Failure::Several { count: 1, exit: refusal.fault().exit_code() })
        }
        None => Ok(()),
    }
}

/// Reads the token in a file; `None` without a file.
fn token(file: Option<&Path>) -> Result<Option<Secret>, Failure> {
    let Some(file) = file else { return Ok(None) };
    if file == Path::new("-") {
        let mut text = String::new();
        std::io::Read::read_to_string(&mut std::io::Read::take(std::io::stdin(), MAX_TOKEN_BYTES), &mut text)
            .map_err(Failure::system("read the token from the standard input"))?;
        return Ok(Some(Secret::new(text.trim())));
    }
    Ok(TokenSource::File(file.to_owned()).find()?)
}

fn caller(identity: &Identity) -> String {
    let caller = &identity.caller;
    let issuer = caller.issuer.as_deref().unwrap_or_default();
    let expiry = identity.expires_s.map(|expiry| format!(", until {}", date::format_rfc3339(expiry)));
    match (&caller.subject, identity.refusal()) {
        (Some(subject), _) => format!("{subject} of {issuer}{}", expiry.unwrap_or_default()),
        (None, _) if !issuer.is_empty() => {
            format!("a token of {issuer} without a subject{}", expiry.unwrap_or_default())
        }
        (None, Some(_)) => "an anonymous caller, because the token is refused,".into(),
        (None, None) => "an anonymous caller".into(),
    }
}

/// Prints what `server` serves, and the warnings about its settings.
///
/// # Errors
/// The exports or the access rules are invalid.
pub(crate) fn announce(layered: &Layered<ServeConfig>, server: &Server) -> Result<(), StartError> {
    complain(summary(&layered.settings, &server.addresses(), &server.monitoring_addresses())?);
    warnings(layered)?.iter().for_each(|warning| complain(format_args!("warning: {warning}")));
    Ok(())
}
