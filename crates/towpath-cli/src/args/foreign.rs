//! Options and commands of other programs, and what replaces them: `rclone copy --transfers 8` is `towpath sync --files
//! 8`. [Coming from other programs](../../../../docs/reference/coming-from.md) has the same replacements.

use std::{ffi::OsString, path::Path};

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
    /// What to do instead, with options of the same command or of a command that it names as `towpath COMMAND`.
    advice: &'static str,
}

const fn row(name: &'static str, programs: &'static str, advice: &'static str) -> Foreign {
    Foreign { name, programs, advice }
}

const ARCHIVE: &str = "use -r; times and modes are always kept, and links are followed";
const ARGUMENTS: &str = "not needed: pass the sources as arguments, as with xargs";
const COMPLETE: &str = "not needed: a file becomes visible only when it is complete and compared";
const LIMIT: &str = "use --limit RATE, as in --limit 25MB/s";
const LINKS: &str = "not needed: links are followed";
const MEASURED: &str = "not needed: the number of connections and the window are determined by measurement";
const PROGRESS: &str = "not needed: progress is shown on a terminal; --events FILE writes it for programs, -q hides it";
const QUIET: &str = "use -q; progress is shown on a terminal only";
const RETRIED: &str = "not needed: lost connections are retried; --failed-to FILE and --retry-from FILE retry the rest";
const UNSUPPORTED: &str = "not available: set it in the storage";
const VERBOSE: &str = "use -v, -vv or -vvv";

/// Tables of options, each with the commands of towpath where they are expected.
const OPTIONS: [(&[&str], &[Foreign]); 8] = [
    (&["cp", "sync"], COPY),
    (&["cp"], CP),
    (&["sync"], SYNC),
    (&["ls"], LS),
    (&["find"], FIND),
    (&["du"], DU),
    (&["rm"], RM),
    (&["cp", "sync", "ls", "find", "du", "stat", "cat", "sum", "mkdir", "rmdir", "mv", "rm", "df", "ping"], REMOTE),
];

/// Options of `cp` and `sync`.
const COPY: &[Foreign] = &[
    row("--acl", "aws", UNSUPPORTED),
    row("--buffer-size", "rclone", MEASURED),
    row("--bwlimit", "rclone", LIMIT),
    row("--checkers", "rclone", "not needed: listings and comparisons run concurrently"),
    row("--copy-links", "rclone", LINKS),
    row("--delete-after", "rclone", "use towpath sync --delete, which deletes at the end"),
    row("--delete-before", "rclone", "use towpath sync --delete, which deletes at the end"),
    row("--delete-during", "rclone", "use towpath sync --delete, which deletes at the end"),
    row("--delete-excluded", "rclone", "not available: excluded files are never deleted"),
    row("--dryrun", "aws", "use --dry-run"),
    row("--exact-timestamps", "aws", "use towpath sync --compare time"),
    row("--fast-list", "rclone", "not needed: large directories are listed in parts"),
    row("--filter", "rclone", "use --include PATTERN and --exclude PATTERN, in the order in which they decide"),
    row("--follow-symlinks", "aws", LINKS),
    row("--links", "rclone", "not available: links are followed"),
    row(
        "--max-age",
        "rclone",
        "use towpath find --newer-than TIME, and pass the paths with xargs, which copies them into one directory",
    ),
    row(
        "--min-age",
        "rclone",
        "use towpath find --older-than TIME, and pass the paths with xargs, which copies them into one directory",
    ),
    row("--multi-thread-streams", "rclone", MEASURED),
    row("--no-follow-symlinks", "aws", "not available: links are followed; --exclude PATTERN omits them"),
    row("--no-progress", "aws", "use -q"),
    row("--only-show-errors", "aws", "use -q"),
    row("--progress", "rclone, aws", PROGRESS),
    row("--s3-chunk-size", "rclone", MEASURED),
    row("--s3-no-check-bucket", "rclone", "not needed: buckets are created by towpath mkdir only"),
    row("--s3-upload-concurrency", "rclone", MEASURED),
    row("--size-only", "rclone, aws", "use towpath sync --compare size"),
    row("--sse", "aws", UNSUPPORTED),
    row("--stats", "rclone", PROGRESS),
    row("--storage-class", "aws", UNSUPPORTED),
    row("--transfers", "rclone", "use --files N; the default fills the path"),
    row("-P", "rclone, xrdcp", "not needed: progress is shown on a terminal, and only complete files become visible"),
    row("-c", "rclone", "use towpath sync --compare digest"),
];

/// Options of `cp`.
const CP: &[Foreign] = &[
    row(
        "--abort-on-failure",
        "gfal-copy",
        "not available: the other files are copied, and the exit code shows failures",
    ),
    row("--archive", "cp", ARCHIVE),
    row("--checksum-mode", "gfal-copy", "not needed: --checksum ALGORITHM compares both ends"),
    row("--continue", "xrdcp", "use --skip-existing; large files are resumed"),
    row("--copy-mode", "gfal-copy", "use --third-party auto, only or never"),
    row("--dynamic-src", "xrdcp", "not needed: a file of unknown length is read to its end"),
    row("--files-from", "rclone", ARGUMENTS),
    row("--from-file", "gfal-copy", ARGUMENTS),
    row("--ignore-existing", "rclone", "use --skip-existing"),
    row("--immutable", "rclone", "not needed: existing files are replaced only with -f or -u"),
    row("--infiles", "xrdcp", ARGUMENTS),
    row("--just-copy", "gfal-copy", "not available: sizes and known digests are always compared"),
    row("--nbstreams", "gfal-copy", MEASURED),
    row("--no-delegation", "gfal-copy", "not needed: a third-party copy happens only with --third-party"),
    row("--no-traverse", "rclone", "not needed: without --skip-existing or -u the destination is not listed"),
    row("--nopbar", "xrdcp", QUIET),
    row("--parallel", "xrdcp", "use --files N; the default fills the path"),
    row("--parent", "gfal-copy", "not needed: missing parent directories are created"),
    row("--posc", "xrdcp", COMPLETE),
    row("--retries", "rclone", RETRIED),
    row("--retry", "xrdcp", RETRIED),
    row("--retry-policy", "xrdcp", RETRIED),
    row("--rm-bad-cksum", "xrdcp", COMPLETE),
    row("--silent", "xrdcp", QUIET),
    row("--sources", "xrdcp", "use --source PLACE for each additional source"),
    row("--streams", "xrdcp", MEASURED),
    row("--tcp-buffersize", "gfal-copy", MEASURED),
    row("--xrate", "xrdcp", LIMIT),
    row("--zip", "xrdcp", "write ?xrdcl.unzip=NAME after the URL of the archive"),
    row("-C", "xrdcp", "use --checksum ALGORITHM"),
    row("-I", "xrdcp", ARGUMENTS),
    row("-K", "gfal-copy", "use --checksum ALGORITHM"),
    row("-L", "cp", LINKS),
    row("-N", "xrdcp", QUIET),
    row("-S", "xrdcp", MEASURED),
    row("-X", "xrdcp", LIMIT),
    row("-a", "cp", ARCHIVE),
    row("-d", "xrdcp", VERBOSE),
    row("-i", "cp", "not needed: existing files are replaced only with -f or -u"),
    row("-s", "xrdcp", QUIET),
    row("-y", "xrdcp", "use --source PLACE for each additional source"),
    row("-z", "xrdcp", "write ?xrdcl.unzip=NAME after the URL of the archive"),
];

/// Options of `sync`.
const SYNC: &[Foreign] = &[
    row("--archive", "rsync", "not needed: trees, times and modes are always kept; links are followed"),
    row("--ignore-existing", "rclone, rsync", "use towpath cp -r -T --skip-existing"),
    row("--recursive", "rsync", "not needed: trees are always complete"),
    row("--retries", "rclone", "not needed: lost connections are retried, and the same command continues"),
    row("--update", "rclone, rsync", "use towpath cp -r -T -u"),
    row("-a", "rsync", "not needed: trees, times and modes are always kept; links are followed"),
    row("-r", "rsync", "not needed: trees are always complete"),
    row("-u", "rclone, rsync", "use towpath cp -r -T -u"),
    row("-z", "rsync", "not available: data are not compressed on the way"),
];

/// Options of `ls`.
const LS: &[Foreign] = &[
    row("--color", "ls", "not available"),
    row("--max-depth", "rclone", "use towpath find --max-depth N"),
    row("--summarize", "aws", "use towpath du -s"),
    row("-1", "ls", "not needed: each line has one name"),
    row("-H", "gfal-ls", "use -h"),
    row("-d", "ls", "use towpath stat"),
];

/// Options of `find`, with one dash.
const FIND: &[Foreign] = &[
    row("-delete", "find", "use -0, then xargs -0 towpath rm --no-glob"),
    row("-exec", "find", "use -0, and pass the paths with xargs -0"),
    row("-ls", "find", "use --json"),
    row("-mindepth", "find", "not available"),
    row("-mmin", "find", "use --newer-than 30min for -30, --older-than 30min for +30"),
    row("-mtime", "find", "use --newer-than 7d for -7, --older-than 7d for +7"),
    row("-newer", "find", "use --newer-than TIME"),
    row("-path", "find", "use --name GLOB, or a URL with a pattern"),
    row("-printf", "find", "use --json"),
    row("-regex", "find", "use --name GLOB"),
];

/// Options of `du`.
const DU: &[Foreign] = &[
    row("-a", "du", "use towpath find --type f --json"),
    row("-b", "du", "use --bytes"),
    row("-c", "du", "not available"),
    row("-k", "du", "use --bytes or -h"),
];

/// Options of `rm`.
const RM: &[Foreign] = &[
    row("--dry-run", "rclone", "not available: towpath find prints the paths of a tree"),
    row("--dryrun", "aws", "not available: towpath find prints the paths of a tree"),
    row("--exclude", "aws", "not available: towpath find prints the paths of a tree"),
    row("--include", "aws", "use towpath find --name GLOB -0, then xargs -0 towpath rm --no-glob"),
    row("-d", "rm", "use towpath rmdir"),
    row("-i", "rm", "not available: towpath find prints the paths of a tree"),
];

/// Options of all commands that access storages.
const REMOTE: &[Foreign] = &[
    row("--ca-bundle", "aws", "use --ca-file PATH"),
    row("--debug", "xrdcp, aws", VERBOSE),
    row("--endpoint-url", "aws", "use --s3-endpoint URL"),
    row("--log-level", "rclone", VERBOSE),
    row("--no-check-certificate", "rclone", "use --insecure, which withholds tokens and passwords"),
    row("--no-sign-request", "aws", "set AWS_SKIP_SIGNATURE=true in the environment"),
    row("--no-verify-ssl", "aws", "use --insecure, which withholds tokens and passwords"),
    row("--profile", "aws", "set AWS_PROFILE in the environment"),
    row("--region", "aws", "use --s3-region NAME"),
    row("--timeout", "gfal-copy, rclone", "use --wait TIME"),
];

/// The commands.
const COMMANDS: &[Foreign] = &[
    row("about", "rclone", "use towpath df"),
    row("bisync", "rclone", "not available: towpath sync has one direction"),
    row("check", "rclone", "use towpath sync -n --delete --compare digest, which prints the differences"),
    row("checksum", "xrdfs", "use towpath sum"),
    row("chmod", "xrdfs, gfal", "not available: copies have the modes of their sources"),
    row("copy", "rclone", "use towpath sync, without --delete, or towpath cp"),
    row("copyto", "rclone", "use towpath sync, without --delete, or towpath cp"),
    row("copyurl", "rclone", "use towpath cp"),
    row(
        "delete",
        "rclone",
        "not available: it removes files and keeps directories; towpath find --type f prints the files",
    ),
    row("deletefile", "rclone", "use towpath rm"),
    row("hashsum", "rclone", "use towpath sum -a ALGORITHM"),
    row("locate", "xrdfs", "not available"),
    row("lsd", "rclone", "use towpath find --type d --max-depth 1"),
    row("lsf", "rclone", "use towpath ls"),
    row("lsjson", "rclone", "use towpath ls --json"),
    row("lsl", "rclone", "use towpath ls -lR"),
    row("mb", "aws", "use towpath mkdir"),
    row("md5sum", "rclone", "use towpath sum -a md5"),
    row("mount", "rclone", "not available"),
    row("move", "rclone", "use towpath mv in one storage, else towpath sync and, if it succeeds, towpath rm -r"),
    row("moveto", "rclone", "use towpath mv in one storage, else towpath sync and, if it succeeds, towpath rm -r"),
    row("ncdu", "rclone", "use towpath du"),
    row("prepare", "xrdfs", "not available"),
    row("presign", "aws", "not available"),
    row("purge", "rclone", "use towpath rm -r"),
    row("query", "xrdfs", "use towpath sum or towpath df"),
    row("rb", "aws", "not available: a bucket is removed with the tools of its storage"),
    row("rcat", "rclone", "use towpath cp - DESTINATION"),
    row("rename", "gfal", "use towpath mv"),
    row("rmdirs", "rclone", "use towpath find --type d, and towpath rmdir --no-glob for each, innermost first"),
    row("rsync", "rsync", "use towpath sync"),
    row("s3", "aws", "use towpath cp, towpath sync, towpath ls or towpath rm, without s3 before the command"),
    row("save", "gfal", "use towpath cp - DESTINATION"),
    row("sha1sum", "rclone", "use towpath sum -a sha1"),
    row("sha256sum", "rclone", "use towpath sum -a sha256"),
    row("size", "rclone", "use towpath du -s"),
    row("spaceinfo", "xrdfs", "use towpath df"),
    row("tree", "rclone", "use towpath ls -R"),
    row("truncate", "xrdfs", "not available"),
];

/// Returns the explanation of an error by an option or a command of another program in the command line `words`.
pub(crate) fn explain_foreign(error: &Error, words: &[OsString]) -> Option<String> {
    let (row, kind) = match (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidSubcommand)) {
        (Some(ContextValue::String(option)), _) => (option_of(words, option)?, "option"),
        (_, Some(ContextValue::String(name))) => (COMMANDS.iter().find(|row| row.name == name)?, "command"),
        _ => return None,
    };
    let Foreign { name, programs, advice } = row;
    Some(format!("no {kind} {name} (of {programs}): {advice}\nTry `towpath --help`."))
}

/// Returns the row of an option of the command in `words`.
fn option_of(words: &[OsString], option: &str) -> Option<&'static Foreign> {
    let has_command = |commands: &[&str], word: &OsString| commands.iter().any(|command| word == command);
    let command = words.iter().find(|word| has_command(OPTIONS[OPTIONS.len() - 1].0, word))?;
    let name = option.split('=').next().unwrap_or_default();
    let rows = OPTIONS.iter().filter(|(commands, _)| has_command(commands, command)).flat_map(|(_, rows)| *rows);
    // Predicates of `find` were given a second dash.
    rows.into_iter().find(|row| row.name == name || (row.name.len() > 2 && name.strip_prefix('-') == Some(row.name)))
}

/// Returns whether `word` is a predicate of the Unix `find` that towpath does not have.
pub(super) fn is_foreign_predicate(word: &str) -> bool {
    FIND.iter().any(|row| row.name == word)
}

/// Removes the tip to write `-- --option`, unless a file has this name.
pub(crate) fn without_misleading_tip(mut error: Error) -> Error {
    let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidArg) else { return error };
    if !Path::new(word).exists()
        && let Some(ContextValue::StyledStrs(mut tips)) = error.remove(ContextKind::Suggested)
    {
        tips.retain(|tip| !tip.to_string().contains("as a value"));
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

#[cfg(test)]
mod tests;
