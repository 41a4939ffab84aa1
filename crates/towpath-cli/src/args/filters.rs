//! `--include`, `--exclude` and the size limits. The order of patterns matters across both options, which clap's derive
//! cannot express.

use std::ffi::OsStr;

use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, error::ErrorKind, value_parser};
use towpath_mover::Filter;
use towpath_server::units::ByteSize;

use crate::output::quoted;

const INCLUDE: &str = "include";
const EXCLUDE: &str = "exclude";
const MIN_SIZE: &str = "min-size";
const MAX_SIZE: &str = "max-size";

/// Filters for the files of a tree.
#[derive(Debug, Clone, Default)]
pub(crate) struct Filters {
    /// The parsed filter.
    pub(crate) filter: Filter,
    /// The options as words for a shell.
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
        let flag = |name| Arg::new(name).long(name).help_heading("Filters");
        let pattern =
            |name| flag(name).value_name("PATTERN").action(ArgAction::Append).value_parser(value_parser!(String));
        let size = |name| flag(name).value_name("SIZE").value_parser(|text: &str| text.parse::<ByteSize>());
        command
            .arg(pattern(EXCLUDE).help(
                "Exclude matching files and directories (with their content); may be repeated. The first matching \
                 pattern decides. `*` matches any part of a name, `**` any number of names; a leading slash anchors \
                 the pattern at the top of the tree, a trailing slash matches directories only",
            ))
            .arg(pattern(INCLUDE).help(
                "Include matching files; may be repeated. If the last pattern is an --include, exclude all other files",
            ))
            .arg(size(MIN_SIZE).help("Exclude smaller files, such as `64KiB` or `1GB`"))
            .arg(size(MAX_SIZE).help("Exclude larger files"))
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
            let Command::Cp(copy) = Cli::try_parse_from(words).unwrap().command else { panic!("expected cp") };
            format!("{:?}", copy.filters.filter)
        };
        let one_way = filters(&["--include", "a", "--exclude=b", "--include", "c"]);
        assert!(one_way.find("/a").unwrap() < one_way.find("/b").unwrap(), "{one_way}");
        assert!(one_way.find("/b").unwrap() < one_way.find("/c").unwrap(), "{one_way}");
        assert_ne!(one_way, filters(&["--include", "a", "--include", "c", "--exclude=b"]));
        assert!(Cli::try_parse_from(["towpath", "cp", "-r", "--include", "[", "a", "b"]).is_err());
    }
}
