//! Metalinks (RFC 5854): documents that list the sources, sizes and digests of files.
//!
//! A document is untrusted, so it may name only harmless files and sources: relative paths without `..` (RFC 5854,
//! 4.1.2.1), and sources with the schemes of remote storages. Other sources (`ftp:`, `file:`, torrents) are ignored,
//! signatures are not checked, and the document is not refreshed from its `origin`.

use crate::{
    checksum::{Algorithm, Digest, Digests},
    http::dav::{Element, InvalidXml, Limits},
    url::Url,
};

/// The namespace of Metalink 4.
const NAMESPACE: &str = "urn:ietf:params:xml:ns:metalink";

/// Limits for a document: thousands of files with a dozen sources each.
pub const LIMITS: Limits = Limits { bytes: 8 << 20, depth: 16, elements: 100_000 };

/// Maximum number of sources of one file that are used.
pub(crate) const MAX_SOURCES: usize = 64;

/// A file that a Metalink describes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetalinkFile {
    /// Its name: a relative path without `.` and `..`, with single slashes.
    pub name: String,
    /// Its size in bytes.
    pub size: Option<u64>,
    /// Its digests of supported algorithms.
    pub digests: Digests,
    /// Its sources, best first; never empty.
    pub sources: Vec<Url>,
}

/// Error for an unusable Metalink.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidMetalink {
    /// The XML is invalid.
    #[error("it is not a Metalink: {0}")]
    Xml(#[from] InvalidXml),
    /// The root element is not that of a Metalink 4; it may be of version 3.
    #[error("it is not a Metalink 4 document (RFC 5854)")]
    Namespace,
    /// The document describes no file.
    #[error("it describes no file")]
    Empty,
    /// A name is a path outside of the directory.
    #[error("the path of a file leads out of the destination directory")]
    Name,
    /// Two files have the same name.
    #[error("two of its files have the same name")]
    Twice,
    /// A size is not a number.
    #[error("the size of one of its files is not a number")]
    Size,
    /// A digest is invalid.
    #[error("one of its digests has the wrong length or characters")]
    Digest,
    /// A file has no usable source.
    #[error("a file has no source with a supported scheme (root, http, https, dav, davs, s3)")]
    Sources,
}

/// Parses a Metalink and returns the files that it describes.
///
/// # Errors
/// [`InvalidMetalink`] if any part is invalid; then nothing of the document is used.
pub fn parse(document: &[u8]) -> Result<Vec<MetalinkFile>, InvalidMetalink> {
    let root = Element::parse_with_attributes(document, LIMITS)?;
    if root.name.local != "metalink" || root.name.namespace != NAMESPACE {
        return Err(InvalidMetalink::Namespace);
    }
    let files = root.children.iter().filter(|child| is(child, "file"));
    let files = files.map(MetalinkFile::of).collect::<Result<Vec<_>, _>>()?;
    let mut names: Vec<_> = files.iter().map(|file| &file.name).collect();
    names.sort_unstable();
    match names.windows(2).any(|pair| pair[0] == pair[1]) {
        _ if files.is_empty() => Err(InvalidMetalink::Empty),
        true => Err(InvalidMetalink::Twice),
        false => Ok(files),
    }
}

fn is(element: &Element, local: &str) -> bool {
    element.name.local == local && element.name.namespace == NAMESPACE
}

impl MetalinkFile {
    fn of(element: &Element) -> Result<Self, InvalidMetalink> {
        let children = |local: &'static str| element.children.iter().filter(move |child| is(child, local));
        let size = children("size").next().map(|size| size.text.trim().parse().map_err(|_| InvalidMetalink::Size));
        let mut digests = Digests::new();
        for hash in children("hash") {
            // Hashes in `pieces` belong to parts of the file; unsupported algorithms (`sha-1`, `sha-512`) are skipped.
            let Some(algorithm) = hash.attribute("type").and_then(algorithm) else { continue };
            digests.insert(Digest::from_hex(algorithm, hash.text.trim()).map_err(|_| InvalidMetalink::Digest)?);
        }
        let mut sources: Vec<_> = children("url").filter_map(source).collect();
        // The sort is stable: sources with equal priority keep the order of the document.
        sources.sort_by_key(|(priority, _)| *priority);
        let mut sources: Vec<_> = sources.into_iter().map(|(_, url)| url).collect();
        sources.dedup();
        sources.truncate(MAX_SOURCES);
        if sources.is_empty() {
            return Err(InvalidMetalink::Sources);
        }
        let name = name(element.attribute("name").unwrap_or_default())?;
        Ok(Self { name, size: size.transpose()?, digests, sources })
    }
}

/// Returns the algorithm with this name, either an IANA hash function name as in RFC 5854 or a name of this crate.
fn algorithm(name: &str) -> Option<Algorithm> {
    match name.to_ascii_lowercase().as_str() {
        "sha-1" => Some(Algorithm::Sha1),
        "sha-256" => Some(Algorithm::Sha256),
        other => other.parse().ok(),
    }
}

/// Parses a source and its priority: 1 is the best, 999999 the worst and the default (RFC 5854, 4.2.16.1).
fn source(element: &Element) -> Option<(u32, Url)> {
    let url = element.text.trim().parse().ok()?;
    let priority = element.attribute("priority").and_then(|priority| priority.parse().ok());
    Some((priority.filter(|priority| (1..=999_999).contains(priority)).unwrap_or(999_999), url))
}

/// Checks a file name, which must stay below its target directory.
fn name(text: &str) -> Result<String, InvalidMetalink> {
    let is_harmless = |part: &str| !matches!(part, "" | "." | "..") && part.len() <= 255;
    let is_relative = text.split('/').all(is_harmless) && !text.contains(|c: char| c.is_control() || c == '\\');
    if is_relative { Ok(text.to_owned()) } else { Err(InvalidMetalink::Name) }
}

#[cfg(test)]
mod tests;
