//! Distances between sites.

use std::collections::BTreeMap;

use towpath_alto::{
    agent_state::{Cost, PidCosts},
    geo::{Point, Position},
    names::PidName,
};

/// Returns the distances between all these PIDs, including to themselves, in whole kilometres. Fastest if sorted by
/// name.
pub(super) fn costs(places: &[(PidName, Position)]) -> PidCosts {
    let points: Vec<(&PidName, Point)> = places.iter().map(|(pid, position)| (pid, Point::at(*position))).collect();
    points.iter().map(|(pid, from)| ((*pid).clone(), row(from, &points))).collect()
}

fn row(from: &Point, points: &[(&PidName, Point)]) -> BTreeMap<PidName, Cost> {
    points.iter().map(|(pid, to)| ((*pid).clone(), cost(from, to))).collect()
}

fn cost(from: &Point, to: &Point) -> Cost {
    Cost::new(from.distance_km(to).round()).expect("a distance is a number of 0 or more")
}
