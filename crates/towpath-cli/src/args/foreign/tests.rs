//! Tests of the replacements: all words exist, and the page of the documentation has the same ones.

use std::collections::BTreeSet;

use clap::Command;

use super::*;
use crate::args::{definition, with_two_dashes};

/// The page of the documentation with the same replacements.
const PAGE: &str = include_str!("../../../../../docs/reference/coming-from.md");

fn built() -> Command {
    let mut definition = definition();
    definition.build();
    definition
}

/// Returns the options in `text` as `--long` and `-s`, with `-lR` as `-l` and `-R`.
fn options(text: &str) -> Vec<String> {
    let words = text.split(|other: char| !other.is_ascii_alphanumeric() && other != '-');
    let each = |word: &str| match word.strip_prefix('-') {
        Some(long) if long.starts_with('-') && long.len() > 1 => vec![word.to_owned()],
        Some(letters) => {
            letters.chars().take_while(|letter| *letter != '-').map(|letter| format!("-{letter}")).collect()
        }
        None => Vec::new(),
    };
    // `-7` is a value.
    let is_number = |word: &&str| word.len() > 1 && *word != "-0" && word[1..].parse::<u32>().is_ok();
    words.filter(|word| !is_number(word)).flat_map(each).collect()
}

/// Splits `text` before each `towpath COMMAND`; the first part has the command `None`.
fn by_command(text: &str) -> Vec<(Option<&str>, &str)> {
    let mut parts = text.split("towpath ");
    let first = parts.next().map(|part| (None, part));
    let named = parts.map(|part| (part.split(|other: char| !other.is_ascii_lowercase()).next(), part));
    first.into_iter().chain(named).collect()
}

/// Returns whether a command has the option `word`, such as `--files` or `-r`.
fn has_option(command: &Command, word: &str) -> bool {
    command.get_arguments().any(|arg| match word.strip_prefix("--") {
        Some(long) => arg.get_long_and_visible_aliases().is_some_and(|all| all.contains(&long)),
        None => {
            arg.get_short_and_visible_aliases().is_some_and(|all| all.contains(&word.chars().nth(1).unwrap_or(' ')))
        }
    })
}

/// Returns the rows, each with the commands where the option is expected; none for a command. Omits [`PREFIXES`].
fn rows() -> impl Iterator<Item = (&'static [&'static str], &'static Foreign)> {
    let commands = COMMANDS.iter().map(|row| (&[][..], row)).filter(|(_, row)| !PREFIXES.contains(&row.name));
    OPTIONS.iter().flat_map(|(commands, rows)| rows.iter().map(|row| (*commands, row))).chain(commands)
}

#[test]
fn every_named_replacement_exists() {
    let definition = built();
    let find = |name: &str| definition.find_subcommand(name).unwrap_or_else(|| panic!("no command {name}"));
    for (commands, Foreign { name, advice, .. }) in rows() {
        for (command, part) in by_command(advice) {
            let commands = command.as_ref().map_or(commands, std::slice::from_ref);
            for option in options(part) {
                let has_all = !commands.is_empty() && commands.iter().all(|command| has_option(find(command), &option));
                assert!(has_all, "{name}: {option} of {commands:?}");
            }
            command.map(find);
        }
    }
}

#[test]
fn no_foreign_name_is_an_own_one() {
    let definition = built();
    for (commands, rows) in &OPTIONS {
        for (command, row) in commands.iter().flat_map(|command| rows.iter().map(move |row| (command, row))) {
            let own = definition.find_subcommand(command).unwrap();
            let is_predicate = rows.iter().all(|row| !row.name.starts_with("--")) && *command == "find";
            assert!(!has_option(own, &format!("{}{}", if is_predicate { "-" } else { "" }, row.name)), "{}", row.name);
        }
        assert!(rows.is_sorted_by_key(|row| row.name));
    }
    assert!(COMMANDS.iter().all(|row| definition.find_subcommand(row.name).is_none()));
    assert!(COMMANDS.is_sorted_by_key(|row| row.name));
}

/// What to do, and with which commands, options and environment variables.
#[derive(Debug, Default, PartialEq)]
struct Meaning {
    status: BTreeSet<&'static str>,
    words: BTreeSet<String>,
}

impl Meaning {
    fn of(text: &str) -> Self {
        let status = ["not needed", "not available"].into_iter().find(|status| text.starts_with(status));
        let words = by_command(text)
            .into_iter()
            .flat_map(|(command, part)| options(part).into_iter().chain(command.map(str::to_owned)));
        let variables = text.split(|other: char| !other.is_ascii_uppercase() && other != '_');
        let variables = variables.filter(|word| word.starts_with("AWS_")).map(str::to_owned);
        let words = if status.is_some() { BTreeSet::new() } else { words.chain(variables).collect() };
        Self { status: status.into_iter().collect(), words }
    }
}

/// Words on the page that name the command of an option, and the command of towpath; options without such a word are
/// those of `cp` and `sync`.
const COMMAND_WORDS: [(&str, &str); 10] = [
    ("cp", "cp"),
    ("xrdcp", "cp"),
    ("gfal-copy", "cp"),
    ("rsync", "sync"),
    ("ls", "ls"),
    ("gfal-ls", "ls"),
    ("find", "find"),
    ("du", "du"),
    ("rm", "rm"),
    ("delete", "rm"),
];

/// Commands that precede the words of many rows.
const PREFIXES: [&str; 2] = ["s3", "rsync"];

/// A row of the page: the section, the words of other programs, and the replacement.
struct PageRow {
    section: &'static str,
    /// Number of quoted parts in the left column.
    parts: usize,
    words: Vec<&'static str>,
    replacement: &'static str,
}

impl PageRow {
    /// Returns whether this row is about `foreign`, which is expected as an option of `commands`.
    fn names(&self, commands: &[&str], foreign: &Foreign) -> bool {
        let prefixed = format!("gfal-{}", foreign.name);
        let is_of = |program: &str| self.section.contains(program.split('-').next().unwrap());
        let has_name = self.words.iter().any(|word| *word == foreign.name || *word == prefixed);
        let command = COMMAND_WORDS.iter().find(|(word, _)| self.words.contains(word));
        let own = command.map_or(&["cp", "sync"][..], |(_, command)| std::slice::from_ref(command));
        let is_place = commands.is_empty() || own.iter().any(|command| commands.contains(command));
        has_name && is_place && foreign.programs.split(", ").any(is_of)
    }
}

fn page() -> Vec<PageRow> {
    let mut found = Vec::new();
    for text in PAGE.split("\n## ").skip(1) {
        let section = text.lines().next().unwrap();
        for line in text.lines().filter(|line| line.starts_with("| `")) {
            let (left, replacement) = line.trim_matches('|').split_once(" | ").unwrap();
            let parts: Vec<_> = left.split('`').skip(1).step_by(2).collect();
            let words = parts.iter().flat_map(|part| part.split([' ', '='])).collect();
            found.push(PageRow { section, parts: parts.len(), words, replacement: replacement.trim() });
        }
    }
    assert!(found.len() > 80);
    found
}

#[test]
fn the_page_has_the_same_replacements() {
    let page = page();
    for (commands, row) in rows() {
        let is_on_page = page.iter().any(|on_page| on_page.names(commands, row));
        assert!(is_on_page, "the page lacks {} of {}", row.name, row.programs);
    }
    let mut different = Vec::new();
    for on_page in &page {
        let named: Vec<_> = rows().filter(|(commands, row)| on_page.names(commands, row)).collect();
        if named.is_empty() {
            continue;
        }
        let (mut expected, mut found) = (Meaning::default(), Meaning::of(on_page.replacement));
        for (_, row) in &named {
            let Meaning { status, words } = Meaning::of(row.advice);
            expected.status.extend(status);
            expected.words.extend(words);
        }
        // The page also names the command that has the option.
        let is_own = |word: &str| named.iter().any(|(commands, _)| commands.contains(&word));
        found.words.retain(|word| expected.words.contains(word) || !is_own(word));
        let are_all_foreign = named.len() >= on_page.parts;
        let is_same = if are_all_foreign { expected == found } else { expected.words.is_subset(&found.words) };
        if !is_same || expected.status != found.status {
            different.push((&on_page.words, expected, found));
        }
    }
    assert!(different.is_empty(), "{different:#?}");
}

#[test]
fn options_on_the_page_are_explained() {
    let definition = built();
    let commands: Vec<_> = definition.get_subcommands().collect();
    for row in page() {
        for word in row.words.iter().filter(|word| word.starts_with('-') && word.len() > 1) {
            let is_foreign = rows().any(|(_, row)| row.name == *word);
            let is_own = |words: &[String]| words.iter().all(|word| commands.iter().any(|own| has_option(own, word)));
            let is_predicate = is_own(&[format!("-{word}")]);
            assert!(is_foreign || is_predicate || is_own(&options(word)), "{word} of {:?}", row.words);
        }
    }
}

fn explain(line: &str) -> Option<String> {
    let words: Vec<_> = with_two_dashes(line.split(' ').map(OsString::from)).collect();
    explain_foreign(&definition().try_get_matches_from(&words).unwrap_err(), &words)
}

#[test]
fn foreign_words_are_explained() {
    for (line, explanation) in [
        ("towpath cp -r --transfers 8 a b", "no option --transfers (of rclone): use --files N"),
        ("towpath cp -S 4 a b", "no option -S (of xrdcp): not needed"),
        ("towpath cp -C adler32 a b", "no option -C (of xrdcp): use --checksum"),
        ("towpath cp -a a b", "no option -a (of cp): use -r"),
        ("towpath sync -a a b", "no option -a (of rsync): not needed"),
        ("towpath sync --size-only a b", "no option --size-only (of rclone, aws): use towpath sync --compare size"),
        ("towpath cp --parallel=4 a b", "no option --parallel (of xrdcp): use --files N"),
        ("towpath ls -1 a", "no option -1 (of ls): not needed"),
        ("towpath find a -mtime -7", "no option -mtime (of find): use --newer-than 7d for -7"),
        ("towpath copy a b", "no command copy (of rclone): use towpath sync"),
        ("towpath rmdirs a", "no command rmdirs (of rclone): use towpath find --type d"),
        ("towpath --insecure ls --region x a", "no option --region (of aws): use --s3-region NAME"),
    ] {
        let found = explain(line).unwrap_or_else(|| panic!("no explanation of {line}"));
        assert!(found.starts_with(explanation), "{found}");
    }
    for line in ["towpath cp --unknown a b", "towpath cp", "towpath du --transfers 8 a", "towpath sync --continue a b"]
    {
        assert_eq!(explain(line), None, "{line}");
    }
}

#[test]
fn the_tip_to_use_an_option_as_a_value_is_printed_for_files_only() {
    let error = |line: &str| {
        let error = definition().try_get_matches_from(line.split(' ')).unwrap_err();
        without_misleading_tip(error).to_string()
    };
    let misspelt = error("towpath cp --skip-exist a b");
    assert!(misspelt.contains("--skip-existing") && !misspelt.contains("as a value"), "{misspelt}");
    assert!(!error("towpath ls -y").contains("as a value"));
}
