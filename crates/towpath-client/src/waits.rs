//! Reports what a client waits for: after two seconds, once for each server, and again with growing pauses.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use towpath_store::sys::clock::{self, Instant};

/// Minimum duration of a wait before it is reported.
pub(crate) const FIRST_NOTICE: Duration = Duration::from_secs(2);

/// Pause after the first report about a server. Each further pause is twice as long, up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const MAX_PAUSE: Duration = Duration::from_secs(120);

/// Time without a report about a server after which the next wait counts as a new one.
const FORGOTTEN: Duration = Duration::from_secs(300);

/// Maximum number of remembered servers; the oldest are dropped beyond that.
const MAX_SERVERS: usize = 256;

/// Receives messages about waits.
type Listener = Arc<dyn Fn(&str) + Send + Sync>;

/// Reports the waits of a client. Clones share the state.
#[derive(Clone, Default)]
pub struct WaitReporter(Option<Arc<Inner>>);

struct Inner {
    listener: Listener,
    servers: Mutex<HashMap<String, (Instant, Duration)>>,
}

impl WaitReporter {
    /// Creates a reporter that calls `listener` with a sentence for each report. The listener must not block.
    pub fn new(listener: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(Inner { listener: Arc::new(listener), servers: Mutex::default() })))
    }

    /// Reports `what` about `server`, unless a report about it was made a short time ago.
    pub(crate) fn say(&self, server: &str, what: impl FnOnce() -> String) {
        if let Some(inner) = &self.0
            && inner.is_due(server, clock::now())
        {
            (inner.listener)(&what());
        }
    }

    /// Reports a `pause` before a retry or a response, and its reason `why`, if the pause ends two seconds or more
    /// after the request began; `elapsed` is the time since then.
    pub(crate) fn pause(&self, server: &str, elapsed: Duration, pause: Duration, why: impl fmt::Display) {
        if elapsed + pause >= FIRST_NOTICE {
            self.say(server, || format!("retrying in {} s: {why}", pause.as_secs_f64().ceil()));
        }
    }

    /// Waits for `work` and returns its output; reports `what` about `server` while it takes long.
    pub(crate) async fn during<T>(
        &self,
        server: &str,
        what: impl Fn(Duration) -> String,
        work: impl Future<Output = T>,
    ) -> T {
        if self.0.is_none() {
            return work.await;
        }
        let mut work = std::pin::pin!(work);
        let since = clock::now();
        loop {
            match tokio::time::timeout(FIRST_NOTICE, &mut work).await {
                Ok(outcome) => return outcome,
                Err(_) => self.say(server, || what(since.elapsed())),
            }
        }
    }
}

impl Inner {
    fn is_due(&self, server: &str, now: Instant) -> bool {
        let mut servers = self.servers.lock().unwrap_or_else(PoisonError::into_inner);
        servers.retain(|_, (last, _)| now - *last < FORGOTTEN);
        match servers.get_mut(server) {
            Some((last, pause)) if now - *last >= *pause => {
                (*last, *pause) = (now, (*pause * 2).min(MAX_PAUSE));
                true
            }
            Some(_) => false,
            None => {
                if servers.len() >= MAX_SERVERS {
                    let oldest = servers.iter().min_by_key(|(_, (last, _))| *last).map(|(server, _)| server.clone());
                    oldest.and_then(|oldest| servers.remove(&oldest));
                }
                servers.insert(server.to_owned(), (now, FIRST_PAUSE));
                true
            }
        }
    }
}

impl fmt::Debug for WaitReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Waits({})", if self.0.is_some() { "on" } else { "off" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening() -> (WaitReporter, Arc<Mutex<Vec<String>>>) {
        let said = Arc::new(Mutex::new(Vec::new()));
        let listener = Arc::clone(&said);
        (WaitReporter::new(move |text| listener.lock().unwrap().push(text.to_owned())), said)
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_wait_is_said_once_and_then_sparsely() {
        let (waits, said) = listening();
        let seconds = |waited: Duration| waited.as_secs().to_string();
        waits.during("a", seconds, tokio::time::sleep(Duration::from_millis(1900))).await;
        assert!(said.lock().unwrap().is_empty());
        waits.during("a", seconds, tokio::time::sleep(Duration::from_secs(200))).await;
        assert_eq!(*said.lock().unwrap(), ["2", "12", "32", "72", "152"]);
        waits.pause("b", Duration::ZERO, Duration::from_secs(1), "busy");
        waits.pause("b", Duration::from_secs(1), Duration::from_secs(30), "busy");
        assert_eq!(said.lock().unwrap().last().unwrap(), "retrying in 30 s: busy");
        waits.pause("c", Duration::from_millis(900), Duration::from_millis(1200), "busy");
        assert_eq!(said.lock().unwrap().last().unwrap(), "retrying in 2 s: busy");
    }
}
