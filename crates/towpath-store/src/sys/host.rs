//! The machine that this process runs on.

use std::{path::Path, sync::OnceLock};

use super::{disk, random};
use crate::DirectoryId;

/// Where Linux names the boot of its kernel: the same in all containers of a machine, and different on every other.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// The length limit of that name, in bytes.
const BOOT_ID_BYTES: u64 = 64;

/// The id of the directory that `device` and `inode` number. Where the kernel has no name, only this process gives equal ids.
pub(crate) fn directory_id(device: u64, inode: u64) -> DirectoryId {
    static KERNEL: OnceLock<Vec<u8>> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| {
        let boot_id = disk::read(Path::new(BOOT_ID), BOOT_ID_BYTES).ok().filter(|name| !name.is_empty());
        boot_id.unwrap_or_else(|| random::key().into_bytes())
    });
    DirectoryId::new(kernel, device, inode)
}
