//! The settings of a role with their meaning, defaults and values, from the JSON schema of its structs. Sections and
//! settings are sorted by name.

use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// A table of settings.
#[derive(Debug)]
pub(crate) struct Section {
    /// The path of the table; empty for the top level.
    pub(crate) path: Vec<String>,
    /// Whether it is an array of tables.
    pub(crate) is_array: bool,
    pub(crate) description: String,
    /// The entries of an array by default.
    pub(crate) default: Option<Value>,
    pub(crate) settings: Vec<Setting>,
}

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) description: String,
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
        if self.is_array { format!("[[{path}]]") } else { format!("[{path}]") }
    }

    /// Returns the path of one of its settings.
    pub(crate) fn key(&self, setting: &Setting) -> String {
        let names = self.path.iter().chain([&setting.name]);
        names.map(String::as_str).collect::<Vec<_>>().join(".")
    }
}

/// Returns all sections of the settings `T`, the top level first.
pub(crate) fn sections<T: JsonSchema>() -> Vec<Section> {
    let schema = SchemaGenerator::default().into_root_schema_for::<T>();
    let schemas = Schemas { root: schema.as_value() };
    let mut sections = Vec::new();
    let top =
        Section { path: Vec::new(), is_array: false, description: String::new(), default: None, settings: vec![] };
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
        for (name, property) in table["properties"].as_object().into_iter().flatten() {
            let target = self.resolved(property);
            let items = self.resolved(&target["items"]);
            let description = text(&property["description"]).or(text(&target["description"])).unwrap_or_default();
            let default = property.get("default").filter(|default| !default.is_null()).cloned();
            match [target, items].into_iter().find(|table| table["properties"].is_object()) {
                Some(table) => {
                    let path = section.path.iter().chain([name]).cloned().collect();
                    let is_array = std::ptr::eq(table, items);
                    let default = default.filter(|_| is_array);
                    below.push((table, Section { path, is_array, description, default, settings: vec![] }));
                }
                None => section.settings.push(Setting {
                    name: name.clone(),
                    description,
                    default,
                    example: self.example(target),
                    values: values(target).chain(values(items)).collect(),
                }),
            }
        }
        // A table that contains only other tables needs no header.
        if section.path.is_empty() || !section.settings.is_empty() {
            sections.push(section);
        }
        for (table, section) in below {
            self.describe(table, section, sections);
        }
    }

    /// Follows a reference, also of an optional value.
    fn resolved(&self, schema: &'a Value) -> &'a Value {
        let some = schema["anyOf"].as_array().and_then(|any| any.iter().find(|one| one["type"] != "null"));
        let schema = some.unwrap_or(schema);
        let reference = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#'));
        reference.and_then(|pointer| self.root.pointer(pointer)).unwrap_or(schema)
    }

    /// Returns a value of the type `schema`.
    fn example(&self, schema: &'a Value) -> Value {
        let is = |name: &str| {
            schema["type"] == name || schema["type"].as_array().is_some_and(|all| all.contains(&name.into()))
        };
        if let Some((value, _)) = values(schema).next() {
            return value.into();
        }
        if is("array") {
            let items = self.resolved(&schema["items"]);
            let all: Vec<Value> = values(items).map(|(value, _)| value.into()).collect();
            return if all.is_empty() { vec![self.example(items)].into() } else { all.into() };
        }
        if is("boolean") {
            return false.into();
        }
        if is("integer") { 1.into() } else { "...".into() }
    }
}

/// Returns the values of an enumeration and their meaning.
fn values(schema: &Value) -> impl Iterator<Item = (String, String)> {
    let variants = schema["oneOf"].as_array().into_iter().flatten();
    variants.filter_map(|variant| Some((text(&variant["const"])?, text(&variant["description"]).unwrap_or_default())))
}

/// Returns the text of a value with its lines joined.
fn text(value: &Value) -> Option<String> {
    value.as_str().map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "))
}
