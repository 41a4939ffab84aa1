//! Follows responses over the network, with retries.
//!
//! Each means has its tasks, which send changes to one [`ChangeStream`]; a slow receiver makes them wait. After a lost
//! connection or an invalid response they restart with a backoff that grows with consecutive failures; at the beginning
//! only if something was received before. A refusal is permanent, except from a server that had the resource before: it
//! may have been restarted, and have it again in a few minutes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{ClientError, Document, EventReader, FollowEvent, FollowTarget, Request, StreamFollower, ViewFollower};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet, time::sleep};
use towpath_store::{
    Backoff, Error, Fault,
    sys::{
        clock::{self, Instant},
        random,
    },
};

use super::{AltoClient, AltoError, requester::PATIENCE};

/// Default polling interval for responses that cannot be followed otherwise, and minimum interval.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(60);
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);

/// First backoff after a failure; it doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Failures this far apart are not consecutive: longer than the maximum silence and backoff together.
const STEADY: Duration = Duration::from_secs(3 * 60);

/// Maximum time to wait for a change before the request is repeated: shorter than stall timeouts of clients and
/// proxies.
const WAIT: Duration = Duration::from_secs(25);

/// Maximum number of consecutive refusals of a view without any content: two views, each requested both ways.
const MAX_REFUSALS: u32 = 4;

/// Maximum number of consecutive absences of a resource that existed before: a few minutes.
const MAX_ABSENCES: u32 = 14;

/// Means of learning about changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FollowMethod {
    /// The first of the following means that the directory supports.
    Offered {
        /// Polling interval if it supports neither streams nor views.
        every: Duration,
    },
    /// One update stream (RFC 8895).
    Stream,
    /// A TIPS view per response (RFC 9569).
    Views,
    /// Polling each response.
    Polling {
        /// Polling interval; at least 100 ms.
        every: Duration,
    },
}

impl Default for FollowMethod {
    fn default() -> Self {
        Self::Offered { every: DEFAULT_POLL_INTERVAL }
    }
}

/// A change of a response. Costs and the map of their PIDs change one after the other: `dependent-vtags` in the `meta`
/// of the costs names the version of the map that they refer to (RFC 7285 §11.2.3.6).
#[derive(Debug, Clone)]
pub struct ResponseChange {
    /// Name given by the follower.
    pub name: String,
    /// The current document.
    pub document: Arc<Document>,
}

/// Followed responses. Dropping it ends the following.
///
/// Memory: the responses as JSON, at most 128 MiB for a stream and 32 MiB per view, and the next change.
#[derive(Debug)]
pub struct ChangeStream {
    changes: mpsc::Receiver<ChangeResult>,
    _tasks: JoinSet<()>,
}

type ChangeResult = Result<ResponseChange, AltoError>;

impl ChangeStream {
    /// Starts to follow by the given means.
    pub(super) fn begin(
        client: &AltoClient,
        targets: BTreeMap<String, FollowTarget>,
        means: FollowMethod,
    ) -> Result<Self, AltoError> {
        if targets.is_empty() {
            return Err(AltoError::Unusable("there are no resources to follow".into()));
        }
        let directory = client.directory();
        // A queue of one suffices: the server resends missed changes to a slow client.
        let (sender, changes) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        match means {
            FollowMethod::Offered { every } => {
                let means = match () {
                    () if directory.has_stream(&targets) => FollowMethod::Stream,
                    () if directory.has_views(&targets) => FollowMethod::Views,
                    () => FollowMethod::Polling { every },
                };
                return Self::begin(client, targets, means);
            }
            FollowMethod::Stream => {
                let following = directory.stream(targets)?;
                tasks.spawn(run_task(follow_by_stream(client.clone(), following, sender.clone()), sender));
            }
            FollowMethod::Views => {
                for (name, target) in targets {
                    let viewing = directory.view(&name, target)?;
                    let view = OpenView { client: client.clone(), viewing };
                    tasks.spawn(run_task(follow_by_view(view, sender.clone()), sender.clone()));
                }
            }
            FollowMethod::Polling { every } => {
                for (name, target) in targets {
                    directory.request(&target.resource, target.input.as_ref())?;
                    let polling =
                        follow_by_polling(client.clone(), name, target, every.max(MIN_POLL_INTERVAL), sender.clone());
                    tasks.spawn(run_task(polling, sender.clone()));
                }
            }
        }
        Ok(Self { changes, _tasks: tasks })
    }

    /// Waits for the next change. First returns the current state of each response, then its full content whenever it
    /// changes. Changes between two calls may be combined. Cancel-safe.
    ///
    /// # Errors
    /// Returns an error if the server refuses a response or stops sending it: that one is no longer followed, the
    /// others are. If the server does not respond from the beginning, or memory limits are exceeded, the error applies
    /// to all responses of a stream.
    pub async fn next(&mut self) -> Result<ResponseChange, AltoError> {
        let over = || Err(AltoError::Unusable("no resource is followed any more".into()));
        self.changes.recv().await.unwrap_or_else(over)
    }
}

/// Runs a task and sends its error, if any.
async fn run_task(following: impl Future<Output = Result<(), AltoError>>, sender: mpsc::Sender<ChangeResult>) {
    if let Err(trouble) = following.await {
        send(&sender, Err(trouble)).await;
    }
}

/// Waits until the message is received. Without a receiver, this task is about to end.
async fn send(sender: &mpsc::Sender<ChangeResult>, result: ChangeResult) {
    let _ = sender.send(result).await;
}

/// Follows by one stream until the server stops all of it. Responses that the server refuses individually get streams
/// of their own, so that the others do not wait.
async fn follow_by_stream(
    client: AltoClient,
    mut following: StreamFollower,
    sender: mpsc::Sender<ChangeResult>,
) -> Result<(), AltoError> {
    let (mut pauses, mut refused) = (RetryState::default(), JoinSet::new());
    while let Some(request) = following.next_request() {
        let Err(trouble) = read_stream(&client, &request, &mut following, &sender, &mut pauses).await else {
            continue;
        };
        let one = match &trouble {
            AltoError::Useless(ClientError::Refused { refusal, .. }) => following.without(refusal),
            _ => None,
        };
        match one {
            Some(one) => {
                let alone = follow_by_own_stream(client.clone(), one, sender.clone(), pauses.clone());
                refused.spawn(run_task(alone, sender.clone()));
            }
            None => pauses.back_off(trouble).await?,
        }
    }
    refused.join_all().await;
    Ok(())
}

/// Follows one response by a stream until the server stops it.
async fn follow_by_own_stream(
    client: AltoClient,
    mut following: StreamFollower,
    sender: mpsc::Sender<ChangeResult>,
    mut pauses: RetryState,
) -> Result<(), AltoError> {
    while let Some(request) = following.next_request() {
        if let Err(trouble) = read_stream(&client, &request, &mut following, &sender, &mut pauses).await {
            pauses.back_off(trouble).await?;
        }
    }
    Ok(())
}

/// Reads one stream until all its responses are stopped, or returns why it ended.
async fn read_stream(
    client: &AltoClient,
    request: &Request,
    following: &mut StreamFollower,
    sender: &mpsc::Sender<ChangeResult>,
    pauses: &mut RetryState,
) -> Result<(), AltoError> {
    let mut stream = client.0.requester.subscribe(request).await?;
    let mut reader = EventReader::default();
    while let Some(piece) = stream.next().await? {
        let events = reader.read(&piece).map_err(ClientError::from)?;
        for event in &events {
            for news in following.take(event)? {
                pauses.end();
                let result: ChangeResult = match news {
                    FollowEvent::Changed { name, document } => Ok(ResponseChange { name, document }),
                    FollowEvent::Stopped { name, reason } => Err(ClientError::Stopped { name, reason }.into()),
                };
                send(sender, result).await;
            }
        }
        if following.is_over() {
            return Ok(());
        }
    }
    Err(Error::new(Fault::Unavailable, "the server ended the update stream").into())
}

/// A view that is closed when no longer needed, because servers limit their number.
struct OpenView {
    client: AltoClient,
    viewing: ViewFollower,
}

impl Drop for OpenView {
    fn drop(&mut self) {
        if let Some(view) = self.viewing.view() {
            self.withdraw(view.to_owned());
        }
    }
}

impl OpenView {
    /// Closes a view.
    fn withdraw(&self, view: String) {
        // Without a runtime, the server drops the view after a timeout.
        if let Ok(runtime) = Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move { client.0.requester.withdraw(&view).await });
        }
    }
}

/// Follows by a view, indefinitely.
async fn follow_by_view(mut view: OpenView, sender: mpsc::Sender<ChangeResult>) -> Result<(), AltoError> {
    let mut pauses = RetryState::default();
    loop {
        let before = view.viewing.view().map(str::to_owned);
        let step = view.step().await;
        // An abandoned view would stay open.
        if let Some(left) = before.filter(|_| view.viewing.view().is_none()) {
            view.withdraw(left);
        }
        match step {
            Ok(ViewOutcome::Nothing) => {}
            Ok(ViewOutcome::Changed(document)) => {
                pauses.end();
                let name = view.viewing.name().to_owned();
                send(&sender, Ok(ResponseChange { name, document })).await;
            }
            Ok(ViewOutcome::Elsewhere(trouble)) if !pauses.has_worked && pauses.backoff.failures() >= MAX_REFUSALS => {
                return Err(trouble);
            }
            Ok(ViewOutcome::Elsewhere(trouble)) => pauses.wait(&trouble).await,
            Err(trouble) => pauses.back_off(trouble).await?,
        }
    }
}

/// Outcome of one request about a view.
enum ViewOutcome {
    /// The response changed.
    Changed(Arc<Document>),
    /// The response is unchanged.
    Nothing,
    /// The server refused the request; another one may succeed.
    Elsewhere(AltoError),
}

impl OpenView {
    async fn step(&mut self) -> Result<ViewOutcome, AltoError> {
        let request = self.viewing.next_request();
        let (waits, requester) = (self.viewing.waits(), &self.client.0.requester);
        let outcome = match waits {
            true => requester.await_answer(&request, WAIT).await,
            false => requester.send_request(&request, None, PATIENCE).await,
        };
        match outcome {
            Ok(reply) => {
                let changed = self.viewing.take(&reply.url, &reply.media_type, &reply.body)?;
                Ok(changed.map_or(ViewOutcome::Nothing, ViewOutcome::Changed))
            }
            // No change within the wait time.
            Err(trouble) if waits && trouble.is_late() => Ok(ViewOutcome::Nothing),
            // A network failure is not a refusal, and content that is too large remains so.
            Err(trouble) if !trouble.is_passing() && !trouble.is_too_much() && self.viewing.note_refusal() => {
                Ok(ViewOutcome::Elsewhere(trouble))
            }
            Err(trouble) => Err(trouble),
        }
    }
}

/// Follows by polling, indefinitely.
async fn follow_by_polling(
    client: AltoClient,
    name: String,
    target: FollowTarget,
    every: Duration,
    sender: mpsc::Sender<ChangeResult>,
) -> Result<(), AltoError> {
    let mut pauses = RetryState::default();
    let mut held: Option<Arc<Document>> = None;
    loop {
        match client.request(&target.resource, target.input.as_ref()).await {
            Ok(document) => {
                pauses.end();
                let is_same = |held: &Arc<Document>| Arc::ptr_eq(held, &document) || held.parts == document.parts;
                if !held.as_ref().is_some_and(is_same) {
                    let change = ResponseChange { name: name.clone(), document: Arc::clone(&document) };
                    send(&sender, Ok(change)).await;
                }
                held = Some(document);
                sleep(every).await;
            }
            Err(trouble) => pauses.back_off(trouble).await?,
        }
    }
}

/// Retry state after failures.
#[derive(Debug, Clone)]
struct RetryState {
    /// Counts failures since the last success.
    backoff: Backoff,
    /// Number of consecutive absences of a resource that existed before.
    absences: u32,
    has_worked: bool,
    /// Time of the last failure.
    failed: Option<Instant>,
}

impl Default for RetryState {
    fn default() -> Self {
        let backoff = Backoff::new(FIRST_PAUSE, MAX_PAUSE);
        Self { backoff, absences: 0, has_worked: false, failed: None }
    }
}

impl RetryState {
    /// Resets the state after success.
    fn end(&mut self) {
        *self = Self { has_worked: true, ..Self::default() };
    }

    /// Waits for the backoff before a retry.
    ///
    /// # Errors
    /// Returns the error if a retry is pointless.
    async fn back_off(&mut self, trouble: AltoError) -> Result<(), AltoError> {
        if !self.is_retryable(&trouble) {
            return Err(trouble);
        }
        self.wait(&trouble).await;
        Ok(())
    }

    /// Returns whether a retry is worthwhile.
    fn is_retryable(&self, trouble: &AltoError) -> bool {
        let is_absent = trouble.is_absence() && self.absences < MAX_ABSENCES;
        self.has_worked && (trouble.is_passing() || is_absent)
    }

    async fn wait(&mut self, trouble: &AltoError) {
        let now = clock::now();
        // Failures far apart are not consecutive.
        if self.failed.is_some_and(|before| now - before > STEADY) {
            self.backoff.reset();
        }
        self.failed = Some(now);
        self.absences = if trouble.is_absence() { self.absences + 1 } else { 0 };
        let pause = self.backoff.fail_jittered(random::number());
        tracing::warn!("{trouble}; retrying in {} ms", pause.as_millis());
        sleep(pause).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_and_again_comes_back_less_and_less_often() {
        let mut pauses = RetryState::default();
        let waited: Vec<_> = (0..20).map(|_| pauses.backoff.fail_jittered(0)).collect();
        assert!(waited.is_sorted() && waited[0] == FIRST_PAUSE / 2 && waited[19] == MAX_PAUSE / 2, "{waited:?}");
        assert!(pauses.backoff.fail_jittered(1023) < MAX_PAUSE);
        pauses.end();
        assert_eq!(pauses.backoff.fail_jittered(0), FIRST_PAUSE / 2);
    }

    #[test]
    fn what_never_worked_and_what_will_never_work_is_not_begun_anew() {
        let trouble = |fault| AltoError::from(Error::new(fault, "trouble"));
        let (gone, denied) = (trouble(Fault::Unavailable), trouble(Fault::PermissionDenied));
        let unfit = AltoError::from(ClientError::Unfit { name: "x".into(), problem: "y".into() });
        assert!(!RetryState::default().is_retryable(&gone));
        let mut pauses = RetryState::default();
        pauses.end();
        assert_eq!([&gone, &unfit, &denied].map(|trouble| pauses.is_retryable(trouble)), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_has_no_longer_is_waited_for_some_minutes() {
        let refused = |field: &str| {
            let body = format!(r#"{{"meta": {{"code": "E_INVALID_FIELD_VALUE", "field": "{field}"}}}}"#);
            AltoError::from(ClientError::refused("http://h/", body.as_bytes()))
        };
        let missing = AltoError::from(Error::new(Fault::NotFound, "it is not there"));
        let mut pauses = RetryState::default();
        let absent = [refused("add/1/resource-id"), refused("resource-id"), missing];
        assert!(absent.iter().all(|trouble| !pauses.is_retryable(trouble)), "it never was there");
        pauses.end();
        assert!(absent.iter().all(|trouble| pauses.is_retryable(trouble)));
        assert!(!pauses.is_retryable(&refused("add/1/input/pids")));
        // Regardless of how long it was unreachable before.
        for _ in 0..2 * MAX_ABSENCES {
            pauses.back_off(AltoError::from(Error::new(Fault::Unavailable, "it is down"))).await.unwrap();
        }
        let begun = clock::now();
        while pauses.back_off(absent[0].clone()).await.is_ok() {}
        let waited = clock::now() - begun;
        assert!(Duration::from_secs(5 * 60) < waited && waited < Duration::from_secs(15 * 60), "{waited:?}");
        assert!(absent.iter().all(|trouble| !pauses.is_retryable(trouble)));
    }
}
