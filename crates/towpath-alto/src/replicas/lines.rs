//! Replica lists as plain text: one URL per line, all of one file.
//!
//! Empty lines and comments, which start with `#`, stay in place: a comment belongs to the list, not to the URL below
//! it. Whitespace around a URL stays with the line. A `#` after a URL is part of the URL.

use super::{Listing, PriorityAt, Replica, ReplicaError, Slot};

/// Reads the lines of `text`. The file has no name; without URLs there is no file.
///
/// # Errors
/// Returns an error if a line is not a URL, or if there are too many.
pub(super) fn read(text: &str, listing: &mut Listing) -> Result<(), ReplicaError> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let url = line.trim();
        if !url.is_empty() && !url.starts_with('#') {
            if !is_url(url) {
                return Err(ReplicaError::invalid(text, start, "it is not a URL, JSON or XML"));
            }
            if listing.files.is_empty() {
                listing.begin(None);
            }
            let from = start + line.len() - line.trim_start().len();
            let slot = Slot { span: from..from + url.len(), dropped: start..end, priority: PriorityAt::Nowhere };
            listing.add(Replica { url: url.to_owned(), ..Replica::default() }, slot)?;
        }
        start = end;
    }
    Ok(())
}

/// Returns whether `text` is a scheme followed by something, without blanks (RFC 3986 §3).
fn is_url(text: &str) -> bool {
    let is_of_scheme = |character: char| character.is_ascii_alphanumeric() || "+-.".contains(character);
    text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(is_of_scheme)
            && !rest.is_empty()
            && !rest.contains(|character: char| character.is_whitespace() || character.is_control())
    })
}
