//! Topologies in GraphML, including the files of the Internet Topology Zoo.
//!
//! Elements are recognized by their local names, wherever they occur. A `data` element sets the field declared by its
//! `key`, or the field named like the key if it is undeclared. Defaults of keys, ports and hyperedges are ignored. The
//! five entities of XML and numeric character references are resolved; others are ignored, and so are document types.

use std::{collections::HashMap, fmt::Display, mem};

use quick_xml::{
    escape,
    events::{BytesRef, BytesStart, Event},
    reader::Reader,
};

use super::{
    TopologyError,
    builder::{TopologyBuilder, WrittenLink, WrittenNode},
};
use crate::lenient::{PartialJson as _, Scalar};

/// Reads the nodes and links of a document.
///
/// # Errors
/// Returns an error if the document is not well-formed XML.
pub(super) fn read(text: &str, builder: &mut TopologyBuilder) -> Result<(), TopologyError> {
    let mut reader = Reader::from_str(text);
    reader.config_mut().allow_dangling_amp = true;
    let mut document =
        Document { builder, fields: HashMap::new(), open: CurrentElement::Nothing, data: None, depth: 0 };
    loop {
        match reader.read_event() {
            Ok(Event::Start(tag)) => document.start(&tag),
            Ok(Event::Empty(tag)) => {
                document.start(&tag);
                document.end(tag.local_name().into_inner());
            }
            Ok(Event::End(tag)) => document.end(tag.local_name().into_inner()),
            Ok(Event::Text(text)) => document.append(&text.xml10_content()),
            Ok(Event::CData(text)) => document.append(&text.xml10_content()),
            Ok(Event::GeneralRef(reference)) => document.append_reference(&reference),
            Ok(Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::DocType(_)) => {}
            Ok(Event::Eof) if document.depth == 0 => return Ok(()),
            Ok(Event::Eof) => return Err(invalid(text, text.len(), &"the XML ends before the root element is closed")),
            Err(error) => {
                let at = usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX);
                return Err(invalid(text, at, &error));
            }
        }
    }
}

fn invalid(text: &str, at: usize, problem: &dyn Display) -> TopologyError {
    let line = 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count();
    TopologyError::Invalid(format!("line {line}: {problem}"))
}

/// The node or link being read.
enum CurrentElement {
    Nothing,
    Node(WrittenNode),
    Link(WrittenLink),
}

/// State of a document being parsed.
struct Document<'a> {
    builder: &'a mut TopologyBuilder,
    /// Field names by key ID.
    fields: HashMap<String, String>,
    open: CurrentElement,
    /// The field being read and its text so far.
    data: Option<(String, String)>,
    /// Number of open elements.
    depth: usize,
}

impl Document<'_> {
    fn start(&mut self, tag: &BytesStart<'_>) {
        self.depth += 1;
        let text = |name| attribute(tag, name).unwrap_or_default();
        match tag.local_name().into_inner() {
            "key" => {
                if let Some(field) = attribute(tag, "attr.name") {
                    self.fields.insert(text("id"), field);
                }
            }
            "graph" => self.builder.is_directed = text("edgedefault") == "directed",
            // A node may contain a nested graph, whose nodes are treated like all others.
            "node" => self.open(CurrentElement::Node(WrittenNode::new(text("id")))),
            "edge" => {
                let is_directed = attribute(tag, "directed").map(|value| value == "true");
                let (from, to) = (text("source"), text("target"));
                self.open(CurrentElement::Link(WrittenLink { from, to, is_directed, ..WrittenLink::default() }));
            }
            "data" => {
                let key = text("key");
                self.data = Some((self.fields.get(&key).cloned().unwrap_or(key), String::new()));
            }
            _ => {}
        }
    }

    fn end(&mut self, name: &str) {
        self.depth -= 1;
        match name {
            "node" | "edge" => self.open(CurrentElement::Nothing),
            "data" => self.note(),
            _ => {}
        }
    }

    /// Finishes the open node or link and starts another.
    fn open(&mut self, next: CurrentElement) {
        match mem::replace(&mut self.open, next) {
            CurrentElement::Nothing => {}
            CurrentElement::Node(node) => self.builder.add_node(node),
            CurrentElement::Link(link) => self.builder.add_link(link),
        }
    }

    /// Stores the completed field in the open node or link.
    fn note(&mut self) {
        let Some((field, text)) = self.data.take() else { return };
        let mut value = Scalar::default();
        value.text(&text);
        match &mut self.open {
            CurrentElement::Nothing => {}
            CurrentElement::Node(node) => node.note(&field, &value),
            CurrentElement::Link(link) => link.note(&field, &value),
        }
    }

    fn append(&mut self, text: &str) {
        if let Some((_, read)) = &mut self.data {
            read.push_str(text);
        }
    }

    fn append_reference(&mut self, reference: &BytesRef<'_>) {
        match reference.resolve_char_ref() {
            Ok(Some(character)) => self.append(character.encode_utf8(&mut [0; 4])),
            _ => self.append(escape::resolve_xml_entity(reference).unwrap_or_default()),
        }
    }
}

fn attribute(tag: &BytesStart<'_>, name: &str) -> Option<String> {
    let attribute = tag.attributes().flatten().find(|attribute| attribute.key.into_inner() == name)?;
    Some(escape::unescape(&attribute.value).map_or_else(|_| attribute.value.to_string(), |value| value.into_owned()))
}
