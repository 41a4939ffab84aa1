//! Settings of Rucio's distance table.

use std::{collections::BTreeMap, fmt, net::IpAddr, path::PathBuf, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use towpath_alto::names::PidName;
use towpath_proto::text_schema;

/// Rucio's distance table. It is disabled without `rses`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct RucioConfig {
    /// Storages by RSE name: up to 99 printable ASCII characters without spaces, commas and quotes.
    pub rses: BTreeMap<Name, SiteLocation>,
    /// Sites by the names that Rucio's clients report (`SITE_NAME`). By default each PID of the default map.
    pub sites: BTreeMap<Name, SiteLocation>,
    /// Statement for requests without one (`stmt`), as for `towpath order`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub statement: Option<String>,
    /// File with the definitions of the names in statements, as for `--config` of `towpath order`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub config: Option<PathBuf>,
}

/// A name in the table, which has no quoting, and in memcached keys of Rucio's cache: printable, without spaces, commas
/// and quotes.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name(String);

impl Name {
    /// Returns it as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The form of a name.
const FORM: &str = "up to 99 printable ASCII characters without spaces, commas and quotes";

text_schema!(Name, FORM, "NAME");

impl TryFrom<String> for Name {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        // Keys contain both names and a prefix of Rucio, and memcached limits them to 250 bytes.
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b",\"".contains(&byte);
        match (1..=99).contains(&name.len()) && name.bytes().all(is_plain) {
            true => Ok(Self(name)),
            false => Err(format!("{name:?} is not a valid name: expected {FORM}")),
        }
    }
}

impl From<Name> for String {
    fn from(Name(name): Name) -> Self {
        name
    }
}

/// Location of a site or storage.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum SiteLocation {
    /// At this address.
    Address(IpAddr),
    /// The PID of this name if it is in the default map, else the host.
    Named(String),
}

text_schema!(SiteLocation, "an address, a PID of the default map, or a host", "192.0.2.1");

impl FromStr for SiteLocation {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_of_host = |character: char| character.is_ascii_alphanumeric() || "-._".contains(character);
        let is_host = !text.is_empty() && text.len() <= 253 && text.chars().all(is_of_host);
        match text.parse() {
            Ok(address) => Ok(Self::Address(address)),
            Err(_) if is_host || PidName::new(text).is_ok() => Ok(Self::Named(text.to_owned())),
            Err(_) => Err(format!("{text:?} is not an address, nor the name of a PID or host")),
        }
    }
}

impl TryFrom<String> for SiteLocation {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<SiteLocation> for String {
    fn from(spot: SiteLocation) -> Self {
        spot.to_string()
    }
}

impl fmt::Display for SiteLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => address.fmt(f),
            Self::Named(name) => f.write_str(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_stand_in_the_table_is_refused() {
        let config = |text: &str| toml::from_str::<RucioConfig>(text).map_err(|error| error.to_string());
        let config_is_wrong = |text: &str, expected: &str| {
            let error = config(text).unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        };
        config_is_wrong("[rses]\n'A,B' = '192.0.2.1'", "without spaces, commas");
        config_is_wrong("[rses]\n'é' = '192.0.2.1'", "ASCII");
        config_is_wrong(&format!("[rses]\n{} = '192.0.2.1'", "A".repeat(100)), "up to 99");
        config_is_wrong("[rses]\nA = 'not a host'", "is not an address");
        config_is_wrong("[rses]\nA = ''", "is not an address");
        config_is_wrong("[storages]", "unknown field `storages`");
        let config = config("[rses]\nA = '2001:db8::1'\nB = 'CERN'\nC = 'se.example.org'").unwrap();
        let spots: Vec<&SiteLocation> = config.rses.values().collect();
        assert!(
            matches!(spots[..], [SiteLocation::Address(_), SiteLocation::Named(_), SiteLocation::Named(_)]),
            "{spots:?}"
        );
    }
}
