//! Copies from the standard input and to the standard output.

use std::sync::Arc;

use bytes::Bytes;
use tokio::io::AsyncReadExt as _;
use towpath_mover::{Place, Progress};
use towpath_store::{CreateOptions, Error, Expectation, Fault, OpenOptions, Overwrite, Result};

use super::Total;
use crate::{commands::write_out, failure::Failure};

/// Bytes read at once from the standard input.
const PIECE_BYTES: usize = 2 << 20;

/// Writes a file to the standard output.
pub(super) async fn to_output(from: &Place, progress: &Arc<Progress>) -> Result<Total, Failure> {
    let source = from.store.open(&from.caller, &from.path, OpenOptions::default()).await?;
    let size = source.metadata().await?.size;
    let part = progress.find(Some(size));
    write_out(from, &*source, 0..size, &mut tokio::io::stdout(), |bytes| part.moved(bytes)).await?;
    Ok(Total { files: 1, bytes: size, ..Total::default() })
}

/// Makes a file of the standard input.
pub(super) async fn from_input(to: &Place, overwrite: Overwrite, progress: &Arc<Progress>) -> Result<Total, Failure> {
    let options = CreateOptions { overwrite, parents: true, ..CreateOptions::default() };
    let target = to.store.create(&to.caller, &to.path, options).await?;
    let part = progress.find(None);
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
        part.expect(length);
        part.moved(length);
    }
    target.commit(Expectation { size: Some(offset), ..Expectation::default() }).await?;
    Ok(Total { files: 1, bytes: offset, ..Total::default() })
}

fn unreadable(error: &std::io::Error) -> Error {
    Error::new(Fault::Io, format!("the standard input cannot be read: {error}"))
}
