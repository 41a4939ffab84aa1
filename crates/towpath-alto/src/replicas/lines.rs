//! Lists of replicas as plain lines: one URL in each, all of one file.
//!
//! Empty lines and comments, which start with `#`, are no replicas and stay where they are: a comment is of the list, not
//! of the URL below it. Blanks around a URL stay with the line. A `#` behind a URL is a part of it.

use super::{Listing, PriorityAt, Replica, ReplicaError, Slot};

/// Reads the lines of `text`. The file has no name; there is none without URLs.
///
/// # Errors
/// If a line is no URL, or there are too many.
pub(super) fn read(text: &str, listing: &mut Listing) -> Result<(), ReplicaError> {
    let mut start = 0;
    for line in text.split_inclusive('\n') {
        let end = start + line.len();
        let url = line.trim();
        if !url.is_empty() && !url.starts_with('#') {
            if !is_url(url) {
                return Err(ReplicaError::invalid(text, start, "it is no URL, and neither JSON nor XML"));
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

/// Whether this is a scheme with something behind it, and no blanks (RFC 3986 §3).
fn is_url(text: &str) -> bool {
    let is_of_scheme = |character: char| character.is_ascii_alphanumeric() || "+-.".contains(character);
    text.split_once(':').is_some_and(|(scheme, rest)| {
        scheme.starts_with(|first: char| first.is_ascii_alphabetic())
            && scheme.chars().all(is_of_scheme)
            && !rest.is_empty()
            && !rest.contains(|character: char| character.is_whitespace() || character.is_control())
    })
}
