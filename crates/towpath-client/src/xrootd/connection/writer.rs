//! The sending half of a connection: batches queued small requests, and sends bulk data without a copy.

use std::{
    io::{self, IoSlice},
    sync::Arc,
};

use bytes::{Buf, BufMut as _, Bytes, BytesMut};
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    sync::{OwnedSemaphorePermit, mpsc, oneshot},
};
use towpath_proto::xrootd::page::{CRC_BYTES, PAGE_BYTES};

/// Maximum length in bytes of a batch of requests: short flights of one segment pay off, long ones do not.
const GATHER_BYTES: usize = 64 << 10;

/// Maximum length in bytes of data that are copied into a batch, which costs less than a system call.
const SMALL_BYTES: usize = 16 << 10;

/// The data of a request.
#[derive(Debug)]
pub(in crate::xrootd) enum Payload {
    None,
    Plain(Bytes),
    Pages(Pages),
}

impl Payload {
    /// Creates a payload of pages from `data` at `offset` of the file, with one checksum per page in `checksums`.
    pub(in crate::xrootd) fn pages(offset: u64, data: Bytes, checksums: Arc<[[u8; CRC_BYTES]]>) -> Self {
        let to_page_end = PAGE_BYTES - (offset % PAGE_BYTES as u64) as usize;
        Self::Pages(Pages { data, checksums, next: 0, crc_sent: 0, page_left: 0, to_page_end })
    }
}

impl Payload {
    /// Copies small data into `batch`; returns large data.
    fn gather_into(self, batch: &mut BytesMut) -> Option<Self> {
        match self {
            Self::None => {}
            Self::Plain(data) if data.len() <= SMALL_BYTES => batch.put(data),
            Self::Pages(pages) if pages.remaining() <= SMALL_BYTES => batch.put(pages),
            large => return Some(large),
        }
        None
    }
}

/// Pages and checksums, interleaved as they are sent, without copies.
#[derive(Debug)]
pub(in crate::xrootd) struct Pages {
    /// The remaining data.
    data: Bytes,
    checksums: Arc<[[u8; CRC_BYTES]]>,
    /// The checksum to be sent next.
    next: usize,
    /// Bytes of that checksum that have been sent.
    crc_sent: usize,
    /// Bytes left of the page whose checksum has been sent; 0 if a checksum is next.
    page_left: usize,
    /// Bytes from the next page's start to its end.
    to_page_end: usize,
}

impl Pages {
    /// Returns the remaining slices in order.
    fn slices(&self) -> impl Iterator<Item = &[u8]> {
        let (current, rest) = self.data.split_at(self.page_left.min(self.data.len()));
        let (first, rest) = rest.split_at(rest.len().min(self.to_page_end));
        let pages = std::iter::once(first).chain(rest.chunks(PAGE_BYTES)).filter(|page| !page.is_empty());
        let checksums = self.checksums.iter().skip(self.next).enumerate();
        let checksums =
            checksums.map(|(index, crc)| crc.get(if index == 0 { self.crc_sent } else { 0 }..).unwrap_or(&[]));
        let units = checksums.zip(pages).flat_map(|(crc, page)| [crc, page]);
        std::iter::once(current).chain(units).filter(|slice| !slice.is_empty())
    }
}

impl Buf for Pages {
    fn remaining(&self) -> usize {
        let checksums = self.checksums.len().saturating_sub(self.next) * CRC_BYTES;
        self.data.len() + checksums - self.crc_sent
    }

    fn chunk(&self) -> &[u8] {
        self.slices().next().unwrap_or(&[])
    }

    fn chunks_vectored<'a>(&'a self, target: &mut [IoSlice<'a>]) -> usize {
        let filled = target.iter_mut().zip(self.slices());
        filled.map(|(entry, slice)| *entry = IoSlice::new(slice)).count()
    }

    fn advance(&mut self, mut count: usize) {
        while count > 0 {
            if self.page_left > 0 {
                let step = count.min(self.page_left);
                self.data.advance(step);
                self.page_left -= step;
                count -= step;
                continue;
            }
            let step = count.min(CRC_BYTES - self.crc_sent);
            self.crc_sent += step;
            count -= step;
            if self.crc_sent == CRC_BYTES {
                (self.crc_sent, self.next) = (0, self.next + 1);
                self.page_left = self.to_page_end.min(self.data.len());
                self.to_page_end = PAGE_BYTES;
            }
        }
    }
}

/// A request to be sent.
#[derive(Debug)]
pub(super) struct QueuedRequest {
    pub(super) head: Bytes,
    pub(super) payload: Payload,
    /// Released when the payload has been sent.
    pub(super) queue_permit: Option<OwnedSemaphorePermit>,
}

/// Sends `first`, then orders of the reader, and requests once the gate is open. Ends when all senders are dropped and
/// everything is sent.
pub(super) async fn run(
    mut output: impl AsyncWrite + Unpin,
    first: Bytes,
    mut gate: oneshot::Receiver<()>,
    mut orders: mpsc::UnboundedReceiver<Bytes>,
    mut queue: mpsc::UnboundedReceiver<QueuedRequest>,
) -> io::Result<()> {
    let mut batch = BytesMut::from(first);
    let mut open = false;
    let mut next = None;
    loop {
        if !open && gate.try_recv().is_ok() {
            open = true;
        }
        let mut large = None;
        while large.is_none() && batch.len() < GATHER_BYTES {
            if let Ok(order) = orders.try_recv() {
                batch.extend_from_slice(&order);
            } else if open && let Some(outgoing) = next.take().or_else(|| queue.try_recv().ok()) {
                let QueuedRequest { head, payload, queue_permit } = outgoing;
                batch.extend_from_slice(&head);
                large = payload.gather_into(&mut batch).map(|payload| (payload, queue_permit));
            } else {
                break;
            }
        }
        send(&mut output, &mut batch, large).await?;
        tokio::select! {
            biased;
            order = orders.recv() => match order {
                Some(order) => batch.extend_from_slice(&order),
                // The reader has ended.
                None => return Ok(()),
            },
            _ = &mut gate, if !open => open = true,
            outgoing = queue.recv(), if open => match outgoing {
                Some(outgoing) => next = Some(outgoing),
                None => return output.shutdown().await,
            }
        }
    }
}

/// Sends the batch and then a large payload, whose memory is released afterwards.
async fn send(
    output: &mut (impl AsyncWrite + Unpin),
    batch: &mut BytesMut,
    large: Option<(Payload, Option<OwnedSemaphorePermit>)>,
) -> io::Result<()> {
    let gathered = batch.split();
    let Some((payload, _place)) = large else {
        if !gathered.is_empty() {
            output.write_all(&gathered).await?;
            output.flush().await?;
        }
        return Ok(());
    };
    match payload {
        Payload::None => output.write_all(&gathered).await?,
        Payload::Plain(data) => output.write_all_buf(&mut gathered.chain(data)).await?,
        Payload::Pages(pages) => output.write_all_buf(&mut gathered.chain(pages)).await?,
    }
    output.flush().await
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towpath_proto::xrootd::page;

    use super::*;

    proptest! {
        /// For any division into writes, the output equals that of the codec.
        #[test]
        fn pages_leave_as_the_codec_lays_them_out(
            offset in 0_u64..9000,
            length in 1_usize..20_000,
            steps in prop::collection::vec(1_usize..6000, 1..8),
        ) {
            let data: Bytes = (0..length).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
            let mut expected = BytesMut::new();
            page::encode(offset, &data, &mut expected);
            let checksums = page::slots(offset, &expected).map(|(crc, _)| crc.to_be_bytes()).collect();
            let Payload::Pages(mut pages) = Payload::pages(offset, data, checksums) else { unreachable!() };
            let mut sent = Vec::new();
            for step in steps.iter().cycle() {
                prop_assert_eq!(pages.remaining(), expected.len() - sent.len());
                let mut slices = [IoSlice::new(&[]); 5];
                let count = pages.chunks_vectored(&mut slices);
                let there: Vec<u8> = slices[..count].iter().flat_map(|slice| slice.to_vec()).collect();
                prop_assert!(there.starts_with(pages.chunk()));
                if there.is_empty() {
                    break;
                }
                let step = (*step).min(there.len());
                sent.extend_from_slice(&there[..step]);
                pages.advance(step);
            }
            prop_assert_eq!(&sent[..], &expected[..]);
        }
    }
}
