//! Signing of requests ([Signature Version
//! 4](https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-authenticating-requests.html)), with credentials from the
//! same sources as Amazon's tools. `object_store` implements both; this module configures it and translates its
//! errors.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use http::{HeaderName, header};
use object_store::{
    RetryConfig,
    aws::{AmazonS3Builder, AwsAuthorizer, AwsCredential, AwsCredentialProvider},
    client::{HttpRequest, HttpRequestBody},
};
use towpath_proto::{
    checksum::{Algorithm, Hasher},
    url::Endpoint,
};
use towpath_store::{
    Blame, Error, Fault, Result,
    sys::{
        clock::{self, Instant},
        environment,
    },
};

use super::{credential_client::CredentialClient, settings::Settings};
use crate::http::{payload::Payload, pool::Pools, target::Target};

/// Time for which a failure to get credentials is cached, so that many files do not each wait for the same failure.
const BELIEVED: Duration = Duration::from_secs(30);

/// Signs the requests of one client.
pub(in crate::http) struct Signer {
    region: String,
    /// `None` if requests are not signed.
    credentials: Option<AwsCredentialProvider>,
    not_followed: Option<&'static str>,
    failed: Mutex<Option<(Instant, Error)>>,
}

impl Signer {
    /// Creates a signer for `settings`.
    ///
    /// # Errors
    /// `InvalidArgument` for invalid environment variables.
    pub(super) fn new(settings: &Settings, pools: &Arc<Pools>) -> Result<Self> {
        let credentials = match settings {
            Settings { is_anonymous: true, .. } => None,
            _ => Some(provider(settings, CredentialClient::new(Arc::clone(pools)))?),
        };
        let (region, not_followed) = (settings.region.clone(), settings.not_followed);
        Ok(Self { region, credentials, not_followed, failed: Mutex::default() })
    }

    /// Signs `request`, which is sent to `endpoint`. The content is signed too if the connection is not encrypted,
    /// because it could be modified in transit.
    ///
    /// # Errors
    /// `AuthenticationFailed` if there are no credentials.
    pub(in crate::http) async fn sign(&self, endpoint: &Endpoint, request: &mut http::Request<Payload>) -> Result<()> {
        let Some(credentials) = &self.credentials else { return Ok(()) };
        let credential = self.current(credentials).await?;
        let target = Target::encoded(endpoint.clone(), request.uri().to_string());
        let mut signed = HttpRequest::new(HttpRequestBody::empty());
        *signed.method_mut() = request.method().clone();
        *signed.uri_mut() = format!("{}{}", target.root(), target.path_and_query)
            .parse()
            .map_err(|_| Error::new(Fault::InvalidArgument, "the key has invalid characters"))?;
        for (name, value) in request.headers().iter().filter(|(name, _)| is_signed(name)) {
            signed.headers_mut().insert(name, value.clone());
        }
        let digest = match request.body() {
            Payload::Whole(content) if !endpoint.tls => Some(Hasher::digest_of(Algorithm::Sha256, content)),
            _ => None,
        };
        let has_content = !matches!(request.body(), Payload::Empty);
        AwsAuthorizer::new(&credential, "s3", &self.region)
            .with_sign_payload(!(endpoint.tls && has_content))
            .try_authorize(&mut signed, digest.as_ref().map(|digest| digest.bytes()))
            .map_err(|error| Error::new(Fault::Internal, format!("a request could not be signed: {error}")))?;
        for (name, mut value) in std::mem::take(signed.headers_mut()) {
            if let Some(name) = name {
                value.set_sensitive(name == header::AUTHORIZATION || name == "x-amz-security-token");
                request.headers_mut().insert(name, value);
            }
        }
        Ok(())
    }

    async fn current(&self, credentials: &AwsCredentialProvider) -> Result<Arc<AwsCredential>> {
        if let Some((when, error)) = &*self.failed()
            && clock::now() - *when < BELIEVED
        {
            return Err(error.clone());
        }
        credentials.get_credential().await.map_err(|error| {
            tracing::debug!(%error, "no credentials for S3");
            let error = self.without_credentials();
            *self.failed() = Some((clock::now(), error.clone()));
            error
        })
    }

    fn failed(&self) -> std::sync::MutexGuard<'_, Option<(Instant, Error)>> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn without_credentials(&self) -> Error {
        let hint = match self.not_followed {
            Some(key) => format!(
                "the profile uses {key}, which is not supported: run `eval $(aws configure export-credentials --format env)`"
            ),
            None => "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY or a profile in ~/.aws/credentials, or AWS_SKIP_SIGNATURE=true for a \
                     public bucket"
                .to_owned(),
        };
        Error::new(Fault::AuthenticationFailed, format!("there are no credentials for S3: {hint}"))
            .blamed_on(Blame::Caller)
    }
}

/// Returns the source of credentials: static keys are available at once, others are requested on demand.
fn provider(settings: &Settings, credential_client: CredentialClient) -> Result<AwsCredentialProvider> {
    let retry = RetryConfig { max_retries: 1, retry_timeout: Duration::from_secs(5), ..RetryConfig::default() };
    // Keys and session token belong together: either all come from the environment or none.
    let builder = if settings.keys.is_some() { AmazonS3Builder::new() } else { builder_from_environment() };
    // The bucket name is a placeholder: only the credentials are used.
    let mut builder = builder
        .with_bucket_name("bucket")
        .with_region(&settings.region)
        .with_http_connector(credential_client)
        .with_retry(retry);
    if let Some(keys) = &settings.keys {
        builder = builder.with_access_key_id(&keys.id).with_secret_access_key(keys.secret.expose());
        if let Some(token) = &keys.token {
            builder = builder.with_token(token.expose());
        }
    } else if !settings.asks_machine {
        return Ok(Arc::new(NoCredentials));
    }
    let built = builder.build();
    let store = built.map_err(|error| {
        Error::new(Fault::InvalidArgument, format!("invalid S3 settings in the environment (AWS_…): {error}"))
    })?;
    Ok(Arc::clone(store.credentials()))
}

/// Returns a builder with the settings in the environment. Unlike `AmazonS3Builder::from_env`, it ignores empty variables.
fn builder_from_environment() -> AmazonS3Builder {
    let settings = environment::variables().filter(|(name, _)| name.starts_with("AWS_"));
    settings.fold(AmazonS3Builder::new(), |builder, (name, value)| match name.to_ascii_lowercase().parse() {
        Ok(key) => builder.with_config(key, value),
        Err(_) => builder,
    })
}

/// A provider without credentials.
#[derive(Debug)]
struct NoCredentials;

#[async_trait::async_trait]
impl object_store::CredentialProvider for NoCredentials {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        Err(object_store::Error::Generic { store: "S3", source: "no source of credentials is enabled".into() })
    }
}

/// Returns whether the signature must cover a header field; proxies may change some of the others.
fn is_signed(name: &HeaderName) -> bool {
    name.as_str().starts_with("x-amz-")
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer").field("region", &self.region).finish_non_exhaustive()
    }
}
