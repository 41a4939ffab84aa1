//! Public URL of a server.

use std::fmt;

use http::Uri;
use serde::{Deserialize, Serialize};
use towpath_proto::{text_schema, url::Url};

/// The URL beneath which clients reach the server, including any path prefix that a proxy strips. Without a trailing
/// slash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicUrl(String);

text_schema!(
    PublicUrl,
    "a URL that begins with https://HOST or http://HOST, without user, password, query and fragment",
    "https://alto.example.org/path"
);

impl TryFrom<String> for PublicUrl {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        // Omit the text, which may contain a password.
        let wrong = |why: &str| Err(format!("url: {why}"));
        // URI parsers drop fragments.
        if text.contains(['?', '#']) {
            return wrong("it must have no query and no fragment");
        }
        let (Ok(uri), Ok(_)) = (text.parse::<Uri>(), text.parse::<Url>()) else {
            return wrong("it is not a URL such as https://alto.example.org/path");
        };
        match (uri.scheme_str(), uri.authority()) {
            (Some("http" | "https"), Some(authority)) if authority.as_str().contains('@') => {
                wrong("it must have no user and no password")
            }
            (Some("http" | "https"), Some(authority)) if !authority.host().is_empty() => {
                Ok(Self(text.trim_end_matches('/').to_owned()))
            }
            _ => wrong("it must begin with https://HOST or http://HOST"),
        }
    }
}

impl From<PublicUrl> for String {
    fn from(url: PublicUrl) -> Self {
        url.0
    }
}

impl fmt::Display for PublicUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_address_beneath_which_others_are() {
        for (text, url) in [
            ("https://alto.example.org", Some("https://alto.example.org")),
            ("https://alto.example.org/", Some("https://alto.example.org")),
            ("http://[2001:db8::1]:8096/alto/v1/", Some("http://[2001:db8::1]:8096/alto/v1")),
            ("https://alto.example.org:99999", None),
            ("https://alto.example.org:x", None),
            ("https://alto.example.org/?", None),
            ("https://alto.example.org/#top", None),
            ("https://user@alto.example.org/", None),
            ("https://user:secret@alto.example.org/", None),
            ("ftp://alto.example.org/", None),
            ("alto.example.org", None),
            ("/alto", None),
            ("https://", None),
            ("https:///alto", None),
            ("https://:8096/", None),
            ("https://alto.example.org/a b", None),
            ("", None),
        ] {
            let found = PublicUrl::try_from(text.to_owned());
            assert_eq!(found.as_ref().ok().map(ToString::to_string).as_deref(), url, "{text}: {found:?}");
        }
    }
}
