//! Answers of two parts that refer to each other: paths, and the properties of the elements on them (RFC 9275 §7.2.6, §7.3.6).

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Answer, Resource};
use crate::{
    media,
    names::{ResourceId, Tag, VersionTag},
};

/// The part with the properties.
const PROPERTIES_PART: &str = "propmap";
/// The domain in `Content-ID`: parts are found in their answer, not by their host.
const DOMAIN: &str = "towpath.alto";

/// What such answers look like.
#[derive(Debug)]
pub(super) struct Form {
    /// The media type of the answer. (A slash must be quoted, RFC 2045 §5.1, also where RFC 9275 does not.)
    pub(super) media_type: &'static str,
    /// What parts the parts, as `media_type` has it. Documents are one line, which no boundary begins.
    pub(super) boundary: &'static str,
    /// The name of the part with the paths.
    pub(super) part: &'static str,
    /// Its media type.
    pub(super) part_type: &'static str,
    /// The member of its document that has the paths.
    pub(super) member: &'static str,
}

impl Form {
    /// The answer of `resource` with these `paths`, written already, beside their `meta`. `properties` makes the second part, which must depend on the version of the first.
    pub(super) fn answer(
        &self,
        resource: &Resource,
        mut meta: Map<String, Value>,
        paths: &[u8],
        properties: impl FnOnce(&VersionTag) -> Value,
    ) -> Answer {
        let part_id = format!("{}.{}", resource.id, self.part);
        let vtag = VersionTag {
            resource_id: ResourceId::new(&part_id).expect("names of resources leave room for parts"),
            tag: Tag::of(paths),
        };
        meta.insert("vtag".into(), json!(vtag));
        let (meta, properties) = (json_bytes(&meta), json_bytes(&properties(&vtag)));
        let mut body = Vec::with_capacity(meta.len() + paths.len() + properties.len() + 1024);
        let first: [&[u8]; 6] = [b"{\"meta\":", &meta, b",\"", self.member.as_bytes(), b"\":", paths];
        self.begin(&mut body, self.part_type, self.part);
        first.iter().for_each(|bytes| body.extend_from_slice(bytes));
        body.extend_from_slice(b"}\r\n");
        self.begin(&mut body, media::PROPERTY_MAP, PROPERTIES_PART);
        body.extend_from_slice(&properties);
        write!(body, "\r\n--{}--\r\n", self.boundary).expect("memory takes all");
        Answer { media_type: self.media_type, tag: Tag::of(&body), body }
    }

    fn begin(&self, body: &mut Vec<u8>, media_type: &str, part: &str) {
        let boundary = self.boundary;
        write!(body, "--{boundary}\r\nContent-Type: {media_type}\r\nContent-ID: <{part}@{DOMAIN}>\r\n\r\n")
            .expect("memory takes all");
    }
}

/// A document, or a part of one, as it is sent.
pub(super) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("what resources are made of can be written")
}
