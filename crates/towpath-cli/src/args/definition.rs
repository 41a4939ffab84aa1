//! The complete clap definition: that of the derive macros, with options hidden where they have no effect.

use clap::{Arg, Command, CommandFactory as _};

use super::Cli;

/// Heading of the options for access to remote storages.
pub(super) const REMOTE: &str = "Remote storages";

/// Commands that access no remote storage with these options.
const LOCAL: [&str; 10] = ["serve", "cache", "agent", "access", "sched", "lab", "wan", "config", "completions", "man"];

/// Commands that access no bucket.
const WITHOUT_BUCKETS: [&str; 4] = ["alto", "order", "ping", "probe"];

/// Returns the definition of the command line.
pub(crate) fn definition() -> Command {
    let command = Cli::command();
    let remote: Vec<_> =
        command.get_arguments().filter(|arg| arg.get_help_heading() == Some(REMOTE)).cloned().collect();
    let is_for_buckets = |arg: &&Arg| arg.get_long().is_some_and(|long| long.starts_with("s3-"));
    let buckets: Vec<_> = remote.iter().filter(is_for_buckets).cloned().collect();
    let hidden = [(&LOCAL[..], remote), (&WITHOUT_BUCKETS[..], buckets)];
    hidden.into_iter().fold(command, |command, (names, options)| {
        names.iter().fold(command, |command, name| hide(command, name, &options))
    })
}

/// Hides global options in the help of one command, where they are still accepted.
fn hide(command: Command, name: &str, options: &[Arg]) -> Command {
    command.mut_subcommand(name, |subcommand| subcommand.args(options.iter().map(|option| option.clone().hide(true))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        definition().debug_assert();
    }

    #[test]
    fn options_are_shown_where_they_have_an_effect() {
        let help = |words: &[&str]| {
            let words = ["towpath"].iter().chain(words).chain(&["--help"]);
            definition().try_get_matches_from(words).unwrap_err().to_string()
        };
        for (words, has_remote, has_s3) in [
            (&["cp"][..], true, true),
            (&["ping"], true, false),
            (&["alto", "check"], true, false),
            (&["serve"], false, false),
            (&["wan", "up"], false, false),
        ] {
            let help = help(words);
            assert_eq!((help.contains("--ca-file"), help.contains("--s3-region")), (has_remote, has_s3), "{words:?}");
        }
        // Hidden options are accepted.
        definition().try_get_matches_from(["towpath", "ping", "--s3-region", "x", "root://host//f"]).unwrap();
    }

    #[test]
    fn help_is_wrapped_at_words() {
        let error = definition().term_width(80).try_get_matches_from(["towpath", "cp", "--help"]).unwrap_err();
        let help = error.to_string();
        assert!(help.lines().all(|line| line.chars().count() <= 80), "{help}");
        assert!(help.lines().count() > 60);
    }
}
