//! Positions on Earth and distances between them.

/// Mean radius of the Earth (IUGG). Since the Earth is not a sphere, distances have errors of up to 0.6 %.
const EARTH_RADIUS_KM: f64 = 6371.0088;

/// A position on Earth.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Position {
    latitude: f64,
    longitude: f64,
}

impl Position {
    /// Returns the position at these coordinates in degrees, -90 to 90 and -180 to 180. Returns `None` for invalid
    /// coordinates and for (0, 0), which is usually an unset form field; nothing is located there.
    pub fn new(latitude: f64, longitude: f64) -> Option<Self> {
        let is_on_earth = (-90.0..=90.0).contains(&latitude) && (-180.0..=180.0).contains(&longitude);
        let is_told = latitude != 0.0 || longitude != 0.0;
        (is_on_earth && is_told).then_some(Self { latitude, longitude })
    }

    /// Returns the latitude in degrees; north is positive.
    pub fn latitude(self) -> f64 {
        self.latitude
    }

    /// Returns the longitude in degrees; east is positive.
    pub fn longitude(self) -> f64 {
        self.longitude
    }
}

/// A position in radians with precomputed cosine, for computing many distances.
#[derive(Debug, Clone, Copy)]
pub struct Point {
    latitude_rad: f64,
    longitude_rad: f64,
    cos_latitude: f64,
}

impl Point {
    /// Converts a position.
    pub fn at(position: Position) -> Self {
        let latitude_rad = position.latitude.to_radians();
        Self { latitude_rad, longitude_rad: position.longitude.to_radians(), cos_latitude: latitude_rad.cos() }
    }

    /// Returns the great-circle distance by the haversine formula, which is precise for short distances.
    pub fn distance_km(&self, other: &Self) -> f64 {
        let haversine = |angle: f64| (angle / 2.0).sin().powi(2);
        let latitudes = haversine(other.latitude_rad - self.latitude_rad);
        let longitudes = haversine(other.longitude_rad - self.longitude_rad);
        let sum = latitudes + self.cos_latitude * other.cos_latitude * longitudes;
        // Rounding can raise it above 1 for antipodal points.
        2.0 * EARTH_RADIUS_KM * sum.sqrt().min(1.0).asin()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn between(from: (f64, f64), to: (f64, f64)) -> f64 {
        let point = |(latitude, longitude)| Point::at(Position::new(latitude, longitude).unwrap());
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
    fn positions_are_on_earth() {
        assert!(Position::new(90.0, -180.0).is_some());
        for (latitude, longitude) in [(90.1, 0.0), (0.0, 180.1), (f64::NAN, 1.0), (1.0, f64::INFINITY), (0.0, 0.0)] {
            assert_eq!(Position::new(latitude, longitude), None);
        }
    }
}
