//! Third-party copies as a simple loop over towpath's client, in place of the command line's mover.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use towpath_client::{Client, ClientOptions, TokenSource};
use towpath_proto::destination_policy::DestinationPolicy;
use towpath_server::third_party::{Direction, Progress, ThirdPartyCopy, Transfers};
use towpath_store::{Caller, CreateOptions, Expectation, OpenOptions, Result, Store};

/// Size of one piece, in bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// Copies piece by piece.
#[derive(Debug)]
pub(crate) struct Copier;

#[async_trait]
impl Transfers for Copier {
    async fn copy(
        &self,
        store: &Arc<dyn Store>,
        copy: &ThirdPartyCopy,
        destinations: &Arc<DestinationPolicy>,
        progress: &Arc<Progress>,
    ) -> Result<()> {
        let options = ClientOptions {
            token: TokenSource::Nothing,
            destinations: Arc::clone(destinations),
            headers: copy.headers.clone(),
            connections: 1,
            retries: 0,
            ..ClientOptions::default()
        };
        let client = Client::new(Arc::new(options));
        let (remote, remote_path) = client.connect(&copy.remote)?;
        let there = (remote, Caller { token: copy.token.clone(), ..Caller::local() }, remote_path);
        let here = (Arc::clone(store), copy.caller.clone(), copy.local.clone());
        let (from, to) = match copy.direction {
            Direction::Pull => (there, here),
            Direction::Push => (here, there),
        };
        let source = from.0.open(&from.1, &from.2, OpenOptions::default()).await?;
        let first = source.read(0, PIECE_BYTES as usize).await?;
        let metadata = source.metadata().await?;
        progress.expect(metadata.size);
        let options = CreateOptions { overwrite: copy.overwrite, size_hint: Some(metadata.size), ..Default::default() };
        let target = to.0.create(&to.1, &to.2, options).await?;
        let mut piece = first;
        let mut offset = 0;
        while !piece.is_empty() {
            let length = piece.len() as u64;
            target.write(offset, piece).await?;
            progress.wrote(length);
            offset += length;
            piece = source.read(offset, PIECE_BYTES as usize).await?;
        }
        let mut digests = metadata.digests.clone();
        if let Some(algorithm) = copy.checksum {
            digests.insert(from.0.digest(&from.1, &from.2, algorithm, &|_| {}).await?);
        }
        target.commit(Expectation { size: Some(metadata.size), digests, mtime_ns: None }).await?;
        client.cleaned_up().await;
        Ok(())
    }
}

/// Records the requested copies without moving data.
#[derive(Debug, Default)]
pub(crate) struct Recorder(pub(crate) Mutex<Vec<ThirdPartyCopy>>);

#[async_trait]
impl Transfers for Recorder {
    async fn copy(
        &self,
        _: &Arc<dyn Store>,
        copy: &ThirdPartyCopy,
        _: &Arc<DestinationPolicy>,
        _: &Arc<Progress>,
    ) -> Result<()> {
        self.0.lock().unwrap().push(copy.clone());
        Ok(())
    }
}
