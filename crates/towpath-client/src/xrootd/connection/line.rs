//! The bytes that come in, and what their absence means.

use std::{sync::Arc, time::Duration};

use bytes::{BufMut, BytesMut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    time::timeout,
};
use towpath_proto::xrootd::{Request, request::Ping};
use towpath_store::sys::clock::{self, Instant};

use super::{Control, Shared};
use crate::xrootd::flight::reserved;

/// How often to look for requests whose time is up: all that are underway are looked at.
const EXPIRY_INTERVAL: Duration = Duration::from_secs(1);

/// What to do about silence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Wait on.
    Wait,
    /// Ask for a sign of life.
    Ping,
    /// Give the connection up.
    Dead,
}

/// What has been heard of a server.
#[derive(Debug)]
struct Liveness {
    /// When a byte came last, or nothing was expected.
    heard: Instant,
    /// When an answer came last, or nothing was expected; a `ping` is no answer.
    answered: Instant,
    pinged: bool,
}

impl Liveness {
    fn heard(&mut self, now: Instant) {
        (self.heard, self.pinged) = (now, false);
    }

    /// Nothing came for `stall`. `busy` says that something is expected, `patient` that it may take long.
    fn silence(&mut self, now: Instant, busy: bool, patient: bool, stall: Duration, patience: Duration) -> Verdict {
        if !busy {
            (self.heard, self.answered, self.pinged) = (now, now, false);
            return Verdict::Wait;
        }
        let silence = if patient { patience.max(stall * 2) } else { stall * 2 };
        if now - self.heard >= silence || now - self.answered >= patience.max(stall * 2) {
            return Verdict::Dead;
        }
        if std::mem::replace(&mut self.pinged, true) { Verdict::Wait } else { Verdict::Ping }
    }
}

/// The receiving end of a connection.
pub(super) struct Line<I> {
    input: I,
    shared: Arc<Shared>,
    control: Control,
    liveness: Liveness,
    /// An answer has begun, and its rest is expected: its request is in no table meanwhile.
    pub(super) within_answer: bool,
    /// When to look for requests whose time is up.
    expires_next: Instant,
}

impl<I: AsyncRead + Unpin> Line<I> {
    pub(super) fn new(input: I, shared: Arc<Shared>, control: Control) -> Self {
        let now = clock::now();
        Self {
            input,
            shared,
            control,
            liveness: Liveness { heard: now, answered: now, pinged: false },
            within_answer: false,
            expires_next: now,
        }
    }

    /// An answer to a caller's request came.
    pub(super) fn answered(&mut self) {
        self.liveness.answered = self.liveness.heard;
    }

    /// At least one byte and at most `limit` into `target`.
    pub(super) async fn receive(&mut self, target: &mut impl BufMut, limit: usize) -> Result<usize, String> {
        let stall = self.shared.stall;
        loop {
            let now = clock::now();
            if now >= self.expires_next {
                self.expires_next = now + EXPIRY_INTERVAL;
                self.shared.expire(now);
            }
            let mut limited = (&mut *target).limit(limit);
            match timeout(stall, self.input.read_buf(&mut limited)).await {
                Ok(Ok(0)) => return Err("the server closed it".into()),
                Ok(Ok(received)) => {
                    self.liveness.heard(clock::now());
                    return Ok(received);
                }
                Ok(Err(error)) => return Err(error.to_string()),
                Err(_) => {}
            }
            let (busy, patient) = self.shared.expects();
            match self.liveness.silence(clock::now(), busy || self.within_answer, patient, stall, self.shared.patience)
            {
                Verdict::Wait => {}
                Verdict::Ping => {
                    let mut ping = BytesMut::new();
                    Request::from(Ping).encode(reserved::PING, &mut ping);
                    // The writer outlives the reader.
                    let _ = self.control.send(ping.freeze());
                }
                Verdict::Dead => {
                    return Err(format!("no answer for {} s", (clock::now() - self.liveness.answered).as_secs()));
                }
            }
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
        let mut liveness = Liveness { heard: start, answered: start, pinged: false };
        assert_eq!(after(&mut liveness, start, 30, false), Verdict::Ping);
        assert_eq!(after(&mut liveness, start, 59, false), Verdict::Wait);
        assert_eq!(after(&mut liveness, start, 60, false), Verdict::Dead);
    }

    #[test]
    fn signs_of_life_without_answers_do_not_last_for_ever() {
        let start = clock::now();
        let mut liveness = Liveness { heard: start, answered: start, pinged: false };
        for seconds in (30..600).step_by(30) {
            assert_eq!(after(&mut liveness, start, seconds, false), Verdict::Ping);
            liveness.heard(start + Duration::from_secs(seconds));
        }
        assert_eq!(after(&mut liveness, start, 600, false), Verdict::Dead);
    }

    #[test]
    fn what_takes_long_may_be_silent() {
        let start = clock::now();
        let mut liveness = Liveness { heard: start, answered: start, pinged: false };
        assert_eq!(after(&mut liveness, start, 30, true), Verdict::Ping);
        assert_eq!(after(&mut liveness, start, 570, true), Verdict::Wait);
        assert_eq!(after(&mut liveness, start, 600, true), Verdict::Dead);
    }
}
