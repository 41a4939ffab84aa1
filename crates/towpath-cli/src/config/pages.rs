//! The settings of a role as a commented file, and as a page of the documentation.

use std::fmt::Write as _;

use serde_json::Value;

use super::description::{NAME, Section, SectionForm, Setting};

/// Maximum number of characters in a line of prose.
const COLUMNS: usize = 100;

/// Returns a settings file in which every setting is a comment: its default, or an example if it is unset by default.
pub(crate) fn example(role: &str, sections: &[Section]) -> String {
    let mut file = String::new();
    let mut introduction = format!(
        "Settings of `towpath {role}`. Each is a comment here, with its default, or with an example if it is unset by \
         default: remove the `#` before those to change. An entry in double brackets may be repeated."
    );
    if sections.iter().any(|section| matches!(section.form, SectionForm::Entries | SectionForm::Kind { .. })) {
        introduction.push_str(" Other sections whose header is a comment may be repeated under names of your choice.");
    }
    comment(&mut file, &introduction);
    for section in sections {
        if !section.path.is_empty() {
            file.push('\n');
            comment(&mut file, &section.description);
            if let Some(default) = section.default.as_ref().filter(|default| **default != Value::Array(vec![])) {
                comment(&mut file, &format!("By default: {}.", toml_of(default)));
            }
            file.push_str(&example_header(section));
        }
        for setting in &section.settings {
            file.push('\n');
            let required = if setting.is_required { " Required." } else { "" };
            comment(&mut file, &format!("{}{required}{}", setting.description, accepted(setting)));
            for (value, meaning) in &setting.values {
                comment(&mut file, &format!("- {value}: {meaning}"));
            }
            let value = setting.default.as_ref().unwrap_or(&setting.example);
            let _ = writeln!(file, "#{} = {}", setting.name, toml_of(value));
        }
    }
    file
}

/// Returns the header of a section in an example. Only that of a single table is no comment: others would add an entry
/// without settings. The kinds of a section are examples of its names.
fn example_header(section: &Section) -> String {
    let header = section.header();
    match &section.form {
        SectionForm::Table => format!("{header}\n"),
        SectionForm::Array | SectionForm::Entries => format!("#{header}\n"),
        SectionForm::Kind { tag, value } => format!("#{}\n#{tag} = {value:?}\n", header.replace(NAME, value)),
    }
}

/// Returns the reference page of the roles with these sections, in Markdown.
pub(crate) fn reference(roles: &[(&str, Vec<Section>)]) -> String {
    let mut page = "# Settings\n\nGenerated from the source by `towpath config reference`.\n".to_owned();
    for (role, sections) in roles {
        let _ = write!(page, "\n## `towpath {role}`\n");
        for section in sections {
            describe(&mut page, section);
        }
    }
    page
}

/// Adds a section to the reference page.
fn describe(page: &mut String, section: &Section) {
    if !section.path.is_empty() {
        let _ = write!(page, "\n### `{}`", section.header());
        if let SectionForm::Kind { tag, value } = &section.form {
            let _ = write!(page, " with `{tag} = {value:?}`");
        }
        page.push('\n');
    }
    if !section.description.is_empty() {
        let _ = write!(page, "\n{}\n", wrapped(&section.description, COLUMNS).join("\n"));
    }
    if let Some(default) = &section.default {
        let _ = write!(page, "\nDefault: `{}`\n", toml_of(default));
    }
    if section.settings.is_empty() {
        return;
    }
    page.push_str("\n| setting | default | meaning |\n| --- | --- | --- |\n");
    for setting in &section.settings {
        let default = setting.default.as_ref().map(|default| format!("`{}`", toml_of(default)));
        let unset = if setting.is_required { "required" } else { "" };
        let (default, meaning) = (default.unwrap_or_else(|| unset.to_owned()), meaning(setting));
        let _ = writeln!(page, "| `{}` | {default} | {meaning} |", setting.name);
    }
}

/// Returns the description of a setting and its values, for a cell of a table.
fn meaning(setting: &Setting) -> String {
    let values = setting.values.iter().map(|(value, meaning)| format!("<br>`{value}`: {meaning}"));
    let meaning: String = [setting.description.clone(), accepted(setting)].into_iter().chain(values).collect();
    meaning.replace('|', "\\|")
}

/// Returns a sentence with the accepted text of a setting; empty if it is not restricted.
fn accepted(setting: &Setting) -> String {
    // Some texts end with the full stop as an accepted character.
    let text = |accepted: &String| format!(" Accepted: {}.", accepted.trim_end_matches('.'));
    setting.accepted.as_ref().map(text).unwrap_or_default()
}

/// Adds `text` as lines of a comment.
fn comment(file: &mut String, text: &str) {
    for line in wrapped(text, COLUMNS - 2) {
        let _ = writeln!(file, "# {line}");
    }
}

/// Returns the lines of `text` with at most `columns` characters, if no word is longer.
fn wrapped(text: &str, columns: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= columns => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

/// Returns a value as in a file.
pub(super) fn toml_of(value: &Value) -> String {
    toml::Value::try_from(value).map(|value| value.to_string()).unwrap_or_default()
}
