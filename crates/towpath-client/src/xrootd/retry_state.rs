//! Decides after a failed attempt whether, where and when to send a request again. This module has no sockets and no
//! clock.
//!
//! A [`RetryState`] accompanies one request over all its attempts. It bounds everything that a server or a network
//! could repeat indefinitely: redirects, waits, lost connections, time. It also decides which servers may receive the
//! user's secrets ([`Server::trusted`]).

use std::time::Duration;

use bytes::Bytes;
use towpath_proto::{
    url::{Family, Scheme, Url, without_secrets},
    xrootd::{
        ErrorCode,
        response::{ErrorReply, Redirect},
    },
};
use towpath_store::{Backoff, Blame, Error, Fault, Kind, StorePath, sys::clock::Instant};

use super::{
    connection::Failure,
    server::{Server, is_host, join_cgi},
};
use crate::{
    BACKOFF, ClientOptions, FIRST_BACKOFF,
    options::{RetryTime, WaitLimit},
    words::readable,
};

/// Maximum number of redirects of one request; the reference client has the same limit.
const MAX_REDIRECTS: usize = 16;

/// Maximum number of returns to a redirector after failures of its servers.
const MAX_RETURNS: usize = 3;

/// Maximum number of times that a server may require credentials, or TLS, before the request.
const MAX_EARLY: u32 = 3;

/// The state of one request over all its attempts.
#[derive(Debug)]
pub(super) struct RetryState {
    origin: Server,
    server: Server,
    /// Whether the request is idempotent.
    repeatable: bool,
    started: Instant,
    retries: u32,
    retry_time: RetryTime,
    wait_limit: WaitLimit,
    backoff: Backoff,
    early: u32,
    waited: Duration,
    visited: Vec<Server>,
    /// Servers that failed, in the form that the redirector expects: host and reason.
    tried: Vec<(String, &'static str)>,
}

impl RetryState {
    /// Creates the state of a request that starts `now` at `origin`.
    pub(super) fn new(origin: Server, repeatable: bool, options: &ClientOptions, now: Instant) -> Self {
        Self {
            server: origin.clone(),
            origin,
            repeatable,
            started: now,
            retries: options.retries,
            retry_time: options.retry_time(),
            wait_limit: options.wait_limit(false),
            backoff: BACKOFF,
            early: 0,
            waited: Duration::ZERO,
            visited: Vec::new(),
            tried: Vec::new(),
        }
    }

    /// Sets the limit of requested waits.
    pub(super) fn with_wait_limit(self, wait_limit: WaitLimit) -> Self {
        Self { wait_limit, ..self }
    }

    /// Returns the time since the request started.
    pub(super) fn elapsed(&self, now: Instant) -> Duration {
        now - self.started
    }

    /// Returns the server for the next attempt.
    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    /// Directs the request to `server`, where an earlier request about the same file was redirected.
    pub(super) fn set_server(&mut self, server: Server) {
        self.server = server;
    }

    /// Returns whether the request has been redirected to another server.
    pub(super) fn is_redirected(&self) -> bool {
        self.server != self.origin
    }

    /// Returns the pause before the next attempt, after `failure`. The next attempt is sent to [`Self::server`].
    ///
    /// `known_good` is whether the server has responded before; one that never did is not retried. `chance` is a
    /// random number for the jitter of the backoff.
    ///
    /// # Errors
    /// The error to report, if a retry is useless or the limits are exhausted.
    pub(super) fn after_failure(
        &mut self,
        failure: Failure,
        known_good: bool,
        now: Instant,
        chance: u64,
    ) -> Result<Duration, Error> {
        match failure {
            Failure::Refused(reply) => self.handle_refusal(&reply, now, chance),
            Failure::Redirect { to, encrypted } => self.follow_redirect(to, encrypted),
            Failure::Wait { seconds } => self.wait_requested(seconds),
            Failure::Occupied => Ok(Duration::ZERO),
            Failure::TooEarly if self.early < MAX_EARLY => {
                self.early += 1;
                Ok(Duration::ZERO)
            }
            Failure::TooEarly => {
                let message = format!("{} refuses requests although the login succeeded", self.server.name());
                Err(Error::new(Fault::AuthenticationFailed, message).blamed_on(Blame::Storage))
            }
            // The next connection is more cautious: no request is sent before the session is ready.
            // After a long silence another attempt would not be within the time.
            Failure::EarlyLoss(_) if self.early == 0 && self.retry_time.permits(self.elapsed(now) * 2, known_good) => {
                self.early += 1;
                Ok(Duration::ZERO)
            }
            Failure::Fatal(error) => Err(error),
            Failure::Lost(error) if !self.repeatable => {
                let message =
                    format!("{} before the response arrived: the request may have been carried out", error.message());
                Err(error.with_message(message).blamed_on(Blame::Network))
            }
            Failure::Lost(error) => self.retry_lost(error, now, chance),
            Failure::NotSent(error) | Failure::EarlyLoss(error) if known_good || self.is_redirected() => {
                self.retry_lost(error, now, chance)
            }
            Failure::NotSent(error) | Failure::EarlyLoss(error) => Err(error),
        }
    }

    fn retry_lost(&mut self, error: Error, now: Instant, chance: u64) -> Result<Duration, Error> {
        let delay = self.backoff.fail_jittered(chance);
        let spent = self.elapsed(now);
        if self.backoff.failures() > self.retries || !self.retry_time.permits(spent, true) {
            return Err(error.after_attempts(self.backoff.failures(), spent));
        }
        if self.is_redirected() {
            self.return_to_origin("ioerr");
        }
        Ok(delay)
    }

    fn handle_refusal(&mut self, reply: &ErrorReply, now: Instant, chance: u64) -> Result<Duration, Error> {
        let reason = match reply.code {
            ErrorCode::NotFound => "enoent",
            ErrorCode::IOError => "ioerr",
            ErrorCode::FSError => "fserr",
            ErrorCode::ServerError | ErrorCode::noserver | ErrorCode::Overloaded => "srverr",
            _ => "",
        };
        if self.is_redirected() && !reason.is_empty() && self.tried.len() < MAX_RETURNS {
            self.return_to_origin(reason);
            return Ok(Duration::ZERO);
        }
        let error = refusal(&self.server.root(), reply);
        if reply.code != ErrorCode::Overloaded {
            return Err(error);
        }
        let delay = self.backoff.fail_jittered(chance);
        let spent = self.elapsed(now);
        if self.backoff.failures() > self.retries || !self.retry_time.permits(spent, true) {
            return Err(error.after_attempts(self.backoff.failures(), spent));
        }
        Ok(delay)
    }

    fn return_to_origin(&mut self, reason: &'static str) {
        self.tried.push((self.server.host.clone(), reason));
        let hosts: Vec<&str> = self.tried.iter().map(|(host, _)| &**host).collect();
        let reasons: Vec<&str> = self.tried.iter().map(|(_, reason)| *reason).collect();
        let cgi = format!("tried={}&triedrc={}", hosts.join(","), reasons.join(","));
        self.server = Server { cgi: join_cgi(&self.origin.cgi, cgi.as_bytes()), ..self.origin.clone() };
        self.visited.clear();
    }

    fn wait_requested(&mut self, seconds: u32) -> Result<Duration, Error> {
        // A wait of 0 seconds means an immediate retry, but not a loop without pause.
        let wait = Duration::from_secs(u64::from(seconds)).max(FIRST_BACKOFF);
        if !self.wait_limit.permits(self.waited + wait) {
            let message = format!(
                "{} requested a wait of {seconds} s after {} s of waiting",
                self.server.name(),
                self.waited.as_secs()
            );
            let error = Error::new(Fault::TimedOut, message).blamed_on(Blame::Storage);
            return Err(self.wait_limit.explain(error));
        }
        self.waited += wait;
        Ok(wait)
    }

    fn follow_redirect(&mut self, to: Redirect, encrypted: bool) -> Result<Duration, Error> {
        let from = self.server.name();
        let wrong =
            |why: &str| Error::new(Fault::Protocol, format!("{from} redirects {why}")).blamed_on(Blame::Storage);
        let named = self.redirect_target(to).map_err(|why| wrong(&why))?;
        let next = self.with_secrets(named, encrypted);
        self.visited.push(self.server.clone());
        if self.visited.len() > MAX_REDIRECTS {
            return Err(wrong("too often"));
        }
        if self.visited.contains(&next) {
            return Err(wrong(&format!("in a loop, to {}", next.name())));
        }
        self.server = next;
        Ok(Duration::ZERO)
    }

    /// Returns the server of a redirect, with its opaque information. Encryption is never dropped by a redirect.
    fn redirect_target(&self, to: Redirect) -> Result<Server, String> {
        let tls = self.server.tls;
        match to {
            Redirect::Host { host, port, cgi, login_cgi } => {
                let port = u16::try_from(port).map_err(|_| "to an invalid port")?;
                let host = host.trim_start_matches('[').trim_end_matches(']').to_ascii_lowercase();
                if !is_host(&host) {
                    return Err("to an invalid host name".to_owned());
                }
                Ok(Server { host, port, tls, path: self.server.path.clone(), cgi, login_cgi, trusted: false })
            }
            Redirect::Url { url, .. } => {
                let url: Url = url.parse().map_err(|error| format!("to an invalid URL: {error}"))?;
                let path = StorePath::parse(url.path()).map_err(|error| format!("to an invalid path: {error}"))?;
                let path = Some(path).filter(|path| !path.is_root()).or_else(|| self.server.path.clone());
                if url.endpoint().family != Family::Xrootd {
                    return Err(format!("to {}://, which is not followed", url.scheme().name()));
                }
                let (host, port, tls) = (url.host().to_owned(), url.port(), tls || url.scheme() == Scheme::Roots);
                let cgi = Bytes::copy_from_slice(url.query().unwrap_or_default().as_bytes());
                Ok(Server { host, port, tls, path, cgi, login_cgi: Bytes::new(), trusted: false })
            }
        }
    }

    /// Decides whether `next` may receive the bearer token, and adds the user's opaque information, with or without its
    /// secrets.
    fn with_secrets(&self, next: Server, encrypted: bool) -> Server {
        let is_origin = next.host == self.origin.host;
        let trusted = is_origin || (self.server.trusted && encrypted);
        // Opaque information is sent without TLS too; the secrets in it are sent without TLS only to the user's own
        // host, as the user requested.
        let own = match trusted && (is_origin || next.tls) {
            true => self.origin.cgi.clone(),
            false => without_secrets(&String::from_utf8_lossy(&self.origin.cgi)).into(),
        };
        Server { cgi: join_cgi(&own, &next.cgi), trusted, ..next }
    }
}

/// Returns the error of an error response from the server at `root`, with the server's message.
pub(super) fn refusal(root: &str, reply: &ErrorReply) -> Error {
    let said = readable(&reply.message);
    let fault = match reply.fault() {
        // 5.5.3 responds with 3005 to all that has no code of its own, and the message of the system behind a path.
        Fault::Io if said.ends_with("; not a directory") => Fault::NotDirectory,
        Fault::Io if said.ends_with("not empty") => Fault::NotEmpty,
        fault => fault,
    };
    let words = if said.is_empty() { fault.phrase() } else { &said };
    let error = Error::new(fault, words).in_store(root).with_code(reply.code.0);
    // An internal error is the fault of the server.
    if fault.kind() == Kind::Internal { error.blamed_on(Blame::Storage) } else { error }
}

#[cfg(test)]
mod tests;
