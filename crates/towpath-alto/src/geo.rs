//! Where on Earth addresses are, and how far they are from each other.
//!
//! [`Locations`] is a database in the format of MaxMind (GeoLite2, DB-IP and others), held in memory. It is asked for one
//! address at a time, and a [`Location`] decodes what it is asked for, nothing else. Such databases guess, so what agents
//! tell of an address goes before them: [`World::position`](crate::world::World::position).
//!
//! Nothing is fetched here, and no file is opened.

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

/// The property with the country: of a database its code of two letters (ISO 3166-1), of a list of sites what that says.
pub const COUNTRY: &str = "priv:country";
/// The property with the continent: `AF`, `AN`, `AS`, `EU`, `NA`, `OC`, `SA`.
pub const CONTINENT: &str = "priv:continent";
/// The property with the name of the city in English.
pub const CITY: &str = "priv:city";
/// The property with the latitude in degrees, north is positive.
pub const LATITUDE: &str = "priv:latitude";
/// The property with the longitude in degrees, east is positive.
pub const LONGITUDE: &str = "priv:longitude";
/// The metric of the great-circle distance between endpoints, in whole kilometres.
pub const DISTANCE: &str = "priv:geo-distance";

/// The properties that a database may tell.
const PROPERTIES: [&str; 5] = [COUNTRY, CONTINENT, CITY, LATITUDE, LONGITUDE];

/// The way to a value in a record.
type Path = &'static [PathElement<'static>];

// The records of MaxMind come first, then flat ones, as ip-location-db makes them.
const COUNTRY_AT: [Path; 2] = [&[Key("country"), Key("iso_code")], &[Key("country_code")]];
const CONTINENT_AT: [Path; 2] = [&[Key("continent"), Key("code")], &[Key("continent_code")]];
const CITY_AT: [Path; 2] = [&[Key("city"), Key("names"), Key("en")], &[Key("city")]];
const LATITUDE_AT: [Path; 2] = [&[Key("location"), Key("latitude")], &[Key("latitude")]];
const LONGITUDE_AT: [Path; 2] = [&[Key("location"), Key("longitude")], &[Key("longitude")]];

/// The longest name of a city that is taken for one, in bytes.
const LONGEST_CITY: usize = 256;

/// How many records of a database are looked at to learn which properties it tells.
const EXAMINED: usize = 1000;

/// Why a database of locations cannot be used: its maker's fault, or that of who named it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LocationsError {
    /// It is no database in that format, or a damaged one.
    #[error("this is no whole database of MaxMind's format: {0}: fetch it again, and unpack it")]
    Invalid(String),
    /// It tells something else than places, such as numbers of autonomous systems.
    #[error("its first {EXAMINED} records tell no country and no coordinates: take a database of countries or cities")]
    NoPlaces,
}

/// A database of locations. It takes the memory of its file.
#[derive(Debug)]
pub struct Locations {
    reader: Reader<Vec<u8>>,
    properties: Vec<PropertyName>,
}

/// One that is read again is another one, whatever it tells: nobody compares some hundred MiB.
impl PartialEq for Locations {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

impl Locations {
    /// Reads a database (MaxMind DB format 2), and looks through the whole of it, so that a damaged one is refused here.
    /// How long that takes, and how much memory meanwhile, grows with the number of its records.
    ///
    /// # Errors
    /// [`LocationsError`].
    pub fn read(database: Vec<u8>) -> Result<Self, LocationsError> {
        let invalid = |error: MaxMindDbError| LocationsError::Invalid(error.to_string());
        let reader = Reader::from_source(database).map_err(invalid)?;
        reader.verify().map_err(invalid)?;
        let properties = told(&reader);
        if properties.is_empty() {
            return Err(LocationsError::NoPlaces);
        }
        Ok(Self { reader, properties })
    }

    /// The properties that it tells of some addresses: those that one of its first records tells.
    pub fn properties(&self) -> &[PropertyName] {
        &self.properties
    }

    /// Whether it can know addresses of that type.
    pub fn covers(&self, kind: AddressType) -> bool {
        kind == AddressType::Ipv4 || self.reader.metadata().ip_version == 6
    }

    /// What it says of an address. None if it has no record of it.
    pub fn find(&self, address: IpAddr) -> Option<Location<'_>> {
        let record = self.reader.lookup(address).ok()?;
        record.has_data().then_some(Location { record })
    }
}

/// The properties that the first records tell.
fn told(reader: &Reader<Vec<u8>>) -> Vec<PropertyName> {
    let records = || reader.networks(WithinOptions::default()).into_iter().flatten().flatten().take(EXAMINED);
    let is_told = |name: &&str| records().any(|record| Location { record }.property(name).is_some());
    let names = PROPERTIES.into_iter().filter(is_told);
    names.map(|name| PropertyName::new(name).expect("a valid name")).collect()
}

/// What a database says of an address. What has another form than it should is as if not there.
#[derive(Debug)]
pub struct Location<'a> {
    record: LookupResult<'a, Vec<u8>>,
}

impl<'a> Location<'a> {
    /// Its coordinates.
    pub fn position(&self) -> Option<Position> {
        let degrees = |paths: &[Path]| self.first::<Number>(paths)?.as_f64();
        Position::new(degrees(&LATITUDE_AT)?, degrees(&LONGITUDE_AT)?)
    }

    /// The code of its country (ISO 3166-1, two letters).
    pub fn country(&self) -> Option<&'a str> {
        self.text(&COUNTRY_AT).filter(|code| is_code(code))
    }

    /// The code of its continent, which follows from the country if it is not told.
    pub fn continent(&self) -> Option<&'a str> {
        let told = self.text(&CONTINENT_AT).filter(|code| is_code(code));
        told.or_else(|| continents::of(self.country()?))
    }

    /// The name of its city in English.
    pub fn city(&self) -> Option<&'a str> {
        self.text(&CITY_AT).filter(|name| (1..=LONGEST_CITY).contains(&name.len()))
    }

    /// The value of the property of that name.
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

    /// The value at the end of the first of these paths that leads to one of that type.
    fn first<T: Deserialize<'a>>(&self, paths: &[Path]) -> Option<T> {
        paths.iter().find_map(|path| self.record.decode_path(path).ok().flatten())
    }
}

/// Whether that is the code of a country or a continent.
fn is_code(text: &str) -> bool {
    text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}
