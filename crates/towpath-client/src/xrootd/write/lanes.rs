//! The connections that carry one upload: the one that began it, and others in whose sessions the file is open once more.
//!
//! Our own server gives further handles of an upload to whoever can name one (`towpath.share`), and they are all alike: the loss of a
//! connection costs what was under way on it, and that goes over another one. XRootD's own server takes a second `open` of the same name
//! by force; there the file stands under its name from the beginning, so that it is the same one can be seen. (`bind` would be
//! the protocol's way, but its servers do not get it right for writes, as its own client says, and a lost connection takes the whole session with it.)
//! Where it is refused, the upload goes on over the connection that began it.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use tokio::sync::OwnedSemaphorePermit;
use towpath_proto::xrootd::{
    FileHandle, OpenOptions as OpenFlags,
    request::{Ending, Open, Shared},
    response::OpenReply,
};

use super::{Upload, target::Target};
use crate::{
    dial::MAX_LANES,
    xrootd::{
        ask::with_pair,
        connection::Failure,
        session::{Closing, Load, OpenFile, Session},
        site::Sharing,
    },
};

/// What lies before this offset goes over the connection that began the upload: further opens do not pay off for small files.
const SPREAD_FROM: u64 = 8 << 20;

/// How often one upload is opened once more, at most: each lane may be lost a few times.
const MOST_OPENS: usize = 4 * MAX_LANES;

/// The opens of one upload.
///
/// A piece is bound to one of them when that can send it, not before: what waits in one queue behind a slow connection would be missing
/// elsewhere.
#[derive(Debug)]
pub(super) struct Lanes {
    /// The first is the one that began it.
    opens: Mutex<Vec<Arc<OpenFile>>>,
    /// How often it may still be opened.
    left: AtomicUsize,
    /// Whose piece is bound next.
    turn: tokio::sync::Mutex<()>,
}

/// The open that a piece goes to.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) file: Arc<OpenFile>,
    pub(super) handle: FileHandle,
    /// Its place among the pieces that wait to be sent.
    pub(super) place: Option<OwnedSemaphorePermit>,
    _load: Load,
}

impl Lanes {
    /// The upload is open in one session.
    pub(super) fn new(first: Arc<OpenFile>) -> Self {
        Self { opens: Mutex::new(vec![first]), left: AtomicUsize::new(MOST_OPENS), turn: tokio::sync::Mutex::default() }
    }

    fn opens(&self) -> MutexGuard<'_, Vec<Arc<OpenFile>>> {
        self.opens.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open in a session that lives, but `lost`: the one that began the upload if that can be.
    pub(super) fn alive(&self, lost: Option<&Arc<OpenFile>>) -> Option<Arc<OpenFile>> {
        let opens = self.opens();
        let mut usable = opens.iter().filter(|file| file.session.is_alive() && file.open_handle().is_some());
        usable.find(|file| lost.is_none_or(|lost| !Arc::ptr_eq(file, lost))).cloned()
    }

    /// The open in `session`; begun by `open` if there is none.
    fn open_in(
        &self,
        session: &Arc<Session>,
        open: impl FnOnce(&Arc<OpenFile>) -> Option<Arc<OpenFile>>,
    ) -> Option<Arc<OpenFile>> {
        let mut opens = self.opens();
        if let Some(file) = opens.iter().find(|file| Arc::ptr_eq(&file.session, session)) {
            return Some(Arc::clone(file));
        }
        let known = opens.iter().find(|file| file.session.is_alive() && file.open_handle().is_some())?;
        self.left.fetch_update(Ordering::AcqRel, Ordering::Acquire, |left| left.checked_sub(1)).ok()?;
        let file = open(known)?;
        opens.retain(|file| file.session.is_alive());
        opens.push(Arc::clone(&file));
        Some(file)
    }

    /// The upload is not opened again.
    fn stay(&self) {
        self.left.store(0, Ordering::Release);
    }

    /// Sends the closes of all opens but `file`, and gives those that were sent.
    fn start_close(&self, file: &Arc<OpenFile>) -> Vec<Closing> {
        let opens = self.opens();
        let others = opens.iter().filter(|other| !Arc::ptr_eq(other, file));
        others.filter_map(|other| other.start_close(other.parting())).collect()
    }
}

impl Upload {
    /// Where `bytes` for `offset` are to go.
    pub(super) async fn lane(&self, offset: u64, bytes: usize) -> Lane {
        if offset >= SPREAD_FROM
            && let Some(lane) = self.another(bytes).await
        {
            return lane;
        }
        let file = self.lanes.alive(None).unwrap_or_else(|| Arc::clone(&self.target.file));
        self.lane_of(file, bytes)
    }

    /// That of an open that was answered.
    pub(super) fn lane_of(&self, file: Arc<OpenFile>, bytes: usize) -> Lane {
        let load = file.session.loaded(bytes);
        // Of one that is closed, or lost, the session says what is wrong.
        let handle = file.open_handle().unwrap_or(self.handle);
        Lane { file, handle, place: None, _load: load }
    }

    /// The lane of the first session that can send a piece; none if the upload cannot be opened there.
    async fn another(&self, bytes: usize) -> Option<Lane> {
        let (session, place) = {
            let _turn = self.lanes.turn.lock().await;
            if self.lanes.left.load(Ordering::Acquire) == 0 {
                return None;
            }
            let sessions = self.site.sessions().ok()?;
            let places = sessions.iter().map(|session| Box::pin(session.place()));
            let (place, number, _) = futures::future::select_all(places).await;
            (Arc::clone(sessions.get(number)?), place)
        };
        let load = session.loaded(bytes);
        let file = self.lanes.open_in(&session, |known| self.open_again(&session, known))?;
        match file.opened().await {
            Ok(reply) if self.is_same(&file, &reply).await => {
                Some(Lane { handle: reply.handle, file, place, _load: load })
            }
            Ok(_) | Err(Failure::Refused(_) | Failure::Redirect { .. } | Failure::Fatal(_)) => {
                tracing::debug!(host = &*session.host, path = %self.target.path, "the upload stays on its connection");
                self.lanes.stay();
                None
            }
            Err(_) => None,
        }
    }

    /// Sends a further open of what `known` is an open of.
    fn open_again(&self, session: &Arc<Session>, known: &Arc<OpenFile>) -> Option<Arc<OpenFile>> {
        let Target { path, place, .. } = &self.target;
        let (options, cgi, parting) = match self.site.sharing(&known.session)? {
            Sharing::ByHandle => {
                let session_id = known.session.established()?.session_id;
                let pair = Shared { session_id, handle: known.open_handle()? }.pair();
                (OpenFlags::open_updt, with_pair(&place.cgi, &pair), Some(Ending::Keep))
            }
            // What a redirector adds is meant for one open.
            Sharing::ByName if place.cgi == self.target.store.origin.place.cgi => {
                (OpenFlags::open_updt | OpenFlags::force | OpenFlags::retstat, place.cgi.clone(), None)
            }
            Sharing::ByName => return None,
        };
        let open = Open { options, path: self.site.path_now(place.path_of(path), &cgi).ok()?, ..Open::default() };
        Some(session.open_again(open, parting))
    }

    /// Whether a further open found the file that the first one made. (One that is named by its handle can be no other.)
    async fn is_same(&self, file: &Arc<OpenFile>, reply: &OpenReply) -> bool {
        if file.parting().is_some() || Arc::ptr_eq(file, &self.target.file) {
            return true;
        }
        let first = self.id.get_or_try_init(|| async { self.stat(&self.target.file).await.map(|stat| stat.id) }).await;
        matches!((first, &reply.stat), (Ok(first), Some(stat)) if *first == stat.id && stat.id != 0)
    }

    /// What is to be closed in the end, or given up: the open that began the upload, or one that outlived it.
    pub(super) fn remaining(&self) -> Target {
        let file = self.lanes.alive(None).unwrap_or_else(|| Arc::clone(&self.target.file));
        Target { file, ..self.target.clone() }
    }

    /// Closes all further opens, so that the close of `target` is the last one, where that matters: elsewhere than at our own server, which
    /// commits with the first.
    ///
    /// # Errors
    /// A storage may say only now that it could not write. That a connection is lost does not matter: what was sent over it has been answered.
    pub(super) async fn gather(&self, target: &Target) -> Result<(), Failure> {
        if self.site.is_known_to_be_ours() {
            return Ok(());
        }
        let mut refused = Ok(());
        for closing in self.lanes.start_close(&target.file) {
            if let Err(failure @ Failure::Refused(_)) = closing.done().await {
                refused = Err(failure);
            }
        }
        refused
    }
}
