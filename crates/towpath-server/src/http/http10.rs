//! HTTP/1.0 clients: their responses say HTTP/1.1, the version that this server conforms to (RFC 9110 §2.5).
//!
//! hyper responds in the version of the request. ROOT's `TWebFile` probes a server with HTTP/1.0, and opens a
//! connection per request unless the response says HTTP/1.1. Two effects of hyper's choice are kept: no chunked
//! bodies for such clients, and a connection that closes after the response unless the request says `Connection:
//! keep-alive`. So the [`ConnectionIo`](super::connection_io::ConnectionIo) only replaces the eight bytes of the
//! version on sending.

use std::{
    io::IoSlice,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed},
};

use http::{HeaderMap, HeaderValue, header};

const WRITTEN: &[u8; 8] = b"HTTP/1.0";
const SENT: &[u8; 8] = b"HTTP/1.1";

/// Rewrites the version in the next status line of a connection.
#[derive(Debug, Default)]
pub(super) struct StatusLine {
    /// Number of bytes of the version still to be replaced.
    left: AtomicUsize,
    /// Whether hyper wrote anything since its last flush: if not, its next write begins with a status line.
    is_written: AtomicBool,
}

impl StatusLine {
    /// Replaces the version in the response to the request that has just arrived. Has no effect if an earlier
    /// response is unsent, as with pipelining, which HTTP/1.0 lacks; the version then stays unchanged.
    pub(super) fn raise(&self) {
        if !self.is_written.load(Relaxed) {
            self.left.store(WRITTEN.len(), Relaxed);
        }
    }

    /// Records that hyper has written everything.
    pub(super) fn record_flush(&self) {
        self.is_written.store(false, Relaxed);
    }

    /// Returns a replacement for the first non-empty slice, of the same length; `None` if nothing is to be replaced.
    pub(super) fn replacement(&self, slices: &[IoSlice<'_>]) -> Option<Vec<u8>> {
        self.is_written.store(true, Relaxed);
        let left = self.left.load(Relaxed);
        if left == 0 {
            return None;
        }
        let first = slices.iter().find(|slice| !slice.is_empty())?;
        let done = WRITTEN.len().saturating_sub(left);
        let length = left.min(first.len());
        if WRITTEN.get(done..done + length) != first.get(..length) {
            // Not the expected status line: leave the bytes unchanged.
            self.left.store(0, Relaxed);
            return None;
        }
        // Allocates only for response heads to such clients, which are small.
        Some([SENT.get(done..done + length)?, first.get(length..)?].concat())
    }

    /// Records that `bytes` of a [`Self::replacement`] were written.
    pub(super) fn record_replaced(&self, bytes: usize) {
        self.left.store(self.left.load(Relaxed).saturating_sub(bytes), Relaxed);
    }
}

/// Whether an HTTP/1.0 request requires a persistent connection (RFC 9112 §9.3).
pub(super) fn keeps_alive(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::CONNECTION).iter().filter_map(|line| line.to_str().ok());
    let mut options = lines.flat_map(|line| line.split(',')).map(str::trim);
    options.any(|option| option.eq_ignore_ascii_case("keep-alive"))
}

/// Announces that the connection closes after this response, as HTTP/1.1 requires (RFC 9112 §9.6).
pub(super) fn announce_close(headers: &mut HeaderMap) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes sent for `written` if the socket takes at most `limit` bytes at once.
    fn sent(line: &StatusLine, written: &[u8], limit: usize) -> Vec<u8> {
        let (mut sent, mut rest) = (Vec::new(), written);
        while !rest.is_empty() {
            let piece = match line.replacement(&[IoSlice::new(b""), IoSlice::new(rest)]) {
                Some(replacement) => {
                    line.record_replaced(replacement.len().min(limit));
                    replacement
                }
                None => rest.to_vec(),
            };
            let taken = piece.len().min(limit);
            sent.extend_from_slice(&piece[..taken]);
            rest = &rest[taken..];
        }
        sent
    }

    #[test]
    fn only_the_version_of_the_next_status_line_is_replaced() {
        for limit in [1, 3, 8, 100] {
            let line = StatusLine::default();
            line.raise();
            assert_eq!(
                sent(&line, b"HTTP/1.0 200 OK\r\n\r\nHTTP/1.0", limit),
                b"HTTP/1.1 200 OK\r\n\r\nHTTP/1.0",
                "{limit}"
            );
            line.record_flush();
            assert_eq!(sent(&line, b"HTTP/1.0 content", limit), b"HTTP/1.0 content", "no request was made");
            line.raise();
            assert_eq!(sent(&line, b"HTTP/1.0 200", limit), b"HTTP/1.0 200", "an earlier response has not left");
            line.record_flush();
            line.raise();
            assert_eq!(sent(&line, b"HTTP/2 200", limit), b"HTTP/2 200", "something else");
        }
    }

    #[test]
    fn connections_are_kept_on_request_only() {
        let headers = |values: &[&'static str]| {
            let pairs = values.iter().map(|value| (header::CONNECTION, HeaderValue::from_static(value)));
            pairs.collect::<HeaderMap>()
        };
        assert!(keeps_alive(&headers(&["Keep-Alive"])) && keeps_alive(&headers(&["upgrade, keep-alive"])));
        assert!(!keeps_alive(&headers(&["close"])) && !keeps_alive(&HeaderMap::new()));
    }
}
