use proptest::{collection::vec, prelude::*};

use super::*;
use crate::{
    checksum::{Algorithm, Algorithms, Hasher},
    http::condition::EntityTag,
};

fn entries(body: &str) -> Result<Vec<Entry>, InvalidMultistatus> {
    Entries::new(body.as_bytes())?.collect()
}

fn wrapped(content: &str) -> String {
    format!("<d:propfind xmlns:d='DAV:' xmlns:x='urn:x'>{content}</d:propfind>")
}

#[test]
fn propfind_bodies_are_read() {
    let parse = |content: &str| Propfind::parse(wrapped(content).as_bytes());
    assert_eq!(Propfind::parse(b""), Ok(Propfind::AllProp { include: vec![] }));
    assert_eq!(Propfind::parse(b" \r\n"), Ok(Propfind::AllProp { include: vec![] }));
    assert_eq!(parse("<d:allprop/>"), Ok(Propfind::AllProp { include: vec![] }));
    let quota = Name::dav("quota-used-bytes");
    let include = "<d:allprop/><d:include><d:quota-used-bytes/></d:include>";
    assert_eq!(parse(include), Ok(Propfind::AllProp { include: vec![quota] }));
    assert_eq!(parse("<d:propname></d:propname>"), Ok(Propfind::PropName));
    let names = vec![Name::dav("getetag"), Name::new("urn:x", "a"), Name::new("", "b"), Name::new("urn:&y", "c")];
    let content = "<x:unknown/><d:prop>\n<d:getetag/><x:a/><b/><c xmlns='urn:&amp;y'/></d:prop>";
    assert_eq!(parse(content), Ok(Propfind::Prop(names)));
    assert!(matches!(parse(""), Err(InvalidXml::Unexpected(_))));
    assert!(matches!(parse("<d:allprop/><d:propname/>"), Err(InvalidXml::Unexpected(_))));
    assert!(matches!(Propfind::parse(b"<propfind/>"), Err(InvalidXml::Unexpected(_))));
}

/// Requests of davix 0.8.4, rclone 1.60 (vendor owncloud) and cadaver 0.24.
#[test]
fn propfind_bodies_of_real_clients_are_read() {
    let names = |body: &str| match Propfind::parse(body.as_bytes()) {
        Ok(Propfind::Prop(names)) => names.iter().map(|name| format!("{}{}", name.namespace, name.local)).collect(),
        other => vec![format!("{other:?}")],
    };
    let davix = r#"<?xml version="1.0" encoding="utf-8" ?><D:propfind xmlns:D="DAV:" xmlns:L="LCGDM:"><D:prop><D:displayname/><D:getlastmodified/><D:quota-used-bytes/><D:resourcetype><D:collection/></D:resourcetype><L:mode/><D:owner></D:owner></D:prop></D:propfind>"#;
    let expected = [
        "DAV:displayname",
        "DAV:getlastmodified",
        "DAV:quota-used-bytes",
        "DAV:resourcetype",
        "LCGDM:mode",
        "DAV:owner",
    ];
    assert_eq!(names(davix), expected);
    let rclone = r#"<?xml version="1.0"?>
<d:propfind  xmlns:d="DAV:" xmlns:oc="http://owncloud.org/ns" xmlns:nc="http://nextcloud.org/ns">
 <d:prop>
  <d:getcontentlength />
  <oc:checksums />
 </d:prop>
</d:propfind>
"#;
    assert_eq!(names(rclone), ["DAV:getcontentlength", "http://owncloud.org/nschecksums"]);
    let cadaver = r#"<?xml version="1.0" encoding="utf-8"?>
<propfind xmlns="DAV:"><prop>
<executable xmlns="http://apache.org/dav/props/"/>
<checked-in xmlns="DAV:"/>
</prop></propfind>
"#;
    assert_eq!(names(cadaver), ["http://apache.org/dav/props/executable", "DAV:checked-in"]);
}

#[test]
fn xml_that_is_not_well_formed_is_refused() {
    for body in [
        "x",
        "<",
        "<d:propfind xmlns:d='DAV:'>",
        "<d:propfind xmlns:d='DAV:'></d:other>",
        "<d:propfind xmlns:d='DAV:'/><d:propfind xmlns:d='DAV:'/>",
        "<d:propfind xmlns:d='DAV:'/>x",
        "<d:propfind/>",
        // A test of litmus 0.13: a prefix without namespace.
        "<D:propfind xmlns:D='DAV:'><D:prop><bar:foo xmlns:bar=''/></D:prop></D:propfind>",
        "<d:propfind xmlns:d=DAV:><d:allprop/></d:propfind>",
        "<d:propfind xmlns:d='DAV:' xmlns:d='DAV:'><d:allprop/></d:propfind>",
        "<d:propfind xmlns:d='DAV:'><d:prop><d:a\"b/></d:prop></d:propfind>",
        "<d:propfind xmlns:d='DAV:'><d:prop><d:1/></d:prop></d:propfind>",
        "<d:propfind xmlns:d='DAV:'>&#x110000;</d:propfind>",
    ] {
        assert_eq!(Propfind::parse(body.as_bytes()), Err(InvalidXml::Malformed), "{body}");
    }
    assert_eq!(Propfind::parse(&[0xff, 0xfe, b'<', 0]), Err(InvalidXml::Malformed));
}

#[test]
fn entities_are_not_expanded() {
    let bomb = "<!DOCTYPE d [<!ENTITY a 'aaaa'><!ENTITY b '&a;&a;'>]><d:propfind xmlns:d='DAV:'>&b;</d:propfind>";
    assert_eq!(Propfind::parse(bomb.as_bytes()), Err(InvalidXml::Entity));
    assert_eq!(Propfind::parse(wrapped("&file;").as_bytes()), Err(InvalidXml::Entity));
    let text = "<a>&lt;&#65;&#x42;<![CDATA[<&]]>&amp;</a>";
    assert_eq!(Element::parse(text.as_bytes(), Limits::REQUEST).unwrap().text, "<AB<&&");
}

#[test]
fn size_depth_and_number_are_bounded() {
    let limits = Limits { bytes: 1000, depth: 4, elements: 10 };
    let nested = |depth: usize| format!("{}{}", "<a>".repeat(depth), "</a>".repeat(depth));
    assert!(Element::parse(nested(4).as_bytes(), limits).is_ok());
    assert_eq!(Element::parse(nested(5).as_bytes(), limits), Err(InvalidXml::TooLarge));
    let flat = |count: usize| format!("<a>{}</a>", "<b/>".repeat(count));
    assert!(Element::parse(flat(9).as_bytes(), limits).is_ok());
    assert_eq!(Element::parse(flat(10).as_bytes(), limits), Err(InvalidXml::TooLarge));
    assert_eq!(Element::parse(&[b' '; 1001], limits), Err(InvalidXml::TooLarge));
    let declarations: String = (0..1000).map(|n| format!(" xmlns:p{n}='urn:{n}'")).collect();
    assert_eq!(Element::parse(format!("<a{declarations}/>").as_bytes(), Limits::REQUEST), Err(InvalidXml::Malformed));
}

#[test]
fn proppatch_bodies_are_read_in_their_order() {
    let body = "<?xml version='1.0'?><d:propertyupdate xmlns:d='DAV:' xmlns:x='urn:x'>\
        <d:set><d:prop><x:a>1</x:a><x:b><x:c/></x:b></d:prop></d:set><x:other/>\
        <d:remove><d:prop><x:a/></d:prop></d:remove></d:propertyupdate>";
    let Proppatch(changes) = Proppatch::parse(body.as_bytes()).unwrap();
    let names: Vec<_> = changes.iter().map(|change| change.name.local.as_ref()).collect();
    assert_eq!(names, ["a", "b", "a"]);
    assert!(matches!(&changes[0].action, Action::Set(element) if element.text == "1"));
    assert!(matches!(&changes[1].action, Action::Set(element) if element.children.len() == 1));
    assert_eq!(changes[2].action, Action::Remove);
    for empty in ["<d:propertyupdate xmlns:d='DAV:'/>", "<d:propfind xmlns:d='DAV:'/>"] {
        assert!(matches!(Proppatch::parse(empty.as_bytes()), Err(InvalidXml::Unexpected(_))), "{empty}");
    }
}

/// RFC 4918 §9.10.7, with its response.
#[test]
fn a_lock_is_asked_for_and_told() {
    let body = "<?xml version='1.0' encoding='utf-8' ?><D:lockinfo xmlns:D='DAV:'><D:lockscope><D:exclusive/></D:lockscope>\
        <D:locktype><D:write/></D:locktype><D:owner><D:href>http://example.org/~ejw/contact.html</D:href></D:owner></D:lockinfo>";
    let Ok(LockRequest::New { scope, owner }) = LockRequest::parse(body.as_bytes()) else { panic!("{body}") };
    assert_eq!(scope, LockScope::Exclusive);
    let lock = ActiveLock {
        scope,
        depth: Depth::Infinity,
        owner,
        timeout_s: Some(604_800),
        token: "urn:uuid:e71d4fae-5dec-22d6-fea5-00a0c91e6be4".into(),
        root_href: "/workspace/webdav/proposal.doc".into(),
    };
    let expected = "<D:lockdiscovery><D:activelock><D:locktype><D:write/></D:locktype>\
        <D:lockscope><D:exclusive/></D:lockscope><D:depth>infinity</D:depth>\
        <D:owner><D:href>http://example.org/~ejw/contact.html</D:href></D:owner><D:timeout>Second-604800</D:timeout>\
        <D:locktoken><D:href>urn:uuid:e71d4fae-5dec-22d6-fea5-00a0c91e6be4</D:href></D:locktoken>\
        <D:lockroot><D:href>/workspace/webdav/proposal.doc</D:href></D:lockroot></D:activelock></D:lockdiscovery>";
    let answer = lock_body(&lock);
    assert!(answer.contains(expected), "{answer}");
    assert!(Element::parse(answer.as_bytes(), Limits::RESPONSE).is_ok());

    assert_eq!(LockRequest::parse(b" "), Ok(LockRequest::Refresh));
    for wrong in [
        "<D:lockinfo xmlns:D='DAV:'/>",
        "<D:lockinfo xmlns:D='DAV:'><D:lockscope><D:shared/></D:lockscope></D:lockinfo>",
        "<D:lockinfo xmlns:D='DAV:'><D:lockscope/><D:locktype><D:write/></D:locktype></D:lockinfo>",
    ] {
        assert!(matches!(LockRequest::parse(wrong.as_bytes()), Err(InvalidXml::Unexpected(_))), "{wrong}");
    }
}

#[test]
fn depth_timeout_and_token_fields_are_read() {
    for depth in [Depth::Zero, Depth::One, Depth::Infinity] {
        assert_eq!(Depth::parse(depth.as_str()), Some(depth));
    }
    assert_eq!(Depth::parse(" Infinity "), Some(Depth::Infinity));
    assert_eq!(Depth::parse("2"), None);

    assert_eq!(parse_timeout("Infinite, Second-4100000000"), Some(u32::MAX));
    assert_eq!(parse_timeout("Extend-5, second-4100000000"), Some(4_100_000_000));
    assert_eq!(parse_timeout("Second-99999999999"), Some(u32::MAX));
    assert_eq!(parse_timeout("Second-, Second-+5"), None);

    assert_eq!(parse_coded_url(" <urn:uuid:1> "), Some("urn:uuid:1"));
    for wrong in ["", "urn:uuid:1", "<>", "<a><b>", "<a"] {
        assert_eq!(parse_coded_url(wrong), None, "{wrong}");
    }
}

/// RFC 4918 §10.4.6 to §10.4.10.
#[test]
fn if_fields_are_read_and_evaluated() {
    let token = |text: &str| IfCondition::Token(text.into());
    let etag = |text: &str| IfCondition::ETag(text.into());
    let untagged = IfHeader::parse("(<urn:uuid:181d4fae> [\"I am an ETag\"]) ([\"I am another ETag\"])").unwrap();
    assert_eq!(
        untagged.lists,
        [
            IfList {
                resource: None,
                conditions: vec![(false, token("urn:uuid:181d4fae")), (false, etag("\"I am an ETag\""))],
            },
            IfList { resource: None, conditions: vec![(false, etag("\"I am another ETag\""))] },
        ]
    );
    assert!(untagged.evaluate(|_, condition| *condition == etag("\"I am another ETag\"")));
    assert!(!untagged.evaluate(|_, condition| *condition == token("urn:uuid:181d4fae")));

    let not = IfHeader::parse("(Not <urn:a>  <urn:b>)").unwrap();
    assert!(not.evaluate(|_, condition| *condition == token("urn:b")));
    assert!(!not.evaluate(|_, _| true));
    assert_eq!(not.tokens().collect::<Vec<_>>(), ["urn:a", "urn:b"]);
    assert!(IfHeader::parse("(<urn:a>) (Not <DAV:no-lock>)").unwrap().evaluate(|_, _| false));

    let tagged = IfHeader::parse("</resource1> (<urn:a> [W/\"A\"]) ([\"B\"]) <http://h/2>([\"C\"])").unwrap();
    let resources: Vec<_> = tagged.lists.iter().map(|list| list.resource.as_deref().unwrap()).collect();
    assert_eq!(resources, ["/resource1", "/resource1", "http://h/2"]);
    assert!(tagged.evaluate(|resource, _| resource == Some("http://h/2")));

    let too_many = format!("({})", "<a>".repeat(257));
    for wrong in ["", "()", "(", "(<a>", "<a>", "<a><b>(<c>)", "(<a>)<b>(<c>)", "(<a>) x", "(Not)", "(é<a>)", &too_many]
    {
        assert_eq!(IfHeader::parse(wrong), None, "{wrong}");
    }
}

/// All properties of a file.
fn properties() -> Vec<Property> {
    let digests = Hasher::digest(Algorithms::of(&[Algorithm::Adler32, Algorithm::Crc64, Algorithm::Md5]), b"123456789");
    vec![
        Property::ResourceType(ResourceType::File),
        Property::ContentLength(9),
        Property::ContentType("text/plain".into()),
        Property::LastModified(1_614_834_367),
        Property::CreationDate(1_614_834_366),
        Property::ETag(EntityTag::strong("a<b").unwrap()),
        Property::DisplayName("a & b\u{1}".into()),
        Property::QuotaAvailableBytes(1000),
        Property::QuotaUsedBytes(24),
        Property::SupportedLock,
        Property::LockDiscovery(vec![]),
        Property::Checksums(digests),
        Property::Mode(0o100_644),
    ]
}

#[test]
fn an_answer_holds_what_was_asked_for_and_names_what_is_missing() {
    let request = Propfind::Prop(vec![
        Name::dav("getcontentlength"),
        Name::new("http://owncloud.org/ns", "checksums"),
        Name::new("urn:\"x\"", "nothing"),
        Name::new("", "bare"),
        Name::new(LCGDM, "mode"),
    ]);
    let mut answer = Multistatus::new();
    answer.properties("/a%20%26b", &request, &properties());
    let body = answer.finish();
    let expected = "<D:response><D:href>/a%20%26b</D:href><D:propstat><D:prop>\
        <D:getcontentlength>9</D:getcontentlength>\
        <oc:checksums><oc:checksum>ADLER32:091e01de MD5:25f9e794323b453885f5181f1b624d0b</oc:checksum></oc:checksums>\
        <lcgdm:mode>0100644</lcgdm:mode></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
        <D:propstat><D:prop><nothing xmlns=\"urn:&quot;x&quot;\"/><bare xmlns=\"\"/></D:prop>\
        <D:status>HTTP/1.1 404 Not Found</D:status></D:propstat></D:response>\n";
    assert!(body.contains(expected), "{body}");
    assert!(Element::parse(body.as_bytes(), Limits::RESPONSE).is_ok());
}

#[test]
fn all_properties_leave_out_quotas_unless_included() {
    let body = |include| {
        let mut answer = Multistatus::new();
        answer.properties("/f", &Propfind::AllProp { include }, &properties());
        answer.finish()
    };
    assert!(!body(vec![]).contains("quota"));
    assert!(body(vec![Name::dav("quota-used-bytes")]).contains("<D:quota-used-bytes>24<"));
    let mut names = Multistatus::new();
    names.properties("/f", &Propfind::PropName, &properties());
    let names = names.finish();
    assert!(names.contains("<D:quota-available-bytes/>") && names.contains("<D:resourcetype/>"), "{names}");
}

#[test]
fn a_listing_can_be_taken_in_pieces() {
    let mut answer = Multistatus::default();
    let mut body = answer.take();
    answer.status("/gone", 404);
    assert!(answer.pending_bytes() > 0);
    body += &answer.take();
    assert_eq!(answer.pending_bytes(), 0);
    answer.outcomes("/f", &[(Name::dav("getetag"), 403), (Name::new("urn:x", "a"), 424), (Name::dav("x"), 403)]);
    body += &answer.finish();
    let entries = entries(&body).unwrap();
    assert_eq!((entries[0].path.as_slice(), entries[0].status), (&b"/gone"[..], Some(404)));
    assert_eq!(entries[1].path, b"/f");
    let expected = "<D:prop><D:getetag/><D:x/></D:prop><D:status>HTTP/1.1 403 Forbidden</D:status></D:propstat>\
        <D:propstat><D:prop><a xmlns=\"urn:x\"/></D:prop><D:status>HTTP/1.1 424 Failed Dependency</D:status>";
    assert!(body.contains(expected), "{body}");
}

#[test]
fn errors_name_their_precondition() {
    let root = |body: String| Element::parse(body.as_bytes(), Limits::RESPONSE).unwrap();
    let finite = root(error_body("propfind-finite-depth", None));
    assert!(finite.name.is_dav("error") && finite.dav_child("propfind-finite-depth").is_some());
    let locked = root(error_body("lock-token-submitted", Some("/a&b")));
    let href = locked.child(&Name::dav("lock-token-submitted")).and_then(|element| element.dav_child("href"));
    assert_eq!(href.unwrap().text, "/a&b");
}

#[test]
fn our_own_answer_is_read_completely() {
    let Propfind::Prop(names) = Propfind::parse(propfind_body(true).as_bytes()).unwrap() else {
        panic!("a list of names")
    };
    let mut answer = Multistatus::new();
    answer.properties("/d/", &Propfind::Prop(names.clone()), &[Property::ResourceType(ResourceType::Collection)]);
    answer.properties("/d/a%20b", &Propfind::Prop(names), &properties());
    let entries = entries(&answer.finish()).unwrap();
    assert_eq!(entries[0], Entry { path: "/d".into(), is_collection: true, ..Entry::default() });
    let file = &entries[1];
    assert_eq!((file.path.as_slice(), file.name()), (&b"/d/a b"[..], &b"a b"[..]));
    assert_eq!((file.size_bytes, file.mode), (Some(9), Some(0o100_644)));
    assert_eq!((file.modified_s, file.created_s), (Some(1_614_834_367), Some(1_614_834_366)));
    assert_eq!((file.quota_available_bytes, file.quota_used_bytes), (Some(1000), Some(24)));
    assert_eq!(file.etag, EntityTag::strong("a<b"));
    assert_eq!(file.digests, Hasher::digest(Algorithms::of(&[Algorithm::Adler32, Algorithm::Md5]), b"123456789"));
    assert!(!file.is_collection);
}

/// The response of an XRootD 5.5.3 server, without two files of the same form.
const FROM_XROOTD: &str = r#"<?xml version="1.0" encoding="utf-8"?>
<D:multistatus xmlns:D="DAV:" xmlns:ns1="http://apache.org/dav/props/" xmlns:ns0="DAV:">
<D:response xmlns:lp1="DAV:" xmlns:lp2="http://apache.org/dav/props/" xmlns:lp3="LCGDM:">
<D:href>/data/</D:href>
<D:propstat>
<D:prop>
<lp1:getcontentlength>4096</lp1:getcontentlength>
<lp1:getlastmodified>Sat, 21 Nov 2026 20:40:21 GMT</lp1:getlastmodified>
<lp1:resourcetype><D:collection/></lp1:resourcetype>
<lp1:iscollection>1</lp1:iscollection>
<lp1:executable>T</lp1:executable>
<lp1:iscollection>1</lp1:iscollection>
</D:prop>
<D:status>HTTP/1.1 200 OK</D:status>
</D:propstat>
</D:response>
<D:response xmlns:lp1="DAV:" xmlns:lp2="http://apache.org/dav/props/" xmlns:lp3="LCGDM:">
<D:href>/data/nine</D:href>
<D:propstat>
<D:prop>
<lp1:getcontentlength>9</lp1:getcontentlength>
<lp1:getlastmodified>Thu, 04 Mar 2021 05:06:07 GMT</lp1:getlastmodified>
<lp1:iscollection>0</lp1:iscollection>
<lp1:executable>T</lp1:executable>
<lp1:iscollection>1</lp1:iscollection>
</D:prop>
<D:status>HTTP/1.1 200 OK</D:status>
</D:propstat>
</D:response>
</D:multistatus>"#;

#[test]
fn a_node_names_a_link_and_the_directory() {
    let node_of = |text: &str| {
        let body = format!(
            "<d:multistatus xmlns:d='DAV:' xmlns:t='{TOWPATH}'><d:response><d:href>/f</d:href><d:propstat><d:prop>\
            <t:node>{text}</t:node></d:prop><d:status>HTTP/1.1 200 OK</d:status></d:propstat></d:response></d:multistatus>"
        );
        let entry = entries(&body).unwrap().remove(0);
        (entry.is_link, entry.directory_id)
    };
    for (text, expected) in [
        ("link", (true, None)),
        ("1f", (false, Some(0x1f))),
        ("link 1f", (true, Some(0x1f))),
        ("0", (false, None)),
        ("", (false, None)),
    ] {
        assert_eq!(node_of(text), expected, "{text:?}");
    }
}

#[test]
fn one_resource_of_a_listing_is_bounded() {
    let name = "x".repeat(Limits::RESPONSE.bytes + 1);
    let body = format!("<multistatus xmlns='DAV:'><response><href>/{name}</href></response></multistatus>");
    assert_eq!(entries(&body), Err(InvalidMultistatus::Xml(InvalidXml::TooLarge)));
}

#[test]
fn an_answer_of_xrootd_is_read() {
    let directory =
        Entry { path: "/data".into(), is_collection: true, modified_s: Some(1_795_293_621), ..Entry::default() };
    let file =
        Entry { path: "/data/nine".into(), size_bytes: Some(9), modified_s: Some(1_614_834_367), ..Entry::default() };
    assert_eq!(entries(FROM_XROOTD), Ok(vec![directory, file]));
}

/// Parses one resource as written by XRootD, or by EOS, which sends the same `Server` field.
fn from_server(href: &str, is_own: bool) -> Result<Vec<Entry>, InvalidMultistatus> {
    let executable = if is_own { "<lp1:executable>F</lp1:executable>" } else { "" };
    let body = format!(
        "<D:multistatus xmlns:D='DAV:'><D:response xmlns:lp1='DAV:'><D:href>{href}</D:href><D:propstat><D:prop>{executable}</D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
    );
    Entries::new(body.as_bytes())?.from_xrootd(true).collect()
}

#[test]
fn a_path_from_xrootd_is_literal() {
    for (href, path) in [
        ("/d/%41", "/d/%41"),
        ("/d/%2F", "/d/%2F"),
        ("/d/a#b", "/d/a#b"),
        ("/d/c?d", "/d/c?d"),
        ("/d/e ", "/d/e "),
        ("/d/x&amp;y", "/d/x&y"),
        ("//d//", "/d"),
    ] {
        assert_eq!(from_server(href, true).unwrap()[0].path, path.as_bytes(), "{href}");
    }
    for href in ["", "d", "http://h/d", "/d/../e"] {
        assert_eq!(from_server(href, true), Err(InvalidMultistatus::Path), "{href}");
    }
    assert_eq!(from_server("/d/%41 ", false).unwrap()[0].path, b"/d/A", "a plug-in of XRootD encodes");
}

#[test]
fn a_path_that_may_name_another_file_is_refused() {
    for href in ["/d/c?d", "/d/a#b", "http://h/d/?"] {
        assert_eq!(from_server(href, false), Err(InvalidMultistatus::Unencoded(href.into())));
    }
    for href in ["/d/x%2Fy", "/d%2fx"] {
        assert_eq!(from_server(href, false), Err(InvalidMultistatus::SlashInName(href.into())));
    }
}

#[test]
fn answers_in_other_styles_are_read() {
    let body = "<multistatus xmlns='DAV:'><unknown><response/></unknown>\
        <response><href>https://h:2880/p/%C3%A9/</href><propstat><prop><getetag>\"1\"</getetag></prop>\
        <status>HTTP/1.1 404 Not Found</status></propstat></response>\
        <response><href> /p/x </href><propstat><prop><resourcetype/><getcontentlength>x</getcontentlength>\
        <c:Checksums xmlns:c='http://www.dcache.org/2013/webdav'>adler32=091e01de,sha-512=x</c:Checksums></prop>\
        <status>HTTP/1.1 200 OK</status></propstat></response></multistatus>";
    let [directory, file] = entries(body).unwrap().try_into().unwrap();
    assert_eq!(directory, Entry { path: "/p/é".into(), is_collection: true, ..Entry::default() });
    let digests = Hasher::digest(Algorithms::of(&[Algorithm::Adler32]), b"123456789");
    assert_eq!(file, Entry { path: "/p/x".into(), digests, ..Entry::default() });
}

#[test]
fn what_could_not_be_had_is_told() {
    let status = |content: &str| {
        let response = format!("<response><href>/a</href>{content}</response>");
        entries(&format!("<multistatus xmlns='DAV:'>{response}</multistatus>")).unwrap()[0].status
    };
    let propstat = |status| format!("<propstat><prop/><status>HTTP/1.1 {status} x</status></propstat>");
    assert_eq!(status("<status>HTTP/1.1 423 Locked</status>"), Some(423));
    assert_eq!(status("<status>HTTP/1.1 200 OK</status>"), None);
    assert_eq!(status(&propstat(403)), Some(403));
    assert_eq!(status(&[404, 403].map(propstat).concat()), Some(403));
    assert_eq!(status(&[403, 200].map(propstat).concat()), None);
    assert_eq!(status(&propstat(404)), None, "it is there");
}

#[test]
fn answers_that_lead_elsewhere_or_end_early_are_refused() {
    let with_href = |href: &str| {
        entries(&format!("<multistatus xmlns='DAV:'><response><href>{href}</href></response></multistatus>"))
    };
    for href in ["", "x", "/a/../b", "/%2e%2e/b", "/%00"] {
        assert_eq!(with_href(href), Err(InvalidMultistatus::Path), "{href}");
    }
    assert_eq!(with_href("/%ff%0a"), Ok(vec![Entry { path: b"/\xff\n".to_vec(), ..Entry::default() }]));
    assert_eq!(with_href("/"), Ok(vec![Entry { path: "/".into(), ..Entry::default() }]));
    assert_eq!(entries("<multistatus xmlns='DAV:'><response/></multistatus>"), Err(InvalidMultistatus::Path));
    assert_eq!(entries(&FROM_XROOTD[..900]), Err(InvalidMultistatus::Xml(InvalidXml::Malformed)));
    for other in ["", "<html></html>", "<multistatus/>"] {
        assert!(matches!(entries(other), Err(InvalidMultistatus::Xml(InvalidXml::Unexpected(_)))), "{other}");
    }
    let deep = format!("<multistatus xmlns='DAV:'><response>{}", "<a>".repeat(100));
    assert_eq!(entries(&deep), Err(InvalidMultistatus::Xml(InvalidXml::TooLarge)));
}

fn any_element() -> impl Strategy<Value = Element> {
    let name = ("(|DAV:|urn:[a-z&<\"]{1,4})", "[a-zé_][a-z0-9.-]{0,5}")
        .prop_map(|(namespace, local)| Name { namespace: namespace.into(), local: local.into() });
    let leaf = (name.clone(), "[ -~\\né]{0,8}").prop_map(|(name, text)| Element {
        name,
        text,
        children: vec![],
        attributes: vec![],
    });
    leaf.prop_recursive(4, 12, 3, move |inner| {
        (name.clone(), "[a-z&<>]{0,4}", vec(inner, 0..3)).prop_map(|(name, text, children)| Element {
            name,
            text,
            children,
            attributes: vec![],
        })
    })
}

proptest! {
    #[test]
    fn elements_round_trip(element in any_element()) {
        let mut text = format!("<root {}>", xml::DECLARATIONS);
        element.write(&mut text);
        text.push_str("</root>");
        let root = Element::parse(text.as_bytes(), Limits::REQUEST);
        prop_assert_eq!(root.map(|root| root.children), Ok(vec![element.clone()]), "{}", text);
        let document = element.to_document();
        prop_assert_eq!(Element::parse(document.as_bytes(), Limits::REQUEST), Ok(element), "{}", document);
    }

    #[test]
    fn any_text_survives_in_a_property(text in "\\PC{0,30}") {
        let mut answer = Multistatus::new();
        answer.properties("/f", &Propfind::AllProp { include: vec![] }, &[Property::DisplayName(text.clone())]);
        let root = Element::parse(answer.finish().as_bytes(), Limits::RESPONSE).unwrap();
        let prop = root.dav_child("response").and_then(|it| it.dav_child("propstat")).and_then(|it| it.dav_child("prop"));
        prop_assert_eq!(&prop.unwrap().children[0].text, &text);
    }

    #[test]
    fn damage_to_an_answer_never_panics(at in 0..FROM_XROOTD.len(), byte: u8, cut in 0..FROM_XROOTD.len()) {
        let mut body = FROM_XROOTD.as_bytes().to_vec();
        body[at] = byte;
        if let Ok(entries) = Entries::new(&body) {
            prop_assert!(entries.filter_map(Result::ok).all(|entry| entry.path.starts_with(b"/")));
        }
        if let Ok(entries) = Entries::new(&body[..cut]) {
            prop_assert!(entries.count() <= 3);
        }
    }

    #[test]
    fn no_bytes_panic(body in vec(any::<u8>(), 0..60), text in "[<>/a:!\\[\\]&; ='D?-]{0,40}") {
        for body in [&body, text.as_bytes()] {
            let _ = (Propfind::parse(body), Proppatch::parse(body), LockRequest::parse(body));
            let wrapped = [b"<d:propfind xmlns:d='DAV:'>", body, b"</d:propfind>"].concat();
            let _ = Propfind::parse(&wrapped);
        }
        let _ = (parse_timeout(&text), parse_coded_url(&text), Depth::parse(&text));
    }

    #[test]
    fn no_if_field_panics(text in "[()<>\\[\\]\"Not aé]{0,40}") {
        if let Some(field) = IfHeader::parse(&text) {
            prop_assert!(!field.lists.is_empty());
            prop_assert!(field.lists.iter().all(|list| !list.conditions.is_empty()));
        }
    }
}

#[test]
fn names_do_not_multiply() {
    let long = "x".repeat(300);
    for body in [
        format!("<p xmlns:x=\"{long}\" xmlns=\"DAV:\"><x:a/></p>"),
        format!("<{long} xmlns=\"DAV:\"/>"),
        format!("<p>{}</p>", "<a/>".repeat(600)),
    ] {
        assert_eq!(Element::parse(body.as_bytes(), Limits::REQUEST), Err(InvalidXml::TooLarge));
    }
    // Longest names.
    let longest = "x".repeat(256);
    for body in [format!("<p xmlns=\"{longest}\"/>"), format!("<{longest}/>")] {
        assert!(Element::parse(body.as_bytes(), Limits::REQUEST).is_ok());
    }
    let body = b"<propfind xmlns='DAV:'><prop><a/><b/><a/><a xmlns='x'/></prop></propfind>";
    let names = vec![Name::dav("a"), Name::dav("b"), Name::new("x", "a")];
    assert_eq!(Propfind::parse(body), Ok(Propfind::Prop(names)));
}

#[test]
fn a_special_file_is_told_from_files_and_directories() {
    let request = Propfind::parse(propfind_body(false).as_bytes()).unwrap();
    let mut answer = Multistatus::new();
    for (path, kind) in
        [("/file", ResourceType::File), ("/directory/", ResourceType::Collection), ("/pipe", ResourceType::Special)]
    {
        answer.properties(path, &request, &[Property::ResourceType(kind)]);
    }
    let body = answer.finish();
    let entries: Vec<_> = Entries::new(body.as_bytes()).unwrap().map(Result::unwrap).collect();
    let kinds: Vec<_> = entries.iter().map(|entry| (entry.is_collection, entry.is_special)).collect();
    assert_eq!(kinds, [(false, false), (true, false), (false, true)], "{body}");
    assert_eq!(entries[2].size_bytes, None);
}
