//! Connections bound to a session: they carry the data of its reads and writes.
//!
//! All requests come on the connection that logged in. A read with a path id is answered on the bound connection with
//! that id. The data of a write with a path id arrive there without a header, in the order of the requests: the main
//! connection's reader queues a [`ExpectedData`] for each, and the reader of the bound connection receives them in
//! turn. Data may arrive before their request; at most [`MAX_AHEAD_BYTES`] are buffered, then TCP applies backpressure.

use std::sync::Arc;

use bytes::{Buf as _, BufMut as _, BytesMut};
use tokio::{io::AsyncReadExt as _, sync::mpsc};
use towpath_proto::xrootd::StreamId;

use super::{
    connection::{CloseReason, DataSource, SocketReader, ending},
    login::{self, AuthenticatedConnection},
    response_writer::ResponseWriter,
    session::Session,
    split,
    write::ExpectedData,
};
use crate::fair_pool::PeerProgress;

/// Maximum number of bytes buffered before their request arrives: enough to notice the end of the connection.
const MAX_AHEAD_BYTES: usize = 4096;

/// The session's handle to a bound connection.
#[derive(Debug, Clone)]
pub(super) struct BoundPath {
    /// Sends responses.
    pub(super) response_writer: Arc<ResponseWriter>,
    /// Bounded by the number of requests in flight, `limits.requests_per_connection`.
    expected_data_sender: mpsc::UnboundedSender<ExpectedData>,
}

impl BoundPath {
    /// Queues the receipt of a request's data. If the connection has ended, dropping `expected_data` notifies its
    /// receiver.
    pub(super) fn expect(&self, expected_data: ExpectedData) {
        let _ = self.expected_data_sender.send(expected_data);
    }
}

/// The reader of a bound connection.
struct BoundReader {
    session: Arc<Session>,
    receiving: SocketReader,
    /// Data that arrived before their request.
    ahead: BytesMut,
    activity: Arc<PeerProgress>,
}

/// Binds the connection to `session`, and serves it until either ends.
pub(super) async fn serve(
    session: Arc<Session>,
    stream_id: StreamId,
    authenticated: AuthenticatedConnection,
    activity: &Arc<PeerProgress>,
) {
    let AuthenticatedConnection { socket, mut framer, unsent: mut answer, .. } = authenticated;
    let (receiving, sending) = split(socket);
    let response_writer = Arc::new(ResponseWriter::new(
        sending,
        &session.service,
        session.ended.child_token(),
        [&session.sending, activity].map(Arc::clone),
    ));
    let (expected_data_sender, queue) = mpsc::unbounded_channel();
    let bound = session.bind(BoundPath { response_writer: Arc::clone(&response_writer), expected_data_sender });
    answer.extend_from_slice(&login::bound(stream_id, &bound));
    let sent = response_writer.send(&answer).await;
    let Ok(id) = bound else { return response_writer.shut_down().await };
    let mut reader = BoundReader { session, receiving, ahead: framer.buffer().split(), activity: Arc::clone(activity) };
    let end = if sent.is_ok() { reader.receive(queue).await } else { CloseReason::Broken };
    let session = reader.session;
    session.unbind(id);
    let stalled = response_writer.has_stalled().then_some("stalled while receiving a response");
    if let Some(why) = stalled.or(if let CloseReason::Disconnected(why) = end { Some(why) } else { None }) {
        session.service.record_disconnect(session.peer, why);
    }
}

impl BoundReader {
    /// Receives the data of one request after the other until the connection or its session ends.
    async fn receive(&mut self, mut queue: mpsc::UnboundedReceiver<ExpectedData>) -> CloseReason {
        let session = Arc::clone(&self.session);
        let ended = session.ended.child_token();
        loop {
            let room = MAX_AHEAD_BYTES.saturating_sub(self.ahead.len());
            let mut ahead = (&mut self.ahead).limit(room);
            tokio::select! {
                biased;
                () = ended.cancelled() => return ending(&session),
                expected_data = queue.recv() => {
                    let Some(expected_data) = expected_data else { return CloseReason::Finished };
                    if let Err(end) = expected_data.receive(self).await {
                        return end;
                    }
                }
                received = self.receiving.read_buf(&mut ahead), if room > 0 => match received {
                    Ok(1..) => {}
                    Ok(0) => return CloseReason::Finished,
                    Err(_) => return CloseReason::Broken,
                },
            }
        }
    }
}

impl DataSource for BoundReader {
    fn session(&self) -> &Arc<Session> {
        &self.session
    }

    async fn receive_data(&mut self, length: usize, buffer: &mut Vec<u8>) -> Result<(), CloseReason> {
        let buffered = self.ahead.len().min(length);
        buffer.put_slice(self.ahead.get(..buffered).unwrap_or_default());
        self.ahead.advance(buffered);
        self.receiving.fill((&self.session, &self.activity), length - buffered, buffer).await
    }
}
