use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use serde_json::Value;
use tokio::{sync::Semaphore, time::advance};
use towpath_testkit::issuer::{SigningKey, jwks, wlcg_claims};

use super::*;

const ISSUER: &str = "https://issuer.example";

/// A source that returns `keys`, or an error without them, once `open` has a permit.
#[derive(Debug)]
struct Script {
    keys: Mutex<Option<Value>>,
    loads: AtomicUsize,
    open: Semaphore,
}

#[async_trait]
impl KeySource for Arc<Script> {
    fn name(&self) -> String {
        ISSUER.into()
    }

    async fn load(&self) -> std::result::Result<KeySet, KeysError> {
        self.loads.fetch_add(1, Ordering::SeqCst);
        self.open.acquire().await.unwrap().forget();
        match &*self.keys.lock().unwrap() {
            Some(jwks) => KeySet::parse(jwks.to_string().as_bytes()),
            None => Err(KeysError::NoneUsable),
        }
    }
}

impl Script {
    fn new(keys: &[&SigningKey]) -> (Arc<Self>, Arc<KeyRing>) {
        let keys = Mutex::new(Some(jwks(keys.iter().copied())));
        let open = Semaphore::new(Semaphore::MAX_PERMITS);
        let script = Arc::new(Self { keys, loads: AtomicUsize::new(0), open });
        (Arc::clone(&script), Arc::new(KeyRing::new(Box::new(script))))
    }

    fn publish(&self, keys: &[&SigningKey]) {
        *self.keys.lock().unwrap() = Some(jwks(keys.iter().copied()));
    }

    fn break_down(&self) {
        *self.keys.lock().unwrap() = None;
    }

    fn loads(&self) -> usize {
        self.loads.load(Ordering::SeqCst)
    }
}

async fn verify(ring: &Arc<KeyRing>, key: &SigningKey) -> Result<()> {
    let token = key.token(&wlcg_claims(ISSUER, "storage.read:/"));
    ring.verify(&Jwt::parse(&token).unwrap(), ISSUER).await
}

async fn fault(ring: &Arc<KeyRing>, key: &SigningKey) -> Fault {
    verify(ring, key).await.unwrap_err().fault()
}

/// Waits for the fetch in flight.
async fn wait_for_fetch(ring: &KeyRing) {
    let fetch = ring.state().fetch.clone();
    if let Some(fetch) = fetch {
        fetch.await;
    }
}

#[tokio::test(start_paused = true)]
async fn many_tokens_cause_one_fetch() {
    let key = SigningKey::es256("a");
    let (script, ring) = Script::new(&[&key]);
    let verdicts = futures::future::join_all((0..100).map(|_| verify(&ring, &key))).await;
    assert!(verdicts.iter().all(|verdict| verdict.is_ok()));
    assert_eq!(script.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_is_dropped_does_not_stop_the_fetch() {
    let key = SigningKey::es256("a");
    let (script, ring) = Script::new(&[&key]);
    script.open.forget_permits(Semaphore::MAX_PERMITS);
    assert!(verify(&ring, &key).now_or_never().is_none(), "it waits");
    script.open.add_permits(1);
    verify(&ring, &key).await.unwrap();
    assert_eq!(script.loads(), 1);
}

#[tokio::test(start_paused = true)]
async fn ageing_keys_are_used_while_new_ones_are_fetched() {
    let (old, new) = (SigningKey::es256("old"), SigningKey::es256("new"));
    let (script, ring) = Script::new(&[&old]);
    verify(&ring, &old).await.unwrap();
    advance(REFRESH_AGE - Duration::from_secs(1)).await;
    verify(&ring, &old).await.unwrap();
    assert_eq!(script.loads(), 1, "they are young");
    script.publish(&[&new]);
    advance(Duration::from_secs(1)).await;
    assert!(verify(&ring, &old).now_or_never().unwrap().is_ok(), "it does not wait");
    wait_for_fetch(&ring).await;
    assert_eq!(script.loads(), 2);
    verify(&ring, &new).await.unwrap();
    assert_eq!(fault(&ring, &old).await, Fault::AuthenticationFailed, "it was withdrawn");
}

#[tokio::test(start_paused = true)]
async fn after_a_quiet_time_a_withdrawn_key_is_not_believed() {
    let (old, new) = (SigningKey::es256("old"), SigningKey::es256("new"));
    let (script, ring) = Script::new(&[&old]);
    verify(&ring, &old).await.unwrap();
    script.publish(&[&new]);
    advance(2 * REFRESH_AGE).await;
    assert_eq!(fault(&ring, &old).await, Fault::AuthenticationFailed);
    assert_eq!(script.loads(), 2);
}

#[tokio::test(start_paused = true)]
async fn stale_keys_serve_while_the_issuer_is_down_but_not_for_ever() {
    let key = SigningKey::es256("a");
    let (script, ring) = Script::new(&[&key]);
    verify(&ring, &key).await.unwrap();
    script.break_down();
    advance(EXPIRY_AGE - FETCH_INTERVAL - Duration::from_secs(1)).await;
    verify(&ring, &key).await.unwrap();
    assert_eq!(script.loads(), 2, "it waited for new ones");
    script.open.forget_permits(Semaphore::MAX_PERMITS);
    advance(FETCH_INTERVAL).await;
    assert!(verify(&ring, &key).now_or_never().unwrap().is_ok(), "it does not wait again");
    script.open.add_permits(Semaphore::MAX_PERMITS);
    wait_for_fetch(&ring).await;
    advance(Duration::from_secs(1)).await;
    assert_eq!(fault(&ring, &key).await, Fault::Unavailable);
    script.publish(&[&key]);
    advance(EMPTY_FETCH_INTERVAL).await;
    verify(&ring, &key).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_found_and_strangers_cannot_make_us_ask_often() {
    let (old, new, never) = (SigningKey::es256("old"), SigningKey::es256("new"), SigningKey::es256("never"));
    let (script, ring) = Script::new(&[&old]);
    verify(&ring, &old).await.unwrap();
    script.publish(&[&old, &new]);
    assert_eq!(fault(&ring, &new).await, Fault::AuthenticationFailed, "fetched less than a minute ago");
    advance(FETCH_INTERVAL).await;
    verify(&ring, &new).await.unwrap();
    assert_eq!(script.loads(), 2);
    for _ in 0..100 {
        assert_eq!(fault(&ring, &never).await, Fault::AuthenticationFailed);
    }
    assert_eq!(script.loads(), 2);
    advance(FETCH_INTERVAL).await;
    for _ in 0..100 {
        assert_eq!(fault(&ring, &never).await, Fault::AuthenticationFailed);
    }
    assert_eq!(script.loads(), 3);
}

#[tokio::test(start_paused = true)]
async fn whether_a_key_is_new_cannot_be_told_while_the_issuer_is_down() {
    let (old, new) = (SigningKey::es256("old"), SigningKey::es256("new"));
    let (script, ring) = Script::new(&[&old]);
    verify(&ring, &old).await.unwrap();
    script.break_down();
    advance(FETCH_INTERVAL).await;
    assert_eq!(fault(&ring, &new).await, Fault::Unavailable);
    verify(&ring, &old).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_any_keys_it_asks_again_after_a_pause() {
    let key = SigningKey::es256("a");
    let (script, ring) = Script::new(&[&key]);
    script.break_down();
    for _ in 0..10 {
        assert_eq!(fault(&ring, &key).await, Fault::Unavailable);
    }
    assert_eq!(script.loads(), 1);
    script.publish(&[&key]);
    assert_eq!(fault(&ring, &key).await, Fault::Unavailable, "the interval is not over");
    advance(EMPTY_FETCH_INTERVAL).await;
    verify(&ring, &key).await.unwrap();
    assert_eq!(script.loads(), 2);
}
