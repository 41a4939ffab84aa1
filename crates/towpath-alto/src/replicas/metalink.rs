//! Replica lists in Metalink 4 (RFC 5854), including Rucio's dialect.
//!
//! Only `metalink/file/url` in the Metalink namespace is interpreted. Rucio's extensions (`parents`, `identity`,
//! `glfn`, `client_extract`), elements of other namespaces, comments and `metaurl` are preserved. So is an unescaped
//! `&`, which is not an error because Rucio does not escape names.

use std::ops::Range;

use quick_xml::{
    escape,
    events::{BytesRef, BytesStart, Event},
    name::ResolveResult,
    reader::NsReader,
};

use super::{Listing, PriorityAt, Replica, ReplicaError, Slot};

/// The Metalink 4 namespace.
const NAMESPACE: &str = "urn:ietf:params:xml:ns:metalink";

/// Maximum nesting of elements. Metalink needs 4.
const MAX_DEPTH: usize = 64;

/// XML whitespace.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Reads the files of a Metalink.
///
/// # Errors
/// Returns an error if the document is not well-formed XML, not Metalink 4, has a document type, or is nested too
/// deeply, or if there are too many replicas.
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

/// Returns the byte offset after the last event.
fn position(reader: &NsReader<&[u8]>) -> usize {
    usize::try_from(reader.buffer_position()).unwrap_or(usize::MAX)
}

/// Role of an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ElementRole {
    Metalink,
    File,
    Url,
    Other,
}

/// State of a document being parsed.
struct Document<'a> {
    text: &'a str,
    listing: &'a mut Listing,
    /// The open elements, from the root.
    places: Vec<ElementRole>,
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
            Event::DocType(_) => return Err(self.invalid(span.start, "document types are not allowed, for security")),
            Event::Decl(_) | Event::Comment(_) | Event::PI(_) | Event::Eof => {}
        }
        Ok(())
    }

    fn start(&mut self, tag: &BytesStart<'_>, is_metalink: bool, at: usize) -> Result<(), ReplicaError> {
        if self.places.len() == MAX_DEPTH {
            return Err(self.invalid(at, format!("elements are nested deeper than {MAX_DEPTH} levels")));
        }
        let place = match (self.places.last(), tag.local_name().into_inner()) {
            (None, "metalink") if is_metalink && !self.has_root => ElementRole::Metalink,
            (None, _) => return Err(self.invalid(at, "not a Metalink 4 document (RFC 5854)")),
            (Some(ElementRole::Metalink), "file") if is_metalink => ElementRole::File,
            (Some(ElementRole::File), "url") if is_metalink => ElementRole::Url,
            _ => ElementRole::Other,
        };
        match place {
            ElementRole::Metalink => self.has_root = true,
            ElementRole::File => self.listing.begin(name_of(tag)),
            ElementRole::Url => self.start_replica(tag, at)?,
            ElementRole::Other => {}
        }
        self.places.push(place);
        Ok(())
    }

    /// Starts the replica whose start tag `tag` is at byte `at`.
    fn start_replica(&mut self, tag: &BytesStart<'_>, at: usize) -> Result<(), ReplicaError> {
        let content = at + "<".len();
        let mut replica = Replica::default();
        let mut priority = PriorityAt::NewAttribute(content + tag.trim_end_matches(BLANKS).len());
        for attribute in tag.attributes() {
            let attribute = attribute.map_err(|error| self.invalid(at, error.to_string()))?;
            let value: &str = &attribute.value;
            match attribute.key.into_inner() {
                "location" => replica.site = Some(self.unescape(value, at)?),
                "domain" => replica.domain = Some(self.unescape(value, at)?),
                "priority" => {
                    // The value is borrowed from the tag, so that the pointer difference is its offset.
                    let from = content + (value.as_ptr().addr() - tag.as_ptr().addr());
                    priority = PriorityAt::Number(from..from + value.len());
                    replica.priority = value.trim().parse().ok();
                }
                _ => {}
            }
        }
        // The end of the span is set at the end tag.
        let before = self.text[..at].trim_end_matches(BLANKS).len();
        self.listing.add(replica, Slot { span: at..at, dropped: before..at, priority })
    }

    fn end(&mut self, end: usize) {
        if self.places.pop() == Some(ElementRole::Url)
            && let Some((replica, slot)) = self.listing.last_mut()
        {
            replica.url = replica.url.trim().to_owned();
            slot.span.end = end;
            slot.dropped.end = end;
        }
    }

    /// Handles character data; only that of a `url` is kept.
    fn append(&mut self, text: &str) {
        if self.places.last() == Some(&ElementRole::Url)
            && let Some((replica, _)) = self.listing.last_mut()
        {
            replica.url.push_str(text);
        }
    }

    /// Handles a reference in character data. Outside of `url` it is ignored.
    fn append_reference(&mut self, reference: &BytesRef<'_>, at: usize) -> Result<(), ReplicaError> {
        if self.places.last() == Some(&ElementRole::Url) {
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
        Err(self.invalid(self.text.len(), "the XML ends before the root element is closed"))
    }

    fn unescape(&self, value: &str, at: usize) -> Result<String, ReplicaError> {
        let unescaped = escape::unescape(value).map_err(|error| self.invalid(at, error.to_string()))?;
        Ok(unescaped.into_owned())
    }

    fn invalid(&self, at: usize, problem: impl AsRef<str>) -> ReplicaError {
        ReplicaError::invalid(self.text, at, problem)
    }
}

/// Returns the name of a file. Rucio writes names unescaped, so a name that cannot be unescaped is taken literally.
fn name_of(tag: &BytesStart<'_>) -> Option<String> {
    let name = tag.attributes().flatten().find(|attribute| attribute.key.into_inner() == "name")?;
    Some(escape::unescape(&name.value).map_or_else(|_| name.value.to_string(), |unescaped| unescaped.into_owned()))
}

/// Resolves a numeric character reference or one of the five predefined entities.
fn resolve(reference: &BytesRef<'_>) -> Option<String> {
    match reference.resolve_char_ref().ok()? {
        Some(character) => Some(character.into()),
        None => escape::resolve_xml_entity(reference).map(str::to_owned),
    }
}
