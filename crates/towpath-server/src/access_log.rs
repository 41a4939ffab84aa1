//! The access log: one line per request, as text or JSON, and lines of other kinds ([`AccessLines`]). A separate task
//! writes them, so that requests never wait for it.

use std::{
    fmt,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Weak},
    time::Duration,
};

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::mpsc,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use towpath_store::{
    Fault,
    sys::{clock, disk},
};

use crate::{
    Service, StartError,
    access::Denial,
    config::{AccessLogConfig, LogFormat},
    metrics::Face,
};

/// Maximum number of lines queued for the writer. Further lines are dropped and counted.
const QUEUE_LINES: usize = 8192;

/// The content of one log line.
#[derive(Debug)]
pub struct Record<'a> {
    /// The protocol.
    pub face: Face,
    /// Address of the client.
    pub peer: SocketAddr,
    /// Subject of the client's token, or name of the user.
    pub subject: Option<&'a str>,
    /// Issuer of the token, or realm of the user.
    pub issuer: Option<&'a str>,
    /// The operation, named as in the protocol.
    pub verb: &'static str,
    /// The path, without its opaque part, which may contain a token.
    pub path: fmt::Arguments<'a>,
    /// The fault, if the request failed.
    pub fault: Option<Fault>,
    /// Why the caller was denied the request, if it was.
    pub denial: Option<&'a Denial>,
    /// Bytes of file data transferred.
    pub bytes: u64,
    /// Time from the arrival of the request to the end of the response: for HTTP until the last byte was sent, for
    /// xroot until the last frame is about to be sent.
    pub took: Duration,
}

#[derive(Serialize)]
struct LogEntry<'a> {
    unix_ms: i64,
    face: &'static str,
    peer: SocketAddr,
    subject: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issuer: Option<&'a str>,
    verb: &'static str,
    path: fmt::Arguments<'a>,
    outcome: &'static str,
    bytes: u64,
    took_us: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl LogEntry<'_> {
    fn text(&self) -> String {
        let LogEntry { unix_ms, face, peer, verb, outcome, bytes, took_us, path, .. } = self;
        let (seconds, ms) = (unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000));
        let subject = self.subject.unwrap_or("-").escape_debug();
        let path = path.to_string();
        let path = path.escape_debug();
        let mut line =
            format!("{seconds}.{ms:03} {face} {peer} {subject} {verb} \"{path}\" {outcome} {bytes}B {took_us}us");
        let quoted = |text: &str| format!("\"{}\"", text.escape_debug());
        for (key, value) in [
            ("issuer", self.issuer.map(quoted)),
            ("reason", self.reason.map(str::to_owned)),
            ("message", self.message.map(quoted)),
        ] {
            value.iter().for_each(|value| line.extend([" ", key, "=", value]));
        }
        line
    }
}

/// Handle to the log writer.
#[derive(Debug, Default)]
pub struct AccessLog {
    lines: Option<(mpsc::Sender<String>, LogFormat)>,
    /// Counts dropped lines.
    lost: Counter,
    /// Cancelled when no more lines will be logged.
    ending: CancellationToken,
    writer: TaskTracker,
}

impl AccessLog {
    /// Starts the log described by `config`, with its writer as a task on the current runtime. Dropped lines are
    /// counted in `lost`.
    ///
    /// # Errors
    /// [`StartError::AccessLog`] if the file cannot be opened.
    pub fn start(config: &AccessLogConfig, lost: Counter) -> Result<Self, StartError> {
        if config.path.is_empty() {
            return Ok(Self::default());
        }
        let (sender, lines) = mpsc::channel(QUEUE_LINES);
        let (ending, writer) = (CancellationToken::new(), TaskTracker::new());
        if config.path == "-" {
            writer.spawn(write_lines(tokio::io::stderr(), lines, ending.clone(), lost.clone()));
        } else {
            let file = disk::append(Path::new(&config.path))
                .map_err(|source| StartError::AccessLog { path: config.path.clone(), source })?;
            writer.spawn(write_lines(tokio::fs::File::from_std(file), lines, ending.clone(), lost.clone()));
        }
        Ok(Self { lines: Some((sender, config.format)), lost, ending, writer })
    }

    /// Waits until all queued lines are written; later lines are dropped.
    pub async fn finish(&self) {
        self.ending.cancel();
        self.writer.close();
        self.writer.wait().await;
    }

    /// Queues one line if the log is enabled.
    pub fn record(&self, record: &Record<'_>) {
        let Some((sender, format)) = &self.lines else { return };
        let line = LogEntry {
            unix_ms: clock::unix_ns().div_euclid(1_000_000),
            face: record.face.name(),
            peer: record.peer,
            subject: record.subject,
            issuer: record.issuer,
            verb: record.verb,
            path: record.path,
            outcome: record.fault.map_or("ok", Fault::name),
            bytes: record.bytes,
            took_us: u64::try_from(record.took.as_micros()).unwrap_or(u64::MAX),
            reason: record.denial.map(|denial| denial.reason),
            message: record.denial.map(|denial| &*denial.message),
        };
        let text = match format {
            LogFormat::Text => line.text(),
            LogFormat::Json => serde_json::to_string(&line).expect("strings and numbers always serialize"),
        };
        self.queue(sender, text);
    }

    /// Queues a line of another kind if the log is enabled. It has no line feed.
    pub fn write(&self, line: impl FnOnce() -> String) {
        if let Some((sender, _)) = &self.lines {
            self.queue(sender, line());
        }
    }

    fn queue(&self, sender: &mpsc::Sender<String>, line: String) {
        if sender.try_send(line).is_err() {
            self.lost.inc();
        }
    }

    /// Whether the log is enabled.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
    }
}

/// Writes lines of another kind into the access log of a running server, beside those of its requests.
#[derive(Debug, Clone)]
pub struct AccessLines(Weak<Service>);

impl AccessLines {
    pub(crate) fn new(service: &Arc<Service>) -> Self {
        Self(Arc::downgrade(service))
    }

    /// Queues a line, which has no line feed. `line` is called only if the log is enabled.
    pub fn write(&self, line: impl FnOnce() -> String) {
        if let Some(service) = self.0.upgrade() {
            service.access_log.get().write(line);
        }
    }
}

async fn write_lines(
    mut target: impl AsyncWrite + Unpin,
    mut lines: mpsc::Receiver<String>,
    ending: CancellationToken,
    lost: Counter,
) {
    let mut batch = Vec::new();
    loop {
        let received = tokio::select! {
            received = lines.recv_many(&mut batch, 256) => received,
            () = ending.cancelled(), if !lines.is_closed() => {
                lines.close();
                continue;
            }
        };
        if received == 0 {
            return;
        }
        let mut text = batch.join("\n");
        text.push('\n');
        let count = batch.len() as u64;
        batch.clear();
        if let Err(error) = async {
            target.write_all(text.as_bytes()).await?;
            target.flush().await
        }
        .await
        {
            lost.inc_by(count);
            tracing::warn!(%error, "failed to write the access log");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn lines_for_a_full_disk_are_counted() {
        let lost = Counter::default();
        let config = AccessLogConfig { path: "/dev/full".into(), format: LogFormat::Text };
        let log = AccessLog::start(&config, lost.clone()).unwrap();
        for _ in 0..3 {
            log.record(&Record {
                face: Face::Http,
                peer: ([127, 0, 0, 1], 1).into(),
                subject: None,
                issuer: None,
                verb: "GET",
                path: format_args!("/f"),
                fault: None,
                denial: None,
                bytes: 1,
                took: Duration::from_millis(1),
            });
        }
        log.finish().await;
        assert_eq!(lost.get(), 3);
    }
}
