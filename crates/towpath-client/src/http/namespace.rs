//! Operations on directories and names, by WebDAV.
//!
//! WebDAV's DELETE removes a directory with its contents, and MOVE and COPY do so with a directory they replace. The
//! store operations must not, so the target is checked before; a change in between is not detected.

use futures::StreamExt as _;
use http::{HeaderName, Method, StatusCode, header};
use towpath_proto::http::dav::{Element, Limits};
use towpath_store::{Blame, Caller, Error, Fault, ListOptions, Metadata, Overwrite, Result, StorePath};

use super::{
    listing,
    payload::Payload,
    put, refusal,
    request::Request,
    stat::{self, method},
    store::HttpStore,
    target::Target,
};

/// Maximum length in bytes of the response to a PROPPATCH of one property.
const OUTCOME_BYTES: usize = 64 << 10;

/// The state after a successful request. It decides whether a request that was only accepted (202) was carried out.
#[derive(Debug, Clone, Copy)]
enum Effect<'a> {
    /// Nothing exists at this path.
    Gone(&'a StorePath),
    /// No request can observe the effect, as with the removal of a dangling link.
    Invisible,
    /// A directory is at this path.
    Directory(&'a StorePath),
    /// `source` is no longer at `from`, but at `to`.
    Moved { from: &'a StorePath, to: &'a StorePath, source: &'a Metadata },
    /// A copy of `source` is at `to`, where `existing` was before.
    Copied { to: &'a StorePath, source: &'a Metadata, existing: Option<&'a Metadata> },
}

impl HttpStore {
    pub(super) async fn make_one_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let request = Request::new(&self.site, method("MKCOL"));
        let target = self.directory_target(path);
        let request = Request { repeatable: false, ..request };
        match self.carry_out(caller, path, &target, request, Effect::Directory(path)).await {
            // Some servers respond 404 where RFC 4918 requires 409.
            Err(error) if error.fault() == Fault::NotFound => {
                Err(self.explain_missing_parent(caller, path, error).await)
            }
            made => made,
        }
    }

    /// Creates `path` and its missing parents.
    pub(super) async fn make_directories(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let mut missing = Vec::new();
        let mut next = Some(path.clone());
        while let Some(path) = next.filter(|path| !path.is_root()) {
            match self.make_one_directory(caller, &path).await {
                Ok(()) => break,
                Err(error) if error.fault() == Fault::AlreadyExists => {
                    if missing.is_empty() && !self.stat_path(caller, &path).await?.is_directory() {
                        return Err(error);
                    }
                    break;
                }
                Err(error) if error.fault() == Fault::NotFound => {
                    next = path.parent();
                    missing.push(path);
                }
                Err(error) => return Err(error),
            }
        }
        for path in missing.iter().rev() {
            match self.make_one_directory(caller, path).await {
                // Another client created it at the same time.
                Err(error) if error.fault() == Fault::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }

    pub(super) async fn delete_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let found = self.stat_path(caller, path).await;
        // With depth 0 a towpath server removes anything except directories, including links to any target.
        if self.site.features.is_towpath.certain() && !path.is_root() {
            let request = Request::new(&self.site, Method::DELETE).with(HeaderName::from_static("depth"), "0");
            let request = Request { repeatable: false, ..request };
            let removed = self.carry_out(caller, path, &self.target(path), request, Effect::Gone(path)).await;
            return removed.map_err(|error| match found {
                Ok(found) if found.is_directory() => Error::new(Fault::IsDirectory, "it is a directory").at(path),
                _ => error,
            });
        }
        match found {
            Ok(metadata) if metadata.is_directory() => {
                Err(Error::new(Fault::IsDirectory, "it is a directory").at(path))
            }
            Ok(_) => self.delete(caller, path, &self.target(path)).await,
            // For a dangling link a server may respond that the file does not exist, and still remove it.
            Err(error) if error.fault() == Fault::NotFound => {
                let request = self.deletion();
                self.carry_out(caller, path, &self.target(path), request, Effect::Invisible).await
            }
            Err(error) => Err(error),
        }
    }

    pub(super) async fn delete_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(Error::new(Fault::InvalidArgument, "the root cannot be removed").at(path));
        }
        if !self.stat_path(caller, path).await?.is_directory() {
            return Err(Error::new(Fault::NotDirectory, "it is not a directory").at(path));
        }
        // XRootD's own server removes only empty directories, and reports that a link is not a directory.
        if self.site.features.is_xrootd.certain() {
            return self.delete(caller, path, &self.directory_target(path)).await.map_err(|error| {
                match error.message().contains("not empty") {
                    true => Error::new(Fault::NotEmpty, error.message()).at(path),
                    false => error,
                }
            });
        }
        if !self.is_empty(caller, path).await? {
            return Err(Error::new(Fault::NotEmpty, Fault::NotEmpty.phrase()).at(path));
        }
        self.delete(caller, path, &self.directory_target(path)).await
    }

    /// Removes a directory with all its contents; the server decides how to treat links in it.
    pub(super) async fn delete_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(Error::new(Fault::InvalidArgument, "the root cannot be removed").at(path));
        }
        if !self.stat_path(caller, path).await?.is_directory() {
            return Err(Error::new(Fault::NotDirectory, "it is not a directory").at(path));
        }
        let target = self.target(path);
        // Without listings the contents of the directory are unknown: nginx 1.22 even empties the targets of links.
        if !self.site.features.dav.certain() {
            return Err(stat::no_dav(&target).at(path));
        }
        self.delete(caller, path, &target).await
    }

    pub(super) async fn delete(&self, caller: &Caller, path: &StorePath, target: &Target) -> Result<()> {
        self.carry_out(caller, path, target, self.deletion(), Effect::Gone(path)).await
    }

    fn deletion(&self) -> Request {
        let request = Request::new(&self.site, Method::DELETE);
        // The removal of a whole tree may take long.
        Request { repeatable: false, wait: self.site.options.patience, ..request }
    }

    async fn is_empty(&self, caller: &Caller, path: &StorePath) -> Result<bool> {
        let (site, target) = (self.site.clone(), self.target(path));
        let mut entries = listing::list(site, caller.clone(), path.clone(), target, ListOptions::default());
        entries.next().await.transpose().map(|batch| batch.is_none())
    }

    /// Moves or copies in one request; `name` is the method.
    pub(super) async fn transfer(
        &self,
        name: &'static str,
        caller: &Caller,
        (from, to): (&StorePath, &StorePath),
        overwrite: Overwrite,
    ) -> Result<()> {
        let source = self.stat_path(caller, from).await?;
        if name == "COPY" && source.is_directory() {
            return Err(Error::new(Fault::IsDirectory, "it is a directory").at(from));
        }
        if from.is_root() || (to != from && to.is_within(from) && source.is_directory()) {
            return Err(Error::new(Fault::InvalidArgument, "a directory cannot be moved into itself").at(from));
        }
        let existing = self.find(caller, to).await?;
        if let Some(existing) = &existing {
            self.may_replace(caller, &source, (to, existing), overwrite).await?;
        }
        let (target, destination) = match source.is_directory() {
            true => (self.directory_target(from), self.directory_target(to)),
            false => (self.target(from), self.target(to)),
        };
        let flag = if overwrite == Overwrite::Replace { "T" } else { "F" };
        let mut request = Request::new(&self.site, method(name))
            .with(HeaderName::from_static("destination"), destination.without_query())
            .with(HeaderName::from_static("overwrite"), flag);
        request.repeatable = false;
        // A server may copy the bytes for either.
        request.wait = self.site.options.patience;
        let effect = match name {
            "COPY" => Effect::Copied { to, source: &source, existing: existing.as_ref() },
            _ => Effect::Moved { from, to, source: &source },
        };
        match self.carry_out(caller, from, &target, request, effect).await {
            Err(error) if error.fault() == Fault::NotFound => Err(self.explain_missing_parent(caller, to, error).await),
            outcome => outcome,
        }
    }

    async fn may_replace(
        &self,
        caller: &Caller,
        source: &Metadata,
        (to, existing): (&StorePath, &Metadata),
        overwrite: Overwrite,
    ) -> Result<()> {
        let (fault, message) = match (source.is_directory(), existing.is_directory()) {
            _ if overwrite == Overwrite::Refuse => (Fault::AlreadyExists, "it exists already"),
            (false, true) => (Fault::IsDirectory, "it is a directory"),
            (true, false) => (Fault::NotDirectory, "it is not a directory"),
            (true, true) if !self.is_empty(caller, to).await? => (Fault::NotEmpty, Fault::NotEmpty.phrase()),
            _ => return Ok(()),
        };
        Err(Error::new(fault, message).at(to))
    }

    /// Sets the modification time of a file or directory by a PROPPATCH of `lastmodified`, as ownCloud's clients do.
    pub(super) async fn set_mtime(&self, caller: &Caller, path: &StorePath, mtime_ns: i64) -> Result<()> {
        let body = format!(
            "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><D:lastmodified>{}</D:lastmodified></D:prop></D:set></D:propertyupdate>",
            put::modified(mtime_ns)
        );
        let mut request =
            Request::new(&self.site, method("PROPPATCH")).with(header::CONTENT_TYPE, "application/xml; charset=utf-8");
        request.payload = Payload::Whole(body.into());
        let mut retry_state = self.site.retry_state(&self.target(path));
        let answer =
            self.site.send_request(caller, &mut retry_state, &request).await.map_err(|error| error.at(path))?;
        if answer.status != StatusCode::MULTI_STATUS {
            return Err(refusal::of(answer, &request.method, &self.site.credentials(caller)?).await.at(path));
        }
        let root = answer.target.root();
        let body = answer.beginning(OUTCOME_BYTES).await;
        if Element::parse(&body, Limits::REQUEST).is_ok_and(|multistatus| is_changed(&multistatus)) {
            return Ok(());
        }
        let message = format!("{root} does not support setting modification times");
        Err(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage).at(path))
    }

    /// Sends a request that changes the namespace. A 202 response only promises to carry it out later; then `effect`
    /// shows whether that has happened.
    async fn carry_out(
        &self,
        caller: &Caller,
        path: &StorePath,
        target: &Target,
        request: Request,
        effect: Effect<'_>,
    ) -> Result<()> {
        let answer = self
            .site
            .send_request(caller, &mut self.site.retry_state(target), &request)
            .await
            .map_err(|error| error.at(path))?;
        let error = match answer.status {
            StatusCode::MULTI_STATUS => {
                let message = format!("{} completed only part of the request (207)", answer.target.root());
                Error::new(Fault::Io, message).blamed_on(Blame::Storage)
            }
            StatusCode::ACCEPTED => {
                let root = answer.target.root();
                answer.discard().await;
                match self.has_happened(caller, effect).await {
                    Ok(true) => return Ok(()),
                    Ok(false) => refusal::not_done(&root, &request.method, None),
                    Err(error) => refusal::not_done(&root, &request.method, Some(error.message())),
                }
            }
            status if status.is_success() => {
                answer.discard().await;
                return Ok(());
            }
            _ => refusal::of(answer, &request.method, &self.site.credentials(caller)?).await,
        };
        Err(error.at(path))
    }

    /// Returns whether an effect can be observed.
    async fn has_happened(&self, caller: &Caller, effect: Effect<'_>) -> Result<bool> {
        let is_like = |found: &Metadata, source: &Metadata| (found.kind, found.size) == (source.kind, source.size);
        Ok(match effect {
            Effect::Gone(path) => self.find(caller, path).await?.is_none(),
            Effect::Invisible => false,
            Effect::Directory(path) => self.find(caller, path).await?.is_some_and(|found| found.is_directory()),
            Effect::Moved { from, to, source } => {
                self.find(caller, from).await?.is_none()
                    && self.find(caller, to).await?.is_some_and(|found| is_like(&found, source))
            }
            Effect::Copied { to, source, existing } => {
                let is_new = |found: &Metadata| existing.is_none_or(|existing| existing.version != found.version);
                self.find(caller, to).await?.is_some_and(|found| is_like(&found, source) && is_new(&found))
            }
        })
    }

    /// Returns the metadata of a path; `None` if it does not exist.
    async fn find(&self, caller: &Caller, path: &StorePath) -> Result<Option<Metadata>> {
        match self.stat_path(caller, path).await {
            Ok(found) => Ok(Some(found)),
            Err(error) if error.fault() == Fault::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Returns `NotDirectory` if the parent of `path` is a file; else `error`, which reports a missing parent.
    pub(super) async fn explain_missing_parent(&self, caller: &Caller, path: &StorePath, error: Error) -> Error {
        let Some(parent) = path.parent() else { return error };
        match self.stat_path(caller, &parent).await {
            Ok(metadata) if !metadata.is_directory() => {
                Error::new(Fault::NotDirectory, format!("{parent} is not a directory")).at(path)
            }
            _ => error,
        }
    }

    /// Returns the metadata of a path.
    pub(super) async fn stat_path(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        stat::stat(&self.site, caller, path, &self.target(path)).await
    }

    /// Returns the target of a directory, with a trailing slash, which some servers require (nginx) and others permit.
    fn directory_target(&self, path: &StorePath) -> Target {
        let mut target = self.target(path);
        let end = target.path().len();
        if !target.path().ends_with('/') {
            target.path_and_query.insert(end, '/');
        }
        target
    }
}

/// Returns whether the response to a PROPPATCH has status 200 for a property, and no other status (202 is not yet
/// done).
fn is_changed(multistatus: &Element) -> bool {
    let responses = multistatus.children.iter().filter(|child| child.name.is_dav("response"));
    let propstats = responses.flat_map(|response| &response.children).filter(|child| child.name.is_dav("propstat"));
    let mut statuses =
        propstats.map(|propstat| propstat.dav_child("status")?.text.split_whitespace().nth(1)).peekable();
    statuses.peek().is_some() && statuses.all(|status| status == Some("200"))
}
