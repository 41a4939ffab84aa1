//! Copies from the standard input and to the standard output.

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use towpath_store::{CreateOptions, Error, Expectation, Fault, OpenOptions, Result};

use super::{Order, Total};
use crate::{
    commands::write_out,
    failure::Failure,
    location::{End, Place},
};

/// Bytes read at once from the standard input.
const PIECE_BYTES: usize = 2 << 20;

/// Copies one stream or file.
pub(super) async fn copy(from: End, to: End, order: &Order<'_>) -> Result<Total, Failure> {
    let bytes = match (from, to) {
        (End::Place(from), End::Standard) => to_output(&from, order).await?,
        (End::Standard, End::Place(to)) => from_input(&to, order).await?,
        _ => return Err(Failure::Usage("one of source and destination must be a path or URL".into())),
    };
    Ok(Total { files: 1, bytes, ..Total::default() })
}

async fn to_output(from: &Place, order: &Order<'_>) -> Result<u64, Failure> {
    let source = from.store.open(&order.places.caller, &from.path, OpenOptions::default()).await?;
    let size = source.metadata().await?.size;
    order.progress.expect(size);
    write_out(from, &*source, 0..size, &mut tokio::io::stdout(), |bytes| order.progress.moved(bytes)).await?;
    Ok(size)
}

async fn from_input(to: &Place, order: &Order<'_>) -> Result<u64, Failure> {
    let options = CreateOptions { overwrite: order.overwrite, parents: true, ..CreateOptions::default() };
    let target = to.store.create(&order.places.caller, &to.path, options).await?;
    let mut input = tokio::io::stdin();
    let mut offset = 0;
    loop {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        while piece.len() < PIECE_BYTES && input.read_buf(&mut piece).await.map_err(|error| unreadable(&error))? > 0 {}
        if piece.is_empty() {
            break;
        }
        let length = piece.len() as u64;
        target.write(offset, Bytes::from(piece)).await?;
        offset += length;
        order.progress.moved(length);
    }
    target.commit(Expectation { size: Some(offset), ..Expectation::default() }).await?;
    Ok(offset)
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::new(Fault::Io, format!("the standard input cannot be read: {error}"))
}
