//! Receives the bytes of a connection, and decides what to do about silence.

use std::{
    io,
    sync::{Arc, Weak},
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use towpath_proto::xrootd::{Request, request::Ping};
use towpath_store::sys::clock::{self, Instant};

use super::{Control, XrootdConnectionState, response_clock::ResponseClock};
use crate::{dial::PathState, options::MIN_PROGRESS_BYTES, waits::FIRST_NOTICE, xrootd::session_setup::reserved};

/// Interval between checks for expired requests; each check covers all requests in flight.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// Time without data before the first check of the connection. The interval doubles with each further check, until a
/// response arrives.
const FIRST_LOOK: Duration = Duration::from_secs(2);

/// Minimum number of response bytes in one read that count as progress rather than as a sign of life.
const SUBSTANCE_BYTES: usize = 512;

/// The reaction to silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Continue to wait.
    Wait,
    /// Send a `ping`.
    Ping,
    /// Give up the connection.
    Dead,
}

/// Signs of life of a server.
#[derive(Debug)]
struct Liveness {
    /// Time of the last received byte, or when nothing was expected.
    heard: Instant,
    /// Time of the last response, or when nothing was expected; a response to a `ping` does not count.
    answered: Instant,
    /// Time of the last sufficient progress of a response, and the bytes received since.
    progressed: (Instant, usize),
    pinged: bool,
    /// Time to wait for the next byte before the next check.
    pause: Duration,
}

impl Liveness {
    fn new(now: Instant) -> Self {
        Self { heard: now, answered: now, progressed: (now, 0), pinged: false, pause: FIRST_LOOK }
    }

    fn heard(&mut self, now: Instant, bytes: usize) {
        (self.heard, self.pinged) = (now, false);
        self.progressed.1 += bytes;
        if self.progressed.1 >= MIN_PROGRESS_BYTES {
            self.progressed = (now, 0);
        }
    }

    fn answered(&mut self) {
        (self.answered, self.pause) = (self.heard, FIRST_LOOK);
    }

    /// Records the start of a response: from now on its rest must arrive.
    fn begins(&mut self) {
        self.progressed = (self.heard, 0);
    }

    /// Returns whether the rest of a response arrives too slowly to be worth waiting for.
    fn trickles(&self, stall: Duration) -> bool {
        self.heard - self.progressed.0 >= stall * 2
    }

    /// Decides what to do after silence. `busy` is whether data are expected, `patient` whether they may take long.
    fn silence(&mut self, now: Instant, busy: bool, patient: bool, stall: Duration, patience: Duration) -> Verdict {
        if !busy {
            *self = Self::new(now);
            return Verdict::Wait;
        }
        let longest = patience.max(stall * 2);
        let silence = if patient { longest } else { stall * 2 };
        let left = silence.saturating_sub(now - self.heard).min(longest.saturating_sub(now - self.answered));
        if left.is_zero() {
            return Verdict::Dead;
        }
        self.pause = (self.pause * 2).min(stall).min(left);
        if std::mem::replace(&mut self.pinged, true) { Verdict::Wait } else { Verdict::Ping }
    }
}

/// The receiving end of a connection.
pub(super) struct MonitoredInput<I> {
    input: I,
    shared: Arc<XrootdConnectionState>,
    control: Control,
    liveness: Liveness,
    responses: ResponseClock,
    /// Whether a response has begun and its rest is expected; its request is not in the table meanwhile.
    within_answer: bool,
    /// Time of the next check for expired requests.
    expires_next: Instant,
    began: Instant,
    /// Time of the last progress of a response, beyond signs of life, or when nothing was expected.
    progressed: Instant,
}

impl<I: AsyncRead + Unpin> MonitoredInput<I> {
    pub(super) fn new(input: I, shared: Arc<XrootdConnectionState>, control: Control) -> Self {
        let now = clock::now();
        Self {
            input,
            shared,
            control,
            liveness: Liveness::new(now),
            responses: ResponseClock::new(now),
            within_answer: false,
            expires_next: now,
            began: now,
            progressed: now,
        }
    }

    /// Records a response to a caller's request.
    pub(super) fn answered(&mut self) {
        self.liveness.answered();
    }

    /// Records the header of a response.
    pub(super) fn begin_answer(&mut self) {
        self.within_answer = true;
        self.liveness.begins();
    }

    /// Records the end of a response.
    pub(super) fn end_answer(&mut self) {
        self.within_answer = false;
    }

    /// Records the time of a response, or of a part of it, to a request of the time `since`.
    pub(super) fn record_time(&mut self, since: Instant) {
        let (total, silence) = self.responses.ended(clock::now(), since);
        if let Some(tap) = self.shared.tap.get().and_then(Weak::upgrade) {
            tap.record_response(total, silence);
        }
    }

    /// Records data that a request waits for.
    pub(super) fn record_progress(&mut self) {
        self.progressed = clock::now();
    }

    /// Periodic checks: request timeouts, a stuck login, and reports of long waits.
    fn look_around(&mut self, now: Instant) -> Result<(), String> {
        self.expires_next = now + EXPIRY_INTERVAL;
        self.shared.expire(now);
        if !self.shared.expects().0 {
            self.progressed = now;
        }
        let waited = now - self.progressed;
        if waited >= FIRST_NOTICE {
            let host = &self.shared.host;
            self.shared.waits.say(host, || format!("waiting for {host}: no response for {} s", waited.as_secs()));
        }
        let limit = self.shared.stall() * 2;
        if self.shared.established.get().is_none() && now - self.began >= limit {
            return Err(format!("login not completed within {} s", limit.as_secs()));
        }
        Ok(())
    }

    /// Receives at least one byte and at most `limit` bytes into `target`.
    pub(super) async fn receive(&mut self, target: &mut impl BufMut, limit: usize) -> Result<usize, String> {
        let stall = self.shared.stall();
        loop {
            let now = clock::now();
            if now >= self.expires_next {
                self.look_around(now)?;
            }
            let mut limited = (&mut *target).limit(limit);
            match timeout(self.liveness.pause.min(stall), self.input.read_buf(&mut limited)).await {
                Ok(received) => return self.heard(received),
                Err(_) => self.look()?,
            }
            let tap = self.shared.tap.get().and_then(Weak::upgrade);
            let path_state = async || match &tap {
                Some(tap) => tap.path_state().await,
                None => PathState::Good,
            };
            tokio::select! {
                biased;
                // Data may arrive while the state of the path is determined.
                received = self.input.read_buf(&mut limited) => return self.heard(received),
                state = path_state() => match state {
                    PathState::Good => {}
                    PathState::Doubtful => self.liveness.pause = FIRST_LOOK,
                    PathState::Cut => {
                        return Err("the path is cut: sent data do not arrive, although the server is reachable".into());
                    }
                },
            }
        }
    }

    /// Records received data.
    fn heard(&mut self, received: io::Result<usize>) -> Result<usize, String> {
        match received {
            Ok(0) => Err("the server closed it".into()),
            Ok(received) => {
                let now = clock::now();
                self.liveness.heard(now, received);
                self.responses.received(now, !self.within_answer);
                let stall = self.shared.stall();
                if self.within_answer && received >= SUBSTANCE_BYTES {
                    self.record_progress();
                }
                if self.within_answer && self.liveness.trickles(stall) {
                    return Err(format!("almost no response data for {} s", (stall * 2).as_secs()));
                }
                Ok(received)
            }
            Err(error) => Err(error.to_string()),
        }
    }

    /// Decides what to do about silence.
    fn look(&mut self) -> Result<(), String> {
        let (busy, patient) = self.shared.expects();
        let (stall, patience) = (self.shared.stall(), self.shared.patience);
        match self.liveness.silence(clock::now(), busy || self.within_answer, patient, stall, patience) {
            Verdict::Wait => Ok(()),
            Verdict::Ping => {
                let mut ping = BytesMut::new();
                Request::from(Ping).encode(reserved::PING, &mut ping);
                // The writer ends after the reader.
                let _ = self.control.send(ping.freeze());
                Ok(())
            }
            Verdict::Dead => Err(format!("no response for {} s", (clock::now() - self.liveness.answered).as_secs())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STALL: Duration = Duration::from_secs(30);
    const PATIENCE: Duration = Duration::from_secs(600);

    fn after(liveness: &mut Liveness, start: Instant, seconds: u64, patient: bool) -> Verdict {
        liveness.silence(start + Duration::from_secs(seconds), true, patient, STALL, PATIENCE)
    }

    #[test]
    fn silence_is_questioned_once_and_then_ends_the_connection() {
        let start = clock::now();
        let mut liveness = Liveness::new(start);
        assert_eq!(after(&mut liveness, start, 30, false), Verdict::Ping);
        assert_eq!(after(&mut liveness, start, 59, false), Verdict::Wait);
        assert_eq!(after(&mut liveness, start, 60, false), Verdict::Dead);
    }

    #[test]
    fn signs_of_life_without_answers_do_not_last_for_ever() {
        let start = clock::now();
        let mut liveness = Liveness::new(start);
        for seconds in (30..600).step_by(30) {
            assert_eq!(after(&mut liveness, start, seconds, false), Verdict::Ping);
            liveness.heard(start + Duration::from_secs(seconds), 24);
        }
        assert_eq!(after(&mut liveness, start, 600, false), Verdict::Dead);
    }

    #[test]
    fn what_takes_long_may_be_silent() {
        let start = clock::now();
        let mut liveness = Liveness::new(start);
        assert_eq!(after(&mut liveness, start, 30, true), Verdict::Ping);
        assert_eq!(after(&mut liveness, start, 570, true), Verdict::Wait);
        assert_eq!(after(&mut liveness, start, 600, true), Verdict::Dead);
    }

    #[test]
    fn looks_become_rarer_until_an_answer_comes() {
        let start = clock::now();
        let mut liveness = Liveness::new(start);
        let pauses = [2, 6, 14, 30].map(|seconds| {
            after(&mut liveness, start, seconds, false);
            liveness.pause.as_secs()
        });
        assert_eq!(pauses, [4, 8, 16, 30]);
        liveness.heard(start + Duration::from_secs(31), 24);
        assert_eq!(liveness.pause, STALL);
        liveness.answered();
        assert_eq!(liveness.pause, FIRST_LOOK);
    }

    #[test]
    fn an_answer_may_come_slowly_but_not_byte_by_byte() {
        let start = clock::now();
        for (bytes, trickles) in [(1, true), (MIN_PROGRESS_BYTES / 3, true), (MIN_PROGRESS_BYTES / 2, false)] {
            let mut liveness = Liveness::new(start);
            // The connection was silent for long before.
            liveness.heard(start + Duration::from_secs(100), 24);
            liveness.begins();
            for seconds in [129, 158, 187] {
                assert!(!liveness.trickles(STALL), "{bytes} {seconds}");
                liveness.heard(start + Duration::from_secs(seconds), bytes);
            }
            assert_eq!(liveness.trickles(STALL), trickles, "{bytes}");
        }
    }
}
