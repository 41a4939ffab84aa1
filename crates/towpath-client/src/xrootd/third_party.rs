//! Client side of third-party copies over xroot. The destination gets the location of the file, the source gets the
//! permitted destination; both identify the copy by a key.
//!
//! ```text
//! source       open                                        returns location and size
//! destination  open tpc.key tpc.src tpc.lfn, sync          prepares to fetch
//! source       open tpc.key tpc.dst                        permits one open by that host
//! destination  sync ── stat, stat, … ── response, close    confirms the file
//! ```

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::time::{MissedTickBehavior, interval};
use towpath_proto::xrootd::{
    FileHandle, OpenOptions as OpenFlags, Request, StatOptions, Target,
    request::{Open, Stat, Sync},
    response::{Body as _, StatInfo},
};
use towpath_store::{
    Blame, Caller, Error, Fault, OpenOptions, Overwrite, ReadHandle as _, Result, StorePath, sys::random,
};

use super::{
    connection::{Failure, OutgoingRequest},
    metadata,
    origin::{Origin, with_pair},
    read::RemoteFile,
    retry_state::refusal,
    server::Server,
    session::OpenFile,
    store::XrootdStore,
};
use crate::third_party::OnProgress;

/// Interval between queries of the progress at the destination.
const LOOK: Duration = Duration::from_secs(2);

/// Maximum length of the response to a `sync`, in bytes.
const ANSWER_BYTES: usize = 4 << 10;

/// Copies a file from the first site to the second, which fetches it.
pub(crate) async fn copy_between(
    caller: &Caller,
    ends: [(XrootdStore, StorePath); 2],
    overwrite: Overwrite,
    written: OnProgress<'_>,
) -> Result<()> {
    // The key is a secret and must not be sent before TLS has been negotiated.
    let [(source, from), (destination, to)] =
        ends.map(|(store, path)| (Origin { careful: true, ..store.origin }, path));
    let file = RemoteFile::new(source.clone(), source.identity(caller), from.clone(), OpenOptions::default());
    let found = file.metadata().await?;
    if found.is_directory() {
        return Err(Error::new(Fault::IsDirectory, "it is a directory").at(&from));
    }
    let giver = file.server().ok_or_else(|| Error::new(Fault::Internal, "the file is not open on any server"))?;
    let key = random::key();
    let name = std::str::from_utf8(from.as_bytes())
        .map_err(|_| Error::new(Fault::Unsupported, "xroot third-party copies require UTF-8 names").at(&from))?;
    let scheme = if giver.tls { "roots" } else { "root" };
    let ordered = format!(
        "tpc.key={key}&tpc.src={}&tpc.lfn={name}&tpc.spr={scheme}&tpc.stage=copy&oss.asize={}",
        giver.name(),
        found.size
    );
    // An XRootD server without third-party copies would create an empty file.
    if destination.lacks_third_party(caller).await {
        return Err(unsupported(&destination.server.host));
    }
    let replaces = if overwrite == Overwrite::Replace { OpenFlags::delete } else { OpenFlags::new };
    let flags = OpenFlags::open_updt | OpenFlags::mkpath | replaces;
    let (copy, taker) = open(&destination, caller, &to, None, flags, &ordered).await?;
    let copied = async {
        let handle = copy.opened().await.map_err(|failure| error(&copy, failure))?.handle;
        sync(&copy, handle).await.map_err(|error| error.at(&to))?;
        let granted = format!("tpc.key={key}&tpc.dst={}&tpc.stage=copy", host(&taker));
        let (_grant, _) = open(&source, caller, &from, Some(giver), OpenFlags::open_read, &granted).await?;
        watch(&copy, handle, written).await.map_err(|error| error.at(&to))?;
        written(found.size);
        copy.close(None).await.map_err(|failure| error(&copy, failure).at(&to))
    };
    let copied = copied.await.map(drop);
    // If the name was free before, servers other than towpath may leave a partial file.
    if copied.is_err()
        && overwrite == Overwrite::Refuse
        && !destination.is_ours(caller).await
        && let Err(error) = destination.clear_away(caller, &to).await
    {
        tracing::warn!(path = %to, %error, "cannot remove the remains of a failed third-party copy");
    }
    copied
}

/// Returns the host without its port.
fn host(server: &Server) -> String {
    if server.host.contains(':') { format!("[{}]", server.host) } else { server.host.clone() }
}

/// Opens a file with additional opaque information, and follows redirects.
async fn open(
    origin: &Origin,
    caller: &Caller,
    path: &StorePath,
    server: Option<Server>,
    options: OpenFlags,
    pairs: &str,
) -> Result<(Arc<OpenFile>, Server)> {
    let identity = origin.identity(caller);
    let mut retry_state = origin.retry_state(false);
    if let Some(server) = server {
        retry_state.set_server(server);
    }
    loop {
        let site = origin.sites.at(retry_state.server(), &identity);
        let path_and_cgi =
            site.path(retry_state.server().path_of(path), &with_pair(&retry_state.server().cgi, pairs)).await?;
        let mode = metadata::mode_bits(0o644);
        let session = site.session(0)?;
        session.settled().await;
        let file = session.open(Open { options, mode, path: path_and_cgi, ..Open::default() }, false);
        match file.opened().await {
            Ok(_) => return Ok((file, retry_state.server().clone())),
            Err(failure) => {
                origin.handle_failure(&mut retry_state, &site, failure).await.map_err(|error| error.at(path))?;
            }
        }
    }
}

async fn sync(file: &OpenFile, handle: FileHandle) -> Result<()> {
    let outgoing =
        OutgoingRequest { patient: true, ..OutgoingRequest::new(Request::from(Sync { handle }), ANSWER_BYTES) };
    let finished = file.session.submit(outgoing).finished().await;
    finished.outcome.map(drop).map_err(|failure| error(file, failure))
}

/// Waits for the copy, and reports its progress.
async fn watch(file: &OpenFile, handle: FileHandle, written: OnProgress<'_>) -> Result<()> {
    let mut ended = std::pin::pin!(sync(file, handle));
    let mut looks = interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            ended = &mut ended => return ended,
            _ = looks.tick() => {
                let stat = Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Target::Handle(handle) };
                let answered = file.session.submit(OutgoingRequest::new(Request::from(stat), ANSWER_BYTES)).finished();
                tokio::select! {
                    ended = &mut ended => return ended,
                    // The other request reports errors of the connection.
                    answered = answered => if let (Ok(_), Ok(stat)) = (&answered.outcome, StatInfo::decode(Bytes::from(answered.buffer.clone()))) {
                        written(stat.size);
                    }
                }
            }
        }
    }
}

fn unsupported(host: &str) -> Error {
    Error::new(Fault::Unsupported, format!("{host} does not support third-party copies"))
}

/// Converts a failure into the error of a copy, which cannot be resumed.
fn error(file: &OpenFile, failure: Failure) -> Error {
    let host = &file.session.host;
    match failure {
        // The error response of an XRootD server without third-party copies.
        Failure::Refused(reply) if reply.message.contains("tpc not supported") => unsupported(host),
        Failure::Refused(reply) => refusal(&file.session.root(), &reply),
        Failure::Fatal(error) | Failure::Lost(error) | Failure::EarlyLoss(error) | Failure::NotSent(error) => error,
        Failure::Redirect { .. } | Failure::Wait { .. } | Failure::TooEarly | Failure::Occupied => {
            let message = format!("{host}: unexpected response in a third-party copy");
            Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
        }
    }
}
