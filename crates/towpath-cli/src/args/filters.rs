//! `--include`, `--exclude` and the bounds of sizes. The order of the patterns counts, across both flags, which clap's
//! derive cannot say.

use std::ffi::OsStr;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind, value_parser};
use towpath_mover::Filter;
use towpath_server::units::ByteSize;

use crate::output::quoted;

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const MIN_SIZE: &str = "min-size";
const MAX_SIZE: &str = "max-size";

/// What of a tree is taken.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    /// What they take.
    pub(crate) filter: Filter,
    /// The flags, as a shell reads them.
    pub(crate) words: Vec<String>,
}

impl FromArgMatches for Filters {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut filter = Filter::default();
        let mut words = Vec::new();
        let mut patterns: Vec<_> = [(INCLUDE, true), (EXCLUDE, false)]
            .into_iter()
            .flat_map(|(flag, includes)| {
                let positions = matches.indices_of(flag).into_iter().flatten();
                let texts = matches.get_many::<String>(flag).into_iter().flatten();
                positions.zip(texts).map(move |(position, text)| (position, includes, text))
            })
            .collect();
        patterns.sort_unstable();
        for (_, includes, pattern) in patterns {
            let flag = if includes { INCLUDE } else { EXCLUDE };
            words.push(format!("--{flag} {}", quoted(OsStr::new(pattern))));
            filter.add(pattern, includes).map_err(|error| Error::raw(ErrorKind::InvalidValue, format!("{error}\n")))?;
        }
        let mut bound = |flag| {
            let size = matches.get_one::<ByteSize>(flag)?.0;
            words.push(format!("--{flag} {size}"));
            Some(size)
        };
        let (least, most) = (bound(MIN_SIZE), bound(MAX_SIZE));
        if least.is_some() || most.is_some() {
            filter.limit_sizes(least.unwrap_or(0)..=most.unwrap_or(u64::MAX));
        }
        Ok(Self { filter, words })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Filters {
    fn augment_args(command: Command) -> Command {
        let flag = |name| Arg::new(name).long(name).help_heading("What of a tree");
        let pattern =
            |name| flag(name).value_name("PATTERN").action(ArgAction::Append).value_parser(value_parser!(String));
        let size = |name| flag(name).value_name("SIZE").value_parser(|text: &str| text.parse::<ByteSize>());
        command
            .arg(pattern(EXCLUDE).help(
                "Leave out what matches, and all below it; repeat for more. The first pattern that matches decides. `*` stands for any part \
                 of a name, `**` for any names; a leading slash means the top of the tree, a final one directories",
            ))
            .arg(pattern(INCLUDE).help("Take what matches. If this is the last pattern, the rest is left out"))
            .arg(size(MIN_SIZE).help("Leave out smaller files (`64KiB`, `1GB`)"))
            .arg(size(MAX_SIZE).help("Leave out larger files"))
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Cli, Command};

    #[test]
    fn patterns_keep_their_order_across_both_flags() {
        let filters = |flags: &[&str]| {
            let words = [&["towpath", "cp", "-r"], flags, &["a", "b"]].concat();
            let Command::Cp(copy) = Cli::try_parse_from(words).unwrap().command else { panic!("it is a copy") };
            format!("{:?}", copy.filters.filter)
        };
        let one_way = filters(&["--include", "a", "--exclude=b", "--include", "c"]);
        assert!(one_way.find("/a").unwrap() < one_way.find("/b").unwrap(), "{one_way}");
        assert!(one_way.find("/b").unwrap() < one_way.find("/c").unwrap(), "{one_way}");
        assert_ne!(one_way, filters(&["--include", "a", "--include", "c", "--exclude=b"]));
        assert!(Cli::try_parse_from(["towpath", "cp", "-r", "--include", "[", "a", "b"]).is_err());
    }
}
