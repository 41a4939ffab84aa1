//! User attributes, stored as extended attributes `user.U.<name>` as in XRootD (verified with a 5.5.3 server). All
//! other extended attributes, including stored digests, are inaccessible.

use std::os::fd::AsFd;

use bytes::Bytes;
use rustix::{fs::XattrFlags, io::Errno};

use super::{
    errno::{self, ErrnoContext as _},
    inode::Inode,
};
use crate::{
    Error, Fault, MAX_ATTRIBUTE_VALUE_BYTES, Result,
    attribute::{MAX_ATTRIBUTES_BYTES, check_attribute},
};

const PREFIX: &[u8] = b"user.U.";

/// Returns whether the file system of `inode` supports attributes.
pub(super) fn are_supported<Fd: AsFd>(inode: &Inode<Fd>) -> bool {
    !matches!(inode.attribute(b"user.U.towpath", 1), Err(Errno::OPNOTSUPP | Errno::NOENT))
}

/// Returns the names and values of the user attributes; `TooLarge` if they exceed [`MAX_ATTRIBUTES_BYTES`] in total.
pub(super) fn list<Fd: AsFd>(inode: &Inode<Fd>) -> Result<Vec<(Bytes, Bytes)>> {
    let (mut found, mut bytes) = (Vec::new(), 0);
    for attribute in each(inode)? {
        let (name, value) = attribute?;
        bytes += name.len() + value.len();
        if bytes > MAX_ATTRIBUTES_BYTES {
            let message = format!("its attributes have more than {MAX_ATTRIBUTES_BYTES} bytes");
            return Err(Error::new(Fault::TooLarge, message));
        }
        found.push((name, value));
    }
    Ok(found)
}

/// Iterates over the names and values of the user attributes.
pub(super) fn each<Fd: AsFd>(inode: &Inode<Fd>) -> Result<impl Iterator<Item = Result<(Bytes, Bytes)>>> {
    let names = inode.attribute_names(PREFIX).context("listing the attributes")?;
    Ok(names.into_iter().filter_map(|name| match inode.attribute(&name, MAX_ATTRIBUTE_VALUE_BYTES) {
        Ok(value) => Some(Ok((Bytes::from(name).slice(PREFIX.len()..), Bytes::from(value)))),
        // It was removed in the meantime.
        Err(Errno::NODATA) => None,
        Err(errno) => Some(Err(errno::error(errno, "reading an attribute"))),
    }))
}

/// Sets or removes an attribute.
pub(super) fn set<Fd: AsFd>(inode: &Inode<Fd>, name: &[u8], value: Option<&[u8]>, flags: XattrFlags) -> Result<()> {
    check_attribute(name, value)?;
    let name = [PREFIX, name].concat();
    match value {
        Some(value) => inode.set_attribute(&name, value, flags).context("setting an attribute"),
        None => inode.remove_attribute(&name).context("removing an attribute"),
    }
}
