//! Finds servers in the DNS: for a domain (RFC 7286), and for an address (RFC 8686). Without I/O.
//!
//! A [`Discovery`] has names to ask for NAPTR records. As long as [`Discovery::question`] has one, it is asked, and what the DNS has there is given to
//! [`Discovery::take`]. A record is a rule (U-NAPTR, RFC 4848): it names the directory of a server, or another name to ask. Rules hold in the order that they
//! say, and one that leads nowhere gives way to the next. Where the rules of a name lead nowhere, the next name is asked: that of a shorter prefix, or another
//! domain. Then [`Discovery::outcome`] has the directories; if it has none, [`Discovery::asked`] and [`Discovery::passed_over`] say why.
//!
//! The DNS proves nothing, so only https counts: there a certificate says that the server is the one that was named. Nobody should show a token to a server
//! that was found so.

use std::{
    collections::{BTreeSet, VecDeque},
    fmt,
    net::IpAddr,
    str::FromStr,
};

use towpath_alto::{directory::DirectoryUri, names::Malformed};

/// The service of records that name ALTO servers (RFC 7286 §5).
const SERVICE: &str = "ALTO";

/// How often a rule may lead from one name to another, counted from where it began.
const MAX_HOPS: usize = 5;

/// The most names that are asked. Where an address leads takes six at most, if no rule leads on.
const MAX_QUESTIONS: usize = 24;

/// The most records of one name that count, those that come first by their order.
const MAX_RECORDS: usize = 32;

/// The most records that are kept to be told about.
const MAX_PASSED_OVER: usize = 8;

/// How many labels are left out of the name of an address of IPv4 (RFC 8686 §3.4): those of the whole, of /24, /16 and /8.
const SHORTER_IPV4: [usize; 4] = [0, 1, 2, 3];

/// The same for IPv6, with a label for each four bits: those of the whole, of /64, /56, /48, /40 and /32.
const SHORTER_IPV6: [usize; 6] = [0, 16, 18, 20, 22, 24];

/// A name in the DNS, in lower case and without a dot at its end.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName(String);

impl DomainName {
    /// The name that `text` is.
    ///
    /// # Errors
    /// If it has not the form of one.
    pub fn new(text: &str) -> Result<Self, Malformed> {
        let form = "labels of 1 to 63 of A-Z a-z 0-9 - _ with dots between them, at most 253 characters";
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_of_label = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        let is_label = |label: &str| (1..=63).contains(&label.len()) && label.bytes().all(is_of_label);
        match name.len() <= 253 && name.split('.').all(is_label) {
            true => Ok(Self(name.to_ascii_lowercase())),
            false => Err(Malformed::new("name of a domain", text, form)),
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is below a domain of the top level: those belong to nobody who could have a server.
    pub fn is_below_top(&self) -> bool {
        self.0.contains('.')
    }
}

impl FromStr for DomainName {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        Self::new(text)
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A NAPTR record (RFC 3403 §4.1). The texts have at most 255 bytes each, as on the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Naptr {
    /// Records of a lower order hold first.
    pub order: u16,
    /// Among those of one order, lower ones are preferred.
    pub preference: u16,
    /// What kind of rule it is: `u` names a URI, nothing another name.
    pub flags: Vec<u8>,
    /// What it is about, and the protocols: `ALTO:https`.
    pub services: Vec<u8>,
    /// `!.*!URI!`.
    pub regexp: Vec<u8>,
    /// The name to ask instead; none where that is the root, or no name that could be asked.
    pub replacement: Option<DomainName>,
}

impl Naptr {
    /// Whether it is about ALTO by that protocol (RFC 3958 §6.5).
    fn offers(&self, protocol: &str) -> bool {
        let mut words = self.services.split(|byte| *byte == b':');
        let is_ours = words.next().is_some_and(|service| service.eq_ignore_ascii_case(SERVICE.as_bytes()));
        is_ours && words.any(|word| word.eq_ignore_ascii_case(protocol.as_bytes()))
    }

    /// The address that it names. Of all regular expressions U-NAPTR has but one, which matches everything (RFC 4848 §2.2).
    fn uri(&self) -> Option<DirectoryUri> {
        let regexp = str::from_utf8(&self.regexp).ok()?;
        let uri = regexp.strip_prefix("!.*!")?.strip_suffix('!')?;
        DirectoryUri::new(uri).ok().filter(|_| !uri.contains(['!', '\\']) && self.replacement.is_none())
    }

    /// Where it leads, or why it does not; none if it is no rule of U-NAPTR for ALTO. What a directory is asked by, its address says best.
    fn target(&self, at: &DomainName) -> Option<Result<Target, PassedOver>> {
        let is_secure = self.offers("https");
        if !is_secure && !self.offers("http") {
            return None;
        }
        let malformed = || PassedOver::Malformed { name: at.clone(), text: self.regexp.escape_ascii().to_string() };
        match self.flags.as_slice() {
            b"u" | b"U" => Some(match self.uri() {
                Some(uri) if uri.is_secure() => Ok(Target::Directory(uri)),
                Some(uri) => Err(PassedOver::Insecure { name: at.clone(), uri }),
                None => Err(malformed()),
            }),
            b"" if is_secure => Some(self.replacement.clone().map(Target::Name).ok_or_else(malformed)),
            _ => None,
        }
    }
}

/// A record that is about ALTO, but leads nowhere.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PassedOver {
    /// It names a server that would be asked without TLS.
    #[error("{name} names {uri}, which is not asked, because the DNS proves nothing and http neither")]
    Insecure {
        /// Where it is.
        name: DomainName,
        /// What it names.
        uri: DirectoryUri,
    },
    /// It is no rule of U-NAPTR.
    #[error("{name} has a record whose rule `{text}` is none of U-NAPTR (`!.*!https://HOST/PATH!`)")]
    Malformed {
        /// Where it is.
        name: DomainName,
        /// Its regular expression, with bytes that are no printable ASCII escaped.
        text: String,
    },
    /// It leads on for ever, or too far.
    #[error("{name} leads to {to}, which is too far away or was asked before")]
    Astray {
        /// Where it is.
        name: DomainName,
        /// The name that it leads to.
        to: DomainName,
    },
}

/// The directories of servers, the best first. All of them are in records of one name and one order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Discovered {
    /// The name that has these records.
    pub name: DomainName,
    /// At least one. All are https.
    pub directories: Vec<DirectoryUri>,
}

/// Where a rule leads.
#[derive(Debug, Clone)]
enum Target {
    Directory(DirectoryUri),
    Name(DomainName),
}

/// A rule that was not followed yet.
#[derive(Debug, Clone)]
struct Rule {
    /// The name that has it, and how many others led there.
    at: DomainName,
    hops: usize,
    order: u16,
    target: Target,
}

/// A search for servers.
#[derive(Debug, Clone)]
pub struct Discovery {
    /// Names with which the search begins anew if it has led nowhere.
    beginnings: VecDeque<DomainName>,
    /// Rules to follow, the next one last.
    rules: Vec<Rule>,
    /// The name to ask now, and how many others led there.
    next: Option<(DomainName, usize)>,
    asked: Vec<DomainName>,
    passed_over: Vec<PassedOver>,
    outcome: Option<Discovered>,
}

impl Discovery {
    /// Looks for the servers of these domains: those of a later one if the ones before name none.
    pub fn of_domains(domains: impl IntoIterator<Item = DomainName>) -> Self {
        let (rules, asked, passed_over) = Default::default();
        let beginnings = domains.into_iter().take(MAX_QUESTIONS).collect();
        let mut discovery = Self { beginnings, rules, next: None, asked, passed_over, outcome: None };
        discovery.advance();
        discovery
    }

    /// Looks for the servers that know the network around `address`: those of a shorter prefix if the longer ones name none.
    pub fn of_address(address: IpAddr) -> Self {
        Self::of_domains(names_of(address))
    }

    /// The name whose NAPTR records are to be asked for; none if the search is over. It stays the next one until [`Self::take`] has its records.
    pub fn question(&self) -> Option<&DomainName> {
        self.next.as_ref().map(|(name, _)| name)
    }

    /// Takes the records of the name that was asked for; none of them if there are none, or the DNS does not answer.
    pub fn take(&mut self, mut records: Vec<Naptr>) {
        let Some((at, hops)) = self.next.take() else { return };
        records.sort_by_key(|record| (record.order, record.preference));
        let mut rules = Vec::new();
        for record in records.into_iter().take(MAX_RECORDS) {
            match record.target(&at) {
                Some(Ok(target)) => rules.push(Rule { at: at.clone(), hops, order: record.order, target }),
                Some(Err(passed_over)) => self.pass_over(passed_over),
                None => {}
            }
        }
        self.rules.extend(rules.into_iter().rev());
        self.asked.push(at);
        self.advance();
    }

    /// What was found; none as long as nothing was.
    pub fn outcome(&self) -> Option<&Discovered> {
        self.outcome.as_ref()
    }

    /// The names that were asked.
    pub fn asked(&self) -> &[DomainName] {
        &self.asked
    }

    /// Records that are about ALTO, but lead nowhere: some of them, if there are many.
    pub fn passed_over(&self) -> &[PassedOver] {
        &self.passed_over
    }

    fn pass_over(&mut self, passed_over: PassedOver) {
        if self.passed_over.len() < MAX_PASSED_OVER {
            self.passed_over.push(passed_over);
        }
    }

    /// Follows rules up to the next question or the end.
    fn advance(&mut self) {
        while self.outcome.is_none() && self.next.is_none() {
            if let Some(Rule { at, hops, order, target }) = self.rules.pop() {
                match target {
                    Target::Directory(uri) => self.finish(at, order, uri),
                    Target::Name(to) if hops < MAX_HOPS && self.may_ask(&to) => self.next = Some((to, hops + 1)),
                    Target::Name(to) => self.pass_over(PassedOver::Astray { name: at, to }),
                }
            } else if let Some(name) = self.beginnings.pop_front() {
                self.next = Some((name, 0)).filter(|(name, _)| self.may_ask(name));
            } else {
                break;
            }
        }
    }

    fn may_ask(&self, name: &DomainName) -> bool {
        self.asked.len() < MAX_QUESTIONS && !self.asked.contains(name)
    }

    /// Ends the search with a directory and those that stand beside it.
    fn finish(&mut self, name: DomainName, order: u16, first: DirectoryUri) {
        let beside = self.rules.drain(..).rev().filter(|rule| rule.at == name && rule.order == order);
        let beside = beside.filter_map(|rule| match rule.target {
            Target::Directory(uri) => Some(uri),
            Target::Name(_) => None,
        });
        let mut met = BTreeSet::new();
        let all = std::iter::once(first).chain(beside).filter(|uri| met.insert(uri.clone()));
        self.outcome = Some(Discovered { directories: all.collect(), name });
    }
}

/// The names of an address and of shorter prefixes around it, the longest first (RFC 8686 §3.2–3.4).
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
