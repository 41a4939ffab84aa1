//! A store that fails on purpose: errors, short reads, delays, torn writes and crashes, all from one seed.
//!
//! [`FaultStore`] wraps any store. Before each call it draws a fault from its [`Faults`] and records it
//! ([`FaultStore::record`]), so that a failing seed becomes a named test. Without faults it changes nothing, and passes
//! the conformance suite. The numbers are drawn in the order of the calls: a test that makes them one after the other
//! gets the same faults for the same seed.
//!
//! A call can also be held until the test lets it go ([`FaultStore::hold`]): slowness without a clock.

mod gate;
mod handle;
mod open_files;
mod read_faults;

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use bytes::Bytes;
use futures::{StreamExt as _, stream};
use towpath_proto::checksum::{Algorithm, Digest};
use towpath_store::{
    Blame, Caller, Capabilities, Changes, CreateOptions, Error, Fault, ListOptions, Listing, Metadata, OpenOptions,
    Overwrite, ReadHandle, Result, Space, Store, StorePath, WriteHandle,
};

pub use self::{
    gate::GateGuard,
    read_faults::{DigestAvailability, ReadFaults},
};
use self::{
    gate::Gates,
    handle::{FaultFile, FaultWriter},
    open_files::OpenFiles,
};
use crate::random::Random;

/// Faults of injected errors; all of them are transient.
const ERRORS: [Fault; 4] = [Fault::Io, Fault::TimedOut, Fault::Overloaded, Fault::Unavailable];

/// Rates of the faults per thousand calls; zero by default.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    /// Seed of the random numbers.
    pub seed: u64,
    /// Calls that fail and do nothing.
    pub errors_per_mille: u32,
    /// Calls that take longer, on tokio's clock.
    pub delays_per_mille: u32,
    /// The longest delay.
    pub longest_delay: Duration,
    /// Reads that silently return less than requested.
    pub short_reads_per_mille: u32,
    /// Writes that write only a part, and fail.
    pub torn_writes_per_mille: u32,
    /// Number of calls after which every call fails, and open uploads are left behind as by a killed process.
    pub crash_after: Option<u64>,
}

/// One fault that was injected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectedFault {
    /// The number of the call, from 0.
    pub call: u64,
    /// Its name.
    pub name: &'static str,
    /// The injected fault.
    pub what: Injection,
}

/// A fault injected into a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Injection {
    /// It fails with this.
    Error(Fault),
    /// It takes longer.
    Delay(Duration),
    /// The call reads only this number of bytes.
    ShortRead(usize),
    /// The call writes only this number of bytes and fails.
    TornWrite(usize),
    /// Everything has ended.
    Crash,
}

/// A store that fails on purpose.
#[derive(Clone)]
pub struct FaultStore {
    inner: Arc<dyn Store>,
    injector: Arc<Injector>,
    read_faults: ReadFaults,
    open_files: Arc<OpenFiles>,
}

impl fmt::Debug for FaultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultStore").field("inner", &self.inner).field("faults", &self.injector.faults).finish()
    }
}

impl FaultStore {
    /// `inner`, with `faults`.
    pub fn new(inner: Arc<dyn Store>, faults: Faults) -> Self {
        let state = State { random: Random::new(faults.seed), calls: 0, record: Vec::new(), planned: Vec::new() };
        let injector = Arc::new(Injector { faults, state: Mutex::new(state), gates: Gates::default() });
        Self { inner, injector, read_faults: ReadFaults::default(), open_files: Arc::default() }
    }

    /// Adds `read_faults` about the files for readers.
    #[must_use]
    pub fn with_read_faults(self, read_faults: ReadFaults) -> Self {
        Self { read_faults, ..self }
    }

    /// From here on calls of this name wait until what this gives is dropped. Only calls that may wait can be held:
    /// `read_now` cannot be, and finds nothing while `read_into` is held.
    pub fn hold(&self, name: &'static str) -> GateGuard {
        self.injector.gates.close(name)
    }

    /// Makes one call of this name fail after the given number of further calls of that name.
    pub fn fail(&self, name: &'static str, after: u64, fault: Fault) {
        self.injector.lock().planned.push(PlannedFault { name, after, fault });
    }

    /// Returns the faults injected so far, in the order of the calls.
    pub fn record(&self) -> Vec<InjectedFault> {
        self.injector.lock().record.clone()
    }

    /// How many calls have been made so far.
    pub fn calls(&self) -> u64 {
        self.injector.lock().calls
    }
}

/// Decides which faults to inject.
#[derive(Debug)]
struct Injector {
    faults: Faults,
    state: Mutex<State>,
    gates: Gates,
}

#[derive(Debug)]
struct State {
    random: Random,
    calls: u64,
    record: Vec<InjectedFault>,
    planned: Vec<PlannedFault>,
}

/// A call that is to fail.
#[derive(Debug)]
struct PlannedFault {
    name: &'static str,
    /// Others of that name that come before it.
    after: u64,
    fault: Fault,
}

impl State {
    /// Takes the planned fault of the current call with this name.
    fn take_planned(&mut self, name: &str) -> Option<Injection> {
        let due = self.planned.iter().position(|planned| planned.name == name && planned.after == 0);
        self.planned.iter_mut().filter(|planned| planned.name == name).for_each(|planned| {
            planned.after = planned.after.saturating_sub(1);
        });
        due.map(|index| Injection::Error(self.planned.remove(index).fault))
    }
}

/// How many bytes a call reads or writes, if it does.
#[derive(Debug, Clone, Copy)]
enum Transfer {
    None,
    Read(usize),
    Write(usize),
}

impl Injector {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What shall happen to the next call.
    fn next(&self, name: &'static str, transfer: Transfer) -> Option<Injection> {
        let mut state = self.lock();
        let call = state.calls;
        state.calls += 1;
        let planned = state.take_planned(name);
        let what = planned.or_else(|| self.draw(call, &mut state.random, transfer))?;
        state.record.push(InjectedFault { call, name, what });
        Some(what)
    }

    fn draw(&self, call: u64, random: &mut Random, transfer: Transfer) -> Option<Injection> {
        let faults = &self.faults;
        if faults.crash_after.is_some_and(|limit| call >= limit) {
            return Some(Injection::Crash);
        }
        if random.chance(faults.errors_per_mille) {
            let index = random.below(ERRORS.len() as u64) as usize;
            return ERRORS.get(index).copied().map(Injection::Error);
        }
        match transfer {
            Transfer::Read(length) if random.chance(faults.short_reads_per_mille) => {
                return Some(Injection::ShortRead(random.below(length as u64) as usize));
            }
            Transfer::Write(length) if random.chance(faults.torn_writes_per_mille) => {
                return Some(Injection::TornWrite(random.below(length as u64) as usize));
            }
            _ => {}
        }
        let longest_us = u64::try_from(faults.longest_delay.as_micros()).unwrap_or(u64::MAX);
        let delays = random.chance(faults.delays_per_mille);
        delays.then(|| Injection::Delay(Duration::from_micros(random.below(longest_us.saturating_add(1)))))
    }

    fn has_crashed(&self) -> bool {
        self.faults.crash_after.is_some_and(|limit| self.lock().calls > limit)
    }

    /// Fails or waits as the plan says, before a call that transfers nothing.
    async fn before(&self, name: &'static str) -> Result<()> {
        self.gates.pass(name).await;
        match self.next(name, Transfer::None) {
            Some(Injection::Delay(delay)) => {
                tokio::time::sleep(delay).await;
                Ok(())
            }
            injection => self.refuse(injection),
        }
    }

    /// The error of a call that fails without having done anything.
    fn refuse(&self, injection: Option<Injection>) -> Result<()> {
        match injection {
            Some(Injection::Error(fault)) => Err(Error::new(fault, "injected").blamed_on(Blame::Storage)),
            Some(Injection::Crash) => Err(Error::new(Fault::Unavailable, "crashed").blamed_on(Blame::Storage)),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Store for FaultStore {
    fn capabilities(&self) -> Capabilities {
        self.read_faults.capabilities(self.inner.capabilities())
    }

    async fn stat(&self, caller: &Caller, path: &StorePath) -> Result<Metadata> {
        self.injector.before("stat").await?;
        self.inner.stat(caller, path).await.map(|metadata| self.read_faults.metadata(metadata))
    }

    fn list(&self, caller: &Caller, path: &StorePath, options: ListOptions) -> Listing {
        let (batches, injector) = (self.inner.list(caller, path, options), Arc::clone(&self.injector));
        let batches = (batches, injector, self.read_faults.clone());
        stream::unfold(batches, |(mut batches, injector, read_faults)| async {
            let batch = match injector.before("list").await {
                Ok(()) => batches.next().await?,
                Err(error) => Err(error),
            };
            let batch = batch.map(|mut entries| {
                for entry in &mut entries {
                    entry.metadata = read_faults.with_residency(entry.metadata.clone());
                }
                entries
            });
            Some((batch, (batches, injector, read_faults)))
        })
        .boxed()
    }

    async fn open(&self, caller: &Caller, path: &StorePath, options: OpenOptions) -> Result<Arc<dyn ReadHandle>> {
        self.injector.before("open").await?;
        let open = async || self.inner.open(caller, path, options).await;
        let inner = match self.read_faults.shares_open_files {
            true => self.open_files.open(path, open).await?,
            false => open().await?,
        };
        Ok(Arc::new(FaultFile { inner, injector: Arc::clone(&self.injector), read_faults: self.read_faults.clone() }))
    }

    async fn create(&self, caller: &Caller, path: &StorePath, options: CreateOptions) -> Result<Arc<dyn WriteHandle>> {
        self.injector.before("create").await?;
        let inner = self.inner.create(caller, path, options).await?;
        Ok(Arc::new(FaultWriter::new(inner, Arc::clone(&self.injector))))
    }

    async fn update(&self, caller: &Caller, path: &StorePath) -> Result<Arc<dyn WriteHandle>> {
        self.injector.before("update").await?;
        let inner = self.inner.update(caller, path).await?;
        Ok(Arc::new(FaultWriter::new(inner, Arc::clone(&self.injector))))
    }

    async fn make_directory(&self, caller: &Caller, path: &StorePath, parents: bool, mode: Option<u32>) -> Result<()> {
        self.injector.before("make_directory").await?;
        self.inner.make_directory(caller, path, parents, mode).await
    }

    async fn remove_file(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.injector.before("remove_file").await?;
        self.inner.remove_file(caller, path).await
    }

    async fn remove_directory(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.injector.before("remove_directory").await?;
        self.inner.remove_directory(caller, path).await
    }

    async fn remove_tree(&self, caller: &Caller, path: &StorePath) -> Result<()> {
        self.injector.before("remove_tree").await?;
        self.inner.remove_tree(caller, path).await
    }

    async fn rename(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.injector.before("rename").await?;
        self.inner.rename(caller, from, to, overwrite).await
    }

    async fn copy(&self, caller: &Caller, from: &StorePath, to: &StorePath, overwrite: Overwrite) -> Result<()> {
        self.injector.before("copy").await?;
        self.inner.copy(caller, from, to, overwrite).await
    }

    async fn change(&self, caller: &Caller, path: &StorePath, changes: Changes) -> Result<()> {
        self.injector.before("change").await?;
        self.inner.change(caller, path, changes).await
    }

    async fn digest(
        &self,
        caller: &Caller,
        path: &StorePath,
        algorithm: Algorithm,
        progress: &(dyn Fn(u64) + Send + Sync),
    ) -> Result<Digest> {
        self.injector.before("digest").await?;
        if self.read_faults.digests == DigestAvailability::Nothing {
            return Err(Error::new(Fault::Unsupported, "it computes no digests").at(path));
        }
        self.inner.digest(caller, path, algorithm, progress).await
    }

    async fn attributes(&self, caller: &Caller, path: &StorePath) -> Result<Vec<(Bytes, Bytes)>> {
        self.injector.before("attributes").await?;
        self.inner.attributes(caller, path).await
    }

    async fn set_attribute(
        &self,
        caller: &Caller,
        path: &StorePath,
        name: &[u8],
        value: Option<&[u8]>,
        create: bool,
    ) -> Result<()> {
        self.injector.before("set_attribute").await?;
        self.inner.set_attribute(caller, path, name, value, create).await
    }

    async fn space(&self, caller: &Caller, path: &StorePath) -> Result<Space> {
        self.injector.before("space").await?;
        self.inner.space(caller, path).await
    }
}

#[cfg(test)]
mod tests;
