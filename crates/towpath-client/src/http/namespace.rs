//! Directories and names, by WebDAV.
//!
//! WebDAV's DELETE takes a directory with all that is in it, and its MOVE and COPY do so with what they replace. A store promises
//! less, so what is there is looked at before; a change in between is not noticed.

use futures::StreamExt as _;
use http::{HeaderName, Method, StatusCode, header};
use towpath_proto::http::dav::{Element, Limits};
use towpath_store::{Blame, Caller, Error, Fault, ListOptions, Metadata, Overwrite, Result, StorePath};

use super::{
    listing,
    payload::Payload,
    place::Place,
    put,
    question::Question,
    refusal,
    stat::{self, method},
    store::HttpStore,
};

/// The longest answer to a PROPPATCH of one property.
const OUTCOME_BYTES: usize = 64 << 10;

impl HttpStore {
    pub(super) async fn make_one_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let question = Question::new(&self.site, method("MKCOL"));
        let place = self.directory_place(path);
        let made = self.carry_out(caller, path, &place, Question { repeatable: false, ..question }).await;
        match made {
            // Some say 404 where RFC 4918 has 409.
            Err(error) if error.fault() == Fault::NotFound => {
                Err(self.explain_missing_parent(caller, path, error).await)
            }
            made => made,
        }
    }

    /// Makes `path` and what is missing above it.
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
                // Somebody else made it at the same time.
                Err(error) if error.fault() == Fault::AlreadyExists => {}
                made => made?,
            }
        }
        Ok(())
    }

    pub(super) async fn delete_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        let found = self.stat_path(caller, path).await;
        // Towpath's own server removes with depth 0 what is no directory: also links, wherever they lead.
        if self.site.facts.is_towpath.certain() && !path.is_root() {
            let question = Question::new(&self.site, Method::DELETE).with(HeaderName::from_static("depth"), "0");
            let question = Question { repeatable: false, ..question };
            let removed = self.carry_out(caller, path, &self.place(path), question).await;
            return removed.map_err(|error| match found {
                Ok(found) if found.is_directory() => Error::new(Fault::IsDirectory, "it is a directory").at(path),
                _ => error,
            });
        }
        match found {
            Ok(metadata) if metadata.is_directory() => {
                return Err(Error::new(Fault::IsDirectory, "it is a directory").at(path));
            }
            // Of a link that leads nowhere a server may say that there is no such file, and remove it all the same.
            Err(error) if error.fault() != Fault::NotFound => return Err(error),
            _ => {}
        }
        self.delete(caller, path, &self.place(path)).await
    }

    pub(super) async fn delete_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(Error::new(Fault::InvalidArgument, "the root cannot be removed").at(path));
        }
        if !self.stat_path(caller, path).await?.is_directory() {
            return Err(Error::new(Fault::NotDirectory, "it is not a directory").at(path));
        }
        // XRootD's own server removes empty directories only, and says of a link that it is none.
        if self.site.facts.is_xrootd.certain() {
            return self.delete(caller, path, &self.directory_place(path)).await.map_err(|error| {
                match error.message().contains("not empty") {
                    true => Error::new(Fault::NotEmpty, error.message()).at(path),
                    false => error,
                }
            });
        }
        if !self.is_empty(caller, path).await? {
            return Err(Error::new(Fault::NotEmpty, "the directory still has entries").at(path));
        }
        self.delete(caller, path, &self.directory_place(path)).await
    }

    /// Removes a directory with all in it; what becomes of links in it the server decides.
    pub(super) async fn delete_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        if path.is_root() {
            return Err(Error::new(Fault::InvalidArgument, "the root cannot be removed").at(path));
        }
        if !self.stat_path(caller, path).await?.is_directory() {
            return Err(Error::new(Fault::NotDirectory, "it is not a directory").at(path));
        }
        let place = self.place(path);
        // Where nothing can be listed nobody can look at what would go: nginx 1.22 empties even what links lead to.
        if !self.site.facts.dav.certain() {
            return Err(stat::no_dav(&place).at(path));
        }
        self.delete(caller, path, &place).await
    }

    pub(super) async fn delete(&self, caller: &Caller, path: &StorePath, place: &Place) -> Result<()> {
        let question = Question::new(&self.site, Method::DELETE);
        // A whole tree takes a server a while.
        let question = Question { repeatable: false, wait: self.site.options.patience, ..question };
        self.carry_out(caller, path, place, question).await
    }

    async fn is_empty(&self, caller: &Caller, path: &StorePath) -> Result<bool> {
        let (site, place) = (self.site.clone(), self.place(path));
        let mut entries = listing::list(site, caller.clone(), path.clone(), place, ListOptions::default());
        entries.next().await.transpose().map(|batch| batch.is_none())
    }

    /// Moves or copies in one step; `name` is the method.
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
            return Err(Error::new(Fault::InvalidArgument, "a directory cannot move into itself").at(from));
        }
        match self.stat_path(caller, to).await {
            Ok(target) => self.may_replace(caller, &source, (to, &target), overwrite).await?,
            Err(error) if error.fault() == Fault::NotFound => {}
            Err(error) => return Err(error),
        }
        let (place, destination) = match source.is_directory() {
            true => (self.directory_place(from), self.directory_place(to)),
            false => (self.place(from), self.place(to)),
        };
        let flag = if overwrite == Overwrite::Replace { "T" } else { "F" };
        let mut question = Question::new(&self.site, method(name))
            .with(HeaderName::from_static("destination"), destination.without_query())
            .with(HeaderName::from_static("overwrite"), flag);
        question.repeatable = false;
        // A server may do either by copying the bytes.
        question.wait = self.site.options.patience;
        match self.carry_out(caller, from, &place, question).await {
            Err(error) if error.fault() == Fault::NotFound => Err(self.explain_missing_parent(caller, to, error).await),
            outcome => outcome,
        }
    }

    async fn may_replace(
        &self,
        caller: &Caller,
        source: &Metadata,
        (to, target): (&StorePath, &Metadata),
        overwrite: Overwrite,
    ) -> Result<()> {
        let (fault, message) = match (source.is_directory(), target.is_directory()) {
            _ if overwrite == Overwrite::Refuse => (Fault::AlreadyExists, "it exists already"),
            (false, true) => (Fault::IsDirectory, "it is a directory"),
            (true, false) => (Fault::NotDirectory, "it is not a directory"),
            (true, true) if !self.is_empty(caller, to).await? => (Fault::NotEmpty, "the directory still has entries"),
            _ => return Ok(()),
        };
        Err(Error::new(fault, message).at(to))
    }

    /// Gives a file or directory a time of change, as ownCloud's clients do: by a PROPPATCH of `lastmodified`.
    pub(super) async fn set_mtime(&self, caller: &Caller, path: &StorePath, mtime_ns: i64) -> Result<()> {
        let body = format!(
            "<?xml version=\"1.0\"?><D:propertyupdate xmlns:D=\"DAV:\"><D:set><D:prop><D:lastmodified>{}</D:lastmodified></D:prop></D:set></D:propertyupdate>",
            put::modified(mtime_ns)
        );
        let mut question =
            Question::new(&self.site, method("PROPPATCH")).with(header::CONTENT_TYPE, "application/xml; charset=utf-8");
        question.payload = Payload::Whole(body.into());
        let mut pursuit = self.site.pursuit(&self.place(path));
        let answer = self.site.ask(caller, &mut pursuit, &question).await.map_err(|error| error.at(path))?;
        if answer.status != StatusCode::MULTI_STATUS {
            return Err(refusal::of(answer, &question.method, &self.site.credentials(caller)?).await.at(path));
        }
        let root = answer.place.root();
        let body = answer.beginning(OUTCOME_BYTES).await;
        let statuses = Element::parse(&body, Limits::REQUEST).ok().and_then(|multistatus| {
            let response = multistatus.dav_child("response")?;
            Some(response.dav_child("propstat")?.dav_child("status")?.text.clone())
        });
        match statuses {
            Some(status) if status.split_whitespace().nth(1) == Some("200") => Ok(()),
            _ => {
                let message = format!("{root} does not let times be set");
                Err(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage).at(path))
            }
        }
    }

    /// Asks for something that is done, or is not.
    async fn carry_out(&self, caller: &Caller, path: &StorePath, place: &Place, question: Question) -> Result<()> {
        let answer =
            self.site.ask(caller, &mut self.site.pursuit(place), &question).await.map_err(|error| error.at(path))?;
        let error = match answer.status {
            StatusCode::MULTI_STATUS => {
                let message = format!("{} completed only part of the request (207)", answer.place.root());
                Error::new(Fault::Io, message).blamed_on(Blame::Storage)
            }
            status if status.is_success() => {
                answer.discard().await;
                return Ok(());
            }
            _ => refusal::of(answer, &question.method, &self.site.credentials(caller)?).await,
        };
        Err(error.at(path))
    }

    /// `NotDirectory` if what should be the parent of `path` is a file; else `error`, which says that it is missing.
    pub(super) async fn explain_missing_parent(&self, caller: &Caller, path: &StorePath, error: Error) -> Error {
        let Some(parent) = path.parent() else { return error };
        match self.stat_path(caller, &parent).await {
            Ok(metadata) if !metadata.is_directory() => {
                Error::new(Fault::NotDirectory, format!("{parent} is not a directory")).at(path)
            }
            _ => error,
        }
    }

    /// The metadata of a path.
    pub(super) async fn stat_path(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        stat::stat(&self.site, caller, path, &self.place(path)).await
    }

    /// Where a directory is. With a slash at its end, which some servers insist on (nginx) and others do not mind.
    fn directory_place(&self, path: &StorePath) -> Place {
        let mut place = self.place(path);
        let end = place.path().len();
        if !place.path().ends_with('/') {
            place.target.insert(end, '/');
        }
        place
    }
}
