//! A plain web server of one file, with ranges and entity tags, but no extensions of towpath. It records the data sent.

use std::{
    io,
    ops::Range,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpStream,
};
use tokio_util::task::AbortOnDropHandle;
use towpath_store::sys::net;
use towpath_testkit::pattern::Pattern;

/// Size in bytes of the pieces generated and sent.
const CHUNK_BYTES: u64 = 64 << 10;

/// One version of the file.
#[derive(Clone, Copy)]
pub(super) struct Version {
    pub(super) etag: &'static str,
    pub(super) content: Pattern,
}

/// A part of the file that was sent, possibly incomplete.
#[derive(Debug, Clone)]
pub(super) struct Part {
    /// Offset of its first byte.
    pub(super) first: u64,
    /// The condition of the request.
    pub(super) if_match: Option<String>,
    /// Number of bytes sent.
    pub(super) bytes: u64,
}

/// The server, until it is dropped. Every path is the file.
pub(super) struct PlainServer {
    port: u16,
    file: Arc<File>,
    _serving: AbortOnDropHandle<()>,
}

impl PlainServer {
    /// Serves a file of `size` bytes. Must be called within a runtime.
    pub(super) fn start(size: u64, version: Version) -> Self {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let file = Arc::new(File { size, version: Mutex::new(version), parts: Mutex::default() });
        let served = Arc::clone(&file);
        let serving = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let served = Arc::clone(&served);
                // A closed connection is not an error.
                tokio::spawn(async move { served.serve(stream).await });
            }
        });
        Self { port, file, _serving: AbortOnDropHandle::new(serving) }
    }

    /// Returns the URL of the file.
    pub(super) fn url(&self) -> String {
        format!("http://127.0.0.1:{}/large", self.port)
    }

    /// Replaces the version of the file.
    pub(super) fn change(&self, version: Version) {
        *self.file.version.lock().unwrap() = version;
    }

    /// Returns all parts sent so far.
    pub(super) fn parts(&self) -> Vec<Part> {
        self.file.parts.lock().unwrap().clone()
    }
}

/// The served file, and the record of the parts sent.
struct File {
    size: u64,
    version: Mutex<Version>,
    parts: Mutex<Vec<Part>>,
}

impl File {
    async fn serve(&self, stream: TcpStream) -> io::Result<()> {
        let mut stream = BufReader::new(stream);
        while let Some(Request { is_head, range, if_match }) = next_request(&mut stream).await? {
            let Version { etag, content } = *self.version.lock().unwrap();
            if if_match.as_deref().is_some_and(|wanted| wanted != etag) {
                stream.write_all(b"HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n").await?;
                continue;
            }
            let Some(range) = range.filter(|_| !is_head) else {
                let head = match is_head {
                    true => format!("HTTP/1.1 200 OK\r\nETag: {etag}\r\nContent-Length: {}\r\n\r\n", self.size),
                    false => "HTTP/1.1 405 Method Not Allowed\r\nContent-Length: 0\r\n\r\n".to_owned(),
                };
                stream.write_all(head.as_bytes()).await?;
                continue;
            };
            let range = range.start..range.end.min(self.size);
            let number = self.note(Part { first: range.start, if_match, bytes: 0 });
            let (first, last, size) = (range.start, range.end - 1, self.size);
            let length = range.end - range.start;
            let head = format!(
                "HTTP/1.1 206 Partial Content\r\nETag: {etag}\r\nContent-Range: bytes {first}-{last}/{size}\r\n\
                 Content-Length: {length}\r\n\r\n"
            );
            stream.write_all(head.as_bytes()).await?;
            for offset in range.clone().step_by(CHUNK_BYTES as usize) {
                let length = CHUNK_BYTES.min(range.end - offset);
                stream.write_all(&content.bytes(offset, length as usize)).await?;
                self.parts.lock().unwrap()[number].bytes += length;
            }
        }
        Ok(())
    }

    /// Records a part, and returns its number.
    fn note(&self, part: Part) -> usize {
        let mut parts = self.parts.lock().unwrap();
        parts.push(part);
        parts.len() - 1
    }
}

/// A request.
#[derive(Default)]
struct Request {
    is_head: bool,
    range: Option<Range<u64>>,
    if_match: Option<String>,
}

/// Reads the next request; `None` at the end.
async fn next_request(stream: &mut BufReader<TcpStream>) -> io::Result<Option<Request>> {
    let (mut request, mut line) = (None, String::new());
    while stream.read_line(&mut line).await? > 2 {
        let request =
            request.get_or_insert_with(|| Request { is_head: line.starts_with("HEAD "), ..Request::default() });
        if let Some((name, value)) = line.trim_end().split_once(": ") {
            match name.to_ascii_lowercase().as_str() {
                "range" => request.range = range_of(value),
                "if-match" => request.if_match = Some(value.to_owned()),
                _ => {}
            }
        }
        line.clear();
    }
    Ok(request)
}

fn range_of(value: &str) -> Option<Range<u64>> {
    let (first, last) = value.strip_prefix("bytes=")?.split_once('-')?;
    Some(first.parse().ok()?..last.parse::<u64>().ok()? + 1)
}
