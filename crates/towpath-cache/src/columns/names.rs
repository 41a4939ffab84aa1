//! Names of ROOT files: which ones are of one dataset, and which one is next.

/// End of the names of ROOT files. A version may follow, as in `data._000001.pool.root.1`.
const SUFFIX: &str = ".root";

/// Returns whether a name is that of a ROOT file.
pub(crate) fn is_root(name: &str) -> bool {
    stem(name).is_some()
}

/// Returns the part of the name of a ROOT file before its suffix; `None` for other names.
fn stem(name: &str) -> Option<&str> {
    let unversioned = match name.rsplit_once('.') {
        Some((rest, version)) if !version.is_empty() && version.chars().all(is_digit) => rest,
        _ => name,
    };
    let (stem, suffix) = unversioned.split_at_checked(unversioned.len().checked_sub(SUFFIX.len())?)?;
    suffix.eq_ignore_ascii_case(SUFFIX).then_some(stem)
}

/// Returns the name of the dataset of a file of an origin: the path with each number replaced.
pub(crate) fn dataset_of(origin: &str, path: &str) -> String {
    let mut name = format!("{origin} ");
    let mut is_number = false;
    for character in path.chars() {
        match (is_digit(character), is_number) {
            (true, true) => {}
            (true, false) => name.push('#'),
            (false, _) => name.push(character),
        }
        is_number = is_digit(character);
    }
    name
}

/// Returns the name of the file that probably follows `name` in its dataset: its last number is one more, with at least as
/// many digits. `None` without a number.
pub(crate) fn successor(name: &str) -> Option<String> {
    let stem = stem(name)?;
    let end = stem.rfind(is_digit)? + 1;
    let start = stem.get(..end)?.trim_end_matches(is_digit).len();
    let next = stem.get(start..end)?.parse::<u64>().ok()?.checked_add(1)?;
    let (before, behind, digits) = (name.get(..start)?, name.get(end..)?, end - start);
    Some(format!("{before}{next:0digits$}{behind}"))
}

fn is_digit(character: char) -> bool {
    character.is_ascii_digit()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_root_files_may_have_a_version() {
        for name in ["a.root", "a.ROOT", "data._000001.pool.root.1", ".root", "é.root"] {
            assert!(is_root(name), "{name}");
        }
        for name in ["", "root", "a.root.", "a.root.x1", "a.root.bak", "aroot", "a.root1", "é"] {
            assert!(!is_root(name), "{name}");
        }
    }

    #[test]
    fn files_that_differ_in_digits_are_of_one_dataset() {
        let dataset = |path| dataset_of("root://site", path);
        assert_eq!(dataset("/run_1/data_07.root"), "root://site /run_#/data_#.root");
        assert_eq!(dataset("/run_12/data_7.root"), dataset("/run_1/data_07.root"));
        assert_ne!(dataset("/run_1/mc_07.root"), dataset("/run_1/data_07.root"));
    }

    #[test]
    fn the_last_number_before_the_suffix_counts_on() {
        for (name, next) in [
            ("run_1.root", "run_2.root"),
            ("run_9.root", "run_10.root"),
            ("run_099.root", "run_100.root"),
            ("run_1_nano.root", "run_2_nano.root"),
            ("data._000001.pool.root.1", "data._000002.pool.root.1"),
            ("é7.root", "é8.root"),
        ] {
            assert_eq!(successor(name).as_deref(), Some(next));
        }
        let largest = format!("{}.root", u64::MAX);
        for name in ["nano.root", "run_1.txt", "pool.root.1", &largest, "123456789012345678901234567890.root"] {
            assert_eq!(successor(name), None, "{name}");
        }
    }
}
