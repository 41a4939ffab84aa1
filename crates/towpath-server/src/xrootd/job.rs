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
    attributes,
    exchange::{ErrorResponse, Exchange, ServeResult},
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
    pub(super) async fn run(self, exchange: &Exchange) -> ServeResult {
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
            RequestTarget::Open(request, slot) => open::open(exchange, &slot, &request).await,
            RequestTarget::Vector(request, slots) => vector::readv(exchange, &slots, &request).await,
            RequestTarget::File(request, slot) => on_file(exchange, &slot, &request).await,
            RequestTarget::Other(request) => on_names(exchange, request).await,
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

async fn on_file(exchange: &Exchange, slot: &Slot, request: &Request) -> ServeResult {
    let file = slot.file()?;
    exchange.set_path(&file.path);
    match request {
        Request::Read(request) => read::read(exchange, file, request).await,
        Request::PgRead(request) => pages::pgread(exchange, file, request).await,
        Request::Stat(request) => metadata::stat_file(exchange, file, request).await,
        Request::Fattr(request) => attributes::on_file(exchange, file, &request.operation).await,
        Request::Sync(_) => match &file.access {
            FileAccess::Pull(pull) => pull.sync(exchange).await,
            _ => {
                file.writing()?.handle.sync().await?;
                exchange.done()
            }
        },
        Request::Truncate(request) => {
            file.writing()?.handle.set_size(request.size).await?;
            exchange.done()
        }
        Request::Close(request) => open::close(exchange, file, request.ending.as_ref()).await,
        _ => Err(unsupported().into()),
    }
}

async fn on_names(exchange: &Exchange, request: Request) -> ServeResult {
    match request {
        Request::Stat(request) => metadata::stat_path(exchange, &request).await,
        Request::Statx(request) => metadata::statx(exchange, &request).await,
        Request::Locate(request) => listing::locate(exchange, &request).await,
        Request::Dirlist(request) => listing::dirlist(exchange, &request).await,
        Request::Mkdir(request) => names::mkdir(exchange, &request).await,
        Request::Rm(request) => names::rm(exchange, &request).await,
        Request::Rmdir(request) => names::rmdir(exchange, &request).await,
        Request::Mv(request) => names::mv(exchange, &request).await,
        Request::Chmod(request) => names::chmod(exchange, &request).await,
        Request::Truncate(request) => names::truncate(exchange, &request).await,
        Request::Fattr(request) => attributes::on_path(exchange, &request).await,
        Request::Query(request) => query::query(exchange, request).await,
        Request::Prepare(request) => staging::prepare(exchange, &request).await,
        Request::Endsess(request) => {
            exchange.session.service.sessions.end(request.session_id, &exchange.session)?;
            exchange.done()
        }
        Request::Protocol(_) => exchange.ok(&login::protocol_reply(&exchange.session.service, exchange.session.peer)),
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
