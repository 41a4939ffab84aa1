//! What a server has, as its directory says it (RFC 7285 §9.2): read leniently, so that one odd entry does not hide the others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value as Json};

use super::{
    error::{ClientError, shown},
    media_type::MediaType,
    uri,
};
use crate::{
    cost::{CostMode, CostType},
    media,
    names::{CostMetric, ResourceId},
};

/// How many names are told to whoever used one that there is not.
const MAX_OFFERS: usize = 30;

/// The longest name of a property: with a resource before it (RFC 7285 §10.2, §10.8.1, RFC 9240 §5.2.1).
const MAX_PROPERTY_BYTES: usize = 64 + 1 + 32;

/// The resources of a server. Directories that it refers to are not among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Directory {
    address: String,
    default_map: Option<String>,
    entries: BTreeMap<String, Entry>,
}

/// One resource.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: String,
    /// Absolute.
    pub(super) uri: String,
    pub(super) uses: Vec<String>,
    pub(super) cost_types: Vec<CostType>,
    /// Those of addresses, or of elements.
    pub(super) properties: BTreeSet<String>,
    pub(super) service: Service,
    media_type: String,
}

/// What a resource can be asked for, as far as a client needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Service {
    /// Some costs of a cost map, by POST.
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
}

impl Service {
    fn of(media_type: &MediaType, accepts: &str) -> Option<Self> {
        let takes = |wanted: &str| accepts.split(',').any(|accepted| MediaType::parse(accepted).is(wanted));
        let is_path_vector =
            media_type.is("multipart/related") && media_type.parameter("type") == Some(media::ENDPOINT_COST);
        match () {
            () if media_type.is(media::NETWORK_MAP) && accepts.is_empty() => Some(Self::NetworkMap),
            () if media_type.is(media::COST_MAP) && accepts.is_empty() => Some(Self::CostMap),
            () if media_type.is(media::COST_MAP) && takes(media::COST_MAP_FILTER) => Some(Self::FilteredCostMap),
            () if is_path_vector && takes(media::ENDPOINT_COST_PARAMS) => Some(Self::PathVector),
            () if media_type.is(media::ENDPOINT_COST) && takes(media::ENDPOINT_COST_PARAMS) => {
                Some(Self::EndpointCosts)
            }
            () if media_type.is(media::PROPERTY_MAP) && takes(media::PROPERTY_MAP_PARAMS) => Some(Self::PropertyMap),
            () if media_type.is(media::ENDPOINT_PROPERTIES) && takes(media::ENDPOINT_PROPERTIES_PARAMS) => {
                Some(Self::EndpointProperties)
            }
            () => None,
        }
    }

    /// What people call it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::FilteredCostMap | Self::CostMap => "cost map",
            Self::NetworkMap => "network map",
            Self::EndpointCosts => "endpoint cost service",
            Self::PathVector => "path vector between endpoints",
            Self::PropertyMap | Self::EndpointProperties => "property map",
        }
    }
}

impl Entry {
    /// The cost type that it has of a metric: numerical, else ordinal.
    pub(super) fn cost_type(&self, metric: &str) -> Option<&CostType> {
        let of_mode = |mode| {
            let mut types = self.cost_types.iter();
            types.find(|kind| kind.cost_mode == mode && kind.cost_metric.as_str() == metric)
        };
        of_mode(CostMode::Numerical).or_else(|| of_mode(CostMode::Ordinal))
    }

    /// What `Accept` says when it is asked for: its media type, and that of errors.
    pub(super) fn accept(&self) -> String {
        format!("{}, {}", self.media_type, media::ERROR)
    }
}

impl Directory {
    /// Reads the directory that came from `address`, which references in it start from. Resources that no client could ask for here are left out,
    /// and so is what has not the form that it should have.
    ///
    /// # Errors
    /// If it is no JSON, or no directory.
    pub fn parse(address: &str, body: &[u8]) -> Result<Self, ClientError> {
        let malformed = |problem| ClientError::Malformed { address: shown(address), what: "directory", problem };
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

    /// Where it came from, as it may be printed.
    pub(super) fn shown(&self) -> String {
        shown(&self.address)
    }

    /// The network map that is meant if none is named.
    pub(super) fn default_map(&self) -> Option<&str> {
        self.default_map.as_deref()
    }

    /// A resource.
    pub(super) fn entry(&self, id: &str) -> Option<&Entry> {
        self.entries.get(id)
    }

    /// The resources that can be asked for one of these, in the order of their names.
    pub(super) fn of<'a>(&'a self, services: &'a [Service]) -> impl Iterator<Item = &'a Entry> {
        self.entries.values().filter(move |entry| services.contains(&entry.service))
    }

    /// The names that a statement could use, as an error tells them.
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

/// The cost types of a directory by their names there (RFC 7285 §9.2.2).
fn cost_types(told: Option<&Json>) -> BTreeMap<&str, CostType> {
    let told = told.and_then(Json::as_object).into_iter().flatten();
    told.filter_map(|(name, kind)| Some((name.as_str(), cost_type(kind)?))).collect()
}

fn cost_type(told: &Json) -> Option<CostType> {
    let text = |field: &str| told.get(field)?.as_str();
    let modes = [CostMode::Numerical, CostMode::Ordinal, CostMode::Array];
    let cost_mode = modes.into_iter().find(|mode| text("cost-mode") == Some(mode.name()))?;
    Some(CostType { cost_mode, cost_metric: CostMetric::new(text("cost-metric")?).ok()? })
}

fn read_entry(id: &str, told: &Json, address: &str, cost_types: &BTreeMap<&str, CostType>) -> Option<Entry> {
    ResourceId::new(id).ok()?;
    let text = |field: &str| told.get(field).and_then(Json::as_str).unwrap_or_default();
    let uri = uri::resolve(address, text("uri")).filter(|uri| uri::is_http(uri))?;
    let media_type = text("media-type");
    let service = Service::of(&MediaType::parse(media_type), text("accepts"))?;
    // It is sent back as `Accept`.
    if !media_type.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic()) {
        return None;
    }
    let capabilities = told.get("capabilities").and_then(Json::as_object);
    let names = texts(capabilities.and_then(|can| can.get("cost-type-names")));
    Some(Entry {
        id: id.to_owned(),
        uri,
        uses: texts(told.get("uses")).map(str::to_owned).collect(),
        cost_types: names.filter_map(|name| cost_types.get(name).cloned()).collect(),
        properties: capabilities.map(properties).unwrap_or_default(),
        service,
        media_type: media_type.to_owned(),
    })
}

/// What can be asked of addresses (RFC 7285 §11.4.1, RFC 9240 §7.4), or of elements (RFC 9275 §7.2.4).
fn properties(capabilities: &Map<String, Json>) -> BTreeSet<String> {
    let mappings = capabilities.get("mappings");
    let of_addresses = ["ipv4", "ipv6"].into_iter().map(|domain| mappings.and_then(|mappings| mappings.get(domain)));
    let lists = ["prop-types", "ane-property-names"].map(|field| capabilities.get(field)).into_iter();
    let names = lists.chain(of_addresses).flat_map(texts);
    names.filter(|name| could_be_property(name)).map(str::to_owned).collect()
}

/// Whether `text` could name a property: with more lenience than RFC 7285 §10.8.1, but so that it can be printed.
fn could_be_property(text: &str) -> bool {
    text.len() <= MAX_PROPERTY_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The texts of a list.
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
                "unknown": { "uri": "x", "media-type": "text/plain" },
            },
        }));
        let directory = directory.unwrap();
        assert_eq!(directory.default_map(), Some("net"));
        let ids: Vec<&str> = directory.entries.keys().map(String::as_str).collect();
        assert_eq!(ids, ["costs"]);
        let entry = directory.entry("costs").unwrap();
        assert_eq!(entry.uri, "https://h/ecs");
        assert_eq!(entry.cost_type("delay-ow").unwrap().to_string(), "delay-ow-numerical");
        assert_eq!(directory.offers(), "delay-ow");
    }

    #[test]
    fn what_could_be_neither_sent_nor_printed_is_left_out() {
        let map = |uri: &str, media_type: &str| json!({ "uri": uri, "media-type": media_type });
        let told = |names: &[&str]| {
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
            "told": told(&["map.pid", "next_hop", "a\u{1b}[31m", "a\u{202e}b", &"x".repeat(98)]),
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
        assert_eq!(service(media::ENDPOINT_COST, media::ENDPOINT_COST_PARAMS), Some(Service::PathVector));
        assert_eq!(service(media::COST_MAP, media::COST_MAP_FILTER), None);
    }

    #[test]
    fn what_is_no_directory_is_told_with_its_address() {
        for body in [&b"<html>"[..], b"{}", b"{\"resources\": []}"] {
            let error = Directory::parse("https://h/d?token=hush", body).unwrap_err();
            assert!(error.to_string().starts_with("https://h/d sent what is no directory: "), "{error}");
            assert!(!error.is_askers());
        }
    }
}
