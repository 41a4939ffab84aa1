//! Written facts are restored for the matching agents, and an arbitrary file does no harm.

use std::sync::mpsc;

use futures::FutureExt as _;
use tempfile::TempDir;

use super::*;

const FACTS: &str = r#"{"routers": {"r": {"routes": [{"prefix": "10.0.0.0/8", "as-path": "7 8"}]}}}"#;

fn agents() -> BTreeMap<String, AgentConfig> {
    let agents = "
        one = { kind = 'program', command = ['one'] }
        two = { kind = 'static', url = 'http://two.example/facts?token=a' }
        here = { kind = 'static', file = 'facts.toml' }
    ";
    toml::from_str(agents).unwrap()
}

/// `FACTS` for each agent whose facts are kept.
fn records() -> Vec<AgentRecord> {
    let facts = AgentState::parse(FACTS).unwrap();
    let record = |(name, config): (String, AgentConfig)| {
        let stale_since_s = (name == "two").then_some(1_000_000);
        Some(AgentRecord { agent: name.into(), settings: settings(&config)?, stale_since_s, facts: facts.clone() })
    };
    agents().into_iter().filter_map(record).collect()
}

/// Writes a file with these facts.
async fn written(directory: &TempDir) -> PathBuf {
    let path = directory.path().join("snapshot");
    let mut snapshot = SnapshotWriter::new(&path);
    snapshot.finish(records()).await;
    assert_eq!((snapshot.trouble.as_deref(), snapshot.has_news), (None, false));
    path
}

fn text(path: &Path) -> String {
    String::from_utf8(disk::read(path, MAX_BYTES).unwrap()).unwrap()
}

#[tokio::test]
async fn what_is_written_is_remembered() {
    let directory = tempfile::tempdir().unwrap();
    let before_s = clock::unix_s();
    let mut remembered = read(&written(&directory).await, &agents());
    assert_eq!(remembered.keys().collect::<Vec<_>>(), ["one", "two"], "files are not in it");
    let facts = AgentState::parse(FACTS).unwrap();
    assert_eq!(remembered.remove("two"), Some(StoredFacts { facts, since_s: 1_000_000 }), "it was stale before");
    assert!((before_s..=clock::unix_s()).contains(&remembered["one"].since_s));
}

#[tokio::test]
async fn what_was_told_under_other_settings_is_not_taken() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(&directory).await;
    let mut agents = agents();
    let other = "kind = 'static'\nurl = 'http://two.example/facts?token=b'";
    agents.insert("two".into(), toml::from_str(other).unwrap());
    assert_eq!(read(&path, &agents).keys().collect::<Vec<_>>(), ["one"], "URLs differ also where they are not shown");
    agents.remove("one");
    assert!(read(&path, &agents).is_empty());
}

#[tokio::test]
async fn what_is_damaged_is_passed_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = written(&directory).await;
    let whole = text(&path);
    let cut = whole.len() - 10;
    for (content, left) in [
        (whole[..cut].to_owned(), &["one"][..]),
        (whole.replacen("10.0.0.0/8", "10.0.0.1/8", 1), &["two"]),
        (whole.replacen("\"routers\"", "\"routes\"", 1), &["two"]),
        (whole.replacen("snapshot\":1", "snapshot\":2", 1), &[]),
        (whole.replacen("written", "made", 1), &[]),
        ("x".repeat(1 << 20), &[]),
        (String::new(), &[]),
    ] {
        disk::write(&path, content.as_bytes()).unwrap();
        assert_eq!(read(&path, &agents()).keys().collect::<Vec<_>>(), left, "{content:.80}");
    }
}

#[test]
fn a_file_that_cannot_be_one_is_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let refused = |path: &Path| read_facts(path, &agents()).unwrap_err().to_string();
    assert_eq!(refused(directory.path()), "it is not a regular file");
    let path = directory.path().join("large");
    disk::create(&path).unwrap().set_len(MAX_BYTES + 1).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(refused(&path), format!("it has more than {MAX_BYTES} bytes"));
    assert!(read(&directory.path().join("none"), &agents()).is_empty());
}

#[test]
fn nothing_is_written_that_could_not_be_read() {
    let mut sink = LimitedWriter { sink: Vec::new(), left_bytes: 3 };
    sink.write_all(b"abc").unwrap();
    assert!(sink.write_all(b"d").unwrap_err().to_string().contains("more than"));
    assert_eq!(sink.sink, b"abc");
}

#[tokio::test]
async fn what_cannot_be_written_leaves_the_file_of_before() {
    let directory = tempfile::tempdir().unwrap();
    let mut snapshot = SnapshotWriter::new(&directory.path().join("no/snapshot"));
    snapshot.begin(records());
    snapshot.until_written().await;
    assert!(snapshot.trouble.is_some());
    assert!(snapshot.has_news && !snapshot.is_due(), "it is tried again, and not at once");
}

#[test]
fn others_go_on_while_it_is_written() {
    // Its only blocking thread is busy at first.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("snapshot");
        let (release, held) = mpsc::channel::<()>();
        let holding = spawn_blocking(move || held.recv());
        let mut snapshot = SnapshotWriter::new(&path);
        assert!(snapshot.is_due());
        snapshot.begin(records());
        assert!(!path.exists());
        snapshot.note_news();
        assert!(!snapshot.is_due() && snapshot.until_due().now_or_never().is_none(), "one at a time");
        release.send(()).unwrap();
        assert_eq!(holding.await.unwrap(), Ok(()));
        snapshot.until_written().await;
        assert_eq!(read(&path, &agents()).len(), 2);
        assert!(snapshot.has_news && !snapshot.is_due(), "what came meanwhile is written later");
    });
}

#[tokio::test]
async fn the_last_one_holds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("snapshot");
    let mut snapshot = SnapshotWriter::new(&path);
    snapshot.begin(records());
    snapshot.finish(records().into_iter().take(1).collect()).await;
    assert_eq!(snapshot.trouble, None);
    assert_eq!(read(&path, &agents()).keys().collect::<Vec<_>>(), ["one"]);
}
