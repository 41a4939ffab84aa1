//! The words of ALTO that have a form: identifiers, tags, metrics. Whoever holds one of these types holds a valid one.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

/// A text that has not the form that its place asks for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no {what}: {form}")]
pub struct Malformed {
    /// What it was given for.
    pub what: &'static str,
    /// The text, cut to 64 characters.
    pub text: String,
    /// The form that is asked for.
    pub form: &'static str,
}

impl Malformed {
    /// `text`, which is not of that `form`.
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
            /// The name that `text` is.
            ///
            /// # Errors
            /// If it has not the form of one.
            pub fn new(text: &str) -> Result<Self, Malformed> {
                let is_valid: fn(&str) -> bool = $is_valid;
                if is_valid(text) { Ok(Self(text.into())) } else { Err(Malformed::new($what, text, $form)) }
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = Malformed;

            fn from_str(text: &str) -> Result<Self, Malformed> {
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
    )*};
}

names! {
    /// The name of a provider-defined group of endpoints (RFC 7285 §10.1).
    PidName = "PID name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// The name of a resource in its directory (RFC 7285 §10.2).
    ResourceId = "resource id", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// The name of an abstract network element (RFC 9275 §6.1, the form of a PID name).
    AneName = "ANE name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// Tells versions of a resource apart (RFC 7285 §10.3).
    Tag = "tag", "1 to 64 printable ASCII characters without blanks",
        |text| (1..=64).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic());
    /// What a cost measures, with its statistic (RFC 7285 §10.6, RFC 9439 §3.3).
    CostMetric = "cost metric", "1 to 32 of A-Z a-z 0-9 : _ - ., and something behind `priv:`", is_short_name;
    /// The name of a router, as agents call it; often its address.
    RouterName = "router name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// The name of a topology, as its agent calls it.
    TopologyName = "topology name", "1 to 64 of A-Z a-z 0-9 : @ _ - .", is_identifier;
    /// The name of a node of a topology, as its operator calls it.
    NodeName = "node name", "1 to 256 bytes without control characters",
        |text| (1..=256).contains(&text.len()) && !text.chars().any(char::is_control);
    /// The name of a property, without the resource that it may be of (RFC 7285 §10.8, RFC 9240 §5.2).
    PropertyName = "property name", "1 to 32 of A-Z a-z 0-9 : _ -, and something behind `priv:`",
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

/// A resource in one version (RFC 7285 §10.3).
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct VersionTag {
    /// Whose version.
    pub resource_id: ResourceId,
    /// Which.
    pub tag: Tag,
}

impl Tag {
    /// The version of these bytes.
    pub fn of(content: &[u8]) -> Self {
        let digits: String = Sha256::digest(content).iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self(digits.into())
    }
}

impl VersionTag {
    /// The version of a resource with that content: equal as long as it is written alike.
    pub fn of(resource_id: ResourceId, content: &impl Serialize) -> Self {
        let content = serde_json::to_vec(content).expect("what resources are made of can be written");
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
        assert_eq!(refusal, "'a b' is no PID name: 1 to 64 of A-Z a-z 0-9 : @ _ - .");
    }
}
