//! A ROOT file: its trees, and their metadata.

use std::{future::Future, ops::Range};

use bytes::Bytes;

use crate::{
    cursor::Cursor,
    directory::{HEADER_BYTES, Header, Key, TreeKey, directories, key_list, parse_keys, trees},
    error::{Error, Result, check_limit, damaged, unsupported},
    rntuple,
    streamers::Streamers,
    tree,
    tree_index::{MAX_NAME_BYTES, TreeIndex, TreeKind},
};

/// Maximum number of directories in a file.
const MAX_DIRECTORIES: u64 = 10_000;
/// Maximum number of directories in directories.
const MAX_DEPTH: usize = 32;

/// Source of the bytes of a file.
pub trait ReadAt {
    /// Returns the bytes of each range, in the same order. All ranges lie within the file.
    fn read(
        &self,
        ranges: Vec<Range<u64>>,
    ) -> impl Future<Output = std::result::Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>>> + Send;

    /// Runs a job that takes processor time, perhaps on another thread.
    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>> + Send;
}

/// The directories of a ROOT file.
#[derive(Debug, Clone)]
pub struct RootFile {
    size: u64,
    trees: Vec<TreeKey>,
    streamers: Range<u64>,
    /// Maximum size of the metadata of one tree, stored and uncompressed, in bytes.
    limit: u64,
}

impl RootFile {
    /// Reads the directories of a file of `size` bytes: one call of the source for the header, and one or two for each
    /// level of directories. Metadata of more than `limit` bytes are not read, here and of each tree; they can take some
    /// times as much memory.
    ///
    /// # Errors
    /// `NotRoot` if it is another file; else any of [`Error`].
    pub async fn open(source: &(impl ReadAt + Sync), size: u64, limit: u64) -> Result<Self> {
        let reader = Reader { source, size, limit };
        let head = reader.one(0..HEADER_BYTES.min(size)).await?;
        let header = Header::parse(&head)?;
        let root = match head.get(header.root.start as usize..header.root.end as usize) {
            Some(record) => record.to_vec(),
            None => reader.one(header.root.clone()).await?.to_vec(),
        };
        let mut file = Self { size, trees: Vec::new(), streamers: header.streamers, limit };
        file.read_directories(&reader, &root).await?;
        Ok(file)
    }

    /// Reads the directories by level, from the record of the root.
    async fn read_directories(&mut self, reader: &Reader<'_, impl ReadAt + Sync>, root: &[u8]) -> Result<()> {
        let mut level = vec![(String::new(), key_list(root)?)];
        let (mut count, mut name_bytes) = (0, 0);
        for _ in 0..MAX_DEPTH {
            if level.is_empty() {
                return Ok(());
            }
            let lists = reader.all(level.iter().map(|(_, keys)| keys.clone())).await?;
            let mut below: Vec<(String, Range<u64>)> = Vec::new();
            for ((path, _), list) in level.iter().zip(&lists) {
                let keys = parse_keys(list)?;
                let (trees, directories) = (trees(path, &keys), directories(path, &keys));
                let names = trees.iter().map(|tree| &tree.path).chain(directories.iter().map(|(path, _)| path));
                name_bytes += names.map(|name| name.len() as u64).sum::<u64>();
                check_limit("bytes of the names of trees", name_bytes, MAX_NAME_BYTES)?;
                self.trees.extend(trees);
                below.extend(directories);
            }
            count += below.len() as u64;
            check_limit("directories", count, MAX_DIRECTORIES)?;
            let records = reader.all(below.iter().map(|(_, record)| record.clone())).await?;
            let lists = below.into_iter().zip(&records).map(|((path, _), record)| Ok((path, key_list(record)?)));
            level = lists.collect::<Result<_>>()?;
        }
        Err(damaged(format!("its directories are nested more than {MAX_DEPTH} times")))
    }

    /// Returns the trees, in the order of their keys, those of the root first.
    pub fn trees(&self) -> &[TreeKey] {
        &self.trees
    }

    /// Reads the metadata of a tree of this file: one call of the source for a TTree, three for an RNTuple.
    ///
    /// # Errors
    /// Any of [`Error`] but `NotRoot`.
    pub async fn read(&self, source: &(impl ReadAt + Sync), key: &TreeKey) -> Result<TreeIndex> {
        let reader = Reader { source, size: self.size, limit: self.limit };
        match key.kind {
            TreeKind::Tree => self.read_tree(&reader, key).await,
            TreeKind::Ntuple => self.read_ntuple(&reader, key).await,
        }
    }

    async fn read_tree(&self, reader: &Reader<'_, impl ReadAt + Sync>, tree: &TreeKey) -> Result<TreeIndex> {
        let [object, streamers] = reader.pair(tree.range(), self.streamers.clone()).await?;
        let (tree, size, limit) = (tree.clone(), self.size, self.limit);
        let parse = move || {
            let TreeKey { path, kind, key } = tree;
            let streamers = parse_streamers(&streamers, limit)?;
            let columns = tree::read(&key.object(&object, limit)?, key.key_bytes, &key.class, &streamers)?;
            TreeIndex::new(path, kind, columns, size)
        };
        reader.run(parse).await
    }

    async fn read_ntuple(&self, reader: &Reader<'_, impl ReadAt + Sync>, ntuple: &TreeKey) -> Result<TreeIndex> {
        let (size, limit) = (self.size, self.limit);
        let anchor = reader.one(ntuple.range()).await?;
        let anchor = rntuple::Anchor::parse(&ntuple.key.object(&anchor, limit)?)?;
        let [header, footer] = reader.pair(anchor.header.range()?, anchor.footer.range()?).await?;
        let parse = move || {
            let (header, footer) = (anchor.header.open(&header, limit)?, anchor.footer.open(&footer, limit)?);
            rntuple::Schema::parse(&header, &footer, limit)
        };
        let schema = reader.run(parse).await?;
        let lists = schema.page_lists().iter().map(|list| list.range());
        let lists = reader.all(lists.collect::<Result<Vec<_>>>()?).await?;
        let (path, kind) = (ntuple.path.clone(), ntuple.kind);
        reader.run(move || TreeIndex::new(path, kind, schema.columns(&lists, limit)?, size)).await
    }
}

/// Parses the record of the streamer information.
fn parse_streamers(record: &[u8], limit: u64) -> Result<Streamers> {
    if record.is_empty() {
        return Err(unsupported("a tree in a file without streamer information"));
    }
    let key = Key::parse(&mut Cursor::new(record))?;
    Streamers::parse(&key.object(record, limit)?, key.key_bytes)
}

/// Reads ranges of a file, if they lie within it and are not too long.
struct Reader<'a, R> {
    source: &'a R,
    size: u64,
    limit: u64,
}

impl<R: ReadAt + Sync> Reader<'_, R> {
    async fn all(&self, ranges: impl IntoIterator<Item = Range<u64>>) -> Result<Vec<Bytes>> {
        let ranges: Vec<_> = ranges.into_iter().collect();
        let mut total = 0_u64;
        for range in &ranges {
            if range.start > range.end || range.end > self.size {
                return Err(damaged(format!("metadata at {} to {} of {} bytes", range.start, range.end, self.size)));
            }
            total = total.saturating_add(range.end - range.start);
        }
        check_limit("bytes of metadata", total, self.limit)?;
        let lengths: Vec<_> = ranges.iter().map(|range| range.end - range.start).collect();
        let read = if ranges.is_empty() { Vec::new() } else { self.source.read(ranges).await.map_err(Error::Read)? };
        if !read.iter().map(|bytes| bytes.len() as u64).eq(lengths) {
            return Err(Error::Read("other bytes than the requested ones".into()));
        }
        Ok(read)
    }

    async fn run<T: Send + 'static>(&self, job: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
        self.source.run(job).await.map_err(Error::Read)?
    }

    async fn one(&self, range: Range<u64>) -> Result<Bytes> {
        let mut read = self.all([range]).await?;
        Ok(read.pop().unwrap_or_default())
    }

    async fn pair(&self, first: Range<u64>, second: Range<u64>) -> Result<[Bytes; 2]> {
        let mut read = self.all([first, second]).await?.into_iter();
        Ok([read.next().unwrap_or_default(), read.next().unwrap_or_default()])
    }
}
