//! ALTO: facts, requests, expressions, lists of replicas, responses, event streams, and the feeds of routers.

use towpath_alto::{agent_state::AgentState, fields, order::Statement, replicas::Replicas, topology::Topology};
use towpath_alto_client::{Document, EventReader};
use towpath_alto_sources::{
    bmp, mrt,
    program_protocol::{LineSplitter, MAX_LINE_BYTES, ProgramFacts, Reply},
};

/// Static facts in TOML, topologies, requests in JSON, and the expression that orders replicas.
pub fn documents(input: &[u8]) {
    let _ = fields::parse(input);
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = (AgentState::parse(text), Topology::parse(text), text.parse::<Statement>());
}

/// Lists of replicas in any of their formats.
pub fn replicas(input: &[u8]) {
    let _ = Replicas::read(input.to_vec());
}

/// A response of a server, of one part and of several.
pub fn response(input: &[u8]) {
    for media_type in ["application/alto-costmap+json", "multipart/related; boundary=b"] {
        let _ = Document::parse("id", "http://h/", media_type, input);
    }
}

/// An event stream. Property: how the network cuts the stream does not change the events.
pub fn events(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let read = |piece: usize| {
        let mut reader = EventReader::default();
        let mut events = Vec::new();
        for piece in stream.chunks(piece.max(1)) {
            match reader.read(piece) {
                Ok(read) => events.extend(read.into_iter().map(|event| (event.event, event.data, event.id))),
                Err(_) => return None,
            }
        }
        Some(events)
    };
    assert_eq!(read(stream.len()), read(usize::from(*cut)), "the cuts of the stream changed the events");
}

/// The stream of a router (RFC 7854). Property: how the network cuts the stream does not change the events.
pub fn bmp(input: &[u8]) {
    let Some((cut, stream)) = input.split_first() else { return };
    let read = |piece: usize| {
        let mut decoder = bmp::Stream::default();
        let mut events = Vec::new();
        for piece in stream.chunks(piece.max(1)) {
            decoder.feed(piece);
            loop {
                match decoder.next() {
                    Ok(Some(event)) => events.push(event),
                    Ok(None) => break,
                    Err(_) => return (events, true),
                }
            }
        }
        (events, false)
    };
    assert_eq!(read(stream.len()), read(usize::from(*cut)), "the cuts of the stream changed the events");
}

/// A dump of a collector (RFC 6396).
pub fn mrt(input: &[u8]) {
    let _ = mrt::read(input, |_| ());
}

/// The output of a program that reports facts, and of one that is queried.
pub fn program(input: &[u8]) {
    let (mut lines, mut splitter) = (ProgramFacts::default(), LineSplitter::new(MAX_LINE_BYTES));
    splitter.feed(input, |line| {
        let _ = (lines.take(line), Reply::read(line));
    });
    let _ = lines.facts();
}
