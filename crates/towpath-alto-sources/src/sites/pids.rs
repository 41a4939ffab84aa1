//! Names of sites made names of PIDs.

use std::collections::{HashMap, HashSet};

use towpath_alto::names::PidName;

/// The PID of what belongs to no site.
pub const ELSEWHERE: &str = "elsewhere";

/// The most characters of a name (RFC 7285 §10.1).
const MAX_LENGTH: usize = 64;

/// The name of a PID that is closest to `text`: characters that it may not have become `_`, also the dot, which RFC 7285
/// §10.1 reserves, and it is cut to 64. A name of a PID without dots stays as it is. None if nothing is left.
pub fn pid_name(text: &str) -> Option<PidName> {
    let is_allowed = |character: char| character.is_ascii_alphanumeric() || ":@_-".contains(character);
    let allowed = |character: char| if is_allowed(character) { character } else { '_' };
    let name: String = text.trim().chars().take(MAX_LENGTH).map(allowed).collect();
    PidName::new(&name).ok()
}

/// The name of [`ELSEWHERE`].
pub(super) fn elsewhere() -> PidName {
    PidName::new(ELSEWHERE).expect("a valid name")
}

/// A PID for each of `names`, which are not blank. No two are alike, and none is `elsewhere`.
///
/// Names that are names of PIDs come first, so that another one, which has to be changed, takes none of theirs away. Of
/// equals the first keeps its name; the others get `-2`, `-3`, ... in their order.
pub(super) fn assign(names: &[&str]) -> Vec<PidName> {
    let mut order: Vec<usize> = (0..names.len()).collect();
    order.sort_by_key(|position| pid_name(names[*position]).is_none_or(|pid| pid.as_str() != names[*position]));
    let mut free = FreeNames { taken: HashSet::from([elsewhere()]), last_number: HashMap::new() };
    let mut pids = vec![elsewhere(); names.len()];
    for position in order {
        let wanted = pid_name(names[position]).unwrap_or_else(elsewhere);
        pids[position] = free.take(wanted);
    }
    pids
}

/// The names that nobody has yet.
struct FreeNames {
    taken: HashSet<PidName>,
    /// The last number that was tried behind a name, so that many equals take no longer than others.
    last_number: HashMap<PidName, usize>,
}

impl FreeNames {
    /// Takes the wanted name, or one with a number behind it.
    fn take(&mut self, wanted: PidName) -> PidName {
        if self.taken.insert(wanted.clone()) {
            return wanted;
        }
        let number = self.last_number.entry(wanted.clone()).or_insert(1);
        loop {
            *number += 1;
            let name = numbered(&wanted, *number);
            if self.taken.insert(name.clone()) {
                return name;
            }
        }
    }
}

/// That name with `-number` behind it, cut before that if it would be too long.
fn numbered(name: &PidName, number: usize) -> PidName {
    let suffix = format!("-{number}");
    let name = name.as_str();
    // All characters of a name are of one byte.
    let end = name.len().min(MAX_LENGTH.saturating_sub(suffix.len()));
    PidName::new(&format!("{}{suffix}", &name[..end])).expect("a name that is cut, with a number, is a name")
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
