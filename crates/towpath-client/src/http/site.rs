//! An HTTP site: requests with redirects and retries, and the known capabilities of the site.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use http::{HeaderValue, Method, Request, StatusCode, Uri, header};
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
    answer::Answer,
    body_channel::BodyChannel,
    concurrency::ConcurrencyLimit,
    facts::{self, Facts},
    payload::Payload,
    place::{Place, is_loopback},
    pool::{Connection, Pool, Pools},
    question::Question,
    refusal,
    retry_state::{Failure, RetryState},
    s3::Signer,
};
use crate::{
    ClientOptions,
    dial::Dialer,
    token::{Tokens, Withheld},
};

/// Time to wait for 'continue' before the body is sent anyway, as curl does; some sites do not support it.
const CONTINUE_WAIT: Duration = Duration::from_secs(1);

/// Maximum number of sites; beyond that, unused ones are dropped together with their known capabilities.
const MAX_SITES: usize = 256;

const USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("towpath/", env!("CARGO_PKG_VERSION")));

/// The HTTP sites of one client.
#[derive(Debug)]
pub struct Sites {
    options: Arc<ClientOptions>,
    tokens: Arc<Tokens>,
    background: TaskTracker,
    pools: Arc<Pools>,
    /// Whether to make room for others.
    is_nice: Arc<AtomicBool>,
    sites: Mutex<HashMap<Endpoint, Arc<Site>>>,
}

impl Sites {
    /// No sites yet.
    pub(crate) fn new(
        options: Arc<ClientOptions>,
        tokens: Arc<Tokens>,
        background: TaskTracker,
        dialer: Arc<Dialer>,
    ) -> Arc<Self> {
        let pools = Arc::new(Pools::new(Arc::clone(&options), dialer));
        Arc::new(Self { options, tokens, background, pools, is_nice: Arc::default(), sites: Mutex::default() })
    }

    /// Limits the number of concurrent requests to each site from now on.
    pub(crate) fn be_nice(&self) {
        self.is_nice.store(true, Relaxed);
    }

    /// The site at `endpoint`.
    pub(super) fn at(&self, endpoint: &Endpoint) -> Arc<Site> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if sites.len() >= MAX_SITES && !sites.contains_key(endpoint) {
            sites.retain(|_, site| Arc::strong_count(site) > 1);
        }
        Arc::clone(sites.entry(endpoint.clone()).or_insert_with(|| Arc::new(Site::new(endpoint.clone(), self))))
    }

    /// A site of its own at `endpoint`, whose requests are signed. It speaks neither WebDAV nor of digests as others do.
    pub(super) fn signed(&self, endpoint: Endpoint, signer: Arc<Signer>) -> Site {
        let site = Site { signer: Some(signer), ..Site::new(endpoint, self) };
        for unknown in [&site.facts.dav, &site.facts.want_digest, &site.facts.many_ranges] {
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
    pub(super) facts: Arc<Facts>,
    tokens: Arc<Tokens>,
    /// What clears away what dropped uploads left.
    pub(super) background: TaskTracker,
    /// Locked while the end of an upload is sent to the site.
    pub(super) farewells: Arc<RwLock<()>>,
    pub(super) pools: Arc<Pools>,
    concurrency: ConcurrencyLimit,
    /// What signs its requests, in place of a token.
    signer: Option<Arc<Signer>>,
}

/// The credentials of a request.
#[derive(Debug, Default)]
pub(super) struct Credentials {
    token: Option<Secret>,
    withheld: Option<Withheld>,
}

impl Credentials {
    /// Returns the token to send.
    pub(super) fn token(&self) -> Option<&Secret> {
        self.token.as_ref()
    }

    /// Why nothing is sent, if there is a reason.
    pub(super) fn withheld(&self) -> Option<Withheld> {
        self.withheld
    }
}

impl Site {
    fn new(endpoint: Endpoint, sites: &Sites) -> Self {
        let Sites { options, tokens, background, pools, is_nice, .. } = sites;
        Self {
            endpoint,
            options: Arc::clone(options),
            tokens: Arc::clone(tokens),
            background: background.clone(),
            farewells: Arc::default(),
            facts: Arc::default(),
            pools: Arc::clone(pools),
            signer: None,
            concurrency: ConcurrencyLimit::new(Arc::clone(is_nice)),
        }
    }

    /// Whether it is a bucket of S3, whose requests are signed.
    pub(super) fn is_signed(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns the credentials of `caller`: its own token, or the one in the options. It is sent over TLS, and within
    /// this machine.
    ///
    /// # Errors
    /// `AuthenticationFailed` for a token that was named but cannot be used.
    pub(super) fn credentials(&self, caller: &Caller) -> Result<Credentials> {
        if caller.is_nobody {
            return Ok(Credentials { token: None, withheld: Some(Withheld::Nobody) });
        }
        if self.signer.is_some() {
            return Ok(Credentials::default());
        }
        let field = self.options.headers.get(header::AUTHORIZATION);
        let token = match &caller.token {
            Some(token) => Some(token.clone()),
            None if field.is_some() => None,
            None => self.tokens.current()?,
        };
        let safe = self.endpoint.tls || is_loopback(&self.endpoint.host);
        let is_withheld = !safe && (token.is_some() || field.is_some());
        let withheld = is_withheld.then_some(Withheld::Unencrypted);
        Ok(Credentials { withheld, token: token.filter(|_| safe) })
    }

    /// Returns the retry state of a request to `place`.
    pub(super) fn retry_state(&self, place: &Place) -> RetryState {
        RetryState::new(place.clone(), &self.options, clock::now())
    }

    /// Asks until there is an answer to work with: any status but redirects, and those that say 'later'.
    ///
    /// # Errors
    /// The last error, when a retry is useless or the retry budget is spent.
    pub(super) async fn ask(
        &self,
        caller: &Caller,
        retry_state: &mut RetryState,
        question: &Question,
    ) -> Result<Answer> {
        loop {
            let failure = match self.attempt(caller, retry_state.place(), question).await {
                Ok(answer) => {
                    if question.prompt {
                        self.concurrency.increase();
                    }
                    return Ok(answer);
                }
                Err(failure) => failure,
            };
            if question.prompt && !matches!(failure, Failure::Redirect(_) | Failure::Fatal(_)) {
                self.concurrency.decrease();
            }
            self.recover(retry_state, failure, question).await?;
        }
    }

    /// Waits until it is time for the next attempt.
    ///
    /// # Errors
    /// The one to report if there is to be none.
    pub(super) async fn recover(
        &self,
        retry_state: &mut RetryState,
        failure: Failure,
        question: &Question,
    ) -> Result<()> {
        let untouched = question.payload.is_untouched();
        let repeatable = question.repeatable && untouched;
        let failure = match failure {
            // Sent data of a stream are gone.
            Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) if !untouched => {
                Failure::Lost(error)
            }
            Failure::Redirect(_) if !untouched => {
                // It did not say 'continue' in time; from now on that is waited for.
                self.facts.says_continue.learn(true);
                let message = "the server redirected an upload after it had taken a part of it";
                Failure::Fatal(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage))
            }
            failure => failure,
        };
        tracing::debug!(place = ?retry_state.place(), ?failure, "attempt failed");
        let answers = self.facts.answers.certain();
        let why = match &failure {
            Failure::NotSent(error) | Failure::Lost(error) | Failure::Later(error, _) => error.to_string(),
            Failure::Redirect(_) | Failure::Fatal(_) => String::new(),
        };
        let pause = retry_state.next(failure, repeatable, answers, clock::now(), random::number())?;
        if !pause.is_zero() {
            self.options.waits.pause(&retry_state.place().root(), pause, why);
            sleep(pause).await;
        }
        Ok(())
    }

    async fn attempt(&self, caller: &Caller, place: &Place, question: &Question) -> Result<Answer, Failure> {
        if place.endpoint == self.endpoint {
            self.check_name(place).map_err(Failure::Fatal)?;
        }
        let credentials = self.credentials(caller).map_err(Failure::Fatal)?;
        let mut request = self.request(place, question, &credentials).map_err(Failure::Fatal)?;
        // Never for where a redirect led.
        if let Some(signer) = self.signer.as_ref().filter(|_| place.endpoint == self.endpoint && !caller.is_nobody) {
            signer.sign(&place.endpoint, &mut request).await.map_err(Failure::Fatal)?;
        }
        let permit = match question.prompt {
            true => self.concurrency.acquire().await,
            false => None,
        };
        let pool = self.pools.of(&place.endpoint);
        let connection = self.pools.connection(&pool, question.repeatable).await?;
        let answer = self.exchange(place, question, request, (connection, pool), permit).await?;
        if place.endpoint == self.endpoint {
            self.facts.learn(&answer.headers);
        }
        if facts::is_xrootd(&answer.headers) {
            check_name(place).map_err(Failure::Fatal)?;
        }
        if answer.status == StatusCode::UNAUTHORIZED {
            self.tokens.forget();
        }
        if answer.status == StatusCode::INTERNAL_SERVER_ERROR && self.signer.is_some() {
            // By which S3 means that it may well be done the next time.
            return Err(Failure::Lost(refusal::of(answer, &question.method, &credentials).await));
        }
        judge(answer, question, &credentials).await
    }

    /// Fails if this site is known to take `place` for another one.
    ///
    /// # Errors
    /// `InvalidArgument` for a name with a question mark at XRootD.
    pub(super) fn check_name(&self, place: &Place) -> Result<()> {
        if self.facts.is_xrootd.certain() { check_name(place) } else { Ok(()) }
    }

    /// Creates the HTTP request for `question`.
    ///
    /// # Errors
    /// For what cannot be sent.
    pub(super) fn request(
        &self,
        place: &Place,
        question: &Question,
        credentials: &Credentials,
    ) -> Result<Request<Payload>> {
        if let Some(flaw) = &question.flaw {
            return Err(flaw.clone());
        }
        let uri = Uri::try_from(&place.target)
            .map_err(|_| Error::new(Fault::InvalidArgument, "the path or query of the URL cannot be sent"))?;
        let mut request = Request::new(question.payload.clone());
        *request.method_mut() = question.method.clone();
        *request.uri_mut() = uri;
        let headers = request.headers_mut();
        // As with the token below: never to where a redirect led.
        if place.endpoint == self.endpoint && credentials.withheld != Some(Withheld::Nobody) {
            headers.extend(self.options.headers.clone());
            if credentials.withheld.is_some() {
                headers.remove(header::AUTHORIZATION);
            }
        }
        headers.insert(header::HOST, place.host_field()?);
        headers.insert(header::USER_AGENT, USER_AGENT);
        headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        // Files are wanted as they are stored; without the field a server may encode as it likes.
        headers.insert(header::ACCEPT_ENCODING, HeaderValue::from_static("identity"));
        if self.pools.asks_for_far_ends() {
            headers.insert(TCP_INFO_FIELD, HeaderValue::from_static("?"));
        }
        headers.extend(question.headers.clone());
        if self.signer.is_some() && question.method == Method::HEAD {
            headers.insert("x-amz-checksum-mode", HeaderValue::from_static("ENABLED"));
        }
        // Never to where a redirect led: signed URLs are what gives access there.
        if let Some(token) = credentials.token.as_ref().filter(|_| place.endpoint == self.endpoint) {
            let mut value = HeaderValue::try_from(format!("Bearer {}", token.expose())).map_err(|_| {
                Error::new(Fault::AuthenticationFailed, "the bearer token has characters that no token has")
            })?;
            value.set_sensitive(true);
            headers.insert(header::AUTHORIZATION, value);
        }
        if matches!(question.payload, Payload::Stream(_)) && self.facts.says_continue.possible() {
            headers.insert(header::EXPECT, HeaderValue::from_static("100-continue"));
        }
        Ok(request)
    }

    /// Sends the request, and waits for the header of the answer.
    async fn exchange(
        &self,
        place: &Place,
        question: &Question,
        mut request: Request<Payload>,
        (mut connection, pool): (Connection, Arc<Pool>),
        permit: Option<OwnedSemaphorePermit>,
    ) -> Result<Answer, Failure> {
        let lost = |error: hyper::Error| {
            let message = format!("{} gave no answer: {error}", place.root());
            Error::new(Fault::Unavailable, message).blamed_on(Blame::Network)
        };
        let root = place.root();
        let long = |waited: Duration| {
            format!("waiting for {root}, which has not answered {} for {} s", question.method, waited.as_secs())
        };
        let sent = match &question.payload {
            Payload::Stream(body_channel) => {
                self.hear_continue(&mut request, body_channel);
                let sending = connection.sender.try_send_request(request);
                self.send_stream(sending, body_channel).await
            }
            _ => {
                let answered = timeout(question.wait, connection.sender.try_send_request(request));
                self.options.waits.during(&root, long, answered).await.ok()
            }
        };
        match sent {
            Some(Ok(response)) => {
                connection.note_far_end(response.headers());
                // An upload that is answered before it is whole cannot go on, and its connection is of no more use.
                let pool = question.payload.is_sent().then_some(pool);
                Ok(Answer::new(response, place.clone(), (connection, pool), permit, &self.options))
            }
            Some(Err(mut error)) => {
                let unsent = error.take_message().is_some();
                let error = lost(error.into_error());
                Err(if unsent { Failure::NotSent(error) } else { Failure::Lost(error) })
            }
            None => {
                let message = format!("{} gave no answer in time", place.root());
                Err(Failure::Lost(Error::new(Fault::TimedOut, message).blamed_on(Blame::Network)))
            }
        }
    }

    /// Lets the body flow when the server says 'continue'.
    pub(super) fn hear_continue(&self, request: &mut Request<Payload>, body_channel: &Arc<BodyChannel>) {
        if !request.headers().contains_key(header::EXPECT) {
            return body_channel.go();
        }
        let (facts, body_channel) = (Arc::clone(&self.facts), Arc::clone(body_channel));
        hyper::ext::on_informational(request, move |informational| {
            if informational.status() == StatusCode::CONTINUE {
                facts.says_continue.learn(true);
                body_channel.go();
            }
        });
    }

    /// The answer to an upload; none if nothing moved for too long, and it was not the writer who made it wait.
    async fn send_stream<T>(&self, sending: impl Future<Output = T>, body_channel: &BodyChannel) -> Option<T> {
        let mut sending = std::pin::pin!(sending);
        let longest = if self.facts.says_continue.certain() { self.options.stall } else { CONTINUE_WAIT };
        tokio::select! {
            answer = &mut sending => return Some(answer),
            () = body_channel.started() => {}
            () = sleep(longest) => {
                self.facts.says_continue.learn(false);
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
            // With all bytes there, the storage may still have to write, verify and move them.
            let limit = if body_channel.is_drained() { self.options.patience } else { self.options.stall };
            if stalled >= limit {
                return None;
            }
        }
    }
}

/// Fails if XRootD takes `place` for another one: of a name with a question mark, percent-encoded or not, it takes the rest for parameters
/// (seen with 5.5.3), so that `c?d` would be read, replaced or removed as `c`.
fn check_name(place: &Place) -> Result<()> {
    if !place.has_question_mark() {
        return Ok(());
    }
    let message = format!(
        "{} is XRootD, which cannot serve a name with a question mark by HTTP: use another protocol, or rename it",
        place.root()
    );
    Err(Error::new(Fault::InvalidArgument, message).blamed_on(Blame::Storage))
}

/// Fails if the body of `answer` has a transfer coding besides a single `chunked`. No other one is requested (RFC 9112 §7.4): its bytes are not
/// the content, and without `chunked` as the last one only the end of the connection ends them.
fn check_coding(answer: &Answer) -> Result<(), Failure> {
    let mut fields = answer.headers.get_all(header::TRANSFER_ENCODING).iter();
    let is_known = match (fields.next(), fields.next()) {
        (None, _) => true,
        (Some(only), None) => only.as_bytes().trim_ascii().eq_ignore_ascii_case(b"chunked"),
        _ => false,
    };
    if is_known {
        return Ok(());
    }
    let message = format!(
        "{} sends its answer with a transfer coding that was not asked for, and not just chunked",
        answer.place.root()
    );
    Err(Failure::Fatal(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage)))
}

/// Decides whether to use a response, or to retry.
async fn judge(answer: Answer, question: &Question, credentials: &Credentials) -> Result<Answer, Failure> {
    check_coding(&answer)?;
    if let Some(location) = answer.headers.get(header::LOCATION).filter(|_| is_redirect(answer.status, question)) {
        let next = answer.place.redirected(location.as_bytes()).map_err(Failure::Fatal)?;
        if question.of_file && answer.place.is_directory_form(&next) {
            return Err(Failure::Fatal(Error::new(Fault::IsDirectory, "it is a directory")));
        }
        if question.names_two() && next.endpoint != answer.place.endpoint {
            let message = format!("{} redirects {} to another server", answer.place.root(), question.method);
            return Err(Failure::Fatal(Error::new(Fault::Unsupported, message).blamed_on(Blame::Storage)));
        }
        answer.discard().await;
        return Err(Failure::Redirect(next));
    }
    match answer.status {
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            let when = answer.field(header::RETRY_AFTER).and_then(retry_after);
            Err(Failure::Later(refusal::of(answer, &question.method, credentials).await, when))
        }
        StatusCode::REQUEST_TIMEOUT | StatusCode::BAD_GATEWAY | StatusCode::GATEWAY_TIMEOUT
            if !question.names_two() =>
        {
            Err(Failure::Lost(refusal::of(answer, &question.method, credentials).await))
        }
        _ => Ok(answer),
    }
}

/// Returns whether `status` redirects the same request. 303 requests a GET (or HEAD) instead, and 300 recommends one,
/// so both apply only to those.
fn is_redirect(status: StatusCode, question: &Question) -> bool {
    match status.as_u16() {
        301 | 302 | 307 | 308 => true,
        300 | 303 => matches!(question.method, Method::GET | Method::HEAD),
        _ => false,
    }
}

/// `Retry-After`: seconds, or a date.
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

    fn site() -> (Arc<Site>, Place) {
        let options = Arc::new(ClientOptions::default());
        let tokens = Arc::new(Tokens::new(crate::TokenSource::Nothing));
        let dialer = Arc::new(Dialer::new(Arc::clone(&options)));
        let sites = Sites::new(options, tokens, TaskTracker::new(), dialer);
        let url: towpath_proto::url::Url = "http://host/".parse().unwrap();
        (sites.at(&url.endpoint()), Place::new(&url.endpoint(), &towpath_store::StorePath::root(), None))
    }

    #[tokio::test]
    async fn a_site_that_redirects_uploads_late_is_waited_for_from_then_on() {
        let (site, place) = site();
        site.facts.says_continue.learn(false);
        let body_channel = Arc::new(BodyChannel::new(None, vec!["taken".into(), "waits".into()]));
        body_channel.go();
        std::future::poll_fn(|context| body_channel.poll_piece(context)).await;
        let question = Question { payload: Payload::Stream(body_channel), ..Question::new(&site, Method::PUT) };
        let elsewhere = Failure::Redirect(place.redirected(b"/elsewhere").unwrap());
        site.recover(&mut site.retry_state(&place), elsewhere, &question).await.unwrap_err();
        assert!(site.facts.says_continue.certain());
    }

    #[test]
    fn a_header_field_that_cannot_be_sent_is_not_left_out() {
        let (site, place) = site();
        let request = |question: &Question| site.request(&place, question, &Credentials::default());
        let question = Question::new(&site, Method::GET).with(header::IF_MATCH, "\"tag\"");
        assert_eq!(request(&question).unwrap().headers()[header::IF_MATCH], "\"tag\"");
        let error = request(&question.with(header::RANGE, "bytes=0-\n")).unwrap_err();
        assert_eq!(error.fault(), Fault::InvalidArgument);
    }

    #[test]
    fn servers_say_when_to_come_again() {
        assert_eq!(retry_after("7"), Some(Duration::from_secs(7)));
        assert_eq!(retry_after("Thu, 01 Jan 1970 00:01:40 GMT"), Some(Duration::ZERO));
        assert_eq!(retry_after("soon"), None);
    }
}
