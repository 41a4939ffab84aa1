//! A small tree of XML elements, parsed with bounds from untrusted bytes.

use std::{borrow::Cow, fmt::Write as _};

use quick_xml::{
    escape,
    events::{BytesRef, BytesStart, Event},
    name::ResolveResult,
    reader::NsReader,
};

/// Limits for the size of a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum length of the document in bytes.
    pub bytes: usize,
    /// Maximum nesting depth of elements.
    pub depth: usize,
    /// Maximum number of elements.
    pub elements: usize,
}

impl Limits {
    /// Limits for a request; clients request a few dozen properties at most.
    pub const REQUEST: Limits = Limits { bytes: 256 * 1024, depth: 16, elements: 512 };

    /// Limits for one `response` element; the elements of a longer response are read one by one.
    pub(crate) const RESPONSE: Limits = Limits { bytes: 1024 * 1024, depth: 16, elements: 4096 };
}

/// Maximum length of a namespace, and of a name in it, in bytes. An element in a namespace that is declared once by an
/// ancestor is short, but its name in memory is not.
const MAX_NAME_BYTES: usize = 256;

/// Name of an element or property: a namespace (empty for none), and a local name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name {
    /// URI of the namespace; empty for none.
    pub namespace: Cow<'static, str>,
    /// Name without its prefix.
    pub local: Cow<'static, str>,
}

impl Name {
    /// Creates a name that is known at compile time.
    pub const fn new(namespace: &'static str, local: &'static str) -> Self {
        Self { namespace: Cow::Borrowed(namespace), local: Cow::Borrowed(local) }
    }

    /// Creates a name in the namespace `DAV:`.
    pub const fn dav(local: &'static str) -> Self {
        Self::new(super::DAV, local)
    }

    /// Returns whether this is `local` in the namespace `DAV:`.
    pub fn is_dav(&self, local: &str) -> bool {
        self.namespace == super::DAV && self.local == local
    }
}

/// An element with its content. Comments and processing instructions are dropped, and attributes are kept only by
/// [`Element::parse_with_attributes`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Element {
    /// Its name.
    pub name: Name,
    /// All character data directly in the element, joined, with references replaced.
    pub text: String,
    /// Child elements.
    pub children: Vec<Element>,
    /// Names (without prefix) and values of its attributes; only [`Element::parse_with_attributes`] keeps them.
    pub attributes: Vec<(String, String)>,
}

/// Error for bytes that are not the expected XML.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidXml {
    /// The document exceeds the [`Limits`], or a name has more than 256 bytes.
    #[error("the XML is too large or too deeply nested")]
    TooLarge,
    /// The document is not well-formed, or not UTF-8.
    #[error("the XML is not well-formed")]
    Malformed,
    /// The document contains a document type or an entity that is not predefined; both are rejected for safety.
    #[error("the XML has a document type or an entity reference")]
    Entity,
    /// The XML is well-formed, but its content violates the protocol.
    #[error("the XML does not conform to the protocol: {0}")]
    Unexpected(&'static str),
}

impl Element {
    /// Parses a whole document, without attributes.
    pub fn parse(document: &[u8], limits: Limits) -> Result<Self, InvalidXml> {
        Self::parse_keeping(document, limits, false)
    }

    /// Parses a whole document with the attributes of its elements.
    pub(crate) fn parse_with_attributes(document: &[u8], limits: Limits) -> Result<Self, InvalidXml> {
        Self::parse_keeping(document, limits, true)
    }

    fn parse_keeping(document: &[u8], limits: Limits, keeps_attributes: bool) -> Result<Self, InvalidXml> {
        if document.len() > limits.bytes {
            return Err(InvalidXml::TooLarge);
        }
        let text = std::str::from_utf8(document).map_err(|_| InvalidXml::Malformed)?;
        let mut source = Source { keeps_attributes, ..Source::new(text) };
        let root = loop {
            match source.next()? {
                Token::Start(name) => break source.read_element(name, limits)?,
                Token::Text(text) if text.trim().is_empty() => {}
                Token::Text(_) | Token::End | Token::Eof => return Err(InvalidXml::Malformed),
            }
        };
        loop {
            match source.next()? {
                Token::Eof => return Ok(root),
                Token::Text(text) if text.trim().is_empty() => {}
                _ => return Err(InvalidXml::Malformed),
            }
        }
    }

    /// Returns the first child with that name.
    pub fn child(&self, name: &Name) -> Option<&Element> {
        self.children.iter().find(|child| child.name == *name)
    }

    /// Returns the first child with this local name in any namespace.
    pub(crate) fn local_child(&self, local: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name.local == local)
    }

    /// Returns the value of an attribute.
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the first child with that name in the namespace `DAV:`.
    pub fn dav_child(&self, local: &str) -> Option<&Element> {
        self.children.iter().find(|child| child.name.is_dav(local))
    }

    /// Writes the element, with a declaration of its namespace.
    pub fn write(&self, output: &mut String) {
        open_tag(output, &self.name);
        output.push_str(&escape_text(&self.text));
        self.children.iter().for_each(|child| child.write(output));
        close_tag(output, &self.name);
    }

    /// Returns the element as a document, which [`Element::parse`] can parse.
    pub fn to_document(&self) -> String {
        let mut document = String::new();
        self.write(&mut document);
        // Markup in namespaces is escaped, so the first `>` ends the first tag.
        let end = document.find('>').unwrap_or(0);
        document.insert_str(end, DECLARATIONS);
        document.insert(end, ' ');
        document
    }
}

/// Declarations of the prefixes in [`prefix_of`], for the root element of a document.
pub(super) const DECLARATIONS: &str = r#"xmlns:D="DAV:" xmlns:oc="http://owncloud.org/ns" xmlns:lcgdm="LCGDM:""#;

/// Returns the prefix that [`DECLARATIONS`] assigns to a namespace.
fn prefix_of(namespace: &str) -> Option<&'static str> {
    match namespace {
        super::DAV => Some("D"),
        super::OWNCLOUD => Some("oc"),
        super::LCGDM => Some("lcgdm"),
        _ => None,
    }
}

/// Writes `<prefix:local>`, or `<local xmlns="namespace">` for namespaces without prefix.
pub(super) fn open_tag(output: &mut String, name: &Name) {
    write_tag(output, name, "");
}

/// Writes an element without content.
pub(super) fn empty_tag(output: &mut String, name: &Name) {
    write_tag(output, name, "/");
}

fn write_tag(output: &mut String, name: &Name, end: &str) {
    let local = &name.local;
    match prefix_of(&name.namespace) {
        Some(prefix) => write!(output, "<{prefix}:{local}{end}>"),
        None => write!(output, "<{local} xmlns=\"{}\"{end}>", escape_text(&name.namespace)),
    }
    .expect(WRITING);
}

/// Writes the end tag of an element.
pub(super) fn close_tag(output: &mut String, name: &Name) {
    match prefix_of(&name.namespace) {
        Some(prefix) => write!(output, "</{prefix}:{}>", name.local),
        None => write!(output, "</{}>", name.local),
    }
    .expect(WRITING);
}

pub(super) const WRITING: &str = "writing to a String cannot fail";

/// Escapes markup in character data; characters that XML 1.0 cannot express become U+FFFD.
pub(super) fn escape_text(text: &str) -> String {
    let allowed = |character: char| match character {
        '\t' | '\n' | '\r' | ' '..='\u{fffd}' | '\u{10000}'.. => character,
        _ => char::REPLACEMENT_CHARACTER,
    };
    escape::escape(text.chars().map(allowed).collect::<String>()).into_owned()
}

/// Tokens of a document that matter here.
pub(super) enum Token {
    /// The start of an element.
    Start(Name),
    /// Character data, with references replaced.
    Text(String),
    /// The end of an element.
    End,
    /// The end of the document.
    Eof,
}

/// Reads and checks the tokens of a document.
pub(super) struct Source<'a> {
    reader: NsReader<&'a [u8]>,
    open_elements: usize,
    keeps_attributes: bool,
    /// Attributes of the element that started last.
    attributes: Vec<(String, String)>,
}

impl<'a> Source<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        let mut reader = NsReader::from_str(text.trim_start_matches('\u{feff}'));
        reader.config_mut().expand_empty_elements = true;
        Self { reader, open_elements: 0, keeps_attributes: false, attributes: Vec::new() }
    }

    /// Returns the position of the next token, in bytes from the start of the document.
    pub(super) fn position(&self) -> usize {
        usize::try_from(self.reader.buffer_position()).unwrap_or(usize::MAX)
    }

    pub(super) fn next(&mut self) -> Result<Token, InvalidXml> {
        loop {
            let (namespace, event) = self.reader.read_resolved_event().map_err(|_| InvalidXml::Malformed)?;
            return Ok(match event {
                Event::Start(start) | Event::Empty(start) => {
                    let name = name_of(&namespace, &start)?;
                    if self.keeps_attributes {
                        self.attributes = attributes_of(&start)?;
                    }
                    self.open_elements += 1;
                    Token::Start(name)
                }
                Event::End(_) => {
                    self.open_elements = self.open_elements.saturating_sub(1);
                    Token::End
                }
                Event::Text(text) => Token::Text(text.xml10_content().into_owned()),
                Event::CData(data) => Token::Text(data.xml10_content().into_owned()),
                Event::GeneralRef(reference) => Token::Text(resolve(&reference)?),
                Event::DocType(_) => return Err(InvalidXml::Entity),
                Event::Eof if self.open_elements > 0 => return Err(InvalidXml::Malformed),
                Event::Eof => Token::Eof,
                Event::Decl(_) | Event::Comment(_) | Event::PI(_) => continue,
            });
        }
    }

    /// Reads an element whose start was already read, up to and including its end.
    pub(super) fn read_element(&mut self, name: Name, limits: Limits) -> Result<Element, InvalidXml> {
        let start = self.position();
        let mut elements = 1;
        let mut stack = Vec::new();
        let attributes = std::mem::take(&mut self.attributes);
        let mut current = Element { name, text: String::new(), children: Vec::new(), attributes };
        loop {
            match self.next()? {
                Token::Start(name) => {
                    elements += 1;
                    if elements > limits.elements || stack.len() + 1 >= limits.depth {
                        return Err(InvalidXml::TooLarge);
                    }
                    let attributes = std::mem::take(&mut self.attributes);
                    let child = Element { name, text: String::new(), children: Vec::new(), attributes };
                    stack.push(std::mem::replace(&mut current, child));
                }
                Token::Text(text) => current.text.push_str(&text),
                Token::End => match stack.pop() {
                    None => return Ok(current),
                    Some(mut parent) => {
                        parent.children.push(current);
                        current = parent;
                    }
                },
                Token::Eof => return Err(InvalidXml::Malformed),
            }
            if self.position() - start > limits.bytes {
                return Err(InvalidXml::TooLarge);
            }
        }
    }
}

fn name_of(namespace: &ResolveResult<'_>, start: &BytesStart<'_>) -> Result<Name, InvalidXml> {
    // The reader skips attributes that are not well-formed, which might include a namespace.
    if start.attributes().any(|attribute| attribute.is_err()) {
        return Err(InvalidXml::Malformed);
    }
    let namespace = match namespace {
        ResolveResult::Bound(namespace) if namespace.0.len() > MAX_NAME_BYTES => return Err(InvalidXml::TooLarge),
        ResolveResult::Bound(namespace) => escape::unescape(namespace.0).map_err(|_| InvalidXml::Entity)?.into_owned(),
        ResolveResult::Unbound => String::new(),
        ResolveResult::Unknown(_) => return Err(InvalidXml::Malformed),
    };
    let local = start.local_name();
    if local.as_ref().len() > MAX_NAME_BYTES {
        return Err(InvalidXml::TooLarge);
    }
    if !is_name(local.as_ref()) {
        return Err(InvalidXml::Malformed);
    }
    Ok(Name { namespace: namespace.into(), local: local.as_ref().to_owned().into() })
}

/// Returns the names (without prefix) and values of an element's attributes, except for namespace declarations.
fn attributes_of(start: &BytesStart<'_>) -> Result<Vec<(String, String)>, InvalidXml> {
    let declared = start.attributes().flatten().filter(|attribute| attribute.key.as_namespace_binding().is_none());
    let each = declared.map(|attribute| {
        let value = escape::unescape(&attribute.value).map_err(|_| InvalidXml::Entity)?;
        Ok((attribute.key.local_name().as_ref().to_owned(), value.into_owned()))
    });
    each.collect()
}

/// Returns whether this is an NCName; it accepts slightly more letters than XML.
fn is_name(name: &str) -> bool {
    let starts_well = name.starts_with(|first: char| first.is_alphabetic() || first == '_');
    starts_well && name.chars().all(|other| other.is_alphanumeric() || "-_.·".contains(other))
}

/// Returns the text of a reference: to a character by number, or to one of the five predefined entities.
fn resolve(reference: &BytesRef<'_>) -> Result<String, InvalidXml> {
    if let Some(character) = reference.resolve_char_ref().map_err(|_| InvalidXml::Malformed)? {
        return Ok(character.into());
    }
    escape::resolve_xml_entity(reference).map(str::to_owned).ok_or(InvalidXml::Entity)
}
