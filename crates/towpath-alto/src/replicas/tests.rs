use proptest::prelude::*;
use serde_json::{Map, json};

use super::*;

fn read(text: &str) -> Replicas {
    Replicas::read(text.into()).unwrap()
}

fn written(text: &str, orders: &[Vec<usize>]) -> String {
    String::from_utf8(read(text).write(orders)).unwrap()
}

/// Returns the URLs of each file.
fn urls(replicas: &Replicas) -> Vec<Vec<&str>> {
    let files = replicas.files().iter();
    files.map(|file| file.replicas.iter().map(|replica| replica.url.as_str()).collect()).collect()
}

fn refusal(text: &str) -> String {
    Replicas::read(text.into()).unwrap_err().to_string()
}

/// Output of Rucio 41.
const RUCIO: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<metalink xmlns="urn:ietf:params:xml:ns:metalink">
 <file name="EVNT.1._000001.pool.root">
  <parents>
   <did>mc16:EVNT.1</did>
  </parents>
  <identity>mc16:EVNT.1._000001.pool.root</identity>
  <hash type="adler32">0cc737eb</hash>
  <hash type="md5">9e107d9d372bb6826bd81d3542a419d6</hash>
  <size>14471447</size>
  <glfn name="/atlas/rucio/mc16:EVNT.1._000001.pool.root"></glfn>
  <url location="CERN-PROD" domain="lan" priority="1" client_extract="false">root://eos.cern.ch:1094//eos/f?a=1&amp;b=2</url>
  <url location="BNL-OSG2" domain="wan" priority="2" client_extract="false">davs://dcgftp.usatlas.bnl.gov:443/f</url>
  <url location="TOKYO-LCG2" domain="wan" priority="3" client_extract="true">https://lcg-se01.icepp.jp/f</url>
 </file>
 <file name="lost&found">
  <identity>mc16:lost&found</identity>
  <size>1</size>
  <url location="DESY-HH" domain="wan" priority="1" client_extract="false">srm://dcache.desy.de/f</url>
 </file>
</metalink>
"#;

#[test]
fn a_metalink_of_rucio_is_read() {
    let replicas = read(RUCIO);
    let names: Vec<_> = replicas.files().iter().map(|file| file.name.as_deref()).collect();
    assert_eq!(names, [Some("EVNT.1._000001.pool.root"), Some("lost&found")]);
    let first = Replica {
        url: "root://eos.cern.ch:1094//eos/f?a=1&b=2".into(),
        site: Some("CERN-PROD".into()),
        priority: Some(1),
        domain: Some("lan".into()),
    };
    assert_eq!(replicas.files()[0].replicas[0], first);
    assert_eq!(replicas.files()[0].replicas.len(), 3);
    assert_eq!(replicas.files()[1].replicas[0].site.as_deref(), Some("DESY-HH"));
}

#[test]
fn a_metalink_of_rucio_is_written_with_its_replicas_exchanged() {
    let urls = RUCIO.find("  <url").unwrap()..RUCIO.find(" </file>").unwrap();
    let golden = r#"  <url location="TOKYO-LCG2" domain="wan" priority="1" client_extract="true">https://lcg-se01.icepp.jp/f</url>
  <url location="CERN-PROD" domain="lan" priority="2" client_extract="false">root://eos.cern.ch:1094//eos/f?a=1&amp;b=2</url>
  <url location="BNL-OSG2" domain="wan" priority="3" client_extract="false">davs://dcgftp.usatlas.bnl.gov:443/f</url>
"#;
    let expected = [&RUCIO[..urls.start], golden, &RUCIO[urls.end..]].concat();
    assert_eq!(written(RUCIO, &[vec![2, 0, 1], vec![0]]), expected);
    assert_eq!(written(RUCIO, &[vec![2, 0, 1]]), expected);
    assert_eq!(written(RUCIO, &[vec![0, 1, 2], vec![0]]), RUCIO);
    assert_eq!(written(RUCIO, &[]), RUCIO);
}

#[test]
fn dropped_replicas_leave_nothing_behind() {
    let list = written(RUCIO, &[vec![1], vec![]]);
    assert!(list.contains("pool.root\"></glfn>\n  <url location=\"BNL-OSG2\" domain=\"wan\" priority=\"1\" "));
    assert!(list.contains("bnl.gov:443/f</url>\n </file>\n <file name=\"lost&found\">"));
    assert!(list.ends_with("  <size>1</size>\n </file>\n</metalink>\n"));
    assert_eq!(urls(&read(&list)), [vec!["davs://dcgftp.usatlas.bnl.gov:443/f"], vec![]]);
}

#[test]
fn an_order_is_taken_as_far_as_it_can_be() {
    assert_eq!(written("a:1\nb:2\nc:3\n", &[vec![2, 9, 2, 0], vec![7]]), "c:3\na:1\n");
}

const MIXED: &str = r#"<m:metalink xmlns:m="urn:ietf:params:xml:ns:metalink" xmlns:x="urn:x">
  <!-- <url>http://not/one</url> -->
  <m:file name="a &amp; b">
    <m:url location='fr' >http://one/<!-- here -->&#97;</m:url>
    <!-- stays -->
    <m:metaurl mediatype="torrent" priority="1">http://t/a.torrent</m:metaurl>
    <x:url>http://not/mine</x:url>
    <m:url priority = '7'> <![CDATA[http://two/?a&b]]>
    </m:url>
    <m:url/>
  </m:file>
  <m:file name="none"/>
</m:metalink>"#;

#[test]
fn a_metalink_in_another_hand_is_kept_too() {
    let replicas = read(MIXED);
    assert_eq!(urls(&replicas), [vec!["http://one/a", "http://two/?a&b", ""], vec![]]);
    assert_eq!(replicas.files()[0].name.as_deref(), Some("a & b"));
    let parsed: Vec<_> = replicas.files()[0].replicas.iter().map(|one| (one.site.as_deref(), one.priority)).collect();
    assert_eq!(parsed, [(Some("fr"), None), (None, Some(7)), (None, None)]);
    let expected = r#"<m:metalink xmlns:m="urn:ietf:params:xml:ns:metalink" xmlns:x="urn:x">
  <!-- <url>http://not/one</url> -->
  <m:file name="a &amp; b">
    <m:url priority = '1'> <![CDATA[http://two/?a&b]]>
    </m:url>
    <!-- stays -->
    <m:metaurl mediatype="torrent" priority="1">http://t/a.torrent</m:metaurl>
    <x:url>http://not/mine</x:url>
    <m:url location='fr' priority="2" >http://one/<!-- here -->&#97;</m:url>
  </m:file>
  <m:file name="none"/>
</m:metalink>"#;
    assert_eq!(written(MIXED, &[vec![1, 0]]), expected);
    let with_empty = written(MIXED, &[vec![2, 0, 1]]);
    assert!(with_empty.contains("<m:file name=\"a &amp; b\">\n    <m:url priority=\"1\"/>\n    <!-- stays -->"));
}

const METALINK: &str = "<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">";

#[test]
fn a_metalink_may_be_nearly_empty() {
    for (files, expected) in [
        ("", vec![]),
        ("<file/>", vec![vec![]]),
        ("<file name='f'><url>http://h/f</url></file>", vec![vec!["http://h/f"]]),
        ("<file><pieces><url>http://h/f</url></pieces></file><url>http://h/f</url>", vec![vec![]]),
    ] {
        let document = format!("\u{feff}{METALINK}{files}</metalink>");
        let replicas = read(&document);
        assert_eq!(urls(&replicas), expected, "{files}");
        assert_eq!(replicas.write(&[]), document.as_bytes());
    }
    let document = format!("\u{feff}{METALINK}<file><url>a:b</url></file></metalink>");
    let expected = format!("\u{feff}{METALINK}<file><url priority=\"1\">a:b</url></file></metalink>");
    assert_eq!(written(&document, &[vec![0]]), expected);
}

#[test]
fn what_is_no_metalink_is_refused_with_its_line() {
    let within = |inner: &str| refusal(&format!("{METALINK}\n<file>\n{inner}</file></metalink>"));
    for (refused, line) in [
        (refusal("<metalink version=\"3.0\" xmlns=\"http://www.metalinker.org/\"/>"), 1),
        (refusal("<html/>"), 1),
        (refusal(&format!("{METALINK}</metalink>\n<metalink/>")), 2),
        (refusal(&format!("{METALINK}\n<file>\n")), 3),
        (refusal("<?xml version=\"1.0\"?>\n"), 2),
        (refusal("<!DOCTYPE m [<!ENTITY e SYSTEM \"file:///etc/passwd\">]><m/>"), 1),
        (within("</url>"), 3),
        (within("<url>&e;</url>"), 3),
        (within("<url>&#x110000;</url>"), 3),
        (within("\n<url priority='1' priority='2'>a:b</url>"), 4),
        (within("<url location='&e;'>a:b</url>"), 3),
        (within("<url location=1>a:b</url>"), 3),
        (within(&"<a>".repeat(63)), 3),
    ] {
        assert!(refused.starts_with(&format!("the list of replicas is invalid in line {line}: ")), "{line}: {refused}");
    }
    assert_eq!(
        within("<url>&e;</url>"),
        "the list of replicas is invalid in line 3: '&e;' is neither a character nor one of the five entities of XML"
    );
}

/// Stream of Rucio's REST interface.
const LISTED: &str = r#"{"scope": "mc16", "name": "f1", "bytes": 1, "rses": {"A": ["root://a//f1"]}, "pfns": {"root://a//f1": {"rse_id": "x", "rse": "A", "domain": "wan", "priority": 2, "client_extract": false}, "davs://b/f1": {"rse": "B", "priority": 1, "domain": "lan"}}}
{"scope": "mc16", "name": "f2", "pfns": {}}
"#;

#[test]
fn json_of_rucio_is_read_and_written() {
    let replicas = read(LISTED);
    assert_eq!(urls(&replicas), [vec!["root://a//f1", "davs://b/f1"], vec![]]);
    assert_eq!(replicas.files()[0].name.as_deref(), Some("mc16:f1"));
    let second = &replicas.files()[0].replicas[1];
    assert_eq!((second.site.as_deref(), second.domain.as_deref(), second.priority), (Some("B"), Some("lan"), Some(1)));
    let expected = r#"{"scope": "mc16", "name": "f1", "bytes": 1, "rses": {"A": ["root://a//f1"]}, "pfns": {"davs://b/f1": {"rse": "B", "priority": 1, "domain": "lan"}, "root://a//f1": {"rse_id": "x", "rse": "A", "domain": "wan", "priority": 2, "client_extract": false}}}
{"scope": "mc16", "name": "f2", "pfns": {}}
"#;
    assert_eq!(written(LISTED, &[vec![1, 0], vec![]]), expected);
    let array = format!("[{}]", LISTED.trim_end().replace('\n', ",\n"));
    assert_eq!(urls(&read(&array)), urls(&replicas));
    assert_eq!(written(&array, &[vec![1, 0]]), format!("[{}]", expected.trim_end().replace('\n', ",\n")));
    assert!(written(LISTED, &[vec![]]).contains("\"rses\": {\"A\": [\"root://a//f1\"]}, \"pfns\": {}}\n"));
}

#[test]
fn arrays_are_read_and_written() {
    let strings = "[\"root://a//f\", \"http:\\/\\/b/f\" ,\n \"root://c//f\"]\n";
    assert_eq!(urls(&read(strings)), [["root://a//f", "http://b/f", "root://c//f"]]);
    assert_eq!(written(strings, &[vec![2, 1, 0]]), "[\"root://c//f\", \"http:\\/\\/b/f\" ,\n \"root://a//f\"]\n");
    assert_eq!(written(strings, &[vec![2, 0]]), "[\"root://c//f\", \"root://a//f\"]\n");
    assert_eq!(written(strings, &[vec![]]), "[]\n");
    let objects = r#"[ {"name": "f", "pfn": "root://a//f", "location": "A", "priority": -1.5e3},
  {"url": "http://b/f", "priority": null}, {"name": "http://c/f", "priority":8} ]"#;
    let replicas = read(objects);
    assert_eq!(urls(&replicas), [["root://a//f", "http://b/f", "http://c/f"]]);
    let priorities: Vec<_> = replicas.files()[0].replicas.iter().map(|replica| replica.priority).collect();
    assert_eq!(priorities, [None, None, Some(8)]);
    let expected = r#"[ {"name": "http://c/f", "priority":1},
  {"name": "f", "pfn": "root://a//f", "location": "A", "priority": 2}, {"url": "http://b/f", "priority": null} ]"#;
    assert_eq!(written(objects, &[vec![2, 0, 1]]), expected);
    assert_eq!(urls(&read("[]")), Vec::<Vec<&str>>::new());
    assert_eq!(urls(&read("[\"a:b\"][\"c:d\"]")), [["a:b"], ["c:d"]]);
}

#[test]
fn what_is_no_list_in_json_is_refused_with_its_line() {
    for (text, expected) in [
        ("[\"a:b\",\n \"c:d\"", "line 2: it is not valid JSON: EOF while parsing a list"),
        ("[\"a:b\"]\n\n{\n\"a\" 1}", "line 4: it is not valid JSON: expected `:`"),
        ("[\"a:b\"]\n7", "line 2: it is neither a URL nor an object"),
        ("{\"url\": \"a:b\"}", "line 1: it is neither an array nor an object with `pfns`"),
        ("{\"pfns\": []}", "line 1: `pfns` is not an object"),
        ("[{\"pfns\": {}},\n\"a:b\"]", "line 2: an array has either replicas or objects with `pfns`, not both"),
        ("[{\"rse\": \"a\"}]", "line 1: an object has none of `url`, `pfn` and `name`"),
        ("[[\"a:b\"]]", "line 1: it is neither a URL nor an object"),
        ("[\"\\ud800\"]", "line 1: it is not valid JSON: unexpected end of hex escape"),
    ] {
        assert_eq!(refusal(text), format!("the list of replicas is invalid in {expected}"), "{text}");
    }
}

#[test]
fn lines_are_read_and_written() {
    let text = "# of f\r\nroot://a//f\r\n\n  https://b/f#part  \n# last\nroot://c//f";
    assert_eq!(urls(&read(text)), [["root://a//f", "https://b/f#part", "root://c//f"]]);
    assert_eq!(written(text, &[vec![0, 1, 2]]), text);
    let expected = "# of f\r\nroot://c//f\r\n\n  https://b/f#part  \n# last\n";
    assert_eq!(written(text, &[vec![2, 1]]), expected);
    for nothing in ["", "\n", "# nothing\n"] {
        assert!(read(nothing).files().is_empty());
        assert_eq!(written(nothing, &[vec![0]]), nothing);
    }
    for (text, line) in [("a:b\nab", 2), ("/a:b", 1), ("\na: b", 2), ("a:", 1), ("1a:b", 1), ("url,rse\n", 1)] {
        let expected = format!("the list of replicas is invalid in line {line}: it is not a URL, JSON or XML");
        assert_eq!(refusal(text), expected, "{text}");
    }
}

#[test]
fn what_is_too_large_or_no_text_is_refused() {
    let within = |text: &str| Replicas::read_within(text.into(), 100, 2).map(|replicas| urls(&replicas).len());
    assert_eq!(within("a:1\nb:2"), Ok(1));
    assert_eq!(within("a:1\nb:2\nc:3"), Err(ReplicaError::TooMany));
    assert_eq!(within("[\"a:1\"][\"a:2\"][\"a:3\"]"), Err(ReplicaError::TooMany));
    assert_eq!(within(&format!("{METALINK}<file/></metalink>")), Ok(1));
    assert_eq!(within(&"\n".repeat(101)), Err(ReplicaError::TooLarge(101)));
    let refused = Replicas::read(b"a:b\n\xff".to_vec()).unwrap_err();
    assert_eq!(refused.to_string(), "the list of replicas is invalid in line 2: it is not UTF-8");
}

/// Fragments of lists, separated by `|`.
const METALINK_PIECES: &str = "<file>|<file name='f'>|</file>|<url>|<url priority='3'>|<url| location=\"A\"|>|/>|</url>|\
    <!-- | -->|<![CDATA[|]]>|&amp;|&|&#65;|&x;|<?x ?>| |\n|a:b|\u{feff}|</metalink>";
const JSON_PIECES: &str = "[|]|{|}|,|:|\"|\"a:b\"|\"pfns\": {|\"url\":|\"priority\":1|\"\\u0041:b\"|\\| |\n|7";
const LINE_PIECES: &str = "a:b|root://h//é|\n|\r\n| |#|\u{2028}|\u{feff}";

/// Randomly joined fragments, rarely a valid list.
fn pieces() -> impl Strategy<Value = String> {
    let some = |pieces: &'static str| {
        let piece = prop::sample::select(pieces.split('|').collect::<Vec<_>>());
        prop::collection::vec(piece, 0..24).prop_map(|pieces| pieces.concat())
    };
    prop_oneof![
        some(METALINK_PIECES).prop_map(|inner| format!("{METALINK}<file>{inner}</file></metalink>")),
        some(METALINK_PIECES).prop_map(|inner| format!("<{inner}")),
        some(JSON_PIECES).prop_map(|inner| format!("[{inner}")),
        some(LINE_PIECES),
    ]
}

/// A well-formed list in each format, with some replicas in each of some files.
fn lists() -> impl Strategy<Value = String> {
    let url = "[a-z]{1,5}://[a-z0-9/?&<\"\\\\é]{1,8}";
    let files = prop::collection::vec(prop::collection::vec(url, 0..5), 1..4);
    (files, 0..4).prop_map(|(files, form)| match form {
        0 => {
            let element = |url: &String| format!("\n  <url location=\"S\">{}</url>", quick_xml::escape::escape(url));
            let file = |urls: &Vec<String>| -> String {
                let elements: String = urls.iter().map(element).collect();
                format!("\n<file>{elements}\n</file>")
            };
            let files: String = files.iter().map(file).collect();
            format!("{METALINK}{files}</metalink>")
        }
        1 => serde_json::to_string_pretty(&files[0]).unwrap(),
        2 => {
            let line = |urls: &Vec<String>| {
                let member = |url: &String| (url.clone(), json!({ "rse": "S", "priority": 9 }));
                let pfns: Map<_, _> = urls.iter().map(member).collect();
                format!("{}\n", json!({ "scope": "s", "name": "n", "pfns": pfns }))
            };
            files.iter().map(line).collect()
        }
        _ => files[0].join("\n"),
    })
}

/// Returns each file's replicas in their current order.
fn orders_of(replicas: &Replicas) -> Vec<Vec<usize>> {
    replicas.files().iter().map(|file| (0..file.replicas.len()).collect()).collect()
}

/// Returns the files that have replicas. An array, or a document of lines, without replicas contains no file.
fn with_replicas(mut files: Vec<Vec<&str>>) -> Vec<Vec<&str>> {
    files.retain(|urls| !urls.is_empty());
    files
}

/// Writes a list unchanged, with the replicas of each file reversed, and with only the first of each.
fn is_reordered(text: &str) -> Result<(), TestCaseError> {
    let Ok(replicas) = Replicas::read(text.into()) else { return Ok(()) };
    prop_assert_eq!(replicas.write(&[]), text.as_bytes());
    let all = orders_of(&replicas);
    let (mut reversed, mut firsts) = (all.clone(), all.clone());
    reversed.iter_mut().for_each(|order| order.reverse());
    firsts.iter_mut().for_each(|order| order.truncate(1));
    for orders in [all, reversed, firsts] {
        let again = Replicas::read(replicas.write(&orders)).unwrap();
        let mut expected = urls(&replicas);
        for (urls, order) in expected.iter_mut().zip(&orders) {
            *urls = order.iter().map(|index| urls[*index]).collect();
        }
        prop_assert_eq!(with_replicas(urls(&again)), with_replicas(expected));
        prop_assert_eq!(again.write(&orders_of(&again)), replicas.write(&orders));
    }
    Ok(())
}

proptest! {
    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(replicas) = Replicas::read(bytes.clone()) {
            prop_assert_eq!(replicas.write(&[]), bytes);
        }
    }

    #[test]
    fn any_pieces_are_read_or_refused(text in pieces()) {
        is_reordered(&text)?;
    }

    #[test]
    fn lists_are_reordered(text in lists()) {
        prop_assert!(Replicas::read(text.clone().into()).is_ok(), "{text}");
        is_reordered(&text)?;
    }
}
