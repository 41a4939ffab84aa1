//! Copies interrupted repeatedly: by killed processes, failing storages, and disks that lose or change written data.

use std::{
    fs::OpenOptions as HostOptions,
    path::{Path, PathBuf},
};

use towpath_store::sys::disk;
use towpath_testkit::random::Random;

use super::*;

/// Minimum size of a resumable file, plus an odd remainder.
const SIZE: u64 = (64 << 20) + 12_345;

const PATTERN: Pattern = Pattern::new(77);

/// Maximum number of interrupted copies before the last one.
const ATTEMPTS: u64 = 6;

/// Returns the leftovers of interrupted copies in `directory`: the staging file and its journal.
fn left(directory: &Path) -> Vec<PathBuf> {
    let Ok(entries) = directory.join(".towpath").read_dir() else { return Vec::new() };
    let mut left: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    left.retain(|path| path.file_name().unwrap().to_string_lossy().starts_with("resume-"));
    left.sort();
    left
}

/// Waits until all leftovers are closed: a disk thread closes dropped handles.
async fn free(left: &[PathBuf]) {
    for path in left.iter().filter(|path| path.extension().is_none()) {
        // The file may be in the process of being removed.
        let Ok(file) = HostOptions::new().write(true).open(path) else { continue };
        while file.try_lock().is_err() {
            tokio::task::yield_now().await;
        }
    }
}

/// Releases the locks of the leftovers, as the kernel does for a killed process: this process continues to run and
/// would keep them.
fn unlock(left: &[PathBuf]) {
    for path in left {
        let (content, unlocked) = (disk::read(path, SIZE).unwrap(), path.with_extension("unlocked"));
        disk::write(&unlocked, &content).unwrap();
        // Locked files stay open; truncating them at least frees their space.
        HostOptions::new().write(true).open(path).unwrap().set_len(0).unwrap();
        disk::rename(&unlocked, path).unwrap();
    }
}

/// Damages leftovers as a disk may: not at all, by truncation, or by a changed byte. Records are then lost, torn or
/// wrong.
fn harm(left: &[PathBuf], random: &mut Random) {
    use std::os::unix::fs::FileExt as _;
    for path in left {
        let Ok(file) = HostOptions::new().read(true).write(true).open(path) else { continue };
        let length = file.metadata().unwrap().len();
        let at = random.below(length);
        match random.below(3) {
            0 => file.set_len(at).unwrap(),
            1 if length > 0 => {
                let mut byte = [0];
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ 0x40], at).unwrap();
            }
            _ => {}
        }
    }
}

/// Copies until one copy completes. Returns the number of interrupted copies, and the bytes that all copies moved.
async fn copied_in_the_end(content: &Bytes, seed: u64) -> (u64, u64) {
    let mut random = Random::new(seed);
    let directory = tempfile::tempdir().unwrap();
    let source = memory();
    put(&source, "/large", content.clone()).await;
    let mut moved_bytes = 0;
    for attempt in 0..=ATTEMPTS {
        let per_mille = if attempt < ATTEMPTS { random.below(30) as u32 } else { 0 };
        let faults = |seed| Faults {
            seed,
            errors_per_mille: per_mille,
            short_reads_per_mille: per_mille,
            torn_writes_per_mille: per_mille,
            ..Faults::default()
        };
        let local: Arc<dyn Store> = Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap());
        let from: Arc<dyn Store> = Arc::new(FaultStore::new(Arc::clone(&source), faults(random.number())));
        let to: Arc<dyn Store> = Arc::new(FaultStore::new(Arc::clone(&local), faults(random.number())));
        let counted = Arc::new(Counted::default());
        // After any number of pieces, each of which completes records of the journal.
        let stop_at = if attempt < ATTEMPTS { random.below(SIZE) } else { u64::MAX };
        let mut transferred = counted.transferred.subscribe();
        let mover = Mover::new(options(), Arc::clone(&counted) as _);
        let job = Job::new(location(&from, "/large"), location(&to, "/copy"));
        let outcome = tokio::select! {
            biased;
            _ = transferred.wait_for(|transferred| *transferred >= stop_at) => None,
            outcome = mover.copy(&job) => Some(outcome),
        };
        moved_bytes += *counted.transferred.borrow();
        match get(&local, "/copy").await {
            Ok(found) => {
                assert!(found == *content, "seed {seed}: something else is visible");
                return (attempt, moved_bytes);
            }
            Err(error) => assert_eq!(error.fault(), Fault::NotFound, "seed {seed}"),
        }
        assert!(!matches!(outcome, Some(Ok(_))), "seed {seed}: it is said to have arrived");
        assert!(attempt < ATTEMPTS, "seed {seed}: {outcome:?}");
        let left = left(directory.path());
        free(&left).await;
        harm(&left, &mut random);
    }
    unreachable!("the last attempt returns");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whatever_ends_copies_nothing_is_visible_or_all_of_it() {
    let content = PATTERN.bytes(0, SIZE as usize);
    let mut ended = 0;
    for seed in 0..12 {
        let (attempts, moved_bytes) = copied_in_the_end(&content, seed).await;
        assert!(moved_bytes <= (attempts + 1) * SIZE, "seed {seed}");
        ended += attempts;
    }
    assert!(ended > 12, "only {ended} copies were ended in the middle");
}

/// Copies to a directory in a process that is killed at its call number `killed_at` there, and then once more. Returns
/// the number of calls of the first copy, and the bytes moved by the second, if one was needed.
async fn killed_and_copied_again(
    source: &Arc<dyn Store>,
    content: &Bytes,
    killed_at: Option<u64>,
) -> (u64, Option<u64>) {
    let directory = tempfile::tempdir().unwrap();
    let open = || Arc::new(LocalStore::open(directory.path(), LocalOptions::default()).unwrap()) as Arc<dyn Store>;
    let dying = Arc::new(FaultStore::new(open(), Faults { crash_after: killed_at, ..Faults::default() }));
    let to: Arc<dyn Store> = Arc::clone(&dying) as _;
    let job = |to: &Arc<dyn Store>| Job::new(location(source, "/large"), location(to, "/copy"));
    let outcome = Mover::new(options(), Arc::new(NoopObserver)).copy(&job(&to)).await;
    let local = open();
    match get(&local, "/copy").await {
        Ok(found) => assert!(found == *content, "killed at {killed_at:?}: something else is visible"),
        Err(error) => assert_eq!((error.fault(), outcome.is_err()), (Fault::NotFound, true), "killed at {killed_at:?}"),
    }
    if outcome.is_ok() {
        return (dying.calls(), None);
    }
    unlock(&left(directory.path()));
    let counted = Arc::new(Counted::default());
    let replacing = Options { overwrite: Overwrite::Replace, ..options() };
    Mover::new(replacing, Arc::clone(&counted) as _).copy(&job(&local)).await.unwrap();
    assert!(get(&local, "/copy").await.unwrap() == *content, "killed at {killed_at:?}");
    assert!(left(directory.path()).is_empty(), "killed at {killed_at:?}");
    let transferred = *counted.transferred.borrow();
    (dying.calls(), Some(transferred))
}

#[tokio::test(start_paused = true)]
async fn wherever_a_process_is_killed_the_next_copy_ends_what_it_began() {
    let (content, source) = (PATTERN.bytes(0, SIZE as usize), memory());
    put(&source, "/large", content.clone()).await;
    let (calls, again) = killed_and_copied_again(&source, &content, None).await;
    assert_eq!(again, None);
    // Each number takes two copies. The calls in the middle all write pieces, so a sample of them is sufficient.
    for killed_at in (0..4).chain((4..calls).step_by(11)).chain(calls - 2..calls) {
        let (_, again) = killed_and_copied_again(&source, &content, Some(killed_at)).await;
        let again = again.unwrap_or_else(|| panic!("killed at {killed_at}: it is said to have arrived"));
        // Written data are not moved again, except for data in flight.
        assert!(again < SIZE || killed_at < calls / 2, "killed at {killed_at}: {again} bytes were moved again");
    }
    assert_eq!(killed_and_copied_again(&source, &content, Some(calls)).await, (calls, None));
}
