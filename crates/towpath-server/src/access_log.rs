//! The access log: one line for each request, text or JSON, written by a task of its own so that no request waits for it.

use std::{fmt, net::SocketAddr, path::Path, time::Duration};

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
    StartError,
    config::{AccessLogConfig, LogFormat},
    metrics::Face,
};

/// How many lines may wait for the writer; further ones are dropped and counted.
const QUEUE_LINES: usize = 8192;

/// What one line tells.
#[derive(Debug)]
pub struct Record<'a> {
    /// Which protocol.
    pub face: Face,
    /// Who, by address.
    pub peer: SocketAddr,
    /// Who, by token.
    pub subject: Option<&'a str>,
    /// What was asked, as the protocol calls it.
    pub verb: &'static str,
    /// Of which path; without its opaque part, which may carry a token.
    pub path: fmt::Arguments<'a>,
    /// What it failed with.
    pub fault: Option<Fault>,
    /// File data moved.
    pub bytes: u64,
    /// From the request's arrival to the end of its answer: over HTTP its last byte has gone, over xroot its last frame is about to.
    pub took: Duration,
}

#[derive(Serialize)]
struct Line<'a> {
    unix_ms: i64,
    face: &'static str,
    peer: SocketAddr,
    subject: Option<&'a str>,
    verb: &'static str,
    path: fmt::Arguments<'a>,
    outcome: &'static str,
    bytes: u64,
    took_us: u64,
}

impl Line<'_> {
    fn text(&self) -> String {
        let Line { unix_ms, face, peer, verb, outcome, bytes, took_us, path, .. } = self;
        let (seconds, ms) = (unix_ms.div_euclid(1000), unix_ms.rem_euclid(1000));
        let subject = self.subject.unwrap_or("-").escape_debug();
        let path = path.to_string();
        let path = path.escape_debug();
        format!("{seconds}.{ms:03} {face} {peer} {subject} {verb} \"{path}\" {outcome} {bytes}B {took_us}us")
    }
}

/// Where the lines go.
#[derive(Debug, Default)]
pub struct AccessLog {
    lines: Option<(mpsc::Sender<String>, LogFormat)>,
    /// Lines that were not written.
    lost: Counter,
    /// No more lines come.
    ending: CancellationToken,
    writer: TaskTracker,
}

impl AccessLog {
    /// The log that `config` describes, which counts the lines that it loses in `lost`; its writer is a task of the running runtime.
    ///
    /// # Errors
    /// [`StartError::AccessLog`] if its file cannot be opened.
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

    /// Waits until all lines have been written; later ones are dropped.
    pub async fn finish(&self) {
        self.ending.cancel();
        self.writer.close();
        self.writer.wait().await;
    }

    /// Writes one line, if anybody reads them.
    pub fn record(&self, record: &Record<'_>) {
        let Some((sender, format)) = &self.lines else { return };
        let line = Line {
            unix_ms: clock::unix_ns().div_euclid(1_000_000),
            face: record.face.name(),
            peer: record.peer,
            subject: record.subject,
            verb: record.verb,
            path: record.path,
            outcome: record.fault.map_or("ok", Fault::name),
            bytes: record.bytes,
            took_us: u64::try_from(record.took.as_micros()).unwrap_or(u64::MAX),
        };
        let text = match format {
            LogFormat::Text => line.text(),
            LogFormat::Json => serde_json::to_string(&line).expect("strings and numbers always serialize"),
        };
        if sender.try_send(text).is_err() {
            self.lost.inc();
        }
    }

    /// Whether anybody reads the lines.
    pub fn is_on(&self) -> bool {
        self.lines.is_some()
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
            tracing::warn!(%error, "the access log cannot be written");
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
                verb: "GET",
                path: format_args!("/f"),
                fault: None,
                bytes: 1,
                took: Duration::from_millis(1),
            });
        }
        log.finish().await;
        assert_eq!(lost.get(), 3);
    }
}
