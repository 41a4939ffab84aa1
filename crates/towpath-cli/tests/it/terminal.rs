//! The progress display on a terminal. The program runs on a pseudoterminal, whose other end is interpreted like a
//! terminal does.

use std::{
    fs::File,
    io::Read as _,
    num::NonZero,
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Winsize, tcgetwinsize, tcsetwinsize},
};

use super::program::Directory;

/// Both ends of a pseudoterminal.
pub(super) struct Terminal {
    ours: OwnedFd,
    theirs: OwnedFd,
}

/// The contents of the terminal.
#[derive(Debug, Default)]
pub(super) struct ScreenContents {
    /// The screens, without empty rows.
    screens: Vec<String>,
    /// Whether a line was ever wrapped.
    is_broken: bool,
    hides_cursor: bool,
}

impl Terminal {
    pub(super) fn new(rows: u16, columns: u16) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let name = ptsname(&ours, Vec::new()).unwrap();
        let theirs = rustix::fs::open(name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        resize(&ours, rows, columns);
        Self { ours, theirs }
    }

    /// Runs a command, which must end with this exit code. After the first display of a rate, the terminal is resized
    /// to `other`.
    pub(super) fn run(self, directory: &Directory, line: &str, other: Option<(u16, u16)>, code: i32) -> ScreenContents {
        let Self { ours, theirs } = self;
        let size = tcgetwinsize(&ours).unwrap();
        let mut command = directory.command(line.split(' '));
        command.env("TERM", "xterm").stderr(theirs);
        let mut process = command.spawn().unwrap();
        // Reading ends when the other end is closed.
        drop(command);
        let mut parser = vt100::Parser::new(at_least_one(size.ws_row), at_least_one(size.ws_col), 0);
        let (mut seen, mut other) = (ScreenContents::default(), other);
        let mut output = File::from(ours);
        let mut buffer = [0; 64 << 10];
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            parser.process(&buffer[..length]);
            seen.look(parser.screen());
            if let Some((rows, columns)) = other.take_if(|_| parser.screen().contents().contains("/s")) {
                resize(&output, rows, columns);
                parser.screen_mut().set_size(at_least_one(rows), at_least_one(columns));
            }
        }
        assert_eq!(process.wait().unwrap().code(), Some(code), "{seen:?}");
        assert!(other.is_none(), "no rate was shown: {seen:?}");
        seen
    }
}

fn resize(terminal: impl AsFd, rows: u16, columns: u16) {
    tcsetwinsize(terminal, Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
}

fn at_least_one(number: u16) -> NonZero<u16> {
    NonZero::new(number).unwrap()
}

impl ScreenContents {
    fn look(&mut self, screen: &vt100::Screen) {
        let text = screen.contents();
        let rows: Vec<_> = text.lines().filter(|row| !row.trim().is_empty()).collect();
        self.screens.push(rows.join("\n"));
        self.is_broken |= (0..screen.size().0.get()).any(|row| screen.row_wrapped(row));
        self.hides_cursor |= screen.hide_cursor();
    }

    /// Returns whether a screen contains all of these texts at once.
    #[track_caller]
    pub(super) fn expect(&self, words: &[&str]) {
        let found = self.screens.iter().any(|screen| words.iter().all(|word| screen.contains(word)));
        assert!(found, "{words:?} were not seen in {:#?}", self.screens);
    }
}

fn files(count: usize) -> Directory {
    let directory = Directory::new();
    for number in 0..count {
        directory.put(&format!("s/file-{number}"), &"x".repeat(3 << 20));
    }
    directory
}

#[test]
fn files_under_way_have_lines_of_their_own() {
    let directory = files(20);
    let seen = Terminal::new(24, 100).run(&directory, "cp -r --limit 200Mbit s t", None, 0);
    seen.expect(&["s/file-", "of   3.00 MiB", "MiB/s", "/20 files", "ETA "]);
    assert!(!seen.is_broken && !seen.hides_cursor);
    let last = seen.screens.last().unwrap();
    assert!(last.starts_with("20 files, 60.00 MiB in ") && last.lines().count() == 1, "{last}");
}

#[test]
fn lines_fit_into_a_terminal_that_is_small_or_becomes_so() {
    let directory = files(20);
    for (size, other) in [((4, 20), (4, 30)), ((24, 100), (5, 30)), ((3, 30), (30, 120))] {
        let seen = Terminal::new(size.0, size.1).run(&directory, "cp -rf --limit 200Mbit s t", Some(other), 0);
        let last = seen.screens.last().unwrap();
        assert!(last.replace('\n', "").ends_with(" MiB/s; not verified") && last.contains("20 files, "), "{last}");
    }
}

#[test]
fn what_fails_is_said_above() {
    let directory = files(20);
    directory.put("t/s/file-3", "was there");
    let seen = Terminal::new(24, 100).run(&directory, "cp -r --limit 200Mbit s t", None, 6);
    seen.expect(&["file-3: exists already", " MiB/s"]);
    let last = seen.screens.last().unwrap();
    assert!(last.contains("file-3: exists already") && !last.contains(" of "), "no line of progress is left: {last}");
}

/// A terminal shows the first progress after 0.2 s; this command takes more than 1 s.
#[test]
fn where_there_is_no_terminal_only_the_end_is_told() {
    let outcome = files(1).run("cp --limit 16Mbit s/file-0 copy").expect(0);
    assert_eq!(outcome.stdout, "");
    assert!(!outcome.stderr.contains(|c: char| c.is_control() && c != '\n'), "{outcome:?}");
    let [line] = outcome.stderr.lines().collect::<Vec<_>>()[..] else { panic!("{outcome:?}") };
    assert!(line.starts_with("1 file, 3.00 MiB in "), "{line}");
}

#[test]
fn nobody_who_wants_quiet_is_shown_anything() {
    let seen = Terminal::new(24, 100).run(&files(3), "cp -q -r --limit 200Mbit s t", None, 0);
    assert!(seen.screens.is_empty(), "{seen:?}");
}

/// Sizes have units on a terminal, and are exact with `--bytes`.
#[test]
fn sizes_on_a_terminal_have_units() {
    let directory = Directory::new();
    directory.put("file", &"x".repeat(3000));
    for (line, expected) in
        [("ls -l file", "2.93 KiB"), ("ls -l --bytes file", " 3000 "), ("du file", "2.93 KiB"), ("df .", "iB free of")]
    {
        let Terminal { ours, theirs } = Terminal::new(24, 80);
        let mut command = directory.command(line.split(' '));
        let mut process = command.stdout(theirs).spawn().unwrap();
        drop(command);
        let (mut output, mut text, mut buffer) = (File::from(ours), Vec::new(), [0; 4096]);
        while let Ok(length @ 1..) = output.read(&mut buffer) {
            text.extend_from_slice(&buffer[..length]);
        }
        assert!(process.wait().unwrap().success());
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains(expected), "{line}: {text}");
    }
}
