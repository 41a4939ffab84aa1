//! Sites as a registry lists them (CRIC of WLCG), made a network map with properties and distances.
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
//! [`Sites::parse`] takes what is known of that and passes over the rest: fields that nobody knows, `null`, values of
//! another kind. [`Sites::facts`] makes [`Facts`] of it, which make a world however bad the list is: what does not fit
//! is left out and told as a [`Doubt`].
//!
//! Nothing is fetched here, and no place is looked up for an address.

mod distance;
mod draft;
mod pids;
mod read;
#[cfg(test)]
mod tests;

use ipnet::IpNet;
use serde::de::DeserializeSeed as _;

pub use self::pids::{ELSEWHERE, pid_name};
use self::{draft::Draft, read::Site};
use towpath_alto::{
    facts::Facts,
    lenient::Filling,
    names::{PidName, ResourceId},
};

/// The longest list that is read, in bytes.
pub const MAX_BYTES: usize = 64 << 20;

/// The most sites of one list.
pub const MAX_SITES: usize = 10_000;

/// The most prefixes of one list, of all its sites.
pub const MAX_PREFIXES: usize = 1_000_000;

/// The most sites whose distances are told. They have four million pairs, which take about 300 MiB.
pub const MAX_PLACES: usize = 2_000;

/// The sites of a registry. In memory it is a few times its document, at most about 1 GiB if someone made that for it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sites {
    /// In the order of their names.
    sites: Vec<Site>,
    /// How many objects had no name.
    unnamed: usize,
}

/// How sites become facts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteOptions {
    /// The network map that they make.
    pub map: ResourceId,
    /// Whether properties have plain names, such as `country`. The registries of RFC 7285
    /// §14.3 and RFC 9240 §12.3 have none of them, so that those who go by the book want `priv:country`.
    pub plain_names: bool,
    /// Whether the distances of sites are told as costs.
    pub distances: bool,
}

impl Default for SiteOptions {
    /// The map `default`, names with `priv:`, and distances.
    fn default() -> Self {
        Self { map: ResourceId::new("default").expect("a valid name"), plain_names: false, distances: true }
    }
}

/// Why a list of sites cannot be read: the registry's fault, or that of who named it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SitesError {
    /// It is longer than [`MAX_BYTES`].
    #[error("the list of sites has {0} bytes, and at most {MAX_BYTES} are read: split it by sites")]
    TooLarge(usize),
    /// It has more than [`MAX_SITES`].
    #[error("the list has more than {MAX_SITES} sites: split it")]
    TooManySites,
    /// It has more than [`MAX_PREFIXES`].
    #[error("the sites have more than {MAX_PREFIXES} prefixes: split the list by sites")]
    TooManyPrefixes,
    /// It is no JSON.
    #[error("the list of sites is no JSON: {0}")]
    Invalid(String),
    /// Nothing in it is a site, which is more likely another document than a registry without sites.
    #[error("there is no site in this: it must be an object with sites by their names, or an array of them")]
    NoSite,
}

/// Something in a list of sites that is left out, or changed. What it says of a site is cut to 64 characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Doubt {
    /// Sites have no name; they are left out.
    #[error("{count} sites have no name and are left out")]
    Unnamed {
        /// How many.
        count: usize,
    },
    /// The name of the site, as far as PIDs can have it, is that of another PID.
    #[error("site {site} becomes PID {pid}, because another PID has its name")]
    Renamed {
        /// The site.
        site: String,
        /// What it is called.
        pid: PidName,
    },
    /// A text is no prefix; it is left out.
    #[error("site {site}: '{text}' is no prefix")]
    Prefix {
        /// The site.
        site: String,
        /// The text.
        text: String,
    },
    /// A prefix has bits behind its length; they are taken off.
    #[error("site {site}: a prefix with bits behind its length is taken for {prefix}")]
    HostBits {
        /// The site.
        site: String,
        /// What it is taken for.
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
    /// A field is not what it should be; it is left out.
    #[error("site {site}: '{text}' is no {field}")]
    Field {
        /// The site.
        site: String,
        /// What it should be.
        field: &'static str,
        /// What is there.
        text: String,
    },
    /// There are more places than [`MAX_PLACES`]; no distances are told.
    #[error("{count} sites have coordinates, and distances are told between at most {MAX_PLACES}: none are")]
    TooManyPlaces {
        /// How many.
        count: usize,
    },
}

/// How much of a list is read.
#[derive(Debug, Clone, Copy)]
struct Limits {
    bytes: usize,
    sites: usize,
    prefixes: usize,
}

impl Sites {
    /// Reads a list: an object with sites by their names, or an array of them, in UTF-8. A site's own `name` holds, if
    /// it has one. What says nothing of a site is passed over.
    ///
    /// - `latitude`, `longitude`: degrees, as numbers or texts.
    /// - `netroutes`: an object or array of objects with `asn` (a number, or `AS513`), `networks` (texts, however
    ///   deep in objects and arrays), `lhcone_collaborations` (texts), `lhcone_bandwidth_limit` (Gbit/s, or a text with a
    ///   unit such as `400 Mbit/s`; 0 or less is none).
    ///
    /// # Errors
    /// [`SitesError`].
    pub fn parse(document: &[u8]) -> Result<Self, SitesError> {
        Self::parse_within(document, Limits { bytes: MAX_BYTES, sites: MAX_SITES, prefixes: MAX_PREFIXES })
    }

    fn parse_within(document: &[u8], limits: Limits) -> Result<Self, SitesError> {
        if document.len() > limits.bytes {
            return Err(SitesError::TooLarge(document.len()));
        }
        let mut list = read::List::with_room(limits.sites);
        // A byte order mark is none of the JSON.
        let document = document.strip_prefix(b"\xef\xbb\xbf").unwrap_or(document);
        let mut json = serde_json::Deserializer::from_slice(document);
        let read = Filling(&mut list).deserialize(&mut json);
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

    /// How many sites there are.
    pub fn len(&self) -> usize {
        self.sites.len()
    }

    /// Whether there is none; a list that was read has one.
    pub fn is_empty(&self) -> bool {
        self.sites.is_empty()
    }

    /// What they say of the network, and what is left out of it. They always make a world.
    ///
    /// - A network map with a PID for each site ([`pid_name`]; equals get numbers), also for one without prefixes, and
    ///   [`ELSEWHERE`] for all other addresses. A prefix of two sites stays with the one whose name comes first.
    /// - Properties of each prefix and each PID: `country`, `continent` (of two letters, if the country is one of ISO
    ///   3166-1), `asn`, `site`, `latitude` and `longitude` (degrees), `lhcone-collaborations` (texts),
    ///   `lhcone-bandwidth-limit` (bits per second), as far as they are told. A PID has the first AS number of its routes,
    ///   all collaborations, and the highest limit.
    /// - The costs `routingcost` and `priv:distance`: the distance of two sites along the surface of the Earth, in whole
    ///   kilometres, for all pairs of sites that have coordinates.
    ///
    /// Each prefix takes about 1 KiB, each pair of sites with coordinates 70 bytes.
    pub fn facts(&self, options: &SiteOptions) -> (Facts, Vec<Doubt>) {
        let names: Vec<&str> = self.sites.iter().map(|site| site.name.as_str()).collect();
        let mut draft = Draft::new(options);
        draft.unnamed(self.unnamed);
        for (site, pid) in self.sites.iter().zip(pids::assign(&names)) {
            draft.add(site, &pid);
        }
        draft.finish()
    }
}
