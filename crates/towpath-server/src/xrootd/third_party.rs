//! Third-party copies over xroot: `open` with `tpc.*` in its opaque part, and the semantics of `sync`, `stat` and
//! `close` for such files.
//!
//! | `open` by | with | meaning |
//! | --- | --- | --- |
//! | the client, to read, at the source | `tpc.key`, `tpc.dst` (`tpc.ttl`) | that host may open the file with the key, once |
//! | the destination, to read, at the source | `tpc.key`, `tpc.org` | opens it, in the name of the client |
//! | the client, to write, at the destination | `tpc.key`, `tpc.src` (`tpc.lfn`, `tpc.spr`, `tpc.cks`, `tpc.scgi`) | fetch it from there |
//!
//! At the destination `open` creates nothing. The first `sync` is answered immediately, the second one starts the
//! copy and is answered at its end; `stat` reports the bytes written so far. A `close` before the end cancels the
//! copy, as does the opaque query `ofs.tpc cancel`. The file becomes visible when it is complete, before the second
//! `sync` is answered.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock},
    time::Duration,
};

use http::HeaderMap;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use towpath_proto::{
    checksum::Algorithm,
    url::Url,
    xrootd::{ErrorCode, OpenOptions, PathAndCgi, request::Open},
};
use towpath_store::{Error, Fault, FileKind, Metadata, Overwrite, Result, StorePath};

use super::{
    active_request::{ActiveRequest, ErrorResponse, ServeResult},
    open,
};
use crate::{
    access::{Activity, Identity},
    third_party::{
        self, Direction, Progress, State, ThirdPartyCopy,
        rendezvous::{Grant, Key, OpenAttempt},
    },
};

/// Maximum number of addresses of one host that are considered.
const MAX_ADDRESSES: usize = 64;

/// The opaque query that cancels a copy.
pub(super) const CANCEL: &[u8] = b"ofs.tpc cancel";

/// Whether the request belongs to a third-party copy.
pub(super) fn is_part_of_copy(request: &Open) -> bool {
    request.path.cgi_value("tpc.key").is_some()
}

/// At the source: returns the identity that opens the file for reading.
pub(super) async fn reader(
    active_request: &ActiveRequest,
    request: &Open,
    identity: Arc<Identity>,
    path: &StorePath,
) -> ServeResult<Arc<Identity>> {
    let third_party = &active_request.session.service.third_party;
    if !third_party.settings.enabled {
        return Err(not_supported().into());
    }
    let key = key(&request.path)?;
    match (request.path.cgi_value("tpc.dst"), request.path.cgi_value("tpc.org")) {
        (Some(host), None) => {
            identity.check(Activity::Read, path)?;
            let addresses = addresses(text(host, "tpc.dst")?).await?;
            let ttl = number(&request.path, "tpc.ttl")?.map(Duration::from_secs);
            let login = active_request.session.login.clone();
            let grant = Grant::new(path.clone(), Arc::clone(&identity), login, addresses, ttl);
            third_party.rendezvous.grant(key, grant)?;
            Ok(identity)
        }
        (None, Some(origin)) => {
            // The part after the login is the client's host as seen by the destination; the source may see another
            // address.
            let login = text(origin, "tpc.org")?.split('@').next().unwrap_or_default();
            let attempt = OpenAttempt { path, login, address: active_request.session.peer.ip() };
            let identity = active_request.with_wait_notices(third_party.rendezvous.take(&key, &attempt)).await??;
            Ok(identity)
        }
        _ => Err(invalid("exactly one of tpc.dst and tpc.org is required").into()),
    }
}

/// At the destination: parses the copy to make.
pub(super) async fn pull(
    active_request: &ActiveRequest,
    request: &Open,
    identity: &Identity,
    path: &StorePath,
) -> ServeResult<Pull> {
    let third_party = &active_request.session.service.third_party;
    if !third_party.is_served() {
        return Err(not_supported().into());
    }
    third_party.admit(identity)?;
    let overwrite = may_write(active_request, request, identity, path).await?;
    let origin =
        format!("{}@{}", active_request.session.login, third_party::name_of(active_request.session.peer.ip()).await);
    let copy = ThirdPartyCopy {
        direction: Direction::Pull,
        local: path.clone(),
        caller: identity.caller.clone(),
        remote: source(&request.path, path, &origin)?,
        token: None,
        headers: HeaderMap::new(),
        overwrite,
        checksum: checksum(&request.path)?,
        opens_once: true,
    };
    Ok(Pull { copy, stage: Mutex::new(Stage::Opened), progress: OnceLock::new(), cancelled: CancellationToken::new() })
}

/// Checks the same rights and conditions as for an upload.
async fn may_write(
    active_request: &ActiveRequest,
    request: &Open,
    identity: &Identity,
    path: &StorePath,
) -> ServeResult<Overwrite> {
    let replaces = request.options.contains(OpenOptions::delete);
    let modifies = identity.check(Activity::Modify, path);
    if modifies.is_err() {
        identity.check(Activity::Create, path)?;
    }
    let store = &active_request.session.service.store;
    let can = store.capabilities();
    can.check_create(path)?;
    let is_there = |at: &StorePath| {
        let at = at.clone();
        async move {
            match store.stat(&identity.caller, &at).await {
                Ok(found) => Ok(Some(found)),
                Err(error) if error.fault() == Fault::NotFound => Ok(None),
                Err(error) => Err(error),
            }
        }
    };
    match is_there(path).await? {
        Some(found) if found.is_directory() => {
            return Err(Error::new(Fault::IsDirectory, "it is a directory").at(path).into());
        }
        Some(_) if !replaces => return Err(Error::new(Fault::AlreadyExists, "it exists already").at(path).into()),
        Some(_) => {
            modifies.clone()?;
            can.check_replace(path)?;
        }
        None => {}
    }
    if let Some(parent) = path.parent().filter(|_| !open::makes_parents(request.options))
        && is_there(&parent).await?.is_none()
    {
        return Err(Error::new(Fault::NotFound, "its parent directory does not exist").at(path).into());
    }
    Ok(if replaces && modifies.is_ok() { Overwrite::Replace } else { Overwrite::Refuse })
}

/// Builds the URL of the file at the source, with the opaque part that opens it there.
fn source(request: &PathAndCgi, path: &StorePath, origin: &str) -> Result<Url, ErrorResponse> {
    let host = request.cgi_value("tpc.src").ok_or_else(|| invalid("tpc source not specified"))?;
    let host = text(host, "tpc.src")?;
    let scheme = match request.cgi_value("tpc.spr") {
        None | Some(b"root" | b"xroot") => "root",
        Some(b"roots" | b"xroots") => "roots",
        Some(_) => return Err(ErrorResponse::new(Fault::Unsupported, "the source of a copy must be root or roots")),
    };
    let name = match request.cgi_value("tpc.lfn") {
        Some(name) => text(name, "tpc.lfn")?,
        None => std::str::from_utf8(path.as_bytes()).map_err(|_| invalid("the name is not UTF-8: give tpc.lfn"))?,
    };
    if !name.starts_with('/') || host.contains(['/', '?']) || name.contains('?') {
        return Err(invalid("tpc.src is a host, tpc.lfn an absolute path"));
    }
    let key = text(request.cgi_value("tpc.key").unwrap_or_default(), "tpc.key")?;
    let mut url = format!("{scheme}://{host}/{name}?tpc.key={key}&tpc.org={origin}&tpc.stage=copy");
    if let Some(cgi) = request.cgi_value("tpc.scgi") {
        // Tabs stand for ampersands, which the value cannot contain.
        url = format!("{url}&{}", text(cgi, "tpc.scgi")?.replace('\t', "&"));
    }
    url.parse().map_err(|error| invalid(&format!("the source of the copy: {error}")))
}

/// Parses `tpc.cks`: the digest to compare. Its value, if given, is ignored, because the source provides it.
fn checksum(request: &PathAndCgi) -> Result<Option<Algorithm>, ErrorResponse> {
    let Some(value) = request.cgi_value("tpc.cks") else { return Ok(None) };
    let name = text(value, "tpc.cks")?.split(':').next().unwrap_or_default();
    let unknown =
        |_| ErrorResponse::new(Fault::Unsupported, format!("checksums of type `{name}` are not computed here"));
    name.parse().map(Some).map_err(unknown)
}

fn key(request: &PathAndCgi) -> Result<Key, ErrorResponse> {
    Ok(Key::new(request.cgi_value("tpc.key").unwrap_or_default())?)
}

fn text<'a>(value: &'a [u8], name: &str) -> Result<&'a str, ErrorResponse> {
    std::str::from_utf8(value).map_err(|_| invalid(&format!("{name} is not UTF-8")))
}

fn number(request: &PathAndCgi, name: &str) -> Result<Option<u64>, ErrorResponse> {
    let Some(value) = request.cgi_value(name) else { return Ok(None) };
    text(value, name)?.parse().map(Some).map_err(|_| invalid(&format!("{name} is not a number")))
}

/// Resolves the addresses of `host`, which may have a user name and a port.
async fn addresses(host: &str) -> Result<Vec<IpAddr>, ErrorResponse> {
    let url: Url = format!("root://{host}/").parse().map_err(|error| invalid(&format!("tpc.dst: {error}")))?;
    let mut found = third_party::addresses(&url).await?;
    found.truncate(MAX_ADDRESSES);
    Ok(found)
}

fn invalid(message: &str) -> ErrorResponse {
    ErrorResponse::new(Fault::InvalidArgument, message)
}

/// Returns the message and the code that XRootD's client expects.
fn not_supported() -> ErrorResponse {
    ErrorResponse::with_code(ErrorCode::FSError, "tpc not supported")
}

/// A file that is being fetched for a client that has it open.
#[derive(Debug)]
pub(super) struct Pull {
    copy: ThirdPartyCopy,
    stage: Mutex<Stage>,
    progress: OnceLock<Arc<Progress>>,
    cancelled: CancellationToken,
}

#[derive(Debug)]
enum Stage {
    Opened,
    /// The client's next `sync` starts the copy.
    Ready,
    Ended(Result<()>),
}

impl Pull {
    /// Handles `sync`: the first one is answered immediately, the second one at the end of the copy.
    pub(super) async fn sync(&self, active_request: &ActiveRequest) -> ServeResult {
        let mut stage = self.stage.lock().await;
        match &*stage {
            Stage::Opened => {
                *stage = Stage::Ready;
                return active_request.done();
            }
            Stage::Ready => {}
            Stage::Ended(outcome) => {
                outcome.clone()?;
                return active_request.done();
            }
        }
        let ended = active_request.with_wait_notices(self.run(active_request)).await?;
        *stage = Stage::Ended(ended.clone());
        ended?;
        active_request.done()
    }

    async fn run(&self, active_request: &ActiveRequest) -> Result<()> {
        let mut running = State::begin(&active_request.session.service, self.copy.clone()).await?;
        let _ = self.progress.set(Arc::clone(&running.progress));
        match self.cancelled.run_until_cancelled(running.finished()).await {
            Some(ended) => ended,
            None => Err(Error::new(Fault::Cancelled, "the copy was cancelled").at(&self.copy.local)),
        }
    }

    /// Cancels the copy.
    pub(super) fn cancel(&self) {
        self.cancelled.cancel();
    }

    /// Handles `close`: fails if the copy failed.
    pub(super) async fn close(&self, active_request: &ActiveRequest) -> ServeResult {
        self.cancel();
        match &*self.stage.lock().await {
            Stage::Ended(outcome) => outcome.clone()?,
            // The copy was never started, so nothing is missing.
            Stage::Opened | Stage::Ready => {}
        }
        active_request.done()
    }

    /// Returns metadata with the bytes written so far.
    pub(super) fn metadata(&self) -> Metadata {
        Metadata::new(FileKind::File, self.progress.get().map_or(0, |progress| progress.written()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(cgi: &str) -> Result<String, ErrorCode> {
        let request = PathAndCgi::new("/here/f").with_cgi(cgi.to_owned());
        let path = StorePath::parse(b"/here/f").unwrap();
        source(&request, &path, "me.1@home").map(|url| url.expose()).map_err(|refusal| refusal.code)
    }

    #[test]
    fn the_source_is_a_file_at_a_host() {
        for (cgi, url) in [
            ("tpc.key=k&tpc.src=se:1095", "root://se:1095//here/f?tpc.key=k&tpc.org=me.1@home&tpc.stage=copy"),
            ("tpc.key=k&tpc.src=se&tpc.lfn=//there/g", "root://se//there/g?tpc.key=k&tpc.org=me.1@home&tpc.stage=copy"),
            (
                "tpc.key=k&tpc.src=[::1]:1&tpc.spr=xroots",
                "roots://[::1]:1//here/f?tpc.key=k&tpc.org=me.1@home&tpc.stage=copy",
            ),
            (
                "tpc.key=k&tpc.src=se&tpc.scgi=authz=x\ty=1",
                "root://se//here/f?tpc.key=k&tpc.org=me.1@home&tpc.stage=copy&authz=x&y=1",
            ),
        ] {
            assert_eq!(opened(cgi).as_deref(), Ok(url), "{cgi}");
        }
        for cgi in [
            "tpc.key=k",
            "tpc.key=k&tpc.src=",
            "tpc.key=k&tpc.src=se/x",
            "tpc.key=k&tpc.src=se?x",
            "tpc.key=k&tpc.src=se:0",
            "tpc.key=k&tpc.src=se&tpc.lfn=relative",
            "tpc.key=k&tpc.src=se&tpc.lfn=/a/../b",
            "tpc.key=k&tpc.src=se&tpc.lfn=/a?b",
            "tpc.key=k&tpc.src=se&tpc.spr=https",
        ] {
            assert!(opened(cgi).is_err(), "{cgi}");
        }
    }
}
