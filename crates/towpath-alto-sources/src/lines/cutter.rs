//! Lines out of bytes as they come.

/// Cuts what a program prints into lines, however it comes. Holds at most one line, and of that no more than its bound.
#[derive(Debug)]
pub struct Cutter {
    /// The beginning of a line whose end has not come.
    begun: Vec<u8>,
    /// What is kept of a line.
    kept_bytes: usize,
}

impl Cutter {
    /// For lines of at most `longest_bytes`. Of a longer one, one byte more than that is kept, so that it can be told from others.
    pub fn new(longest_bytes: usize) -> Self {
        Self { begun: Vec::new(), kept_bytes: longest_bytes.saturating_add(1) }
    }

    /// Takes `bytes`, and gives each line that ends in them, without its end. What no end follows is no line.
    pub fn feed(&mut self, bytes: &[u8], mut line: impl FnMut(&[u8])) {
        let mut parts = bytes.split(|byte| *byte == b'\n');
        // There is one part more than ends.
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
