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
    ServeConfig, Server,
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
pub(crate) fn warnings(layered: &Layered<ServeConfig>) -> Vec<String> {
    let mut warnings: Vec<String> = check::warnings(&layered.settings)
        .into_iter()
        .map(|Finding { subject, detail, .. }| format!("{subject}: {detail}"))
        .collect();
    let is_default = layered.origins.get("access.anonymous").is_some_and(|(_, origin)| origin == "default");
    if is_default && !layered.settings.access.issuers.is_empty() {
        warnings.push(
            "access.anonymous: every client may read everything, because this is the default: set `anonymous = []` in \
             [access] to let only tokens in"
                .into(),
        );
    }
    warnings
}

/// Returns what is served, where, who may write, and where the metrics are, in one line.
pub(crate) fn summary(settings: &ServeConfig, addresses: &[SocketAddr], monitoring: &[SocketAddr]) -> String {
    let mut text = format!("serving {} at", settings.root.display());
    let schemes = if settings.tls.certificate.is_some() { ["roots", "https"] } else { ["root", "http"] };
    for address in addresses {
        let [xrootd, http] = schemes;
        let _ = write!(text, " {xrootd}://{address}/ {http}://{address}/");
    }
    let writers: Vec<_> = check::rights(&settings.access)
        .into_iter()
        .filter(|row| row.may_write)
        .map(|RightsRow { who, path, .. }| format!("{who} below {path}"))
        .collect();
    let writers = if writers.is_empty() { "nobody".to_owned() } else { writers.join(", ") };
    let _ = write!(text, "; may write: {writers}");
    for (index, address) in monitoring.iter().enumerate() {
        let _ = write!(text, "{} http://{address}/metrics", if index == 0 { "; metrics at" } else { "" });
    }
    text
}

/// Prints the state of the settings, and the access rules as a table.
///
/// # Errors
/// A part of the settings does not work.
pub(crate) async fn check(layered: &Layered<ServeConfig>, root: Result<String, String>) -> Result<(), Failure> {
    let settings = &layered.settings;
    let mut lines: Vec<_> = check::check(settings)
        .await
        .into_iter()
        .map(|Finding { severity, subject, detail }| {
            let word = match severity {
                Severity::Good => "ok",
                Severity::Warning => "WARNING",
                Severity::Failure => "FAILED",
            };
            (word, format!("{subject}: {detail}"))
        })
        .collect();
    let (word, detail) = root.map_or_else(|error| ("FAILED", error), |state| ("ok", state));
    lines.insert(0, (word, format!("root {}: {detail}", settings.root.display())));
    lines.extend(warnings(layered).into_iter().map(|warning| ("WARNING", warning)));

    let mut stdout = std::io::stdout().lock();
    for (word, line) in &lines {
        writeln!(stdout, "{word:<8}{line}")?;
    }
    let rows = check::rights(&settings.access);
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
    let access = Access::new(&settings.access)?;
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
pub(crate) fn announce(layered: &Layered<ServeConfig>, server: &Server) {
    complain(summary(&layered.settings, &server.addresses(), &server.monitoring_addresses()));
    warnings(layered).iter().for_each(|warning| complain(format_args!("warning: {warning}")));
}
