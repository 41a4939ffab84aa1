//! Geographic locations of addresses, and distances between them.
//!
//! [`Locations`] is an in-memory database in MaxMind format (GeoLite2, DB-IP and others). Lookups are per address,
//! and a [`Location`] decodes only the requested values. Such databases are estimates, so facts from agents take
//! precedence: [`NetworkState::position`](crate::network_state::NetworkState::position).
//!
//! This module opens no files and downloads nothing.

pub mod continents;
mod position;
#[cfg(test)]
mod tests;

use std::net::IpAddr;

use maxminddb::{
    LookupResult, MaxMindDbError,
    PathElement::{self, Key},
    Reader, WithinOptions,
};
use serde::Deserialize;
use serde_json::{Number, Value};

pub use self::position::{Point, Position};
use crate::{address::AddressType, names::PropertyName};

/// Country property: a two-letter code (ISO 3166-1) if it comes from a database, or the text in a list of sites.
pub(crate) const COUNTRY: &str = "priv:country";
/// Continent property: `AF`, `AN`, `AS`, `EU`, `NA`, `OC`, `SA`.
pub(crate) const CONTINENT: &str = "priv:continent";
/// City property: the English name.
pub(crate) const CITY: &str = "priv:city";
/// Latitude property in degrees; north is positive.
pub(crate) const LATITUDE: &str = "priv:latitude";
/// Longitude property in degrees; east is positive.
pub(crate) const LONGITUDE: &str = "priv:longitude";
/// Cost metric for the great-circle distance between endpoints, in whole kilometers.
pub const DISTANCE: &str = "priv:geo-distance";

/// The properties that a database can provide.
const PROPERTIES: [&str; 5] = [COUNTRY, CONTINENT, CITY, LATITUDE, LONGITUDE];

/// The path to a value in a record.
type Path = &'static [PathElement<'static>];

// MaxMind's record layout first, then the flat layout of ip-location-db.
const COUNTRY_AT: [Path; 2] = [&[Key("country"), Key("iso_code")], &[Key("country_code")]];
const CONTINENT_AT: [Path; 2] = [&[Key("continent"), Key("code")], &[Key("continent_code")]];
const CITY_AT: [Path; 2] = [&[Key("city"), Key("names"), Key("en")], &[Key("city")]];
const LATITUDE_AT: [Path; 2] = [&[Key("location"), Key("latitude")], &[Key("latitude")]];
const LONGITUDE_AT: [Path; 2] = [&[Key("location"), Key("longitude")], &[Key("longitude")]];

/// Maximum length of a city name in bytes; longer ones are ignored.
const MAX_CITY: usize = 256;

/// Number of records examined to determine which properties a database provides.
const EXAMINED: usize = 1000;

/// Reason why a geolocation database cannot be used: it is damaged, or the wrong file was configured.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationsError {
    /// The file is not in the expected format or is damaged.
    #[error("not a complete database in MaxMind format: {0}: fetch it again and unpack it")]
    Invalid(String),
    /// The database has other contents than locations, such as AS numbers.
    #[error("its first {EXAMINED} records have no country and no coordinates: use a database of countries or cities")]
    NoPlaces,
}

/// A geolocation database, held in memory in full.
#[derive(Debug)]
pub struct Locations {
    reader: Reader<Vec<u8>>,
    properties: Vec<PropertyName>,
}

/// Compares by identity: a reloaded database counts as changed, since comparing hundreds of MiB is too expensive.
impl PartialEq for Locations {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Locations {
    /// Reads a database (MaxMind DB format 2) and verifies it completely, so that damage is detected here. Time and
    /// temporary memory grow with the number of records.
    ///
    /// # Errors
    /// [`LocationsError`].
    pub fn read(database: Vec<u8>) -> Result<Self, LocationsError> {
        let invalid = |error: MaxMindDbError| LocationsError::Invalid(error.to_string());
        let reader = Reader::from_source(database).map_err(invalid)?;
        reader.verify().map_err(invalid)?;
        let properties = available_properties(&reader);
        if properties.is_empty() {
            return Err(LocationsError::NoPlaces);
        }
        Ok(Self { reader, properties })
    }

    /// Returns the properties found in the first records.
    pub fn properties(&self) -> &[PropertyName] {
        &self.properties
    }

    /// Returns whether the database can contain addresses of this type.
    pub(crate) fn covers(&self, kind: AddressType) -> bool {
        kind == AddressType::Ipv4 || self.reader.metadata().ip_version == 6
    }

    /// Looks up an address; `None` if there is no record.
    pub fn find(&self, address: IpAddr) -> Option<Location<'_>> {
        let record = self.reader.lookup(address).ok()?;
        record.has_data().then_some(Location { record })
    }
}

/// Returns the properties found in the first records.
fn available_properties(reader: &Reader<Vec<u8>>) -> Vec<PropertyName> {
    let records = || reader.networks(WithinOptions::default()).into_iter().flatten().flatten().take(EXAMINED);
    let is_present = |name: &&str| records().any(|record| Location { record }.property(name).is_some());
    let names = PROPERTIES.into_iter().filter(is_present);
    names.map(|name| PropertyName::new(name).expect("a valid name")).collect()
}

/// The record for an address. Values of an unexpected form count as absent.
#[derive(Debug)]
pub struct Location<'a> {
    record: LookupResult<'a, Vec<u8>>,
}

impl<'a> Location<'a> {
    /// Returns the coordinates.
    pub fn position(&self) -> Option<Position> {
        let degrees = |paths: &[Path]| self.first::<Number>(paths)?.as_f64();
        Position::new(degrees(&LATITUDE_AT)?, degrees(&LONGITUDE_AT)?)
    }

    /// Returns the country code (ISO 3166-1, two letters).
    pub fn country(&self) -> Option<&'a str> {
        self.text(&COUNTRY_AT).filter(|code| is_code(code))
    }

    /// Returns the continent code, derived from the country if absent.
    pub fn continent(&self) -> Option<&'a str> {
        let code = self.text(&CONTINENT_AT).filter(|code| is_code(code));
        code.or_else(|| continents::of(self.country()?))
    }

    /// Returns the English name of the city.
    pub(crate) fn city(&self) -> Option<&'a str> {
        self.text(&CITY_AT).filter(|name| (1..=MAX_CITY).contains(&name.len()))
    }

    /// Returns the value of the named property.
    pub fn property(&self, name: &str) -> Option<Value> {
        match name {
            COUNTRY => self.country().map(Value::from),
            CONTINENT => self.continent().map(Value::from),
            CITY => self.city().map(Value::from),
            LATITUDE => Some(self.position()?.latitude().into()),
            LONGITUDE => Some(self.position()?.longitude().into()),
            _ => None,
        }
    }

    fn text(&self, paths: &[Path]) -> Option<&'a str> {
        self.first(paths)
    }

    /// Returns the value at the first of these paths that has the requested type.
    fn first<T: Deserialize<'a>>(&self, paths: &[Path]) -> Option<T> {
        paths.iter().find_map(|path| self.record.decode_path(path).ok().flatten())
    }
}

/// Returns whether the text has the form of a country or continent code.
fn is_code(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}
