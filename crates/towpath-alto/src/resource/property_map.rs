//! Properties of entities of all domains (RFC 9240).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, PoisonError},
};

use ipnet::IpNet;
use serde_json::{Map, Value, json};

use super::{AltoResponse, endpoints::property_of, vtags};
use crate::{
    address::AddressType,
    delegation::Delegate,
    entity::{Domain, Entity, Property},
    fields::Fields,
    media,
    names::{PropertyName, ResourceId, VersionTag},
    network_state::{NetworkState, Region},
    problem::Problem,
    reserved::PROPERTIES,
};

/// The property map of everything, with its version.
type Whole = Arc<(AltoResponse, VersionTag)>;

/// Property map of a network state with its version, made on first use. All resources of one directory share it. It is
/// kept with the `meta` that it begins with, which changes when agents become stale; all else follows from the
/// directory's network state.
#[derive(Debug, Clone, Default)]
pub(crate) struct Cache(Arc<Mutex<Option<CachedMap>>>);

#[derive(Debug)]
struct CachedMap {
    meta: Map<String, Value>,
    whole: Whole,
}

/// Any two caches are equal: their contents follow from the network state.
impl PartialEq for Cache {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cache {}

/// Scope of the offered properties.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PropertyScope {
    /// Properties in the network state.
    Reported,
    /// Also properties that a delegate can supply.
    OnDemand,
}

/// Returns the domains with the properties of their entities (RFC 9240 §7.4).
pub(super) fn mappings(network_state: &NetworkState, scope: PropertyScope) -> BTreeMap<String, Vec<String>> {
    offered_properties(network_state, scope)
        .into_iter()
        .map(|(domain, names)| (domain.to_string(), texts(&names)))
        .collect()
}

fn texts(properties: &BTreeSet<Property>) -> Vec<String> {
    properties.iter().map(Property::to_string).collect()
}

/// Returns the domains with properties. Addresses also have PIDs.
fn offered_properties(network_state: &NetworkState, scope: PropertyScope) -> BTreeMap<Domain, BTreeSet<Property>> {
    let own = |name: &PropertyName| Property { resource: None, name: name.clone() };
    let domains = network_state.domains.iter();
    let mut offered: BTreeMap<Domain, BTreeSet<Property>> =
        domains.map(|(domain, names)| (domain.clone(), names.iter().map(own).collect())).collect();
    for region in network_state.regions() {
        let kinds = region.map.pids().flat_map(|(_, prefixes)| prefixes).map(|prefix| AddressType::of_prefix(*prefix));
        for kind in kinds.collect::<BTreeSet<_>>() {
            offered.entry(Domain::Address(kind)).or_default().insert(Property::pid_of(region.map.id()));
        }
    }
    let on_demand = &network_state.on_demand.properties;
    if scope == PropertyScope::OnDemand && !on_demand.is_empty() {
        for kind in AddressType::ALL {
            offered.entry(Domain::Address(kind)).or_default().extend(on_demand.iter().map(own));
        }
    }
    offered
}

/// Returns the property map with the own properties of each entity, and its version. Built once per network state,
/// because path vectors refer to it.
pub(super) fn whole(network_state: &NetworkState, cache: &Cache) -> Whole {
    let meta = network_state.meta();
    let mut cached = cache.0.lock().unwrap_or_else(PoisonError::into_inner);
    match &*cached {
        Some(cached) if cached.meta == meta => Arc::clone(&cached.whole),
        _ => Arc::clone(&cached.insert(CachedMap { meta, whole: Arc::new(build(network_state)) }).whole),
    }
}

fn build(network_state: &NetworkState) -> (AltoResponse, VersionTag) {
    let mut map = Map::new();
    for (domain, properties) in &offered_properties(network_state, PropertyScope::Reported) {
        let properties = index_by_name(properties);
        for entity in entities(network_state, domain) {
            map.insert(entity.to_string(), describe(&entity, &properties, &own_values(network_state)));
        }
    }
    let vtag = VersionTag::of(ResourceId::new(PROPERTIES).expect("a valid name"), &map);
    (document(network_state, Some(&vtag), &map), vtag)
}

/// Returns all entities of a domain that have properties.
fn entities(network_state: &NetworkState, domain: &Domain) -> BTreeSet<Entity> {
    let prefixes = network_state.regions().flat_map(|region| region.map.pids()).flat_map(|(_, prefixes)| prefixes);
    let in_pids = prefixes.map(|prefix| Entity::Address(*prefix)).filter(|entity| entity.domain() == *domain);
    network_state.properties.entities(domain).into_iter().chain(in_pids).collect()
}

/// Properties by their name in the response, which repeats that of the request: `.country`, or `country` (RFC 9240
/// §10.5).
type PropertiesByName = BTreeMap<String, Property>;

/// Indexes properties by their canonical names.
fn index_by_name(properties: &BTreeSet<Property>) -> PropertiesByName {
    properties.iter().map(|property| (property.to_string(), property.clone())).collect()
}

/// Looks up a property of an entity.
type LookUp<'a> = dyn Fn(&Entity, &Property) -> Option<Value> + 'a;

/// Returns a lookup of own properties.
fn own_values(network_state: &NetworkState) -> impl Fn(&Entity, &Property) -> Option<Value> {
    |entity, property| own_value(network_state, entity, property)
}

/// Returns an entity's own value; inherited values are listed with their origin (RFC 9240 §7.6).
fn own_value(network_state: &NetworkState, entity: &Entity, property: &Property) -> Option<Value> {
    match (entity, &property.resource) {
        (Entity::Address(prefix), Some(map)) if property.is_pid() => {
            let map = &network_state.region(map.as_str())?.map;
            Some(map.name(map.owner(*prefix)?).as_str().into())
        }
        (_, None) => network_state.properties.own(entity, property.name.as_str()).cloned(),
        (_, Some(_)) => None,
    }
}

/// Returns the object of an entity's properties.
fn describe(entity: &Entity, properties: &PropertiesByName, look_up: &LookUp<'_>) -> Value {
    let values = properties.iter().filter_map(|(name, property)| Some((name.clone(), look_up(entity, property)?)));
    Value::Object(values.collect())
}

/// Removes the leading dot that may precede a property without a resource (RFC 9240 §5.2.2).
fn strip_leading_dot(text: &str) -> &str {
    text.strip_prefix('.').filter(|name| !name.contains('.')).unwrap_or(text)
}

/// Responds to RFC 9240 §8.
pub(super) fn filtered_property_map(
    network_state: &NetworkState,
    request: &Value,
    delegate: &dyn Delegate,
) -> Result<AltoResponse, Problem> {
    let fields = Fields::of(request)?;
    let offered = offered_properties(network_state, PropertyScope::OnDemand);
    let entity = |text: &str| match Entity::parse(text) {
        Ok(entity) if offered.contains_key(&entity.within(PROPERTIES).domain()) => Ok(entity),
        Ok(_) => Err("this domain is not offered".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let requested = fields.texts("entities", entity)?.ok_or_else(|| fields.missing("entities"))?;
    let property = |text: &str| match Property::parse(strip_leading_dot(text)) {
        Ok(property) if offered.values().any(|names| names.contains(&property)) => Ok((text.to_owned(), property)),
        Ok(_) => Err("this property is not offered".to_owned()),
        Err(error) => Err(error.to_string()),
    };
    let properties = fields.texts("properties", property)?;
    let names: PropertiesByName = match &properties {
        Some(names) if !names.is_empty() => names.iter().cloned().collect(),
        _ => offered.values().flat_map(index_by_name).collect(),
    };
    // Duplicates have no effect (RFC 9240 §8.3).
    let requested = BTreeSet::from_iter(requested);
    let held =
        |entity: &Entity, property: &_| property_of(network_state, &entity.within(PROPERTIES), property, delegate);
    let own = own_values(network_state);
    let (entities, look_up): (BTreeSet<Entity>, &LookUp<'_>) = match requested.is_empty() {
        true => (offered.keys().flat_map(|domain| entities(network_state, domain)).collect(), &own),
        false => (with_beneath(network_state, requested, names.values()), &held),
    };
    let mut map = Map::new();
    for entity in &entities {
        let values = describe(entity, &names, look_up);
        if values.as_object().is_some_and(|values| !values.is_empty()) {
            // A request without properties returns which entities have any (RFC 9240 §8.3).
            map.insert(entity.to_string(), if properties.is_some() { values } else { json!({}) });
        }
    }
    Ok(document(network_state, None, &map))
}

/// Returns `entities` and those within them that may have values of their own (RFC 9240 §8.5).
fn with_beneath<'a>(
    network_state: &NetworkState,
    mut entities: BTreeSet<Entity>,
    properties: impl Iterator<Item = &'a Property> + Clone,
) -> BTreeSet<Entity> {
    let own = properties.clone().filter(|property| property.resource.is_none());
    let names: Vec<&str> = own.map(|property| property.name.as_str()).collect();
    let pids = properties.filter(|property| property.is_pid());
    let maps: Vec<&Region> =
        pids.filter_map(|property| network_state.region(property.resource.as_ref()?.as_str())).collect();
    let prefixes: Vec<IpNet> = entities.iter().filter_map(Entity::prefix).collect();
    let mut last: Option<IpNet> = None;
    for prefix in prefixes {
        // In sort order a prefix precedes those within it, which were found together with it.
        if last.is_some_and(|last| last.contains(&prefix)) {
            continue;
        }
        entities.extend(network_state.properties.beneath(&Entity::Address(prefix), &names));
        entities.extend(maps.iter().flat_map(|region| region.map.beneath(prefix)).map(Entity::Address));
        last = Some(prefix);
    }
    entities
}

fn document(network_state: &NetworkState, vtag: Option<&VersionTag>, map: &Map<String, Value>) -> AltoResponse {
    let mut meta = network_state.meta();
    meta.extend(vtag.map(|vtag| ("vtag".to_owned(), json!(vtag))));
    meta.insert("dependent-vtags".into(), json!(vtags(network_state.regions())));
    AltoResponse::of(media::PROPERTY_MAP, &json!({ "meta": meta, "property-map": map }))
}
