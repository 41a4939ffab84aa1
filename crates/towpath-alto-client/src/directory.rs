//! The resources listed in a server's directory (RFC 7285 §9.2), parsed leniently: a malformed entry does not hide
//! the others.
//!
//! A directory can link to others (RFC 7285 §9.2.4). [`Directory::linked`] returns their addresses, and
//! [`Directory::add`] merges their resources.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::{
    error::{ClientError, printable, printable_address},
    follow::{FollowTarget, StreamFollower},
    query_plan::Request,
    uri,
    view::ViewFollower,
};
use towpath_alto::{
    cost::{CostMode, CostType},
    geo, media,
    names::{CostMetric, ResourceId},
    order::Statement,
    update_services::{EVENT_STREAM, TIPS},
};
use towpath_proto::http::media_type::MediaType;

/// Maximum number of valid names listed in the error for an unknown name.
const MAX_OFFERS: usize = 30;

/// Maximum length of a property name with a resource prefix (RFC 7285 §10.2, §10.8.1, RFC 9240 §5.2.1).
const MAX_PROPERTY_BYTES: usize = 64 + 1 + 32;

/// The media types of ALTO request bodies.
const INPUTS: [&str; 5] = [
    media::NETWORK_MAP_FILTER,
    media::COST_MAP_FILTER,
    media::ENDPOINT_PROPERTIES_PARAMS,
    media::ENDPOINT_COST_PARAMS,
    media::PROPERTY_MAP_PARAMS,
];

/// The resources of a server and of the directories it links to. In memory they take up to 30 times their encoded
/// size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    address: String,
    default_map: Option<String>,
    entries: BTreeMap<String, Entry>,
}

/// One resource: an `IRDResourceEntry` (RFC 7285 §9.2.2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The id of the resource in the directory.
    pub id: String,
    /// The absolute URI.
    pub uri: String,
    /// The media type of responses.
    pub media_type: String,
    /// The accepted media types of request bodies, verbatim; empty if the resource uses GET.
    pub accepts: String,
    /// The advertised capabilities; `null` if there are none.
    pub capabilities: Json,
    /// The resources that it depends on.
    pub uses: Vec<String>,
    /// Its cost types that the directory defines.
    pub cost_types: Vec<CostType>,
    /// Properties of addresses or of elements.
    pub(super) properties: BTreeSet<String>,
    pub(super) service: Service,
}

/// The service type of a resource, as far as a client needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    /// A filtered cost map, by POST.
    FilteredCostMap,
    /// A cost map, by GET.
    CostMap,
    /// A network map, by GET.
    NetworkMap,
    /// Costs between endpoints.
    EndpointCosts,
    /// Paths between endpoints.
    PathVector,
    /// Properties of entities, by POST.
    PropertyMap,
    /// Properties of endpoints.
    EndpointProperties,
    /// Not usable for statements.
    Other,
}

impl Service {
    fn of(media_type: &MediaType, accepts: &str) -> Self {
        let takes = |media_type: &str| takes(accepts, media_type);
        let is_path_vector =
            media_type.is("multipart/related") && media_type.parameter("type") == Some(media::ENDPOINT_COST);
        match () {
            () if media_type.is(media::NETWORK_MAP) && accepts.is_empty() => Self::NetworkMap,
            () if media_type.is(media::COST_MAP) && accepts.is_empty() => Self::CostMap,
            () if media_type.is(media::COST_MAP) && takes(media::COST_MAP_FILTER) => Self::FilteredCostMap,
            () if is_path_vector && takes(media::ENDPOINT_COST_PARAMS) => Self::PathVector,
            () if media_type.is(media::ENDPOINT_COST) && takes(media::ENDPOINT_COST_PARAMS) => Self::EndpointCosts,
            () if media_type.is(media::PROPERTY_MAP) && takes(media::PROPERTY_MAP_PARAMS) => Self::PropertyMap,
            () if media_type.is(media::ENDPOINT_PROPERTIES) && takes(media::ENDPOINT_PROPERTIES_PARAMS) => {
                Self::EndpointProperties
            }
            () => Self::Other,
        }
    }

    /// Returns the name used in messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FilteredCostMap | Self::CostMap => "cost map",
            Self::NetworkMap => "network map",
            Self::EndpointCosts => "endpoint cost service",
            Self::PathVector => "path vector between endpoints",
            Self::PropertyMap | Self::EndpointProperties => "property map",
            Self::Other => "resource",
        }
    }
}

impl Entry {
    /// Returns the cost type for a metric; numerical is preferred over ordinal.
    pub(super) fn cost_type(&self, metric: &str) -> Option<&CostType> {
        let of_mode = |mode| {
            let mut types = self.cost_types.iter();
            types.find(|kind| kind.cost_mode == mode && kind.cost_metric.as_str() == metric)
        };
        of_mode(CostMode::Numerical).or_else(|| of_mode(CostMode::Ordinal))
    }

    /// Returns the `Accept` header for requests: the resource's media type and that of errors.
    pub(super) fn accept(&self) -> String {
        format!("{}, {}", self.media_type, media::ERROR)
    }

    fn is_of(&self, media_type: &str) -> bool {
        MediaType::parse(&self.media_type).is(media_type)
    }

    /// Returns whether the resource depends on all of these. An empty `uses` is taken to allow all.
    fn uses_all(&self, ids: &BTreeSet<&str>) -> bool {
        self.uses.is_empty() || ids.is_subset(&self.uses.iter().map(String::as_str).collect())
    }
}

impl Directory {
    /// Parses the directory retrieved from `address`, which is the base for relative URIs. Malformed entries are
    /// ignored.
    ///
    /// # Errors
    /// If the body is not JSON or not a directory.
    pub fn parse(address: &str, body: &[u8]) -> Result<Self, ClientError> {
        let malformed =
            |problem| ClientError::Malformed { address: printable_address(address), what: "directory", problem };
        let document: Json = serde_json::from_slice(body).map_err(|error| malformed(error.to_string()))?;
        let resources = document.get("resources").and_then(Json::as_object);
        let resources = resources.ok_or_else(|| malformed("it has no `resources`".into()))?;
        let meta = document.get("meta");
        let cost_types = cost_types(meta.and_then(|meta| meta.get("cost-types")));
        let default_map = meta.and_then(|meta| meta.get("default-alto-network-map")?.as_str()).map(str::to_owned);
        let entries = resources.iter().filter_map(|(id, entry)| read_entry(id, entry, address, &cost_types));
        let entries = entries.map(|entry| (entry.id.clone(), entry)).collect();
        Ok(Self { address: address.to_owned(), default_map, entries })
    }

    /// Returns the resources, sorted by id.
    pub fn resources(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Returns the resource with the given id.
    ///
    /// # Errors
    /// [`ClientError::NoSuch`].
    pub fn find(&self, id: &str) -> Result<&Entry, ClientError> {
        let missing = || ClientError::NoSuch { id: printable(id), directory: self.printable_address() };
        self.entries.get(id).ok_or_else(missing)
    }

    /// Returns the addresses of the linked directories (RFC 7285 §9.2.4), sorted by id.
    pub fn linked(&self) -> impl Iterator<Item = &str> {
        let linked = self.resources().filter(|entry| entry.is_of(media::DIRECTORY) && entry.accepts.is_empty());
        linked.map(|entry| entry.uri.as_str())
    }

    /// Merges the resources of a linked directory. Returns the ids that already belong to other resources: ids are
    /// the only key, so the existing resources are kept.
    pub fn add(&mut self, linked: Self) -> Vec<String> {
        self.default_map = self.default_map.take().or(linked.default_map);
        let mut taken = Vec::new();
        for (id, entry) in linked.entries {
            match self.entries.get(&id) {
                Some(known) if *known == entry => {}
                Some(_) => taken.push(id),
                None => drop(self.entries.insert(id, entry)),
            }
        }
        taken
    }

    /// Returns the request for a resource: a GET, or a POST of `input`.
    ///
    /// # Errors
    /// [`ClientError::NoSuch`]; [`ClientError::Input`] if `input` does not match the method of the resource.
    pub fn request(&self, resource: &str, input: Option<&Json>) -> Result<Request, ClientError> {
        let entry = self.find(resource)?;
        let wrong = |takes| ClientError::Input { id: entry.id.clone(), takes };
        let document = match input {
            None if entry.accepts.is_empty() => None,
            None => return Err(wrong("is requested by POST and requires an input")),
            Some(_) if entry.accepts.is_empty() => return Err(wrong("is requested by GET and takes no input")),
            Some(input) => {
                let known = INPUTS.into_iter().find(|known| takes(&entry.accepts, known));
                let media_type = known.ok_or_else(|| wrong("takes no input of a supported type"))?;
                Some((media_type, input.to_string().into_bytes()))
            }
        };
        Ok(Request { uri: entry.uri.clone(), accept: entry.accept(), document })
    }

    /// Returns whether one update stream can follow all of these.
    pub(crate) fn has_stream(&self, targets: &BTreeMap<String, FollowTarget>) -> bool {
        self.follower(EVENT_STREAM, targets.values()).is_some()
    }

    /// Returns whether a TIPS view can follow each of these.
    pub(crate) fn has_views(&self, targets: &BTreeMap<String, FollowTarget>) -> bool {
        targets.values().all(|target| self.follower(TIPS, [target]).is_some())
    }

    /// Returns the statement, extended to order replicas without any known key by distance, if exactly one resource
    /// here provides it.
    pub fn complete(&self, statement: &Statement) -> Statement {
        let candidates = self.of(&[Service::EndpointCosts]).filter(|entry| entry.cost_type(geo::DISTANCE).is_some());
        match candidates.count() {
            1 => statement.clone().with_backup(geo::DISTANCE),
            _ => statement.clone(),
        }
    }

    /// Follows responses through one update stream, under names chosen by the caller.
    ///
    /// # Errors
    /// [`ClientError::NoSuch`] and [`ClientError::Input`]; [`ClientError::NoService`] if no stream covers all of
    /// them.
    pub fn stream(&self, targets: BTreeMap<String, FollowTarget>) -> Result<StreamFollower, ClientError> {
        targets.values().try_for_each(|target| self.request(&target.resource, target.input.as_ref()).map(drop))?;
        let service = self.follower(EVENT_STREAM, targets.values());
        let service = service.ok_or_else(|| self.no_service("update stream"))?;
        Ok(StreamFollower::new(service, targets))
    }

    /// Follows a response through a TIPS view, under a name chosen by the caller.
    ///
    /// # Errors
    /// [`ClientError::NoSuch`] and [`ClientError::Input`]; [`ClientError::NoService`] if no TIPS service covers it.
    pub fn view(&self, name: &str, target: FollowTarget) -> Result<ViewFollower, ClientError> {
        self.request(&target.resource, target.input.as_ref())?;
        let service = self.follower(TIPS, [&target]).ok_or_else(|| self.no_service("TIPS views"))?;
        let resource = self.find(&target.resource)?;
        Ok(ViewFollower::new(name, target, resource, service))
    }

    /// Returns the service with this media type that can follow all of these.
    fn follower<'a>(&self, media_type: &str, targets: impl IntoIterator<Item = &'a FollowTarget>) -> Option<&Entry> {
        let ids: BTreeSet<&str> = targets.into_iter().map(|target| target.resource.as_str()).collect();
        let following = self.resources().filter(|entry| entry.is_of(media_type) && entry.uses_all(&ids));
        // Prefer a service that lists its resources over one that may or may not follow them.
        following.min_by_key(|entry| entry.uses.is_empty())
    }

    fn no_service(&self, kind: &'static str) -> ClientError {
        ClientError::NoService { kind, directory: self.printable_address() }
    }

    /// Returns the address of the directory in printable form.
    pub(super) fn printable_address(&self) -> String {
        printable_address(&self.address)
    }

    /// Returns the default network map.
    pub fn default_map(&self) -> Option<&str> {
        self.default_map.as_deref()
    }

    /// Returns the resource with the given id.
    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// Returns the resources of one of these service types, sorted by id.
    pub(super) fn of<'a>(&'a self, services: &'a [Service]) -> impl Iterator<Item = &'a Entry> {
        self.entries.values().filter(move |entry| services.contains(&entry.service))
    }

    /// Returns the names available to statements, formatted for error messages.
    pub(super) fn offers(&self) -> String {
        let mut names: BTreeSet<&str> = BTreeSet::new();
        for entry in self.of(&[Service::EndpointCosts, Service::FilteredCostMap, Service::CostMap]) {
            names.extend(entry.cost_types.iter().map(|kind| kind.cost_metric.as_str()));
        }
        for entry in self.of(&[Service::PropertyMap, Service::EndpointProperties]) {
            names.extend(entry.properties.iter().map(String::as_str));
        }
        match names.len() {
            0 => "none".to_owned(),
            1..=MAX_OFFERS => names.into_iter().collect::<Vec<_>>().join(", "),
            _ => format!("{}, ..", names.into_iter().take(MAX_OFFERS).collect::<Vec<_>>().join(", ")),
        }
    }
}

/// Returns the cost types defined by a directory, keyed by name (RFC 7285 §9.2.2).
fn cost_types(value: Option<&Json>) -> BTreeMap<&str, CostType> {
    let value = value.and_then(Json::as_object).into_iter().flatten();
    value.filter_map(|(name, kind)| Some((name.as_str(), cost_type(kind)?))).collect()
}

fn cost_type(value: &Json) -> Option<CostType> {
    let text = |field: &str| value.get(field)?.as_str();
    let modes = [CostMode::Numerical, CostMode::Ordinal, CostMode::Array];
    let cost_mode = modes.into_iter().find(|mode| text("cost-mode") == Some(mode.name()))?;
    Some(CostType { cost_mode, cost_metric: CostMetric::new(text("cost-metric")?).ok()? })
}

fn read_entry(id: &str, value: &Json, address: &str, cost_types: &BTreeMap<&str, CostType>) -> Option<Entry> {
    ResourceId::new(id).ok()?;
    let text = |field: &str| value.get(field).and_then(Json::as_str).unwrap_or_default();
    let uri = uri::resolve(address, text("uri")).filter(|uri| uri::is_http(uri))?;
    let (media_type, accepts) = (text("media-type"), text("accepts"));
    // The media type is sent back in `Accept`.
    if media_type.is_empty() || !media_type.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return None;
    }
    let capabilities = value.get("capabilities").and_then(Json::as_object);
    let names = texts(capabilities.and_then(|can| can.get("cost-type-names")));
    Some(Entry {
        id: id.to_owned(),
        uri,
        uses: texts(value.get("uses")).map(str::to_owned).collect(),
        cost_types: names.filter_map(|name| cost_types.get(name).cloned()).collect(),
        properties: capabilities.map(properties).unwrap_or_default(),
        service: Service::of(&MediaType::parse(media_type), accepts),
        media_type: media_type.to_owned(),
        accepts: accepts.to_owned(),
        capabilities: value.get("capabilities").cloned().unwrap_or_default(),
    })
}

/// Returns whether a list of accepted media types contains `media_type`.
fn takes(accepts: &str, media_type: &str) -> bool {
    accepts.split(',').any(|accepted| MediaType::parse(accepted).is(media_type))
}

/// Returns the properties of addresses (RFC 7285 §11.4.1, RFC 9240 §7.4) or of elements (RFC 9275 §7.2.4).
fn properties(capabilities: &Map<String, Json>) -> BTreeSet<String> {
    let mappings = capabilities.get("mappings");
    let of_addresses = ["ipv4", "ipv6"].into_iter().map(|domain| mappings.and_then(|mappings| mappings.get(domain)));
    let lists = ["prop-types", "ane-property-names"].map(|field| capabilities.get(field)).into_iter();
    let names = lists.chain(of_addresses).flat_map(texts);
    names.filter(|name| could_be_property(name)).map(str::to_owned).collect()
}

/// Returns whether `text` could be a property name. More lenient than RFC 7285 §10.8.1, but printable.
fn could_be_property(text: &str) -> bool {
    text.len() <= MAX_PROPERTY_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Returns the strings in a list.
fn texts(list: Option<&Json>) -> impl Iterator<Item = &str> {
    list.and_then(Json::as_array).into_iter().flatten().filter_map(Json::as_str)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parse(document: &Json) -> Result<Directory, ClientError> {
        Directory::parse("https://h/alto/directory?x=1", document.to_string().as_bytes())
    }

    #[test]
    fn i1_relative_addresses_and_names_of_cost_types_are_resolved() {
        let directory = parse(&json!({
            "meta": {
                "default-alto-network-map": "net",
                "cost-types": { "ms": { "cost-mode": "numerical", "cost-metric": "delay-ow" }, "odd": 1 },
            },
            "resources": {
                "costs": {
                    "uri": "../ecs", "media-type": media::ENDPOINT_COST, "accepts": media::ENDPOINT_COST_PARAMS,
                    "capabilities": { "cost-type-names": ["ms", "odd", "missing", 7] },
                },
                "a b": { "uri": "x", "media-type": media::NETWORK_MAP },
                "odd": "entry",
                "odder": { "uri": "x" },
                "unknown": { "uri": "x", "media-type": "text/plain" },
            },
        }));
        let directory = directory.unwrap();
        assert_eq!(directory.default_map(), Some("net"));
        let ids: Vec<&str> = directory.entries.keys().map(String::as_str).collect();
        assert_eq!(ids, ["costs", "unknown"]);
        let entry = directory.entry("costs").unwrap();
        assert_eq!(entry.uri, "https://h/ecs");
        assert_eq!(entry.cost_type("delay-ow").unwrap().to_string(), "delay-ow-numerical");
        assert_eq!(directory.offers(), "delay-ow");
    }

    #[test]
    fn what_could_be_neither_sent_nor_printed_is_left_out() {
        let map = |uri: &str, media_type: &str| json!({ "uri": uri, "media-type": media_type });
        let names_of = |names: &[&str]| {
            let mappings = json!({ "mappings": { "ipv4": names } });
            json!({
                "uri": "p", "media-type": media::PROPERTY_MAP, "accepts": media::PROPERTY_MAP_PARAMS,
                "capabilities": mappings,
            })
        };
        let directory = parse(&json!({ "resources": {
            "other": map("ftp://h/x", media::NETWORK_MAP),
            "blank": map("a b", media::NETWORK_MAP),
            "broken": map("x", "application/alto-networkmap+json; x=\r\ny"),
            "map": map("x", "application/alto-networkmap+json; charset=utf-8"),
            "told": names_of(&["map.pid", "next_hop", "a\u{1b}[31m", "a\u{202e}b", &"x".repeat(98)]),
        }}));
        let directory = directory.unwrap();
        let ids: Vec<&str> = directory.entries.keys().map(String::as_str).collect();
        assert_eq!(ids, ["map", "told"]);
        assert_eq!(directory.offers(), "map.pid, next_hop");
    }

    #[test]
    fn v1_path_vectors_between_endpoints_are_told_from_those_between_pids() {
        let service = |part: &str, accepts| {
            let media_type = MediaType::parse(&format!("multipart/related;type={part}"));
            Service::of(&media_type, accepts)
        };
        assert_eq!(service(media::ENDPOINT_COST, media::ENDPOINT_COST_PARAMS), Service::PathVector);
        assert_eq!(service(media::COST_MAP, media::COST_MAP_FILTER), Service::Other);
    }

    fn linking(name: &str, resources: &Json) -> Directory {
        let document = json!({ "resources": resources });
        Directory::parse(&format!("https://{name}/directory"), document.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn i3_a_directory_takes_what_those_that_it_refers_to_have() {
        let map = |uri: &str| json!({ "uri": uri, "media-type": media::NETWORK_MAP });
        let link = json!({ "uri": "https://b/directory", "media-type": media::DIRECTORY });
        let mut directory =
            linking("a", &json!({ "map": map("map"), "b": link, "c": { "media-type": media::DIRECTORY } }));
        assert_eq!(directory.linked().collect::<Vec<_>>(), ["https://b/directory", "https://a/directory"]);
        let other = linking("b", &json!({ "map": map("map"), "b": link, "other": map("other") }));
        assert_eq!(directory.add(other), ["map"], "of one name the first holds, and equal entries are no trouble");
        let uris = ["map", "other"].map(|id| directory.find(id).unwrap().uri.clone());
        assert_eq!(uris, ["https://a/map", "https://b/other"]);
        assert_eq!(directory.default_map(), None);
        let meta = json!({ "meta": { "default-alto-network-map": "other" }, "resources": {} });
        directory.add(parse(&meta).unwrap());
        assert_eq!(directory.default_map(), Some("other"));
    }

    #[test]
    fn i2_a_resource_is_asked_as_it_says() {
        let directory = linking(
            "a",
            &json!({
                "map": { "uri": "map", "media-type": media::NETWORK_MAP },
                "costs": { "uri": "costs", "media-type": media::ENDPOINT_COST, "accepts": media::ENDPOINT_COST_PARAMS },
                "odd": { "uri": "odd", "media-type": "text/plain", "accepts": "text/plain" },
            }),
        );
        let request = directory.request("map", None).unwrap();
        assert_eq!((request.uri.as_str(), request.document), ("https://a/map", None));
        let request = directory.request("costs", Some(&json!({ "x": 1 }))).unwrap();
        assert_eq!(request.document, Some((media::ENDPOINT_COST_PARAMS, br#"{"x":1}"#.to_vec())));
        let refused = |id, input: Option<&Json>| directory.request(id, input).unwrap_err().to_string();
        assert_eq!(refused("costs", None), "the resource costs is requested by POST and requires an input");
        assert_eq!(refused("map", Some(&json!({}))), "the resource map is requested by GET and takes no input");
        assert_eq!(refused("odd", Some(&json!({}))), "the resource odd takes no input of a supported type");
        assert_eq!(refused("maps", None), "https://a/directory has no resource maps");
    }

    #[test]
    fn s1_t1_services_follow_what_they_depend_on() {
        let map = json!({ "uri": "map", "media-type": media::NETWORK_MAP });
        let service = |media_type: &str, uses: &[&str]| json!({ "uri": "s", "media-type": media_type, "uses": uses });
        let targets = BTreeMap::from([("n".to_owned(), FollowTarget { resource: "map".into(), input: None })]);
        for (stream, views, has_stream, has_views) in [
            (&["map", "costs"][..], &["map"][..], true, true),
            (&["costs"], &["costs", "x"], false, false),
            (&[], &[], true, true),
        ] {
            let directory = linking(
                "a",
                &json!({
                    "map": map, "updates": service(EVENT_STREAM, stream), "tips": service(TIPS, views),
                }),
            );
            assert_eq!((directory.has_stream(&targets), directory.has_views(&targets)), (has_stream, has_views));
            assert_eq!(directory.stream(targets.clone()).is_ok(), has_stream);
            assert_eq!(directory.view("n", targets["n"].clone()).is_ok(), has_views);
        }
        let error = linking("a", &json!({ "map": map })).stream(targets).unwrap_err();
        assert!(error.to_string().contains("has no update stream") && error.is_caller_error(), "{error}");
    }

    #[test]
    fn what_is_no_directory_is_told_with_its_address() {
        for body in [&b"<html>"[..], b"{}", b"{\"resources\": []}"] {
            let error = Directory::parse("https://h/d?token=hush", body).unwrap_err();
            assert!(error.to_string().starts_with("https://h/d sent an invalid directory: "), "{error}");
            assert!(!error.is_caller_error());
        }
    }
}
