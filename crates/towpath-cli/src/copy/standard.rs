//! Copies from the standard input and to the standard output.

use tokio::io::AsyncWriteExt as _;
use towpath_mover::{Copied, Mover, Place};

use crate::failure::Failure;

/// Writes a file to the standard output.
pub(super) async fn to_output(mover: &Mover, from: &Place) -> Result<Copied, Failure> {
    // Not the blocking one: while nobody reads the pipe, a signal must still be heard.
    let mut out = tokio::io::stdout();
    let copied = mover.drain(from, async |piece| Ok::<_, Failure>(out.write_all(&piece).await?)).await?;
    out.flush().await?;
    Ok(copied)
}

/// Makes a file of the standard input.
pub(super) async fn from_input(mover: &Mover, to: &Place) -> Result<Copied, Failure> {
    Ok(mover.fill(tokio::io::stdin(), to).await?)
}
