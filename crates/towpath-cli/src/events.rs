//! Events of a copy as JSON for programs, one object per line. docs/reference/events.md describes each event and its
//! fields.
//!
//! Recording an event does not wait for the reader: lines are queued, and written by the one task that takes the
//! outcomes of a copy, which waits for the write. The queue is therefore limited to the files in flight and the other
//! events of a fraction of a second.

use std::{
    fmt,
    fs::File,
    io::{self, Write},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use towpath_store::sys::{
    clock::{self, Instant},
    disk,
};

use crate::failure::Failure;

/// Writer of events.
pub(crate) struct Events {
    start: Instant,
    waiting: Mutex<Vec<u8>>,
    out: Mutex<Box<dyn Write + Send>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// Creates or truncates the file `path` for events; `-` is the standard output. Times of events are relative to
    /// this call.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let out: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(create(path)?),
        };
        Ok(Self { start: clock::now(), waiting: Mutex::default(), out: Mutex::new(out) })
    }

    /// Records the event `name` with the members of the object `fields`.
    pub(crate) fn note(&self, name: &str, mut fields: Value) {
        fields["event"] = name.into();
        // In microseconds: more digits are not significant.
        fields["at_s"] = json!(self.start.elapsed().as_micros() as f64 / 1e6);
        let mut waiting = locked(&self.waiting);
        let _ = writeln!(waiting, "{fields}");
    }

    /// Writes the recorded events.
    ///
    /// # Errors
    /// The output was closed by its reader, or the disk is full.
    pub(crate) fn deliver(&self) -> io::Result<()> {
        let lines = std::mem::take(&mut *locked(&self.waiting));
        if lines.is_empty() {
            return Ok(());
        }
        let mut out = locked(&self.out);
        out.write_all(&lines)?;
        out.flush()
    }
}

fn create(path: &Path) -> Result<File, Failure> {
    disk::create(path).map_err(|error| Failure::Usage(format!("{}: cannot write events: {error}", path.display())))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
