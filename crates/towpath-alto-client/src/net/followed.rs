//! Answers that are followed over the network, and what is done when that fails.
//!
//! Each means has its tasks, which tell what changes to the one [`Followed`]; who is slow to take it makes them wait. When a connection is lost, or what came cannot be
//! used, they begin anew after a pause, the longer the more often that happens in a row: the first time only if something came before. What a server
//! refuses it refuses again, so that ends it; but one that had something may have been started again, and have it again in some minutes.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use crate::{ClientError, Document, EventReader, Following, News, Question, Viewing, Wanted};
use tokio::{runtime::Handle, sync::mpsc, task::JoinSet, time::sleep};
use towpath_store::{
    Error, Fault,
    sys::{
        clock::{self, Instant},
        random,
    },
};

use super::{AltoClient, AltoTrouble, asker::PATIENCE};

/// How often answers are asked for that cannot be followed otherwise, unless it is said; nothing is asked more often than the latter.
const EVERY: Duration = Duration::from_secs(60);
const OFTEN: Duration = Duration::from_millis(100);

/// The pause before what failed begins anew; it doubles each time, up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// What failed so long after it failed before held in between: longer than the longest silence and pause together.
const STEADY: Duration = Duration::from_secs(3 * 60);

/// How long a change is waited for before it is asked for again: less than what a client takes for a stall, or a proxy for a dead connection.
const WAIT: Duration = Duration::from_secs(25);

/// How many refusals in a row of a view that never told anything are borne: two views, each asked both ways.
const MOST_REFUSALS: u32 = 4;

/// How often in a row a server may have no longer what it had: for some minutes.
const MOST_ABSENCES: u32 = 14;

/// By what means changes are learnt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// The first of the others that the directory has.
    Offered {
        /// How often to ask if it has neither streams nor views.
        every: Duration,
    },
    /// One update stream (RFC 8895).
    Stream,
    /// A TIPS view of each answer (RFC 9569).
    Views,
    /// Asking for each again and again.
    Asking {
        /// How often; at least 100 ms apart.
        every: Duration,
    },
}

impl Default for Means {
    fn default() -> Self {
        Self::Offered { every: EVERY }
    }
}

/// A change of an answer. Costs, and the map whose PIDs they are between, change one after the other: `dependent-vtags` in the meta of the costs tells of which
/// version of the map they are (RFC 7285 §11.2.3.6).
#[derive(Debug, Clone)]
pub struct Change {
    /// What its follower calls it.
    pub name: String,
    /// All of it, as it is now.
    pub document: Arc<Document>,
}

/// Answers that are followed. Dropped, they no longer are.
///
/// Memory: what is followed, at most 128 MiB of one stream and 32 MiB of one view as JSON, and the change that is told next.
#[derive(Debug)]
pub struct Followed {
    changes: mpsc::Receiver<Told>,
    _tasks: JoinSet<()>,
}

type Told = Result<Change, AltoTrouble>;

impl Followed {
    /// Begins to follow, by these means.
    pub(super) fn begin(
        client: &AltoClient,
        wanted: BTreeMap<String, Wanted>,
        means: Means,
    ) -> Result<Self, AltoTrouble> {
        if wanted.is_empty() {
            return Err(AltoTrouble::Unusable("nothing is to be followed".into()));
        }
        let directory = client.directory();
        // One that waits to be taken is enough: who reads slowly is told by the server what it missed.
        let (teller, changes) = mpsc::channel(1);
        let mut tasks = JoinSet::new();
        match means {
            Means::Offered { every } => {
                let means = match () {
                    () if directory.has_stream(&wanted) => Means::Stream,
                    () if directory.has_views(&wanted) => Means::Views,
                    () => Means::Asking { every },
                };
                return Self::begin(client, wanted, means);
            }
            Means::Stream => {
                let following = directory.stream(wanted)?;
                tasks.spawn(watch(by_stream(client.clone(), following, teller.clone()), teller));
            }
            Means::Views => {
                for (name, wanted) in wanted {
                    let viewing = directory.view(&name, wanted)?;
                    let view = Watched { client: client.clone(), viewing };
                    tasks.spawn(watch(by_view(view, teller.clone()), teller.clone()));
                }
            }
            Means::Asking { every } => {
                for (name, wanted) in wanted {
                    directory.question(&wanted.resource, wanted.input.as_ref())?;
                    let asking = by_asking(client.clone(), name, wanted, every.max(OFTEN), teller.clone());
                    tasks.spawn(watch(asking, teller.clone()));
                }
            }
        }
        Ok(Self { changes, _tasks: tasks })
    }

    /// The next change; first each answer as it is, then all of an answer that is something else now. Several changes that came while nobody asked may be one. Nothing is lost
    /// if this is dropped before it is ready.
    ///
    /// # Errors
    /// If the server refuses an answer, or tells no more of it: that one is followed no longer; the others are. If the server does not answer from the beginning, or more is
    /// followed than there is memory for: then that is true of all that one stream was to tell.
    pub async fn next(&mut self) -> Result<Change, AltoTrouble> {
        let over = || Err(AltoTrouble::Unusable("nothing is followed any more".into()));
        self.changes.recv().await.unwrap_or_else(over)
    }
}

/// Tells also how the following of something ended.
async fn watch(following: impl Future<Output = Result<(), AltoTrouble>>, teller: mpsc::Sender<Told>) {
    if let Err(trouble) = following.await {
        tell(&teller, Err(trouble)).await;
    }
}

/// Waits until it is taken. Where nobody is left to take it, this task is about to end.
async fn tell(teller: &mpsc::Sender<Told>, told: Told) {
    let _ = teller.send(told).await;
}

/// Follows by one stream, until the server stops all of it. What the server refuses by itself gets a stream of its own, so that the others do not wait for it.
async fn by_stream(
    client: AltoClient,
    mut following: Following,
    teller: mpsc::Sender<Told>,
) -> Result<(), AltoTrouble> {
    let (mut pauses, mut refused) = (Pauses::default(), JoinSet::new());
    while let Some(question) = following.question() {
        let Err(trouble) = read_stream(&client, &question, &mut following, &teller, &mut pauses).await else {
            continue;
        };
        let one = match &trouble {
            AltoTrouble::Useless(ClientError::Refused { refusal, .. }) => following.without(refusal),
            _ => None,
        };
        match one {
            Some(one) => {
                let alone = by_own_stream(client.clone(), one, teller.clone(), pauses.clone());
                refused.spawn(watch(alone, teller.clone()));
            }
            None => pauses.bear(trouble).await?,
        }
    }
    refused.join_all().await;
    Ok(())
}

/// Follows one answer by a stream, until the server stops it.
async fn by_own_stream(
    client: AltoClient,
    mut following: Following,
    teller: mpsc::Sender<Told>,
    mut pauses: Pauses,
) -> Result<(), AltoTrouble> {
    while let Some(question) = following.question() {
        if let Err(trouble) = read_stream(&client, &question, &mut following, &teller, &mut pauses).await {
            pauses.bear(trouble).await?;
        }
    }
    Ok(())
}

/// Reads one stream to its end: all of it is stopped, or why there is no more.
async fn read_stream(
    client: &AltoClient,
    question: &Question,
    following: &mut Following,
    teller: &mpsc::Sender<Told>,
    pauses: &mut Pauses,
) -> Result<(), AltoTrouble> {
    let mut stream = client.0.asker.subscribe(question).await?;
    let mut reader = EventReader::default();
    while let Some(piece) = stream.next().await? {
        let events = reader.read(&piece).map_err(ClientError::from)?;
        for event in &events {
            for news in following.take(event)? {
                pauses.end();
                let told: Told = match news {
                    News::Changed { name, document } => Ok(Change { name, document }),
                    News::Stopped { name, reason } => Err(ClientError::Stopped { name, reason }.into()),
                };
                tell(teller, told).await;
            }
        }
        if following.is_over() {
            return Ok(());
        }
    }
    Err(Error::new(Fault::Unavailable, "the server ended the update stream").into())
}

/// A view, which is closed when nobody needs it any more: a server has room for so many.
struct Watched {
    client: AltoClient,
    viewing: Viewing,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if let Some(view) = self.viewing.view() {
            self.withdraw(view.to_owned());
        }
    }
}

impl Watched {
    /// Closes a view.
    fn withdraw(&self, view: String) {
        // Where the runtime is gone, the server will see for itself that nobody asks for it.
        if let Ok(runtime) = Handle::try_current() {
            let client = self.client.clone();
            runtime.spawn(async move { client.0.asker.withdraw(&view).await });
        }
    }
}

/// Follows by a view, for ever.
async fn by_view(mut view: Watched, teller: mpsc::Sender<Told>) -> Result<(), AltoTrouble> {
    let mut pauses = Pauses::default();
    loop {
        let before = view.viewing.view().map(str::to_owned);
        let step = view.step().await;
        // One that is left for another would stay open.
        if let Some(left) = before.filter(|_| view.viewing.view().is_none()) {
            view.withdraw(left);
        }
        match step {
            Ok(Step::Nothing) => {}
            Ok(Step::Changed(document)) => {
                pauses.end();
                let name = view.viewing.name().to_owned();
                tell(&teller, Ok(Change { name, document })).await;
            }
            Ok(Step::Elsewhere(trouble)) if !pauses.has_worked && pauses.failures >= MOST_REFUSALS => {
                return Err(trouble);
            }
            Ok(Step::Elsewhere(trouble)) => pauses.wait(&trouble).await,
            Err(trouble) => pauses.bear(trouble).await?,
        }
    }
}

/// What became of one question about a view.
enum Step {
    /// The answer is something else now.
    Changed(Arc<Document>),
    /// It is as it was.
    Nothing,
    /// The server refused the question; another one may lead on.
    Elsewhere(AltoTrouble),
}

impl Watched {
    async fn step(&mut self) -> Result<Step, AltoTrouble> {
        let question = self.viewing.question();
        let (waits, asker) = (self.viewing.waits(), &self.client.0.asker);
        let asked = match waits {
            true => asker.await_answer(&question, WAIT).await,
            false => asker.ask(&question, None, PATIENCE).await,
        };
        match asked {
            Ok(reply) => {
                let changed = self.viewing.take(&reply.url, &reply.media_type, &reply.body)?;
                Ok(changed.map_or(Step::Nothing, Step::Changed))
            }
            // There was no change, as far as is known.
            Err(trouble) if waits && trouble.is_late() => Ok(Step::Nothing),
            // What is out of reach has refused nothing, and what is too long is so everywhere.
            Err(trouble) if !trouble.is_passing() && !trouble.is_too_much() && self.viewing.refused() => {
                Ok(Step::Elsewhere(trouble))
            }
            Err(trouble) => Err(trouble),
        }
    }
}

/// Follows by asking, for ever.
async fn by_asking(
    client: AltoClient,
    name: String,
    wanted: Wanted,
    every: Duration,
    teller: mpsc::Sender<Told>,
) -> Result<(), AltoTrouble> {
    let mut pauses = Pauses::default();
    let mut held: Option<Arc<Document>> = None;
    loop {
        match client.ask(&wanted.resource, wanted.input.as_ref()).await {
            Ok(document) => {
                pauses.end();
                let is_same = |held: &Arc<Document>| Arc::ptr_eq(held, &document) || held.parts == document.parts;
                if !held.as_ref().is_some_and(is_same) {
                    let change = Change { name: name.clone(), document: Arc::clone(&document) };
                    tell(&teller, Ok(change)).await;
                }
                held = Some(document);
                sleep(every).await;
            }
            Err(trouble) => pauses.bear(trouble).await?,
        }
    }
}

/// The pauses of what fails now and then.
#[derive(Debug, Clone, Default)]
struct Pauses {
    /// How often it failed since it worked last.
    failures: u32,
    /// How often in a row it had no longer what it had.
    absences: u32,
    has_worked: bool,
    /// When it failed last.
    failed: Option<Instant>,
}

impl Pauses {
    /// It works.
    fn end(&mut self) {
        *self = Self { has_worked: true, ..Self::default() };
    }

    /// Waits until it is time to begin anew.
    ///
    /// # Errors
    /// The trouble, if that is of no use.
    async fn bear(&mut self, trouble: AltoTrouble) -> Result<(), AltoTrouble> {
        if !self.bears(&trouble) {
            return Err(trouble);
        }
        self.wait(&trouble).await;
        Ok(())
    }

    /// Whether it is of use to begin anew.
    fn bears(&self, trouble: &AltoTrouble) -> bool {
        let is_absent = trouble.is_absence() && self.absences < MOST_ABSENCES;
        self.has_worked && (trouble.is_passing() || is_absent)
    }

    async fn wait(&mut self, trouble: &AltoTrouble) {
        let now = clock::now();
        // What held for so long does not fail in a row.
        if self.failed.is_some_and(|before| now - before > STEADY) {
            self.failures = 0;
        }
        self.failed = Some(now);
        self.absences = if trouble.is_absence() { self.absences + 1 } else { 0 };
        let pause = self.next(random::number());
        tracing::warn!("{trouble}; what is followed begins anew in {} ms", pause.as_millis());
        sleep(pause).await;
    }

    /// The next pause: between one half and the whole of one that doubles, by `chance`, so that many clients do not come back in step.
    fn next(&mut self, chance: u64) -> Duration {
        let longest = FIRST_PAUSE.saturating_mul(1 << self.failures.min(16)).min(LONGEST_PAUSE);
        self.failures = self.failures.saturating_add(1);
        longest / 2 + longest.mul_f64((chance % 1024) as f64 / 2048.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_again_and_again_comes_back_less_and_less_often() {
        let mut pauses = Pauses::default();
        let waited: Vec<_> = (0..20).map(|_| pauses.next(0)).collect();
        assert!(waited.is_sorted() && waited[0] == FIRST_PAUSE / 2 && waited[19] == LONGEST_PAUSE / 2, "{waited:?}");
        assert!(pauses.next(1023) < LONGEST_PAUSE);
        pauses.end();
        assert_eq!(pauses.next(0), FIRST_PAUSE / 2);
    }

    #[test]
    fn what_never_worked_and_what_will_never_work_is_not_begun_anew() {
        let trouble = |fault| AltoTrouble::from(Error::new(fault, "trouble"));
        let (gone, denied) = (trouble(Fault::Unavailable), trouble(Fault::PermissionDenied));
        let unfit = AltoTrouble::from(ClientError::Unfit { name: "x".into(), problem: "y".into() });
        assert!(!Pauses::default().bears(&gone));
        let mut pauses = Pauses::default();
        pauses.end();
        assert_eq!([&gone, &unfit, &denied].map(|trouble| pauses.bears(trouble)), [true, true, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_a_server_has_no_longer_is_waited_for_some_minutes() {
        let refused = |field: &str| {
            let body = format!(r#"{{"meta": {{"code": "E_INVALID_FIELD_VALUE", "field": "{field}"}}}}"#);
            AltoTrouble::from(ClientError::refused("http://h/", body.as_bytes()))
        };
        let missing = AltoTrouble::from(Error::new(Fault::NotFound, "it is not there"));
        let mut pauses = Pauses::default();
        let absent = [refused("add/1/resource-id"), refused("resource-id"), missing];
        assert!(absent.iter().all(|trouble| !pauses.bears(trouble)), "it never was there");
        pauses.end();
        assert!(absent.iter().all(|trouble| pauses.bears(trouble)));
        assert!(!pauses.bears(&refused("add/1/input/pids")));
        // However long it was out of reach before.
        for _ in 0..2 * MOST_ABSENCES {
            pauses.bear(AltoTrouble::from(Error::new(Fault::Unavailable, "it is down"))).await.unwrap();
        }
        let begun = clock::now();
        while pauses.bear(absent[0].clone()).await.is_ok() {}
        let waited = clock::now() - begun;
        assert!(Duration::from_secs(5 * 60) < waited && waited < Duration::from_secs(15 * 60), "{waited:?}");
        assert!(absent.iter().all(|trouble| !pauses.bears(trouble)));
    }
}
