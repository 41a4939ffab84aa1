//! Extracts values from responses. Malformed parts are ignored.

use std::{collections::HashMap, net::IpAddr};

use ipnet::IpNet;
use serde_json::{Map, Value as Json};

use super::{
    document::Document,
    error::{ClientError, printable_address},
    query_plan::TransferEndpoints,
    value_source::ElementAggregation,
};
use towpath_alto::{address::PrefixMap, order::Value};

/// A response and its origin.
pub(super) struct ServerResponse {
    address: String,
    document: Document,
}

impl ServerResponse {
    /// Parses a response from `address`.
    ///
    /// # Errors
    /// If a document is not JSON.
    pub(super) fn read(address: &str, media_type: &str, body: &[u8]) -> Result<Self, ClientError> {
        let document = Document::parse("", address, media_type, body)?;
        Ok(Self { address: address.to_owned(), document })
    }

    /// Returns the object under the first of these names that occurs in one of the documents.
    ///
    /// # Errors
    /// If none of the names occurs.
    pub(super) fn member(&self, names: &[&str]) -> Result<&Map<String, Json>, ClientError> {
        self.document.member(names).ok_or_else(|| ClientError::Malformed {
            address: printable_address(&self.address),
            what: "response",
            problem: format!("it has no `{}`", names.join("` or `")),
        })
    }

    /// Returns whether the response depends on another version of `map`.
    pub(super) fn is_of_another(&self, id: &str, map: &LocatedMap) -> bool {
        let meta = self.document.content().get("meta");
        let depends = meta.and_then(|meta| meta.get("dependent-vtags")?.as_array()).into_iter().flatten();
        let mut tags = depends.filter(|vtag| vtag.get("resource-id").and_then(Json::as_str) == Some(id));
        let tag = tags.find_map(|vtag| vtag.get("tag")?.as_str());
        tag.zip(map.tag.as_deref()).is_some_and(|(one, other)| one != other)
    }
}

/// A network map for address lookups.
pub(super) struct LocatedMap {
    pids: PrefixMap<String>,
    tag: Option<String>,
}

impl LocatedMap {
    /// Reads the network map in a response (RFC 7285 §11.2.1.6).
    pub(super) fn read(answer: &ServerResponse) -> Result<Self, ClientError> {
        let mut pids = PrefixMap::new();
        for (pid, types) in answer.member(&["network-map"])? {
            let lists = types.as_object().into_iter().flatten().filter_map(|(_, list)| list.as_array());
            for prefix in lists.flatten().filter_map(|text| prefix_of(text.as_str()?)) {
                pids.insert(prefix, pid.clone());
            }
        }
        Ok(Self { pids, tag: answer.document.version_tag().map(str::to_owned) })
    }

    /// Returns the PID that contains an address.
    pub(super) fn locate(&self, address: IpAddr) -> Option<&str> {
        self.pids.get_lpm(&address.into()).map(|(_, pid)| pid.as_str())
    }
}

/// Parses a prefix or a single address, with or without a type prefix.
fn prefix_of(text: &str) -> Option<IpNet> {
    let text = text.strip_prefix("ipv4:").or_else(|| text.strip_prefix("ipv6:")).unwrap_or(text);
    let prefix = text.parse::<IpAddr>().map(IpNet::from).or_else(|_| text.parse());
    prefix.ok().map(|prefix| prefix.trunc())
}

pub(super) fn address_of(text: &str) -> Option<IpAddr> {
    prefix_of(text).filter(|prefix| prefix.prefix_len() == prefix.max_prefix_len()).map(|prefix| prefix.addr())
}

/// Returns the cells of an endpoint cost map between the client and a replica (RFC 7285 §11.5.1.6).
pub(super) fn cells<'a>(
    map: &'a Map<String, Json>,
    ends: &TransferEndpoints,
    reverse: bool,
) -> Vec<(IpAddr, &'a Json)> {
    let cells: Vec<(&String, &Json)> = match reverse {
        true => of_client(map, ends.client).and_then(Json::as_object).into_iter().flatten().collect(),
        false => map.iter().filter_map(|(end, row)| Some((end, of_client(row.as_object()?, ends.client)?))).collect(),
    };
    let replicas = cells.into_iter().filter_map(|(end, cell)| Some((address_of(end)?, cell)));
    replicas.filter(|(address, _)| ends.replicas.contains(address)).collect()
}

/// Returns the member for the client, or the only member if the client's address is unknown.
fn of_client(members: &Map<String, Json>, client: Option<IpAddr>) -> Option<&Json> {
    match client {
        Some(client) => members.iter().find(|(end, _)| address_of(end) == Some(client)).map(|(_, member)| member),
        None => members.values().next().filter(|_| members.len() == 1),
    }
}

/// Returns the properties of path elements, keyed by element name (RFC 9275 §6.1).
pub(super) fn elements<'a>(properties: &'a Map<String, Json>) -> HashMap<&'a str, &'a Json> {
    let name = |entity: &'a str| entity.split_once(".ane:").map_or(entity, |(_, name)| name);
    properties.iter().map(|(entity, values)| (name(entity), values)).collect()
}

impl ElementAggregation {
    /// Computes the metric from the elements on `path`. Elements without the property are ignored; if all lack it,
    /// the value is unknown.
    pub(super) fn value(&self, path: &Json, properties: &HashMap<&str, &Json>) -> Option<Value> {
        let path: Vec<&str> = path.as_array()?.iter().map(Json::as_str).collect::<Option<_>>()?;
        let counted = path.into_iter().filter(|element| element.starts_with(&self.prefix));
        let values: Vec<_> = counted.map(|element| self.of_element(properties.get(element).copied())).collect();
        let is_known = values.is_empty() || values.iter().any(Option::is_some);
        is_known.then(|| self.aggregate.fold(values.into_iter()))?
    }

    fn of_element(&self, properties: Option<&Json>) -> Option<Value> {
        let value = match &self.property {
            Some(property) => Value::from_json(properties?.get(property.as_str())?)?,
            None => Value::Number(1.0),
        };
        match &self.transformer {
            Some(transformer) => transformer.apply(value),
            None => Some(value),
        }
    }
}

/// Returns the values of one property by prefix. The longest prefix applies, even if its value is null (RFC 9240
/// §4.6.1).
pub(super) fn property<'a>(entities: &'a Map<String, Json>, name: &str) -> PrefixMap<&'a Json> {
    let mut values = PrefixMap::new();
    for (entity, properties) in entities {
        if let Some((prefix, value)) = prefix_of(entity).zip(properties.get(name)) {
            values.insert(prefix, value);
        }
    }
    values
}

/// Looks up the cost between two ends in a cost map (RFC 7285 §11.2.3.6).
pub(super) fn cost(map: &Map<String, Json>, (source, destination): (&str, &str)) -> Option<Value> {
    Value::from_json(map.get(source)?.get(destination)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use towpath_alto::order::Aggregate;

    fn ends(client: Option<&str>) -> TransferEndpoints {
        TransferEndpoints {
            client: client.map(|client| client.parse().unwrap()),
            replicas: ["192.0.2.1", "192.0.2.2"].map(|replica| replica.parse::<IpAddr>().unwrap()).into(),
        }
    }

    fn read_cells(map: &Json, client: Option<&str>, reverse: bool) -> Vec<(String, Json)> {
        let cells = cells(map.as_object().unwrap(), &ends(client), reverse);
        cells.into_iter().map(|(address, cell)| (address.to_string(), cell.clone())).collect()
    }

    #[test]
    fn cells_are_found_from_either_end() {
        let map = json!({
            "ipv4:192.0.2.1": { "ipv4:198.51.100.1": 5 },
            "192.0.2.2": { "198.51.100.1": 6 },
            "ipv4:192.0.2.3": { "ipv4:198.51.100.1": 7 },
            "ipv4:192.0.2.256": 8,
        });
        let expected = [("192.0.2.1".to_owned(), json!(5)), ("192.0.2.2".to_owned(), json!(6))];
        for client in [Some("198.51.100.1"), None] {
            let mut cells = read_cells(&map, client, false);
            cells.sort_by(|one, other| one.0.cmp(&other.0));
            assert_eq!(cells, expected);
        }
        assert!(read_cells(&map, Some("198.51.100.2"), false).is_empty());
        let map = json!({ "ipv4:198.51.100.1": { "ipv4:192.0.2.1": 5, "ipv4:192.0.2.2": 6, "x": 7 } });
        for client in [Some("198.51.100.1"), None] {
            assert_eq!(read_cells(&map, client, true), expected);
        }
    }

    /// The response from the slides, with the keys of RFC 9275.
    #[test]
    fn v5_properties_of_elements_make_the_length_of_an_as_path() {
        let properties = json!({
            ".ane:autolink_1": { "next_hop": "192.65.184.145" },
            ".ane:autopath_1": { "as_path": "20965 2091 789" },
            "cern-pv.ane:autopath_2": { "as_path": "20965 24167 7539 1659" },
        });
        let by_element = elements(properties.as_object().unwrap());
        let lengths = ElementAggregation {
            property: Some("as_path".parse().unwrap()),
            prefix: String::new(),
            transformer: Some("tolist | len".parse().unwrap()),
            aggregate: Aggregate::Sum,
        };
        let value = |elements: &ElementAggregation, path: &Json| elements.value(path, &by_element);
        assert_eq!(value(&lengths, &json!(["autolink_1", "autopath_1"])), Some(Value::Number(3.0)));
        assert_eq!(value(&lengths, &json!(["autolink_1", "autopath_2"])), Some(Value::Number(4.0)));
        assert_eq!(value(&lengths, &json!([["autopath_1"], 7])), None, "v7: several costs were not asked for");
        let count = ElementAggregation { property: None, prefix: "autopath".into(), transformer: None, ..lengths };
        assert_eq!(value(&count, &json!(["autolink_1", "autopath_1", "autopath_9"])), Some(Value::Number(2.0)));
    }

    #[test]
    fn r4_the_longest_prefix_with_a_property_holds() {
        let entities = json!({
            "ipv4:192.0.2.0/26": { "p": "v1" }, "ipv4:192.0.2.0/28": { "p": "v2" }, "ipv4:192.0.2.0/30": { "p": "v3" },
            "ipv4:192.0.2.0": { "p": "v4" }, "ipv4:192.0.2.32": { "p": null },
        });
        let values = property(entities.as_object().unwrap(), "p");
        for (address, value) in [
            ("192.0.2.0", Some(json!("v4"))),
            ("192.0.2.1", Some(json!("v3"))),
            ("192.0.2.16", Some(json!("v1"))),
            ("192.0.2.32", Some(json!(null))),
            ("192.0.2.64", None),
        ] {
            let found = values.get_lpm(&address.parse::<IpAddr>().unwrap().into()).map(|(_, value)| (*value).clone());
            assert_eq!(found, value, "{address}");
        }
    }

    #[test]
    fn n3_addresses_are_in_the_pid_with_the_longest_prefix() {
        let body = json!({ "network-map": {
            "PID0": { "ipv6": ["::/0"] }, "PID1": { "ipv4": ["0.0.0.0/0", "odd", 7] },
            "PID2": { "ipv4": ["192.0.2.0/24", "198.51.100.0/24"] },
            "PID3": { "ipv4": ["192.0.2.0/25", "192.0.2.128/25"] },
        }});
        let answer = ServerResponse::read("http://h/", "application/alto-networkmap+json", body.to_string().as_bytes());
        let map = LocatedMap::read(&answer.unwrap()).unwrap();
        for (address, pid) in
            [("192.0.2.1", "PID3"), ("198.51.100.1", "PID2"), ("203.0.113.1", "PID1"), ("2001:db8::1", "PID0")]
        {
            assert_eq!(map.locate(address.parse().unwrap()), Some(pid), "{address}");
        }
    }

    #[test]
    fn what_is_no_answer_is_told() {
        let read = |media_type, body: &str| ServerResponse::read("http://h/x", media_type, body.as_bytes());
        assert!(read("application/alto-costmap+json", "<html>").is_err());
        assert!(read("multipart/related;boundary=b", "--b\n\n{\n--b--").is_err());
        let error = read("application/alto-costmap+json", "{}").unwrap().member(&["cost-map"]).unwrap_err();
        assert_eq!(error.to_string(), "http://h/x sent an invalid response: it has no `cost-map`");
    }
}
