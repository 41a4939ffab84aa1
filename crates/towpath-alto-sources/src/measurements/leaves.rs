//! Extracts a few values of a large JSON object by their path.

use std::borrow::Cow;

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use towpath_alto::lenient::{self, PartialJson, PartialJsonSeed, Scalar};

/// Returned by [`Leaves::get`] for a path without a value.
static NOTHING: Scalar = Scalar::Nothing;

/// The scalars at a set of paths, such as `end/streams/0/sender/mean_rtt`: member names and element indices. Only the
/// first element of an array is read.
pub(super) struct Leaves {
    paths: &'static [&'static str],
    /// One entry per path in `paths`.
    found: Vec<Scalar>,
    /// Path of the value being read.
    path: String,
}

impl Leaves {
    /// Creates an empty collection for these paths.
    pub(super) fn of(paths: &'static [&'static str]) -> Self {
        Self { paths, found: vec![Scalar::Nothing; paths.len()], path: String::new() }
    }

    /// Returns whether no value was found.
    pub(super) fn are_empty(&self) -> bool {
        self.found.iter().all(Scalar::is_nothing)
    }

    /// Returns whether `path` has a value.
    pub(super) fn has(&self, path: &str) -> bool {
        !self.get(path).is_nothing()
    }

    /// Returns the value at `path`.
    pub(super) fn get(&self, path: &str) -> &Scalar {
        self.position(path).map_or(&NOTHING, |position| &self.found[position])
    }

    /// Returns the number at `path`.
    pub(super) fn number_at(&self, path: &str) -> Option<f64> {
        self.get(path).as_number()
    }

    /// Returns the text at `path`, or an empty string.
    pub(super) fn text_at(&self, path: &str) -> Cow<'_, str> {
        self.get(path).as_text().unwrap_or_default()
    }

    fn position(&self, path: &str) -> Option<usize> {
        self.paths.iter().position(|other| *other == path)
    }

    /// Descends one step and returns whether any wanted path leads there.
    fn enter(&mut self, step: &str) -> bool {
        if !self.path.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(step);
        let path = self.path.as_str();
        let leads_on = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.paths.iter().any(|other| other.strip_prefix(path).is_some_and(leads_on))
    }

    /// Calls `fill` if the current path is wanted.
    fn keep(&mut self, fill: impl FnOnce(&mut Scalar)) {
        if let Some(position) = self.position(&self.path) {
            fill(&mut self.found[position]);
        }
    }
}

impl PartialJson for Leaves {
    fn text(&mut self, text: &str) {
        self.keep(|scalar| scalar.text(text));
    }

    fn number(&mut self, number: f64) {
        self.keep(|scalar| scalar.number(number));
    }

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        let length = self.path.len();
        let is_wanted = self.enter(name);
        let read =
            if is_wanted { members.next_value_seed(PartialJsonSeed(&mut *self)) } else { lenient::pass_over(members) };
        self.path.truncate(length);
        read
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let length = self.path.len();
        if self.enter("0") {
            elements.next_element_seed(PartialJsonSeed(&mut *self))?;
        }
        self.path.truncate(length);
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
