//! Network maps: endpoints grouped by PIDs (RFC 7285 §5, §11.2.1, §11.3.1).

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use ipnet::IpNet;
use serde::{Serialize, Serializer, ser::SerializeMap};
use serde_json::Value;

use crate::{
    address::{AddressType, PrefixMap},
    fields::Fields,
    names::{PidName, ResourceId, VersionTag},
    problem::Problem,
};

/// Why PIDs do not form a valid network map (RFC 7285 §11.2.1.6); the operator must correct them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MapFault {
    /// A prefix is in two PIDs, so that the PID of its addresses is ambiguous.
    #[error("network map {map}: {prefix} is in {first} and in {second}; remove it from one of them")]
    Twice {
        /// The map.
        map: ResourceId,
        /// The prefix.
        prefix: IpNet,
        /// One PID with the prefix.
        first: PidName,
        /// The other PID with the prefix.
        second: PidName,
    },
    /// Some addresses are in no PID.
    #[error("network map {map}: no PID covers {everything}; add it to a PID, as the default for other addresses")]
    Uncovered {
        /// The map.
        map: ResourceId,
        /// The prefix of all addresses of the type.
        everything: IpNet,
    },
}

/// A network map. It covers all addresses of each address type that it contains; an address is in the PID with the
/// longest matching prefix.
#[derive(Debug, Clone)]
pub struct NetworkMap {
    vtag: VersionTag,
    pids: Vec<(PidName, Vec<IpNet>)>,
    by_prefix: PrefixMap<u32>,
}

impl NetworkMap {
    /// Creates the map `id` from these PIDs. PIDs and prefixes are kept sorted, so that equal maps have equal tags.
    ///
    /// # Errors
    /// Returns an error if a prefix is in two PIDs, or an address type is not covered completely.
    pub fn new(id: ResourceId, pids: BTreeMap<PidName, BTreeSet<IpNet>>) -> Result<Self, MapFault> {
        let mut by_prefix = PrefixMap::new();
        let pids: Vec<(PidName, Vec<IpNet>)> =
            pids.into_iter().map(|(name, prefixes)| (name, prefixes.into_iter().collect())).collect();
        for (number, (name, prefixes)) in (0..).zip(&pids) {
            for prefix in prefixes {
                if let Some(first) = by_prefix.insert(*prefix, number) {
                    let first = pids[first as usize].0.clone();
                    return Err(MapFault::Twice { map: id, prefix: *prefix, first, second: name.clone() });
                }
            }
        }
        for kind in AddressType::ALL {
            let everything = kind.full_range();
            let of_kind =
                pids.iter().flat_map(|(_, prefixes)| prefixes).filter(|p| AddressType::of_prefix(**p) == kind);
            let of_kind: Vec<IpNet> = of_kind.copied().collect();
            let is_covered = || by_prefix.contains_key(&everything) || IpNet::aggregate(&of_kind) == [everything];
            if !of_kind.is_empty() && !is_covered() {
                return Err(MapFault::Uncovered { map: id, everything });
            }
        }
        let vtag = VersionTag::of(id, &Selection { pids: pids.iter().collect(), types: AddressType::ALL.into() });
        Ok(Self { vtag, pids, by_prefix })
    }

    /// Returns the resource ID.
    pub fn id(&self) -> &ResourceId {
        &self.vtag.resource_id
    }

    /// Returns the version tag. Equal content has equal tags.
    pub fn vtag(&self) -> &VersionTag {
        &self.vtag
    }

    /// Returns the number of PIDs. Each PID has an index below it.
    pub fn len(&self) -> usize {
        self.pids.len()
    }

    /// Returns whether the map has no PID.
    pub fn is_empty(&self) -> bool {
        self.pids.is_empty()
    }

    /// Returns the PIDs by index, which is the order of their names.
    pub fn pids(&self) -> impl ExactSizeIterator<Item = (&PidName, &[IpNet])> {
        self.pids.iter().map(|(name, prefixes)| (name, &**prefixes))
    }

    /// Returns the name of the PID with this index.
    pub fn name(&self, number: u32) -> &PidName {
        &self.pids[number as usize].0
    }

    /// Returns the prefixes of the PID with this index.
    pub fn prefixes(&self, number: u32) -> &[IpNet] {
        &self.pids[number as usize].1
    }

    /// Returns a representative address of the PID: the first network address of its prefixes, in that family, that the
    /// map assigns to this PID.
    pub fn first_address(&self, number: u32, is_ipv4: bool) -> Option<IpAddr> {
        let mut addresses =
            self.prefixes(number).iter().map(IpNet::addr).filter(|address| address.is_ipv4() == is_ipv4);
        addresses.find(|address| self.locate(*address) == Some(number))
    }

    /// Returns the index of a PID.
    pub fn number(&self, name: &str) -> Option<u32> {
        let position = self.pids.binary_search_by(|(pid, _)| pid.as_str().cmp(name)).ok()?;
        u32::try_from(position).ok()
    }

    /// Returns the index of the PID of `address`, or `None` if the map has no addresses of its type.
    pub fn locate(&self, address: IpAddr) -> Option<u32> {
        self.by_prefix.get_lpm(&address.into()).map(|(_, number)| *number)
    }

    /// Returns the index of the PID that lists exactly this prefix.
    pub fn owner(&self, prefix: IpNet) -> Option<u32> {
        self.by_prefix.get(&prefix).copied()
    }

    /// Returns the index of the PID of the addresses in `prefix`, except for those with longer prefixes in the map.
    pub(crate) fn locate_prefix(&self, prefix: IpNet) -> Option<u32> {
        self.by_prefix.get_lpm(&prefix).map(|(_, number)| *number)
    }

    /// Returns the map's prefixes strictly within `prefix`.
    pub(crate) fn beneath(&self, prefix: IpNet) -> impl Iterator<Item = IpNet> {
        self.by_prefix.children(&prefix).map(|(child, _)| child).filter(move |child| *child != prefix)
    }

    /// Selects the whole map.
    pub fn whole(&self) -> Selection<'_> {
        Selection { pids: self.pids.iter().collect(), types: AddressType::ALL.into() }
    }

    /// Selects the PIDs of a request (RFC 7285 §11.3.1.3).
    ///
    /// # Errors
    /// Returns [`Problem`] if the request is malformed. Unknown PIDs and address types are not errors.
    pub fn select(&self, request: &Value) -> Result<Selection<'_>, Problem> {
        let fields = Fields::of(request)?;
        let requested = fields.texts("pids", PidName::new)?.ok_or_else(|| fields.missing("pids"))?;
        let pids = match &*requested {
            [] => self.pids.iter().collect(),
            requested => {
                let numbers: BTreeSet<u32> = requested.iter().filter_map(|pid| self.number(pid.as_str())).collect();
                numbers.into_iter().map(|number| &self.pids[number as usize]).collect()
            }
        };
        let types = fields.texts("address-types", |name| Ok::<_, String>(AddressType::from_name(name)))?;
        let types = match types {
            None => AddressType::ALL.into(),
            Some(types) if types.is_empty() => AddressType::ALL.into(),
            Some(types) => types.into_iter().flatten().collect(),
        };
        Ok(Selection { pids, types })
    }
}

/// Some PIDs of a network map with their prefixes of some types, serialized as the content of `network-map`.
#[derive(Debug)]
pub struct Selection<'a> {
    pids: Vec<&'a (PidName, Vec<IpNet>)>,
    types: Vec<AddressType>,
}

impl Serialize for Selection<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.pids.iter().map(|(name, prefixes)| (name, Group { prefixes, types: &self.types })))
    }
}

/// An `EndpointAddrGroup` (RFC 7285 §10.4.5).
struct Group<'a> {
    prefixes: &'a [IpNet],
    types: &'a [AddressType],
}

impl Serialize for Group<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for kind in AddressType::ALL.iter().filter(|kind| self.types.contains(kind)) {
            let of_kind: Vec<_> = self.prefixes.iter().filter(|p| AddressType::of_prefix(**p) == *kind).collect();
            if !of_kind.is_empty() {
                map.serialize_entry(kind.name(), &of_kind)?;
            }
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{address::prefix, problem::Code};

    fn build(pids: &[(&str, &[&str])]) -> Result<NetworkMap, MapFault> {
        let pid = |(name, prefixes): &(&str, &[&str])| {
            (PidName::new(name).unwrap(), prefixes.iter().map(|text| prefix(text).unwrap()).collect())
        };
        NetworkMap::new(ResourceId::new("map").unwrap(), pids.iter().map(pid).collect())
    }

    /// The example of RFC 7285 §11.2.1.7, as explained in §11.2.1.6.
    const EXAMPLE: [(&str, &[&str]); 4] = [
        ("PID0", &["::/0"]),
        ("PID1", &["0.0.0.0/0"]),
        ("PID2", &["192.0.2.0/24", "198.51.100.0/24"]),
        ("PID3", &["192.0.2.0/25", "192.0.2.128/25"]),
    ];

    #[test]
    fn n2_prefixes_are_in_one_pid_and_everything_is_covered() {
        let mut twice = EXAMPLE;
        twice[3] = ("PID3", &["192.0.2.0/24"]);
        let fault = build(&twice).unwrap_err();
        assert_eq!(
            fault.to_string(),
            "network map map: 192.0.2.0/24 is in PID2 and in PID3; remove it from one of them"
        );
        assert!(build(&EXAMPLE[1..]).is_ok(), "a map without IPv6 need not cover it");
        assert!(matches!(build(&EXAMPLE[2..]), Err(MapFault::Uncovered { .. })));
        let halves: [(&str, &[&str]); 3] =
            [("A", &["0.0.0.0/1", "10.0.0.0/8"]), ("B", &["128.0.0.0/2"]), ("C", &["192.0.0.0/2"])];
        assert!(build(&halves).is_ok(), "parts may be all of it together");
        assert!(matches!(build(&halves[..2]), Err(MapFault::Uncovered { .. })));
    }

    #[test]
    fn n3_the_longest_prefix_holds() {
        let map = build(&EXAMPLE).unwrap();
        let pid = |text: &str| map.name(map.locate(text.parse().unwrap()).unwrap()).as_str().to_owned();
        assert_eq!(pid("192.0.2.1"), "PID3");
        assert_eq!(pid("198.51.100.7"), "PID2");
        assert_eq!(pid("203.0.113.1"), "PID1");
        assert_eq!(pid("2001:db8::1"), "PID0");
        assert!(build(&EXAMPLE[1..]).unwrap().locate("2001:db8::1".parse().unwrap()).is_none());
    }

    #[test]
    fn n4_what_is_asked_for_is_given() {
        let map = build(&EXAMPLE).unwrap();
        let selected = |request| serde_json::to_value(map.select(&request).unwrap()).unwrap();
        let pid2 = json!({ "ipv4": ["192.0.2.0/24", "198.51.100.0/24"] });
        assert_eq!(selected(json!({ "pids": ["PID2", "PID9", "PID2"], "new-field": 1 })), json!({ "PID2": pid2 }));
        assert_eq!(selected(json!({ "pids": [] })), serde_json::to_value(map.whole()).unwrap());
        let v6 = json!({ "PID0": { "ipv6": ["::/0"] }, "PID1": {} });
        assert_eq!(selected(json!({ "pids": ["PID0", "PID1"], "address-types": ["ipv6", "mac"] })), v6);
        let refused = |request| map.select(&request).unwrap_err();
        assert_eq!(refused(json!({})).code, Code::MissingField);
        assert_eq!(refused(json!({ "pids": ["a b"] })).code, Code::InvalidFieldValue);
        assert_eq!(refused(json!({ "pids": [], "address-types": {} })).code, Code::InvalidFieldType);
    }

    #[test]
    fn equal_maps_have_equal_tags() {
        let (one, same) = (build(&EXAMPLE).unwrap(), build(&EXAMPLE).unwrap());
        assert_eq!(one.vtag(), same.vtag());
        let mut other = EXAMPLE;
        other[2] = ("PID2", &["192.0.2.0/24"]);
        assert_ne!(build(&other).unwrap().vtag(), one.vtag());
    }
}
