//! Lists of replicas as JSON: arrays of URLs, arrays of objects, and what Rucio's `list_replicas` gives.
//!
//! Only where values start and end is looked for, so that all else can be written again byte for byte. `serde_json`
//! judges whether the text is JSON; what was judged is then walked through without asking again.

use std::{borrow::Cow, ops::Range};

use serde::de::IgnoredAny;
use serde_json::Deserializer;

use super::{Listing, PriorityAt, Replica, ReplicaError, Slot};

/// The blanks of JSON.
const BLANKS: [char; 4] = [' ', '\t', '\r', '\n'];

/// What is between the values in an array or object.
const BETWEEN: [char; 6] = [' ', '\t', '\r', '\n', ',', ':'];

/// Reads the values of `text`, of which each stands for itself.
///
/// # Errors
/// If one is no JSON or tells of no replicas, or there are too many.
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

/// Reads an array of the replicas of one file, or of files.
fn read_array(text: &str, array: &Range<usize>, listing: &mut Listing) -> Result<(), ReplicaError> {
    let mut holds_files = None;
    for element in Inside::of(text, array) {
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

/// Reads the replicas in the `pfns` of an object of `list_replicas`.
fn read_file(text: &str, mut object: Object, listing: &mut Listing) -> Result<(), ReplicaError> {
    let pfns = object.pfns.take().unwrap_or_default();
    if !text[pfns.clone()].starts_with('{') {
        return Err(ReplicaError::invalid(text, pfns.start, "`pfns` is no object"));
    }
    listing.begin(object.title());
    let mut members = Inside::of(text, &pfns);
    while let Some(member) = members.next_member()? {
        let is_object = text[member.value.clone()].starts_with('{');
        let told = if is_object { Object::read(text, &member.value)? } else { Object::default() };
        let replica = Object { url: Some(member.name.into_owned()), ..told };
        replica.add(text, member.span, listing)?;
    }
    Ok(())
}

/// What an object tells; of a file, a replica or both.
#[derive(Default)]
struct Object {
    /// The replicas of a file, by their URLs.
    pfns: Option<Range<usize>>,
    scope: Option<String>,
    name: Option<String>,
    url: Option<String>,
    pfn: Option<String>,
    site: Option<String>,
    domain: Option<String>,
    priority: Option<u32>,
    /// Where `priority` is, if it is a number of whatever kind.
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
        let mut members = Inside::of(text, span);
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

    /// What the file is called.
    fn title(self) -> Option<String> {
        match (self.scope, self.name) {
            (Some(scope), Some(name)) => Some(format!("{scope}:{name}")),
            (_, name) => name,
        }
    }

    /// Adds it as a replica, which is what `span` holds, to the last file. If it is dropped, the comma before it goes too.
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

/// The elements of an array, or the names and values of an object in turn, that was found to be JSON.
struct Inside<'a> {
    text: &'a str,
    /// Behind the last one.
    at: usize,
}

/// A name and a value in an object.
struct Member<'a> {
    name: Cow<'a, str>,
    value: Range<usize>,
    /// The name with its quotes, and the value.
    span: Range<usize>,
}

impl<'a> Inside<'a> {
    fn of(text: &'a str, container: &Range<usize>) -> Self {
        Self { text, at: container.start + 1 }
    }

    fn next_member(&mut self) -> Result<Option<Member<'a>>, ReplicaError> {
        let (Some(name), Some(value)) = (self.next().transpose()?, self.next().transpose()?) else { return Ok(None) };
        let span = name.start..value.end;
        Ok(Some(Member { name: string(self.text, &name)?.unwrap_or_default(), value, span }))
    }
}

impl Iterator for Inside<'_> {
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

/// The value that starts at the byte `start`, which is no blank.
fn span_at(text: &str, start: usize) -> Result<Range<usize>, ReplicaError> {
    // Skipping a value takes no stack, however deep it is.
    let mut values = Deserializer::from_str(&text[start..]).into_iter::<IgnoredAny>();
    match values.next() {
        Some(Ok(IgnoredAny)) => Ok(start..start + values.byte_offset()),
        Some(Err(error)) => Err(not_json(text, start, &error)),
        None => Err(ReplicaError::invalid(text, start, "the JSON ends too early")),
    }
}

/// That the value which starts at the byte `start` is no JSON.
fn not_json(text: &str, start: usize, error: &serde_json::Error) -> ReplicaError {
    let reason = error.to_string();
    // It counts lines from where the value starts.
    let reason = reason.split(" at line ").next().unwrap_or_default();
    let mut line_starts = text[start..].match_indices('\n').map(|(at, _)| start + at + 1);
    let line = error.line().checked_sub(2).and_then(|skipped| line_starts.nth(skipped)).unwrap_or(start);
    ReplicaError::invalid(text, line, format!("it is no JSON: {reason}"))
}

/// The string that a value is; none if it is something else.
fn string<'a>(text: &'a str, span: &Range<usize>) -> Result<Option<Cow<'a, str>>, ReplicaError> {
    let value = &text[span.clone()];
    let Some(inner) = value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')) else { return Ok(None) };
    if !inner.contains('\\') {
        return Ok(Some(Cow::Borrowed(inner)));
    }
    let unescaped: String = serde_json::from_str(value).map_err(|error| not_json(text, span.start, &error))?;
    Ok(Some(Cow::Owned(unescaped)))
}
