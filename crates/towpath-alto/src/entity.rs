//! Entities and property names (RFC 9240 §3 to §5).

use std::{fmt, net::IpAddr};

use ipnet::IpNet;

use crate::{
    address::{self, AddressType},
    names::{AneName, ParseError, PidName, PropertyName, ResourceId},
};

/// An entity domain: entities of one type (RFC 9240 §5.1.2).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// Addresses and prefixes; the same in all resources.
    Address(AddressType),
    /// The PIDs of a network map.
    Pid(ResourceId),
    /// Abstract network elements of a resource, or of the enclosing property map (`.ane`).
    Ane(Option<ResourceId>),
}

/// Maximum length of an entity identifier: resource id, entity type, element name, and separators.
const LONGEST: usize = 64 + 1 + 32 + 1 + 64;

const PID: &str = "pid";
const ANE: &str = "ane";

impl Domain {
    /// Parses an entity domain.
    ///
    /// # Errors
    /// If the type is unknown, or a resource id is missing or not allowed.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let malformed = || ParseError::new("entity domain", text, "ipv4, ipv6, RESOURCE.pid, RESOURCE.ane or .ane");
        let Some((resource, kind)) = text.rsplit_once('.') else {
            return AddressType::from_name(text).map(Domain::Address).ok_or_else(malformed);
        };
        match (kind, resource) {
            (ANE, "") => Ok(Domain::Ane(None)),
            (ANE, resource) => ResourceId::new(resource).map(|id| Domain::Ane(Some(id))),
            (PID, resource) => ResourceId::new(resource).map(Domain::Pid),
            _ => Err(malformed()),
        }
        .map_err(|_| malformed())
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Domain::Address(kind) => f.write_str(kind.name()),
            Domain::Pid(map) => write!(f, "{map}.{PID}"),
            Domain::Ane(Some(resource)) => write!(f, "{resource}.{ANE}"),
            Domain::Ane(None) => write!(f, ".{ANE}"),
        }
    }
}

/// An entity with properties (RFC 9240 §5.1.3).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Entity {
    /// All addresses of a prefix; a single address is a prefix of full length.
    Address(IpNet),
    /// A PID of a network map.
    Pid(ResourceId, PidName),
    /// An abstract network element of a resource, or of the enclosing property map.
    Ane(Option<ResourceId>, AneName),
}

impl Entity {
    /// Returns the address, if the entity is a single address.
    pub fn single_address(&self) -> Option<IpAddr> {
        let prefix = self.prefix()?;
        (prefix.prefix_len() == prefix.max_prefix_len()).then(|| prefix.addr())
    }

    /// Parses an entity identifier: `ipv4:192.0.2.0/24`, `map.pid:PID1`, `.ane:L1`.
    ///
    /// # Errors
    /// If the domain or the name is malformed.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let form = "DOMAIN:NAME, such as ipv4:192.0.2.0/24, MAP.pid:PID or .ane:ANE";
        let malformed = |_| ParseError::new("entity", text, form);
        if text.len() > LONGEST {
            return Err(ParseError::new("entity", text, form));
        }
        // Resource ids can also contain colons, but not between the last dot and the name.
        let split = |end: usize| Some((Domain::parse(text.get(..end)?).ok()?, text.get(end + 1..)?));
        let mut ends = text.match_indices(':').map(|(end, _)| end);
        let (domain, name) = ends.find_map(split).ok_or_else(|| ParseError::new("entity", text, form))?;
        match domain {
            Domain::Address(kind) => match address::prefix(name) {
                Ok(prefix) if AddressType::of_prefix(prefix) == kind => Ok(Entity::Address(prefix)),
                _ => Err(ParseError::new("entity", text, form)),
            },
            Domain::Pid(map) => PidName::new(name).map(|pid| Entity::Pid(map, pid)).map_err(malformed),
            Domain::Ane(resource) => AneName::new(name).map(|ane| Entity::Ane(resource, ane)).map_err(malformed),
        }
    }

    /// Returns the prefix, if the entity is one.
    pub fn prefix(&self) -> Option<IpNet> {
        match self {
            Entity::Address(prefix) => Some(*prefix),
            _ => None,
        }
    }

    /// Returns the identifier relative to `resource`: `resource.ane:L1` becomes `.ane:L1` there (RFC 9240 §5.1.2).
    pub(crate) fn within(&self, resource: &str) -> Self {
        match self {
            Entity::Ane(Some(named), ane) if named.as_str() == resource => Entity::Ane(None, ane.clone()),
            entity => entity.clone(),
        }
    }

    /// Returns the domain of the entity.
    pub fn domain(&self) -> Domain {
        match self {
            Entity::Address(prefix) => Domain::Address(AddressType::of_prefix(*prefix)),
            Entity::Pid(map, _) => Domain::Pid(map.clone()),
            Entity::Ane(resource, _) => Domain::Ane(resource.clone()),
        }
    }
}

/// A prefix of full length is written as an address.
impl fmt::Display for Entity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.domain())?;
        match self {
            Entity::Address(prefix) if prefix.prefix_len() == prefix.max_prefix_len() => write!(f, "{}", prefix.addr()),
            Entity::Address(prefix) => write!(f, "{prefix}"),
            Entity::Pid(_, pid) => write!(f, "{pid}"),
            Entity::Ane(_, ane) => write!(f, "{ane}"),
        }
    }
}

/// A property name as used in requests and responses (RFC 9240 §5.2.3): `country`, `map.pid`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Property {
    /// The resource that defines the property, if it is resource-specific.
    pub resource: Option<ResourceId>,
    /// The unqualified name.
    pub name: PropertyName,
}

impl Property {
    /// Returns the property for the PID of an address in `map` (RFC 7285 §7.1.1).
    pub(crate) fn pid_of(map: &ResourceId) -> Self {
        let name = PropertyName::new(PID).expect("a valid name");
        Self { resource: Some(map.clone()), name }
    }

    /// Returns whether this is the PID property.
    pub fn is_pid(&self) -> bool {
        self.resource.is_some() && self.name.as_str() == PID
    }

    /// Parses a property name.
    ///
    /// # Errors
    /// If the name, or the resource id before its last dot, is malformed.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        match text.rsplit_once('.') {
            None => Ok(Self { resource: None, name: PropertyName::new(text)? }),
            Some((resource, name)) => {
                Ok(Self { resource: Some(ResourceId::new(resource)?), name: PropertyName::new(name)? })
            }
        }
    }
}

impl fmt::Display for Property {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.resource {
            Some(resource) => write!(f, "{resource}.{}", self.name),
            None => write!(f, "{}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_are_written_as_they_are_read() {
        for text in
            ["ipv4:192.0.2.0/24", "ipv6:2001:db8::/32", "a:b.c.pid:P:1", ".ane:L1", "props.ane:x", "ipv4:192.0.2.1"]
        {
            assert_eq!(Entity::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Entity::parse("ipv4:192.0.2.1/32").unwrap(), Entity::parse("ipv4:192.0.2.1").unwrap());
        for text in
            ["", "ipv4", "ipv4:", "ipv4:2001:db8::1", "pid:x", ".pid:x", "map.x:y", "ane:x", "ipv4:192.0.2.1/24"]
        {
            assert!(Entity::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn properties_may_be_of_a_resource() {
        for text in ["country", "map.pid", "a.b.pid", "priv:x"] {
            assert_eq!(Property::parse(text).unwrap().to_string(), text);
        }
        assert!(Property::parse("map.pid").unwrap().is_pid() && !Property::parse("pid").unwrap().is_pid());
        for text in ["", "map.", ".pid", "a b"] {
            assert!(Property::parse(text).is_err(), "{text}");
        }
    }
}
