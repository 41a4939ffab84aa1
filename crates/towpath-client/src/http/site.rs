//! An HTTP site: requests with redirects and retries, and the known capabilities of the site.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderValue, Method, StatusCode, Uri, header};
use hyper::body::Incoming;
use tokio::{
    sync::{OwnedSemaphorePermit, RwLock},
    time::{sleep, timeout},
};
use tokio_util::task::TaskTracker;
use towpath_proto::{http::date, tcp::TCP_INFO_FIELD, url::Endpoint};
use towpath_store::{
    Blame, Caller, Error, Fault, Result, Secret,
    sys::{clock, random},
};

use super::{
    body_channel::BodyChannel,
    concurrency::ConcurrencyLimit,
    features::{self, SiteFeatures},
    payload::Payload,
    pool::{Connection, Pool, Pools},
    refusal,
    request::Request,
    response::HttpResponse,
    retry_state::{Failure, RetryState},
    s3::Signer,
    stat,
    target::Target,
};
use crate::{
    ClientOptions,
    dial::Dialer,
    passwords::{Login, Passwords},
    token::{Tokens, WithholdReason},
};

/// Time to wait for `100 Continue` before the body is sent anyway, as curl does; some sites do not support it.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of sites; beyond that, unused ones are dropped together with their known capabilities.
const MAX_SITES: usize = 256;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("towpath/", env!("CARGO_PKG_VERSION")));

/// A server, and the user in the URL.
type SiteKey = (Endpoint, Option<Login>);

/// The HTTP sites of one client.
#[derive(Debug)]
pub struct Sites {
    options: Arc<ClientOptions>,
    tokens: Arc<Tokens>,
    passwords: Arc<Passwords>,
    background: TaskTracker,
    pub(super) pools: Arc<Pools>,
    /// Whether to yield to other traffic.
    is_nice: Arc<AtomicBool>,
    sites: Mutex<HashMap<SiteKey, Arc<Site>>>,
}

impl Sites {
    /// Creates the set without any site.
    pub(crate) fn new(
        options: Arc<ClientOptions>,
        tokens: Arc<Tokens>,
        background: TaskTracker,
        dialer: Arc<Dialer>,
    ) -> Arc<Self> {
        let pools = Arc::new(Pools::new(Arc::clone(&options), dialer));
        let passwords = Arc::new(Passwords::new(options.passwords.clone()));
        Arc::new(Self {
            options,
            tokens,
            passwords,
            background,
            pools,
            is_nice: Arc::default(),
            sites: Mutex::default(),
        })
    }

    /// Limits the number of concurrent requests to each site from now on.
    pub(crate) fn be_nice(&self) {
        self.is_nice.store(true, Relaxed);
    }

    /// Returns the site at `endpoint`, for calls of `login`.
    pub(super) fn at(&self, endpoint: &Endpoint, login: Option<Login>) -> Arc<Site> {
        let key = (endpoint.clone(), login);
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if sites.len() >= MAX_SITES && !sites.contains_key(&key) {
            sites.retain(|_, site| Arc::strong_count(site) > 1);
        }
        let new = |(endpoint, login): &SiteKey| Site { login: login.clone(), ..Site::new(endpoint.clone(), self) };
        Arc::clone(sites.entry(key).or_insert_with_key(|key| Arc::new(new(key))))
    }

    /// Creates a separate site at `endpoint`, whose requests are signed. It uses neither WebDAV nor `Want-Digest`.
    pub(super) fn signed(&self, endpoint: Endpoint, signer: Arc<Signer>) -> Site {
        let site = Site { signer: Some(signer), ..Site::new(endpoint, self) };
        for unknown in [&site.features.dav, &site.features.want_digest, &site.features.many_ranges] {
            unknown.learn(false);
        }
        site
    }
}

/// One site.
#[derive(Debug)]
pub(super) struct Site {
    pub(super) endpoint: Endpoint,
    pub(super) options: Arc<ClientOptions>,
    pub(super) features: Arc<SiteFeatures>,
    tokens: Arc<Tokens>,
    passwords: Arc<Passwords>,
    /// The user in the URL.
    login: Option<Login>,
    /// Tasks that remove the remains of dropped uploads.
    pub(super) background: TaskTracker,
    /// Locked while the end of an upload is sent to the site.
    pub(super) farewells: Arc<RwLock<()>>,
    pub(super) pools: Arc<Pools>,
    concurrency: ConcurrencyLimit,
    /// Signs the requests of the site, in place of a token.
    signer: Option<Arc<Signer>>,
}

/// The credentials of a request.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    token: Option<Secret>,
    /// The value of `Authorization` for a password, without a token.
    password: Option<HeaderValue>,
    withheld: Option<WithholdReason>,
}

impl Credentials {
    /// Returns the value of `Authorization`, if there are credentials to send.
    fn authorization(&self) -> Result<Option<HeaderValue>> {
        let Some(token) = &self.token else { return Ok(self.password.clone()) };
        let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose()))
            .map_err(|_| Error::new(Fault::AuthenticationFailed, "the bearer token has invalid characters"))?;
        value.set_sensitive(true);
        Ok(Some(value))
    }

    /// Returns the token to send.
    pub(super) fn token(&self) -> Option<&Secret> {
        self.token.as_ref()
    }

    /// Returns the reason why no credentials are sent, if there is one.
    pub(super) fn withheld(&self) -> Option<WithholdReason> {
        self.withheld
    }
}

impl Site {
    fn new(endpoint: Endpoint, sites: &Sites) -> Self {
        let Sites { options, tokens, passwords, background, pools, is_nice, .. } = sites;
        Self {
            endpoint,
            options: Arc::clone(options),
            tokens: Arc::clone(tokens),
            passwords: Arc::clone(passwords),
            login: None,
            background: background.clone(),
            farewells: Arc::default(),
            features: Arc::default(),
            pools: Arc::clone(pools),
            signer: None,
            concurrency: ConcurrencyLimit::new(Arc::clone(is_nice)),
        }
    }

    /// Returns whether the site is an S3 bucket, whose requests are signed.
    pub(super) fn is_signed(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns whether data sent to the site cannot be read by others.
    pub(super) fn is_confidential(&self) -> bool {
        self.pools.is_confidential(&self.endpoint)
    }

    /// Returns the credentials of `caller`: its own token, the password of the URL, the token in the options, or the
    /// password for this server. They are sent only over TLS or within this machine.
    ///
    /// # Errors
    /// `AuthenticationFailed` for a configured token or password that cannot be used.
    pub(super) fn credentials(&self, caller: &Caller) -> Result<Credentials> {
        if caller.is_nobody {
            return Ok(Credentials { withheld: Some(WithholdReason::Nobody), ..Credentials::default() });
        }
        if self.signer.is_some() {
            return Ok(Credentials::default());
        }
        let field = self.options.headers.get(header::AUTHORIZATION);
        let has_password = self.login.as_ref().is_some_and(Login::has_password);
        let token = match &caller.token {
            Some(token) => Some(token.clone()),
            None if field.is_some() || has_password => None,
            None => self.tokens.current()?,
        };
        let password = match (&token, field) {
            (None, None) => self.passwords.authorization(&self.endpoint.host, self.login.as_ref())?,
            _ => None,
        };
        let safe = self.is_confidential();
        let is_withheld = !safe && (token.is_some() || password.is_some() || field.is_some());
        let reason = if self.endpoint.tls { WithholdReason::Unverified } else { WithholdReason::Unencrypted };
        let is_missing = self.tokens.are_used() && token.is_none() && password.is_none() && field.is_none();
        let withheld = is_withheld.then_some(reason).or(is_missing.then_some(WithholdReason::Missing));
        Ok(Credentials { withheld, token: token.filter(|_| safe), password: password.filter(|_| safe) })
    }

    /// Returns the retry state of a request to `target`.
    pub(super) fn retry_state(&self, target: &Target) -> RetryState {
        RetryState::new(target.clone(), &self.options, clock::now())
    }

    /// Sends a request until there is a usable response: any status except redirects and those that defer the request.
    ///
    /// # Errors
    /// The last error, when a retry is useless or the retry budget is spent.
    pub(super) async fn send_request(
        &self,
        caller: &Caller,
        retry_state: &mut RetryState,
        request: &Request,
    ) -> Result<HttpResponse> {
        loop {
            let failure = match self.attempt(caller, retry_state.target(), request).await {
                Ok(answer) => {
                    if request.prompt {
                        self.concurrency.increase();
                    }
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if request.prompt && !matches!(failure, Failure::Redirect(_) | Failure::Fatal(_)) {
                self.concurrency.decrease();
            }
            self.handle_failure(retry_state, failure, request).await?;
        }
    }

    /// Waits until the next attempt is due.
    ///
    /// # Errors
    /// The error to report, if there is no further attempt.
    pub(super) async fn handle_failure(
        &self,
        retry_state: &mut RetryState,
        failure: Failure,
        request: &Request,
    ) -> Result<()> {
        let untouched = request.payload.is_untouched();
        let repeatable = request.repeatable && untouched;
        let failure = match failure {
            // The sent data of a stream cannot be sent again.
            Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) if !untouched => {
                Failure::Lost(error)
            }
            Failure::Redirect(_) if !untouched => {
                // The server did not send `100 Continue` in time; from now on the client waits for it.
                self.features.says_continue.learn(true);
                let message = "the server redirected an upload after accepting part of it";
                Failure::Fatal(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage))
            }
            failure => failure,
        };
        tracing::debug!(server = retry_state.target().root(), "attempt failed: {failure}");
        let answers = self.features.answers.certain();
        let why = match &failure {
            Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) => error.to_string(),
            Failure::Redirect(_) | Failure::Fatal(_) => String::new(),
        };
        let pause = retry_state.after_failure(failure, repeatable, answers, clock::now(), random::number())?;
        if !pause.is_zero() {
            let elapsed = retry_state.elapsed(clock::now());
            self.options.waits.pause(&retry_state.target().root(), elapsed, pause, why);
            sleep(pause).await;
        }
        Ok(())
    }

    async fn attempt(&self, caller: &Caller, target: &Target, request: &Request) -> Result<HttpResponse, Failure> {
        if target.endpoint == self.endpoint {
            self.check_name(target).map_err(Failure::Fatal)?;
        }
        let credentials = self.credentials(caller).map_err(Failure::Fatal)?;
        let mut message = self.message(target, request, &credentials).map_err(Failure::Fatal)?;
        // Requests to the target of a redirect are never signed.
        if let Some(signer) = self.signer.as_ref().filter(|_| target.endpoint == self.endpoint && !caller.is_nobody) {
            signer.sign(&target.endpoint, &mut message).await.map_err(Failure::Fatal)?;
        }
        let permit = match request.prompt {
            true => self.concurrency.acquire().await,
            false => None,
        };
        let pool = self.pools.of(&target.endpoint);
        let connection = self.pools.connection(&pool, request.repeatable).await?;
        let answer = self.exchange(target, request, message, (connection, pool), permit).await?;
        if target.endpoint == self.endpoint {
            self.features.learn(&answer.headers);
        }
        if features::is_xrootd(&answer.headers) {
            check_name(target).map_err(Failure::Fatal)?;
        }
        if answer.status == StatusCode::UNAUTHORIZED {
            self.tokens.forget();
        }
        if answer.status == StatusCode::INTERNAL_SERVER_ERROR && self.signer.is_some() {
            // With this response S3 means that a retry may succeed.
            return Err(Failure::Lost(refusal::of(answer, &request.method, &credentials).await));
        }
        classify(answer, request, &credentials).await
    }

    /// Fails if this site is known to interpret `target` as another file.
    ///
    /// # Errors
    /// `InvalidArgument` for a name with a question mark at XRootD.
    pub(super) fn check_name(&self, target: &Target) -> Result<()> {
        if self.features.is_xrootd.certain() { check_name(target) } else { Ok(()) }
    }

    /// Creates the HTTP message of `request`.
    ///
    /// # Errors
    /// Fails if the request has a header field that cannot be sent.
    pub(super) fn message(
        &self,
        target: &Target,
        request: &Request,
        credentials: &Credentials,
    ) -> Result<http::Request<Payload>> {
        if let Some(flaw) = &request.flaw {
            return Err(flaw.clone());
        }
        let uri = Uri::try_from(&target.path_and_query)
            .map_err(|_| Error::new(Fault::InvalidArgument, "the path or query of the URL has invalid characters"))?;
        let mut message = http::Request::new(request.payload.clone());
        *message.method_mut() = request.method.clone();
        *message.uri_mut() = uri;
        let headers = message.headers_mut();
        // As with the token below: never sent to the target of a redirect.
        if target.endpoint == self.endpoint && credentials.withheld != Some(WithholdReason::Nobody) {
            headers.extend(self.options.headers.clone());
            if credentials.withheld.is_some() {
                headers.remove(header::AUTHORIZATION);
            }
        }
        headers.insert(header::HOST, target.host_field()?);
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        // Files are requested as they are stored; without this field a server may choose any coding.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.pools.asks_for_far_ends() {
            headers.insert(TCP_INFO_FIELD, HeaderValue::from_static("?"));
        }
        headers.extend(request.headers.clone());
        if self.signer.is_some() && request.method == Method::HEAD {
            headers.insert("x-amz-checksum-mode", HeaderValue::from_static("ENABLED"));
        }
        // Never sent to the target of a redirect: access there is granted by signed URLs.
        if let Some(value) = credentials.authorization()?.filter(|_| target.endpoint == self.endpoint) {
            headers.insert(header::AUTHORIZATION, value);
        }
        if matches!(request.payload, Payload::Stream(_)) && self.features.says_continue.possible() {
            headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        Ok(message)
    }

    /// Returns the maximum time to the header of the response. That of a site that has never responded is limited, unless
    /// the request is a slow operation.
    fn response_time(&self, target: &Target, request: &Request) -> Duration {
        let is_known = self.features.answers.certain() || target.endpoint != self.endpoint;
        let is_slow = request.wait > self.options.stall;
        self.options.silence_permitted(request.wait, is_known || is_slow)
    }

    /// Sends the request, and waits for the header of the response.
    async fn exchange(
        &self,
        target: &Target,
        request: &Request,
        mut message: http::Request<Payload>,
        (mut connection, pool): (Connection, Arc<Pool>),
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<HttpResponse, Failure> {
        connection.address(&mut message, target).map_err(Failure::Fatal)?;
        let name = connection.name(target);
        let lost = |error: hyper::Error| {
            let message = format!("no response from {name}: {error}");
            Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
        };
        let root = target.root();
        let long = |waited: Duration| {
            format!("waiting for {root}: no response to {} for {} s", request.method, waited.as_secs())
        };
        let start = clock::now();
        let sent = match &request.payload {
            Payload::Stream(body_channel) => {
                self.hear_continue(&mut message, body_channel);
                let sending = connection.sender.try_send_request(message);
                self.send_stream(sending, body_channel).await
            }
            _ => {
                let wait = self.response_time(target, request);
                let answered = timeout(wait, connection.sender.try_send_request(message));
                self.options.waits.during(&root, long, answered).await.ok()
            }
        };
        match sent {
            Some(Ok(response)) => {
                check_order(request, &response, &name)?;
                connection.note_far_end(response.headers());
                if stat::wants_digest(request) && features::is_xrootd(response.headers()) {
                    connection.rest_after_digest();
                }
                // An upload that gets its response before it is complete cannot continue, and its connection cannot be
                // reused.
                let pool = request.payload.is_sent().then_some(pool);
                let is_upload = matches!(request.payload, Payload::Stream(_));
                let time = (!is_upload).then(|| connection.response_time(start.elapsed()));
                let response = HttpResponse::new(response, target.clone(), (connection, pool), permit, &self.options);
                Ok(response.with_time(time))
            }
            Some(Err(mut error)) => {
                let unsent = error.take_message().is_some();
                let error = lost(error.into_error());
                Err(if unsent { Failure::NotSent(error) } else { Failure::Lost(error) })
            }
            None => {
                let message = format!("{name} did not respond in time");
                Err(Failure::Lost(Error::new(Fault::TimedOut, message).blamed_on(Blame::Network)))
            }
        }
    }

    /// Starts the body when the server sends `100 Continue`.
    pub(super) fn hear_continue(&self, message: &mut http::Request<Payload>, body_channel: &Arc<BodyChannel>) {
        if !message.headers().contains_key(header::EXPECT) {
            return body_channel.go();
        }
        let (features, body_channel) = (Arc::clone(&self.features), Arc::clone(body_channel));
        hyper::ext::on_informational(message, move |informational| {
            if informational.status() == StatusCode::CONTINUE {
                features.says_continue.learn(true);
                body_channel.go();
            }
        });
    }

    /// Returns the response to an upload; `None` if no data moved for too long although the writer was not the cause.
    async fn send_stream<T>(&self, sending: impl Future<Output = T>, body_channel: &BodyChannel) -> Option<T> {
        let mut sending = std::pin::pin!(sending);
        let longest = if self.features.says_continue.certain() { self.options.stall } else { CONTINUE_WAIT };
        tokio::select! {
            answer = &mut sending => return Some(answer),
            () = body_channel.started() => {}
            () = sleep(longest) => {
                self.features.says_continue.learn(false);
                body_channel.go();
            }
        }
        let mut taken = 0;
        let mut stalled = Duration::ZERO;
        loop {
            if let Ok(answer) = timeout(self.options.stall, &mut sending).await {
                return Some(answer);
            }
            let now_taken = body_channel.taken_bytes();
            let moves = now_taken > taken || body_channel.waits_for_writer();
            stalled = if moves { Duration::ZERO } else { stalled + self.options.stall };
            taken = now_taken;
            // After all bytes were sent, the storage may still have to write, verify and move them.
            let limit = if body_channel.is_drained() { self.options.patience } else { self.options.stall };
            if stalled >= limit {
                return None;
            }
        }
    }
}

/// Fails if XRootD would interpret `target` as another file: it treats everything after a question mark in a name,
/// percent-encoded or not, as parameters (seen with 5.5.3), so that `c?d` would be read, replaced or removed as `c`.
fn check_name(target: &Target) -> Result<()> {
    if !target.has_question_mark() {
        return Ok(());
    }
    let message = format!(
        "{} is XRootD, which cannot serve a name with a question mark by HTTP: use another protocol, or rename it",
        target.root()
    );
    Err(Error::new(Fault::InvalidArgument, message).blamed_on(Blame::Storage))
}

/// Fails if `response` belongs to another request: it is a part of a file although no range was requested (RFC 9110
/// §15.3.7), or describes several resources (RFC 4918 §11.1) although the content of one was sent or requested. The
/// connection is not used again.
fn check_order(request: &Request, response: &hyper::Response<Incoming>, name: &str) -> Result<(), Failure> {
    let is_possible = match response.status() {
        StatusCode::PARTIAL_CONTENT => request.headers.contains_key(header::RANGE),
        StatusCode::MULTI_STATUS => !matches!(request.method, Method::GET | Method::HEAD | Method::PUT),
        _ => true,
    };
    if is_possible {
        return Ok(());
    }
    let (status, method) = (response.status().as_u16(), &request.method);
    let message = format!("{name} sent a response ({status}) that does not belong to the request ({method})");
    Err(Failure::Lost(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)))
}

/// Fails if the body of `answer` has a transfer coding other than a single `chunked`. None is requested (RFC 9112
/// §7.4): the bytes of another coding are not the content, and without `chunked` as the last coding only the end of the
/// connection marks the end of the body.
fn check_coding(answer: &HttpResponse) -> Result<(), Failure> {
    let mut fields = answer.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_known = match (fields.next(), fields.next()) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    };
    if is_known {
        return Ok(());
    }
    let message = format!("{} sent an unsupported Transfer-Encoding: only chunked is supported", answer.target.root());
    Err(Failure::Fatal(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)))
}

/// Decides whether to use a response, or to retry.
async fn classify(answer: HttpResponse, request: &Request, credentials: &Credentials) -> Result<HttpResponse, Failure> {
    if let Some(proxy) =
        answer.forwarder.as_ref().filter(|_| answer.status == StatusCode::PROXY_AUTHENTICATION_REQUIRED)
    {
        return Err(Failure::Fatal(proxy.demands_password()));
    }
    check_coding(&answer)?;
    if let Some(location) = answer.headers.get(header::LOCATION).filter(|_| is_redirect(answer.status, request)) {
        let next = answer.target.redirected(location.as_bytes()).map_err(Failure::Fatal)?;
        if request.of_file && answer.target.is_directory_form(&next) {
            return Err(Failure::Fatal(Error::new(Fault::IsDirectory, "it is a directory")));
        }
        if request.has_second_target() && next.endpoint != answer.target.endpoint {
            let message = format!("{} redirects {} to another server", answer.target.root(), request.method);
            return Err(Failure::Fatal(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)));
        }
        answer.discard().await;
        return Err(Failure::Redirect(next));
    }
    match answer.status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let when = answer.field(header::RETRY_AFTER).and_then(retry_after);
            Err(Failure::Later(refusal::of(answer, &request.method, credentials).await, when))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
            if !request.has_second_target() =>
        {
            Err(Failure::Lost(refusal::of(answer, &request.method, credentials).await))
        }
        _ => Ok(answer),
    }
}

/// Returns whether `status` redirects the same request. 303 requests a GET (or HEAD) instead, and 300 recommends one,
/// so both apply only to those.
fn is_redirect(status: StatusCode, request: &Request) -> bool {
    match status.as_u16() {
        301 | 302 | 307 | 308 => true,
        300 | 303 => matches!(request.method, Method::GET | Method::HEAD),
        _ => false,
    }
}

/// Parses `Retry-After`: seconds, or a date.
fn retry_after(value: &str) -> Option<Duration> {
    let seconds = match value.parse::<u32>() {
        Ok(seconds) => i64::from(seconds),
        Err(_) => date::parse(value)?.saturating_sub(clock::unix_s()),
    };
    Some(Duration::from_secs(u64::try_from(seconds).unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ProxySettings, ProxyUrl};

    fn site() -> (Arc<Site>, Target) {
        let options = Arc::new(ClientOptions::default());
        let tokens = Arc::new(Tokens::new(crate::TokenSource::Nothing));
        let dialer = Arc::new(Dialer::new(Arc::clone(&options)));
        let sites = Sites::new(options, tokens, TaskTracker::new(), dialer);
        let url: towpath_proto::url::Url = "http://host/".parse().unwrap();
        (sites.at(&url.endpoint(), None), Target::new(&url.endpoint(), &towpath_store::StorePath::root(), None))
    }

    #[tokio::test]
    async fn a_site_that_redirects_uploads_late_is_waited_for_from_then_on() {
        let (site, target) = site();
        site.features.says_continue.learn(false);
        let body_channel = Arc::new(BodyChannel::new(None, vec!["taken".into(), "waits".into()]));
        body_channel.go();
        std::future::poll_fn(|context| body_channel.poll_piece(context)).await;
        let request = Request { payload: Payload::Stream(body_channel), ..Request::new(&site, Method::PUT) };
        let elsewhere = Failure::Redirect(target.redirected(b"/elsewhere").unwrap());
        site.handle_failure(&mut site.retry_state(&target), elsewhere, &request).await.unwrap_err();
        assert!(site.features.says_continue.certain());
    }

    #[test]
    fn only_a_verified_server_or_this_machine_gets_credentials() {
        let is_confidential = |url: &str, insecure: bool, proxy: Option<&str>| {
            let proxy = proxy.map(|url| ProxyUrl { url: Secret::new(url), setting: String::new() });
            let proxies = ProxySettings { http: proxy, ..ProxySettings::default() };
            let options = Arc::new(ClientOptions { insecure, proxies, ..ClientOptions::default() });
            let pools = Pools::new(Arc::clone(&options), Arc::new(Dialer::new(options)));
            pools.is_confidential(&url.parse::<towpath_proto::url::Url>().unwrap().endpoint())
        };
        for (url, insecure, proxy, expected) in [
            ("https://host/", false, None, true),
            ("https://host/", true, None, false),
            ("https://localhost/", true, None, true),
            ("http://host/", false, None, false),
            ("http://localhost/", false, None, true),
            ("http://localhost/", false, Some("proxy.example"), false),
            ("http://localhost/", false, Some("127.0.0.1"), true),
            ("http://localhost/", false, Some("socks5://proxy.example"), false),
        ] {
            assert_eq!(is_confidential(url, insecure, proxy), expected, "{url} {insecure} {proxy:?}");
        }
    }

    #[test]
    fn a_header_field_that_cannot_be_sent_is_not_left_out() {
        let (site, target) = site();
        let message = |request: &Request| site.message(&target, request, &Credentials::default());
        let request = Request::new(&site, Method::GET).with(header::IF_MATCH, "\"tag\"");
        assert_eq!(message(&request).unwrap().headers()[header::IF_MATCH], "\"tag\"");
        let error = message(&request.with(header::RANGE, "bytes=0-\n")).unwrap_err();
        assert_eq!(error.fault(), Fault::InvalidArgument);
    }

    #[test]
    fn servers_say_when_to_come_again() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:01:40 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
    }
}
