//! Limits of user attributes, common to all stores.

use crate::{Error, Fault, Result};

/// Maximum length of a name in bytes: the 255 of Linux minus XRootD's prefix `user.U.`; XRootD announces the same
/// limit.
pub const MAX_ATTRIBUTE_NAME_BYTES: usize = 248;

/// Maximum length of a value in bytes (Linux `XATTR_SIZE_MAX`; XRootD announces the same limit). A file system may
/// store less.
pub const MAX_ATTRIBUTE_VALUE_BYTES: usize = 65_536;

/// Maximum total size in bytes of the attributes of a file, names and values: twice the limit of one request. Other
/// programs can attach hundreds of times as much to a file on XFS or Btrfs, and any reader may request them.
pub(crate) const MAX_ATTRIBUTES_BYTES: usize = 2 << 20;

/// Returns `InvalidArgument` for a name that is empty or contains a NUL, and `NameTooLong` or `TooLarge` beyond the
/// limits.
pub(crate) fn check_attribute(name: &[u8], value: Option<&[u8]>) -> Result<()> {
    let (fault, why) = if name.is_empty() || name.contains(&0) {
        (Fault::InvalidArgument, "an attribute's name must have bytes, none of them NUL".to_owned())
    } else if name.len() > MAX_ATTRIBUTE_NAME_BYTES {
        (Fault::NameTooLong, format!("an attribute's name has at most {MAX_ATTRIBUTE_NAME_BYTES} bytes"))
    } else if value.is_some_and(|value| value.len() > MAX_ATTRIBUTE_VALUE_BYTES) {
        (Fault::TooLarge, format!("an attribute's value has at most {MAX_ATTRIBUTE_VALUE_BYTES} bytes"))
    } else {
        return Ok(());
    };
    Err(Error::new(fault, why))
}
