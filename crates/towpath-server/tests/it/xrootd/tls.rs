//! Behaviour specific to TLS clients.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
};

use rustls::{ClientConfig, RootCertStore, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::{TlsConnector, client::TlsStream};
use towpath_proto::xrootd::{
    StatOptions, Target,
    request::{Ping, Stat},
};
use towpath_store::{
    memory::MemoryStore,
    sys::{disk, net},
};

use super::peer::{HANG, Site, encode, greeting};

/// A connection that records the received bytes.
struct RecordingStream {
    stream: TcpStream,
    received: Arc<Mutex<Vec<u8>>>,
}

impl AsyncRead for RecordingStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buffer);
        this.received.lock().unwrap().extend_from_slice(&buffer.filled()[before..]);
        read
    }
}

impl AsyncWrite for RecordingStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

/// Opens a TLS connection to a new server; also returns the encrypted bytes it receives.
async fn connected() -> (Site, TlsStream<RecordingStream>, Arc<Mutex<Vec<u8>>>) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = (directory.path().join("certificate"), directory.path().join("key"));
    disk::write(&certificate, made.cert.pem().as_bytes()).unwrap();
    disk::write(&key, made.signing_key.serialize_pem().as_bytes()).unwrap();
    let site = Site::with(Arc::new(MemoryStore::new(1 << 20)), |config| {
        (config.tls.certificate, config.tls.key) = (Some(certificate), Some(key));
    });
    let mut roots = RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let client = Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth());
    let received = Arc::new(Mutex::new(Vec::new()));
    let stream = RecordingStream { stream: net::connect(site.address).await.unwrap(), received: Arc::clone(&received) };
    let name = ServerName::try_from("localhost").unwrap();
    (site, TlsConnector::from(client).connect(name, stream).await.unwrap(), received)
}

/// Returns the length of the next response, with its header.
async fn answer_bytes(stream: &mut TlsStream<RecordingStream>) -> usize {
    let mut header = [0; 8];
    timeout(HANG, stream.read_exact(&mut header)).await.expect("no answer").unwrap();
    let length = u32::from_be_bytes(header[4..].try_into().unwrap()) as usize;
    stream.read_exact(&mut vec![0; length]).await.unwrap();
    8 + length
}

/// xrdcp (seen with 5.5.3) reads one response each time its socket becomes readable. The second response in a record
/// stays in the TLS library's buffer, unnoticed by xrdcp until the request times out.
#[tokio::test]
async fn no_two_answers_share_a_record() {
    /// Overhead of TLS 1.3: header; type and tag.
    const HEADER: usize = 5;
    const INNER: usize = 17;
    let (site, mut stream, received) = connected().await;
    site.put("/file", b"content").await;
    stream.write_all(&greeting()).await.unwrap();
    for _ in 0..3 {
        answer_bytes(&mut stream).await;
    }
    received.lock().unwrap().clear();
    let stat = |number| {
        encode(
            number,
            Stat { options: StatOptions::NONE, wants: 0, wants_node: false, target: Target::Path("/file".into()) },
        )
    };
    let flight: Vec<u8> = (1..20).flat_map(|number| [encode(number, Ping), stat(100 + number)].concat()).collect();
    stream.write_all(&flight).await.unwrap();
    let mut answers = Vec::new();
    for _ in 0..38 {
        answers.push(answer_bytes(&mut stream).await);
    }
    let mut records = Vec::new();
    let encrypted = received.lock().unwrap();
    let mut rest = encrypted.as_slice();
    while let [_, _, _, high, low, ..] = rest {
        let length = usize::from(u16::from_be_bytes([*high, *low]));
        records.push(length - INNER);
        rest = &rest[HEADER + length..];
    }
    assert_eq!(records, answers);
}
