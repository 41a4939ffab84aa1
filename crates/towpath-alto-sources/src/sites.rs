//! Converts a registry of sites (CRIC of WLCG) to a network map with properties and distances.
//!
//! ```json
//! {
//!   "CERN-PROD": {
//!     "name": "CERN-PROD", "country": "Switzerland", "latitude": 46.2333, "longitude": "6.05",
//!     "netroutes": {
//!       "CERN-LHCONE": {
//!         "asn": 513, "networks": { "ipv4": ["128.142.0.0/16"], "ipv6": ["2001:1458:301::/48"] },
//!         "lhcone_collaborations": ["atlas"], "lhcone_bandwidth_limit": 100
//!       }
//!     }
//!   }
//! }
//! ```
//!
//! [`Sites::parse`] reads the known fields and ignores the rest: unknown fields, `null`, values of another type.
//! [`Sites::facts`] converts the sites to [`AgentState`], which always form a valid network state, however bad the
//! list: invalid items are omitted and reported as a [`SiteWarning`].
//!
//! This module fetches nothing and does not geolocate addresses.

mod builder;
mod distance;
mod pids;
mod read;
#[cfg(test)]
mod tests;

use ipnet::IpNet;
use serde::de::DeserializeSeed as _;

pub use self::pids::ELSEWHERE;
pub(crate) use self::pids::pid_name;
use self::{builder::SiteListBuilder, read::Site};
use towpath_alto::{
    agent_state::AgentState,
    lenient::PartialJsonSeed,
    names::{PidName, ResourceId},
};

/// Maximum size of a list, in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// Maximum number of sites in a list.
pub const MAX_SITES: usize = 10_000;

/// Maximum number of prefixes in a list, over all its sites.
pub(crate) const MAX_PREFIXES: usize = 1_000_000;

/// Maximum number of sites for which distances are computed. They have four million pairs, which take about 300 MiB.
pub(crate) const MAX_PLACES: usize = 2_000;

/// The sites of a registry. Takes a few times the size of the document in memory; about 1 GiB for a maliciously crafted
/// one.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sites {
    /// Sorted by name.
    sites: Vec<Site>,
    /// Number of objects without a name.
    unnamed: usize,
}

/// Options for converting sites to facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOptions {
    /// The network map to generate.
    pub map: ResourceId,
    /// Whether properties have plain names, such as `country`. They are not in the registries of RFC 7285 §14.3 and RFC
    /// 9240 §12.3, so that strict conformance requires `priv:country`.
    pub plain_names: bool,
    /// Whether to generate the distances between sites as costs.
    pub distances: bool,
}

impl Default for SiteOptions {
    /// The map `default`, names with `priv:`, and distances.
    fn default() -> Self {
        Self { map: ResourceId::new("default").expect("a valid name"), plain_names: false, distances: true }
    }
}

/// Why a list of sites cannot be read. The registry or its configured location is wrong.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SitesError {
    /// The list is longer than [`MAX_BYTES`].
    #[error("the list of sites has {0} bytes, more than the limit of {MAX_BYTES}: split it by sites")]
    TooLarge(usize),
    /// The list has more than [`MAX_SITES`].
    #[error("the list has more than {MAX_SITES} sites: split it")]
    TooManySites,
    /// The list has more than [`MAX_PREFIXES`].
    #[error("the sites have more than {MAX_PREFIXES} prefixes: split the list by sites")]
    TooManyPrefixes,
    /// The list is not valid JSON.
    #[error("the list of sites is not valid JSON: {0}")]
    Invalid(String),
    /// The document contains no site, which more likely means a wrong document than an empty registry.
    #[error("the list has no sites: it must be an object with sites by name, or an array of sites")]
    NoSite,
}

/// An item of a list of sites that was omitted or changed. Site names are truncated to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SiteWarning {
    /// Sites without a name were omitted.
    #[error("{count} sites have no name and are left out")]
    Unnamed {
        /// Number of them.
        count: usize,
    },
    /// The name of the site, reduced to the characters of a PID name, was already taken.
    #[error("site {site} becomes PID {pid}, because another PID has its name")]
    Renamed {
        /// The site.
        site: String,
        /// The PID name given to it.
        pid: PidName,
    },
    /// A text that is not a prefix was omitted.
    #[error("site {site}: '{text}' is not a prefix")]
    Prefix {
        /// The site.
        site: String,
        /// The text.
        text: String,
    },
    /// The host bits of a prefix were cleared.
    #[error("site {site}: a prefix with host bits is read as {prefix}")]
    HostBits {
        /// The site.
        site: String,
        /// The resulting prefix.
        prefix: IpNet,
    },
    /// A prefix is in two PIDs; the first one keeps it.
    #[error("site {site}: {prefix} is left out, because PID {first} has it")]
    Twice {
        /// The site that loses it.
        site: String,
        /// The prefix.
        prefix: IpNet,
        /// The PID that keeps it.
        first: PidName,
    },
    /// A field with an invalid value was omitted.
    #[error("site {site}: '{text}' is not a valid {field}")]
    Field {
        /// The site.
        site: String,
        /// What the field should contain.
        field: &'static str,
        /// What it contains.
        text: String,
    },
    /// There are more sites with coordinates than [`MAX_PLACES`]; distances were omitted.
    #[error(
        "{count} sites have coordinates, but distances are computed between at most {MAX_PLACES}: none are computed"
    )]
    TooManyPlaces {
        /// Number of them.
        count: usize,
    },
}

/// Size limits of a list.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: usize,
    sites: usize,
    prefixes: usize,
}

impl Sites {
    /// Parses a list: an object of sites by name, or an array of sites, in UTF-8. A site's own `name` takes precedence.
    /// Values that describe no site are ignored.
    ///
    /// - `latitude`, `longitude`: degrees, as numbers or texts.
    /// - `netroutes`: an object or array of objects with `asn` (a number, or `AS513`), `networks` (texts, nested
    ///   arbitrarily in objects and arrays), `lhcone_collaborations` (texts), `lhcone_bandwidth_limit` (Gbit/s, or a
    ///   text with a unit such as `400 Mbit/s`; 0 or less means none).
    ///
    /// # Errors
    /// Returns [`SitesError`].
    pub fn parse(document: &[u8]) -> Result<Self, SitesError> {
        Self::parse_within(document, Limits { bytes: MAX_BYTES, sites: MAX_SITES, prefixes: MAX_PREFIXES })
    }

    fn parse_within(document: &[u8], limits: Limits) -> Result<Self, SitesError> {
        if document.len() > limits.bytes {
            return Err(SitesError::TooLarge(document.len()));
        }
        let mut list = read::List::with_room(limits.sites);
        // A byte order mark is not part of the JSON.
        let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
        let mut json = serde_json::Deserializer::from_slice(document);
        let read = PartialJsonSeed(&mut list).deserialize(&mut json);
        read.and_then(|()| json.end()).map_err(|error| SitesError::Invalid(error.to_string()))?;
        Self::of(list, limits)
    }

    fn of(list: read::List, limits: Limits) -> Result<Self, SitesError> {
        let read::List { mut sites, unnamed, is_full, .. } = list;
        if is_full {
            return Err(SitesError::TooManySites);
        }
        if sites.iter().map(Site::prefixes).sum::<usize>() > limits.prefixes {
            return Err(SitesError::TooManyPrefixes);
        }
        if sites.is_empty() {
            return Err(SitesError::NoSite);
        }
        sites.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(Self { sites, unnamed })
    }

    /// Returns the number of sites.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Returns whether there are no sites; a parsed list has at least one.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// Converts the sites to facts, and reports omitted items. A network state can always be built from the result.
    ///
    /// - A network map with one PID per site ([`pid_name`]; duplicates are numbered), including sites without prefixes,
    ///   and [`ELSEWHERE`] for all other addresses. A prefix of two sites goes to the site whose name sorts first.
    /// - Known properties of each prefix and each PID: `country`, `continent` (two letters, if the country is in ISO
    ///   3166-1), `asn`, `site`, `latitude` and `longitude` (degrees), `lhcone-collaborations` (texts),
    ///   `lhcone-bandwidth-limit` (bits per second). A PID has the first AS number of its routes, all their
    ///   collaborations, and the highest limit.
    /// - The costs `routingcost` and `priv:distance`: the great-circle distance in whole kilometres, for all pairs of
    ///   sites with coordinates.
    ///
    /// Each prefix takes about 1 KiB, each pair of sites with coordinates 70 bytes.
    pub fn facts(&self, options: &SiteOptions) -> (AgentState, Vec<SiteWarning>) {
        let names: Vec<&str> = self.sites.iter().map(|site| site.name.as_str()).collect();
        let mut builder = SiteListBuilder::new(options);
        builder.note_unnamed(self.unnamed);
        for (site, pid) in self.sites.iter().zip(pids::assign(&names)) {
            builder.add(site, &pid);
        }
        builder.finish()
    }
}
