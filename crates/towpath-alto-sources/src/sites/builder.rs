//! Builder for the facts of a list of sites.

use std::collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry};

use ipnet::IpNet;
use serde_json::{Value, json};

use super::{
    MAX_PLACES, SiteOptions, SiteWarning, distance, pids,
    read::{NetRoute, Site},
};
use towpath_alto::{
    address::AddressType,
    agent_state::{AgentState, Prefix},
    entity::Entity,
    geo::{Position, continents},
    names::{CostMetric, PidName, PropertyName},
};

/// Properties of one entity.
type EntityProperties = BTreeMap<PropertyName, Value>;

/// Facts under construction.
pub(super) struct SiteListBuilder<'a> {
    options: &'a SiteOptions,
    names: PropertyNames,
    pids: BTreeMap<PidName, BTreeSet<Prefix>>,
    /// The PID of each prefix.
    owners: HashMap<IpNet, PidName>,
    properties: BTreeMap<Entity, EntityProperties>,
    places: Vec<(PidName, Position)>,
    warnings: Vec<SiteWarning>,
}

impl<'a> SiteListBuilder<'a> {
    /// Creates a draft without sites: all addresses are elsewhere.
    pub(super) fn new(options: &'a SiteOptions) -> Self {
        let full_ranges = AddressType::ALL.map(AddressType::full_range);
        Self {
            options,
            names: PropertyNames::new(options.plain_names),
            pids: BTreeMap::from([(pids::elsewhere(), full_ranges.map(Prefix).into())]),
            owners: HashMap::from(full_ranges.map(|prefix| (prefix, pids::elsewhere()))),
            properties: BTreeMap::new(),
            places: Vec::new(),
            warnings: Vec::new(),
        }
    }

    /// Records the number of sites without a name.
    pub(super) fn note_unnamed(&mut self, count: usize) {
        if count > 0 {
            self.warnings.push(SiteWarning::Unnamed { count });
        }
    }

    /// Adds a site as the PID `pid`.
    pub(super) fn add(&mut self, site: &Site, pid: &PidName) {
        let name = cut(&site.name);
        if pids::pid_name(&site.name).as_ref() != Some(pid) {
            self.warnings.push(SiteWarning::Renamed { site: name.clone(), pid: pid.clone() });
        }
        self.pids.entry(pid.clone()).or_default();
        let properties = self.site(site, pid, &name);
        let mut of_pid = properties.clone();
        for route in &site.routes.0 {
            let of_route = self.route(route, &name);
            self.networks(route, pid, &name, &[&properties, &of_route]);
            self.names.merge(&mut of_pid, &of_route);
        }
        let entity = Entity::Pid(self.options.map.clone(), pid.clone());
        self.properties.insert(entity, of_pid);
    }

    /// Returns the properties of a whole site.
    fn site(&mut self, site: &Site, pid: &PidName, name: &str) -> EntityProperties {
        let mut properties = EntityProperties::from([(self.names.site.clone(), json!(site.name))]);
        if let Some(country) = site.country.as_text() {
            properties.insert(self.names.country.clone(), json!(country));
            if let Some(continent) = continents::of(&country) {
                properties.insert(self.names.continent.clone(), json!(continent));
            }
        }
        match place(site) {
            Ok(Some(place)) => {
                properties.insert(self.names.latitude.clone(), json!(place.latitude()));
                properties.insert(self.names.longitude.clone(), json!(place.longitude()));
                self.places.push((pid.clone(), place));
            }
            Ok(None) => {}
            Err(text) => self.refuse(name, "place", &text),
        }
        properties
    }

    /// Returns the properties of one route of a site.
    fn route(&mut self, route: &NetRoute, site: &str) -> EntityProperties {
        let mut properties = EntityProperties::new();
        match route.asn() {
            Ok(Some(number)) => {
                properties.insert(self.names.asn.clone(), json!(number));
            }
            Ok(None) => {}
            Err(text) => self.refuse(site, "AS number", &text),
        }
        match route.limit() {
            Ok(Some(bits_per_s)) => {
                properties.insert(self.names.limit.clone(), json!(bits_per_s));
            }
            Ok(None) => {}
            Err(text) => self.refuse(site, "bandwidth", &text),
        }
        if !route.collaborations.0.is_empty() {
            properties.insert(self.names.collaborations.clone(), json!(route.collaborations.0));
        }
        properties
    }

    fn refuse(&mut self, site: &str, field: &'static str, text: &str) {
        self.warnings.push(SiteWarning::Field { site: site.to_owned(), field, text: cut(text) });
    }

    /// Assigns the networks of a route to a PID, with these properties.
    fn networks(&mut self, route: &NetRoute, pid: &PidName, site: &str, properties: &[&EntityProperties]) {
        for text in &route.networks.unread {
            self.warnings.push(SiteWarning::Prefix { site: site.to_owned(), text: cut(text) });
        }
        for written in &route.networks.prefixes {
            let prefix = written.trunc();
            if prefix != *written {
                self.warnings.push(SiteWarning::HostBits { site: site.to_owned(), prefix });
            }
            if self.claim(prefix, pid, site) {
                let properties = properties.iter().flat_map(|properties| properties.iter());
                let properties = properties.map(|(name, value)| (name.clone(), value.clone())).collect();
                self.properties.insert(Entity::Address(prefix), properties);
                self.pids.entry(pid.clone()).or_default().insert(Prefix(prefix));
            }
        }
    }

    /// Assigns `prefix` to the PID if it is new, and returns whether it was. A site may list a prefix twice; its first
    /// route wins.
    fn claim(&mut self, prefix: IpNet, pid: &PidName, site: &str) -> bool {
        match self.owners.entry(prefix) {
            Entry::Vacant(free) => {
                free.insert(pid.clone());
                true
            }
            Entry::Occupied(owner) => {
                if owner.get() != pid {
                    let first = owner.get().clone();
                    self.warnings.push(SiteWarning::Twice { site: site.to_owned(), prefix, first });
                }
                false
            }
        }
    }

    /// Returns the facts and the omitted items.
    pub(super) fn finish(mut self) -> (AgentState, Vec<SiteWarning>) {
        let mut facts = AgentState::default();
        let count = self.places.len();
        if self.options.distances && count > MAX_PLACES {
            self.warnings.push(SiteWarning::TooManyPlaces { count });
        } else if self.options.distances && count > 0 {
            self.places.sort_by(|one, other| one.0.cmp(&other.0));
            let distances = distance::costs(&self.places);
            let metric = |name: &str| CostMetric::new(name).expect("a valid name");
            let costs = [(metric("routingcost"), distances.clone()), (metric("priv:distance"), distances)];
            facts.cost_map.insert(self.options.map.clone(), BTreeMap::from(costs));
        }
        facts.network_map.insert(self.options.map.clone(), self.pids);
        facts.properties = self.properties;
        (facts, self.warnings)
    }
}

/// Returns the position of a site, or its invalid text as an error.
fn place(site: &Site) -> Result<Option<Position>, String> {
    let (latitude, longitude) = (&site.latitude, &site.longitude);
    if latitude.is_nothing() && longitude.is_nothing() {
        return Ok(None);
    }
    let degrees = latitude.as_number().zip(longitude.as_number());
    let place = degrees.and_then(|(latitude, longitude)| Position::new(latitude, longitude));
    place.map(Some).ok_or_else(|| format!("{latitude}, {longitude}"))
}

/// Returns the first 64 characters of `text`, for use in messages.
fn cut(text: &str) -> String {
    text.chars().take(64).collect()
}

/// Property names.
struct PropertyNames {
    country: PropertyName,
    continent: PropertyName,
    asn: PropertyName,
    site: PropertyName,
    latitude: PropertyName,
    longitude: PropertyName,
    collaborations: PropertyName,
    limit: PropertyName,
}

impl PropertyNames {
    fn new(are_plain: bool) -> Self {
        let start = if are_plain { "" } else { "priv:" };
        let name = |text: &str| PropertyName::new(&format!("{start}{text}")).expect("a valid name");
        Self {
            country: name("country"),
            continent: name("continent"),
            asn: name("asn"),
            site: name("site"),
            latitude: name("latitude"),
            longitude: name("longitude"),
            collaborations: name("lhcone-collaborations"),
            limit: name("lhcone-bandwidth-limit"),
        }
    }

    /// Merges the properties of another route into those of a PID: the first AS number and the highest limit win, and
    /// the collaborations are combined.
    fn merge(&self, of_pid: &mut EntityProperties, of_route: &EntityProperties) {
        for (name, value) in of_route {
            let Some(existing) = of_pid.get_mut(name) else {
                of_pid.insert(name.clone(), value.clone());
                continue;
            };
            match (existing, value) {
                (Value::Array(existing), Value::Array(more)) => {
                    let new: Vec<Value> = more.iter().filter(|one| !existing.contains(one)).cloned().collect();
                    existing.extend(new);
                }
                (existing, more) if *name == self.limit && more.as_f64() > existing.as_f64() => {
                    *existing = more.clone();
                }
                _ => {}
            }
        }
    }
}
