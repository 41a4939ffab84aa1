//! The held-back part of an upload: it is sent with the commit, or earlier if the writer reads, syncs or overwrites it.
//!
//! On a server that shows files while they are written, the end of the file is held back until all other writes are
//! confirmed. A killed upload therefore leaves a file that is shorter than the original, which no later comparison of
//! sizes mistakes for a complete one.
//!
//! For a small file to a towpath server the whole content is held back: it is sent together with the close, which saves
//! a round trip.

use bytes::Bytes;
use tokio::sync::Mutex;
use towpath_store::{CreateOptions, Result};

use super::Upload;

/// Maximum number of bytes held back of a file that is visible while it is written.
const END_BYTES: usize = 4 << 10;

/// Maximum size in bytes of a file that is sent together with its close.
const SMALL_BYTES: usize = 64 << 10;

/// The held-back end of one file.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// Final size of the file; `None` if nothing is held back.
    size: Option<u64>,
    /// Maximum number of bytes held back.
    most: usize,
    kept: Mutex<Option<(u64, Bytes)>>,
}

impl Tail {
    /// Creates the tail of a visible file, whose partial content nothing else removes.
    pub(super) fn of_shown(options: &CreateOptions) -> Self {
        Self { size: options.size_hint, most: END_BYTES, kept: Mutex::default() }
    }

    /// Creates the tail of a file that a towpath server shows when it is committed.
    pub(super) fn of_hidden(options: &CreateOptions) -> Self {
        let is_small = |size: &u64| options.resume.is_none() && *size <= SMALL_BYTES as u64;
        Self { size: options.size_hint.filter(is_small), most: SMALL_BYTES, kept: Mutex::default() }
    }

    /// Returns how many of `bytes` at `offset` to send immediately.
    fn split(&self, offset: u64, bytes: usize) -> usize {
        let ends = self.size.is_some_and(|size| offset.saturating_add(bytes as u64) >= size);
        if ends { bytes.saturating_sub(self.most) } else { bytes }
    }
}

impl Upload {
    /// Holds back the end of the file, and returns the data before it. Previously held-back data are sent first if the
    /// new data overlap them or are held back too, so that the last write wins.
    pub(super) async fn keep_tail(&self, offset: u64, mut data: Bytes) -> Result<Bytes> {
        if self.tail.size.is_none() {
            return Ok(data);
        }
        let end = offset.saturating_add(data.len() as u64);
        let mut tail = data.split_off(self.tail.split(offset, data.len()));
        if !data.is_empty() {
            // Copied, because the piece that contains it is much larger.
            tail = Bytes::copy_from_slice(&tail);
        }
        let mut kept = self.tail.kept.lock().await;
        if let Some((at, before)) = &*kept
            && (!tail.is_empty() || (*at < end && offset < at + before.len() as u64))
        {
            self.piece(*at, before.clone()).await?;
            *kept = None;
        }
        if !tail.is_empty() {
            *kept = Some((offset + data.len() as u64, tail));
        }
        Ok(data)
    }

    /// Takes the held-back data, to be sent another way.
    pub(super) async fn take_tail(&self) -> Option<(u64, Bytes)> {
        self.tail.kept.lock().await.take()
    }

    /// Sends the held-back data.
    pub(super) async fn send_tail(&self) -> Result<()> {
        let mut kept = self.tail.kept.lock().await;
        if let Some((offset, data)) = &*kept {
            self.piece(*offset, data.clone()).await?;
            *kept = None;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_size(size: u64) -> CreateOptions {
        CreateOptions { size_hint: Some(size), ..CreateOptions::default() }
    }

    #[test]
    fn only_what_ends_the_file_is_kept_back() {
        let tail = Tail::of_shown(&of_size(10_000));
        for (offset, bytes, now) in [(0, 9_999, 9_999), (0, 10_000, 5_904), (9_000, 1_000, 0), (9_000, 2_000, 0)] {
            assert_eq!(tail.split(offset, bytes), now, "{bytes} at {offset}");
        }
        assert_eq!(Tail::default().split(0, 10), 10);
    }

    #[test]
    fn only_small_files_are_kept_back_as_a_whole() {
        let small = SMALL_BYTES as u64;
        assert_eq!(Tail::of_hidden(&of_size(small)).split(0, SMALL_BYTES), 0);
        assert_eq!(Tail::of_hidden(&of_size(small + 1)).split(0, SMALL_BYTES + 1), SMALL_BYTES + 1);
        let resume = Some(towpath_store::ResumeKey::of(&[]));
        assert_eq!(Tail::of_hidden(&CreateOptions { resume, ..of_size(10) }).split(0, 10), 10);
    }
}
