use proptest::prelude::*;

use super::*;

/// The example of RFC 5854 (1.1), with additional kinds of sources.
const EXAMPLE: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
  <published>2009-05-15T12:23:23Z</published>
  <origin dynamic="true">http://example.com/example.ext.meta4</origin>
  <file name="run 7/example.ext">
    <size>14471447</size>
    <hash type="sha-256">2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881</hash>
    <hash type="sha-1">80bc95fd391772fa61c91ed68567f0980bb45fd9</hash>
    <hash type="adler32">091e01de</hash>
    <pieces length="262144" type="sha-256"><hash>not looked at</hash></pieces>
    <url location="de" priority="2">ftp://ftp.example.com/example.ext</url>
    <url location="fr" priority="5">http://example.com/example.ext?a&amp;b</url>
    <url priority="1">root://example.org//example.ext</url>
    <url>s3://bucket/example.ext</url>
    <metaurl mediatype="torrent" priority="1">http://example.com/example.ext.torrent</metaurl>
    <url priority="5">http://example.com/example.ext?a&amp;b</url>
    <url>file:///etc/passwd</url>
    <url>/etc/passwd</url>
  </file>
</metalink>"#;

#[test]
fn the_best_source_comes_first_and_unknown_ones_not_at_all() {
    let [file] = <[_; 1]>::try_from(parse(EXAMPLE.as_bytes()).unwrap()).unwrap();
    assert_eq!((file.name.as_str(), file.size), ("run 7/example.ext", Some(14_471_447)));
    let sources: Vec<_> = file.sources.iter().map(Url::expose).collect();
    assert_eq!(
        sources,
        ["root://example.org//example.ext", "http://example.com/example.ext?a&b", "s3://bucket/example.ext"]
    );
    assert_eq!(file.digests.get(Algorithm::Adler32).unwrap().to_string(), "091e01de");
    assert!(file.digests.get(Algorithm::Sha256).is_some());
    assert!(file.digests.get(Algorithm::Sha1).is_some());
    assert_eq!(file.digests.iter().count(), 3);
}

fn of(files: &str) -> Result<Vec<MetalinkFile>, InvalidMetalink> {
    parse(format!("<metalink xmlns=\"{NAMESPACE}\">{files}</metalink>").as_bytes())
}

#[test]
fn what_leads_elsewhere_is_refused() {
    for name in ["", "/etc/passwd", "..", "a/../b", "a//b", "./a", "a/", "a\\b", "a&#10;b"] {
        let file = format!("<file name=\"{name}\"><url>http://h/f</url></file>");
        assert_eq!(of(&file), Err(InvalidMetalink::Name), "{name}");
    }
}

#[test]
fn what_is_wrong_in_a_part_is_wrong() {
    let file = |inner: &str| of(&format!("<file name=\"a\"><url>http://h/f</url>{inner}</file>"));
    assert!(file("").is_ok());
    assert_eq!(file("<size>-1</size>"), Err(InvalidMetalink::Size));
    assert_eq!(file("<hash type=\"md5\">12</hash>"), Err(InvalidMetalink::Digest));
    assert_eq!(of("<file name=\"a\"><url>ftp://h/f</url></file>"), Err(InvalidMetalink::Sources));
    let twice = "<file name=\"a\"><url>http://h/f</url></file>".repeat(2);
    assert_eq!(of(&twice), Err(InvalidMetalink::Twice));
    assert_eq!(of(""), Err(InvalidMetalink::Empty));
    assert_eq!(parse(b"<metalink version=\"3.0\"/>"), Err(InvalidMetalink::Namespace));
    assert!(matches!(parse(b"<!DOCTYPE a><metalink/>"), Err(InvalidMetalink::Xml(_))));
}

proptest! {
    #[test]
    fn names_stay_below(name in "[a./\\\\ ]{0,8}") {
        let file = format!("<file name=\"{name}\"><url>http://h/f</url></file>");
        if let Ok(files) = of(&file) {
            let parts: Vec<_> = files[0].name.split('/').collect();
            prop_assert!(parts.iter().all(|part| !part.is_empty() && *part != "." && *part != ".."));
        }
    }

    #[test]
    fn no_document_panics(document in "\\PC{0,200}") {
        let _ = of(&document);
    }
}
