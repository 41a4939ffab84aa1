//! The few values that are wanted of a large JSON object, found by where they are in it.

use std::borrow::Cow;

use serde::de::{IgnoredAny, MapAccess, SeqAccess};

use towpath_alto::lenient::{self, Fill, Filling, Scalar};

/// What [`Leaves::get`] gives where there is nothing.
static NOTHING: Scalar = Scalar::Nothing;

/// The scalars at some paths, such as `end/streams/0/sender/mean_rtt`: names of members, and the number of an element.
/// Of arrays only the first element is looked at.
pub(super) struct Leaves {
    wanted: &'static [&'static str],
    /// One for each path that is wanted.
    found: Vec<Scalar>,
    /// Where the value is that is being read.
    path: String,
}

impl Leaves {
    /// None yet of those paths.
    pub(super) fn of(wanted: &'static [&'static str]) -> Self {
        Self { wanted, found: vec![Scalar::Nothing; wanted.len()], path: String::new() }
    }

    /// Whether none was found.
    pub(super) fn are_empty(&self) -> bool {
        self.found.iter().all(Scalar::is_nothing)
    }

    /// Whether something is there.
    pub(super) fn has(&self, path: &str) -> bool {
        !self.get(path).is_nothing()
    }

    /// What is there.
    pub(super) fn get(&self, path: &str) -> &Scalar {
        self.position(path).map_or(&NOTHING, |position| &self.found[position])
    }

    /// The number that is there.
    pub(super) fn number_at(&self, path: &str) -> Option<f64> {
        self.get(path).as_number()
    }

    /// The text that is there; nothing is empty.
    pub(super) fn text_at(&self, path: &str) -> Cow<'_, str> {
        self.get(path).as_text().unwrap_or_default()
    }

    fn position(&self, path: &str) -> Option<usize> {
        self.wanted.iter().position(|wanted| *wanted == path)
    }

    /// Goes one step further down. Tells whether something is wanted there.
    fn enter(&mut self, step: &str) -> bool {
        if !self.path.is_empty() {
            self.path.push('/');
        }
        self.path.push_str(step);
        let path = self.path.as_str();
        let leads_on = |rest: &str| rest.is_empty() || rest.starts_with('/');
        self.wanted.iter().any(|wanted| wanted.strip_prefix(path).is_some_and(leads_on))
    }

    /// Lets `fill` fill what is wanted here, if it is.
    fn keep(&mut self, fill: impl FnOnce(&mut Scalar)) {
        if let Some(position) = self.position(&self.path) {
            fill(&mut self.found[position]);
        }
    }
}

impl Fill for Leaves {
    fn text(&mut self, text: &str) {
        self.keep(|scalar| scalar.text(text));
    }

    fn number(&mut self, number: f64) {
        self.keep(|scalar| scalar.number(number));
    }

    fn member<'de, A: MapAccess<'de>>(&mut self, name: &str, members: &mut A) -> Result<(), A::Error> {
        let length = self.path.len();
        let is_wanted = self.enter(name);
        let read = if is_wanted { members.next_value_seed(Filling(&mut *self)) } else { lenient::pass_over(members) };
        self.path.truncate(length);
        read
    }

    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        let length = self.path.len();
        if self.enter("0") {
            elements.next_element_seed(Filling(&mut *self))?;
        }
        self.path.truncate(length);
        while elements.next_element::<IgnoredAny>()?.is_some() {}
        Ok(())
    }
}
