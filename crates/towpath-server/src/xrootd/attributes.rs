//! `fattr`: user attributes of files. Each attribute of a request succeeds or fails independently.
//!
//! The store cannot keep attributes of an unfinished upload, because it has no name yet. They are kept with its
//! writer ([`PendingAttributes`]) and set on the file once it is committed, before `close` is answered.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use bytes::Bytes;
use towpath_proto::xrootd::{
    ErrorCode, FattrOperation, Target,
    request::Fattr,
    response::{FattrEntry, FattrList, FattrResult, FattrResults},
};
use towpath_store::{Error, Fault, StorePath};

use super::{
    active_request::{ActiveRequest, ErrorResponse, ServeResult},
    files::{FileAccess, OpenFile},
    session::Session,
};
use crate::{
    access::{Activity, Identity},
    buffers::MemoryPermit,
};

/// Attributes of an upload that is not closed.
#[derive(Debug, Default)]
pub(super) struct PendingAttributes(Mutex<BTreeMap<Bytes, (Bytes, MemoryPermit)>>);

/// The owner of the attributes that a request addresses.
enum AttributeTarget<'a> {
    /// A file that has a name.
    Named { active_request: &'a ActiveRequest, identity: &'a Identity, path: &'a StorePath },
    /// An upload.
    Upload { session: &'a Session, waiting: &'a PendingAttributes },
}

/// Handles `fattr` of a path.
pub(super) async fn on_path(active_request: &ActiveRequest, request: &Fattr) -> ServeResult {
    let Target::Path(path) = &request.target else {
        return Err(ErrorResponse::new(Fault::InvalidArgument, "neither a path nor a handle is given").into());
    };
    let (identity, path) = active_request.subject(path).await?;
    on_named(active_request, &identity, &path, &request.operation).await
}

/// Handles `fattr` of an open file. The creator of an upload may set its attributes.
pub(super) async fn on_file(
    active_request: &ActiveRequest,
    file: &OpenFile,
    operation: &FattrOperation,
) -> ServeResult {
    match &file.access {
        FileAccess::Write(writing) if writing.is_new() => {
            let target = AttributeTarget::Upload { session: &active_request.session, waiting: &writing.attributes };
            serve(active_request, &target, operation).await
        }
        _ => on_named(active_request, &file.identity, &file.path, operation).await,
    }
}

async fn on_named(
    active_request: &ActiveRequest,
    identity: &Identity,
    path: &StorePath,
    operation: &FattrOperation,
) -> ServeResult {
    match operation {
        FattrOperation::Get(_) | FattrOperation::List { .. } => identity.check(Activity::Stat, path)?,
        FattrOperation::Set { .. } | FattrOperation::Del(_) => identity.check(Activity::Modify, path)?,
    }
    serve(active_request, &AttributeTarget::Named { active_request, identity, path }, operation).await
}

async fn serve(
    active_request: &ActiveRequest,
    target: &AttributeTarget<'_>,
    operation: &FattrOperation,
) -> ServeResult {
    if !active_request.session.service.store.capabilities().attributes {
        return Err(ErrorResponse::new(Fault::Unsupported, "this storage does not support attributes").into());
    }
    let results = match operation {
        FattrOperation::List { values } => {
            let entries = target.all().await?.into_iter();
            let entries = entries.map(|(name, value)| FattrEntry { name, value: values.then_some(value) });
            return active_request.ok(&FattrList(entries.collect()).to_body());
        }
        FattrOperation::Get(names) => {
            let attributes = target.all().await?;
            names.iter().map(|name| found(name, &attributes)).collect()
        }
        FattrOperation::Set { new, attributes } => {
            let mut results = Vec::with_capacity(attributes.len());
            for (name, value) in attributes {
                results.push(result(name, target.set(name, Some(value), *new).await)?);
            }
            results
        }
        FattrOperation::Del(names) => {
            let mut results = Vec::with_capacity(names.len());
            for name in names {
                results.push(result(name, target.set(name, None, false).await)?);
            }
            results
        }
    };
    active_request.ok(&FattrResults(results).to_body(operation))
}

/// Sets the pending attributes on a file that has just been committed.
///
/// # Errors
/// Those of the store. The file then exists and is complete, but lacks an attribute; the message says so.
pub(super) async fn apply_pending(
    active_request: &ActiveRequest,
    file: &OpenFile,
    waiting: &PendingAttributes,
) -> towpath_store::Result<()> {
    let target = AttributeTarget::Named { active_request, identity: &file.identity, path: &file.path };
    let attributes = std::mem::take(&mut *waiting.lock());
    for (name, (value, _permit)) in attributes {
        target.set(&name, Some(&value), false).await.map_err(|error| {
            let name = name.escape_ascii();
            Error::new(error.fault(), format!("the file is stored, but not its attribute `{name}`: {error}"))
        })?;
    }
    Ok(())
}

impl AttributeTarget<'_> {
    async fn all(&self) -> towpath_store::Result<Vec<(Bytes, Bytes)>> {
        match self {
            Self::Named { active_request, identity, path } => {
                active_request.session.service.store.attributes(&identity.caller, path).await
            }
            Self::Upload { waiting, .. } => Ok(waiting.all()),
        }
    }

    /// See the store's `set_attribute`.
    async fn set(&self, name: &Bytes, value: Option<&Bytes>, create: bool) -> towpath_store::Result<()> {
        match self {
            Self::Named { active_request, identity, path } => {
                let (store, value) = (&active_request.session.service.store, value.map(|value| &**value));
                store.set_attribute(&identity.caller, path, name, value, create).await
            }
            Self::Upload { session, waiting } => {
                let Some(value) = value else { return waiting.remove(name) };
                let permit = session.attributes.try_acquire(name.len() + value.len()).ok_or_else(|| {
                    Error::new(Fault::Overloaded, "too many attributes are pending on open uploads: close some")
                })?;
                waiting.insert(name, value, permit, create)
            }
        }
    }
}

impl PendingAttributes {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Bytes, (Bytes, MemoryPermit)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn all(&self) -> Vec<(Bytes, Bytes)> {
        self.lock().iter().map(|(name, (value, _))| (name.clone(), value.clone())).collect()
    }

    fn insert(&self, name: &[u8], value: &[u8], permit: MemoryPermit, create: bool) -> towpath_store::Result<()> {
        let mut attributes = self.lock();
        if create && attributes.contains_key(name) {
            return Err(Error::new(Fault::AlreadyExists, "the attribute already exists"));
        }
        // Copied, because the received bytes share the memory of the whole request.
        attributes.insert(Bytes::copy_from_slice(name), (Bytes::copy_from_slice(value), permit));
        Ok(())
    }

    fn remove(&self, name: &[u8]) -> towpath_store::Result<()> {
        let missing = || Error::new(Fault::AttributeNotFound, "there is no such attribute");
        self.lock().remove(name).map(drop).ok_or_else(missing)
    }
}

fn found(name: &Bytes, attributes: &[(Bytes, Bytes)]) -> FattrResult {
    let value = attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    FattrResult { name: name.clone(), outcome: value.ok_or(ErrorCode::AttrNotFound) }
}

/// Returns the outcome for one attribute. A missing file fails the whole request.
fn result(name: &Bytes, outcome: Result<(), Error>) -> Result<FattrResult, Error> {
    match outcome {
        Err(error) if error.fault() == Fault::NotFound => Err(error),
        outcome => Ok(FattrResult {
            name: name.clone(),
            outcome: outcome.map(|()| Bytes::new()).map_err(|error| ErrorCode(error.fault().xrootd_code())),
        }),
    }
}
