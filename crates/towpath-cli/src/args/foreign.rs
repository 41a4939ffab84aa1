//! Options and commands of other programs, and what replaces them: `rclone copy --transfers 8` is `towpath cp --files 8`.

use clap::{
    Error,
    error::{ContextKind, ContextValue},
};

/// An option or a command of other programs that towpath does not have.
struct Foreign {
    /// The option, or the name of the command.
    name: &'static str,
    /// The programs.
    programs: &'static str,
    /// What to do instead, with options of `command` or of a command that it names as `towpath COMMAND`.
    advice: &'static str,
}

const fn row(name: &'static str, programs: &'static str, advice: &'static str) -> Foreign {
    Foreign { name, programs, advice }
}

const MEASURED: &str = "not needed: the number of connections and the window are determined by measurement";
const RETRIED: &str = "not needed: lost connections are retried; --failed-to FILE and --retry-from FILE retry the rest";
const COMPLETE: &str = "not needed: a file becomes visible only when it is complete and compared";
const PROGRESS: &str = "not needed: progress is shown on a terminal; --events FILE writes it for programs, -q hides it";
const VERBOSE: &str = "use -v, -vv or -vvv";
const UNSUPPORTED: &str = "towpath cannot set it; set it in the storage";

/// The options of `cp` and `sync`, unless the advice names another command.
const OPTIONS: [Foreign; 72] = [
    row(
        "--abort-on-failure",
        "gfal-copy",
        "not available: the other files are copied, and the exit code shows failures",
    ),
    row("--acl", "aws", UNSUPPORTED),
    row("--buffer-size", "rclone", MEASURED),
    row("--bwlimit", "rclone", "use --limit RATE, as in --limit 25MB/s"),
    row("--checkers", "rclone", "not needed: listings and comparisons run concurrently"),
    row("--checksum-mode", "gfal-copy", "not needed: --checksum ALGORITHM compares both ends"),
    row("--continue", "xrdcp", "use --skip-existing; large files are resumed"),
    row("--copy-links", "rclone", "not needed: links are followed"),
    row("--copy-mode", "gfal-copy", "use --third-party auto, only or never"),
    row("--debug", "xrdcp, aws", VERBOSE),
    row("--delete-after", "rclone", "use towpath sync --delete, which deletes at the end"),
    row("--delete-before", "rclone", "use towpath sync --delete, which deletes at the end"),
    row("--delete-during", "rclone", "use towpath sync --delete, which deletes at the end"),
    row("--delete-excluded", "rclone", "not available: excluded files are never deleted"),
    row("--dryrun", "aws", "use --dry-run"),
    row("--dynamic-src", "xrdcp", "not needed: a file of unknown length is read to its end"),
    row("--endpoint-url", "aws", "use --s3-endpoint URL"),
    row("--exact-timestamps", "aws", "use towpath sync --compare time"),
    row("--fast-list", "rclone", "not needed: large directories are listed in parts"),
    row("--files-from", "rclone", "pass the sources as arguments, as with xargs"),
    row("--filter", "rclone", "use --include PATTERN and --exclude PATTERN, in the order in which they decide"),
    row("--follow-symlinks", "aws", "not needed: links are followed"),
    row("--from-file", "gfal-copy", "pass the sources as arguments, as with xargs"),
    row("--ignore-existing", "rclone", "use --skip-existing"),
    row("--immutable", "rclone", "not needed: existing files are replaced only with -f or -u"),
    row("--infiles", "xrdcp", "pass the sources as arguments, as with xargs"),
    row("--just-copy", "gfal-copy", "not available: sizes and known digests are always compared"),
    row("--log-level", "rclone", VERBOSE),
    row("--max-age", "rclone", "use towpath find --newer-than TIME, and pass the paths with xargs"),
    row("--min-age", "rclone", "use towpath find --older-than TIME, and pass the paths with xargs"),
    row("--multi-thread-streams", "rclone", MEASURED),
    row("--nbstreams", "gfal-copy", MEASURED),
    row("--no-delegation", "gfal-copy", "not needed: a third-party copy happens only with --third-party"),
    row("--no-follow-symlinks", "aws", "not available: links are followed; --exclude PATTERN omits them"),
    row("--no-progress", "aws", "use -q"),
    row("--no-sign-request", "aws", "set AWS_SKIP_SIGNATURE=true in the environment"),
    row("--no-traverse", "rclone", "not needed: without --skip-existing or -u the destination is not listed"),
    row("--nopbar", "xrdcp", "use -q; progress is shown on a terminal only"),
    row("--only-show-errors", "aws", "use -q"),
    row("--parallel", "xrdcp", "use --files N; the default fills the path"),
    row("--posc", "xrdcp", COMPLETE),
    row("--profile", "aws", "set AWS_PROFILE in the environment"),
    row("--progress", "rclone, aws", PROGRESS),
    row("--region", "aws", "use --s3-region NAME"),
    row("--retries", "rclone", RETRIED),
    row("--retry", "xrdcp", RETRIED),
    row("--retry-policy", "xrdcp", RETRIED),
    row("--rm-bad-cksum", "xrdcp", COMPLETE),
    row("--s3-chunk-size", "rclone", MEASURED),
    row("--s3-no-check-bucket", "rclone", "not needed: buckets are created by towpath mkdir only"),
    row("--s3-upload-concurrency", "rclone", MEASURED),
    row("--silent", "xrdcp", "use -q"),
    row("--size-only", "rclone, aws", "use towpath sync --compare size"),
    row("--sources", "xrdcp", "use --source PLACE for each additional source"),
    row("--sse", "aws", UNSUPPORTED),
    row("--stats", "rclone", PROGRESS),
    row("--storage-class", "aws", UNSUPPORTED),
    row("--streams", "xrdcp", MEASURED),
    row("--summarize", "aws", "use towpath du -s"),
    row("--tcp-buffersize", "gfal-copy", MEASURED),
    row("--timeout", "gfal-copy, rclone", "not needed: a stalled request fails with the name of the server"),
    row("--transfers", "rclone", "use --files N; the default fills the path"),
    row("--xrate", "xrdcp", "use --limit RATE, as in --limit 25MB/s"),
    row("--zip", "xrdcp", "write ?xrdcl.unzip=NAME after the URL of the archive"),
    row("-I", "xrdcp", "pass the sources as arguments, as with xargs"),
    row("-K", "gfal-copy", "use --checksum ALGORITHM"),
    row("-N", "xrdcp", "use -q; progress is shown on a terminal only"),
    row("-P", "rclone, xrdcp", "not needed: progress is shown on a terminal, and only complete files become visible"),
    row("-S", "xrdcp", MEASURED),
    row("-X", "xrdcp", "use --limit RATE, as in --limit 25MB/s"),
    row("-y", "xrdcp", "use --source PLACE for each additional source"),
    row("-z", "xrdcp", "write ?xrdcl.unzip=NAME after the URL of the archive"),
];

/// The commands.
const COMMANDS: [Foreign; 24] = [
    row("check", "rclone", "use towpath sync --dry-run"),
    row("checksum", "xrdfs", "use towpath sum"),
    row("copy", "rclone", "use towpath cp -r"),
    row("copyto", "rclone", "use towpath cp -T"),
    row("copyurl", "rclone", "use towpath cp"),
    row("delete", "rclone", "use towpath rm"),
    row("hashsum", "rclone", "use towpath sum -a ALGORITHM"),
    row("lsd", "rclone", "use towpath ls"),
    row("lsf", "rclone", "use towpath find"),
    row("lsjson", "rclone", "use towpath ls --json"),
    row("lsl", "rclone", "use towpath find --type f --json"),
    row("mb", "aws", "use towpath mkdir"),
    row("md5sum", "rclone", "use towpath sum -a md5"),
    row("move", "rclone", "use towpath mv in one storage, else towpath cp -r and then towpath rm -r"),
    row("moveto", "rclone", "use towpath mv in one storage, else towpath cp -T and then towpath rm"),
    row("purge", "rclone", "use towpath rm -r"),
    row("query", "xrdfs", "use towpath sum, towpath df or towpath stat"),
    row("rb", "aws", "not available: a bucket is removed with the tools of its storage"),
    row("rcat", "rclone", "use towpath cp - DESTINATION"),
    row("rmdirs", "rclone", "use towpath find --type d, and towpath rmdir for each, innermost first"),
    row("s3", "aws", "use towpath cp, towpath sync, towpath ls or towpath rm, without s3 before the command"),
    row("sha256sum", "rclone", "use towpath sum -a sha256"),
    row("size", "rclone", "use towpath du -s"),
    row("tree", "rclone", "use towpath ls -R"),
];

/// Returns the explanation of an error by an option or a command of another program.
pub(crate) fn explain_foreign(error: &Error) -> Option<String> {
    let (rows, what, kind) = match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidSubcommand)) {
        (Some(ContextValue::String(name)), _) => (&OPTIONS[..], name, "option"),
        (_, Some(ContextValue::String(name))) => (&COMMANDS[..], name, "command"),
        _ => return None,
    };
    let name = what.split('=').next().unwrap_or_default();
    let Foreign { programs, advice, .. } = rows.iter().find(|row| row.name == name)?;
    Some(format!("no {kind} {name} (of {programs}): {advice}\nTry `towpath --help`."))
}

#[cfg(test)]
mod tests {
    use clap::Command;

    use super::*;
    use crate::args::definition;

    /// Returns whether a command has the option `word`, such as `--files` or `-r`.
    fn has_option(command: &Command, word: &str) -> bool {
        command.get_arguments().any(|arg| match word.strip_prefix("--") {
            Some(long) => arg.get_long() == Some(long),
            None => word.chars().nth(1) == arg.get_short(),
        })
    }

    #[test]
    fn every_named_replacement_exists() {
        let mut definition = definition();
        definition.build();
        let find = |name: &str| definition.find_subcommand(name).unwrap_or_else(|| panic!("no command {name}"));
        for Foreign { name, advice, .. } in OPTIONS.iter().chain(&COMMANDS) {
            let words: Vec<_> = advice.split([' ', ',', ';', ':']).collect();
            let mut commands = vec!["cp", "sync"];
            for (index, word) in words.iter().enumerate() {
                if *word == "towpath" && words[index + 1] != "cannot" {
                    commands = vec![words[index + 1]];
                    find(words[index + 1]);
                }
                if word.len() > 1 && word.starts_with('-') {
                    // -vv repeats an option.
                    let word = if word.starts_with("--") { word } else { &word[..2] };
                    assert!(commands.iter().any(|name| has_option(find(name), word)), "{name}: {word}");
                }
            }
        }
    }

    #[test]
    fn no_foreign_name_is_an_own_one() {
        let mut definition = definition();
        definition.build();
        for Foreign { name, .. } in &OPTIONS {
            let is_own = ["cp", "sync"].map(|command| has_option(definition.find_subcommand(command).unwrap(), name));
            assert!(is_own.iter().all(|is_own| !is_own), "{name}");
        }
        assert!(COMMANDS.iter().all(|row| definition.find_subcommand(row.name).is_none()));
        assert!(OPTIONS.is_sorted_by_key(|row| row.name) && COMMANDS.is_sorted_by_key(|row| row.name));
    }

    #[test]
    fn foreign_words_are_explained() {
        let explain = |line: &str| explain_foreign(&definition().try_get_matches_from(line.split(' ')).unwrap_err());
        let explanation = explain("towpath cp -r --transfers 8 a b").unwrap();
        assert!(explanation.starts_with("no option --transfers (of rclone): use --files N"), "{explanation}");
        for line in ["towpath cp -S 4 a b", "towpath sync --size-only a b", "towpath cp --parallel=4 a b"] {
            assert!(explain(line).unwrap().starts_with("no option -"), "{line}");
        }
        assert!(explain("towpath copy a b").unwrap().contains("use towpath cp -r"));
        assert!(explain("towpath cp --unknown a b").is_none() && explain("towpath cp").is_none());
    }
}
