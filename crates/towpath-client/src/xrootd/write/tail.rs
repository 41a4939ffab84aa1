//! The end of a file that is written where everybody sees it: it is sent when all else has been acknowledged. So what is left of an upload that
//! is killed is always shorter than the file should be, and no later comparison of sizes takes it for whole.

use bytes::Bytes;
use tokio::sync::Mutex;
use towpath_store::Result;

use super::Upload;

/// The most that is kept back.
const TAIL_BYTES: usize = 4 << 10;

/// The end of one file, once it has come.
#[derive(Debug, Default)]
pub(super) struct Tail {
    /// How large the file will be; none if nothing is kept back.
    size: Option<u64>,
    kept: Mutex<Option<(u64, Bytes)>>,
}

impl Tail {
    /// That of a file of `size` bytes, if nothing else removes a torn one.
    pub(super) fn of(size: Option<u64>) -> Self {
        Self { size, kept: Mutex::default() }
    }

    /// How much of `bytes` that lie at `offset` is to be sent at once.
    fn split(&self, offset: u64, bytes: usize) -> usize {
        let ends = self.size.is_some_and(|size| offset + bytes as u64 >= size);
        if ends { bytes.saturating_sub(TAIL_BYTES) } else { bytes }
    }
}

impl Upload {
    /// Keeps back what ends the file, and gives what comes before it.
    pub(super) async fn keep_tail(&self, offset: u64, mut data: Bytes) -> Result<Bytes> {
        // A copy: the piece that it comes from is larger by far.
        let tail = Bytes::copy_from_slice(&data.split_off(self.tail.split(offset, data.len())));
        if !tail.is_empty() {
            // What was written before must not come after it.
            self.send_tail().await?;
            *self.tail.kept.lock().await = Some((offset + data.len() as u64, tail));
        }
        Ok(data)
    }

    /// Sends what was kept back.
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

    #[test]
    fn only_what_ends_the_file_is_kept_back() {
        let tail = Tail::of(Some(10_000));
        for (offset, bytes, now) in [(0, 9_999, 9_999), (0, 10_000, 5_904), (9_000, 1_000, 0), (9_000, 2_000, 0)] {
            assert_eq!(tail.split(offset, bytes), now, "{bytes} at {offset}");
        }
        assert_eq!(Tail::default().split(0, 10), 10);
    }
}
