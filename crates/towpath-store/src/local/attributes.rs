//! User attributes: extended attributes `user.U.<name>`, as XRootD keeps them (read off a 5.5.3 server). All others, the kept
//! digests among them, cannot be seen or reached from here.

use std::os::fd::AsFd;

use bytes::Bytes;
use rustix::{fs::XattrFlags, io::Errno};

use super::{
    errno::{self, Doing as _},
    inode::Inode,
};
use crate::{MAX_ATTRIBUTE_VALUE_BYTES, Result, attribute::check_attribute};

const PREFIX: &[u8] = b"user.U.";

/// Whether the file system of `inode` has attributes.
pub(super) fn are_supported<Fd: AsFd>(inode: &Inode<Fd>) -> bool {
    !matches!(inode.attribute(b"user.U.towpath", 1), Err(Errno::OPNOTSUPP | Errno::NOENT))
}

/// The user attributes, names and values.
pub(super) fn list<Fd: AsFd>(inode: &Inode<Fd>) -> Result<Vec<(Bytes, Bytes)>> {
    let mut found = Vec::new();
    for name in inode.attribute_names(PREFIX).doing("listing the attributes")? {
        match inode.attribute(&name, MAX_ATTRIBUTE_VALUE_BYTES) {
            Ok(value) => found.push((Bytes::from(name).slice(PREFIX.len()..), Bytes::from(value))),
            // Removed meanwhile.
            Err(Errno::NODATA) => {}
            Err(errno) => return Err(errno::error(errno, "reading an attribute")),
        }
    }
    Ok(found)
}

/// Sets or removes one.
pub(super) fn set<Fd: AsFd>(inode: &Inode<Fd>, name: &[u8], value: Option<&[u8]>, flags: XattrFlags) -> Result<()> {
    check_attribute(name, value)?;
    let name = [PREFIX, name].concat();
    match value {
        Some(value) => inode.set_attribute(&name, value, flags).doing("setting an attribute"),
        None => inode.remove_attribute(&name).doing("removing an attribute"),
    }
}
