//! What agents may not say, whatever the others do.

use super::WorldFault;
use crate::{directory::PROPERTIES, entity::Entity, facts::Facts};

/// Refuses facts of which no resource may tell.
pub(super) fn facts(facts: &Facts) -> Result<(), WorldFault> {
    for (map, pids) in &facts.network_map {
        without_dots("network map", map.as_str())?;
        pids.keys().try_for_each(|pid| without_dots("PID", pid.as_str()))?;
    }
    facts.properties.keys().try_for_each(entity)
}

/// Refuses an entity of which no property can be told.
pub(crate) fn entity(entity: &Entity) -> Result<(), WorldFault> {
    match entity {
        Entity::Ane(Some(resource), _) if resource.as_str() != PROPERTIES => {
            Err(WorldFault::NoDomain { entity: entity.clone() })
        }
        Entity::Ane(_, name) => without_dots("element", name.as_str()),
        Entity::Address(_) | Entity::Pid(..) => Ok(()),
    }
}

/// Refuses dots, which are kept for other uses (RFC 7285 §10.1, §10.2).
fn without_dots(what: &'static str, name: &str) -> Result<(), WorldFault> {
    match name.contains('.') {
        true => Err(WorldFault::Dot { what, name: name.to_owned() }),
        false => Ok(()),
    }
}
