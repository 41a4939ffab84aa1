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

/// Where events go.
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
    /// Events go to the file `path`, which is emptied, or to the standard output if that is `-`. Their time counts from
    /// now on.
    ///
    /// # Errors
    /// The file cannot be made.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let out: Box<dyn Write + Send> = match path.as_os_str() == "-" {
            true => Box::new(io::stdout()),
            false => Box::new(create(path)?),
        };
        Ok(Self { start: clock::now(), waiting: Mutex::default(), out: Mutex::new(out) })
    }

    /// Takes note of the event `name` with the members of the object `fields`.
    pub(crate) fn note(&self, name: &str, mut fields: Value) {
        fields["event"] = name.into();
        // To the microsecond: more digits say nothing.
        fields["at_s"] = json!(self.start.elapsed().as_micros() as f64 / 1e6);
        let mut waiting = locked(&self.waiting);
        let _ = writeln!(waiting, "{fields}");
    }

    /// Writes the recorded events.
    ///
    /// # Errors
    /// The system's: a reader that went away, a full disk.
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
    disk::create(path).map_err(|error| Failure::Usage(format!("{}: events cannot be written: {error}", path.display())))
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
