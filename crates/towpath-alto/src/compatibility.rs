//! The compatibility profile: what clients of OpenALTO ask and understand, beside what the RFCs say. A world has none unless it is given one
//! ([`World::compatible`](crate::world::World::compatible)).
//!
//! With it, path vectors of RFC 9275 take `endpoint-flows`, those between PIDs `pid-flows`, in place of `endpoints` and `pids`: a list of `{srcs, dsts}`, each of which is a full mesh.
//! What all of them name is answered once; each must name a source and a destination. A directory says so by `priv:endpoint-flows` and `priv:pid-flows`.
//!
//! And there is one resource more, if there are routes. It is asked like a path vector between endpoints, for `ane-path` and nothing else, and answers
//!
//! - with addresses that have no type before them: `192.0.2.1`;
//! - with at most two elements on a way, the first hop and all that is behind it: `autolink_N` with the property `next_hop`, and `autopath_N` with `as_path`, which is the AS path
//!   without repetitions in a row;
//! - with all properties if `ane-property-names` is absent. (By RFC 9275 that asks for none.)
//!
//! OpenALTO's public client (`alto.model.rfc9275.ALTOPathVector`) sends the same request and reads another answer: addresses must have their type (`ipv4:192.0.2.1`), and the
//! `type` in `Content-Type` no quotes, against RFC 2045 §5.1. The profile `openalto-client` answers so.
//!
//! Numbers hold within one answer. They follow from what is in it, never from the order of requests or routes: links have theirs by the address of the next router, AS paths by their
//! length, the longest first, and then by the numbers in them. A pair is left out if the router of its source, or a route, is not known; other pairs are not.
//!
//! What differs from OpenALTO: errors are those of RFC 7285, tags are digests, the domain in `Content-ID` is no host, and only the first known router of a way is told.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::names::{Malformed, ResourceId};

/// What is offered beside what the RFCs say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Profile {
    form: Form,
    resource: ResourceId,
}

/// What answers look like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// As OpenALTO's server prints them.
    Server,
    /// As OpenALTO's public client reads them.
    Client,
}

/// The forms and their names.
const FORMS: [(&str, Form); 2] = [("openalto", Form::Server), ("openalto-client", Form::Client)];
/// What the resource is called if nobody says it.
const RESOURCE: &str = "cern-pv";
/// The longest name of the resource: with a dot and the name of a part, as long as it may be too, it has at most 64 characters (RFC 9275 §6.6).
const NAME_LENGTH: usize = 31;

impl Profile {
    /// The name of the resource that it adds.
    pub fn resource(&self) -> &ResourceId {
        &self.resource
    }

    /// What its answers look like.
    pub(crate) fn form(&self) -> Form {
        self.form
    }
}

/// `openalto` or `openalto-client`, whose resource is `cern-pv`, or one of them with `:NAME`.
impl FromStr for Profile {
    type Err = Malformed;

    fn from_str(text: &str) -> Result<Self, Malformed> {
        let form = "openalto, openalto-client, or one of them with :NAME (as openalto:NAME), with a resource id of at most 31 characters";
        let malformed = || Malformed::new("compatibility profile", text, form);
        let (kind, name) = text.split_once(':').unwrap_or((text, RESOURCE));
        let known = FORMS.iter().find(|(known, _)| *known == kind && name.len() <= NAME_LENGTH);
        let form = known.map(|(_, form)| *form).ok_or_else(malformed)?;
        Ok(Self { form, resource: ResourceId::new(name).map_err(|_| malformed())? })
    }
}

/// As it is read, with the name of the resource.
impl fmt::Display for Profile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = FORMS.iter().find(|(_, form)| *form == self.form).map_or("", |(name, _)| name);
        write!(f, "{name}:{}", self.resource)
    }
}

impl From<Profile> for String {
    fn from(profile: Profile) -> Self {
        profile.to_string()
    }
}

impl TryFrom<String> for Profile {
    type Error = Malformed;

    fn try_from(text: String) -> Result<Self, Malformed> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_told_by_its_name() {
        let resource = |text: &str| text.parse().map(|profile: Profile| profile.resource().to_string());
        assert_eq!("openalto".parse::<Profile>().unwrap().to_string(), "openalto:cern-pv");
        assert_eq!("openalto-client:pv".parse::<Profile>().unwrap().to_string(), "openalto-client:pv");
        assert_eq!(resource("openalto").unwrap(), "cern-pv");
        assert_eq!(resource("openalto:lhc:pv").unwrap(), "lhc:pv");
        let long = format!("openalto:{}", "x".repeat(NAME_LENGTH));
        assert_eq!(resource(&long).unwrap().len(), NAME_LENGTH);
        for text in ["", "OpenALTO", "openalto-server", "openalto:", "openalto:a/b", &format!("{long}x")] {
            assert!(resource(text).unwrap_err().to_string().contains("openalto:NAME"), "{text}");
        }
    }
}
