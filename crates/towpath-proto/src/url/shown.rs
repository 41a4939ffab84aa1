//! Typed locations in printable form.

use std::ffi::OsStr;

use super::{Family, Location};

/// Returns the text typed by the user in printable form. For a URL it omits everything after `?`, and before an `@`
/// keeps only the user of XRootD's protocol, which is a login name. All other parts may be secret.
pub fn shown(typed: &OsStr) -> String {
    let text = typed.to_string_lossy();
    let location = Location::from_argument(typed);
    if matches!(location, Ok(Location::Local(_) | Location::Standard)) {
        return text.into_owned();
    }
    let url = text.split('?').next().unwrap_or_default();
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let behind_user = match &location {
        Ok(Location::Remote(url)) if url.scheme().family() == Family::Xrootd => None,
        Ok(_) => rest.split_once('@').filter(|(user, _)| !user.contains('/')),
        Err(_) => rest.rsplit_once('@'),
    };
    behind_user.map_or_else(|| url.to_owned(), |(_, rest)| format!("{scheme}://***@{rest}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_shown_without_what_may_be_secret_and_paths_as_they_were_typed() {
        for (typed, printed) in [
            ("a?b@c", "a?b@c"),
            ("xroot://Alice@Host:1094/f", "xroot://Alice@Host:1094/f"),
            ("root://host//f?authz=hush", "root://host//f"),
            ("https://host/a@b?sig=hush", "https://host/a@b"),
            ("root://host:99999//f?authz=hush", "root://host:99999//f"),
            ("root://alice:hush@host//f?authz=hush", "root://***@host//f"),
            ("s3://bucket/key?hush", "s3://bucket/key"),
            ("https://hush@host/a@b", "https://***@host/a@b"),
            ("ftp://alice:hu/sh@host", "ftp://***@host"),
        ] {
            assert_eq!(shown(OsStr::new(typed)), printed);
        }
    }
}
