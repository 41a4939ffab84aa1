//! New objects: one request for a small one, parts for a larger one.
//!
//! Pieces are accepted in order; a piece that arrives early waits for those before it. They fill parts of equal size,
//! which are sent concurrently when they are full. A part stays in memory until it has arrived. Nothing is visible
//! before the last request, which creates the object from the parts; the parts of an aborted upload are removed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use tokio::{sync::watch, time::timeout};
use towpath_proto::{
    checksum::{Agreement, Algorithms, Digests, Extent, Hasher},
    s3::{MAX_OBJECT_BYTES, MAX_PARTS},
};
use towpath_store::{
    Blame, CreateOptions, Error, Expectation, Fault, FileKind, Kind, Metadata, Overwrite, Result, StorePath,
    WriteHandle,
};

use super::{
    bucket::crc32c_of,
    budget::BudgetReservation,
    parts::{MultipartUpload, UploadTarget, joined},
};
use crate::digest::compute;

/// Minimum size of a part: more than S3 requires, so that a part takes longer than a round trip at 1 Gbit/s over 60
/// ms.
const PART_BYTES: u64 = 8 << 20;

/// Size of a part if the total size is unknown: sufficient for 640 GB.
const UNKNOWN_PART_BYTES: u64 = 64 << 20;

/// Sizes of parts are multiples of this.
const STEP_BYTES: u64 = 1 << 20;

/// Returns the length in bytes of the parts in an upload of `size` bytes, so that their number is within the limit of
/// S3.
fn part_bytes(size: Option<u64>) -> u64 {
    let Some(size) = size else { return UNKNOWN_PART_BYTES };
    size.div_ceil(MAX_PARTS).next_multiple_of(STEP_BYTES).max(PART_BYTES)
}

/// An object being written.
#[derive(Debug)]
pub(super) struct Upload {
    target: UploadTarget,
    path: StorePath,
    options: CreateOptions,
    part_bytes: u64,
    /// `None` when the upload is finished.
    state: Mutex<Option<State>>,
    /// The next offset; `u64::MAX` when no more data are accepted.
    next: watch::Sender<u64>,
}

#[derive(Debug)]
struct State {
    hasher: Hasher,
    /// The pieces of the part that is not full.
    pieces: Vec<Bytes>,
    gathered: u64,
    reserved: Vec<BudgetReservation>,
    parts: Option<MultipartUpload>,
}

/// Aborts a multipart upload when dropped, unless disarmed.
#[derive(Debug)]
struct AbortGuard(Option<MultipartUpload>);

impl Drop for AbortGuard {
    fn drop(&mut self) {
        if let Some(parts) = self.0.take() {
            drop(parts.abort());
        }
    }
}

impl Upload {
    /// Creates an upload to `path` without sending anything.
    pub(super) fn new(target: UploadTarget, path: StorePath, options: CreateOptions) -> Self {
        let state = State {
            hasher: Hasher::new(Algorithms::DEFAULT.union(options.digests)),
            pieces: Vec::new(),
            gathered: 0,
            reserved: Vec::new(),
            parts: None,
        };
        let part_bytes = part_bytes(options.size_hint);
        Self { target, path, options, part_bytes, state: Mutex::new(Some(state)), next: watch::Sender::new(0) }
    }

    fn state(&self) -> MutexGuard<'_, Option<State>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until `offset` is next.
    ///
    /// # Errors
    /// `InvalidArgument` if that cannot happen, or does not happen for very long.
    async fn turn(&self, offset: u64) -> Result<()> {
        let mut next = self.next.subscribe();
        loop {
            let now = *next.borrow_and_update();
            match now {
                u64::MAX => return Err(finished()),
                _ if now == offset => return Ok(()),
                _ if now > offset => return Err(cannot_go_back(now, offset)),
                _ => {}
            }
            let patience = self.target.bucket.site.options.patience;
            if timeout(patience, next.changed()).await.is_err() && *self.next.borrow() == now {
                let message = format!(
                    "uploads to S3 are written in order: the bytes at {now} are missing before those at {offset}"
                );
                return Err(Error::new(Fault::InvalidArgument, message));
            }
        }
    }

    /// Reserves memory for the parts that begin within `length` bytes at `offset`; `gathered` bytes belong to an open
    /// part.
    async fn reserve(&self, offset: u64, length: u64) -> Option<BudgetReservation> {
        let gathered = self.state().as_ref().map_or(0, |state| state.gathered);
        let open = if gathered == 0 { 0 } else { self.part_bytes - gathered };
        let beyond = length.checked_sub(open).filter(|beyond| *beyond > 0)?;
        let parts = beyond.div_ceil(self.part_bytes) * self.part_bytes;
        let rest = self.options.size_hint.map_or(parts, |size| size.saturating_sub(offset + open));
        Some(self.target.budget.reserve(parts.min(rest).max(beyond)).await)
    }

    /// Accepts the next piece. Does not wait, so that a cancelled write has either happened or not.
    fn accept(&self, offset: u64, mut data: Bytes, mut reserved: Option<BudgetReservation>) -> Result<()> {
        let mut guard = self.state();
        let state = guard.as_mut().ok_or_else(finished)?;
        let next = *self.next.borrow();
        if next != offset {
            return Err(cannot_go_back(next, offset));
        }
        if let Some(error) = state.parts.as_ref().and_then(MultipartUpload::failure) {
            return Err(error);
        }
        let end = offset + data.len() as u64;
        if end > self.part_bytes * MAX_PARTS {
            let message = format!("an upload of unknown size to S3 has at most {} bytes", self.part_bytes * MAX_PARTS);
            return Err(Error::new(Fault::TooLarge, message));
        }
        state.hasher.update(&data);
        let is_one_part = self.options.size_hint.is_some_and(|size| size <= self.part_bytes);
        while !data.is_empty() {
            if state.gathered == self.part_bytes {
                self.send_part(state);
            }
            if state.gathered == 0 {
                state.reserved.extend(reserved.as_mut().map(|reserved| reserved.split(self.part_bytes)));
            }
            let room = usize::try_from(self.part_bytes - state.gathered).unwrap_or(usize::MAX);
            let piece = data.split_to(room.min(data.len()));
            state.gathered += piece.len() as u64;
            state.pieces.push(piece);
            if state.gathered == self.part_bytes && !is_one_part {
                self.send_part(state);
            }
        }
        drop(guard);
        self.target.budget.record_progress();
        self.next.send_replace(end);
        Ok(())
    }

    fn send_part(&self, state: &mut State) {
        let (pieces, reserved) = (std::mem::take(&mut state.pieces), std::mem::take(&mut state.reserved));
        state.gathered = 0;
        state.parts.get_or_insert_with(|| MultipartUpload::begin(self.target.clone())).send(pieces, reserved);
    }

    /// Takes the state, so that no more data can be written; returns `None` if that was done before.
    fn finish(&self) -> Option<State> {
        let state = self.state().take();
        self.next.send_replace(u64::MAX);
        state
    }

    fn only_new(&self) -> bool {
        self.options.overwrite == Overwrite::Refuse
    }

    /// Sends the rest and completes the object. Returns its version, if the server sent it.
    async fn put(&self, mut state: State, expected: &Expectation, digests: &mut Digests) -> Result<Option<String>> {
        let UploadTarget { bucket, caller, key, budget } = &self.target;
        if state.parts.is_some() && !state.pieces.is_empty() {
            self.send_part(&mut state);
        }
        let State { pieces, reserved, parts, .. } = state;
        let mut abort_guard = AbortGuard(parts);
        let outcome = match &mut abort_guard.0 {
            Some(parts) => parts.complete(crc32c_of(digests), self.only_new()).await,
            None => {
                let content = joined(pieces);
                let asked = expected.digests.algorithms();
                for algorithm in asked.iter().filter(|algorithm| digests.get(*algorithm).is_none()).collect::<Vec<_>>()
                {
                    digests.insert(Hasher::digest_of(algorithm, &content));
                }
                expected.check_digests(digests)?;
                let _sending = budget.sending();
                let put = bucket.put(caller, key, content, crc32c_of(digests), self.only_new()).await;
                drop(reserved);
                put
            }
        };
        if let Some(parts) = abort_guard.0.take()
            && outcome.is_err()
        {
            parts.abort().await;
        }
        outcome
    }

    /// Returns the metadata of the new object, if it matches the sent data.
    ///
    /// # Errors
    /// `Truncated`, `ChecksumMismatch`, and `Changed` if the object may be another client's: then it is kept.
    async fn verify(
        &self,
        version: Option<String>,
        size: u64,
        digests: &Digests,
        expected: &Expectation,
    ) -> Result<Metadata> {
        let UploadTarget { bucket, caller, key, .. } = &self.target;
        let mut metadata = match bucket.head(caller, key).await {
            Ok(metadata) => metadata,
            // A caller with permission to write may lack permission to read.
            Err(error) if error.kind() == Kind::Denied => {
                tracing::warn!(%error, path = %self.path, "an upload could not be verified");
                return Ok(Metadata::new(FileKind::File, size));
            }
            Err(error) => return Err(error),
        };
        let found = metadata.version.as_ref().map(|version| version.as_str());
        // Some servers (rclone 1.75) later report another entity tag than at the creation, so an object with another
        // tag may still be the right one.
        let is_ours =
            version.as_deref().zip(found).is_some_and(|(reported, found)| reported.trim_matches('"') == found);
        let agreement = metadata.digests.compare(digests);
        let flaw = match agreement {
            Agreement::Different(algorithm) => Some((
                Fault::ChecksumMismatch,
                format!("the storage reports a different {algorithm} than that of the sent data"),
            )),
            _ if metadata.size != size => Some((
                Fault::Truncated,
                format!("the storage reports a size of {} bytes, expected {size}", metadata.size),
            )),
            _ => None,
        };
        if let Some((fault, message)) = flaw {
            let error = Error::new(fault, message).blamed_on(Blame::Storage);
            return Err(self.refused(is_ours, &metadata, error).await);
        }
        if matches!(agreement, Agreement::Same) {
            // All of these digests were computed from the same bytes.
            digests.iter().for_each(|digest| metadata.digests.insert(*digest));
        }
        self.verify_others(digests, expected, is_ours, &mut metadata).await?;
        Ok(metadata)
    }

    /// Verifies promised digests that were not computed during the transfer, by reading the object.
    async fn verify_others(
        &self,
        digests: &Digests,
        expected: &Expectation,
        is_ours: bool,
        metadata: &mut Metadata,
    ) -> Result<()> {
        let UploadTarget { bucket, caller, .. } = &self.target;
        for promised in expected.digests.iter().filter(|promised| digests.get(promised.algorithm()).is_none()) {
            let options = towpath_store::OpenOptions { version: metadata.version.clone(), ..Default::default() };
            let file = super::file::ObjectFile::new(bucket.clone(), caller.clone(), self.path.clone(), options)?;
            let found = compute(&file, promised.algorithm(), &|_| {}).await?;
            if found != *promised {
                let message =
                    format!("the {} of the written file is {found}, expected {promised}", promised.algorithm());
                let error = Error::new(Fault::ChecksumMismatch, message);
                return Err(self.refused(is_ours, metadata, error).await);
            }
            metadata.digests.insert(found);
        }
        Ok(())
    }

    /// Returns the error of an upload whose object, described by `metadata`, does not match the sent data. The object
    /// is removed if it `is_ours`.
    async fn refused(&self, is_ours: bool, metadata: &Metadata, error: Error) -> Error {
        if !is_ours {
            let message = format!(
                "{}; its version is not that of this upload, so it may belong to another client and is kept",
                error.message()
            );
            return Error::new(Fault::Changed, message);
        }
        let UploadTarget { bucket, caller, key, .. } = &self.target;
        if let Err(error) = bucket.delete_version(caller, key, metadata.version.as_ref()).await {
            tracing::warn!(%error, path = %self.path, "cannot remove an object that does not match the sent data");
        }
        error
    }
}

fn finished() -> Error {
    Error::new(Fault::HandleNotOpen, "the upload is finished")
}

fn cannot_go_back(now: u64, offset: u64) -> Error {
    let message = format!("uploads to S3 are written in order: {now} bytes are written, including those at {offset}");
    Error::new(Fault::InvalidArgument, message)
}

#[async_trait]
impl WriteHandle for Upload {
    async fn write(&self, offset: u64, data: Bytes) -> Result<()> {
        let located = |error: Error| error.at(&self.path);
        let length = data.len() as u64;
        if offset.checked_add(length).is_none_or(|end| end > MAX_OBJECT_BYTES) {
            return Err(located(Error::new(Fault::TooLarge, "an S3 object has at most 5 TiB")));
        }
        if data.is_empty() {
            return if self.state().is_none() { Err(located(finished())) } else { Ok(()) };
        }
        self.turn(offset).await.map_err(located)?;
        let reserved = self.reserve(offset, length).await;
        self.accept(offset, data, reserved).map_err(located)
    }

    async fn present(&self) -> Result<Vec<Extent>> {
        Ok(Vec::new())
    }

    async fn read(&self, _offset: u64, _length: usize) -> Result<Bytes> {
        let message = "uploads to S3 cannot be read back while they are written";
        Err(Error::new(Fault::Unsupported, message).at(&self.path))
    }

    async fn set_size(&self, size: u64) -> Result<()> {
        let now = *self.next.borrow();
        let fault = match () {
            () if now == u64::MAX => return Err(finished().at(&self.path)),
            () if now == size => return Ok(()),
            () if size > MAX_OBJECT_BYTES => Fault::TooLarge,
            () => Fault::Unsupported,
        };
        Err(Error::new(fault, "the size of an S3 upload cannot be set").at(&self.path))
    }

    async fn sync(&self) -> Result<()> {
        Ok(())
    }

    async fn metadata(&self) -> Result<Metadata> {
        match *self.next.borrow() {
            u64::MAX => Err(finished().at(&self.path)),
            size => Ok(Metadata::new(FileKind::File, size)),
        }
    }

    async fn commit(&self, expected: Expectation) -> Result<Metadata> {
        let located = |error: Error| error.at(&self.path);
        let Some(mut state) = self.finish() else { return Err(located(finished())) };
        let hasher = std::mem::replace(&mut state.hasher, Hasher::new(Algorithms::NONE));
        let (size, mut digests) = (hasher.bytes(), hasher.finish());
        if let Err(error) = expected.check_size(size).and_then(|()| expected.check_digests(&digests)) {
            if let Some(parts) = state.parts {
                parts.abort().await;
            }
            return Err(located(error));
        }
        let version = self.put(state, &expected, &mut digests).await.map_err(located)?;
        self.verify(version, size, &digests, &expected).await.map_err(located)
    }

    async fn abort(&self) -> Result<()> {
        if let Some(parts) = self.finish().and_then(|state| state.parts) {
            parts.abort().await;
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        drop(AbortGuard(self.finish().and_then(|state| state.parts)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_few_enough_up_to_the_largest_object() {
        assert_eq!(part_bytes(Some(0)), PART_BYTES);
        assert_eq!(part_bytes(Some(MAX_PARTS * PART_BYTES)), PART_BYTES);
        for size in [MAX_PARTS * PART_BYTES + 1, 1 << 40, MAX_OBJECT_BYTES - 1, MAX_OBJECT_BYTES] {
            let part = part_bytes(Some(size));
            assert!(
                size.div_ceil(part) <= MAX_PARTS && part.is_multiple_of(STEP_BYTES) && part < 600 << 20,
                "{size}: {part}"
            );
        }
    }
}
