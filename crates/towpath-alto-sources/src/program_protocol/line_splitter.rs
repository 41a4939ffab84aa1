//! Splits a byte stream into lines.

/// Splits the output of a program, in chunks of any size, into lines. Buffers at most one line, up to the size limit.
#[derive(Debug)]
pub struct LineSplitter {
    /// The incomplete current line.
    begun: Vec<u8>,
    /// Maximum number of bytes kept per line.
    kept_bytes: usize,
}

impl LineSplitter {
    /// Creates a cutter for lines of at most `longest_bytes`. One more byte is kept of longer lines, so that they can
    /// be detected.
    pub fn new(longest_bytes: usize) -> Self {
        Self { begun: Vec::new(), kept_bytes: longest_bytes.saturating_add(1) }
    }

    /// Processes `bytes` and calls `line` for each complete line, without its line ending. A final unterminated line
    /// is not reported.
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        // There is one more part than line endings.
        let mut rest = parts.next().unwrap_or_default();
        for next in parts {
            self.keep(rest);
            line(&self.begun);
            self.begun.clear();
            rest = next;
        }
        self.keep(rest);
    }

    fn keep(&mut self, bytes: &[u8]) {
        let room = self.kept_bytes - self.begun.len();
        self.begun.extend_from_slice(&bytes[..bytes.len().min(room)]);
    }
}
