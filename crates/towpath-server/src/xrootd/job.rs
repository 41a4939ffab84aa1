//! A request executed by a task: its position in the order of requests, and the function that serves it.
//!
//! | requests | wait for |
//! | --- | --- |
//! | reads of open files | the `open`, and an earlier `sync` or `truncate`, of their files |
//! | `close`, `sync`, `truncate` of an open file | all earlier requests for that file |
//! | `mkdir`, `rm`, `rmdir`, `mv`, `chmod`, `truncate` of a path | all earlier requests that use paths |
//! | `open`, `close`, `stat`, `query` and others with a path | earlier ones of the line above |

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use towpath_proto::xrootd::{
    FattrOperation, FileHandle, PathId, Request, Target,
    request::{Open, Query, Readv},
};
use towpath_store::sys::clock;

use super::{
    active_request::{ActiveRequest, ErrorResponse, ServeResult},
    attributes,
    files::{FileAccess, Slot},
    listing, login, metadata, names, open, query,
    read::{self, pages, vector},
    request_queue::{LockMode, QueuePosition},
    session::Session,
    staging,
};

/// A request ready to run.
pub(super) struct Job {
    target: RequestTarget,
    turns: Vec<QueuePosition>,
    /// Whether the order only applies to the start: a request that may take long does not delay later ones.
    brief: bool,
}

/// The target of a request.
enum RequestTarget {
    Open(Open, Arc<Slot>),
    File(Request, Arc<Slot>),
    Vector(Readv, HashMap<FileHandle, Arc<Slot>>),
    Other(Request),
}

impl Job {
    /// Enqueues the request behind earlier ones.
    ///
    /// # Errors
    /// A handle without an open file, a vector beyond its limits, or too many open files.
    pub(super) async fn new(session: &Session, request: Request) -> Result<Self, ErrorResponse> {
        let mut turns = Vec::new();
        let mut brief = false;
        if let Some((hold, is_brief)) = lock_mode_of_names(&request) {
            turns.push(session.names.enqueue(hold).await);
            brief = is_brief;
        }
        let target = match request {
            Request::Open(request) => {
                let slot = session.reserve_slot().await?;
                turns.push(slot.queue.enqueue(LockMode::Exclusive).await);
                RequestTarget::Open(request, slot)
            }
            Request::Readv(request) => {
                vector::check(&request)?;
                let mut slots = HashMap::new();
                for element in &request.elements {
                    if let Entry::Vacant(entry) = slots.entry(element.handle) {
                        let slot = session.files.find(element.handle)?;
                        slot.touch(clock::now());
                        turns.push(slot.queue.enqueue(LockMode::Shared).await);
                        entry.insert(slot);
                    }
                }
                RequestTarget::Vector(request, slots)
            }
            request => match lock_mode_of_file(&request) {
                Some((handle, hold)) => {
                    let closes = matches!(request, Request::Close(_));
                    let slot = if closes { session.files.release(handle) } else { session.files.find(handle) }?;
                    slot.touch(clock::now());
                    turns.push(slot.queue.enqueue(hold).await);
                    RequestTarget::File(request, slot)
                }
                None => RequestTarget::Other(request),
            },
        };
        Ok(Self { target, turns, brief })
    }

    /// Waits for earlier requests, then serves this one.
    pub(super) async fn run(self, active_request: &ActiveRequest) -> ServeResult {
        let mut turns = Vec::with_capacity(self.turns.len());
        for turn in self.turns {
            turns.push(turn.wait().await);
        }
        // The `sync` of a third-party copy is answered at its end; meanwhile its client queries the progress.
        let fetches = |slot: &Slot| slot.file().is_ok_and(|file| matches!(file.access, FileAccess::Pull(_)));
        if self.brief || matches!(&self.target, RequestTarget::File(Request::Sync(_), slot) if fetches(slot)) {
            turns.clear();
        }
        match self.target {
            RequestTarget::Open(request, slot) => open::open(active_request, &slot, &request).await,
            RequestTarget::Vector(request, slots) => vector::readv(active_request, &slots, &request).await,
            RequestTarget::File(request, slot) => on_file(active_request, &slot, &request).await,
            RequestTarget::Other(request) => on_names(active_request, request).await,
        }
    }
}

/// Returns the session's connection for the whole response, including errors and the last frame. (A refusal before
/// the request started is sent on the connection that it came on.)
pub(super) fn path_id(request: &Request) -> PathId {
    match request {
        Request::Read(request) => request.path_id,
        Request::PgRead(request) => request.path_id,
        Request::Readv(request) => request.path_id,
        _ => PathId::MAIN,
    }
}

/// Returns how the request is ordered among those that use paths, and whether it only waits for earlier ones; `None`
/// if it uses no path.
fn lock_mode_of_names(request: &Request) -> Option<(LockMode, bool)> {
    match request {
        Request::Mkdir(_) | Request::Rm(_) | Request::Rmdir(_) | Request::Mv(_) | Request::Chmod(_) => {
            Some((LockMode::Exclusive, false))
        }
        Request::Truncate(request) if matches!(request.target, Target::Path(_)) => Some((LockMode::Exclusive, false)),
        Request::Fattr(request) => match request.operation {
            FattrOperation::Get(_) | FattrOperation::List { .. } => Some((LockMode::Shared, false)),
            FattrOperation::Set { .. } | FattrOperation::Del(_) => Some((LockMode::Exclusive, false)),
        },
        Request::Dirlist(_) | Request::Query(Query::Checksum(_)) => Some((LockMode::Shared, true)),
        Request::Open(_) | Request::Close(_) | Request::Statx(_) | Request::Locate(_) | Request::Prepare(_) => {
            Some((LockMode::Shared, false))
        }
        Request::Stat(request) if matches!(request.target, Target::Path(_)) => Some((LockMode::Shared, false)),
        Request::Query(_) => Some((LockMode::Shared, false)),
        _ => None,
    }
}

/// Returns the request's open file and how the request is ordered among those for it.
fn lock_mode_of_file(request: &Request) -> Option<(FileHandle, LockMode)> {
    let on_target = |target: &Target, hold| match target {
        Target::Handle(handle) => Some((*handle, hold)),
        Target::Path(_) => None,
    };
    match request {
        Request::Read(request) => Some((request.handle, LockMode::Shared)),
        Request::PgRead(request) => Some((request.handle, LockMode::Shared)),
        Request::Stat(request) => on_target(&request.target, LockMode::Shared),
        Request::Fattr(request) => on_target(&request.target, LockMode::Shared),
        Request::Sync(request) => Some((request.handle, LockMode::Exclusive)),
        Request::Close(request) => Some((request.handle, LockMode::Exclusive)),
        Request::Truncate(request) => on_target(&request.target, LockMode::Exclusive),
        _ => None,
    }
}

async fn on_file(active_request: &ActiveRequest, slot: &Slot, request: &Request) -> ServeResult {
    let file = slot.file()?;
    active_request.set_path(&file.path);
    match request {
        Request::Read(request) => read::read(active_request, file, request).await,
        Request::PgRead(request) => pages::pgread(active_request, file, request).await,
        Request::Stat(request) => metadata::stat_file(active_request, file, request).await,
        Request::Fattr(request) => attributes::on_file(active_request, file, &request.operation).await,
        Request::Sync(_) => match &file.access {
            FileAccess::Pull(pull) => pull.sync(active_request).await,
            _ => {
                file.writing()?.handle.sync().await?;
                active_request.done()
            }
        },
        Request::Truncate(request) => {
            file.writing()?.handle.set_size(request.size).await?;
            active_request.done()
        }
        Request::Close(request) => open::close(active_request, file, request.ending.as_ref()).await,
        _ => Err(unsupported().into()),
    }
}

async fn on_names(active_request: &ActiveRequest, request: Request) -> ServeResult {
    match request {
        Request::Stat(request) => metadata::stat_path(active_request, &request).await,
        Request::Statx(request) => metadata::statx(active_request, &request).await,
        Request::Locate(request) => listing::locate(active_request, &request).await,
        Request::Dirlist(request) => listing::dirlist(active_request, &request).await,
        Request::Mkdir(request) => names::mkdir(active_request, &request).await,
        Request::Rm(request) => names::rm(active_request, &request).await,
        Request::Rmdir(request) => names::rmdir(active_request, &request).await,
        Request::Mv(request) => names::mv(active_request, &request).await,
        Request::Chmod(request) => names::chmod(active_request, &request).await,
        Request::Truncate(request) => names::truncate(active_request, &request).await,
        Request::Fattr(request) => attributes::on_path(active_request, &request).await,
        Request::Query(request) => query::query(active_request, request).await,
        Request::Prepare(request) => staging::prepare(active_request, &request).await,
        Request::Endsess(request) => {
            active_request.session.service.sessions.end(request.session_id, &active_request.session)?;
            active_request.done()
        }
        Request::Protocol(_) => active_request.ok(&login::protocol_reply(&active_request.session.service)),
        Request::Login(_) | Request::Auth(_) | Request::Bind(_) => {
            let code = towpath_proto::xrootd::ErrorCode::InvalidRequest;
            Err(ErrorResponse::with_code(code, "this connection is already logged in").into())
        }
        _ => Err(unsupported().into()),
    }
}

fn unsupported() -> ErrorResponse {
    ErrorResponse::new(towpath_store::Fault::Unsupported, "this server does not support this request")
}
