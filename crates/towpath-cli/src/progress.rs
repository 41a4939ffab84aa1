//! Progress on a terminal; nothing anywhere else.

use std::{
    io::IsTerminal as _,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use indicatif::{ProgressBar, ProgressStyle};
use towpath_mover::Observer;

/// How often the line on the terminal is drawn again.
const REDRAW: Duration = Duration::from_millis(200);

/// What has been done so far, and the line that shows it.
#[derive(Debug)]
pub(crate) struct Progress {
    bar: ProgressBar,
    files: AtomicU64,
}

impl Progress {
    /// Progress shown on the standard error stream if that is a terminal and `quiet` is not set.
    pub(crate) fn new(quiet: bool) -> Self {
        if quiet || !std::io::stderr().is_terminal() {
            return Self { bar: ProgressBar::hidden(), files: AtomicU64::new(0) };
        }
        let bar = ProgressBar::new(0);
        let template = "{msg} {bytes}/{total_bytes} [{wide_bar}] {binary_bytes_per_sec} {eta}";
        bar.set_style(ProgressStyle::with_template(template).expect("the template is well formed"));
        bar.enable_steady_tick(REDRAW);
        Self { bar, files: AtomicU64::new(0) }
    }

    /// A file is whole.
    pub(crate) fn file_done(&self) {
        let files = self.files.fetch_add(1, Relaxed) + 1;
        self.bar.set_message(format!("{files} files"));
    }

    /// Prints a line without disturbing the progress line.
    pub(crate) fn say(&self, line: impl FnOnce()) {
        self.bar.suspend(line);
    }

    /// Removes the progress line.
    pub(crate) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn expect(&self, bytes: u64) {
        self.bar.inc_length(bytes);
    }

    fn moved(&self, bytes: u64) {
        self.bar.inc(bytes);
    }
}
