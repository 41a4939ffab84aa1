//! The machine on which this process runs.

use std::{path::Path, sync::OnceLock};

use super::{disk, random};
use crate::DirectoryId;

/// File with the boot id of the Linux kernel: equal in all containers of a machine, and different on every other
/// machine.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Maximum length of the boot id in bytes.
const BOOT_ID_BYTES: u64 = 64;

/// Returns the id of the directory with `device` and `inode`. Without a boot id, ids are equal only within this
/// process.
pub(crate) fn directory_id(device: u64, inode: u64) -> DirectoryId {
    static KERNEL: OnceLock<Vec<u8>> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| {
        let boot_id = disk::read(Path::new(BOOT_ID), BOOT_ID_BYTES).ok().filter(|name| !name.is_empty());
        boot_id.unwrap_or_else(|| random::key().into_bytes())
    });
    DirectoryId::new(kernel, device, inode)
}
