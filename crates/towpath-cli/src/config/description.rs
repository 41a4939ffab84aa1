//! The settings of a role with their meaning, defaults and values, from the JSON schema of its structs. Sections and
//! settings are sorted by name, the kinds of a section as in the source.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Value, json};

/// Stands for the name of an entry, which users choose.
pub(crate) const NAME: &str = "NAME";

/// A table of settings.
#[derive(Debug)]
pub(crate) struct Section {
    /// The path of the table; empty for the top level. The last element is [`NAME`] for entries.
    pub(crate) path: Vec<String>,
    pub(crate) form: SectionForm,
    pub(crate) description: String,
    /// The entries of an array by default.
    pub(crate) default: Option<Value>,
    pub(crate) settings: Vec<Setting>,
}

/// How often a table occurs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SectionForm {
    /// Once.
    Table,
    /// Any number of times, as the elements of an array.
    Array,
    /// Any number of times, under different names.
    Entries,
    /// As [`SectionForm::Entries`], if the setting `tag` has this value.
    Kind {
        /// The name of the setting.
        tag: String,
        /// Its value.
        value: String,
    },
}

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) is_required: bool,
    /// Which text is accepted, if it is restricted.
    pub(crate) accepted: Option<String>,
    /// `None` if it is unset by default.
    pub(crate) default: Option<Value>,
    /// A value of its type.
    pub(crate) example: Value,
    /// The valid values and their meaning; empty if they cannot be listed.
    pub(crate) values: Vec<(String, String)>,
}

impl Section {
    /// Returns the path of the table, as in a header of TOML.
    pub(crate) fn header(&self) -> String {
        let path = self.path.join(".");
        if self.form == SectionForm::Array { format!("[[{path}]]") } else { format!("[{path}]") }
    }
}

/// Returns all sections of the settings `T`, the top level first.
pub(crate) fn sections<T: JsonSchema>() -> Vec<Section> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let schemas = Schemas { root: schema.as_value() };
    let mut sections = Vec::new();
    let top = Section {
        path: Vec::new(),
        form: SectionForm::Table,
        description: String::new(),
        default: None,
        settings: Vec::new(),
    };
    schemas.describe(schema.as_value(), top, &mut sections);
    sections
}

/// The schemas that references in a root schema refer to.
struct Schemas<'a> {
    root: &'a Value,
}

impl<'a> Schemas<'a> {
    /// Adds `section`, whose settings are the properties of `table`, and the sections below it.
    fn describe(&self, table: &'a Value, mut section: Section, sections: &mut Vec<Section>) {
        let mut below = Vec::new();
        for (name, property) in self.properties(table) {
            let tables = self.tables(name, property, &section);
            match tables.is_empty() {
                true => section.settings.push(self.setting(name, property, table)),
                false => below.extend(tables),
            }
        }
        // The tag is in the form of the section.
        if let SectionForm::Kind { tag, .. } = &section.form {
            section.settings.retain(|setting| setting.name != *tag);
        }
        // A table that contains only other tables needs no header.
        if section.path.is_empty() || !section.settings.is_empty() {
            sections.push(section);
        }
        for (table, section) in below {
            self.describe(table, section, sections);
        }
    }

    /// Returns the properties of a table, also those that it takes over by reference.
    fn properties(&self, table: &'a Value) -> impl Iterator<Item = (&'a String, &'a Value)> {
        let referenced = Some(self.resolved(table)).filter(|resolved| !std::ptr::eq(*resolved, table));
        let tables = [Some(table), referenced].into_iter().flatten();
        tables.flat_map(|table| table["properties"].as_object().into_iter().flatten())
    }

    /// Returns the sections that `property` consists of, with their schemas; empty if it is a setting of `parent`.
    fn tables(&self, name: &str, property: &'a Value, parent: &Section) -> Vec<(&'a Value, Section)> {
        let target = self.resolved(property);
        let (items, entries) = (self.resolved(&target["items"]), self.resolved(&target["additionalProperties"]));
        let path: Vec<String> = parent.path.iter().cloned().chain([name.to_owned()]).collect();
        let entry_path = || path.iter().cloned().chain([NAME.to_owned()]).collect();
        let description = description(property, target);
        let section = |path, form, description| Section { path, form, description, default: None, settings: vec![] };
        let is_table = |schema: &Value| schema["properties"].is_object();
        if is_table(target) {
            vec![(target, section(path, SectionForm::Table, description))]
        } else if is_table(items) {
            let default = default(property);
            vec![(items, Section { default, ..section(path, SectionForm::Array, description) })]
        } else if is_table(entries) {
            vec![(entries, section(entry_path(), SectionForm::Entries, description))]
        } else {
            let kinds: Vec<_> = elements(&entries["oneOf"]).filter_map(|kind| Some((kind, kind_of(kind)?))).collect();
            let has_kinds = !kinds.is_empty();
            let own = has_kinds.then(|| (&Value::Null, section(path.clone(), SectionForm::Table, description)));
            let kinds = kinds.into_iter().map(|(kind, form)| {
                (kind, section(entry_path(), form, text(&kind["description"]).unwrap_or_default()))
            });
            own.into_iter().chain(kinds).collect()
        }
    }

    /// Returns the setting with the schema `property` in `table`.
    fn setting(&self, name: &str, property: &'a Value, table: &'a Value) -> Setting {
        let target = self.resolved(property);
        let accepted = property["accepted"].as_str().or_else(|| self.accepted(target));
        let example = property["examples"].get(0).cloned();
        let tables = [table, self.resolved(table)];
        Setting {
            name: name.to_owned(),
            description: description(property, target),
            accepted: accepted.map(str::to_owned),
            is_required: tables.iter().flat_map(|table| elements(&table["required"])).any(|required| required == name),
            default: default(property).filter(|default| *default != json!({})),
            example: example.unwrap_or_else(|| self.example(target)),
            values: values(target).chain(values(self.resolved(&target["items"]))).collect(),
        }
    }

    /// Follows a reference, also of an optional value.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let some = elements(&schema["anyOf"]).find(|one| one["type"] != "null");
        let schema = some.unwrap_or(schema);
        let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        reference.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }

    /// Returns which text is accepted as a value of the type `schema`, or as each element of a collection.
    fn accepted(&self, schema: &'a Value) -> Option<&'a str> {
        let inner = |name: &str| schema.get(name).and_then(|inner| self.accepted(self.resolved(inner)));
        schema["accepted"].as_str().or_else(|| inner("items")).or_else(|| inner("additionalProperties"))
    }

    /// Returns a value of the type `schema`.
    fn example(&self, schema: &'a Value) -> Value {
        let is = |name: &str| {
            schema["type"] == name || schema["type"].as_array().is_some_and(|all| all.contains(&name.into()))
        };
        if let Some(example) = schema["examples"].get(0) {
            return example.clone();
        }
        if let Some((value, _)) = values(schema).next() {
            return value.into();
        }
        if is("array") {
            let items = self.resolved(&schema["items"]);
            let all: Vec<Value> = values(items).map(|(value, _)| value.into()).collect();
            return if all.is_empty() { vec![self.example(items)].into() } else { all.into() };
        }
        if is("object") {
            return json!({ NAME: self.example(self.resolved(&schema["additionalProperties"])) });
        }
        if is("boolean") {
            return false.into();
        }
        if is("integer") { 1.into() } else { "...".into() }
    }
}

/// Returns the form of a section that is one of several kinds: a table with a property of a constant value.
fn kind_of(table: &Value) -> Option<SectionForm> {
    let mut properties = table["properties"].as_object()?.iter();
    properties.find_map(|(tag, property)| {
        Some(SectionForm::Kind { tag: tag.clone(), value: property["const"].as_str()?.to_owned() })
    })
}

/// Returns the description of a property, or else of its type.
fn description(property: &Value, target: &Value) -> String {
    text(&property["description"]).or_else(|| text(&target["description"])).unwrap_or_default()
}

/// Returns the default of a property, unless it is unset.
fn default(property: &Value) -> Option<Value> {
    property.get("default").filter(|default| !default.is_null()).cloned()
}

fn elements(array: &Value) -> impl Iterator<Item = &Value> {
    array.as_array().into_iter().flatten()
}

/// Returns the values of an enumeration and their meaning.
fn values(schema: &Value) -> impl Iterator<Item = (String, String)> {
    let variants = elements(&schema["oneOf"]);
    variants.filter_map(|variant| Some((text(&variant["const"])?, text(&variant["description"]).unwrap_or_default())))
}

/// Returns the text of a value with its lines joined.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}
