//! A server response: one JSON document, or one per part (RFC 9275 §6).

use serde_json::{Map, Value as Json};

use towpath_alto::{media, multipart, patch::Change};
use towpath_proto::http::media_type::MediaType;

use super::error::{ClientError, printable_address};

/// Content of a document without parts.
static NOTHING: Json = Json::Null;

/// The media types of documents and their kinds.
const KINDS: [(&str, Kind); 7] = [
    (media::NETWORK_MAP, Kind::NetworkMap),
    (media::COST_MAP, Kind::CostMap),
    (media::ENDPOINT_COST, Kind::EndpointCosts),
    (media::ENDPOINT_PROPERTIES, Kind::EndpointProperties),
    (media::PROPERTY_MAP, Kind::PropertyMap),
    (media::DIRECTORY, Kind::Directory),
    // Path vectors are the only multipart responses in ALTO.
    (MULTIPART, Kind::PathVector),
];

/// The media type of multipart responses.
const MULTIPART: &str = "multipart/related";

/// A response from a resource, as sent by the server; not validated against the RFCs.
#[derive(Debug, Clone, PartialEq)]
pub struct Document {
    /// The id of the resource in the directory.
    pub resource: String,
    /// The media type, with parameters.
    pub media_type: String,
    /// The entity tag of the response, verbatim; `None` if there was none or changes have been applied since.
    pub etag: Option<String>,
    /// The parts, at least one. A response that is not multipart has one part.
    pub parts: Vec<Part>,
}

/// A part of a response.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// The `Content-ID` without brackets; `None` for the only part of a response that is not multipart.
    pub id: Option<String>,
    /// The media type of the part.
    pub media_type: String,
    /// The JSON document.
    pub content: Json,
}

/// The kind of a response, by its media type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Assigns addresses to PIDs (RFC 7285 §11.2.1).
    NetworkMap,
    /// Costs between PIDs (RFC 7285 §11.2.3).
    CostMap,
    /// Costs between endpoints (RFC 7285 §11.5.1).
    EndpointCosts,
    /// Properties of endpoints (RFC 7285 §11.4.1).
    EndpointProperties,
    /// Properties of entities (RFC 9240 §7).
    PropertyMap,
    /// Paths and the properties of their elements, in separate parts (RFC 9275).
    PathVector,
    /// A directory (RFC 7285 §9.2).
    Directory,
    /// Something else.
    Other,
}

impl Document {
    /// Parses a response of `resource` from `address`. The caller limits the body to
    /// [`MAX_ANSWER_BYTES`](super::MAX_ANSWER_BYTES).
    ///
    /// # Errors
    /// [`ClientError::Malformed`] if a document is not JSON, or there is none.
    pub fn parse(resource: &str, address: &str, media_type: &str, body: &[u8]) -> Result<Self, ClientError> {
        let malformed =
            |problem: String| ClientError::Malformed { address: printable_address(address), what: "response", problem };
        let text = std::str::from_utf8(body).map_err(|error| malformed(error.to_string()))?;
        let parsed = MediaType::parse(media_type);
        let parts: Result<Vec<Part>, serde_json::Error> = match parsed.is(MULTIPART) {
            true => multipart::parts(parsed.parameter("boundary"), text).iter().map(Part::read).collect(),
            false => serde_json::from_str(text).map(|content| vec![Part::only(media_type, content)]),
        };
        let parts = parts.map_err(|error| malformed(error.to_string()))?;
        if parts.is_empty() {
            return Err(malformed("it has no parts".into()));
        }
        Ok(Self { resource: resource.to_owned(), media_type: media_type.to_owned(), etag: None, parts })
    }

    /// Returns the kind of the response.
    pub fn kind(&self) -> Kind {
        let media_type = MediaType::parse(&self.media_type);
        KINDS.iter().find(|(known, _)| media_type.is(known)).map_or(Kind::Other, |(_, kind)| *kind)
    }

    /// Returns the version tag in the document (RFC 7285 §10.3), else the entity tag without quotes.
    pub fn tag(&self) -> Option<&str> {
        let entity_tag = || Some(self.etag.as_deref()?.trim_start_matches("W/").trim_matches('"'));
        self.version_tag().or_else(entity_tag)
    }

    /// Returns the version tag in the document; `None` for multipart responses.
    pub(super) fn version_tag(&self) -> Option<&str> {
        let [part] = &self.parts[..] else { return None };
        part.content.get("meta")?.get("vtag")?.get("tag")?.as_str()
    }

    /// Returns whether the second part depends on another version of the first part than the one present (RFC 9275
    /// §6.2), so that the rest of a change is still to come.
    pub(super) fn is_incomplete(&self) -> bool {
        let [first, second, ..] = &self.parts[..] else { return false };
        let part = |tag: &Json| tag.get("resource-id").cloned();
        let Some(vtag) = first.content.get("meta").and_then(|meta| meta.get("vtag")) else { return false };
        let depends = second.content.get("meta").and_then(|meta| meta.get("dependent-vtags")?.as_array());
        let on_first = depends.into_iter().flatten().find(|tag| part(tag) == part(vtag));
        on_first.is_some_and(|tag| tag.get("tag") != vtag.get("tag"))
    }

    /// Returns the document, or that of the first part.
    pub fn content(&self) -> &Json {
        self.parts.first().map_or(&NOTHING, |part| &part.content)
    }

    /// Returns the PIDs of a network map.
    pub fn network_map(&self) -> Option<&Map<String, Json>> {
        self.member(&["network-map"])
    }

    /// Returns the costs or paths, by source and destination.
    pub fn costs(&self) -> Option<&Map<String, Json>> {
        self.member(&["cost-map", "endpoint-cost-map"])
    }

    /// Returns the properties, by entity.
    pub fn properties(&self) -> Option<&Map<String, Json>> {
        self.member(&["property-map", "endpoint-properties"])
    }

    /// Returns the object under the first of these names that occurs in one of the parts.
    pub(super) fn member(&self, names: &[&str]) -> Option<&Map<String, Json>> {
        let mut members = names.iter().flat_map(|name| self.parts.iter().map(move |part| part.content.get(*name)));
        members.find_map(|member| member?.as_object())
    }

    /// Applies a change to the part with the given id, or to the only part. On failure the document is no longer
    /// valid.
    ///
    /// # Errors
    /// If there is no such part, or the change does not apply.
    pub(super) fn change(&mut self, id: Option<&str>, change: &Change) -> Result<(), String> {
        let part = self.part(id)?;
        let content = std::mem::take(&mut part.content);
        part.content = change.apply(content).map_err(|error| error.to_string())?;
        self.etag = None;
        Ok(())
    }

    /// Replaces the content of the part with the given id. On failure the document is unchanged.
    ///
    /// # Errors
    /// If there is no such part.
    pub(super) fn replace(&mut self, id: &str, content: Json) -> Result<(), String> {
        self.part(Some(id))?.content = content;
        self.etag = None;
        Ok(())
    }

    fn part(&mut self, id: Option<&str>) -> Result<&mut Part, String> {
        let has_one = self.parts.len() == 1;
        let mut parts = self.parts.iter_mut();
        let part = parts.find(|part| if id.is_some() { part.id.as_deref() == id } else { has_one });
        part.ok_or_else(|| "it has no such part".to_owned())
    }

    /// Returns the size as compact JSON. Serializes each part to measure it, which takes memory for the longest one.
    pub(super) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.content.to_string().len()).sum()
    }
}

impl Part {
    fn only(media_type: &str, content: Json) -> Self {
        Self { id: None, media_type: media_type.to_owned(), content }
    }

    fn read(part: &multipart::Part) -> Result<Self, serde_json::Error> {
        Ok(Self {
            id: part.id().map(str::to_owned),
            media_type: part.field("content-type").unwrap_or_default().to_owned(),
            content: serde_json::from_str(part.document)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const PATHS: &str = "multipart/related; boundary=b; type=application/alto-endpointcost+json";

    fn parse(media_type: &str, body: &str) -> Document {
        Document::parse("x", "http://h/x", media_type, body.as_bytes()).unwrap()
    }

    fn paths() -> Document {
        let body = "--b\r\nContent-Type: application/alto-endpointcost+json\r\nContent-ID: <costs@h>\r\n\r\n\
                    {\"endpoint-cost-map\": {\"a\": {\"b\": [\"x\"]}}}\r\n\
                    --b\r\nContent-ID: <props@h>\r\n\r\n{\"property-map\": {\".ane:x\": {\"p\": 1}}}\r\n--b--\r\n";
        parse(PATHS, body)
    }

    #[test]
    fn an_answer_is_what_its_media_type_says() {
        for (media_type, kind) in [
            (media::NETWORK_MAP, Kind::NetworkMap),
            ("Application/ALTO-costmap+json; charset=utf-8", Kind::CostMap),
            (media::ENDPOINT_COST, Kind::EndpointCosts),
            (media::PROPERTY_MAP, Kind::PropertyMap),
            ("text/plain", Kind::Other),
        ] {
            assert_eq!(parse(media_type, "{}").kind(), kind, "{media_type}");
        }
        assert_eq!(paths().kind(), Kind::PathVector);
    }

    #[test]
    fn parts_are_found_whatever_they_are_called() {
        let costs = parse(media::COST_MAP, r#"{"cost-map": {"A": {"B": 1}}}"#);
        assert_eq!(json!(costs.costs()), json!({ "A": { "B": 1 } }));
        assert_eq!(costs.network_map(), None);
        let paths = paths();
        assert_eq!(json!(paths.costs()), json!({ "a": { "b": ["x"] } }));
        assert_eq!(json!(paths.properties()), json!({ ".ane:x": { "p": 1 } }));
        assert_eq!(paths.content()["endpoint-cost-map"]["a"]["b"], json!(["x"]));
        let ids: Vec<_> = paths.parts.iter().map(|part| part.id.as_deref()).collect();
        assert_eq!(ids, [Some("costs@h"), Some("props@h")]);
        assert_eq!(paths.parts[0].media_type, media::ENDPOINT_COST);
    }

    #[test]
    fn the_tag_in_a_document_goes_before_the_one_beside_it() {
        let mut map = parse(media::NETWORK_MAP, r#"{"meta": {"vtag": {"resource-id": "x", "tag": "t1"}}}"#);
        map.etag = Some("\"e1\"".into());
        assert_eq!(map.tag(), Some("t1"));
        let mut costs = parse(media::COST_MAP, "{}");
        assert_eq!(costs.tag(), None);
        costs.etag = Some("W/\"e1\"".into());
        assert_eq!(costs.tag(), Some("e1"));
    }

    #[test]
    fn a_change_is_of_one_part() {
        let change = Change::Merge(json!({ "property-map": { ".ane:x": { "p": 2 } } }));
        let mut paths = paths();
        paths.change(Some("props@h"), &change).unwrap();
        assert_eq!(paths.properties().unwrap()[".ane:x"]["p"], 2);
        for id in [None, Some("other@h")] {
            assert_eq!(paths.change(id, &change).unwrap_err(), "it has no such part");
        }
        paths.replace("costs@h", json!({ "endpoint-cost-map": {} })).unwrap();
        assert_eq!(json!(paths.costs()), json!({}));
        assert!(paths.replace("other@h", json!({})).is_err());
        let unfit = Change::Json(json!([{ "op": "remove", "path": "/missing" }]));
        assert!(paths.change(Some("costs@h"), &unfit).unwrap_err().contains("/missing"));
    }

    #[test]
    fn what_is_no_answer_is_told_with_its_address() {
        for (media_type, body) in [(media::COST_MAP, "<html>"), (PATHS, "nothing"), (PATHS, "--b\n\n{\n--b--")] {
            let error = Document::parse("x", "http://h/x?token=hush", media_type, body.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("http://h/x sent an invalid response: "), "{error}");
        }
    }
}
