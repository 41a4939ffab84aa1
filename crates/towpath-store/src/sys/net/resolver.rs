//! Resolution of host names on separate threads.
//!
//! The system's resolver blocks, possibly for the whole configured timeout if no name server answers. On the threads
//! of the disk pool, an unresponsive name server would stop reads. Each lookup therefore has a thread of its own;
//! their number is limited, and a caller waits for a bounded time for a thread and the result together. A thread whose
//! caller timed out counts until the system's resolver returns.

use std::{
    io,
    net::{IpAddr, SocketAddr, ToSocketAddrs as _},
    sync::{Arc, LazyLock},
    thread,
    time::Duration,
};

use tokio::{
    sync::{Semaphore, oneshot},
    time::timeout,
};

/// Maximum number of concurrent lookups by [`super::resolve`]: twice the default number of third-party copies, so that
/// their origins cannot occupy all threads.
const THREADS: usize = 64;

/// Timeout of a lookup. The system's resolver waits five seconds for each of its servers, twice.
const DEADLINE: Duration = Duration::from_secs(10);

/// The resolver for names that the user or operator of this program configured.
pub(super) static OWN: LazyLock<Resolver> = LazyLock::new(|| Resolver::new(THREADS));

/// Resolves names with a limited number of concurrent lookups.
#[derive(Debug)]
pub struct Resolver {
    threads: Arc<Semaphore>,
}

impl Resolver {
    /// Creates a resolver with at most `threads` concurrent lookups.
    #[must_use]
    pub fn new(threads: usize) -> Self {
        Self { threads: Arc::new(Semaphore::new(threads)) }
    }

    /// Returns the addresses of a host name. A literal address needs no lookup.
    ///
    /// # Errors
    /// Errors of the system's resolver; `TimedOut` if it does not respond within ten seconds, or no thread was free.
    pub async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        self.look_up(move || Ok((&*host, port).to_socket_addrs()?.collect())).await
    }

    /// Returns the name of an address.
    ///
    /// # Errors
    /// Like [`Self::resolve`].
    pub async fn name_of(&self, address: IpAddr) -> io::Result<String> {
        self.look_up(move || dns_lookup::lookup_addr(&address)).await
    }

    async fn look_up<T: Send + 'static>(
        &self,
        lookup: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> io::Result<T> {
        let answer = async {
            let thread = Arc::clone(&self.threads).acquire_owned().await.map_err(io::Error::other)?;
            let (sender, answer) = oneshot::channel();
            thread::Builder::new().name("resolver".into()).spawn(move || {
                let _ = sender.send(lookup());
                drop(thread);
            })?;
            answer.await.map_err(io::Error::other)?
        };
        let late = || io::Error::new(io::ErrorKind::TimedOut, "the name server did not respond in time");
        timeout(DEADLINE, answer).await.unwrap_or_else(|_| Err(late()))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[tokio::test]
    async fn a_silent_name_server_holds_up_lookups_only_and_for_a_bounded_time() {
        let resolver = Resolver::new(1);
        let (answer, silence) = mpsc::channel::<()>();
        tokio::time::pause();
        let silent = resolver.look_up(move || silence.recv().map_err(io::Error::other)).await;
        assert_eq!(silent.unwrap_err().kind(), io::ErrorKind::TimedOut);
        let queued = resolver.look_up(|| Ok(())).await;
        assert_eq!(queued.unwrap_err().kind(), io::ErrorKind::TimedOut, "its thread still waits");
        let literal = resolver.resolve("::1", 80).await.unwrap();
        assert_eq!(literal, ["[::1]:80".parse().unwrap()], "which needs no thread");
        tokio::time::resume();
        tokio::task::spawn_blocking(|| ()).await.expect("threads for disks are free");
        drop(answer);
        resolver.look_up(|| Ok(())).await.expect("the thread is free again");
    }
}
