//! XML of Amazon's S3 API that a client needs to transfer files: listing pages, multipart uploads, and errors.
//!
//! Elements are identified by their local names, because namespaces differ between servers and are missing in some. The
//! requests are described in the [API reference](https://docs.aws.amazon.com/AmazonS3/latest/API/).
//!
//! Not here: requests, which are plain HTTP, and signatures.

use std::fmt::Write as _;

use percent_encoding::percent_decode_str;

use crate::{
    checksum::{Algorithm, Digest, Digests},
    fault::Fault,
    http::{
        condition::EntityTag,
        date,
        dav::{Element, InvalidXml, Limits},
    },
};

/// Maximum length of a key in bytes of UTF-8.
pub const MAX_KEY_BYTES: usize = 1024;

/// Maximum number of parts of an upload.
pub const MAX_PARTS: u64 = 10_000;

/// Maximum size of an object in bytes.
pub const MAX_OBJECT_BYTES: u64 = 5 << 40;

/// Maximum number of bytes that one request can put or copy.
pub const MAX_PUT_BYTES: u64 = 5 << 30;

/// Limits for a page of 1,000 objects with about ten elements each and percent-encoded keys.
pub const PAGE: Limits = Limits { bytes: 8 << 20, depth: 8, elements: 32_000 };

/// Limits for all other responses, each of which describes a single item.
pub const ANSWER: Limits = Limits { bytes: 64 << 10, depth: 8, elements: 256 };

/// One page of a listing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Page {
    /// Objects whose keys have no delimiter after the prefix.
    pub objects: Vec<Object>,
    /// Common prefixes of all other keys, up to and including the delimiter, each once.
    pub prefixes: Vec<Vec<u8>>,
    /// Continuation token of the next page; `None` if this is the last.
    pub next: Option<String>,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Object {
    /// Its full key.
    pub key: Vec<u8>,
    /// Its size in bytes.
    pub size: u64,
    /// Upload time in seconds since the Unix epoch.
    pub modified_s: Option<i64>,
    /// Entity tag of its version.
    pub etag: Option<EntityTag>,
}

impl Page {
    /// Parses a `ListBucketResult`.
    ///
    /// # Errors
    /// As [`Element::parse`]; `Unexpected` if an object has no key or no size.
    pub fn parse(body: &[u8]) -> Result<Self, InvalidXml> {
        let root = Element::parse(body, PAGE)?;
        if root.name.local != "ListBucketResult" {
            return Err(InvalidXml::Unexpected("expected a listing"));
        }
        let is_encoded = text(&root, "EncodingType").is_some_and(|encoding| encoding.eq_ignore_ascii_case("url"));
        let mut page = Page::default();
        for child in &root.children {
            match &*child.name.local {
                "Contents" => page.objects.push(Object::of(child, is_encoded)?),
                "CommonPrefixes" => {
                    let prefix = child.local_child("Prefix").ok_or(InvalidXml::Unexpected("a prefix without text"))?;
                    page.prefixes.push(key(&prefix.text, is_encoded));
                }
                _ => {}
            }
        }
        let token = text(&root, "NextContinuationToken").filter(|token| !token.is_empty());
        let is_truncated = match text(&root, "IsTruncated") {
            Some(truncated) => !truncated.eq_ignore_ascii_case("false"),
            None => token.is_some(),
        };
        if is_truncated {
            page.next =
                Some(token.ok_or(InvalidXml::Unexpected("a page lacks the token of the next page"))?.to_owned());
        }
        Ok(page)
    }

    /// Returns an object key that does not begin with `prefix`, or a common prefix that does not begin with it or does
    /// not end with a slash. A page with such a key does not answer the request.
    pub fn stray_key(&self, prefix: &str) -> Option<&[u8]> {
        let is_below = |key: &[u8]| key.starts_with(prefix.as_bytes());
        let object = self.objects.iter().map(|object| object.key.as_slice()).find(|key| !is_below(key));
        let is_directory = |key: &[u8]| is_below(key) && key.ends_with(b"/");
        object.or_else(|| self.prefixes.iter().map(Vec::as_slice).find(|key| !is_directory(key)))
    }
}

impl Object {
    fn of(element: &Element, is_encoded: bool) -> Result<Self, InvalidXml> {
        // Whitespace is part of a key, so its text is not trimmed.
        let name = element.local_child("Key").ok_or(InvalidXml::Unexpected("an object without a key"))?;
        let size = text(element, "Size").and_then(|size| size.parse().ok());
        Ok(Self {
            key: key(&name.text, is_encoded),
            size: size.ok_or(InvalidXml::Unexpected("an object without a size"))?,
            modified_s: text(element, "LastModified").and_then(date::parse_rfc3339),
            etag: text(element, "ETag").and_then(etag),
        })
    }
}

/// Parses the entity tag in a listing; some servers omit the quotes.
fn etag(text: &str) -> Option<EntityTag> {
    EntityTag::parse(text).or_else(|| EntityTag::strong(text))
}

/// Decodes a key, which is either encoded as in a form query or literal.
fn key(text: &str, is_encoded: bool) -> Vec<u8> {
    if is_encoded { percent_decode_str(&text.replace('+', " ")).collect() } else { text.as_bytes().to_vec() }
}

/// Returns the text of a child without surrounding whitespace.
fn text<'a>(element: &'a Element, local: &str) -> Option<&'a str> {
    element.local_child(local).map(|child| child.text.trim())
}

/// Returns the body of `CreateBucket` for a bucket in `region`.
pub fn make_bucket_body(region: &str) -> String {
    let region = quick_xml::escape::escape(region);
    format!(
        "<CreateBucketConfiguration xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><LocationConstraint>{region}</LocationConstraint></CreateBucketConfiguration>"
    )
}

/// Parses the `UploadId` of an `InitiateMultipartUploadResult`.
///
/// # Errors
/// As [`Element::parse`]; `Unexpected` if it is missing.
pub fn parse_upload_id(body: &[u8]) -> Result<String, InvalidXml> {
    let root = Element::parse(body, ANSWER)?;
    let id = text(&root, "UploadId").filter(|id| !id.is_empty());
    id.map(str::to_owned).ok_or(InvalidXml::Unexpected("an upload without an id"))
}

/// Parses the `ETag` of a `CopyPartResult` or `CopyObjectResult` and returns it unchanged.
///
/// # Errors
/// As [`Element::parse`]; `Unexpected` if it is missing, as in an error with status 200.
pub fn parse_copied(body: &[u8]) -> Result<String, InvalidXml> {
    let root = Element::parse(body.trim_ascii_start(), ANSWER)?;
    let etag = text(&root, "ETag").filter(|etag| !etag.is_empty());
    etag.map(str::to_owned).ok_or(InvalidXml::Unexpected("a copy without a version"))
}

/// Parses the response to `CompleteMultipartUpload`: the object's entity tag, if present, or the error. An error may
/// come with status 200, because servers send whitespace while they work.
///
/// # Errors
/// As [`Element::parse`]; `Unexpected` if it is neither.
pub fn parse_completed(body: &[u8]) -> Result<Result<Option<String>, S3Error>, InvalidXml> {
    if let Some(refusal) = S3Error::parse(body) {
        return Ok(Err(refusal));
    }
    let root = Element::parse(body.trim_ascii_start(), ANSWER)?;
    if root.name.local != "CompleteMultipartUploadResult" {
        return Err(InvalidXml::Unexpected("expected the result of a multipart upload"));
    }
    Ok(Ok(text(&root, "ETag").filter(|etag| !etag.is_empty()).map(str::to_owned)))
}

/// An uploaded part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Its number, starting at 1.
    pub number: u64,
    /// The `ETag` header of the server's response, unchanged.
    pub etag: String,
    /// Its CRC32C, if the server has verified it.
    pub crc32c: Option<Digest>,
}

/// Returns the body of `CompleteMultipartUpload`: all parts, in the order of their numbers.
pub fn complete_body(parts: &[Part]) -> String {
    let mut body = String::from("<CompleteMultipartUpload xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">");
    for Part { number, etag, crc32c } in parts {
        let etag = quick_xml::escape::escape(etag.as_str());
        let crc32c = crc32c.map(|digest| format!("<ChecksumCRC32C>{}</ChecksumCRC32C>", digest.to_base64()));
        let crc32c = crc32c.unwrap_or_default();
        let written = write!(body, "<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag>{crc32c}</Part>");
        written.expect("writing to a String cannot fail");
    }
    body.push_str("</CompleteMultipartUpload>");
    body
}

/// Header fields with the digest of a whole object, and their algorithms.
pub(crate) const CHECKSUM_FIELDS: [(&str, Algorithm); 4] = [
    ("x-amz-checksum-crc32c", Algorithm::Crc32c),
    ("x-amz-checksum-crc32", Algorithm::Crc32),
    ("x-amz-checksum-sha1", Algorithm::Sha1),
    ("x-amz-checksum-sha256", Algorithm::Sha256),
];

/// Parses the digests of a whole object from the header of a response about that object. `field` returns the text of a
/// header field.
///
/// The value for a multipart object may be a digest of the digests of its parts (`COMPOSITE`), which cannot be compared
/// with the digest of a file.
pub fn digests<'a>(field: impl Fn(&str) -> Option<&'a str>) -> Digests {
    if field("x-amz-checksum-type").is_some_and(|kind| kind.eq_ignore_ascii_case("COMPOSITE")) {
        return Digests::new();
    }
    let told = CHECKSUM_FIELDS.into_iter().filter_map(|(name, algorithm)| {
        // `abc=-3` is a composite digest of three parts.
        Digest::from_base64(algorithm, field(name)?).ok()
    });
    told.collect()
}

/// An error response of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct S3Error {
    /// Error code.
    pub code: String,
    /// Description for people; may be empty.
    pub message: String,
    /// Region of the bucket, if the response contains it.
    pub region: Option<String>,
}

impl S3Error {
    /// Parses an `Error` document; `None` if the body is something else.
    pub fn parse(body: &[u8]) -> Option<Self> {
        let root = Element::parse(body.trim_ascii_start(), ANSWER).ok().filter(|root| root.name.local == "Error")?;
        let code = text(&root, "Code").filter(|code| !code.is_empty())?.to_owned();
        let message = text(&root, "Message").unwrap_or_default().to_owned();
        Some(Self { code, message, region: text(&root, "Region").map(str::to_owned) })
    }

    /// Returns the fault for codes that are more specific than their status.
    pub fn fault(&self) -> Option<Fault> {
        Some(match self.code.as_str() {
            "NoSuchKey" | "NoSuchBucket" => Fault::NotFound,
            "AccessDenied" | "AccountProblem" | "AllAccessDisabled" => Fault::PermissionDenied,
            "InvalidAccessKeyId"
            | "SignatureDoesNotMatch"
            | "ExpiredToken"
            | "InvalidToken"
            | "TokenRefreshRequired"
            | "RequestTimeTooSkewed"
            | "RequestExpired"
            | "InvalidSecurity"
            | "NotSignedUp" => Fault::AuthenticationFailed,
            "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException" => {
                Fault::InvalidArgument
            }
            "BadDigest" | "InvalidDigest" | "XAmzContentSHA256Mismatch" | "XAmzContentChecksumMismatch" => {
                Fault::ChecksumMismatch
            }
            "EntityTooLarge" => Fault::TooLarge,
            "KeyTooLongError" => Fault::NameTooLong,
            "QuotaExceeded" | "XMinioAdminBucketQuotaExceeded" => Fault::QuotaExceeded,
            "InsufficientStorage" | "XMinioStorageFull" => Fault::NoSpace,
            "InvalidObjectState" => Fault::Unavailable,
            "ConditionalRequestConflict" | "OperationAborted" => Fault::Locked,
            "SlowDown" | "ServiceUnavailable" | "Busy" => Fault::Overloaded,
            "NotImplemented" => Fault::Unsupported,
            "NoSuchUpload" => Fault::HandleNotOpen,
            _ => return None,
        })
    }

    /// Returns advice for the user on errors whose remedy is not obvious.
    pub fn advice(&self) -> Option<String> {
        match (self.code.as_str(), &self.region) {
            (
                "AuthorizationHeaderMalformed" | "PermanentRedirect" | "IllegalLocationConstraintException",
                Some(region),
            ) => Some(format!("the bucket is in the region {region}: set AWS_REGION={region}")),
            ("AuthorizationHeaderMalformed" | "PermanentRedirect", None) => {
                Some("the bucket is in another region: set AWS_REGION".into())
            }
            ("RequestTimeTooSkewed", _) => Some("the clock of this machine is wrong".into()),
            ("InvalidObjectState", _) => Some("the object is archived, and must be restored first".into()),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
