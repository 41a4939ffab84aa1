//! What a server is asked on behalf of another one ([`crate::delegation`]).

use std::net::IpAddr;

use serde_json::{Map, Value as Json, json};

use super::{
    answers::{address_of, property},
    directory::{Directory, Entry, Service},
    document::Document,
};
use crate::{
    address::Endpoint,
    cost::{CostMode, CostType},
    delegation::{Askable, Item, Question},
    facts::Cost,
    names::{CostMetric, PropertyName},
};

/// The most metrics, and properties, that are taken of one server.
const MOST_NAMES: usize = 256;

impl Directory {
    /// What the server can be asked for of addresses: at most 256 metrics, as numbers, and as many properties.
    pub fn askable(&self) -> Askable {
        let kinds = self.of(&[Service::EndpointCosts]).flat_map(|entry| &entry.cost_types);
        let numerical = kinds.filter(|kind| kind.cost_mode == CostMode::Numerical);
        // Those of a resource, as PIDs, are of its own map.
        let properties = self.of(OF_ADDRESSES).flat_map(|entry| &entry.properties);
        Askable {
            metrics: numerical.map(|kind| kind.cost_metric.clone()).take(MOST_NAMES).collect(),
            properties: properties.filter_map(|name| PropertyName::new(name).ok()).take(MOST_NAMES).collect(),
        }
    }

    /// The resource to ask that, with what is to be posted to it; none if the server has none. Properties that no resource has all of are asked of the one that has the first.
    pub fn posting(&self, question: &Question) -> Option<(&str, Json)> {
        let endpoints = |addresses: &[IpAddr]| -> Vec<String> {
            addresses.iter().map(|address| Endpoint(*address).to_string()).collect()
        };
        match question {
            Question::Costs { metric, sources, destinations } => {
                let kind = numerical(metric);
                let entry = self.of(&[Service::EndpointCosts]).find(|entry| entry.cost_types.contains(&kind))?;
                let ends = json!({ "srcs": endpoints(sources), "dsts": endpoints(destinations) });
                Some((&entry.id, json!({ "cost-type": kind, "endpoints": ends })))
            }
            Question::Properties { names, addresses } => {
                let has = |entry: &Entry, name: &PropertyName| entry.properties.contains(name.as_str());
                let first = names.first()?;
                let all = self.of(OF_ADDRESSES).find(|entry| names.iter().all(|name| has(entry, name)));
                let entry = all.or_else(|| self.of(OF_ADDRESSES).find(|entry| has(entry, first)))?;
                let of = if entry.service == Service::PropertyMap { "entities" } else { "endpoints" };
                let names: Vec<&PropertyName> = names.iter().filter(|name| has(entry, name)).collect();
                Some((&entry.id, json!({ of: endpoints(addresses), "properties": names })))
            }
        }
    }
}

/// The resources that tell properties of addresses.
const OF_ADDRESSES: &[Service] = &[Service::PropertyMap, Service::EndpointProperties];

fn numerical(metric: &CostMetric) -> CostType {
    CostType { cost_mode: CostMode::Numerical, cost_metric: metric.clone() }
}

impl Document {
    /// What it says to a question; it may say more than was asked for. What has not the form that it should have is left out.
    pub fn told(&self, question: &Question) -> Vec<(Item, Json)> {
        match question {
            Question::Costs { metric, .. } => {
                let rows = self.costs().into_iter().flatten();
                let row = |(from, row): (&String, &Json)| costs(metric, address_of(from)?, row.as_object()?);
                rows.filter_map(row).flatten().collect()
            }
            Question::Properties { names, addresses } => {
                let Some(told) = self.properties() else { return Vec::new() };
                let of_name = |name: &PropertyName| {
                    let values = property(told, name.as_str());
                    let value = |address: &IpAddr| Some((*address, (*values.get_lpm(&(*address).into())?.1).clone()));
                    let told = addresses.iter().filter_map(value);
                    told.map(|(address, value)| (Item::Property(name.clone(), address), value)).collect::<Vec<_>>()
                };
                names.iter().flat_map(of_name).collect()
            }
        }
    }
}

/// The costs from one address.
fn costs(metric: &CostMetric, from: IpAddr, row: &Map<String, Json>) -> Option<Vec<(Item, Json)>> {
    let cost = |(to, cost): (&String, &Json)| {
        let cost = Cost::new(cost.as_f64()?).filter(|cost| cost.suits(metric))?;
        Some((Item::Cost(metric.clone(), from, address_of(to)?), cost.value().into()))
    };
    Some(row.iter().filter_map(cost).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{delegation::questions, directory, facts::Facts, world::World};

    const FACTS: &str = r#"
        [network-map.default]
        all = ["0.0.0.0/0"]
        [properties."ipv4:192.0.2.0/24"]
        "priv:country" = "CH"
        [properties."ipv4:192.0.2.2"]
        "priv:country" = "FR"
        "priv:rack" = 7
        [[costs]]
        src = "192.0.2.0/24"
        dst = "198.51.100.0/24"
        delay-ow = 5300
    "#;

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn cost(from: &str, to: &str) -> Item {
        Item::Cost("delay-ow".parse().unwrap(), address(from), address(to))
    }

    fn property(name: &str, of: &str) -> Item {
        Item::Property(name.parse().unwrap(), address(of))
    }

    /// What a server here says to these questions.
    fn told(items: impl IntoIterator<Item = Item>) -> Vec<(Item, Json)> {
        let world = World::of([&Facts::parse(FACTS).unwrap()]).unwrap();
        let (resources, _) = directory::Directory::of(&world);
        let listed = resources.answer(&world, |id| format!("./{id}"));
        let directory = Directory::parse("http://h/directory", &listed.body).unwrap();
        assert_eq!(directory.askable().metrics.len(), 1);
        let answer = |question: Question| {
            let (resource, input) = directory.posting(&question).unwrap();
            let answer = resources.find(resource).unwrap().answer(&world, &input, address("192.0.2.9")).unwrap();
            let document = Document::parse(resource, "http://h/", answer.media_type, &answer.body).unwrap();
            document.told(&question)
        };
        questions(items).into_iter().flat_map(answer).collect()
    }

    #[test]
    fn a_server_says_what_it_knows_of_what_is_asked() {
        let known = cost("192.0.2.1", "198.51.100.7");
        assert_eq!(told([known.clone(), cost("203.0.113.1", "198.51.100.7")]), [(known, 5300.0.into())]);
        let (one, two) = (property("priv:country", "192.0.2.1"), property("priv:country", "192.0.2.2"));
        let rack = property("priv:rack", "192.0.2.2");
        let asked = [one.clone(), two.clone(), rack.clone(), property("priv:country", "203.0.113.1")];
        assert_eq!(told(asked), [(one, "CH".into()), (two, "FR".into()), (rack, 7.into())]);
    }

    #[test]
    fn what_a_server_has_not_is_not_asked() {
        let listed = json!({ "resources": {} }).to_string();
        let directory = Directory::parse("http://h/directory", listed.as_bytes()).unwrap();
        assert!(directory.askable().is_empty());
        for question in questions([cost("192.0.2.1", "192.0.2.2"), property("x", "192.0.2.1")]) {
            assert_eq!(directory.posting(&question), None);
        }
    }

    #[test]
    fn what_is_no_cost_is_left_out() {
        let body = r#"{"endpoint-cost-map": {
            "ipv4:192.0.2.1": { "ipv4:192.0.2.2": -1, "ipv4:192.0.2.3": "far", "x": 1, "ipv4:192.0.2.4": 2 },
            "x": {}, "ipv4:192.0.2.5": 7
        }}"#;
        let document = Document::parse("r", "http://h/", "application/alto-endpointcost+json", body.as_bytes());
        let [question] = &questions([cost("192.0.2.1", "192.0.2.4")])[..] else { panic!() };
        assert_eq!(document.unwrap().told(question), [(cost("192.0.2.1", "192.0.2.4"), 2.0.into())]);
    }
}
