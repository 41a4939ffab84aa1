//! Lines at the bottom of the terminal on the standard error stream, which are redrawn below other output.
//!
//! There is one such stream in a process, so there is one screen. A frame is written with one call, each line over the
//! one before, so that nothing flickers; the cursor rests visibly below it, so that nothing has to be restored however
//! the process ends. Where there is no terminal, nothing is ever written.
//!
//! The library `indicatif` would replace [`frame`] and [`above`]. It has a bar per file with a template of its own,
//! whereas [`super::progress::lines`] computes all lines from one snapshot of the copy: as many files as the terminal
//! has rows, the ends of their names, and of the total what fits the width, the least important dropped first.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

use console::{Term, measure_text_width, truncate_str};

/// The lines that are on the terminal.
static SHOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Whether there is a terminal that can move its cursor.
pub(crate) fn is_there() -> bool {
    io::stderr().is_terminal() && !console::is_dumb()
}

/// Rows and columns of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let (rows, columns) = Term::stderr().size();
    (usize::from(rows), usize::from(columns).max(1))
}

/// Shows `lines` in place of those that were shown before, as much of each as fits.
pub(crate) fn show(lines: &[String]) {
    let (_, columns) = size();
    replace(&mut shown(), lines.iter().map(|line| truncate_str(line, columns, "…").into_owned()).collect(), columns);
}

/// Takes all lines away.
pub(crate) fn clear() {
    replace(&mut shown(), Vec::new(), size().1);
}

/// Runs `write`, which writes to the terminal, above those lines.
pub(crate) fn above<T>(write: impl FnOnce() -> T) -> T {
    let mut shown = shown();
    if shown.is_empty() {
        return write();
    }
    let columns = size().1;
    let lines = shown.clone();
    replace(&mut shown, Vec::new(), columns);
    let outcome = write();
    replace(&mut shown, lines, columns);
    outcome
}

/// Writes `lines` over those that are shown.
fn replace(shown: &mut Vec<String>, lines: Vec<String>, columns: usize) {
    if shown.is_empty() && lines.is_empty() {
        return;
    }
    let text = frame(shown, &lines, columns);
    let mut out = io::stderr().lock();
    // Write errors are ignored.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    *shown = lines;
}

/// Returns what to send to a terminal to show `lines` in place of the lines `shown`. A terminal that has become
/// narrower since has wrapped them.
fn frame(shown: &[String], lines: &[String], columns: usize) -> String {
    let mut text = String::new();
    let rows: usize = shown.iter().map(|line| measure_text_width(line).div_ceil(columns).max(1)).sum();
    if rows > 0 {
        let _ = write!(text, "\r\x1b[{rows}A");
    }
    for line in lines {
        // Erased first: after a line of full width the cursor is still on the last column, which would be erased.
        let _ = write!(text, "\x1b[K{line}\r\n");
    }
    text.push_str("\x1b[J");
    text
}

fn shown() -> MutexGuard<'static, Vec<String>> {
    SHOWN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The standard error stream, above the lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Above;

impl io::Write for Above {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        above(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_erased_behind_a_line_of_full_width() {
        assert_eq!(frame(&[], &["0123456789".into()], 10), "\x1b[K0123456789\r\n\x1b[J");
        assert_eq!(frame(&["wide".repeat(5)], &["new".into()], 10), "\r\x1b[2A\x1b[Knew\r\n\x1b[J");
    }
}
