//! Rules by path: when to query the origin for the current version of a file.

use std::{fmt, str::FromStr, time::Duration};

use towpath_proto::units::HumanDuration;
use towpath_store::{Freshness, StorePath};

/// When to query the origin for the version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Recheck {
    /// At an open after the lifetime that the origin states; at each open if it states none.
    #[default]
    Origin,
    /// At each open.
    Always,
    /// At an open after this time.
    After(Duration),
    /// Never again: files do not change.
    Never,
}

impl Recheck {
    /// Returns whether to query the origin at `now_s`, after a query at `asked_s` whose response stated `freshness`. A
    /// time in the future, left by a clock that was set back, does not count.
    pub(crate) fn is_due(self, asked_s: i64, freshness: &Freshness, now_s: i64) -> bool {
        match self {
            Self::Origin => !freshness.is_fresh(now_s),
            Self::Always => true,
            Self::After(time) => !u64::try_from(now_s.saturating_sub(asked_s)).is_ok_and(|age| age < time.as_secs()),
            Self::Never => false,
        }
    }

    /// Returns whether the operator decides, whatever the origin states.
    pub(crate) fn is_explicit(self) -> bool {
        matches!(self, Self::After(_) | Self::Never)
    }
}

impl FromStr for Recheck {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "origin" => Ok(Self::Origin),
            "always" => Ok(Self::Always),
            "never" => Ok(Self::Never),
            duration => match duration.parse::<HumanDuration>() {
                Ok(duration) => Ok(Self::After(duration.0)),
                Err(error) => {
                    Err(format!("`{duration}` is neither `origin`, `always`, `never` nor a duration: {error}"))
                }
            },
        }
    }
}

impl fmt::Display for Recheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Origin => f.write_str("origin"),
            Self::Always => f.write_str("always"),
            Self::Never => f.write_str("never"),
            Self::After(time) => HumanDuration(*time).fmt(f),
        }
    }
}

/// The settings for the files below a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Rule {
    /// When to query the origin for the version of a file.
    pub recheck: Recheck,
    /// Time after the end of the freshness during which a known version replaces an error of the origin, unless the
    /// origin forbids it. `None` leaves it to the origin.
    pub stale_if_error: Option<Duration>,
    /// Time during which a missing file is not looked for again. `None` leaves it to the origin, unless each open is a
    /// check.
    pub missing: Option<Duration>,
}

impl From<Recheck> for Rule {
    fn from(recheck: Recheck) -> Self {
        Self { recheck, ..Self::default() }
    }
}

/// The rules of an origin. The rule of the longest path that contains a file counts; without one, the default.
#[derive(Debug, Clone, Default)]
pub struct Rules(Vec<(StorePath, Rule)>);

impl Rules {
    /// Creates the rules of paths of the cache.
    pub fn new<R: Into<Rule>>(rules: Vec<(StorePath, R)>) -> Self {
        let mut rules: Vec<_> = rules.into_iter().map(|(path, rule)| (path, rule.into())).collect();
        rules.sort_by_key(|(path, _)| std::cmp::Reverse(path.components().count()));
        Self(rules)
    }

    /// Returns the rule of a path.
    pub(crate) fn of(&self, path: &StorePath) -> Rule {
        self.0.iter().find(|(prefix, _)| path.is_within(prefix)).map_or_else(Rule::default, |(_, rule)| *rule)
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
            assert_eq!(rules.of(&path(text)).recheck, rule, "{text}");
        }
        assert_eq!(Rules::default().of(&path("/x")), Rule::from(Recheck::Origin));
    }

    #[test]
    fn rules_are_written_as_words_or_durations() {
        for text in ["origin", "always", "never", "1h"] {
            assert_eq!(text.parse::<Recheck>().unwrap().to_string(), text);
        }
        assert!("sometimes".parse::<Recheck>().unwrap_err().contains("neither"));
    }

    #[test]
    fn a_clock_that_was_set_back_makes_nothing_fresh() {
        let hour = Recheck::After(Duration::from_secs(3600));
        let silent = Freshness::new("", 1000);
        let is_due = |recheck: Recheck, now_s| recheck.is_due(1000, &silent, now_s);
        assert!(!is_due(hour, 4599));
        assert!(is_due(hour, 4600) && is_due(hour, 999));
        assert!(is_due(Recheck::Always, 1000) && is_due(Recheck::Origin, 1000) && !is_due(Recheck::Never, 0));
        let stated = Freshness::new("max-age=10", 995);
        for (now_s, expected) in [(994, true), (995, false), (1004, false), (1005, true)] {
            assert_eq!(Recheck::Origin.is_due(1000, &stated, now_s), expected, "{now_s}");
        }
        assert!(Recheck::Always.is_due(1000, &stated, 1000));
    }
}
