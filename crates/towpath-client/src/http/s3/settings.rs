//! The endpoint and credentials of buckets: from the user's options, else the environment, else a profile in `~/.aws`,
//! in the order of Amazon's tools (<https://docs.aws.amazon.com/sdkref/latest/guide/settings-reference.html>).

use std::{fmt, path::PathBuf};

use towpath_proto::url::{Endpoint, Family, Url};
use towpath_store::{Error, Result, Secret, sys::environment};

use super::profile::Profile;

/// Default region: accepted by stores other than Amazon's, and Amazon's own default.
const REGION: &str = "us-east-1";

/// Options of S3. Missing ones come from the environment (`AWS_ENDPOINT_URL_S3`, `AWS_ENDPOINT_URL`, `AWS_REGION`,
/// `AWS_DEFAULT_REGION`, `AWS_PROFILE`, …) and from `~/.aws/config` and `~/.aws/credentials`.
#[derive(Debug, Clone, Default)]
pub struct S3Options {
    /// The server, as `https://host:port`; `None` for Amazon's own.
    pub endpoint: Option<String>,
    /// The region that requests are signed for.
    pub region: Option<String>,
    /// Whether the bucket is in the path of a request rather than in the host name: `false` only for a configured
    /// server that has a host name per bucket. Default: in the path for a configured server; at Amazon, only for
    /// buckets with a dot in their name.
    pub path_style: Option<bool>,
    /// Credentials for buckets.
    pub keys: Option<S3Keys>,
}

/// Long-lived or temporary keys. The secret ones print as `<redacted>`.
#[derive(Debug, Clone)]
pub struct S3Keys {
    /// The access key id, which is not secret.
    pub id: String,
    /// The secret access key.
    pub secret: Secret,
    /// The session token of temporary keys.
    pub token: Option<Secret>,
}

/// The effective settings.
pub(super) struct Settings {
    endpoint: Option<Endpoint>,
    pub(super) region: String,
    path_style: Option<bool>,
    /// Whether requests are unsigned, for buckets with public read access.
    pub(super) is_anonymous: bool,
    /// Configured keys, or those of a profile; `None` if the environment has keys, or specifies another source.
    pub(super) keys: Option<S3Keys>,
    /// Whether to request credentials from the metadata service of a machine at Amazon.
    pub(super) asks_machine: bool,
    /// An unsupported source of credentials in the profile.
    pub(super) not_followed: Option<&'static str>,
}

/// Environment variables that specify the source of credentials.
const SOURCES: [&str; 4] = [
    "AWS_ACCESS_KEY_ID",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
];

/// Sources of credentials in a profile that are not supported.
const NOT_FOLLOWED: [&str; 4] = ["role_arn", "credential_process", "sso_session", "sso_start_url"];

impl Settings {
    /// Completes `options` from the environment and the profile.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid values, and for files that cannot be read.
    pub(super) fn find(options: &S3Options) -> Result<Self> {
        Self::find_in(options, environment::text)
    }

    fn find_in(options: &S3Options, variable: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let profile = read_profile(&variable)?;
        let from_profile = |key: &str| profile.get(key).map(str::to_owned);
        let endpoint = options.endpoint.clone().or_else(|| {
            let named = ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"].into_iter().find_map(&variable);
            named.or_else(|| from_profile("s3.endpoint_url")).or_else(|| from_profile("endpoint_url"))
        });
        let region = options.region.clone().or_else(|| {
            let named = ["AWS_REGION", "AWS_DEFAULT_REGION"].into_iter().find_map(&variable);
            named.or_else(|| from_profile("region"))
        });
        let region = region.unwrap_or_else(|| REGION.into());
        if !region.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_') {
            return Err(Error::invalid_setting("the S3 region has invalid characters"));
        }
        let path_style = options.path_style.or_else(|| match profile.get("s3.addressing_style") {
            Some("path") => Some(true),
            Some("virtual") => Some(false),
            _ => None,
        });
        let is_true = |name: &str| variable(name).is_some_and(|value| matches!(value.as_str(), "1" | "true" | "TRUE"));
        let has_source = SOURCES.iter().any(|name| variable(name).is_some());
        Ok(Self {
            endpoint: endpoint.map(|text| parse_endpoint(&text)).transpose()?,
            region,
            path_style,
            is_anonymous: is_true("AWS_SKIP_SIGNATURE"),
            keys: options.keys.clone().or_else(|| keys_of(&profile).filter(|_| !has_source)),
            asks_machine: has_source || !is_true("AWS_EC2_METADATA_DISABLED"),
            not_followed: NOT_FOLLOWED.into_iter().find(|key| profile.get(key).is_some()),
        })
    }

    /// Returns whether buckets are at Amazon.
    pub(super) fn is_amazon(&self) -> bool {
        self.endpoint.is_none()
    }

    /// Returns the server of a bucket, and the part of the request path before the key.
    pub(super) fn target_of(&self, bucket: &str) -> (Endpoint, String) {
        let amazon =
            || Endpoint { family: Family::S3, tls: true, host: format!("s3.{}.amazonaws.com", self.region), port: 443 };
        let mut endpoint = self.endpoint.clone().unwrap_or_else(amazon);
        // No certificate of Amazon is valid for `a.b.s3.amazonaws.com`.
        let in_path = self.path_style.unwrap_or(self.endpoint.is_some() || bucket.contains('.'));
        if in_path {
            return (endpoint, format!("/{bucket}"));
        }
        endpoint.host = format!("{bucket}.{}", endpoint.host);
        (endpoint, String::new())
    }
}

fn read_profile(variable: &impl Fn(&str) -> Option<String>) -> Result<Profile> {
    let name = variable("AWS_PROFILE");
    let home = variable("HOME").map(|home| PathBuf::from(home).join(".aws"));
    let at = |named: &str, file: &str| variable(named).map(PathBuf::from).or_else(|| Some(home.as_ref()?.join(file)));
    let files = at("AWS_CONFIG_FILE", "config").zip(at("AWS_SHARED_CREDENTIALS_FILE", "credentials"));
    let Some((config, credentials)) = files else { return Ok(Profile::default()) };
    Profile::read(name.as_deref().unwrap_or("default"), &config, &credentials)
}

fn keys_of(profile: &Profile) -> Option<S3Keys> {
    Some(S3Keys {
        id: profile.get("aws_access_key_id")?.to_owned(),
        secret: Secret::new(profile.get("aws_secret_access_key")?),
        token: profile.get("aws_session_token").map(Secret::new),
    })
}

fn parse_endpoint(text: &str) -> Result<Endpoint> {
    let url: Url = text.parse().map_err(|error| Error::invalid_setting(format!("the S3 endpoint: {error}")))?;
    if url.scheme().family() != Family::Http || url.path() != b"/" || url.query().is_some() || url.user().is_some() {
        return Err(Error::invalid_setting("the S3 endpoint must have the form http[s]://HOST[:PORT]"));
    }
    Ok(Endpoint { family: Family::S3, ..url.endpoint() })
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { endpoint, region, path_style, is_anonymous, .. } = self;
        write!(f, "Settings {{ {endpoint:?}, {region}, {path_style:?}, {is_anonymous} }}")
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::{Fault, sys::disk};

    use super::*;

    fn find(options: &S3Options, variables: &[(&str, &str)]) -> Result<Settings> {
        let variables: Vec<_> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Settings::find_in(options, |name| {
            variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
        })
    }

    fn target(settings: &Settings, bucket: &str) -> String {
        let (endpoint, prefix) = settings.target_of(bucket);
        format!("{}://{endpoint}{prefix}", if endpoint.tls { "https" } else { "http" })
    }

    #[test]
    fn buckets_are_at_amazon_unless_a_server_is_named() {
        let settings = find(&S3Options::default(), &[]).unwrap();
        assert_eq!(target(&settings, "b"), "https://b.s3.us-east-1.amazonaws.com:443");
        assert_eq!(target(&settings, "a.b"), "https://s3.us-east-1.amazonaws.com:443/a.b");
        let variables = [("AWS_ENDPOINT_URL", "http://127.0.0.1:9000"), ("AWS_DEFAULT_REGION", "here")];
        let settings = find(&S3Options::default(), &variables).unwrap();
        assert_eq!((target(&settings, "b").as_str(), settings.region.as_str()), ("http://127.0.0.1:9000/b", "here"));
        let options =
            S3Options { path_style: Some(false), endpoint: Some("https://s3.x".into()), ..S3Options::default() };
        assert_eq!(target(&find(&options, &variables).unwrap(), "b"), "https://b.s3.x:443");
    }

    #[test]
    fn the_user_goes_before_the_environment_and_that_before_the_profile() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let text = "[default]\nregion = profile\naws_access_key_id = K\naws_secret_access_key = S\nrole_arn = R\n";
        disk::write(&file, text.as_bytes()).unwrap();
        let file = file.display().to_string();
        let variables = [("AWS_CONFIG_FILE", file.as_str()), ("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")];
        let settings = find(&S3Options::default(), &variables).unwrap();
        assert_eq!((settings.region.as_str(), settings.not_followed), ("profile", Some("role_arn")));
        assert_eq!(settings.keys.as_ref().unwrap().id, "K");
        assert!(!format!("{:?}", settings.keys).contains("\"S\""), "secrets are not printed");
        let more = [&variables[..], &[("AWS_REGION", "environment"), ("AWS_ACCESS_KEY_ID", "other")]].concat();
        let settings = find(&S3Options::default(), &more).unwrap();
        assert_eq!((settings.region.as_str(), settings.keys.is_none()), ("environment", true));
        let options = S3Options { region: Some("user".into()), ..S3Options::default() };
        assert_eq!(find(&options, &more).unwrap().region, "user");
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for endpoint in ["host", "ftp://host", "https://host/path", "https://user@host", "s3://b"] {
            let options = S3Options { endpoint: Some(endpoint.into()), ..S3Options::default() };
            assert_eq!(find(&options, &[]).unwrap_err().fault(), Fault::InvalidArgument, "{endpoint}");
        }
        assert!(find(&S3Options { region: Some("a.b/c".into()), ..S3Options::default() }, &[]).is_err());
    }
}
