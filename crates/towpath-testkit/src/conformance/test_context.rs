//! What a check works with: its directory, and the calls that every check needs.

use std::{collections::BTreeSet, fmt::Debug, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt as _, TryStreamExt as _};
use towpath_store::{
    Caller, Capabilities, CreateOptions, Entry, Expectation, Fault, ListOptions, Metadata, OpenOptions, Overwrite,
    ReadHandle, Result, Store, StorePath, WriteHandle,
};

use super::Fixture;
use crate::pattern::Pattern;

/// A store, and a directory for one check.
#[derive(Debug, Clone)]
pub(super) struct TestContext {
    pub(super) store: Arc<dyn Store>,
    pub(super) caller: Caller,
    pub(super) directory: StorePath,
    pub(super) can: Capabilities,
    pub(super) any_name: bool,
    heard_as: fn(Fault) -> Fault,
}

/// The value, or a panic with the error.
#[track_caller]
pub(super) fn ok<T>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| panic!("unexpected: {error:?}"))
}

impl TestContext {
    pub(super) async fn set_up(fixture: &Fixture, check: &str) -> Self {
        let Fixture { store, caller, directory, heard_as, any_name } = fixture.clone();
        let can = store.capabilities();
        let mut context = Self { store, caller, directory, can, any_name, heard_as };
        if context.can.create {
            context.directory = context.at(&check.replace("::", "."));
            ok(context.store.make_directory(&context.caller, &context.directory, false, None).await);
        }
        context
    }

    /// The path of `name` in the check's directory; it may have slashes.
    pub(super) fn at(&self, name: &str) -> StorePath {
        name.split('/').fold(self.directory.clone(), |path, name| {
            path.join(name.as_bytes()).unwrap_or_else(|error| panic!("{name}: {error}"))
        })
    }

    /// Panics unless `result` is the error that a store gives for `fault`, perhaps through a protocol.
    #[track_caller]
    pub(super) fn expect<T: Debug>(&self, fault: Fault, result: Result<T>) {
        self.expect_one_of(&[fault], result);
    }

    /// As [`Self::expect`], where the promise leaves open which one comes.
    #[track_caller]
    pub(super) fn expect_one_of<T: Debug>(&self, faults: &[Fault], result: Result<T>) {
        match result {
            Ok(value) => panic!("expected {faults:?}, got {value:?}"),
            Err(error) => {
                let heard = faults.iter().any(|fault| [*fault, (self.heard_as)(*fault)].contains(&error.fault()));
                assert!(heard, "expected {faults:?}, got {error:?}");
            }
        }
    }

    pub(super) async fn stat(&self, path: &StorePath) -> Result<Metadata> {
        self.store.stat(&self.caller, path).await
    }

    /// Starts a file that may not exist yet.
    pub(super) async fn create(&self, path: &StorePath) -> Arc<dyn WriteHandle> {
        ok(self.store.create(&self.caller, path, CreateOptions::default()).await)
    }

    /// Starts a file that may exist.
    pub(super) async fn replace(&self, path: &StorePath) -> Arc<dyn WriteHandle> {
        let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
        ok(self.store.create(&self.caller, path, options).await)
    }

    /// A new file `name` with `content`.
    pub(super) async fn put(&self, name: &str, content: impl Into<Bytes>) -> StorePath {
        let path = self.at(name);
        let file = self.create(&path).await;
        ok(file.write(0, content.into()).await);
        ok(file.commit(Expectation::default()).await);
        path
    }

    /// A new file `name` with `length` bytes of a pattern of its own.
    pub(super) async fn put_pattern(&self, name: &str, length: usize) -> (StorePath, Pattern) {
        let pattern = Pattern::new(name.len() as u64 + length as u64);
        (self.put(name, pattern.bytes(0, length)).await, pattern)
    }

    /// Replaces the file at `path` by one with `content`.
    pub(super) async fn overwrite(&self, path: &StorePath, content: impl Into<Bytes>) {
        let file = self.replace(path).await;
        ok(file.write(0, content.into()).await);
        ok(file.commit(Expectation::default()).await);
    }

    /// Opens the file at `path` and makes sure that it is open, as a store may do that lazily.
    pub(super) async fn open(&self, path: &StorePath) -> Result<Arc<dyn ReadHandle>> {
        self.open_version(path, OpenOptions::default()).await
    }

    /// As [`Self::open`], with options.
    pub(super) async fn open_version(&self, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        let file = self.store.open(&self.caller, path, options).await?;
        file.metadata().await?;
        Ok(file)
    }

    /// The content of the file at `path`.
    pub(super) async fn get(&self, path: &StorePath) -> Bytes {
        let file = ok(self.open(path).await);
        let size = ok(file.metadata().await).size;
        ok(file.read(0, usize::try_from(size).expect("the files of the checks are small")).await)
    }

    /// The entries of the directory at `path`.
    pub(super) async fn list(&self, path: &StorePath, options: ListOptions) -> Result<Vec<Entry>> {
        let batches: Vec<_> = self.store.list(&self.caller, path, options).try_collect().await?;
        Ok(batches.concat())
    }

    /// The names in the check's directory.
    pub(super) async fn names(&self) -> BTreeSet<Bytes> {
        let entries = ok(self.list(&self.directory, ListOptions::default()).await);
        entries.into_iter().map(|entry| entry.name).collect()
    }

    /// Panics unless there is nothing at `path`, nor anything else in the check's directory.
    pub(super) async fn expect_nothing(&self, path: &StorePath) {
        self.expect(Fault::NotFound, self.stat(path).await);
        assert_eq!(self.names().await, BTreeSet::new(), "something was left behind");
    }

    /// The results of a vector read, by the index of the range; panics if one is missing or comes twice.
    pub(super) async fn vector(
        &self,
        file: &Arc<dyn ReadHandle>,
        ranges: &[towpath_store::ByteRange],
    ) -> Vec<Result<Bytes>> {
        let mut results: Vec<_> = file.read_vector(ranges.to_vec()).collect().await;
        results.sort_by_key(|(index, _)| *index);
        let indexes: Vec<_> = results.iter().map(|(index, _)| *index).collect();
        assert_eq!(indexes, (0..ranges.len()).collect::<Vec<_>>(), "each range has one result");
        results.into_iter().map(|(_, result)| result).collect()
    }
}
