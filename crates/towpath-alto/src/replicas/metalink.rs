//! Lists of replicas as Metalink 4 (RFC 5854), also in the dialect that Rucio writes.
//!
//! Only `metalink/file/url` in the namespace of Metalink is looked at. What Rucio adds (`parents`, `identity`, `glfn`,
//! `client_extract`), elements of others, comments and `metaurl` stay as they are. An unescaped `&` stays too, and is no
//! error, since Rucio does not escape names.

use std::ops::Range;

use quick_xml::{
    escape,
    events::{BytesRef, BytesStart, Event},
    name::ResolveResult,
    reader::NsReader,
};

use super::{Listing, PriorityAt, Replica, ReplicaError, Slot};

/// The namespace of Metalink 4.
const NAMESPACE: &str = "urn:ietf:params:xml:ns:metalink";

/// How deep elements may be nested. Metalink needs 4.
const MAX_DEPTH: usize = 64;

/// The blanks of XML.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Reads the files of a Metalink.
///
/// # Errors
/// If it is no well-formed XML, no Metalink 4, has a document type or is too deep, or there are too many replicas.
pub(super) fn read(text: &str, listing: &mut Listing) -> Result<(), ReplicaError> {
    let mut reader = NsReader::from_str(text);
    reader.config_mut().allow_dangling_amp = true;
    let mut document = Document { text, listing, places: Vec::new(), has_root: false };
    loop {
        let start = position(&reader);
        let (is_metalink, event) = {
            let resolved = reader.read_resolved_event();
            let (namespace, event) = resolved.map_err(|error| document.invalid(start, error.to_string()))?;
            (matches!(&namespace, ResolveResult::Bound(namespace) if namespace.0 == NAMESPACE), event)
        };
        let span = start..position(&reader);
        if matches!(event, Event::Eof) {
            return document.finish();
        }
        document.take(&event, is_metalink, &span)?;
    }
}

/// Behind what was read last, in bytes.
fn position(reader: &NsReader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

/// What an element is here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Metalink,
    File,
    Url,
    Other,
}

/// A document up to where it is read.
struct Document<'a> {
    text: &'a str,
    listing: &'a mut Listing,
    /// The elements that are open, from the root.
    places: Vec<Place>,
    has_root: bool,
}

impl Document<'_> {
    fn take(&mut self, event: &Event<'_>, is_metalink: bool, span: &Range<usize>) -> Result<(), ReplicaError> {
        match event {
            Event::Start(tag) => self.start(tag, is_metalink, span.start)?,
            Event::Empty(tag) => {
                self.start(tag, is_metalink, span.start)?;
                self.end(span.end);
            }
            Event::End(_) => self.end(span.end),
            Event::Text(text) => self.append(&text.xml10_content()),
            Event::CData(text) => self.append(&text.xml10_content()),
            Event::GeneralRef(reference) => self.append_reference(reference, span.start)?,
            Event::DocType(_) => return Err(self.invalid(span.start, "a document type is not read, for safety")),
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::Eof => {}
        }
        Ok(())
    }

    fn start(&mut self, tag: &BytesStart<'_>, is_metalink: bool, at: usize) -> Result<(), ReplicaError> {
        if self.places.len() == MAX_DEPTH {
            return Err(self.invalid(at, format!("elements are nested deeper than {MAX_DEPTH} levels")));
        }
        let place = match (self.places.last(), tag.local_name().into_inner()) {
            (None, "metalink") if is_metalink && !self.has_root => Place::Metalink,
            (None, _) => return Err(self.invalid(at, "it is no Metalink 4 (RFC 5854)")),
            (Some(Place::Metalink), "file") if is_metalink => Place::File,
            (Some(Place::File), "url") if is_metalink => Place::Url,
            _ => Place::Other,
        };
        match place {
            Place::Metalink => self.has_root = true,
            Place::File => self.listing.begin(name_of(tag)),
            Place::Url => self.start_replica(tag, at)?,
            Place::Other => {}
        }
        self.places.push(place);
        Ok(())
    }

    /// Begins the replica whose start tag is `tag`, at the byte `at`.
    fn start_replica(&mut self, tag: &BytesStart<'_>, at: usize) -> Result<(), ReplicaError> {
        let content = at + "<".len();
        let mut replica = Replica::default();
        let mut priority = PriorityAt::NewAttribute(content + tag.trim_end_matches(BLANKS).len());
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.invalid(at, error.to_string()))?;
            let value: &str = &attribute.value;
            match attribute.key.into_inner() {
                "location" => replica.site = Some(self.unescaped(value, at)?),
                "domain" => replica.domain = Some(self.unescaped(value, at)?),
                "priority" => {
                    // Values are borrowed from the tag, so this is how far behind its start they are.
                    let from = content + (value.as_ptr().addr() - tag.as_ptr().addr());
                    priority = PriorityAt::Number(from..from + value.len());
                    replica.priority = value.trim().parse().ok();
                }
                _ => {}
            }
        }
        // Its end is set when it is read.
        let before = self.text[..at].trim_end_matches(BLANKS).len();
        self.listing.add(replica, Slot { span: at..at, dropped: before..at, priority })
    }

    fn end(&mut self, end: usize) {
        if self.places.pop() == Some(Place::Url)
            && let Some((replica, slot)) = self.listing.last_mut()
        {
            replica.url = replica.url.trim().to_owned();
            slot.span.end = end;
            slot.dropped.end = end;
        }
    }

    /// Character data; that of a `url` is kept.
    fn append(&mut self, text: &str) {
        if self.places.last() == Some(&Place::Url)
            && let Some((replica, _)) = self.listing.last_mut()
        {
            replica.url.push_str(text);
        }
    }

    /// A reference in character data. Elsewhere than in a `url` it is not looked at.
    fn append_reference(&mut self, reference: &BytesRef<'_>, at: usize) -> Result<(), ReplicaError> {
        if self.places.last() == Some(&Place::Url) {
            let text = resolve(reference).ok_or_else(|| {
                let name: &str = reference;
                self.invalid(at, format!("'&{name};' is neither a character nor one of the five entities of XML"))
            })?;
            self.append(&text);
        }
        Ok(())
    }

    fn finish(self) -> Result<(), ReplicaError> {
        if self.has_root && self.places.is_empty() {
            return Ok(());
        }
        Err(self.invalid(self.text.len(), "the XML ends before its root element does"))
    }

    fn unescaped(&self, value: &str, at: usize) -> Result<String, ReplicaError> {
        let unescaped = escape::unescape(value).map_err(|error| self.invalid(at, error.to_string()))?;
        Ok(unescaped.into_owned())
    }

    fn invalid(&self, at: usize, problem: impl AsRef<str>) -> ReplicaError {
        ReplicaError::invalid(self.text, at, problem)
    }
}

/// The name of a file. Rucio writes names unescaped, so what cannot be unescaped is taken as it is.
fn name_of(tag: &BytesStart<'_>) -> Option<String> {
    let name = tag.attributes().flatten().find(|attribute| attribute.key.into_inner() == "name")?;
    Some(escape::unescape(&name.value).map_or_else(|_| name.value.to_string(), |unescaped| unescaped.into_owned()))
}

/// The text for a reference: to a character by number, or to one of the five predefined entities.
fn resolve(reference: &BytesRef<'_>) -> Option<String> {
    match reference.resolve_char_ref().ok()? {
        Some(character) => Some(character.into()),
        None => escape::resolve_xml_entity(reference).map(str::to_owned),
    }
}
