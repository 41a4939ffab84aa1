//! Replica lists in JSON: arrays of URLs, arrays of objects, and the output of Rucio's `list_replicas`.
//!
//! Only the extent of each value is recorded, so that everything else can be written back byte for byte. `serde_json`
//! validates the text; the validated text is then traversed without further checks.

use std::{borrow::Cow, ops::Range};

use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::{Listing, PriorityAt, Replica, ReplicaError, Slot};

/// JSON whitespace.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// Characters between the values of an array or object.
const BETWEEN: [char; 6] = [' ', '\t', '\r', '\n', ',', ':'];

/// Reads the concatenated values in `text`.
///
/// # Errors
/// Returns an error if one is not valid JSON or lists no replicas, or if there are too many.
pub(super) fn read(text: &str, listing: &mut Listing) -> Result<(), ReplicaError> {
    let mut rest = text.trim_start_matches(BLANKS);
    while !rest.is_empty() {
        let value = span_at(text, text.len() - rest.len())?;
        rest = text[value.end..].trim_start_matches(BLANKS);
        if text[value.start..].starts_with('[') {
            read_array(text, &value, listing)?;
            continue;
        }
        let object = Object::read(text, &value)?;
        if object.pfns.is_none() {
            return Err(ReplicaError::invalid(text, value.start, "it is neither an array nor an object with `pfns`"));
        }
        read_file(text, object, listing)?;
    }
    Ok(())
}

/// Reads an array of replicas of one file, or of files.
fn read_array(text: &str, array: &Range<usize>, listing: &mut Listing) -> Result<(), ReplicaError> {
    let mut holds_files = None;
    for element in JsonElements::of(text, array) {
        let element = element?;
        let object = Object::read(text, &element)?;
        let is_file = object.pfns.is_some();
        match holds_files.replace(is_file) {
            Some(held_files) if held_files != is_file => {
                let problem = "an array has either replicas or objects with `pfns`, not both";
                return Err(ReplicaError::invalid(text, element.start, problem));
            }
            None if !is_file => listing.begin(None),
            _ => {}
        }
        if is_file {
            read_file(text, object, listing)?;
        } else {
            object.add(text, element, listing)?;
        }
    }
    Ok(())
}

/// Reads the replicas in `pfns` of a `list_replicas` object.
fn read_file(text: &str, mut object: Object, listing: &mut Listing) -> Result<(), ReplicaError> {
    let pfns = object.pfns.take().unwrap_or_default();
    if !text[pfns.clone()].starts_with('{') {
        return Err(ReplicaError::invalid(text, pfns.start, "`pfns` is not an object"));
    }
    listing.begin(object.title());
    let mut members = JsonElements::of(text, &pfns);
    while let Some(member) = members.next_member()? {
        let is_object = text[member.value.clone()].starts_with('{');
        let object = if is_object { Object::read(text, &member.value)? } else { Object::default() };
        let replica = Object { url: Some(member.name.into_owned()), ..object };
        replica.add(text, member.span, listing)?;
    }
    Ok(())
}

/// Fields of an object that describes a file, a replica or both.
#[derive(Default)]
struct Object {
    /// The replicas of a file, by URL.
    pfns: Option<Range<usize>>,
    scope: Option<String>,
    name: Option<String>,
    url: Option<String>,
    pfn: Option<String>,
    site: Option<String>,
    domain: Option<String>,
    priority: Option<u32>,
    /// Position of `priority`, if it is any kind of number.
    number: Option<Range<usize>>,
}

impl Object {
    /// Reads an object, or a string, which is a URL.
    fn read(text: &str, span: &Range<usize>) -> Result<Self, ReplicaError> {
        if let Some(url) = string(text, span)? {
            return Ok(Self { url: Some(url.into_owned()), ..Self::default() });
        }
        if !text[span.clone()].starts_with('{') {
            return Err(ReplicaError::invalid(text, span.start, "it is neither a URL nor an object"));
        }
        let mut object = Self::default();
        let mut members = JsonElements::of(text, span);
        while let Some(member) = members.next_member()? {
            object.set(text, member)?;
        }
        Ok(object)
    }

    fn set(&mut self, text: &str, member: Member<'_>) -> Result<(), ReplicaError> {
        let value = member.value;
        let owned = || Ok::<_, ReplicaError>(string(text, &value)?.map(Cow::into_owned));
        match &*member.name {
            "pfns" => self.pfns = Some(value),
            "scope" => self.scope = owned()?,
            "name" => self.name = owned()?,
            "url" => self.url = owned()?,
            "pfn" => self.pfn = owned()?,
            "rse" | "location" | "site" => self.site = self.site.take().or(owned()?),
            "domain" => self.domain = owned()?,
            "priority" => {
                let number = &text[value.clone()];
                self.priority = number.parse().ok();
                self.number = number.starts_with(|first: char| first == '-' || first.is_ascii_digit()).then_some(value);
            }
            _ => {}
        }
        Ok(())
    }

    /// Returns the name of the file.
    fn title(self) -> Option<String> {
        match (self.scope, self.name) {
            (Some(scope), Some(name)) => Some(format!("{scope}:{name}")),
            (_, name) => name,
        }
    }

    /// Adds the object, which occupies `span`, as a replica of the last file. If it is dropped, the preceding comma is
    /// removed too.
    fn add(self, text: &str, span: Range<usize>, listing: &mut Listing) -> Result<(), ReplicaError> {
        let Some(url) = self.url.or(self.pfn).or(self.name) else {
            let problem = "an object has none of `url`, `pfn` and `name`";
            return Err(ReplicaError::invalid(text, span.start, problem));
        };
        let dropped = listing.last_mut().map_or(span.start, |(_, before)| before.span.end)..span.end;
        let priority = self.number.map_or(PriorityAt::Nowhere, PriorityAt::Number);
        let replica = Replica { url, site: self.site, priority: self.priority, domain: self.domain };
        listing.add(replica, Slot { span, dropped, priority })
    }
}

/// Iterates over the elements of an array, or alternately the names and values of an object, in validated JSON.
struct JsonElements<'a> {
    text: &'a str,
    /// End of the last value.
    at: usize,
}

/// A member of an object.
struct Member<'a> {
    name: Cow<'a, str>,
    value: Range<usize>,
    /// The quoted name and the value.
    span: Range<usize>,
}

impl<'a> JsonElements<'a> {
    fn of(text: &'a str, container: &Range<usize>) -> Self {
        Self { text, at: container.start + 1 }
    }

    fn next_member(&mut self) -> Result<Option<Member<'a>>, ReplicaError> {
        let (Some(name), Some(value)) = (self.next().transpose()?, self.next().transpose()?) else { return Ok(None) };
        let span = name.start..value.end;
        Ok(Some(Member { name: string(self.text, &name)?.unwrap_or_default(), value, span }))
    }
}

impl Iterator for JsonElements<'_> {
    type Item = Result<Range<usize>, ReplicaError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.text[self.at..].trim_start_matches(BETWEEN);
        if rest.is_empty() || rest.starts_with([']', '}']) {
            return None;
        }
        let span = span_at(self.text, self.text.len() - rest.len());
        self.at = span.as_ref().map_or(self.text.len(), |span| span.end);
        Some(span)
    }
}

/// Returns the extent of the value that starts at byte `start`, which must not be a blank.
fn span_at(text: &str, start: usize) -> Result<Range<usize>, ReplicaError> {
    // Skipping a value needs no stack, however deeply it is nested.
    let mut values = Deserializer::from_str(&text[start..]).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(IgnoredAny)) => Ok(start..start + values.byte_offset()),
        Some(Err(error)) => Err(not_json(text, start, &error)),
        None => Err(ReplicaError::invalid(text, start, "the JSON ends too early")),
    }
}

/// Creates the error for the value at byte `start` that is not valid JSON.
fn not_json(text: &str, start: usize, error: &serde_json::Error) -> ReplicaError {
    let reason = error.to_string();
    // `serde_json` counts lines from the start of the value.
    let reason = reason.split(" at line ").next().unwrap_or_default();
    let mut line_starts = text[start..].match_indices('\n').map(|(at, _)| start + at + 1);
    let line = error.line().checked_sub(2).and_then(|skipped| line_starts.nth(skipped)).unwrap_or(start);
    ReplicaError::invalid(text, line, format!("it is not valid JSON: {reason}"))
}

/// Returns the string at `span`, or `None` if the value is not a string.
fn string<'a>(text: &'a str, span: &Range<usize>) -> Result<Option<Cow<'a, str>>, ReplicaError> {
    let value = &text[span.clone()];
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return Ok(None) };
    if !inner.contains('\\') {
        return Ok(Some(Cow::Borrowed(inner)));
    }
    let unescaped: String = serde_json::from_str(value).map_err(|error| not_json(text, span.start, &error))?;
    Ok(Some(Cow::Owned(unescaped)))
}
