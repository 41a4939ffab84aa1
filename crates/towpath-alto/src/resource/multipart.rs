//! Responses with two parts that refer to each other: paths, and the properties of their elements (RFC 9275 §7.2.6,
//! §7.3.6).

use std::io::Write as _;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{AltoResponse, Resource};
use crate::{
    media,
    names::{ResourceId, Tag, VersionTag},
};

/// Name of the part with the properties.
const PROPERTIES_PART: &str = "propmap";
/// Domain in `Content-ID`. Parts are found within their response, so that it need not be a host name.
const DOMAIN: &str = "towpath.alto";

/// Format of such responses.
#[derive(Debug)]
pub(super) struct MultipartFormat {
    /// Media type of the response. (A slash requires quotes, RFC 2045 §5.1, even where RFC 9275 omits them.)
    pub(super) media_type: &'static str,
    /// Boundary as in `media_type`. Documents are a single line, which no boundary begins.
    pub(super) boundary: &'static str,
    /// Name of the part with the paths.
    pub(super) part: &'static str,
    /// Media type of that part.
    pub(super) part_type: &'static str,
    /// Member of its document that holds the paths.
    pub(super) member: &'static str,
}

impl MultipartFormat {
    /// Returns the response of `resource` with the serialized `paths` and their `meta`. `properties` builds the second
    /// part, which must depend on the version tag of the first.
    pub(super) fn answer(
        &self,
        resource: &Resource,
        mut meta: Map<String, Value>,
        paths: &[u8],
        properties: impl FnOnce(&VersionTag) -> Value,
    ) -> AltoResponse {
        let part_id = format!("{}.{}", resource.id, self.part);
        let vtag = VersionTag {
            resource_id: ResourceId::new(&part_id).expect("resource IDs leave room for part names"),
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
        AltoResponse { media_type: self.media_type, tag: Tag::of(&body), body }
    }

    fn begin(&self, body: &mut Vec<u8>, media_type: &str, part: &str) {
        let boundary = self.boundary;
        write!(body, "--{boundary}\r\nContent-Type: {media_type}\r\nContent-ID: <{part}@{DOMAIN}>\r\n\r\n")
            .expect("memory takes all");
    }
}

/// Serializes a document or a part of one.
pub(super) fn json_bytes(value: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(value).expect("resource documents are serializable")
}
