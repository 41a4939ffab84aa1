//! Request bodies.

use std::{
    convert::Infallible,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};

use super::body_channel::BodyChannel;

/// The body of a request.
#[derive(Debug, Clone)]
pub(super) enum Payload {
    /// No body.
    Empty,
    /// A body in memory, so that the request can be sent again.
    Whole(Bytes),
    /// A body that a writer supplies while the request is in flight.
    Stream(Arc<BodyChannel>),
}

impl Payload {
    /// Returns whether the whole body has been sent. Otherwise the connection cannot be reused.
    pub(super) fn is_sent(&self) -> bool {
        match self {
            // hyper handles these itself.
            Self::Empty | Self::Whole(_) => true,
            Self::Stream(body_channel) => body_channel.is_drained(),
        }
    }

    /// Returns whether the request can be sent, or sent again, with this body.
    pub(super) fn is_untouched(&self) -> bool {
        match self {
            Self::Empty | Self::Whole(_) => true,
            Self::Stream(body_channel) => body_channel.taken_bytes() == 0,
        }
    }
}

impl Body for Payload {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match &mut *self {
            Self::Empty => Poll::Ready(None),
            Self::Whole(bytes) if bytes.is_empty() => Poll::Ready(None),
            Self::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            Self::Stream(body_channel) => {
                body_channel.poll_piece(context).map(|piece| piece.map(|piece| Ok(Frame::data(piece))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Whole(bytes) => bytes.is_empty(),
            Self::Stream(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Whole(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Self::Stream(body_channel) => body_channel.length().map_or_else(SizeHint::default, SizeHint::with_exact),
        }
    }
}
