//! Properties of entities and their inheritance (RFC 9240 §5.3).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::{
    address::PrefixMap,
    entity::{Domain, Entity},
    names::PropertyName,
};

/// Properties of all entities. An address inherits each property from the longest prefix that defines it.
#[derive(Debug, Clone, Default)]
pub struct Properties {
    of_addresses: BTreeMap<PropertyName, PrefixMap<Value>>,
    of_others: BTreeMap<Entity, BTreeMap<PropertyName, Value>>,
}

impl Properties {
    /// Sets a property, replacing an earlier value. `null` means that there is no value, and overrides shorter
    /// prefixes.
    pub fn insert(&mut self, entity: Entity, name: PropertyName, value: Value) {
        match entity {
            Entity::Address(prefix) => self.of_addresses.entry(name).or_default().insert(prefix, value),
            entity => self.of_others.entry(entity).or_default().insert(name, value),
        };
    }

    /// Returns the value of an entity, own or inherited. `None` is undefined; `null` is a defined value.
    pub fn get(&self, entity: &Entity, name: &str) -> Option<&Value> {
        match entity {
            Entity::Address(prefix) => self.of_addresses.get(name)?.get_lpm(prefix).map(|(_, value)| value),
            entity => self.of_others.get(entity)?.get(name),
        }
    }

    /// Returns whether a non-address entity has properties of its own.
    pub(crate) fn speaks_of(&self, entity: &Entity) -> bool {
        self.of_others.contains_key(entity)
    }

    /// Returns the entity's own value.
    pub fn own(&self, entity: &Entity, name: &str) -> Option<&Value> {
        match entity {
            Entity::Address(prefix) => self.of_addresses.get(name)?.get(prefix),
            entity => self.of_others.get(entity)?.get(name),
        }
    }

    /// Returns the non-address entities with properties.
    pub fn others(&self) -> impl Iterator<Item = &Entity> {
        self.of_others.keys()
    }

    /// Returns the entities strictly within `entity` that define one of `names`. Only prefixes contain entities.
    pub(crate) fn beneath(&self, entity: &Entity, names: &[&str]) -> BTreeSet<Entity> {
        let Entity::Address(prefix) = entity else { return BTreeSet::new() };
        let of_name = names.iter().filter_map(|name| self.of_addresses.get(*name));
        let children = of_name.flat_map(|prefixes| prefixes.children(prefix)).map(|(child, _)| child);
        children.filter(|child| child != prefix).map(Entity::Address).collect()
    }

    /// Returns the domains with the property names of their entities. Scans all properties.
    pub fn domains(&self) -> BTreeMap<Domain, BTreeSet<PropertyName>> {
        let addresses = self.of_addresses.iter().flat_map(|(name, prefixes)| {
            prefixes.keys().map(move |prefix| (Entity::Address(prefix).domain(), name.clone()))
        });
        let others = self
            .of_others
            .iter()
            .flat_map(|(entity, properties)| properties.keys().map(move |name| (entity.domain(), name.clone())));
        let mut domains: BTreeMap<Domain, BTreeSet<PropertyName>> = BTreeMap::new();
        for (domain, name) in addresses.chain(others) {
            domains.entry(domain).or_default().insert(name);
        }
        domains
    }

    /// Returns all entities of a domain.
    pub fn entities(&self, domain: &Domain) -> BTreeSet<Entity> {
        let addresses = self.of_addresses.values().flat_map(PrefixMap::keys).map(Entity::Address);
        let others = self.of_others.keys().cloned();
        addresses.chain(others).filter(|entity| entity.domain() == *domain).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn name(text: &str) -> PropertyName {
        PropertyName::new(text).unwrap()
    }

    fn entity(text: &str) -> Entity {
        Entity::parse(text).unwrap()
    }

    /// The example of RFC 9240 §5.3 and §6.1.3.
    fn example() -> Properties {
        let mut properties = Properties::default();
        for (prefix, value) in [("0/26", "v1"), ("0/28", "v2"), ("0/30", "v3"), ("0", "v4")] {
            properties.insert(entity(&format!("ipv4:192.0.2.{prefix}")), name("P"), json!(value));
        }
        properties
    }

    #[test]
    fn r4_the_longest_prefix_hands_down() {
        let properties = example();
        for (host, expected) in [
            ("0", Some("v4")),
            ("1", Some("v3")),
            ("16", Some("v1")),
            ("32", Some("v1")),
            ("64", None),
            ("0/31", Some("v3")),
            ("0/29", Some("v2")),
            ("0/27", Some("v1")),
            ("0/25", None),
        ] {
            let found = properties.get(&entity(&format!("ipv4:192.0.2.{host}")), "P");
            assert_eq!(found.and_then(Value::as_str), expected, "{host}");
        }
    }

    #[test]
    fn r3_null_is_defined_and_blocks() {
        let mut properties = example();
        properties.insert(entity("ipv4:192.0.2.32/27"), name("P"), Value::Null);
        assert_eq!(properties.get(&entity("ipv4:192.0.2.33"), "P"), Some(&Value::Null));
        assert_eq!(properties.get(&entity("ipv4:192.0.2.33"), "Q"), None);
    }

    #[test]
    fn r5_what_differs_beneath_a_prefix_is_known() {
        let properties = example();
        let beneath = properties.beneath(&entity("ipv4:192.0.2.0/28"), &["P", "Q"]);
        let texts: Vec<_> = beneath.iter().map(Entity::to_string).collect();
        assert_eq!(texts, ["ipv4:192.0.2.0/30", "ipv4:192.0.2.0"]);
    }

    #[test]
    fn other_entities_inherit_nothing() {
        let mut properties = example();
        properties.insert(entity("map.pid:PID1"), name("P"), json!(1));
        assert_eq!(properties.get(&entity("map.pid:PID1"), "P"), Some(&json!(1)));
        let domains: Vec<_> = properties.domains().into_keys().map(|domain| domain.to_string()).collect();
        assert_eq!(domains, ["ipv4", "map.pid"]);
        assert_eq!(properties.entities(&Domain::parse("map.pid").unwrap()).len(), 1);
    }
}
