//! Lines at the bottom of the terminal on the standard error stream, which are redrawn below other output.
//!
//! A process has one such stream, and therefore one screen. A frame is written with one call, and each line overwrites
//! the previous one, which avoids flicker; the cursor stays visible below the frame, so that nothing has to be restored
//! when the process ends. Without a terminal nothing is written.
//!
//! The library `indicatif` would replace [`frame`] and [`above`]. It has a bar per file with a template of its own,
//! whereas [`super::progress::lines`] computes all lines from one snapshot of the copy: as many files as the terminal
//! has rows, the ends of their names, and the parts of the total that fit the width.

use std::{
    fmt::Write as _,
    io::{self, IsTerminal as _, Write as _},
    sync::{Mutex, MutexGuard, PoisonError},
};

use console::{Term, measure_text_width, truncate_str};

/// The lines on the terminal.
static SHOWN: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Returns whether the standard error stream is a terminal that can move its cursor.
pub(crate) fn is_there() -> bool {
    io::stderr().is_terminal() && !console::is_dumb()
}

/// Returns the rows and columns of the terminal.
pub(crate) fn size() -> (usize, usize) {
    let (rows, columns) = Term::stderr().size();
    (usize::from(rows), usize::from(columns).max(1))
}

/// Replaces the shown lines by `lines`, each truncated to the width of the terminal.
pub(crate) fn show(lines: &[String]) {
    let (_, columns) = size();
    replace(&mut shown(), lines.iter().map(|line| truncate_str(line, columns, "…").into_owned()).collect(), columns);
}

/// Removes all lines.
pub(crate) fn clear() {
    replace(&mut shown(), Vec::new(), size().1);
}

/// Runs `write`, whose output to the terminal appears above the lines.
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

/// Overwrites the shown lines with `lines`.
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

/// Returns the control sequence that replaces the lines `shown` by `lines`. If the terminal has become narrower, it has
/// wrapped the lines.
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
pub(crate) struct StderrWriter;

impl io::Write for StderrWriter {
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
