//! Header fields of WebDAV (RFC 4918 §10).

/// Depth of a request below its target (§10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Depth {
    /// Only the target.
    Zero,
    /// The target and its direct members.
    One,
    /// Everything below the target.
    Infinity,
}

impl Depth {
    /// Parses a `Depth` field; `None` for any other value.
    pub fn parse(value: &str) -> Option<Self> {
        match value.trim() {
            "0" => Some(Self::Zero),
            "1" => Some(Self::One),
            infinity if infinity.eq_ignore_ascii_case("infinity") => Some(Self::Infinity),
            _ => None,
        }
    }

    /// Returns the value of the field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zero => "0",
            Self::One => "1",
            Self::Infinity => "infinity",
        }
    }
}

/// Parses a `Timeout` field (§10.7): the requested duration of a lock in seconds, at most 2^32 - 1; `None` if the field
/// requests none.
///
/// `Infinite` is the maximum. The first valid value is used.
pub fn parse_timeout(value: &str) -> Option<u32> {
    value.split(',').map(str::trim).find_map(|choice| {
        if choice.eq_ignore_ascii_case("infinite") {
            return Some(u32::MAX);
        }
        let (unit, digits) = choice.split_once('-')?;
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        // A number that does not fit is treated as the maximum.
        (unit.eq_ignore_ascii_case("second") && is_number).then(|| digits.parse().unwrap_or(u32::MAX))
    })
}

/// Returns the URL in `<...>`, as in a `Lock-Token` field (§10.1, §10.5).
pub fn parse_coded_url(value: &str) -> Option<&str> {
    let url = value.trim().strip_prefix('<')?.strip_suffix('>')?;
    (!url.is_empty() && !url.contains(['<', '>', ' '])).then_some(url)
}

/// The value of an `If` field (§10.4): the request is processed if at least one of the lists holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfHeader {
    /// The lists in order; at least one.
    pub lists: Vec<IfList>,
}

/// A list of conditions that must all hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IfList {
    /// The resource of the conditions; `None` for the target of the request.
    pub resource: Option<String>,
    /// At least one condition; `true` marks those that must *not* hold.
    pub conditions: Vec<(bool, IfCondition)>,
}

/// One condition of an [`IfList`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IfCondition {
    /// The resource is locked with this token.
    Token(String),
    /// The resource has this entity tag; as written, with quotes.
    ETag(String),
}

/// Maximum number of conditions in an `If` field.
const MAX_CONDITIONS: usize = 256;

impl IfHeader {
    /// Parses the field; `None` if it violates the grammar: then the request must be rejected with 400.
    pub fn parse(value: &str) -> Option<Self> {
        let mut lists = Vec::new();
        let mut resource = None;
        let mut budget = MAX_CONDITIONS;
        let mut rest = value.trim_start();
        // A resource applies to all lists up to the next resource, and must have at least one.
        let mut resource_has_list = true;
        while !rest.is_empty() {
            if let Some(list) = rest.strip_prefix('(') {
                let (conditions, after) = parse_conditions(list, &mut budget)?;
                lists.push(IfList { resource: resource.clone(), conditions });
                resource_has_list = true;
                rest = after.trim_start();
            } else {
                // Lists with and without a resource must not be mixed.
                if !resource_has_list || (resource.is_none() && !lists.is_empty()) {
                    return None;
                }
                let (url, after) = rest.strip_prefix('<')?.split_once('>')?;
                resource = Some(url.to_owned());
                resource_has_list = false;
                rest = after.trim_start();
            }
        }
        (!lists.is_empty() && resource_has_list).then_some(Self { lists })
    }

    /// Returns all lock tokens submitted by the client, whether or not they must hold.
    pub fn tokens(&self) -> impl Iterator<Item = &str> {
        self.lists.iter().flat_map(|list| &list.conditions).filter_map(|(_, condition)| match condition {
            IfCondition::Token(token) => Some(token.as_str()),
            IfCondition::ETag(_) => None,
        })
    }

    /// Returns whether one of the lists holds; `holds` evaluates a condition for a resource (`None`: the request's
    /// target).
    pub fn evaluate(&self, holds: impl Fn(Option<&str>, &IfCondition) -> bool) -> bool {
        self.lists.iter().any(|list| {
            let resource = list.resource.as_deref();
            list.conditions.iter().all(|(not, condition)| holds(resource, condition) != *not)
        })
    }
}

type Conditions<'a> = (Vec<(bool, IfCondition)>, &'a str);

/// Parses the conditions up to the closing parenthesis; returns them and the remaining text.
fn parse_conditions<'a>(text: &'a str, budget: &mut usize) -> Option<Conditions<'a>> {
    let mut conditions = Vec::new();
    let mut rest = text.trim_start();
    loop {
        if let Some(after) = rest.strip_prefix(')') {
            return (!conditions.is_empty()).then_some((conditions, after));
        }
        *budget = budget.checked_sub(1)?;
        let not = rest.get(..3).is_some_and(|word| word.eq_ignore_ascii_case("not"));
        let item = if not { rest[3..].trim_start() } else { rest };
        let (condition, after) = if let Some(token) = item.strip_prefix('<') {
            let (token, after) = token.split_once('>')?;
            (IfCondition::Token(token.to_owned()), after)
        } else {
            let (tag, after) = item.strip_prefix('[')?.split_once(']')?;
            (IfCondition::ETag(tag.trim().to_owned()), after)
        };
        conditions.push((not, condition));
        rest = after.trim_start();
    }
}
