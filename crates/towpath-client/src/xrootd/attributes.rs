//! User attributes: `fattr`.

use bytes::Bytes;
use towpath_proto::xrootd::{
    ErrorCode, FattrOperation, Target,
    request::Fattr,
    response::{ErrorReply, FattrList, FattrResults},
};
use towpath_store::{Caller, Error, Fault, Result, StorePath};

use super::{
    origin::{Origin, RequestOptions},
    retry_state::refusal,
};

/// Maximum length of a list of attributes, in bytes: a few hundred with values of the size that programs use.
const LIST_LIMIT: usize = 16 << 20;

/// Returns all attributes of a path, with values.
pub(super) async fn list(origin: &Origin, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
    let options = RequestOptions { limit: LIST_LIMIT, ..RequestOptions::new(path) };
    let request = |path| Fattr { target: Target::Path(path), operation: FattrOperation::List { values: true } }.into();
    let body = origin.send_request(caller, options, request).await?;
    let list = FattrList::from_body(body, true).map_err(|error| garbled(origin, path, &error.to_string()))?;
    Ok(list.0.into_iter().map(|entry| (strip(entry.name), entry.value.unwrap_or_default())).collect())
}

/// Removes the namespace `U.` of users, which servers include in listed names and requests omit.
fn strip(name: Bytes) -> Bytes {
    if name.starts_with(b"U.") { name.slice(2..) } else { name }
}

/// Sets or removes one attribute.
pub(super) async fn set(
    origin: &Origin,
    caller: &Caller,
    path: &StorePath,
    name: &[u8],
    value: Option<&[u8]>,
    create: bool,
) -> Result<()> {
    if name.is_empty() || name.contains(&0) {
        return Err(Error::new(Fault::InvalidArgument, "the name of the attribute is empty or has a NUL").at(path));
    }
    if name.len() > Fattr::MAX_NAME_BYTES {
        return Err(Error::new(Fault::NameTooLong, "the name of the attribute is longer than 248 bytes").at(path));
    }
    if value.is_some_and(|value| value.len() > Fattr::MAX_VALUE_BYTES) {
        return Err(Error::new(Fault::TooLarge, "the value of the attribute is longer than 64 KiB").at(path));
    }
    let name = Bytes::copy_from_slice(name);
    let operation = match value {
        Some(value) => FattrOperation::Set { new: create, attributes: vec![(name, Bytes::copy_from_slice(value))] },
        None => FattrOperation::Del(vec![name]),
    };
    let options = if create || value.is_none() { RequestOptions::change(path) } else { RequestOptions::new(path) };
    let request = |path| Fattr { target: Target::Path(path), operation: operation.clone() }.into();
    let body = origin.send_request(caller, options, request).await?;
    let results = FattrResults::from_body(body).map_err(|error| garbled(origin, path, &error.to_string()))?;
    match results.0.into_iter().find_map(|result| result.outcome.err()) {
        None => Ok(()),
        Some(code) => Err(refused(origin, code).at(path)),
    }
}

fn refused(origin: &Origin, code: ErrorCode) -> Error {
    refusal(&origin.server.root(), &ErrorReply { code, message: String::new(), named: None })
}

fn garbled(origin: &Origin, path: &StorePath, why: &str) -> Error {
    Error::new(Fault::Protocol, format!("{}: {why}", origin.server.name())).at(path)
}
