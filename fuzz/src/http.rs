//! HTTP fields and bodies, URLs, Metalinks, S3 documents and ZIP directories.

use bytes::Bytes;
use towpath_proto::{
    http::{
        challenge::BearerError,
        condition::{Conditions, IfRange},
        date,
        dav::{Entries, LockRequest, Propfind, Proppatch, parse_coded_url, parse_timeout},
        digest,
        multipart::{Boundary, PartReader},
        range::{ContentRange, RangeRequest},
        tpc,
    },
    metalink, s3,
    url::{Location, decode_href},
    zip,
};

/// Bodies of PROPFIND, PROPPATCH and LOCK requests, and of 207 answers.
pub fn dav_xml(input: &[u8]) {
    let _ = Propfind::parse(input);
    let _ = Proppatch::parse(input);
    let _ = LockRequest::parse(input);
    if let Ok(entries) = Entries::new(input) {
        // Each entry consumes input, so there are at most as many as bytes, and an error at the end.
        let limit = input.len() + 1;
        assert!(entries.take(limit + 1).count() <= limit, "the entries do not end");
    }
}

/// Header fields. Property: a range that was printed reads as itself.
pub fn fields(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(range) = ContentRange::parse(text) {
        assert_eq!(ContentRange::parse(&range.to_string()), Some(range), "a printed Content-Range is another one");
    }
    if let Some(range) = RangeRequest::parse(text) {
        for size in [0, 1, 1000, u64::MAX] {
            let _ = range.resolve(size);
        }
    }
    let _ = Conditions::new(Some(text), Some(text), Some(text), Some(text));
    let _ = IfRange::parse(text);
    let _ = digest::parse_digest(text);
    let _ = digest::parse_repr_digest(text);
    let _ = digest::parse_content_md5(text);
    let _ = digest::parse_owncloud(text);
    let _ = (date::parse(text), date::parse_rfc3339(text));
    let _ = (parse_timeout(text), parse_coded_url(text), BearerError::parse(text));
}

/// A Metalink document.
pub fn metalink(input: &[u8]) {
    let _ = metalink::parse(input);
}

/// A body with several ranges, in pieces of the length that the first byte gives, and the markers of a third-party
/// copy.
pub fn multipart(input: &[u8]) {
    let Some((piece, body)) = input.split_first() else { return };
    let Some(boundary) = Boundary::of_content_type("multipart/byteranges; boundary=b") else { return };
    let (mut reader, mut markers) = (PartReader::new(&boundary), tpc::Reader::default());
    for piece in body.chunks(usize::from(*piece).max(1)) {
        markers.take(piece);
        reader.push(Bytes::copy_from_slice(piece));
        while let Ok(Some(_)) = reader.next_item() {}
    }
    let _ = (reader.finish(), markers.finish());
}

/// Listings, the answers of multipart uploads, and errors of S3.
pub fn s3_xml(input: &[u8]) {
    let _ = s3::Page::parse(input);
    let _ = s3::parse_upload_id(input);
    let _ = s3::parse_copied(input);
    let _ = s3::parse_completed(input);
    let _ = s3::S3Error::parse(input);
}

/// Arguments of commands and addresses in redirects. Property: a printed URL reads as itself.
pub fn url(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let _ = decode_href(text);
    let Ok(location) = text.parse::<Location>() else { return };
    if let Some(url) = location.url() {
        let again = url.expose_with_password().parse::<Location>();
        assert_eq!(again.as_ref().ok().and_then(Location::url), Some(url), "a printed URL is another one");
    }
}

/// The end, the directory and a local header of a ZIP archive.
pub fn zip(input: &[u8]) {
    let _ = zip::find(input, input.len() as u64);
    let _ = zip::directory64(input, u64::MAX);
    let _ = zip::member(input, b"a.root");
    let _ = zip::content_offset(input);
}
