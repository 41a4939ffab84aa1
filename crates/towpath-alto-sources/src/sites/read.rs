//! Deserializes the JSON of a list of sites.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::de::{MapAccess, SeqAccess};

use towpath_alto::lenient::{self, PartialJson, PartialJsonSeed, Scalar};

/// Maximum number of invalid prefixes kept per route, for reporting.
const MAX_UNREAD: usize = 8;

/// Maximum number of collaborations kept per route. WLCG has about ten.
const MAX_COLLABORATIONS: usize = 100;

/// The sites read so far.
pub(super) struct List {
    /// Sites with a name, in document order.
    pub(super) sites: Vec<Site>,
    /// Number of sites without a name.
    pub(super) unnamed: usize,
    /// Whether a site was dropped for lack of room.
    pub(super) is_full: bool,
    room: usize,
}

impl List {
    /// Creates an empty list for up to `room` sites.
    pub(super) fn with_room(room: usize) -> Self {
        Self { sites: Vec::new(), unnamed: 0, is_full: false, room }
    }

    fn add(&mut self, site: Site) {
        if !site.is_object {
            return;
        }
        if site.name.is_empty() {
            self.unnamed += 1;
        } else if self.sites.len() < self.room {
            self.sites.push(site);
        } else {
            self.is_full = true;
        }
    }
}

impl PartialJson for List {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        let mut site = Site { name: name.trim().to_owned(), ..Site::default() };
        members.next_value_seed(PartialJsonSeed(&mut site))?;
        self.add(site);
        Ok(())
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut site = Site::default();
        while elements.next_element_seed(PartialJsonSeed(&mut site))?.is_some() {
            self.add(std::mem::take(&mut site));
        }
        Ok(())
    }
}

/// One site.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Site {
    /// Not empty once the site is in the list.
    pub(super) name: String,
    pub(super) country: Scalar,
    pub(super) latitude: Scalar,
    pub(super) longitude: Scalar,
    pub(super) routes: Routes,
    /// Whether the value was an object.
    is_object: bool,
}

impl Site {
    /// Returns the number of prefixes.
    pub(super) fn prefixes(&self) -> usize {
        self.routes.0.iter().map(|route| route.networks.prefixes.len()).sum()
    }
}

impl PartialJson for Site {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        self.is_object = true;
        match name {
            "name" => {
                if let Some(name) = lenient::take::<Scalar, A>(members)?.as_text() {
                    self.name = name.into_owned();
                }
                Ok(())
            }
            "country" => members.next_value_seed(PartialJsonSeed(&mut self.country)),
            "latitude" => members.next_value_seed(PartialJsonSeed(&mut self.latitude)),
            "longitude" => members.next_value_seed(PartialJsonSeed(&mut self.longitude)),
            "netroutes" => members.next_value_seed(PartialJsonSeed(&mut self.routes)),
            _ => lenient::pass_over(members),
        }
    }
}

/// Routes of a site. Only those with networks, since the others say nothing about addresses.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Routes(pub(super) Vec<NetRoute>);

impl Routes {
    fn add(&mut self, route: NetRoute) {
        if route.networks != Networks::default() {
            self.0.push(route);
        }
    }
}

impl PartialJson for Routes {
    fn member<'de, A: MapAccess<'de>>(&mut self, _: &str, members: &mut A) -> Result<(), A::Error> {
        let route = lenient::take(members)?;
        self.add(route);
        Ok(())
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let mut route = NetRoute::default();
        while elements.next_element_seed(PartialJsonSeed(&mut route))?.is_some() {
            self.add(std::mem::take(&mut route));
        }
        Ok(())
    }
}

/// A network connection of a site: networks of one AS.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct NetRoute {
    asn: Scalar,
    limit: Scalar,
    pub(super) networks: Networks,
    pub(super) collaborations: Collaborations,
}

impl NetRoute {
    /// Returns the AS number, or its invalid text as an error.
    pub(super) fn asn(&self) -> Result<Option<u32>, String> {
        let Some(text) = self.asn.as_text() else { return Ok(None) };
        let digits = text.trim_start_matches(['A', 'S', 'a', 's', ' ']);
        digits.parse().map(Some).map_err(|_| text.to_string())
    }

    /// Returns the bandwidth limit in bits per second, or its invalid text as an error. A number without a unit is in
    /// Gbit/s.
    pub(super) fn limit(&self) -> Result<Option<f64>, String> {
        let bits_per_s = match &self.limit {
            Scalar::Nothing => return Ok(None),
            Scalar::Number(gigabits) => Some(gigabits * 1e9),
            Scalar::Text(text) => bits_per_s(text),
        };
        match bits_per_s {
            Some(limit) if limit.is_finite() => Ok((limit > 0.0).then_some(limit)),
            _ => Err(self.limit.to_string()),
        }
    }
}

/// Parses a rate to bits per second: `100`, `400 Mbit/s`, `10Gbps`. Units of bytes are rejected, because it is unclear
/// whether a capital `B` means bytes.
fn bits_per_s(text: &str) -> Option<f64> {
    let end = text.find(|character: char| character != '.' && character != '-' && !character.is_ascii_digit());
    let (number, unit) = text.split_at(end.unwrap_or(text.len()));
    let number: f64 = number.parse().ok()?;
    let mut unit = unit.trim_start().chars();
    let factor = match unit.clone().next() {
        None => return Some(number * 1e9),
        Some('k' | 'K') => 1e3,
        Some('m' | 'M') => 1e6,
        Some('g' | 'G') => 1e9,
        Some('t' | 'T') => 1e12,
        Some(_) => 1.0,
    };
    if factor > 1.0 {
        unit.next();
    }
    let is_bits = matches!(unit.as_str(), "" | "b" | "b/s" | "bps" | "bit" | "bits" | "bit/s" | "bits/s");
    is_bits.then_some(number * factor)
}

impl PartialJson for NetRoute {
    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        match name {
            "asn" => members.next_value_seed(PartialJsonSeed(&mut self.asn)),
            "networks" => members.next_value_seed(PartialJsonSeed(&mut self.networks)),
            "lhcone_collaborations" => members.next_value_seed(PartialJsonSeed(&mut self.collaborations)),
            "lhcone_bandwidth_limit" => members.next_value_seed(PartialJsonSeed(&mut self.limit)),
            _ => lenient::pass_over(members),
        }
    }
}

/// Prefixes in document order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Networks {
    /// As written, possibly with host bits.
    pub(super) prefixes: Vec<IpNet>,
    /// Texts that are not prefixes.
    pub(super) unread: Vec<String>,
}

/// Collects all texts, however deeply nested.
impl PartialJson for Networks {
    fn text(&mut self, text: &str) {
        let text = text.trim();
        let address = || text.parse::<IpAddr>().ok().map(IpNet::from);
        match text.parse::<IpNet>().ok().or_else(address) {
            Some(prefix) => self.prefixes.push(prefix),
            None if text.is_empty() || self.unread.len() == MAX_UNREAD => {}
            None => self.unread.push(text.to_owned()),
        }
    }

    fn member<'de, A: MapAccess<'de>>(&mut self, _: &str, members: &mut A) -> Result<(), A::Error> {
        members.next_value_seed(PartialJsonSeed(self))
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        while elements.next_element_seed(PartialJsonSeed(&mut *self))?.is_some() {}
        Ok(())
    }
}

/// Collaborations that use a route.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Collaborations(pub(super) Vec<String>);

impl PartialJson for Collaborations {
    fn text(&mut self, text: &str) {
        let text = text.trim();
        if !text.is_empty() && self.0.len() < MAX_COLLABORATIONS {
            self.0.push(text.to_owned());
        }
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        while elements.next_element_seed(PartialJsonSeed(&mut *self))?.is_some() {}
        Ok(())
    }
}
