//! An HTTP server of one file that sends wrong responses.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
    task::JoinHandle,
};
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::sys::net;

/// The wrong part of its responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Misbehavior {
    /// The reported size is too large, and the body ends early.
    Longer,
    /// Each answer ends in the middle.
    CutOff,
    /// The response is another range than requested, with a correct `Content-Range`.
    OtherRange,
    /// The digest is that of something else.
    OtherDigest,
    /// One byte is another one, and the digest that of the right ones.
    OtherByte,
    /// To HEAD the file is empty.
    EmptyHead,
}

/// The server, until it is dropped. Every path is its file.
#[derive(Debug)]
pub struct MisbehavingServer {
    port: u16,
    serving: JoinHandle<()>,
}

impl Drop for MisbehavingServer {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl MisbehavingServer {
    /// Serves `content`, and lies about it. To be called within a runtime.
    ///
    /// # Panics
    /// No port is free.
    pub fn start(misbehavior: Option<Misbehavior>, content: Bytes) -> Self {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).expect("a port is free");
        let port = listener.local_addr().expect("it listens").port();
        let file = Arc::new(File { misbehavior, adler32: adler32(&content), content });
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let file = Arc::clone(&file);
                // A client that leaves is no error.
                tokio::spawn(async move { file.serve(stream).await });
            }
        });
        Self { port, serving }
    }

    /// Where it listens, on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }
}

fn adler32(content: &[u8]) -> String {
    let digests = Hasher::digest([Algorithm::Adler32].into_iter().collect(), content);
    digests.get(Algorithm::Adler32).expect("it was asked for").to_string()
}

/// What is served.
struct File {
    misbehavior: Option<Misbehavior>,
    content: Bytes,
    adler32: String,
}

impl File {
    async fn serve(&self, stream: TcpStream) -> std::io::Result<()> {
        let mut stream = BufReader::new(stream);
        loop {
            let (mut is_head, mut range, mut line) = (None, None, String::new());
            while stream.read_line(&mut line).await? > 2 {
                is_head.get_or_insert(line.starts_with("HEAD "));
                range = range.or_else(|| range_of(&line));
                line.clear();
            }
            let Some(is_head) = is_head else { return Ok(()) };
            let (mut head, body, is_end) = self.answer(range.as_ref());
            if is_head && self.misbehavior == Some(Misbehavior::EmptyHead) {
                head = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nAccept-Ranges: bytes\r\n\r\n".to_owned();
            }
            stream.write_all(head.as_bytes()).await?;
            if !is_head {
                stream.write_all(&body).await?;
            }
            stream.flush().await?;
            if is_end && !is_head {
                return stream.shutdown().await;
            }
        }
    }

    /// Head and body, and whether the connection ends then.
    fn answer(&self, range: Option<&Range<usize>>) -> (String, Bytes, bool) {
        let misbehavior = self.misbehavior;
        let told = self.content.len() + if misbehavior == Some(Misbehavior::Longer) { 1000 } else { 0 };
        let wanted = range.map_or(0..told, |range| range.start.min(told)..range.end.min(told));
        let real = wanted.start.min(self.content.len())..wanted.end.min(self.content.len());
        let mut body = self.content.slice(real);
        if misbehavior == Some(Misbehavior::OtherByte) && !body.is_empty() {
            let mut other = body.to_vec();
            other[0] ^= 1;
            body = other.into();
        }
        let length = wanted.len();
        if misbehavior == Some(Misbehavior::CutOff) {
            body.truncate(length / 2);
        }
        let shift = if misbehavior == Some(Misbehavior::OtherRange) { 1 } else { 0 };
        let (first, last) = (wanted.start + shift, (wanted.end + shift).saturating_sub(1));
        let status = match range {
            Some(_) => format!("206 Partial Content\r\nContent-Range: bytes {first}-{last}/{told}"),
            None => "200 OK".into(),
        };
        let adler32 = if misbehavior == Some(Misbehavior::OtherDigest) { "00000001" } else { &self.adler32 };
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nAccept-Ranges: bytes\r\nETag: \"1\"\r\nDigest: adler32={adler32}\r\n\r\n"
        );
        let is_end = body.len() < length;
        (head, body, is_end)
    }
}

/// Parses a `Range` line of a request.
fn range_of(line: &str) -> Option<Range<usize>> {
    let (name, value) = line.split_once(':')?;
    let (start, end) = value.trim().strip_prefix("bytes=")?.split_once('-')?;
    let end = end.parse::<usize>().map_or(usize::MAX, |last| last + 1);
    name.eq_ignore_ascii_case("range").then_some(start.parse().ok()?..end)
}
