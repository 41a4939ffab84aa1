//! DELETE, MKCOL and MOVE. COPY is in [`super::copying`].

use futures::StreamExt as _;
use http::{Response, StatusCode, header, uri::Authority};
use hyper::body::{Body as _, Incoming};
use towpath_proto::http::dav::{Depth, Multistatus};
use towpath_store::{Error, Fault, FileKind, ListOptions, Metadata, Overwrite, StorePath, gone, sys::random};

use super::{body::Content, exchange::Exchange, locking, refusal::Refusal, respond, target, third_party};
use crate::access::Activity;

/// Maximum number of failed members in one 207 response; further ones are only logged.
const MAX_REPORTED_FAILURES: usize = 1000;

/// Failures of operations on members of a tree.
#[derive(Debug, Default)]
pub(super) struct Failures(Vec<(StorePath, StatusCode)>);

impl Failures {
    /// Adds one failure.
    pub(super) fn add(&mut self, path: &StorePath, error: Error) {
        tracing::debug!(%error, "failed to process a member of a directory tree");
        if self.0.len() < MAX_REPORTED_FAILURES {
            self.0.push((path.clone(), Refusal::from(error).status()));
        }
    }

    /// Adds the outcome of one step if it failed.
    pub(super) fn note(&mut self, path: &StorePath, outcome: Result<(), Error>) {
        if let Err(error) = outcome {
            self.add(path, error);
        }
    }

    /// Returns `otherwise`, or 207 with the failures if there are any.
    pub(super) fn answer(self, otherwise: StatusCode) -> Response<Content> {
        if self.0.is_empty() {
            return respond::empty(otherwise);
        }
        let mut body = Multistatus::new();
        for (path, status) in &self.0 {
            body.status(&target::encode(path, false), status.as_u16());
        }
        respond::multistatus(Content::text(body.finish()))
    }

    /// Whether there are no failures.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Returns the depth of a request; the default is infinity.
pub(super) fn depth(exchange: &Exchange) -> Result<Depth, Refusal> {
    let asked = exchange.custom_field("depth");
    asked
        .as_deref()
        .map_or(Some(Depth::Infinity), Depth::parse)
        .ok_or_else(|| Refusal::bad_request("Depth is 0, 1 or infinity"))
}

/// Handles a DELETE.
pub(super) async fn delete(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    let path = exchange.path();
    refuse_fixed(exchange, path)?;
    exchange.may(Activity::Modify)?;
    exchange.store().capabilities().check_remove(path)?;
    let metadata = match exchange.store().stat(exchange.caller(), path).await {
        Ok(metadata) => Some(metadata),
        // It may be a link that is dangling or leads out of the export.
        Err(error) if matches!(error.fault(), Fault::NotFound | Fault::PermissionDenied) => None,
        Err(error) => return Err(error.into()),
    };
    exchange.refuse_slash_of_file(metadata.as_ref())?;
    // Depth 0 removes only files and links to directories.
    let is_one = depth(exchange)? != Depth::Infinity;
    exchange.check_conditions(metadata.as_ref())?;
    locking::may_remove(exchange, path).await?;
    let mut failures = Failures::default();
    if is_one || metadata.is_none() {
        match exchange.store().remove_file(exchange.caller(), path).await {
            Err(error) if error.fault() == Fault::IsDirectory => {
                let text = "a directory is removed with its content: Depth must be infinity";
                return Err(Refusal::bad_request(text));
            }
            removed => removed?,
        }
    } else {
        remove(exchange, path, &mut failures).await?;
    }
    if failures.is_empty() {
        exchange.service.http.locks.forget(path);
    }
    Ok(failures.answer(StatusCode::NO_CONTENT))
}

/// Removes `path`, for a directory as much of its content as possible. Links are removed, not followed.
async fn remove(exchange: &Exchange, path: &StorePath, failures: &mut Failures) -> Result<(), Refusal> {
    match exchange.store().remove_file(exchange.caller(), path).await {
        Err(error) if error.fault() == Fault::IsDirectory => remove_tree(exchange, path, failures).await,
        outcome => Ok(outcome?),
    }
}

/// Removes a directory that is not a link. Memory grows with the number of directories found and not yet visited.
async fn remove_tree(exchange: &Exchange, path: &StorePath, failures: &mut Failures) -> Result<(), Refusal> {
    let (store, caller) = (exchange.store(), exchange.caller());
    // Each directory is visited twice: to remove its content, and then to remove it.
    let mut to_do = vec![(path.clone(), false)];
    while let Some((directory, emptied)) = to_do.pop() {
        if emptied {
            let outcome = store.remove_directory(caller, &directory).await;
            // The failures of its members are already recorded.
            let because_of_others = |error: &Error| error.fault() == Fault::NotEmpty && !failures.is_empty();
            if !outcome.as_ref().is_err_and(because_of_others) {
                failures.note(&directory, outcome);
            }
            continue;
        }
        to_do.push((directory.clone(), true));
        let mut listing = store.list(caller, &directory, ListOptions::default());
        while let Some(batch) = listing.next().await {
            let entries = match batch {
                Ok(entries) => entries,
                Err(error) => {
                    failures.add(&directory, error);
                    break;
                }
            };
            for entry in entries {
                let member = member(&directory, &entry.name)?;
                match entry.metadata.kind {
                    FileKind::Directory if !entry.metadata.is_link => to_do.push((member, false)),
                    _ => failures.note(&member, gone(store.remove_file(caller, &member).await)),
                }
            }
        }
    }
    Ok(())
}

/// Returns the error for a device, pipe or socket, which is neither read nor replaced.
pub(super) fn not_regular(path: &StorePath) -> Error {
    Error::new(Fault::NotRegular, "it is not a regular file").at(path)
}

/// Returns the path of a member of a directory.
pub(super) fn member(directory: &StorePath, name: &[u8]) -> Result<StorePath, Refusal> {
    directory.join(name).map_err(|error| Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

/// Handles an MKCOL.
pub(super) async fn make_directory(exchange: &Exchange, body: &Incoming) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::CreateDirectory)?;
    exchange.store().capabilities().check_create(exchange.path())?;
    if !body.is_end_stream() {
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "MKCOL takes no body"));
    }
    let exists = || Refusal::method_not_allowed("a resource of that name already exists").of(Fault::AlreadyExists);
    if exchange.metadata().await?.is_some() {
        return Err(exists());
    }
    locking::may_add(exchange, exchange.path()).await?;
    match exchange.store().make_directory(exchange.caller(), exchange.path(), false, None).await {
        Ok(()) => Ok(respond::empty(StatusCode::CREATED)),
        Err(error) if error.fault() == Fault::AlreadyExists => Err(exists()),
        // The missing path is the parent.
        Err(error) => Err(Refusal::from(error).or_status(Fault::NotFound, StatusCode::CONFLICT)),
    }
}

/// The destination of a MOVE or COPY, and the existing resource.
#[derive(Debug)]
pub(super) struct Destination {
    pub(super) path: StorePath,
    pub(super) existing: Option<Metadata>,
}

impl Destination {
    /// Returns the destination of a request for `source`, after checking that the caller may write to it and
    /// overwrite an existing resource.
    pub(super) async fn of(exchange: &Exchange, source: &Metadata) -> Result<Self, Refusal> {
        let path = path_of_destination(exchange)?;
        exchange.may_stat_before(Activity::Create, &path)?;
        let existing = exchange.metadata_of(&path).await?;
        // Creating a directory with content needs more than `CreateDirectory`, which also applies above the granted
        // paths.
        exchange.may_at(if existing.is_some() { Activity::Modify } else { Activity::Create }, &path)?;
        let (from, to) = ((exchange.path(), Some(source)), (&path, existing.as_ref()));
        if lies_in(exchange, to.0, from).await? || lies_in(exchange, from.0, to).await? {
            let text = "source and destination are the same, or one contains the other";
            return Err(Refusal::new(StatusCode::FORBIDDEN, text));
        }
        refuse_fixed(exchange, &path)?;
        if existing.is_some() && overwrite(exchange)? == Overwrite::Refuse {
            return Err(Refusal::destination_exists());
        }
        if existing.as_ref().is_some_and(|existing| existing.kind == FileKind::Other) {
            return Err(not_regular(&path).into());
        }
        if existing.is_some() {
            exchange.store().capabilities().check_replace(&path)?;
        }
        locking::may_remove(exchange, &path).await?;
        Ok(Self { path, existing })
    }

    /// Removes the existing resource, unless a file can replace a file of the same name atomically.
    pub(super) async fn clear(
        &self,
        exchange: &Exchange,
        source: &Metadata,
        failures: &mut Failures,
    ) -> Result<Overwrite, Refusal> {
        match &self.existing {
            None => Ok(Overwrite::Refuse),
            Some(existing) if existing.is_directory() || source.is_directory() => {
                remove(exchange, &self.path, failures).await?;
                Ok(Overwrite::Refuse)
            }
            Some(_) => Ok(Overwrite::Replace),
        }
    }

    /// Returns 204 if the destination existed, otherwise 201.
    pub(super) fn success(&self) -> StatusCode {
        if self.existing.is_some() { StatusCode::NO_CONTENT } else { StatusCode::CREATED }
    }
}

/// Refuses to remove or replace the directory of an export, or one above.
fn refuse_fixed(exchange: &Exchange, path: &StorePath) -> Result<(), Refusal> {
    match exchange.service.exports.is_fixed(path) {
        true => Err(Refusal::new(StatusCode::FORBIDDEN, "the root of an export cannot be removed or replaced")),
        false => Ok(()),
    }
}

/// Whether `path` is the given directory or inside it, by name or through a link.
async fn lies_in(
    exchange: &Exchange,
    path: &StorePath,
    (directory, metadata): (&StorePath, Option<&Metadata>),
) -> Result<bool, Refusal> {
    if path.is_within(directory) {
        return Ok(true);
    }
    // An inode number alone is unique in one file system only.
    let identity = |of: &Metadata| Some((of.file_id.filter(|_| of.is_directory())?, of.directory_id));
    let Some(id) = metadata.and_then(identity) else { return Ok(false) };
    let mut above = Some(path.clone());
    while let Some(path) = above {
        if exchange.metadata_of(&path).await?.is_some_and(|found| identity(&found) == Some(id)) {
            return Ok(true);
        }
        above = path.parent();
    }
    Ok(false)
}

/// Returns the `Overwrite` field; the default is to replace (RFC 4918 §10.6).
pub(super) fn overwrite(exchange: &Exchange) -> Result<Overwrite, Refusal> {
    match exchange.custom_field("overwrite").as_deref().map(str::trim) {
        None | Some("T" | "t") => Ok(Overwrite::Replace),
        Some("F" | "f") => Ok(Overwrite::Refuse),
        Some(_) => Err(Refusal::bad_request("Overwrite is T or F")),
    }
}

/// Returns the remote end of a COPY to or from another server; `None` for a local copy.
pub(super) fn remote_endpoint(exchange: &Exchange) -> Result<Option<third_party::RemoteEndpoint>, Refusal> {
    match (exchange.custom_field("source"), exchange.custom_field("destination")) {
        (Some(_), Some(_)) => Err(Refusal::bad_request("Source and Destination exclude each other")),
        (Some(url), None) => Ok(Some(third_party::RemoteEndpoint::Source(url))),
        (None, Some(url)) => {
            Ok(is_elsewhere(exchange, &destination(exchange)?).then_some(third_party::RemoteEndpoint::Destination(url)))
        }
        (None, None) => Err(Refusal::bad_request("neither Source nor Destination is given")),
    }
}

fn path_of_destination(exchange: &Exchange) -> Result<StorePath, Refusal> {
    let uri = destination(exchange)?;
    if is_elsewhere(exchange, &uri) {
        return Err(
            Refusal::new(StatusCode::BAD_GATEWAY, "the Destination is on another server").of(Fault::Unsupported)
        );
    }
    target::decode(uri.path())
}

fn destination(exchange: &Exchange) -> Result<http::Uri, Refusal> {
    let text =
        exchange.custom_field("destination").ok_or_else(|| Refusal::bad_request("the Destination is missing"))?;
    text.trim().parse().map_err(|_| Refusal::bad_request("the Destination is not a URL"))
}

fn is_elsewhere(exchange: &Exchange, uri: &http::Uri) -> bool {
    let own =
        exchange.field(header::HOST).and_then(|host| host.parse().ok()).or_else(|| exchange.uri.authority().cloned());
    // Without a port, both use the default of the scheme, which is the same for both: behind a proxy, the proxy's.
    let standard = if uri.scheme_str() == Some("https") { 443 } else { 80 };
    let authority =
        |authority: &Authority| (authority.host().to_ascii_lowercase(), authority.port_u16().unwrap_or(standard));
    let (there, here) = (uri.authority().map(authority), own.as_ref().map(authority));
    there.zip(here).is_some_and(|(there, here)| there != here)
}

/// Handles a MOVE.
pub(super) async fn rename(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    let path = exchange.path();
    exchange.may_stat_before(Activity::Rename, path)?;
    let source = exchange.store().stat(exchange.caller(), path).await?;
    exchange.refuse_slash_of_file(Some(&source))?;
    exchange.may(if source.is_directory() { Activity::Modify } else { Activity::Rename })?;
    exchange.store().capabilities().check_rename(path)?;
    if source.is_directory() && depth(exchange)? != Depth::Infinity {
        return Err(Refusal::bad_request("a directory is moved with its content: Depth must be infinity"));
    }
    refuse_fixed(exchange, path)?;
    exchange.check_conditions(Some(&source))?;
    locking::may_remove(exchange, path).await?;
    let destination = Destination::of(exchange, &source).await?;
    // Before the destination is removed.
    if !exchange.service.exports.share(path, &destination.path) {
        let text = "source and destination are in different exports: copy the data, then remove the source";
        return Err(Refusal::new(StatusCode::NOT_IMPLEMENTED, text).of(Fault::Unsupported));
    }
    replace(exchange, &source, &destination).await?;
    exchange.service.http.locks.forget(path);
    Ok(respond::empty(destination.success()))
}

/// Renames the source to the name of the destination. An existing directory, or file in place of a directory, gets a
/// temporary name first, so that it is still there if the source cannot be renamed, for example because it is on
/// another mount. What then cannot be removed of it is logged.
async fn replace(exchange: &Exchange, source: &Metadata, destination: &Destination) -> Result<(), Refusal> {
    let (store, caller, path) = (exchange.store(), exchange.caller(), exchange.path());
    let replaced = destination.existing.as_ref().filter(|existing| existing.is_directory() || source.is_directory());
    if replaced.is_none() {
        let overwrite = if destination.existing.is_some() { Overwrite::Replace } else { Overwrite::Refuse };
        let renamed = store.rename(caller, path, &destination.path, overwrite).await;
        // The source existed a moment ago, so the missing path is the destination's parent.
        return renamed.map_err(|error| Refusal::from(error).or_status(Fault::NotFound, StatusCode::CONFLICT));
    }
    let parent = destination.path.parent().unwrap_or_else(StorePath::root);
    let aside = member(&parent, format!(".replaced-{}", random::key()).as_bytes())?;
    store.rename(caller, &destination.path, &aside, Overwrite::Refuse).await?;
    if let Err(error) = store.rename(caller, path, &destination.path, Overwrite::Refuse).await {
        if let Err(error) = store.rename(caller, &aside, &destination.path, Overwrite::Refuse).await {
            tracing::error!("a MOVE failed, and {} is still called {aside}: {error}", destination.path);
        }
        return Err(error.into());
    }
    let mut failures = Failures::default();
    if remove(exchange, &aside, &mut failures).await.is_err() || !failures.is_empty() {
        tracing::error!("a MOVE replaced {}, but {aside} with its old content cannot be removed", destination.path);
    }
    Ok(())
}
