//! How far sites are from each other.

use std::collections::BTreeMap;

use crate::{
    facts::{Cost, PidCosts},
    names::PidName,
};

/// The mean radius of the Earth (IUGG). The Earth is no sphere, so distances are wrong by up to 0.6 %.
const EARTH_RADIUS_KM: f64 = 6371.0088;

/// A place on Earth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Place {
    /// In degrees, north is positive.
    pub(super) latitude: f64,
    /// In degrees, east is positive.
    pub(super) longitude: f64,
}

impl Place {
    /// The place at these degrees. None if it is not on Earth, or where both are 0: no site is there, but many a form
    /// that nobody filled in.
    pub(super) fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let is_on_earth = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        let is_told = latitude != 0.0 || longitude != 0.0;
        (is_on_earth && is_told).then_some(Self { latitude, longitude })
    }
}

/// A place as the formula wants it, so that a row of distances takes no cosine for each.
struct Point {
    latitude_rad: f64,
    longitude_rad: f64,
    cos_latitude: f64,
}

impl Point {
    fn at(place: Place) -> Self {
        let latitude_rad = place.latitude.to_radians();
        Self { latitude_rad, longitude_rad: place.longitude.to_radians(), cos_latitude: latitude_rad.cos() }
    }

    /// The great-circle distance, by the haversine formula: it keeps its precision for near places.
    fn distance_km(&self, other: &Self) -> f64 {
        let haversine = |angle: f64| (angle / 2.0).sin().powi(2);
        let latitudes = haversine(other.latitude_rad - self.latitude_rad);
        let longitudes = haversine(other.longitude_rad - self.longitude_rad);
        let sum = latitudes + self.cos_latitude * other.cos_latitude * longitudes;
        // Rounding may lift it above 1 for places that are opposite to each other.
        2.0 * EARTH_RADIUS_KM * sum.sqrt().min(1.0).asin()
    }
}

/// The distances between all of these PIDs, each to itself too, in whole kilometres. Best in the order of their names.
pub(super) fn costs(places: &[(PidName, Place)]) -> PidCosts {
    let points: Vec<(&PidName, Point)> = places.iter().map(|(pid, place)| (pid, Point::at(*place))).collect();
    points.iter().map(|(pid, from)| ((*pid).clone(), row(from, &points))).collect()
}

fn row(from: &Point, points: &[(&PidName, Point)]) -> BTreeMap<PidName, Cost> {
    points.iter().map(|(pid, to)| ((*pid).clone(), cost(from, to))).collect()
}

fn cost(from: &Point, to: &Point) -> Cost {
    Cost::new(from.distance_km(to).round()).expect("a distance is a number of 0 or more")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(from: (f64, f64), to: (f64, f64)) -> f64 {
        let point = |(latitude, longitude)| Point::at(Place::new(latitude, longitude).unwrap());
        point(from).distance_km(&point(to))
    }

    #[test]
    fn distances_are_those_of_great_circles() {
        for (from, to, expected) in [
            ((46.2333, 6.05), (41.8406, -88.2792), 7084.877),
            ((46.2333, 6.05), (46.2333, 6.05), 0.0),
            ((90.0, 0.0), (-90.0, 0.0), std::f64::consts::PI * EARTH_RADIUS_KM),
            ((0.0, 179.5), (0.0, -179.5), std::f64::consts::PI * EARTH_RADIUS_KM / 180.0),
            ((10.0, 20.0), (-10.0, -160.0), std::f64::consts::PI * EARTH_RADIUS_KM),
        ] {
            let found = between(from, to);
            assert!((found - expected).abs() < 0.01, "{from:?} to {to:?}: {found}, not {expected}");
            assert!((found - between(to, from)).abs() < 1e-9, "it is as far back");
        }
    }

    #[test]
    fn places_are_on_earth() {
        assert!(Place::new(90.0, -180.0).is_some());
        for (latitude, longitude) in [(90.1, 0.0), (0.0, 180.1), (f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 0.0)] {
            assert_eq!(Place::new(latitude, longitude), None);
        }
    }
}
