//! `fattr`: user attributes of files. Each attribute of a request succeeds or fails by itself.

use bytes::Bytes;
use towpath_proto::xrootd::{
    ErrorCode, FattrOperation, Target,
    request::Fattr,
    response::{FattrEntry, FattrList, FattrResult, FattrResults},
};
use towpath_store::{Error, Fault, StorePath};

use super::{
    exchange::{Exchange, Refusal, Served},
    files::{FileAccess, OpenFile},
};
use crate::access::{Activity, Identity};

/// Answers `fattr` of a path.
pub(super) async fn on_path(exchange: &Exchange, request: &Fattr) -> Served {
    let Target::Path(path) = &request.target else {
        return Err(Refusal::new(Fault::InvalidArgument, "neither a path nor a handle is named").into());
    };
    let (identity, path) = exchange.subject(path).await?;
    serve(exchange, &identity, &path, &request.operation).await
}

/// Answers `fattr` of an open file.
pub(super) async fn on_file(exchange: &Exchange, file: &OpenFile, operation: &FattrOperation) -> Served {
    if let FileAccess::Write(writing) = &file.access
        && writing.is_new()
    {
        let message = "attributes of a new file can be set when it is closed";
        return Err(Refusal::new(Fault::Unsupported, message).into());
    }
    serve(exchange, &file.identity, &file.path, operation).await
}

async fn serve(exchange: &Exchange, identity: &Identity, path: &StorePath, operation: &FattrOperation) -> Served {
    let store = &exchange.session.service.store;
    if !store.capabilities().attributes {
        return Err(Refusal::new(Fault::Unsupported, "this storage keeps no attributes").into());
    }
    match operation {
        FattrOperation::Get(_) | FattrOperation::List { .. } => identity.check(Activity::Stat, path)?,
        FattrOperation::Set { .. } | FattrOperation::Del(_) => identity.check(Activity::Modify, path)?,
    }
    let results = match operation {
        FattrOperation::List { values } => {
            let attributes = store.attributes(&identity.caller, path).await?;
            let entries = attributes.into_iter();
            let entries = entries.map(|(name, value)| FattrEntry { name, value: values.then_some(value) });
            return exchange.ok(&FattrList(entries.collect()).to_body());
        }
        FattrOperation::Get(names) => {
            let attributes = store.attributes(&identity.caller, path).await?;
            names.iter().map(|name| found(name, &attributes)).collect()
        }
        FattrOperation::Set { new, attributes } => {
            let mut results = Vec::with_capacity(attributes.len());
            for (name, value) in attributes {
                let set = store.set_attribute(&identity.caller, path, name, Some(value), *new).await;
                results.push(result(name, set)?);
            }
            results
        }
        FattrOperation::Del(names) => {
            let mut results = Vec::with_capacity(names.len());
            for name in names {
                let removed = store.set_attribute(&identity.caller, path, name, None, false).await;
                results.push(result(name, removed)?);
            }
            results
        }
    };
    exchange.ok(&FattrResults(results).to_body(operation))
}

fn found(name: &Bytes, attributes: &[(Bytes, Bytes)]) -> FattrResult {
    let value = attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    FattrResult { name: name.clone(), outcome: value.ok_or(ErrorCode::AttrNotFound) }
}

/// What became of one attribute. If the file itself is not there, the whole request fails.
fn result(name: &Bytes, outcome: Result<(), Error>) -> Result<FattrResult, Error> {
    match outcome {
        Err(error) if error.fault() == Fault::NotFound => Err(error),
        outcome => Ok(FattrResult {
            name: name.clone(),
            outcome: outcome.map(|()| Bytes::new()).map_err(|error| ErrorCode(error.fault().xrootd_code())),
        }),
    }
}
