//! ALTO names with a prescribed syntax: identifiers, tags, metrics. A value of one of these types is always valid.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// Text that does not match the required syntax.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a valid {what}: expected {form}")]
pub struct ParseError {
    /// Kind of name that was expected.
    pub what: &'static str,
    /// The text, truncated to 64 characters.
    pub text: String,
    /// The required syntax.
    pub form: &'static str,
}

impl ParseError {
    /// Creates the error for `text`, which does not match `form`.
    pub fn new(what: &'static str, text: &str, form: &'static str) -> Self {
        Self { what, text: text.chars().take(64).collect(), form }
    }
}

macro_rules! names {
    ($($(#[$doc:meta])* $name:ident = $what:literal, $form:literal, $is_valid:expr;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// Parses a name.
            ///
            /// # Errors
            /// Returns [`ParseError`] if `text` does not match the syntax.
            pub fn new(text: &str) -> Result<Self, ParseError> {
                let is_valid: fn(&str) -> bool = $is_valid;
                if is_valid(text) { Ok(Self(text.into())) } else { Err(ParseError::new($what, text, $form)) }
            }

            /// Returns the name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = ParseError;

            fn from_str(text: &str) -> Result<Self, ParseError> {
                Self::new(text)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
                Self::new(&text).map_err(de::Error::custom)
            }
        }

        #[cfg(feature = "schema")]
        towpath_proto::text_schema!($name, $form, "NAME");
    )*};
}

names! {
    /// Name of a provider-defined group of endpoints (RFC 7285 §10.1).
    PidName = "PID name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// Name of a resource in its directory (RFC 7285 §10.2).
    ResourceId = "resource id", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// Name of an abstract network element (RFC 9275 §6.1, with the syntax of a PID name).
    AneName = "ANE name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// Distinguishes versions of a resource (RFC 7285 §10.3).
    Tag = "tag", "1 to 64 printable ASCII characters without spaces",
        |text| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    /// Quantity measured by a cost, with its statistic (RFC 7285 §10.6, RFC 9439 §3.3).
    CostMetric = "cost metric", "1 to 32 of A-Z a-z 0-9 : _ - ., and a name after `priv:`", is_short_name;
    /// Name of a router as used by agents; often its address.
    RouterName = "router name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// Name of a topology, assigned by its agent.
    TopologyName = "topology name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// Name of a node of a topology, assigned by its operator.
    NodeName = "node name", "1 to 256 bytes without control characters",
        |text| (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
    /// Name of a property, without its resource prefix (RFC 7285 §10.8, RFC 9240 §5.2).
    PropertyName = "property name", "1 to 32 of A-Z a-z 0-9 : _ -, and a name after `priv:`",
        |text| is_short_name(text) && !text.contains('.');
}

fn is_identifier(text: &str) -> bool {
    (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":@_-.".contains(&byte))
}

fn is_short_name(text: &str) -> bool {
    (1..=32).contains(&text.len())
        && text != "priv:"
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b":_-.".contains(&byte))
}

/// A version of a resource (RFC 7285 §10.3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionTag {
    /// The resource.
    pub resource_id: ResourceId,
    /// The version.
    pub tag: Tag,
}

impl Tag {
    /// Returns the tag for this content.
    pub fn of(content: &[u8]) -> Self {
        let digits: String = Sha256::digest(content).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self(digits.into())
    }
}

impl VersionTag {
    /// Returns the version of a resource with this content. Tags are equal while the serialized content is.
    pub fn of(resource_id: ResourceId, content: &impl Serialize) -> Self {
        let content = serde_json::to_vec(content).expect("resource contents are serializable");
        Self { resource_id, tag: Tag::of(&content) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c4_names_have_forms() {
        let long = "a".repeat(65);
        for text in ["PID1", "a:b@c_d-e.f", &long[..64]] {
            assert!(PidName::new(text).is_ok() && ResourceId::new(text).is_ok(), "{text}");
        }
        for text in ["", "a b", "ä", "a/b", &long] {
            assert!(PidName::new(text).is_err() && ResourceId::new(text).is_err(), "{text}");
        }
        assert!(Tag::new("!~/\"").is_ok());
        assert!(Tag::new("a b").is_err() && Tag::new(&long).is_err());
        assert!(CostMetric::new("delay-ow:p99.9").is_ok() && PropertyName::new("priv:x").is_ok());
        assert!(PropertyName::new("geo.lat").is_err());
        for text in ["priv:", "a@b", "", &long[..33]] {
            assert!(CostMetric::new(text).is_err() && PropertyName::new(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_refusal_says_what_is_asked_for() {
        let refusal = PidName::new("a b").unwrap_err().to_string();
        assert_eq!(refusal, "'a b' is not a valid PID name: expected 1 to 64 of A-Z a-z 0-9 : @ _ - .");
    }
}
