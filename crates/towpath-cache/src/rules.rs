//! Rules by path: when to query the origin for the current version of a file.

use std::{fmt, str::FromStr, time::Duration};

use towpath_proto::units::HumanDuration;
use towpath_store::StorePath;

/// When to query the origin for the version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recheck {
    /// At each open.
    #[default]
    Always,
    /// At an open after this time.
    After(Duration),
    /// Never again: files do not change.
    Never,
}

impl Recheck {
    /// Returns whether to query the origin at `now_s`, after a query at `asked_s`. A time in the future, left by a clock
    /// that was set back, does not count.
    pub(crate) fn is_due(self, asked_s: i64, now_s: i64) -> bool {
        match self {
            Self::Always => true,
            Self::After(time) => !u64::try_from(now_s.saturating_sub(asked_s)).is_ok_and(|age| age < time.as_secs()),
            Self::Never => false,
        }
    }
}

impl FromStr for Recheck {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            duration => match duration.parse::<HumanDuration>() {
                Ok(duration) => Ok(Self::After(duration.0)),
                Err(error) => Err(format!("`{duration}` is neither `always`, `never` nor a duration: {error}")),
            },
        }
    }
}

impl fmt::Display for Recheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Always => f.write_str("always"),
            Self::Never => f.write_str("never"),
            Self::After(time) => HumanDuration(*time).fmt(f),
        }
    }
}

/// The rules of an origin. The rule of the longest path that contains a file counts; without one, `always`.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<(StorePath, Recheck)>);

impl Rules {
    /// Creates the rules of paths of the cache.
    pub fn new(mut rules: Vec<(StorePath, Recheck)>) -> Self {
        rules.sort_by_key(|(path, _)| std::cmp::Reverse(path.components().count()));
        Self(rules)
    }

    /// Returns the rule of a path.
    pub(crate) fn of(&self, path: &StorePath) -> Recheck {
        self.0.iter().find(|(prefix, _)| path.is_within(prefix)).map_or_else(Recheck::default, |(_, rule)| *rule)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_path_counts() {
        let path = |text: &str| StorePath::parse(text.as_bytes()).unwrap();
        let hour = Recheck::After(Duration::from_secs(3600));
        let rules = [("/", hour), ("/a/b", Recheck::Never), ("/a", Recheck::Always)];
        let rules = Rules::new(rules.map(|(text, rule)| (path(text), rule)).to_vec());
        for (text, rule) in [("/x", hour), ("/a/f", Recheck::Always), ("/a/b/f", Recheck::Never), ("/ab", hour)] {
            assert_eq!(rules.of(&path(text)), rule, "{text}");
        }
        assert_eq!(Rules::default().of(&path("/x")), Recheck::Always);
    }

    #[test]
    fn rules_are_written_as_words_or_durations() {
        for text in ["always", "never", "1h"] {
            assert_eq!(text.parse::<Recheck>().unwrap().to_string(), text);
        }
        assert!("sometimes".parse::<Recheck>().unwrap_err().contains("neither"));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_fresh() {
        let hour = Recheck::After(Duration::from_secs(3600));
        assert!(!hour.is_due(1000, 4599));
        assert!(hour.is_due(1000, 4600) && hour.is_due(1000, 999));
        assert!(Recheck::Always.is_due(1000, 1000) && !Recheck::Never.is_due(1000, 0));
    }
}
