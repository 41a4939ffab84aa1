//! Client-side parser of a 207 response to a PROPFIND.

use std::iter::FusedIterator;

use super::{
    DAV, LCGDM, TOWPATH,
    xml::{DECLARATIONS, Element, InvalidXml, Limits, Name, Source, Token},
};
use crate::{
    checksum::Digests,
    http::{condition::EntityTag, date, digest},
    url::{clean_bytes, decode_href},
};

/// A file or directory as described by the response; `None` for values that the server does not send.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Path on the server: absolute, decoded, with single slashes, without `..`, and without a trailing slash except
    /// for `/`. Any bytes except NUL.
    pub path: Vec<u8>,
    /// Reason for missing properties: the status of the resource, or of all properties, unless they are only unknown
    /// (404).
    pub status: Option<u16>,
    /// Whether it is a directory.
    pub is_collection: bool,
    /// Whether the server reports that it is neither a file nor a directory ([`super::ResourceType::Special`]).
    pub is_special: bool,
    /// Size in bytes; always `None` for directories, for which servers invent a size.
    pub size_bytes: Option<u64>,
    /// Time of the last change in Unix seconds.
    pub modified_s: Option<i64>,
    /// Time of creation in Unix seconds.
    pub created_s: Option<i64>,
    /// Entity tag of the version.
    pub etag: Option<EntityTag>,
    /// The checksums that the server knows.
    pub digests: Digests,
    /// Type and permissions, as in `st_mode`.
    pub mode: Option<u32>,
    /// Whether the server reports a symbolic link.
    pub is_link: bool,
    /// Identifies a directory across servers; never 0.
    pub directory_id: Option<u64>,
    /// Free space in bytes.
    pub quota_available_bytes: Option<u64>,
    /// Used space in bytes.
    pub quota_used_bytes: Option<u64>,
}

impl Entry {
    /// Returns the last component of the path; empty for the root.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

/// Error for an unusable response. An `href` in it is unchanged: of any length and with any characters.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMultistatus {
    /// The XML is invalid.
    #[error(transparent)]
    Xml(#[from] InvalidXml),
    /// A resource has no path, or a path outside of the tree.
    #[error("the response has a resource without a valid path")]
    Path,
    /// An `href` contains a `?` or `#`: either a query or fragment, or a name that is not percent-encoded, whose `%`
    /// cannot be decoded either.
    #[error("it names a resource with a `?` or `#` that is not percent-encoded: {0}")]
    Unencoded(String),
    /// An `href` contains a percent-encoded slash as part of a name, which no file name can contain here.
    #[error("it names a resource with a slash in its name: {0}")]
    SlashInName(String),
}

/// Returns a PROPFIND body that requests every property of an [`Entry`]; `with_node` adds the property that only
/// towpath's server supports.
pub fn propfind_body(with_node: bool) -> String {
    let node = if with_node { format!("<node xmlns=\"{TOWPATH}\"/>") } else { String::new() };
    format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n<D:propfind {DECLARATIONS}><D:prop><D:resourcetype/>\
         <D:getcontentlength/><D:getlastmodified/><D:creationdate/><D:getetag/><D:quota-available-bytes/>\
         <D:quota-used-bytes/><oc:checksums/><lcgdm:mode/>{node}</D:prop></D:propfind>"
    )
}

/// The resources of a response, read one by one, so that only one resource ([`Limits::RESPONSE`]) is in memory besides
/// the response itself.
///
/// Accepts any prefixes, several `propstat` with any status, unknown elements, and paths or whole URLs in `href`. An
/// ambiguous `href`, which could identify another file, is an error ([`InvalidMultistatus`]). The iterator ends after
/// an error.
pub struct Entries<'a> {
    source: Source<'a>,
    in_multistatus: bool,
    is_from_xrootd: bool,
    done: bool,
}

impl<'a> Entries<'a> {
    /// Starts reading the body of a response.
    pub fn new(body: &'a [u8]) -> Result<Self, InvalidMultistatus> {
        let text = std::str::from_utf8(body).map_err(|_| InvalidXml::Malformed)?;
        Ok(Self { source: Source::new(text), in_multistatus: false, is_from_xrootd: false, done: false })
    }

    /// Sets whether the response came from XRootD, according to its `Server` field.
    ///
    /// XRootD (5.5.3 and 6.1.0) does not percent-encode an `href`: its text is the literal path, including spaces, `%`,
    /// `?` and `#`. EOS sends the same field but does encode. The property `executable` in the namespace `DAV:`
    /// distinguishes them: only XRootD writes it, unrequested, for every resource.
    #[must_use]
    pub fn from_xrootd(self, is_from_xrootd: bool) -> Self {
        Self { is_from_xrootd, ..self }
    }

    fn read(&mut self) -> Result<Option<Entry>, InvalidMultistatus> {
        loop {
            match self.source.next()? {
                Token::Start(name) if !self.in_multistatus => {
                    if !name.is_dav("multistatus") {
                        return Err(InvalidXml::Unexpected("expected a multistatus").into());
                    }
                    self.in_multistatus = true;
                }
                Token::Start(name) => {
                    let element = self.source.read_element(name, Limits::RESPONSE)?;
                    if element.name.is_dav("response") {
                        return entry(&element, self.is_from_xrootd).map(Some);
                    }
                }
                Token::Text(_) | Token::End => {}
                Token::Eof if self.in_multistatus => return Ok(None),
                Token::Eof => return Err(InvalidXml::Unexpected("expected a multistatus").into()),
            }
        }
    }
}

impl Iterator for Entries<'_> {
    type Item = Result<Entry, InvalidMultistatus>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        let item = self.read().transpose();
        self.done = !matches!(item, Some(Ok(_)));
        item
    }
}

impl FusedIterator for Entries<'_> {}

fn entry(response: &Element, is_from_xrootd: bool) -> Result<Entry, InvalidMultistatus> {
    let propstats: Vec<_> = response.children.iter().filter(|child| child.name.is_dav("propstat")).collect();
    let href = &response.dav_child("href").ok_or(InvalidMultistatus::Path)?.text;
    let mut path = if is_from_xrootd && is_literal(&propstats) { literal_path(href)? } else { encoded_path(href)? };
    let slash_at_end = path.len() > 1 && path.ends_with(b"/");
    if slash_at_end {
        path.pop();
    }
    let mut entry = Entry { path, status: failure(response, &propstats), ..Entry::default() };
    for propstat in propstats.into_iter().filter(|propstat| status_of(propstat).is_none_or(is_success)) {
        let properties = propstat.children.iter().filter(|child| child.name.is_dav("prop"));
        properties.flat_map(|prop| &prop.children).for_each(|property| entry.set(property));
    }
    // Some servers mark directories only with the trailing slash.
    entry.is_collection |= slash_at_end;
    if entry.is_collection {
        entry.size_bytes = None;
    }
    Ok(entry)
}

/// Returns whether XRootD itself wrote this resource, rather than one of its plug-ins ([`Entries::from_xrootd`]).
fn is_literal(propstats: &[&Element]) -> bool {
    let mut properties = propstats.iter().filter_map(|propstat| propstat.dav_child("prop"));
    properties.any(|prop| prop.dav_child("executable").is_some())
}

/// Returns the path of an `href` that is the literal path.
fn literal_path(href: &str) -> Result<Vec<u8>, InvalidMultistatus> {
    if !href.starts_with('/') {
        return Err(InvalidMultistatus::Path);
    }
    clean_bytes(href.as_bytes()).map_err(|_| InvalidMultistatus::Path)
}

/// Returns the path of an `href` that is a URL or its path.
fn encoded_path(href: &str) -> Result<Vec<u8>, InvalidMultistatus> {
    let href = href.trim();
    if href.contains(['?', '#']) {
        return Err(InvalidMultistatus::Unencoded(href.to_owned()));
    }
    if href.as_bytes().windows(3).any(|three| three.eq_ignore_ascii_case(b"%2f")) {
        return Err(InvalidMultistatus::SlashInName(href.to_owned()));
    }
    decode_href(href).map_err(|_| InvalidMultistatus::Path)
}

/// Returns the status of a resource without properties.
fn failure(response: &Element, propstats: &[&Element]) -> Option<u16> {
    let statuses = || propstats.iter().map(|propstat| status_of(propstat).unwrap_or(200));
    let of_properties = || statuses().find(|status| *status != 404).filter(|_| !statuses().any(is_success));
    status_of(response).filter(|status| !is_success(*status)).or_else(of_properties)
}

impl Entry {
    /// Sets the value of one property; invalid values are left unknown.
    fn set(&mut self, property: &Element) {
        let Name { namespace, local } = &property.name;
        let text = property.text.trim();
        match (namespace.as_ref(), local.as_ref()) {
            (DAV, "resourcetype") => {
                self.is_collection |= property.dav_child("collection").is_some();
                self.is_special |= property.children.iter().any(|kind| kind.name == Name::new(TOWPATH, "special"));
            }
            (DAV, "getcontentlength") => self.size_bytes = text.parse().ok(),
            (DAV, "getlastmodified") => self.modified_s = date::parse(text).or_else(|| date::parse_rfc3339(text)),
            (DAV, "creationdate") => self.created_s = date::parse_rfc3339(text).or_else(|| date::parse(text)),
            (DAV, "getetag") => self.etag = EntityTag::parse(text),
            (DAV, "quota-available-bytes") => self.quota_available_bytes = text.parse().ok(),
            (DAV, "quota-used-bytes") => self.quota_used_bytes = text.parse().ok(),
            (TOWPATH, "node") => {
                self.is_link = text.split_ascii_whitespace().any(|word| word == "link");
                let number = |word| u64::from_str_radix(word, 16).ok().filter(|id| *id > 0);
                self.directory_id = text.split_ascii_whitespace().find_map(number);
            }
            (LCGDM, "mode") => self.mode = u32::from_str_radix(text, 8).ok(),
            // ownCloud: checksum elements; dCache and StoRM: the text of a Digest field, in namespaces of their own.
            (_, "checksums" | "Checksums" | "Checksum") => {
                let listed = property.children.iter().map(|child| digest::parse_owncloud(&child.text));
                for known in listed.chain([digest::parse_digest(text)]).flatten() {
                    known.iter().for_each(|digest| self.digests.insert(*digest));
                }
            }
            _ => {}
        }
    }
}

fn is_success(status: u16) -> bool {
    (200..300).contains(&status)
}

/// Parses the status code of an element with a status such as `HTTP/1.1 200 OK`.
fn status_of(element: &Element) -> Option<u16> {
    element.dav_child("status")?.text.split_ascii_whitespace().nth(1)?.parse().ok()
}
