//! Links to directories of other servers (RFC 7285 §9.2.4).

use std::{collections::BTreeMap, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Directory;
use crate::{
    media,
    names::{ParseError, ResourceId},
    reserved::OTHERS,
};

/// Maximum length of a directory URI in bytes.
const MAX_URI_BYTES: usize = 2048;

/// The form of a directory URI.
const FORM: &str =
    "http:// or https:// with a host, without user and fragment, at most 2048 printable ASCII characters";

/// Maximum number of linked directories: clients read them all.
const MAX_LINKED: usize = 100;

/// The address of a server's directory: an absolute http or https URI without user information and fragment.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DirectoryUri(String);

impl DirectoryUri {
    /// Parses the URI of a directory.
    ///
    /// # Errors
    /// If the URI is malformed.
    pub fn new(text: &str) -> Result<Self, ParseError> {
        let is_printable = text.len() <= MAX_URI_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
        match authority(text) {
            Some(authority) if is_printable && is_host_and_port(authority) && !text.contains('#') => {
                Ok(Self(text.to_owned()))
            }
            _ => Err(ParseError::new("address of a directory", text, FORM)),
        }
    }

    /// Returns the URI as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the URI uses TLS.
    pub fn is_secure(&self) -> bool {
        scheme_and_rest(&self.0).is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
    }
}

fn scheme_and_rest(text: &str) -> Option<(&str, &str)> {
    text.split_once("://")
}

/// Returns the authority of an http or https URI.
fn authority(text: &str) -> Option<&str> {
    let (scheme, rest) = scheme_and_rest(text)?;
    let is_http = ["http", "https"].iter().any(|known| scheme.eq_ignore_ascii_case(known));
    rest.split(['/', '?', '#']).next().filter(|_| is_http)
}

/// Returns whether the authority has a host and an optional port. IPv6 addresses are in brackets.
fn is_host_and_port(authority: &str) -> bool {
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port),
        _ => (authority, ""),
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    let is_in_brackets = |inner: &str| inner.parse::<std::net::Ipv6Addr>().is_ok();
    let is_host = match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(inner) => is_in_brackets(inner),
        None => !host.is_empty() && host.bytes().all(is_name),
    };
    is_host && port.bytes().all(|digit| digit.is_ascii_digit()) && (port.is_empty() || port.parse::<u16>().is_ok())
}

impl FromStr for DirectoryUri {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        Self::new(text)
    }
}

impl fmt::Display for DirectoryUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<DirectoryUri> for String {
    fn from(uri: DirectoryUri) -> Self {
        uri.0
    }
}

impl TryFrom<String> for DirectoryUri {
    type Error = ParseError;

    fn try_from(text: String) -> Result<Self, ParseError> {
        Self::new(&text)
    }
}

#[cfg(feature = "schema")]
towpath_proto::text_schema!(DirectoryUri, FORM, "https://alto.example.org/directory");

/// A directory of another server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct LinkedDirectory {
    /// URL of the other server's directory.
    pub url: DirectoryUri,
}

impl LinkedDirectory {
    /// Returns its entry in the directory that links to it.
    pub(super) fn entry(&self) -> Value {
        json!({ "uri": self.url.as_str(), "media-type": media::DIRECTORY })
    }
}

/// Reason why directories cannot be linked; the operator must fix it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkFault {
    /// The id belongs to a resource.
    #[error("linked directory {0}: a resource of that name exists; rename it")]
    Name(ResourceId),
    /// There are too many linked directories.
    #[error("there are {0} linked directories: link at most {MAX_LINKED}")]
    TooMany(usize),
}

impl Directory {
    /// Adds links to other directories under these ids.
    ///
    /// # Errors
    /// If an id belongs to a resource, or there are more than 100 links.
    pub fn with_linked(mut self, linked: BTreeMap<ResourceId, LinkedDirectory>) -> Result<Self, LinkFault> {
        if linked.len() > MAX_LINKED {
            return Err(LinkFault::TooMany(linked.len()));
        }
        let is_taken = |id: &&ResourceId| OTHERS.contains(&id.as_str()) || self.find(id.as_str()).is_some();
        if let Some(id) = linked.keys().find(is_taken) {
            return Err(LinkFault::Name(id.clone()));
        }
        self.linked = linked;
        Ok(self)
    }

    /// Returns the linked directories of other servers, sorted by id.
    pub fn linked(&self) -> impl Iterator<Item = (&ResourceId, &LinkedDirectory)> {
        self.linked.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network_state::tests::example;

    fn linked(text: &str) -> BTreeMap<ResourceId, LinkedDirectory> {
        toml::from_str(text).unwrap()
    }

    #[test]
    fn i3_a_linked_directory_is_an_entry_with_its_own_address() {
        let network_state = example();
        let (directory, _) = Directory::of(&network_state);
        let before = directory.answer(&network_state, |id| format!("./{id}"));
        let directory =
            directory.with_linked(linked("[north]\nurl = \"https://alto.example.org:8443/directory\"")).unwrap();
        let answer = directory.answer(&network_state, |id| format!("./{id}"));
        let document: Value = serde_json::from_slice(&answer.body).unwrap();
        let expected = json!({
            "uri": "https://alto.example.org:8443/directory",
            "media-type": "application/alto-directory+json",
        });
        assert_eq!(document["resources"]["north"], expected);
        assert_ne!(before.tag, answer.tag, "who has the directory without it asks anew");
        assert!(directory.find("north").is_none(), "it is no resource of this server");
        for service in ["updates", "tips"] {
            let uses = document["resources"][service]["uses"].as_array().unwrap();
            assert!(!uses.contains(&json!("north")), "{service} cannot tell what another server knows");
        }
        assert_eq!(directory.linked().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), ["north"]);
    }

    #[test]
    fn i3_a_linked_directory_takes_no_name_of_a_resource() {
        let (directory, _) = Directory::of(&example());
        for name in ["default", "default-routingcost", "endpoint-costs", "path-vector", "updates", "tips", "directory"]
        {
            let fault = directory.clone().with_linked(linked(&format!("[{name}]\nurl = \"http://h/\""))).unwrap_err();
            assert_eq!(fault, LinkFault::Name(ResourceId::new(name).unwrap()));
            assert!(fault.to_string().contains("rename it"), "{fault}");
        }
        let many = (0..=MAX_LINKED).map(|number| format!("[d{number}]\nurl = \"http://h/{number}\"\n"));
        let fault = directory.with_linked(linked(&many.collect::<String>())).unwrap_err();
        assert_eq!(fault, LinkFault::TooMany(MAX_LINKED + 1));
    }

    #[test]
    fn i3_addresses_of_directories_are_absolute() {
        for text in
            ["https://h/directory", "HTTP://h", "http://[2001:db8::1]:8096/d?a=b", "https://192.0.2.1:443", "http://h:"]
        {
            assert_eq!(DirectoryUri::new(text).unwrap().as_str(), text);
        }
        let long = format!("https://h/{}", "x".repeat(MAX_URI_BYTES));
        for text in [
            "",
            "h/directory",
            "/directory",
            "//h/d",
            "ftp://h/d",
            "https://",
            "https:///d",
            "https://u@h/d",
            "https://h/d#e",
            "https://h/a b",
            "https://h/\u{e4}",
            "https://h:99999/",
            "https://h:x/",
            "https://[::1/",
            "https://a]b/",
            "https://a:b:1/",
            &long,
        ] {
            assert!(DirectoryUri::new(text).is_err(), "{text}");
        }
        assert!(DirectoryUri::new("HTTPS://h").unwrap().is_secure());
        assert!(!DirectoryUri::new("http://h/https://x").unwrap().is_secure());
        let refusal = toml::from_str::<LinkedDirectory>("url = \"directory\"").unwrap_err().to_string();
        assert!(refusal.contains("http:// or https://"), "{refusal}");
    }
}
