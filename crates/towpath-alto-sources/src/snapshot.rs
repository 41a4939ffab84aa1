//! The snapshot: a file with the facts of agents other than local files, used by a restarted server until the agents
//! report again.
//!
//! It consists of JSON lines: a header, then one line per agent with facts. Facts have the format of static files.
//!
//! ```text
//! {"towpath-alto-snapshot":1,"written":"2026-11-23T21:40:00Z"}
//! {"agent":"lhcone","settings":"1f0a…","facts":{"routers":{"ex2j.cern.ch":{…}},…}}
//! ```
//!
//! `settings` is a digest: facts reported under other settings are not used. Facts that were already stale have
//! `stale-since`. Any problem with the file is logged and never prevents the server from starting. [`read`] loads the
//! file at the start; a [`SnapshotWriter`] schedules the writes, each done by a separate task.

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
use towpath_alto::{agent_state::AgentState, names::Tag};
use towpath_proto::http::date;
use towpath_store::sys::{
    clock::{self, Instant},
    disk::{self, RequiredOwner},
};

use super::settings::agent::AgentConfig;

/// Format version.
const VERSION: u32 = 1;

/// Maximum file size in bytes: about eight million routes.
const MAX_BYTES: u64 = 1 << 30;

/// Maximum length of the header line in bytes.
const HEADER_BYTES: u64 = 1 << 10;

/// Minimum interval between writes.
const PAUSE: Duration = Duration::from_secs(60);

/// Size of the write buffer.
const WRITE_BYTES: usize = 1 << 20;

/// The header line.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    #[serde(rename = "towpath-alto-snapshot")]
    version: u32,
    written: String,
}

/// The line of an agent.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct SnapshotLine<F> {
    agent: String,
    settings: Tag,
    #[serde(skip_serializing_if = "Option::is_none")]
    stale_since: Option<String>,
    facts: F,
}

/// Facts reported to an earlier run of the server.
#[derive(Debug, PartialEq)]
pub(super) struct StoredFacts {
    pub(super) facts: AgentState,
    /// Since when they may be out of date, in seconds since the Unix epoch.
    pub(super) since_s: i64,
}

/// Facts of an agent to write.
#[derive(Debug)]
pub(super) struct AgentRecord {
    pub(super) agent: Arc<str>,
    pub(super) settings: Tag,
    pub(super) stale_since_s: Option<i64>,
    pub(super) facts: AgentState,
}

/// Returns a digest of an agent's settings, or `None` for an agent that reads local files. These are not in the
/// snapshot, because they are read as quickly.
pub(super) fn settings(config: &AgentConfig) -> Option<Tag> {
    let is_kept = matches!(config, AgentConfig::Program { .. } | AgentConfig::Bmp { .. }) || config.asks_servers();
    // The `Debug` output has the full URLs; `Display` omits parts that may be secret.
    is_kept.then(|| Tag::of(format!("{config:?}").as_bytes()))
}

/// Returns the facts that agents with these settings reported to an earlier run, by name. May block.
pub(super) fn read(path: &Path, agents: &BTreeMap<String, AgentConfig>) -> BTreeMap<String, StoredFacts> {
    match read_facts(path, agents) {
        Ok(remembered) => remembered,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            tracing::info!("snapshot {}: does not exist yet", path.display());
            BTreeMap::new()
        }
        Err(error) => {
            tracing::warn!("snapshot {}: {error}; the server starts without it", path.display());
            BTreeMap::new()
        }
    }
}

fn read_facts(path: &Path, agents: &BTreeMap<String, AgentConfig>) -> io::Result<BTreeMap<String, StoredFacts>> {
    let file = disk::open_regular(path, RequiredOwner::CurrentUser)?;
    if file.metadata()?.len() > MAX_BYTES {
        return Err(io::Error::other(format!("it has more than {MAX_BYTES} bytes")));
    }
    let mut file = BufReader::new(file.take(MAX_BYTES));
    let mut bytes = Vec::new();
    file.by_ref().take(HEADER_BYTES).read_until(b'\n', &mut bytes)?;
    let written_s = parse_header(&bytes)?;
    let (mut remembered, mut damaged) = (BTreeMap::new(), None);
    loop {
        bytes.clear();
        if file.read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        match serde_json::from_slice::<SnapshotLine<AgentState>>(&bytes) {
            Ok(line) if agents.get(&line.agent).and_then(settings).as_ref() == Some(&line.settings) => {
                let since = line.stale_since.as_deref().and_then(date::parse_rfc3339);
                let since_s = since.map_or(written_s, |since| since.min(written_s));
                remembered.insert(line.agent, StoredFacts { facts: line.facts, since_s });
            }
            Ok(line) => {
                tracing::info!(
                    "snapshot {}: agent {} was removed or has other settings now",
                    path.display(),
                    line.agent
                );
            }
            Err(error) => {
                damaged.get_or_insert(error);
            }
        }
    }
    if let Some(error) = damaged {
        tracing::warn!("snapshot {}: damaged, using only the readable part: {error}", path.display());
    }
    Ok(remembered)
}

/// Parses the header line and returns when the snapshot was written.
fn parse_header(header: &[u8]) -> io::Result<i64> {
    let header = serde_json::from_slice::<Header>(header)
        .map_err(|error| io::Error::other(format!("not a snapshot of `towpath alto`: {error}")))?;
    if header.version != VERSION {
        let version = header.version;
        return Err(io::Error::other(format!("unsupported version {version}, expected {VERSION}")));
    }
    let written_s = date::parse_rfc3339(&header.written);
    // The clock may have been set back.
    let written_s = written_s.map(|written_s| written_s.min(clock::unix_s()));
    written_s.ok_or_else(|| io::Error::other("its time of writing is missing or invalid"))
}

/// Schedules writes of the snapshot.
#[derive(Debug)]
pub(super) struct SnapshotWriter {
    path: PathBuf,
    /// Earliest time of the next write.
    next: Instant,
    has_news: bool,
    /// Why the last write failed.
    trouble: Option<String>,
    writing: Option<WriteTask>,
}

/// The task writing the snapshot.
#[derive(Debug)]
struct WriteTask {
    began: Instant,
    task: JoinHandle<io::Result<()>>,
}

impl SnapshotWriter {
    /// Creates a snapshot that is due immediately.
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), next: clock::now(), has_news: true, trouble: None, writing: None }
    }

    /// Records that facts changed.
    pub(super) fn note_news(&mut self) {
        self.has_news = true;
    }

    /// Returns whether a write is due; not during a write.
    pub(super) fn is_due(&self) -> bool {
        self.writing.is_none() && self.has_news && self.next <= clock::now()
    }

    /// Waits until a write is due; never returns while the facts are unchanged. Cancel-safe.
    pub(super) async fn until_due(&mut self) {
        self.until_written().await;
        match self.has_news {
            true => sleep_until(self.next).await,
            false => std::future::pending().await,
        }
    }

    /// Starts a write in the background; must not be called during a write. A failure is logged once per distinct cause
    /// and retried; the previous file is kept.
    pub(super) fn begin(&mut self, records: Vec<AgentRecord>) {
        let path = self.path.clone();
        let task = spawn_blocking(move || write(&path, records));
        self.writing = Some(WriteTask { began: clock::now(), task });
        self.has_news = false;
    }

    /// Writes the snapshot for the last time, after a write in progress.
    pub(super) async fn finish(&mut self, records: Vec<AgentRecord>) {
        self.until_written().await;
        self.begin(records);
        self.until_written().await;
    }

    /// Waits for a write in progress and records its outcome. Cancel-safe.
    async fn until_written(&mut self) {
        let Some(WriteTask { began, task }) = &mut self.writing else { return };
        let written = task.await.unwrap_or_else(|error| Err(error.into()));
        let now = clock::now();
        // However long a write takes, most of the time none is in progress.
        self.next = now + PAUSE.max((now - *began) * 20);
        self.writing = None;
        let trouble = written.err().map(|error| error.to_string());
        if let Some(error) = trouble.as_ref().filter(|_| trouble != self.trouble) {
            tracing::warn!("snapshot {}: write failed: {error}", self.path.display());
        }
        self.has_news |= trouble.is_some();
        self.trouble = trouble;
    }
}

fn write(path: &Path, records: Vec<AgentRecord>) -> io::Result<()> {
    disk::replace(path, |file| {
        write_lines(BufWriter::with_capacity(WRITE_BYTES, LimitedWriter { sink: file, left_bytes: MAX_BYTES }), records)
    })
}

fn write_lines(mut sink: impl Write, records: Vec<AgentRecord>) -> io::Result<()> {
    let written = date::format_rfc3339(clock::unix_s());
    write_line(&mut sink, &Header { version: VERSION, written })?;
    for AgentRecord { agent, settings, stale_since_s, facts } in records {
        let stale_since = stale_since_s.map(date::format_rfc3339);
        write_line(&mut sink, &SnapshotLine { agent: agent.to_string(), settings, stale_since, facts })?;
    }
    sink.flush()
}

fn write_line(sink: &mut impl Write, line: &impl Serialize) -> io::Result<()> {
    serde_json::to_writer(&mut *sink, line)?;
    sink.write_all(b"\n")
}

/// Writer that limits the size to the maximum for reading.
struct LimitedWriter<W> {
    sink: W,
    left_bytes: u64,
}

impl<W: Write> Write for LimitedWriter<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.len() as u64 > self.left_bytes {
            return Err(io::Error::other(format!("the facts of agents have more than {MAX_BYTES} bytes")));
        }
        let count = self.sink.write(bytes)?;
        self.left_bytes -= count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}
