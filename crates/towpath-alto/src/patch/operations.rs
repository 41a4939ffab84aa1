//! Computes JSON patches (RFC 6902).

use std::collections::HashSet;

use serde_json::{Map, Value};

/// Returns the JSON patch from `old` to `new` (RFC 6902): an array of `add`, `remove` and `replace`, empty if they are
/// equal.
///
/// Two arrays of the same length that contain objects or arrays are compared element by element. In other arrays,
/// elements present in only one version are added and removed in place; the others are kept as far as their order is
/// the same in both. Takes time linear in the size of the documents.
pub(crate) fn json_patch(old: &Value, new: &Value) -> Value {
    let mut differences = Differences { path: String::new(), operations: Vec::new() };
    differences.compare(old, new);
    Value::Array(differences.operations)
}

/// The operations found so far.
struct Differences {
    /// JSON pointer to the current value (RFC 6901).
    path: String,
    operations: Vec<Value>,
}

impl Differences {
    fn compare(&mut self, old: &Value, new: &Value) {
        match (old, new) {
            (Value::Object(old), Value::Object(new)) => self.compare_objects(old, new),
            (Value::Array(old), Value::Array(new)) => self.compare_arrays(old, new),
            (old, new) if old == new => {}
            (_, new) => self.push("replace", Some(new)),
        }
    }

    fn compare_objects(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        for name in old.keys().filter(|name| !new.contains_key(*name)) {
            self.at(name, |at| at.push("remove", None));
        }
        for (name, value) in new {
            self.at(name, |at| match old.get(name) {
                Some(old) => at.compare(old, value),
                None => at.push("add", Some(value)),
            });
        }
    }

    fn compare_arrays(&mut self, old: &[Value], new: &[Value]) {
        if old.len() == new.len() && new.iter().any(|element| element.is_object() || element.is_array()) {
            for (index, (old, new)) in old.iter().zip(new).enumerate() {
                self.at(&index.to_string(), |at| at.compare(old, new));
            }
            return;
        }
        let head = old.iter().zip(new).take_while(|(old, new)| old == new).count();
        let backwards = old[head..].iter().rev().zip(new[head..].iter().rev());
        let tail = backwards.take_while(|(old, new)| old == new).count();
        self.edit(head, &old[head..old.len() - tail], &new[head..new.len() - tail]);
    }

    /// Emits the operations that turn the elements `old`, which start at `index`, into `new`.
    fn edit(&mut self, mut index: usize, mut old: &[Value], mut new: &[Value]) {
        let (before, after): (HashSet<&Value>, HashSet<&Value>) = (old.iter().collect(), new.iter().collect());
        loop {
            let (was, is) = match (old.first(), new.first()) {
                (Some(was), Some(is)) if !after.contains(was) && before.contains(is) => (Some(was), None),
                (Some(was), Some(is)) if after.contains(was) && !before.contains(is) => (None, Some(is)),
                both => both,
            };
            let token = index.to_string();
            match (was, is) {
                (None, None) => return,
                (Some(was), Some(is)) if was == is => {}
                (Some(_), Some(is)) => self.at(&token, |at| at.push("replace", Some(is))),
                (Some(_), None) => self.at(&token, |at| at.push("remove", None)),
                (None, Some(is)) => self.at(&token, |at| at.push("add", Some(is))),
            }
            old = &old[usize::from(was.is_some())..];
            new = &new[usize::from(is.is_some())..];
            // After a removal, the next element has the same index.
            index += usize::from(is.is_some());
        }
    }

    /// Calls `what` with the path extended by the member or element `token`.
    fn at(&mut self, token: &str, what: impl FnOnce(&mut Self)) {
        let length = self.path.len();
        self.path.push('/');
        for character in token.chars() {
            match character {
                '~' => self.path.push_str("~0"),
                '/' => self.path.push_str("~1"),
                other => self.path.push(other),
            }
        }
        what(self);
        self.path.truncate(length);
    }

    /// Adds an operation at the current path.
    fn push(&mut self, op: &str, value: Option<&Value>) {
        let mut operation = Map::new();
        operation.insert("op".to_owned(), Value::from(op));
        operation.insert("path".to_owned(), Value::from(self.path.as_str()));
        if let Some(value) = value {
            operation.insert("value".to_owned(), value.clone());
        }
        self.operations.push(Value::Object(operation));
    }
}
