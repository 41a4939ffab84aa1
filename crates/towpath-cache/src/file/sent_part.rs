//! Parts of a cached file that a server sends by the kernel (`sendfile`): they count when they are sent.

use std::{ops::Range, sync::Arc};

use towpath_store::PartLease;

use super::OpenedFile;
use crate::entry::ExtentLease;

/// A part of the data file that a server sends by the kernel.
#[derive(Debug)]
pub(super) struct SentPart {
    file: Arc<OpenedFile>,
    _lease: ExtentLease,
    range: Range<u64>,
}

impl SentPart {
    /// Creates a part. Until it is dropped, reads of it do not count.
    pub(super) fn new(file: Arc<OpenedFile>, lease: ExtentLease, range: Range<u64>) -> Self {
        file.account.begin_part(&range);
        Self { file, _lease: lease, range }
    }
}

impl PartLease for SentPart {
    fn record_sent(&self, offset: u64, bytes: u64) {
        let sent = self.file.range(offset, usize::try_from(bytes).unwrap_or(usize::MAX));
        self.file.count(self.file.account.record_sent(&sent));
    }
}

impl Drop for SentPart {
    fn drop(&mut self) {
        self.file.account.end_part(&self.range);
    }
}
