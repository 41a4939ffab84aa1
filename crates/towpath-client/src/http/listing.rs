//! Directory listings: the response to a PROPFIND of depth 1, parsed as it arrives.
//!
//! A response may describe a million files. It is cut between `response` elements into pieces that are parsed one by
//! one, so that memory is limited by the piece. A response without a position to cut is parsed whole, up to a limit.

use std::{
    collections::{HashMap, VecDeque, hash_map},
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
};

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use http::StatusCode;
use towpath_proto::{
    http::dav::{self, Entries},
    url::decode_href,
};
use towpath_store::{Blame, Caller, Entry, Error, Fault, FileKind, ListOptions, Listing, Metadata, Result, StorePath};

use super::{describe, features, refusal, response::HttpResponse, site::Site, stat, target::Target};
use crate::words::readable;

/// Bytes to read of a response before it is cut: a few hundred entries.
const PIECE_BYTES: usize = 256 << 10;

/// Maximum number of bytes to read of a response that cannot be cut.
const UNCUT_BYTES: usize = 64 << 20;

/// Maximum number of entries in a batch.
const BATCH_ENTRIES: usize = 1000;

/// Maximum number of requests in flight for sizes that are missing in the response.
const QUESTIONS: usize = 8;

/// Lists the directory `path`, which is at `target`.
pub(super) fn list(site: Arc<Site>, caller: Caller, path: StorePath, target: Target, options: ListOptions) -> Listing {
    let begin = async move {
        let begun = Reader::begin(site, caller, &path, &target, options).await;
        match begun.map_err(|error| error.at(&path)) {
            Ok(reader) => stream::try_unfold(reader, |mut reader| async move {
                let batch = reader.batch().await.map_err(|error| error.at(&reader.path))?;
                Ok(batch.map(|batch| (batch, reader)))
            })
            .boxed(),
            Err(error) => stream::once(async { Err(error) }).boxed(),
        }
    };
    stream::once(begin).flatten().boxed()
}

/// A listing in progress.
struct Reader {
    /// The directory.
    path: StorePath,
    answer: HttpResponse,
    cutter: MultistatusSplitter,
    /// Path of the directory at the server that responded.
    directory: Vec<u8>,
    options: ListOptions,
    entries: VecDeque<ListedEntry>,
    names: NameSet,
    /// Site, caller and query of requests for missing sizes.
    site: Arc<Site>,
    caller: Caller,
    query: Option<String>,
    /// Whether the response concerns the directory: it describes the directory or something below it.
    is_found: bool,
    ended: bool,
}

/// An entry, and its path at the site if the response lacks its size: an unknown size is not 0. After a redirect the
/// responding server has other paths; reads of the file start at the site, and so does the request for its size.
struct ListedEntry {
    entry: Entry,
    unsized_at: Option<StorePath>,
}

impl Reader {
    async fn begin(
        site: Arc<Site>,
        caller: Caller,
        path: &StorePath,
        target: &Target,
        options: ListOptions,
    ) -> Result<Self> {
        if !site.features.dav.possible() {
            return Err(stat::no_dav(target));
        }
        let mut request = stat::propfind_request(&site, "1");
        // The reader may be slow, for instance because it lists subdirectories.
        request.prompt = false;
        request.wait = site.options.patience;
        let answer = site.send_request(&caller, &mut site.retry_state(target), &request).await?;
        match answer.status {
            StatusCode::MULTI_STATUS => site.features.dav.learn(true),
            StatusCode::METHOD_NOT_ALLOWED | StatusCode::NOT_IMPLEMENTED | StatusCode::OK => {
                // The path may also be missing, or be a file.
                let metadata = stat::stat(&site, &caller, path, target).await?;
                return Err(if metadata.is_directory() { stat::no_dav(target) } else { not_a_directory() });
            }
            _ => {
                let credentials = site.credentials(&caller)?;
                return Err(refusal::of(answer, &request.method, &credentials).await);
            }
        }
        let directory = decode_href(answer.target.path()).map_err(|error| unusable(&answer, &error.to_string()))?;
        let directory = without_slash(&directory).to_vec();
        let (cutter, entries, names) = (MultistatusSplitter::default(), VecDeque::new(), NameSet::default());
        let query = target.path_and_query.split_once('?').map(|(_, query)| query.to_owned());
        let (is_found, ended) = (false, false);
        let path = path.clone();
        Ok(Self { path, answer, cutter, directory, options, entries, names, site, caller, query, is_found, ended })
    }

    /// Returns the next batch; `None` at the end.
    async fn batch(&mut self) -> Result<Option<Vec<Entry>>> {
        while self.entries.is_empty() && !self.ended {
            match self.answer.next().await.map_err(stat::error_of)? {
                Some(data) => self.cutter.push(&data),
                None => {
                    self.ended = true;
                    let rest = self.cutter.rest();
                    self.parse(&rest)?;
                    // If the server uses other paths, as behind a proxy that does not translate them, the directory
                    // must not appear empty.
                    if !self.is_found {
                        return Err(unusable(&self.answer, "no entry for the requested directory"));
                    }
                }
            }
            if self.cutter.text.len() >= PIECE_BYTES
                && let Some(piece) = self.cutter.cut()
            {
                self.parse(&piece)?;
            }
            if self.cutter.text.len() > UNCUT_BYTES {
                return Err(unusable(&self.answer, "it is too long"));
            }
        }
        let some = self.entries.len().min(BATCH_ENTRIES);
        let found: Vec<_> = self.entries.drain(..some).collect();
        let (site, caller, query) = (&self.site, &self.caller, self.query.as_deref());
        let batch: Vec<_> =
            stream::iter(found).map(|found| found.complete(site, caller, query)).buffered(QUESTIONS).collect().await;
        Ok((!batch.is_empty()).then_some(batch))
    }

    /// Fails if the response states that the directory itself cannot be listed.
    fn check(&self, itself: &dav::Entry) -> Result<()> {
        match itself.status {
            Some(status) => Err(stat::refused(status, &self.answer.target)),
            None if itself.is_collection => Ok(()),
            None => Err(not_a_directory()),
        }
    }

    fn parse(&mut self, document: &[u8]) -> Result<()> {
        let entries = Entries::new(document).map_err(|error| unusable(&self.answer, &error.to_string()))?;
        for entry in entries.from_xrootd(features::is_xrootd(&self.answer.headers)) {
            let entry = entry.map_err(|error| unusable(&self.answer, &readable(&error.to_string())))?;
            let path = without_slash(&entry.path);
            if path == self.directory {
                self.check(&entry)?;
                self.is_found = true;
                continue;
            }
            let Some(inside) = below(&self.directory, path) else {
                // Parent directories are sometimes described too. Anything else may be entries under other names, which
                // would be missing in the listing.
                if below(path, &self.directory).is_some() {
                    continue;
                }
                let path = readable(&String::from_utf8_lossy(path));
                return Err(unusable(&self.answer, &format!("{path} is not in the requested directory")));
            };
            self.is_found = true;
            // Some servers list more than the direct members; a deeper one implies the directory on the path to it.
            match inside.iter().position(|byte| *byte == b'/') {
                Some(end) => {
                    let directory = dav::Entry { is_collection: true, ..dav::Entry::default() };
                    self.add(inside.split_at(end).0, NameOrigin::Below, &directory)?;
                }
                None if entry.is_collection => self.add(inside, NameOrigin::Directory, &entry)?,
                None => self.add(inside, NameOrigin::Other, &entry)?,
            }
        }
        Ok(())
    }

    /// Adds the entry `name`, unless it was added before.
    ///
    /// # Errors
    /// `Protocol` if two entries have this name: then at least one of the two names is wrong, and a file with another
    /// name would be missing.
    fn add(&mut self, name: &[u8], origin: NameOrigin, entry: &dav::Entry) -> Result<()> {
        match self.names.add(name, origin) {
            Some(true) => {
                let found = self.found(Bytes::copy_from_slice(name), entry)?;
                self.entries.push_back(found);
                Ok(())
            }
            Some(false) => Ok(()),
            None => {
                let name = readable(&String::from_utf8_lossy(name));
                Err(unusable(&self.answer, &format!("duplicate entry {name}")))
            }
        }
    }

    fn found(&self, name: Bytes, entry: &dav::Entry) -> Result<ListedEntry> {
        let mut metadata = describe::of_entry(entry);
        let is_file = metadata.kind == FileKind::File;
        let is_unsized = is_file && entry.size_bytes.is_none() && self.options.metadata;
        let unsized_at = match is_unsized {
            true => Some(self.path.join(&name).map_err(|error| unusable(&self.answer, &error.to_string()))?),
            false => None,
        };
        if !self.options.metadata {
            let Metadata { kind, is_link, directory_id, size, .. } = metadata;
            metadata = Metadata { is_link, directory_id, ..Metadata::new(kind, if is_file { size } else { 0 }) };
        }
        Ok(ListedEntry { entry: Entry { name, metadata }, unsized_at })
    }
}

/// The source of a name in a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NameOrigin {
    /// The path of something below the entry.
    Below,
    /// The description of a directory.
    Directory,
    /// The description of anything else.
    Other,
}

/// The names of a listing so far, as keyed hashes, so that memory does not depend on the length of names. The
/// probability that two of a million names have the same hash is 3e-8; the listing then fails.
#[derive(Debug, Default)]
struct NameSet {
    state: RandomState,
    origins: HashMap<u64, NameOrigin>,
}

impl NameSet {
    /// Adds a name. Returns whether it is new; `None` if both names cannot belong to the same entry.
    fn add(&mut self, name: &[u8], origin: NameOrigin) -> Option<bool> {
        use NameOrigin::{Below, Directory};
        let known = self.origins.entry(self.state.hash_one(name));
        let before = match known {
            hash_map::Entry::Vacant(vacant) => {
                vacant.insert(origin);
                return Some(true);
            }
            hash_map::Entry::Occupied(before) => before.into_mut(),
        };
        match (*before, origin) {
            (Below | Directory, Below) => Some(false),
            (Below, Directory) => {
                *before = Directory;
                Some(false)
            }
            _ => None,
        }
    }
}

impl ListedEntry {
    /// Completes the entry with a request for its size, if it is missing. If that fails, the entry is kept as a
    /// special file, which is not read.
    async fn complete(self, site: &Site, caller: &Caller, query: Option<&str>) -> Entry {
        let Self { mut entry, unsized_at } = self;
        if let Some(path) = unsized_at {
            let found = stat::head(site, caller, &Target::new(&site.endpoint, &path, query)).await;
            entry.metadata = found.unwrap_or_else(|error| {
                tracing::warn!(%error, %path, "cannot determine the size of a file");
                Metadata::new(FileKind::Other, 0)
            });
        }
        entry
    }
}

/// Returns the part of `path` below `directory`, without the slash between them; `None` if it is not below.
fn below<'a>(directory: &[u8], path: &'a [u8]) -> Option<&'a [u8]> {
    path.strip_prefix(directory)?.strip_prefix(b"/")
}

/// Returns the path of a directory without its trailing slash; empty for the root.
fn without_slash(path: &[u8]) -> &[u8] {
    path.strip_suffix(b"/").unwrap_or(path)
}

fn not_a_directory() -> Error {
    Error::new(Fault::NotDirectory, "it is not a directory")
}

fn unusable(answer: &HttpResponse, why: &str) -> Error {
    let message = format!("invalid PROPFIND response from {}: {why}", answer.target.root());
    Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)
}

/// Cuts a multistatus response into documents.
#[derive(Debug, Default)]
struct MultistatusSplitter {
    text: Vec<u8>,
    frame: Option<Frame>,
}

/// The parts of a response around its `response` elements.
#[derive(Debug, Clone)]
struct Frame {
    /// Everything up to the end of the start tag of the root.
    head: Vec<u8>,
    /// The end tag of a `response`.
    end_of_response: Vec<u8>,
    /// The end tag of the root.
    tail: Vec<u8>,
}

impl MultistatusSplitter {
    fn push(&mut self, data: &[u8]) {
        self.text.extend_from_slice(data);
    }

    /// Returns a document with all complete `response` elements, if there is a position to cut.
    fn cut(&mut self) -> Option<Vec<u8>> {
        if self.frame.is_none() {
            let frame = Frame::find(&self.text)?;
            self.text.drain(..frame.head.len());
            self.frame = Some(frame);
        }
        let frame = self.frame.as_ref()?;
        let last =
            self.text.windows(frame.end_of_response.len()).rposition(|window| window == frame.end_of_response)?;
        let responses: Vec<u8> = self.text.drain(..last + frame.end_of_response.len()).collect();
        Some([&frame.head, &responses, &frame.tail].map(Vec::as_slice).concat())
    }

    /// Returns the remaining document at the end.
    fn rest(&mut self) -> Vec<u8> {
        let text = std::mem::take(&mut self.text);
        match &self.frame {
            Some(frame) => [frame.head.as_slice(), &text].concat(),
            None => text,
        }
    }
}

impl Frame {
    /// Parses the root's start tag and the name of its first element.
    fn find(text: &[u8]) -> Option<Self> {
        let (start, root) = start_tag(text, 0)?;
        let head_end = start + find(text.get(start..)?, b">")? + 1;
        let (_, response) = start_tag(text, head_end)?;
        let plain = root.ends_with(b"multistatus") && response.ends_with(b"response");
        let closing = |name: &[u8]| [b"</".as_slice(), name, b">"].concat();
        plain.then(|| Self {
            head: text.split_at(head_end).0.to_vec(),
            end_of_response: closing(response),
            tail: closing(root),
        })
    }
}

/// Returns position and name of the first start tag from `at` on, after declarations and comments.
fn start_tag(text: &[u8], mut at: usize) -> Option<(usize, &[u8])> {
    loop {
        let start = at + find(text.get(at..)?, b"<")?;
        let inside = text.get(start + 1..)?;
        if !matches!(inside.first()?, b'?' | b'!') {
            let length = inside.iter().position(|byte| matches!(byte, b'>' | b'/') || byte.is_ascii_whitespace())?;
            return Some((start, inside.split_at(length).0));
        }
        at = start + 1 + find(inside, b">")?;
    }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "<?xml version=\"1.0\"?>\n<!-- by <hand> -->\n<a:multistatus xmlns:a=\"DAV:\">\n";

    fn response(name: usize) -> String {
        format!("<a:response ><a:href>/d/{name}</a:href><a:propstat><a:prop/></a:propstat></a:response>\n")
    }

    fn paths(document: &[u8]) -> Vec<String> {
        Entries::new(document).unwrap().map(|entry| String::from_utf8(entry.unwrap().path).unwrap()).collect()
    }

    #[test]
    fn an_answer_is_cut_between_its_elements() {
        let responses: String = (0..50).map(response).collect();
        let whole = format!("{HEAD}{responses}</a:multistatus>");
        for step in [1, 7, 100, 1000, 100_000] {
            let mut cutter = MultistatusSplitter::default();
            let mut found = Vec::new();
            for piece in whole.as_bytes().chunks(step) {
                cutter.push(piece);
                found.extend(cutter.cut().iter().flat_map(|document| paths(document)));
                assert!(cutter.text.len() < HEAD.len() + 200 + step, "what is cut off is not kept");
            }
            found.extend(paths(&cutter.rest()));
            assert_eq!(found, (0..50).map(|n| format!("/d/{n}")).collect::<Vec<_>>(), "in steps of {step}");
        }
    }

    #[test]
    fn what_cannot_be_cut_is_left_whole() {
        let mut cutter = MultistatusSplitter::default();
        cutter.push(b"<other><thing>");
        assert_eq!(cutter.cut(), None);
        assert_eq!(cutter.rest(), b"<other><thing>");
    }
}
