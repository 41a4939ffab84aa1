//! The updates graph of an answer (RFC 9569 §3): its versions, numbered one after another, and what leads to each.

use std::collections::VecDeque;

use serde_json::{Value, json};

use super::{Content, Refusal, body::Tally, document::Patch};
use towpath_alto::{names::Tag, resource::Answer};

/// How much of what was is kept of one answer. The latest version is always kept, whatever its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How many versions, at least 1.
    pub versions: usize,
    /// How many bytes of whole answers and changes, not counting the latest answer.
    pub bytes: usize,
    /// One of so many versions stays whole, at least 1. Older ones can only be dropped up to such a one.
    pub snapshots_apart: u64,
}

/// 64 versions and 16 MiB: an hour of a world that is new each minute.
impl Default for Limits {
    fn default() -> Self {
        Self { versions: 64, bytes: 16 << 20, snapshots_apart: 8 }
    }
}

/// What is on an edge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edge {
    /// This.
    Document(Content),
    /// Nothing yet: the edge begins at the latest version. Who waits for it asks again after the next change.
    NotYet,
}

/// How much a client has of the last version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Held {
    /// All of it.
    Bytes,
    /// What it is about. What else it says may be otherwise, so changes need not fit.
    Content,
    /// Nothing, or another one.
    Nothing,
}

/// One version of an answer.
#[derive(Debug)]
pub(super) struct Version {
    tag: Tag,
    /// The tag in its meta, if it has one.
    version_tag: Option<String>,
    /// All of it; the edge from 0.
    whole: Option<Content>,
    /// What makes it of the version before. None if that is best told whole.
    patches: Option<Vec<Patch>>,
}

impl Version {
    pub(super) fn new(answer: Answer, version_tag: Option<String>, patches: Option<Vec<Patch>>, tally: &Tally) -> Self {
        let whole = Some(Content { media_type: answer.media_type, body: tally.body(answer.body) });
        Self { tag: answer.tag, version_tag, whole, patches }
    }

    /// The change that alone makes it of the version before.
    fn patch(&self) -> Option<&Content> {
        match self.patches.as_deref() {
            Some([Patch { part: None, content }]) => Some(content),
            _ => None,
        }
    }

    /// What is on the edge from the version before.
    fn content(&self) -> Option<&Content> {
        self.patch().or(self.whole.as_ref())
    }

    fn patches_bytes(&self) -> usize {
        self.patches.iter().flatten().map(|patch| patch.content.body.len()).sum()
    }
}

/// The versions of an answer that are kept.
///
/// Always true (RFC 9569 §3.2): there is a version; they have all numbers from the first to the last; the first and the last are
/// whole; from each there is an edge to the next; neither the first nor the last number ever becomes less.
#[derive(Debug)]
pub(super) struct Graph {
    versions: VecDeque<Version>,
    /// The number that the very first version had.
    origin: u64,
    /// The number of the first version that is kept.
    start: u64,
    limits: Limits,
}

impl Graph {
    /// The graph of one version with the number `origin`, from 1.
    pub(super) fn new(origin: u64, version: Version, limits: Limits) -> Self {
        Self { versions: VecDeque::from([version]), origin, start: origin, limits }
    }

    /// Adds the next version; drops what is too much.
    pub(super) fn push(&mut self, version: Version) {
        self.versions.push_back(version);
        self.thin();
        self.compact();
    }

    /// Drops all of a version of which the change suffices. Who was just told of the one before the last still finds that.
    fn thin(&mut self) {
        let Some(index) = self.versions.len().checked_sub(3).filter(|index| *index > 0) else { return };
        let age = self.start + index as u64 - self.origin;
        let version = &mut self.versions[index];
        if !age.is_multiple_of(self.limits.snapshots_apart) && version.patch().is_some() {
            version.whole = None;
        }
    }

    /// From now on keeps so many bytes; drops what is too much.
    pub(super) fn keep(&mut self, bytes: usize) {
        self.limits.bytes = bytes;
        self.compact();
    }

    /// Drops the oldest versions up to one that is whole, as often as needed.
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

    /// The number of the last version.
    pub(super) fn end(&self) -> u64 {
        self.start + self.versions.len() as u64 - 1
    }

    fn last(&self) -> &Version {
        self.versions.back().expect("there is a version")
    }

    fn get(&self, number: u64) -> Option<&Version> {
        self.versions.get(usize::try_from(number.checked_sub(self.start)?).ok()?)
    }

    /// The tag of the last version.
    pub(super) fn tag(&self) -> &Tag {
        &self.last().tag
    }

    /// All of the last version.
    pub(super) fn latest(&self) -> &Content {
        self.last().whole.as_ref().expect("the last version is whole")
    }

    /// The version with the bytes of which that is the tag. The tag in its meta does not tell them: that is one of the map alone.
    fn number_of(&self, tag: &str) -> Option<u64> {
        let back = self.versions.iter().rev().position(|version| version.tag.as_str() == tag)?;
        Some(self.end() - back as u64)
    }

    /// How much who has the version with that tag, which is that of its bytes or the one in its meta, has of the last version.
    pub(super) fn held(&self, tag: &str) -> Held {
        let last = self.last();
        match last.version_tag.as_deref() {
            _ if last.tag.as_str() == tag => Held::Bytes,
            Some(version_tag) if version_tag == tag => Held::Content,
            _ => Held::Nothing,
        }
    }

    /// The changes of the version `seen`, which is not the last, that make the next one of it. None if those to the last are not all kept, or the last
    /// version is shorter than they.
    pub(super) fn next_patches(&self, seen: u64) -> Option<&[Patch]> {
        let mut bytes = 0;
        for number in seen + 1..=self.end() {
            // Also of the first version that is kept: who has the one before need not be told all.
            let version = self.get(number).filter(|version| version.patches.is_some())?;
            bytes += version.patches_bytes();
        }
        let next = self.get(seen + 1)?.patches.as_deref();
        next.filter(|_| bytes < self.latest().body.len())
    }

    /// What is on an edge; that from 0 tells a version whole (RFC 9569 §7.2).
    ///
    /// # Errors
    /// [`Refusal::Unknown`] for an edge that no graph of ours has, [`Refusal::Gone`], [`Refusal::TooEarly`].
    pub(super) fn edge(&self, from: u64, to: u64) -> Result<Edge, Refusal> {
        let end = self.end();
        let whole = |number| self.get(number).and_then(|version| version.whole.clone());
        match from {
            _ if to <= from => Err(Refusal::Unknown),
            0 if to > end => Err(Refusal::TooEarly),
            0 => whole(to).map(Edge::Document).ok_or(Refusal::Gone),
            _ if from < self.start => Err(Refusal::Gone),
            _ if to - from > 1 => Err(Refusal::Unknown),
            _ if from > end => Err(Refusal::TooEarly),
            _ if from == end => Ok(Edge::NotYet),
            _ => {
                let content = self.get(to).and_then(Version::content);
                Ok(Edge::Document(content.expect("what has no change stays whole").clone()))
            }
        }
    }

    /// The edge to take first by who has the version with the bytes of that tag: the next one, unless all that follows is as long as the
    /// last version; else that from 0 to the last version (RFC 9569 §6.2).
    pub(super) fn recommend(&self, tag: Option<&str>) -> (u64, u64) {
        let end = self.end();
        let Some(held) = tag.and_then(|tag| self.number_of(tag)) else { return (0, end) };
        let following = (held + 1..=end).filter_map(|number| self.get(number)?.content());
        let bytes: usize = following.map(|content| content.body.len()).sum();
        if bytes < self.latest().body.len() { (held, held + 1) } else { (0, end) }
    }

    /// A `TIPSViewSummary` for who has the version with that tag (RFC 9569 §6.2).
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

    /// A graph of versions from 101 on. All of one has 1000 bytes, each change 100.
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
        Version::new(Answer { media_type: "application/json", tag, body }, None, patches, &Tally::default())
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
