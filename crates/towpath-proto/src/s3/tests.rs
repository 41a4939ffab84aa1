use proptest::prelude::*;

use super::*;

/// The example in Amazon's documentation, with names that need encoding.
const PAGE_OF_AWS: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>run7/</Prefix>
<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken><KeyCount>2</KeyCount>
<MaxKeys>2</MaxKeys><Delimiter>/</Delimiter><EncodingType>url</EncodingType><IsTruncated>true</IsTruncated>
<Contents><Key>run7/a+b%2B%C3%A9</Key><LastModified>2014-11-21T19:40:05.000Z</LastModified>
<ETag>&quot;70ee1738b6b21e2c8a43f3a5ab0eee71-3&quot;</ETag><Size>1111</Size><StorageClass>STANDARD</StorageClass></Contents>
<CommonPrefixes><Prefix>run7/deep/</Prefix></CommonPrefixes></ListBucketResult>"#;

#[test]
fn a_page_is_read() {
    let page = Page::parse(PAGE_OF_AWS.as_bytes()).unwrap();
    assert_eq!(page.next.as_deref(), Some("1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM="));
    assert_eq!(page.prefixes, [b"run7/deep/".to_vec()]);
    let [object] = page.objects.as_slice() else { panic!("{page:?}") };
    assert_eq!(object.key, "run7/a b+é".as_bytes());
    assert_eq!((object.size, object.modified_s), (1111, Some(1_416_598_805)));
    assert_eq!(object.etag.as_ref().unwrap().opaque(), "70ee1738b6b21e2c8a43f3a5ab0eee71-3");
}

#[test]
fn a_page_may_lack_namespace_quotes_and_encoding() {
    let body = "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a+b </Key><ETag>25f9</ETag><Size>0</Size>\
                </Contents></ListBucketResult>";
    let page = Page::parse(body.as_bytes()).unwrap();
    assert_eq!((page.objects[0].key.as_slice(), page.next), (b"a+b ".as_slice(), None));
    assert_eq!(page.objects[0].etag.as_ref().unwrap().opaque(), "25f9");
}

#[test]
fn keys_that_were_not_asked_for_are_noticed() {
    let object = |key: &str| Object { key: key.into(), size: 1, modified_s: None, etag: None };
    let page = |objects: &[&str], prefixes: &[&str]| Page {
        objects: objects.iter().map(|key| object(key)).collect(),
        prefixes: prefixes.iter().map(|key| key.as_bytes().to_vec()).collect(),
        next: None,
    };
    assert_eq!(page(&["d/", "d/a", "d/b/"], &["d/c/", "d//"]).stray_key("d/"), None);
    assert_eq!(page(&["a"], &["b/"]).stray_key(""), None);
    for (objects, prefixes) in [(&["other"][..], &[][..]), (&["d"], &[]), (&[], &["e/"]), (&[], &["d/c"])] {
        assert!(page(objects, prefixes).stray_key("d/").is_some(), "{objects:?} {prefixes:?}");
    }
}

#[test]
fn what_is_no_page_is_refused() {
    for body in [
        "<Error><Code>AccessDenied</Code></Error>",
        "<ListBucketResult><Contents><Key>a</Key></Contents></ListBucketResult>",
        "<ListBucketResult><Contents><Size>1</Size></Contents></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        "<ListBucketResult><IsTruncated>True</IsTruncated></ListBucketResult>",
        "<ListBucketResult><IsTruncated>true</IsTruncated><NextContinuationToken/></ListBucketResult>",
        "<!DOCTYPE x [<!ENTITY a \"b\">]><ListBucketResult/>",
        "",
    ] {
        assert!(Page::parse(body.as_bytes()).is_err(), "{body}");
    }
}

#[test]
fn an_upload_in_parts_is_begun_and_completed() {
    let begun = "<InitiateMultipartUploadResult><UploadId>a/b=</UploadId></InitiateMultipartUploadResult>";
    assert_eq!(parse_upload_id(begun.as_bytes()).unwrap(), "a/b=");
    assert!(parse_upload_id(b"<InitiateMultipartUploadResult/>").is_err());
    let crc32c = Digest::from_base64(Algorithm::Crc32c, "4waSgw==").ok();
    let parts =
        [Part { number: 1, etag: "\"x\"".into(), crc32c }, Part { number: 2, etag: "<&>".into(), crc32c: None }];
    let body = complete_body(&parts);
    let root = Element::parse(body.as_bytes(), ANSWER).unwrap();
    assert_eq!(root.children.len(), 2);
    assert_eq!(text(&root.children[0], "ETag"), Some("\"x\""));
    assert_eq!(text(&root.children[0], "ChecksumCRC32C"), Some("4waSgw=="));
    assert_eq!(text(&root.children[1], "ETag"), Some("<&>"));
    let completed =
        b"  \n<?xml version=\"1.0\"?><CompleteMultipartUploadResult><ETag>x</ETag></CompleteMultipartUploadResult>";
    assert_eq!(parse_completed(completed).unwrap().unwrap().as_deref(), Some("x"));
    let refused = parse_completed(b" <Error><Code>InternalError</Code></Error>").unwrap();
    assert_eq!(refused.unwrap_err().code, "InternalError");
    assert!(parse_completed(b"<html/>").is_err());
    assert_eq!(parse_copied(b"<CopyPartResult><ETag>\"x\"</ETag></CopyPartResult>").unwrap(), "\"x\"");
    assert!(parse_copied(b"<Error><Code>InternalError</Code></Error>").is_err());
}

#[test]
fn refusals_say_what_happened_and_what_to_do() {
    let body =
        b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>wrong</Message><Region>eu-west-1</Region></Error>";
    let refusal = S3Error::parse(body).unwrap();
    assert_eq!(refusal.fault(), Some(Fault::InvalidArgument));
    assert!(refusal.advice().unwrap().contains("AWS_REGION=eu-west-1"));
    let of = |code: &str| S3Error { code: code.into(), message: String::new(), region: None };
    assert_eq!(of("InvalidAccessKeyId").fault(), Some(Fault::AuthenticationFailed));
    assert_eq!(of("NoSuchBucket").fault(), Some(Fault::NotFound));
    assert_eq!(of("BadDigest").fault(), Some(Fault::ChecksumMismatch));
    assert_eq!(of("InternalError").fault(), None);
    assert_eq!(S3Error::parse(b"<html>no</html>"), None);
    for (code, part) in [
        ("PermanentRedirect", Some("AWS_REGION")),
        ("RequestTimeTooSkewed", Some("clock")),
        ("InvalidObjectState", Some("archived")),
        ("NoSuchKey", None),
    ] {
        let advice = of(code).advice();
        assert_eq!(part.is_some(), advice.is_some(), "{code}: {advice:?}");
        assert!(advice.unwrap_or_default().contains(part.unwrap_or_default()), "{code}");
    }
}

#[test]
fn digests_of_digests_are_left_out() {
    let digests_of = |fields: &[(&'static str, &'static str)]| {
        let fields = fields.to_vec();
        digests(|name| fields.iter().find(|(known, _)| *known == name).map(|(_, value)| *value))
    };
    let right = Digest::from_base64(Algorithm::Crc32c, "4waSgw==").unwrap();
    assert_eq!(digests_of(&[("x-amz-checksum-crc32c", "4waSgw==")]), right.into());
    let full = ("x-amz-checksum-type", "FULL_OBJECT");
    assert_eq!(digests_of(&[("x-amz-checksum-crc32c", "4waSgw=="), full]), right.into());
    assert!(digests_of(&[("x-amz-checksum-crc32c", "4waSgw==-2")]).is_empty());
    let composite = ("x-amz-checksum-type", "COMPOSITE");
    assert!(digests_of(&[("x-amz-checksum-crc32c", "4waSgw=="), composite]).is_empty());
}

proptest! {
    #[test]
    fn no_body_panics(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = (Page::parse(&body), parse_upload_id(&body), S3Error::parse(&body), parse_completed(&body), parse_copied(&body));
    }
}
