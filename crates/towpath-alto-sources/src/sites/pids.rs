//! Derives PID names from site names.

use std::collections::{HashMap, HashSet};

use towpath_alto::names::PidName;

/// The PID of addresses that belong to no site.
pub const ELSEWHERE: &str = "elsewhere";

/// Maximum length of a name, in characters (RFC 7285 §10.1).
const MAX_LENGTH: usize = 64;

/// Returns the PID name closest to `text`: invalid characters are replaced by `_`, including the dot, which RFC 7285
/// §10.1 reserves, and the result is truncated to 64. A PID name without dots is unchanged. Returns `None` for blank
/// text.
pub(crate) fn pid_name(text: &str) -> Option<PidName> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || ":@_-".contains(character);
    let allowed = |character: char| if is_allowed(character) { character } else { '_' };
    let name: String = text.trim().chars().take(MAX_LENGTH).map(allowed).collect();
    PidName::new(&name).ok()
}

/// Returns the PID name [`ELSEWHERE`].
pub(super) fn elsewhere() -> PidName {
    PidName::new(ELSEWHERE).expect("a valid name")
}

/// Assigns a PID to each of `names`, which must not be blank. All are distinct, and none is `elsewhere`.
///
/// Names that are valid PID names are assigned first, so that a modified name cannot take theirs. The first of several
/// duplicates keeps its name; the others get `-2`, `-3`, ... in order.
pub(super) fn assign(names: &[&str]) -> Vec<PidName> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|position| pid_name(names[*position]).is_none_or(|pid| pid.as_str() != names[*position]));
    let mut free = FreeNames { taken: HashSet::from([elsewhere()]), last_number: HashMap::new() };
    let mut pids = vec![elsewhere(); names.len()];
    for position in order {
        let preferred = pid_name(names[position]).unwrap_or_else(elsewhere);
        pids[position] = free.take(preferred);
    }
    pids
}

/// Allocates unused names.
struct FreeNames {
    taken: HashSet<PidName>,
    /// Last number tried for a name, so that many duplicates take linear time.
    last_number: HashMap<PidName, usize>,
}

impl FreeNames {
    /// Takes the wanted name, or one with a number appended.
    fn take(&mut self, preferred: PidName) -> PidName {
        if self.taken.insert(preferred.clone()) {
            return preferred;
        }
        let number = self.last_number.entry(preferred.clone()).or_insert(1);
        loop {
            *number += 1;
            let name = with_number(&preferred, *number);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// Returns `name` with `-number` appended, truncated before the suffix to the maximum length.
fn with_number(name: &PidName, number: usize) -> PidName {
    let suffix = format!("-{number}");
    let name = name.as_str();
    // All characters of a name are ASCII.
    let end = name.len().min(MAX_LENGTH.saturating_sub(suffix.len()));
    PidName::new(&format!("{}{suffix}", &name[..end])).expect("a truncated name with a number is a valid name")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn assigned(names: &[&str]) -> Vec<String> {
        assign(names).iter().map(PidName::to_string).collect()
    }

    #[test]
    fn what_a_name_may_not_have_is_replaced() {
        let name = |text: &str| pid_name(text).map(|name| name.to_string());
        assert_eq!(name("CERN-PROD").as_deref(), Some("CERN-PROD"));
        assert_eq!(name("cern.ch").as_deref(), Some("cern_ch"));
        assert_eq!(name(" T2 Zürich/ETH ").as_deref(), Some("T2_Z_rich_ETH"));
        assert_eq!(name(&"ä".repeat(99)), Some("_".repeat(64)));
        assert_eq!(name(" "), None);
    }

    #[test]
    fn no_two_are_alike() {
        assert_eq!(assigned(&["a b", "a/b", "a_b", "a_b-2"]), ["a_b-3", "a_b-4", "a_b", "a_b-2"]);
        assert_eq!(assigned(&["a.b", "a_b"]), ["a_b-2", "a_b"]);
        assert_eq!(assigned(&["x", "x", "elsewhere"]), ["x", "x-2", "elsewhere-2"]);
    }

    #[test]
    fn long_names_make_room_for_their_number() {
        let long = "x".repeat(70);
        let names = assigned(&[long.as_str(); 3]);
        assert_eq!(names[0], "x".repeat(64));
        assert_eq!(names[2], format!("{}-3", "x".repeat(62)));
    }
}
