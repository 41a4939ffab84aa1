//! Discovers servers in the DNS, for a domain (RFC 7286) and for an address (RFC 8686). Does no I/O.
//!
//! A [`Discovery`] has a queue of names whose NAPTR records it needs. While [`Discovery::next_name`] returns a name,
//! the caller queries the DNS and passes the records to [`Discovery::take`]. A record is a rule (U-NAPTR, RFC 4848):
//! it names the directory of a server, or another name to query. Rules apply in record order, and a rule without
//! result falls through to the next. If the rules of a name have no result, the next name is queried: that of a
//! shorter prefix, or another domain. Then [`Discovery::outcome`] has the directories; if there are none,
//! [`Discovery::queried`] and [`Discovery::ignored_records`] give the reason.
//!
//! DNS responses are not authenticated, so only https URIs are accepted: the certificate then proves that the server
//! is the one named. Never send a token to a server discovered this way.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    net::IpAddr,
    str::FromStr,
};

use towpath_alto::{directory::DirectoryUri, names::ParseError};

/// The service name of NAPTR records for ALTO servers (RFC 7286 §5).
const SERVICE: &str = "ALTO";

/// Maximum number of consecutive rules that lead from one name to another.
const MAX_HOPS: usize = 5;

/// Maximum number of names queried. An address needs six at most if no rule leads on.
const MAX_QUESTIONS: usize = 24;

/// Maximum number of records used per name, the first by order.
const MAX_RECORDS: usize = 32;

/// Maximum number of ignored records kept for reporting.
const MAX_IGNORED_RECORDS: usize = 8;

/// Number of labels to remove from the name of an IPv4 address (RFC 8686 §3.4), for the full address, /24, /16 and
/// /8.
const SHORTER_IPV4: [usize; 4] = [0, 1, 2, 3];

/// The same for IPv6, with one label per four bits: the full address, /64, /56, /48, /40 and /32.
const SHORTER_IPV6: [usize; 6] = [0, 16, 18, 20, 22, 24];

/// A DNS name in lower case, without a trailing dot.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// Parses a domain name.
    ///
    /// # Errors
    /// If the text is not a valid name.
    pub fn new(text: &str) -> Result<Self, ParseError> {
        let form = "labels of 1 to 63 of A-Z a-z 0-9 - _ with dots between them, at most 253 characters";
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_of_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_of_label);
        match name.len() <= 253 && name.split('.').all(is_label) {
            true => Ok(Self(name.to_ascii_lowercase())),
            false => Err(ParseError::new("domain name", text, form)),
        }
    }

    /// Returns the name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the name is below a top-level domain. Top-level domains themselves have no servers.
    pub(crate) fn is_below_top(&self) -> bool {
        self.0.contains('.')
    }
}

impl FromStr for DomainName {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::new(text)
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A NAPTR record (RFC 3403 §4.1). Each text has at most 255 bytes, as on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naptr {
    /// Records with a lower order apply first.
    pub order: u16,
    /// Among records of the same order, a lower preference comes first.
    pub preference: u16,
    /// The kind of rule: `u` for a URI, empty for another name.
    pub flags: Vec<u8>,
    /// The service and its protocols: `ALTO:https`.
    pub services: Vec<u8>,
    /// The rewrite rule: `!.*!URI!`.
    pub regexp: Vec<u8>,
    /// The name to query instead; `None` for the root and for invalid names.
    pub replacement: Option<DomainName>,
}

impl Naptr {
    /// Returns whether the record offers ALTO over the given protocol (RFC 3958 §6.5).
    fn offers(&self, protocol: &str) -> bool {
        let mut words = self.services.split(|byte| *byte == b':');
        let is_ours = words.next().is_some_and(|service| service.eq_ignore_ascii_case(SERVICE.as_bytes()));
        is_ours && words.any(|word| word.eq_ignore_ascii_case(protocol.as_bytes()))
    }

    /// Returns the URI in the record. U-NAPTR allows only one regular expression, which matches everything (RFC 4848
    /// §2.2).
    fn uri(&self) -> Option<DirectoryUri> {
        let regexp = str::from_utf8(&self.regexp).ok()?;
        let uri = regexp.strip_prefix("!.*!")?.strip_suffix('!')?;
        DirectoryUri::new(uri).ok().filter(|_| !uri.contains(['!', '\\']) && self.replacement.is_none())
    }

    /// Returns the target of the rule, or the reason for ignoring it; `None` if it is not a U-NAPTR rule for ALTO.
    /// The protocol is taken from the URI scheme, not from the services field.
    fn target(&self, at: &DomainName) -> Option<Result<Target, IgnoredRecord>> {
        let is_secure = self.offers("https");
        if !is_secure && !self.offers("http") {
            return None;
        }
        let malformed = || IgnoredRecord::Malformed { name: at.clone(), text: self.regexp.escape_ascii().to_string() };
        match self.flags.as_slice() {
            b"u" | b"U" => Some(match self.uri() {
                Some(uri) if uri.is_secure() => Ok(Target::Directory(uri)),
                Some(uri) => Err(IgnoredRecord::Insecure { name: at.clone(), uri }),
                None => Err(malformed()),
            }),
            b"" if is_secure => Some(self.replacement.clone().map(Target::Name).ok_or_else(malformed)),
            _ => None,
        }
    }
}

/// An ALTO record that was ignored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IgnoredRecord {
    /// The record names a server without TLS.
    #[error("{name} names {uri}, which is ignored: neither the DNS nor http authenticates the server")]
    Insecure {
        /// The name that has the record.
        name: DomainName,
        /// The URI in the record.
        uri: DirectoryUri,
    },
    /// The record is not a valid U-NAPTR rule.
    #[error("{name} has a record with the rule `{text}`, which is not valid U-NAPTR (`!.*!https://HOST/PATH!`)")]
    Malformed {
        /// The name that has the record.
        name: DomainName,
        /// Its regular expression, with non-printable and non-ASCII bytes escaped.
        text: String,
    },
    /// The rule loops or exceeds the hop limit.
    #[error("{name} leads to {to}, which exceeds the hop limit or was already queried")]
    Astray {
        /// The name that has the record.
        name: DomainName,
        /// The name that it leads to.
        to: DomainName,
    },
}

/// The discovered directories, best first. All come from records of one name and one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DiscoveryResult {
    /// The name that has the records.
    pub name: DomainName,
    /// At least one directory; all use https.
    pub directories: Vec<DirectoryUri>,
}

/// The target of a rule.
#[derive(Debug, Clone)]
enum Target {
    Directory(DirectoryUri),
    Name(DomainName),
}

/// A rule not yet followed.
#[derive(Debug, Clone)]
struct Rule {
    /// The name that has the rule, and the number of hops that led there.
    at: DomainName,
    hops: usize,
    order: u16,
    target: Target,
}

/// A search for servers.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// Names to start from when all previous ones had no result.
    beginnings: VecDeque<DomainName>,
    /// Rules to follow, the next one last.
    rules: Vec<Rule>,
    /// The name to query next, and the number of hops that led there.
    next: Option<(DomainName, usize)>,
    queried: Vec<DomainName>,
    ignored_records: Vec<IgnoredRecord>,
    outcome: Option<DiscoveryResult>,
}

impl Discovery {
    /// Searches for the servers of these domains, in order, until one has a result.
    pub(crate) fn of_domains(domains: impl IntoIterator<Item = DomainName>) -> Self {
        let (rules, queried, ignored_records) = Default::default();
        let beginnings = domains.into_iter().take(MAX_QUESTIONS).collect();
        let mut discovery = Self { beginnings, rules, next: None, queried, ignored_records, outcome: None };
        discovery.advance();
        discovery
    }

    /// Searches for the servers of the network around `address`, from the longest prefix to shorter ones.
    pub(crate) fn of_address(address: IpAddr) -> Self {
        Self::of_domains(names_of(address))
    }

    /// Returns the name whose NAPTR records are needed next, or `None` if the search is over. It stays the same until
    /// [`Self::take`] receives the records.
    pub(crate) fn next_name(&self) -> Option<&DomainName> {
        self.next.as_ref().map(|(name, _)| name)
    }

    /// Takes the records of the current name; an empty list if there are none or the DNS query failed.
    pub fn take(&mut self, mut records: Vec<Naptr>) {
        let Some((at, hops)) = self.next.take() else { return };
        records.sort_by_key(|record| (record.order, record.preference));
        let mut rules = Vec::new();
        for record in records.into_iter().take(MAX_RECORDS) {
            match record.target(&at) {
                Some(Ok(target)) => rules.push(Rule { at: at.clone(), hops, order: record.order, target }),
                Some(Err(record)) => self.ignore(record),
                None => {}
            }
        }
        self.rules.extend(rules.into_iter().rev());
        self.queried.push(at);
        self.advance();
    }

    /// Returns the result, if any.
    pub fn outcome(&self) -> Option<&DiscoveryResult> {
        self.outcome.as_ref()
    }

    /// Returns the names queried so far.
    pub fn queried(&self) -> &[DomainName] {
        &self.queried
    }

    /// Returns the ignored ALTO records, up to a limit.
    pub(crate) fn ignored_records(&self) -> &[IgnoredRecord] {
        &self.ignored_records
    }

    fn ignore(&mut self, record: IgnoredRecord) {
        if self.ignored_records.len() < MAX_IGNORED_RECORDS {
            self.ignored_records.push(record);
        }
    }

    /// Follows rules to the next name or the end.
    fn advance(&mut self) {
        while self.outcome.is_none() && self.next.is_none() {
            if let Some(Rule { at, hops, order, target }) = self.rules.pop() {
                match target {
                    Target::Directory(uri) => self.finish(at, order, uri),
                    Target::Name(to) if hops < MAX_HOPS && self.may_query(&to) => self.next = Some((to, hops + 1)),
                    Target::Name(to) => self.ignore(IgnoredRecord::Astray { name: at, to }),
                }
            } else if let Some(name) = self.beginnings.pop_front() {
                self.next = Some((name, 0)).filter(|(name, _)| self.may_query(name));
            } else {
                break;
            }
        }
    }

    fn may_query(&self, name: &DomainName) -> bool {
        self.queried.len() < MAX_QUESTIONS && !self.queried.contains(name)
    }

    /// Ends the search with this directory and those in records of the same name and order.
    fn finish(&mut self, name: DomainName, order: u16, first: DirectoryUri) {
        let beside = self.rules.drain(..).rev().filter(|rule| rule.at == name && rule.order == order);
        let beside = beside.filter_map(|rule| match rule.target {
            Target::Directory(uri) => Some(uri),
            Target::Name(_) => None,
        });
        let mut met = BTreeSet::new();
        let all = std::iter::once(first).chain(beside).filter(|uri| met.insert(uri.clone()));
        self.outcome = Some(DiscoveryResult { directories: all.collect(), name });
    }
}

/// Returns the names for an address and its shorter prefixes, longest first (RFC 8686 §3.2–3.4).
fn names_of(address: IpAddr) -> Vec<DomainName> {
    let (labels, zone, shorter): (Vec<String>, _, _) = match address.to_canonical() {
        IpAddr::V4(address) => {
            (address.octets().iter().rev().map(u8::to_string).collect(), "in-addr.arpa", &SHORTER_IPV4[..])
        }
        IpAddr::V6(address) => {
            let nibbles = address.octets().into_iter().rev().flat_map(|byte| [byte & 0xf, byte >> 4]);
            (nibbles.map(|nibble| format!("{nibble:x}")).collect(), "ip6.arpa", &SHORTER_IPV6[..])
        }
    };
    shorter.iter().map(|left_out| DomainName(format!("{}.{zone}", labels[*left_out..].join(".")))).collect()
}

#[cfg(test)]
mod tests;
