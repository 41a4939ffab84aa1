//! The snapshot: a file with what agents told that is not read from files here, so that a server that is started again answers from it until they tell it anew.
//!
//! It has lines of JSON: what it is, and then one for each agent that knows something. Facts are as static files have them.
//!
//! ```text
//! {"towpath-alto-snapshot":1,"written":"2026-11-23T21:40:00Z"}
//! {"agent":"lhcone","settings":"1f0a…","facts":{"routers":{"ex2j.cern.ch":{…}},…}}
//! ```
//!
//! `settings` is a digest: what an agent told under other settings says nothing of this one. What was stale already has `stale-since`. Whatever is wrong with the file is told in the log, and never keeps a server
//! from starting. [`read`] takes it at the start; a [`Snapshot`] knows when to write it, and has that done by a task of its own.

#[cfg(test)]
mod tests;

use std::{
    collections::BTreeMap,
    io::{self, BufRead as _, BufReader, BufWriter, Read as _, Write},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use serde::{Deserialize, Serialize};
use tokio::{
    task::{JoinHandle, spawn_blocking},
    time::sleep_until,
};
use towpath_alto::{facts::Facts, names::Tag};
use towpath_proto::http::date;
use towpath_store::sys::{
    clock::{self, Instant},
    disk::{self, Maker},
};

use super::settings::agent::AgentConfig;

/// Another form has another number.
const VERSION: u32 = 1;

/// The longest file: some eight million routes.
const MOST_BYTES: u64 = 1 << 30;

/// The longest first line.
const HEADER_BYTES: u64 = 1 << 10;

/// How long not to write it again.
const PAUSE: Duration = Duration::from_secs(60);

/// What is written at once.
const WRITE_BYTES: usize = 1 << 20;

/// The first line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    #[serde(rename = "towpath-alto-snapshot")]
    version: u32,
    written: String,
}

/// One of the others.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Line<F> {
    agent: String,
    settings: Tag,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_since: Option<String>,
    facts: F,
}

/// What an agent told an earlier server.
#[derive(Debug, PartialEq)]
pub(super) struct Remembered {
    pub(super) facts: Facts,
    /// Since when that may not be as the network is, in seconds since the Unix epoch.
    pub(super) since_s: i64,
}

/// What is to be written of an agent.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) agent: Arc<str>,
    pub(super) settings: Tag,
    pub(super) stale_since_s: Option<i64>,
    pub(super) facts: Facts,
}

/// A digest of an agent's settings; none of one that reads files here, which is not in the snapshot: they are as quickly read.
pub(super) fn settings(config: &AgentConfig) -> Option<Tag> {
    let is_kept = matches!(config, AgentConfig::Program { .. } | AgentConfig::Bmp { .. }) || config.asks_servers();
    // Their form for people who look for defects has all of each URL; that in which they are shown leaves out what may be secret.
    is_kept.then(|| Tag::of(format!("{config:?}").as_bytes()))
}

/// What the agents that have these settings told an earlier server, by name. To be called by a thread that may take its time.
pub(super) fn read(path: &Path, agents: &BTreeMap<String, AgentConfig>) -> BTreeMap<String, Remembered> {
    match remembered(path, agents) {
        Ok(remembered) => remembered,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tracing::info!("snapshot {}: there is none yet", path.display());
            BTreeMap::new()
        }
        Err(error) => {
            tracing::warn!("snapshot {}: {error}; the server starts without it", path.display());
            BTreeMap::new()
        }
    }
}

fn remembered(path: &Path, agents: &BTreeMap<String, AgentConfig>) -> io::Result<BTreeMap<String, Remembered>> {
    let file = disk::open_regular(path, Maker::Oneself)?;
    if file.metadata()?.len() > MOST_BYTES {
        return Err(io::Error::other(format!("it has more than {MOST_BYTES} bytes")));
    }
    let mut file = BufReader::new(file.take(MOST_BYTES));
    let mut bytes = Vec::new();
    file.by_ref().take(HEADER_BYTES).read_until(b'\n', &mut bytes)?;
    let written_s = written(&bytes)?;
    let (mut remembered, mut damaged) = (BTreeMap::new(), None);
    loop {
        bytes.clear();
        if file.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        match serde_json::from_slice::<Line<Facts>>(&bytes) {
            Ok(line) if agents.get(&line.agent).and_then(settings).as_ref() == Some(&line.settings) => {
                let since = line.stale_since.as_deref().and_then(date::parse_rfc3339);
                let since_s = since.map_or(written_s, |since| since.min(written_s));
                remembered.insert(line.agent, Remembered { facts: line.facts, since_s });
            }
            Ok(line) => {
                tracing::info!("snapshot {}: agent {} is gone or has other settings now", path.display(), line.agent);
            }
            Err(error) => {
                damaged.get_or_insert(error);
            }
        }
    }
    if let Some(error) = damaged {
        tracing::warn!("snapshot {}: it is damaged, and what can be read is taken: {error}", path.display());
    }
    Ok(remembered)
}

/// When a snapshot that begins with that line was written.
fn written(header: &[u8]) -> io::Result<i64> {
    let header = serde_json::from_slice::<Header>(header)
        .map_err(|error| io::Error::other(format!("this is no snapshot of `towpath alto`: {error}")))?;
    if header.version != VERSION {
        let version = header.version;
        return Err(io::Error::other(format!("it has version {version}, and only {VERSION} is read here")));
    }
    let written_s = date::parse_rfc3339(&header.written);
    // A clock may have been put back.
    let written_s = written_s.map(|written_s| written_s.min(clock::unix_s()));
    written_s.ok_or_else(|| io::Error::other("it does not say when it was written"))
}

/// When the snapshot is to be written, and where.
#[derive(Debug)]
pub(super) struct Snapshot {
    path: PathBuf,
    /// Not before.
    next: Instant,
    has_news: bool,
    /// Why it could not be written the last time.
    trouble: Option<String>,
    writing: Option<Writing>,
}

/// The task that writes it.
#[derive(Debug)]
struct Writing {
    began: Instant,
    task: JoinHandle<io::Result<()>>,
}

impl Snapshot {
    /// One that is to be written at once.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), next: clock::now(), has_news: true, trouble: None, writing: None }
    }

    /// Notes that agents know something else.
    pub(super) fn note_news(&mut self) {
        self.has_news = true;
    }

    /// Whether it is to be written now; not while it is being written.
    pub(super) fn is_due(&self) -> bool {
        self.writing.is_none() && self.has_news && self.next <= clock::now()
    }

    /// Waits until it is to be written; for ever as long as it says what agents know. May be cancelled.
    pub(super) async fn until_due(&mut self) {
        self.until_written().await;
        match self.has_news {
            true => sleep_until(self.next).await,
            false => std::future::pending().await,
        }
    }

    /// Has it written, which is not waited for; not to be called while it is being written. What cannot be written is told in the log, once as long as it is the same, and tried again; the file of before stays.
    pub(super) fn begin(&mut self, known: Vec<Known>) {
        let path = self.path.clone();
        let task = spawn_blocking(move || write(&path, known));
        self.writing = Some(Writing { began: clock::now(), task });
        self.has_news = false;
    }

    /// Writes it for the last time, once nothing else of it is being written.
    pub(super) async fn finish(&mut self, known: Vec<Known>) {
        self.until_written().await;
        self.begin(known);
        self.until_written().await;
    }

    /// Waits until it is not being written, and takes note of what came of that. May be cancelled.
    async fn until_written(&mut self) {
        let Some(Writing { began, task }) = &mut self.writing else { return };
        let written = task.await.unwrap_or_else(|error| Err(error.into()));
        let now = clock::now();
        // However long it takes, most of the time nothing is written.
        self.next = now + PAUSE.max((now - *began) * 20);
        self.writing = None;
        let trouble = written.err().map(|error| error.to_string());
        if let Some(error) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            tracing::warn!("snapshot {}: it cannot be written: {error}", self.path.display());
        }
        self.has_news |= trouble.is_some();
        self.trouble = trouble;
    }
}

fn write(path: &Path, known: Vec<Known>) -> io::Result<()> {
    disk::replace(path, |file| {
        write_lines(BufWriter::with_capacity(WRITE_BYTES, Bounded { sink: file, left_bytes: MOST_BYTES }), known)
    })
}

fn write_lines(mut sink: impl Write, known: Vec<Known>) -> io::Result<()> {
    let written = date::format_rfc3339(clock::unix_s());
    write_line(&mut sink, &Header { version: VERSION, written })?;
    for Known { agent, settings, stale_since_s, facts } in known {
        let stale_since = stale_since_s.map(date::format_rfc3339);
        write_line(&mut sink, &Line { agent: agent.to_string(), settings, stale_since, facts })?;
    }
    sink.flush()
}

fn write_line(sink: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *sink, line)?;
    sink.write_all(b"\n")
}

/// Takes no more than can be read again.
struct Bounded<W> {
    sink: W,
    left_bytes: u64,
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left_bytes {
            return Err(io::Error::other(format!("what agents know has more than {MOST_BYTES} bytes")));
        }
        let count = self.sink.write(bytes)?;
        self.left_bytes -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
