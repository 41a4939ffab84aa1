//! Decisions after a failed attempt of a request: retry, wait, redirect or fail. Uses no sockets and no clock.
//!
//! A [`RetryState`] lasts for one request over all its attempts. It limits redirects, waits, lost connections and time,
//! which a server or a network could otherwise repeat without end.

use std::{fmt, time::Duration};

use towpath_store::{Backoff, Blame, Error, Fault, sys::clock::Instant};

use super::target::Target;
use crate::{
    BACKOFF, ClientOptions, FIRST_BACKOFF,
    options::{RetryTime, WaitLimit},
};

/// Maximum number of redirects followed for one request; browsers allow 20, XRootD clients 16.
const MAX_REDIRECTS: usize = 16;

/// The reason why an attempt has no usable response.
#[derive(Debug)]
pub(super) enum Failure {
    /// The server received no part of the request.
    NotSent(Error),
    /// The server may have received the request, and may have carried it out.
    Lost(Error),
    /// The server did not carry out the request, but may do so later; the duration, if present, is from the server.
    Later(Error, Option<Duration>),
    /// The server names another target.
    Redirect(Target),
    /// A retry is useless.
    Fatal(Error),
}

impl Failure {
    /// Applies `change` to the error, if there is one.
    pub(super) fn map(self, change: impl FnOnce(Error) -> Error) -> Self {
        match self {
            Self::NotSent(error) => Self::NotSent(change(error)),
            Self::Lost(error) => Self::Lost(change(error)),
            Self::Later(error, when) => Self::Later(change(error), when),
            Self::Fatal(error) => Self::Fatal(change(error)),
            Self::Redirect(_) => self,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(error) => write!(f, "not sent: {error}"),
            Self::Lost(error) => write!(f, "no complete response: {error}"),
            Self::Later(error, None) => write!(f, "busy: {error}"),
            Self::Later(error, Some(wait)) => write!(f, "busy, requests a wait of {} s: {error}", wait.as_secs()),
            Self::Redirect(target) => write!(f, "redirect to {}", target.root()),
            Self::Fatal(error) => write!(f, "{error}"),
        }
    }
}

/// The state of one request over all its attempts.
#[derive(Debug)]
pub(super) struct RetryState {
    origin: Target,
    target: Target,
    has_first_target: bool,
    started: Instant,
    retries: u32,
    retry_time: RetryTime,
    wait_limit: WaitLimit,
    backoff: Backoff,
    waited: Duration,
    visited: Vec<Target>,
}

impl RetryState {
    /// Creates the state of a request to `origin` that starts `now`.
    pub(super) fn new(origin: Target, options: &ClientOptions, now: Instant) -> Self {
        Self {
            target: origin.clone(),
            origin,
            has_first_target: false,
            started: now,
            retries: options.retries,
            retry_time: options.retry_time(),
            wait_limit: options.wait_limit(false),
            backoff: BACKOFF,
            waited: Duration::ZERO,
            visited: Vec::new(),
        }
    }

    /// Limits the total of waits requested by the server to `patience`.
    pub(super) fn with_patience(self, patience: Duration) -> Self {
        Self { wait_limit: self.wait_limit.at_most(patience), ..self }
    }

    /// Returns the time since the request started, or last made progress.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now - self.started
    }

    /// Returns the target of the next request.
    pub(super) fn target(&self) -> &Target {
        &self.target
    }

    /// Sets the first target to `target`, to which an earlier request for the same file was redirected.
    #[must_use]
    pub(super) fn with_first_target(mut self, target: Option<Target>) -> Self {
        self.has_first_target = target.is_some();
        self.target = target.unwrap_or(self.target);
        self
    }

    /// Returns to the origin, once, if the request started elsewhere. Returns whether it did.
    pub(super) fn abandon_first_target(&mut self) -> bool {
        let has_first_target = std::mem::take(&mut self.has_first_target);
        if has_first_target {
            self.return_to_origin();
        }
        has_first_target
    }

    /// Records progress: resets the failure counters.
    pub(super) fn record_progress(&mut self, now: Instant) {
        self.backoff.reset();
        self.waited = Duration::ZERO;
        self.started = now;
    }

    /// Returns to the origin. Returns whether the last request went elsewhere.
    pub(super) fn return_to_origin(&mut self) -> bool {
        let was_away = self.target != self.origin;
        self.target = self.origin.clone();
        self.visited.clear();
        was_away
    }

    /// Handles `failure`: returns the pause before the next attempt at [`Self::target`].
    ///
    /// `repeatable` is whether the request is idempotent, `known_good` whether the server has responded before: a
    /// server that never did is not retried. `chance` is a random number for the jitter of the backoff.
    ///
    /// # Errors
    /// The error to report, if a retry is useless or the retry budget is spent.
    pub(super) fn after_failure(
        &mut self,
        failure: Failure,
        repeatable: bool,
        known_good: bool,
        now: Instant,
        chance: u64,
    ) -> Result<Duration, Error> {
        match failure {
            Failure::Fatal(error) => Err(error),
            Failure::Redirect(next) => self.follow_redirect(next),
            Failure::Lost(error) if !repeatable => {
                let message = format!("{}; the request may have been carried out", error.message());
                Err(error.with_message(message))
            }
            Failure::NotSent(error) if !known_good && self.target == self.origin => Err(error),
            Failure::NotSent(error) | Failure::Lost(error) => self.retry_lost(error, known_good, now, chance),
            Failure::Later(error, when) => self.wait_requested(error, when, now, chance),
        }
    }

    fn follow_redirect(&mut self, next: Target) -> Result<Duration, Error> {
        self.visited.push(std::mem::replace(&mut self.target, next));
        let problem = match () {
            () if self.visited.contains(&self.target) => "redirects in a loop",
            () if self.visited.len() > MAX_REDIRECTS => "redirects too often",
            () => return Ok(Duration::ZERO),
        };
        Err(Error::new(Fault::Protocol, format!("{} {problem}", self.origin.root())).blamed_on(Blame::Storage))
    }

    fn retry_lost(&mut self, error: Error, known_good: bool, now: Instant, chance: u64) -> Result<Duration, Error> {
        let delay = self.backoff.fail_jittered(chance);
        let spent = self.elapsed(now);
        let is_known = known_good || self.target != self.origin;
        let is_silent = error.fault() == Fault::TimedOut && self.retry_time.ends_with_silence(is_known);
        if is_silent || self.backoff.failures() > self.retries || !self.retry_time.permits(spent, is_known) {
            return Err(error.after_attempts(self.backoff.failures(), spent));
        }
        self.return_to_origin();
        Ok(delay)
    }

    fn wait_requested(
        &mut self,
        error: Error,
        when: Option<Duration>,
        now: Instant,
        chance: u64,
    ) -> Result<Duration, Error> {
        // A time from the server is honored. Without a time, or with a shorter one than the first backoff, the response
        // counts as a failure.
        let when = when.filter(|when| *when >= FIRST_BACKOFF);
        let pause = when.unwrap_or_else(|| self.backoff.fail_jittered(chance));
        self.waited += pause;
        let elapsed = self.elapsed(now);
        let error = match when {
            Some(_) if self.wait_limit.permits(self.waited) => return Ok(pause),
            Some(_) => self.wait_limit.explain(error),
            None if self.backoff.failures() <= self.retries && self.retry_time.permits(elapsed, true) => {
                return Ok(pause);
            }
            None => error,
        };
        Err(error.after_attempts(self.backoff.failures(), elapsed))
    }
}

#[cfg(test)]
mod tests {
    use towpath_proto::url::Url;
    use towpath_store::{StorePath, sys::clock};

    use super::*;

    fn retry_state() -> RetryState {
        let url: Url = "https://host/a".parse().unwrap();
        let target = Target::new(&url.endpoint(), &StorePath::parse(b"/a").unwrap(), None);
        RetryState::new(target, &ClientOptions::default(), clock::now())
    }

    fn broken() -> Error {
        Error::new(Fault::Unavailable, "broken")
    }

    fn next(retry_state: &mut RetryState, failure: Failure) -> Result<Duration, Error> {
        retry_state.after_failure(failure, true, true, clock::now(), 1023)
    }

    #[test]
    fn lost_connections_are_made_again_with_growing_pauses() {
        let mut retry_state = retry_state();
        let pauses: Vec<_> = (0..5).map(|_| next(&mut retry_state, Failure::Lost(broken())).unwrap()).collect();
        assert!(pauses.is_sorted() && pauses[0] < FIRST_BACKOFF && pauses[4] > FIRST_BACKOFF * 15, "{pauses:?}");
        let error = next(&mut retry_state, Failure::Lost(broken())).unwrap_err();
        assert_eq!((error.fault(), &*error.to_string()), (Fault::Unavailable, "broken (tried 6 times)"));
        retry_state.record_progress(clock::now());
        assert!(next(&mut retry_state, Failure::Lost(broken())).is_ok());
    }

    #[test]
    fn what_may_have_been_done_is_not_done_again() {
        let retry_lost = |failure| retry_state().after_failure(failure, false, true, clock::now(), 0);
        assert!(retry_lost(Failure::Lost(broken())).unwrap_err().message().contains("may have been carried out"));
        assert!(retry_lost(Failure::NotSent(broken())).is_ok());
        assert!(retry_lost(Failure::Later(broken(), None)).is_ok());
    }

    #[test]
    fn a_server_that_never_answered_is_called_once() {
        assert!(retry_state().after_failure(Failure::NotSent(broken()), true, false, clock::now(), 0).is_err());
        assert!(retry_state().after_failure(Failure::Lost(broken()), true, false, clock::now(), 0).is_ok());
    }

    #[test]
    fn a_server_that_never_answered_is_waited_for_no_longer_than_the_maximum_wait() {
        let mut retry_state = retry_state();
        let options = ClientOptions { max_wait: Some(Duration::from_secs(30)), ..ClientOptions::default() };
        retry_state.retry_time = options.retry_time();
        let mut lost = |error: Error, after_s, known_good| {
            let now = clock::now() + Duration::from_secs(after_s);
            retry_state.after_failure(Failure::Lost(error), true, known_good, now, 0).is_ok()
        };
        assert!(lost(broken(), 20, false) && !lost(broken(), 30, false) && lost(broken(), 30, true));
        let silent = || Error::new(Fault::TimedOut, "silent");
        assert!(!lost(silent(), 1, false) && lost(silent(), 1, true));
        assert_eq!(options.silence_permitted(Duration::from_secs(60), false), Duration::from_secs(30));
        assert_eq!(options.silence_permitted(Duration::from_secs(60), true), Duration::from_secs(60));
    }

    #[test]
    fn a_server_that_says_when_gets_its_time() {
        let mut retry_state = retry_state();
        let minute = Some(Duration::from_secs(60));
        for _ in 0..30 {
            assert_eq!(next(&mut retry_state, Failure::Later(broken(), minute)).unwrap(), Duration::from_secs(60));
        }
        assert!(next(&mut retry_state, Failure::Later(broken(), minute)).is_err());
        let century = Some(Duration::from_secs(u32::MAX.into()));
        assert!(next(&mut self::retry_state(), Failure::Later(broken(), century)).is_err());
    }

    #[test]
    fn a_server_that_says_now_is_not_asked_for_ever() {
        let mut retry_state = retry_state();
        let pauses: Vec<_> =
            (0..5).map(|_| next(&mut retry_state, Failure::Later(broken(), Some(Duration::ZERO))).unwrap()).collect();
        assert!(pauses.is_sorted() && pauses[0] >= FIRST_BACKOFF / 2 && pauses[4] > FIRST_BACKOFF * 15, "{pauses:?}");
        assert!(next(&mut retry_state, Failure::Later(broken(), Some(Duration::ZERO))).is_err());
    }

    fn to(location: &str) -> Failure {
        Failure::Redirect(retry_state().target.redirected(location.as_bytes()).unwrap())
    }

    #[test]
    fn redirects_are_bounded() {
        let mut circle = retry_state();
        assert_eq!(next(&mut circle, to("/b")).unwrap(), Duration::ZERO);
        assert!(circle.target().path_and_query == "/b" && circle.return_to_origin() && !circle.return_to_origin());
        next(&mut circle, to("/b")).unwrap();
        let error = next(&mut circle, to("/a")).unwrap_err();
        assert!(error.message().contains("in a loop"), "{error}");
        let mut endless = retry_state();
        let error = (0..100).find_map(|n| next(&mut endless, to(&format!("/{n}"))).err()).unwrap();
        assert!(error.message().contains("too often"), "{error}");
    }
}
