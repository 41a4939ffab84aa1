//! The updates graph of a response (RFC 9569 §3): its versions, numbered consecutively, and the changes leading to
//! each.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{Content, UpdateError, body::ByteCounter, document::Patch};
use towpath_alto::{names::Tag, resource::AltoResponse};

/// Limits on the history of a response. The latest version is always kept, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Number of versions, at least 1.
    pub versions: usize,
    /// Size of full responses and changes in bytes, without the latest response.
    pub bytes: usize,
    /// Keep one full version out of this many, at least 1. Older versions can only be dropped up to a full one.
    pub snapshots_apart: u64,
}

/// 64 versions and 16 MiB: an hour of history if the network state changes every minute.
impl Default for Limits {
    fn default() -> Self {
        Self { versions: 64, bytes: 16 << 20, snapshots_apart: 8 }
    }
}

/// Result of looking up an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edge {
    /// Content of the edge.
    Document(Content),
    /// The edge starts at the latest version and does not exist yet. The client waits for the next change and repeats
    /// the request.
    NotYet,
}

/// How much a client has of the last version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ClientVersion {
    /// All of its bytes.
    Bytes,
    /// The same content, but possibly different metadata, so that changes need not apply.
    Content,
    /// Nothing, or another version.
    Nothing,
}

/// One version of a response.
#[derive(Debug)]
pub(super) struct Version {
    tag: Tag,
    /// The version tag in its `meta`, if present.
    version_tag: Option<String>,
    /// The full response; content of the edge from 0.
    whole: Option<Content>,
    /// Changes from the previous version, or `None` if sending it whole is better.
    patches: Option<Vec<Patch>>,
}

impl Version {
    pub(super) fn new(
        answer: AltoResponse,
        version_tag: Option<String>,
        patches: Option<Vec<Patch>>,
        byte_counter: &ByteCounter,
    ) -> Self {
        let whole = Some(Content { media_type: answer.media_type, body: byte_counter.body(answer.body) });
        Self { tag: answer.tag, version_tag, whole, patches }
    }

    /// Returns the change from the previous version, if it is a single document.
    fn patch(&self) -> Option<&Content> {
        match self.patches.as_deref() {
            Some([Patch { part: None, content }]) => Some(content),
            _ => None,
        }
    }

    /// Returns the content of the edge from the previous version.
    fn content(&self) -> Option<&Content> {
        self.patch().or(self.whole.as_ref())
    }

    fn patches_bytes(&self) -> usize {
        self.patches.iter().flatten().map(|patch| patch.content.body.len()).sum()
    }
}

/// The retained versions of a response.
///
/// Invariants (RFC 9569 §3.2): there is at least one version; the numbers are consecutive; the first and the last
/// version are full; from each version there is an edge to the next; the first and the last number never decrease.
#[derive(Debug)]
pub(super) struct Graph {
    versions: VecDeque<Version>,
    /// Number of the very first version.
    origin: u64,
    /// Number of the first retained version.
    start: u64,
    limits: Limits,
}

impl Graph {
    /// Creates a graph with one version, numbered `origin` (from 1).
    pub(super) fn new(origin: u64, version: Version, limits: Limits) -> Self {
        Self { versions: VecDeque::from([version]), origin, start: origin, limits }
    }

    /// Appends the next version and drops versions beyond the limits.
    pub(super) fn push(&mut self, version: Version) {
        self.versions.push_back(version);
        self.thin();
        self.compact();
    }

    /// Drops the full response of an older version that can be reached by a change. The version before the last stays
    /// full for clients that have just been referred to it.
    fn thin(&mut self) {
        let Some(index) = self.versions.len().checked_sub(3).filter(|index| *index > 0) else { return };
        let age = self.start + index as u64 - self.origin;
        let version = &mut self.versions[index];
        if !age.is_multiple_of(self.limits.snapshots_apart) && version.patch().is_some() {
            version.whole = None;
        }
    }

    /// Changes the size limit and drops versions beyond it.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.limits.bytes = bytes;
        self.compact();
    }

    /// Drops the oldest versions up to a full one, until the limits are met.
    fn compact(&mut self) {
        while self.versions.len() > 1 && self.exceeds() {
            let next = self.versions.iter().skip(1).position(|version| version.whole.is_some());
            let gone = 1 + next.expect("the last version is whole");
            self.versions.drain(..gone);
            self.start += gone as u64;
        }
    }

    fn exceeds(&self) -> bool {
        let wholes = self.versions.iter().rev().skip(1).filter_map(|version| version.whole.as_ref());
        let wholes: usize = wholes.map(|whole| whole.body.len()).sum();
        let patches: usize = self.versions.iter().map(Version::patches_bytes).sum();
        self.versions.len() > self.limits.versions || wholes + patches > self.limits.bytes
    }

    /// Returns the number of the last version.
    pub(super) fn end(&self) -> u64 {
        self.start + self.versions.len() as u64 - 1
    }

    fn last(&self) -> &Version {
        self.versions.back().expect("there is a version")
    }

    fn get(&self, number: u64) -> Option<&Version> {
        self.versions.get(usize::try_from(number.checked_sub(self.start)?).ok()?)
    }

    /// Returns the tag of the last version.
    pub(super) fn tag(&self) -> &Tag {
        &self.last().tag
    }

    /// Returns the full last version.
    pub(super) fn latest(&self) -> &Content {
        self.last().whole.as_ref().expect("the last version is whole")
    }

    /// Returns the number of the version whose bytes have this tag. The tag in its `meta` does not identify the bytes,
    /// because it covers only the map.
    fn number_of(&self, tag: &str) -> Option<u64> {
        let back = self.versions.iter().rev().position(|version| version.tag.as_str() == tag)?;
        Some(self.end() - back as u64)
    }

    /// Returns how much of the last version a client has that holds the version with this tag, of the bytes or in the
    /// `meta`.
    pub(super) fn held(&self, tag: &str) -> ClientVersion {
        let last = self.last();
        match last.version_tag.as_deref() {
            _ if last.tag.as_str() == tag => ClientVersion::Bytes,
            Some(version_tag) if version_tag == tag => ClientVersion::Content,
            _ => ClientVersion::Nothing,
        }
    }

    /// Returns the changes from the version `seen`, which is not the last, to the next one. Returns `None` if not all
    /// changes up to the last version are available, or if they are larger than the last version.
    pub(super) fn next_patches(&self, seen: u64) -> Option<&[Patch]> {
        let mut bytes = 0;
        for number in seen + 1..=self.end() {
            // Includes the changes of the first retained version, so that clients at the version before it need no full
            // response.
            let version = self.get(number).filter(|version| version.patches.is_some())?;
            bytes += version.patches_bytes();
        }
        let next = self.get(seen + 1)?.patches.as_deref();
        next.filter(|_| bytes < self.latest().body.len())
    }

    /// Returns the content of an edge; an edge from 0 has a full version (RFC 9569 §7.2).
    ///
    /// # Errors
    /// Returns [`UpdateError::Unknown`] for an edge that these graphs never have, [`UpdateError::Gone`], or
    /// [`UpdateError::TooEarly`].
    pub(super) fn edge(&self, from: u64, to: u64) -> Result<Edge, UpdateError> {
        let end = self.end();
        let whole = |number| self.get(number).and_then(|version| version.whole.clone());
        match from {
            _ if to <= from => Err(UpdateError::Unknown),
            0 if to > end => Err(UpdateError::TooEarly),
            0 => whole(to).map(Edge::Document).ok_or(UpdateError::Gone),
            _ if from < self.start => Err(UpdateError::Gone),
            _ if to - from > 1 => Err(UpdateError::Unknown),
            _ if from > end => Err(UpdateError::TooEarly),
            _ if from == end => Ok(Edge::NotYet),
            _ => {
                let content = self.get(to).and_then(Version::content);
                Ok(Edge::Document(content.expect("versions without a single change stay full").clone()))
            }
        }
    }

    /// Returns the recommended first edge for a client that has the version whose bytes have this tag: the next edge,
    /// unless all following content is as long as the last version; else the edge from 0 to the last version (RFC 9569
    /// §6.2).
    pub(super) fn recommend(&self, tag: Option<&str>) -> (u64, u64) {
        let end = self.end();
        let Some(held) = tag.and_then(|tag| self.number_of(tag)) else { return (0, end) };
        let following = (held + 1..=end).filter_map(|number| self.get(number)?.content());
        let bytes: usize = following.map(|content| content.body.len()).sum();
        if bytes < self.latest().body.len() { (held, held + 1) } else { (0, end) }
    }

    /// Returns a `TIPSViewSummary` for a client that has the version with this tag (RFC 9569 §6.2).
    pub(super) fn summary(&self, tag: Option<&str>) -> Value {
        let (from, to) = self.recommend(tag);
        let edge = json!({ "seq-i": from, "seq-j": to });
        let graph = json!({ "start-seq": self.start, "end-seq": self.end(), "start-edge-rec": edge });
        json!({ "updates-graph-summary": graph })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A graph of versions from 101. Full responses have 1000 bytes, changes 100.
    fn graph(last: u64, limits: Limits) -> Graph {
        let mut graph = Graph::new(101, version(101, None), limits);
        (102..=last).for_each(|number| graph.push(version(number, Some(100))));
        graph
    }

    fn version(number: u64, change_bytes: Option<usize>) -> Version {
        let body = vec![b' '; 1000];
        let tag = Tag::new(&format!("tag{number}")).unwrap();
        let content = |bytes| Content { media_type: "application/merge-patch+json", body: vec![b' '; bytes].into() };
        let patches = change_bytes.map(|bytes| vec![Patch { part: None, content: content(bytes) }]);
        Version::new(AltoResponse { media_type: "application/json", tag, body }, None, patches, &ByteCounter::default())
    }

    fn limits(versions: usize) -> Limits {
        Limits { versions, bytes: 1 << 20, snapshots_apart: 2 }
    }

    #[test]
    fn t5_versions_are_dropped_up_to_a_whole_one() {
        let starts = |versions| graph(106, limits(versions)).start;
        assert_eq!(starts(6), 101);
        assert_eq!([starts(5), starts(4)], [103, 103], "102 to 106 would not begin with a whole version");
        assert_eq!([starts(3), starts(2)], [105, 105], "nor would 104 to 106");
        assert_eq!([starts(1), starts(0)], [106, 106]);
        let graph = graph(106, limits(6));
        let whole: Vec<u64> = (101..=106).filter(|number| graph.edge(0, *number).is_ok()).collect();
        assert_eq!(whole, [101, 103, 105, 106]);
    }

    #[test]
    fn t5_bytes_are_bounded_but_for_the_latest_version() {
        let graph = |bytes| graph(150, Limits { bytes, versions: 64, snapshots_apart: 8 });
        for bytes in [5000, 2500, 1200, 1000, 0] {
            let graph = graph(bytes);
            assert!(!graph.exceeds() || graph.start == 150, "{bytes}");
            assert!(matches!(graph.edge(0, graph.start), Ok(Edge::Document(_))));
            assert_eq!(graph.next_patches(149).map(<[Patch]>::len), Some(1), "of the last change all know");
        }
    }

    #[test]
    fn who_gets_a_smaller_share_keeps_less() {
        let mut graph = graph(106, limits(64));
        graph.keep(2400);
        assert_eq!(graph.start, 103, "two older ones are whole, and there are four changes");
        graph.keep(0);
        assert_eq!((graph.start, graph.end()), (106, 106));
    }

    #[test]
    fn t6_edges_are_there_or_it_is_said_why_not() {
        let graph = graph(106, limits(4));
        let bytes = |from, to| match graph.edge(from, to) {
            Ok(Edge::Document(content)) => content.body.len(),
            other => panic!("{from} to {to}: {other:?}"),
        };
        assert_eq!([bytes(0, 103), bytes(0, 106), bytes(103, 104), bytes(105, 106)], [1000, 1000, 100, 100]);
        assert_eq!(graph.edge(106, 107), Ok(Edge::NotYet));
        for ((from, to), status) in [
            ((101, 102), 410),
            ((102, 103), 410),
            ((0, 101), 410),
            ((0, 104), 410),
            ((103, 105), 404),
            ((104, 103), 404),
            ((0, 0), 404),
            ((106, 106), 404),
            ((0, 107), 425),
            ((107, 108), 425),
            ((u64::MAX - 1, u64::MAX), 425),
        ] {
            assert_eq!(graph.edge(from, to).unwrap_err().status(), status, "{from} to {to}");
        }
    }

    #[test]
    fn t2_t4_the_shorter_way_is_recommended() {
        let graph = graph(120, Limits { versions: 64, bytes: 1 << 20, snapshots_apart: 8 });
        assert_eq!(graph.recommend(None), (0, 120));
        assert_eq!(graph.recommend(Some("tag112")), (112, 113));
        assert_eq!(graph.recommend(Some("tag105")), (0, 120), "15 changes are longer than all of it");
        assert_eq!(graph.recommend(Some("tag120")), (120, 121));
        assert_eq!(graph.recommend(Some("other")), (0, 120));
    }

    #[test]
    fn t5_what_has_no_change_stays_whole() {
        let mut graph = graph(101, limits(64));
        (102..=110).for_each(|number| graph.push(version(number, None)));
        for number in 101..110 {
            assert!(matches!(graph.edge(number, number + 1), Ok(Edge::Document(_))), "{number}");
        }
    }
}
