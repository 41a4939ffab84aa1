//! Interrupted uploads: damage to their data by the disk, and which callers may resume them.

use std::{
    os::unix::fs::FileExt as _,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use proptest::prelude::*;
use towpath_proto::checksum::{Algorithms, Extent, Hasher};
use towpath_store::{
    Caller, CreateOptions, Expectation, Fault, Overwrite, Result, ResumeKey, Store as _, WriteHandle,
    local::LocalStore,
    sys::{clock, disk},
};
use towpath_testkit::pattern::Pattern;

use crate::{
    directory::{Directory, path},
    disk_full::Mount,
};

const MIB: u64 = 1 << 20;

/// Four blocks and a half.
const SIZE: u64 = 4 * MIB + MIB / 2;

const PATTERN: Pattern = Pattern::new(3);

pub(crate) const KEY: ResumeKey = ResumeKey::new(*b"a key of a test.");

/// Returns options to upload a file of `size` bytes with [`KEY`].
pub(crate) fn options(size: u64) -> CreateOptions {
    CreateOptions {
        resume: Some(KEY),
        size_hint: Some(size),
        overwrite: Overwrite::Replace,
        ..CreateOptions::default()
    }
}

async fn create(store: &LocalStore) -> Result<Arc<dyn WriteHandle>> {
    create_of(store, SIZE).await
}

async fn create_of(store: &LocalStore, size: u64) -> Result<Arc<dyn WriteHandle>> {
    store.create(&Caller::local(), &path("/file"), options(size)).await
}

pub(crate) async fn write(file: &dyn WriteHandle, start: u64, end: u64) {
    file.write(start, PATTERN.bytes(start, (end - start) as usize)).await.unwrap();
}

/// Returns the stored ranges of the resumed upload; panics if any of them differs from the written data.
async fn taken_up(store: &LocalStore) -> Vec<(u64, u64)> {
    let file = create(store).await.unwrap();
    let present = file.present().await.unwrap();
    for extent in &present {
        PATTERN.check(extent.offset(), &file.read(extent.offset(), extent.bytes() as usize).await.unwrap());
    }
    ranges(&present)
}

fn ranges(extents: &[Extent]) -> Vec<(u64, u64)> {
    extents.iter().map(|extent| (extent.offset(), extent.end())).collect()
}

/// Writes the missing ranges, commits with correct digests, and compares the result.
pub(crate) async fn finish(directory: &Directory, file: &dyn WriteHandle, size: u64) {
    let mut at = 0;
    for extent in file.present().await.unwrap() {
        write(file, at, extent.offset()).await;
        at = extent.end();
    }
    write(file, at, size).await;
    let content = PATTERN.bytes(0, size as usize);
    let digests = Hasher::digest(Algorithms::DEFAULT, &content);
    let expected = Expectation { size: Some(size), digests: digests.clone(), mtime_ns: None };
    assert_eq!(file.commit(expected).await.unwrap().digests, digests);
    assert!(directory.get("/file").await.unwrap() == content);
    assert_eq!(directory.staged(), Vec::<String>::new(), "nothing is left");
}

/// Returns the paths of the staging file and its journal.
fn left(directory: &Directory) -> (PathBuf, PathBuf) {
    let mut names = directory.staged();
    names.sort();
    let [staged, journal] = &names[..] else { panic!("{names:?}") };
    let is_name = |name: &str| name.strip_prefix("resume-").is_some_and(|digits| digits.len() == 32);
    assert!(is_name(staged) && *journal == format!("{staged}.journal"), "{names:?}");
    let host = |name| directory.host(".towpath").join(name);
    (host(staged), host(journal))
}

/// A directory with an upload that was interrupted after all but its last block and the first bytes of that were
/// written.
async fn interrupted() -> Directory {
    let directory = Directory::new();
    let file = create(&directory.store).await.unwrap();
    write(&*file, 0, 4 * MIB + 100).await;
    drop(file);
    directory
}

fn damage(host: &PathBuf, offset: u64) {
    let file = std::fs::OpenOptions::new().read(true).write(true).open(host).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, offset).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], offset).unwrap();
}

#[tokio::test]
async fn only_a_damaged_block_is_written_again() {
    let directory = interrupted().await;
    damage(&left(&directory).0, MIB + 77);
    assert_eq!(taken_up(&directory.store).await, [(0, MIB), (2 * MIB, 4 * MIB + 100)]);
    let file = create(&directory.store).await.unwrap();
    assert_eq!(
        file.read(MIB, MIB as usize).await.unwrap(),
        vec![0; MIB as usize],
        "it is as if it had never been written"
    );
    finish(&directory, &*file, SIZE).await;
}

/// Large enough that several threads read it back.
#[tokio::test]
async fn of_much_only_the_damaged_blocks_are_written_again() {
    let (directory, size) = (Directory::new(), 50 * MIB);
    let file = create_of(&directory.store, size).await.unwrap();
    write(&*file, 0, 49 * MIB).await;
    drop(file);
    let (staged, _) = left(&directory);
    [0, 20 * MIB + 7, 48 * MIB].into_iter().for_each(|offset| damage(&staged, offset));
    let file = create_of(&directory.store, size).await.unwrap();
    let present = ranges(&file.present().await.unwrap());
    assert_eq!(present, [(MIB, 20 * MIB), (21 * MIB, 48 * MIB)]);
    finish(&directory, &*file, size).await;
}

#[tokio::test]
async fn what_was_cut_off_is_written_again() {
    let directory = interrupted().await;
    let file = std::fs::OpenOptions::new().write(true).open(left(&directory).0).unwrap();
    file.set_len(3 * MIB - 1).unwrap();
    assert_eq!(taken_up(&directory.store).await, [(0, 2 * MIB)]);
    file.set_len(0).unwrap();
    assert_eq!(taken_up(&directory.store).await, []);
    assert!(directory.staged().is_empty(), "what is empty is not kept");
    finish(&directory, &*create(&directory.store).await.unwrap(), SIZE).await;
}

#[tokio::test]
async fn a_journal_may_be_torn_or_damaged_anywhere() {
    let directory = Directory::new();
    let file = create(&directory.store).await.unwrap();
    // In the order of their records; records of one block are in file order.
    let written = [(0, 10), (100, 200), (300, 1000), (2000, 2001), (3000, 5000)];
    for (start, end) in written {
        write(&*file, start, end).await;
    }
    drop(file);
    let (staged, journal) = left(&directory);
    let (content, whole) = (disk::read(&staged, SIZE).unwrap(), disk::read(&journal, SIZE).unwrap());
    assert_eq!(whole.len(), 64 + 5 * 24);
    for position in 0..whole.len() {
        let records_before = position.saturating_sub(64) / 24;
        let mut flipped = whole.clone();
        flipped[position] ^= 1;
        for torn in [&whole[..position], &flipped] {
            disk::write(&staged, &content).unwrap();
            disk::write(&journal, torn).unwrap();
            assert_eq!(taken_up(&directory.store).await, written[..records_before], "position {position}");
        }
    }
    disk::write(&staged, &content).unwrap();
    disk::write(&journal, &whole).unwrap();
    assert_eq!(taken_up(&directory.store).await, written);
    rustix::fs::unlink(&journal).unwrap();
    assert_eq!(taken_up(&directory.store).await, [], "no journal, no proof");
}

#[tokio::test]
async fn a_crash_while_an_upload_is_taken_up_costs_nothing() {
    let directory = interrupted().await;
    let (staged, journal) = left(&directory);
    // A crash while the new journal was written.
    disk::write(&journal.with_extension("journal-new"), b"TPJR").unwrap();
    assert_eq!(taken_up(&directory.store).await, [(0, 4 * MIB + 100)]);
    // A crash after the rename of the file and before the removal of its journal.
    rustix::fs::rename(&staged, directory.host("file")).unwrap();
    assert_eq!(taken_up(&directory.store).await, []);
    let file = create(&directory.store).await.unwrap();
    finish(&directory, &*file, SIZE).await;
}

#[tokio::test]
async fn nobody_finds_what_another_left() {
    let directory = Directory::new();
    let of = |issuer: &str, subject: &str| Caller {
        issuer: Some(issuer.into()),
        subject: Some(subject.into()),
        address: Some([10, 0, 0, 1].into()),
        ..Caller::default()
    };
    let anonymous = |octet| Caller { address: Some([10, 0, 0, octet].into()), ..Caller::default() };
    let callers = [Caller::local(), of("a", "b"), of("a", "c"), of("ab", ""), of("b", "b"), anonymous(1), anonymous(2)];
    for (number, caller) in callers.iter().enumerate() {
        let file = directory.store.create(caller, &path("/file"), options(SIZE)).await.unwrap();
        assert_eq!(file.present().await.unwrap(), [], "{caller:?}");
        write(&*file, 0, 100 + number as u64).await;
    }
    for (number, caller) in callers.iter().enumerate() {
        // The address of an authenticated caller may change.
        let caller = Caller { address: caller.address.filter(|_| caller.issuer.is_none()), ..caller.clone() };
        let file = directory.store.create(&caller, &path("/file"), options(SIZE)).await.unwrap();
        assert_eq!(ranges(&file.present().await.unwrap()), [(0, 100 + number as u64)]);
    }
}

#[tokio::test]
async fn a_failed_commit_leaves_no_time_mode_or_digests_to_the_next() {
    let directory = Directory::new();
    let refuse = CreateOptions { overwrite: Overwrite::Refuse, mode: Some(0o400), ..options(SIZE) };
    let file = directory.store.create(&Caller::local(), &path("/file"), refuse).await.unwrap();
    write(&*file, 0, SIZE).await;
    directory.put("/file", "somebody else's").await.unwrap();
    let expected = Expectation { mtime_ns: Some(0), ..Expectation::default() };
    assert_eq!(file.commit(expected).await.unwrap_err().fault(), Fault::AlreadyExists);
    drop(file);
    let file = create(&directory.store).await.unwrap();
    assert_eq!(ranges(&file.present().await.unwrap()), [(0, SIZE)]);
    finish(&directory, &*file, SIZE).await;
    let status = rustix::fs::stat(directory.host("file")).unwrap();
    assert!(status.st_mtime > 0 && status.st_mode & 0o777 != 0o400, "{status:?}");
}

/// A process killed between preparing the file and its rename.
#[tokio::test]
async fn a_commit_that_was_killed_leaves_no_digests_to_the_next() {
    let directory = interrupted().await;
    let (staged, _) = left(&directory);
    let name = "user.XrdCks.md5";
    rustix::fs::setxattr(&staged, name, b"not the one of this file", rustix::fs::XattrFlags::empty()).unwrap();
    finish(&directory, &*create(&directory.store).await.unwrap(), SIZE).await;
    let mut value = [0; 200];
    assert!(rustix::fs::getxattr(directory.host("file"), name, &mut value).is_err());
}

#[tokio::test]
async fn what_nobody_takes_up_is_removed_after_a_week() {
    let directory = interrupted().await;
    let (staged, journal) = left(&directory);
    let orphan = directory.host(".towpath/resume-00000000000000000000000000000000.journal");
    disk::write(&orphan, b"without a file").unwrap();
    let age = |days| [&journal, &orphan].into_iter().for_each(|host| make_older(host, days));
    // A commit that was interrupted may have set the time of the file.
    std::fs::OpenOptions::new().write(true).open(&staged).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
    age(6);
    directory.store_in("");
    assert_eq!(directory.staged().len(), 3);
    // An upload in flight, and its journal, are kept whatever their age.
    let file = create(&directory.store).await.unwrap();
    age(7);
    directory.store_in("");
    assert_eq!(left(&directory), (staged, journal.clone()));
    drop(file);
    make_older(&journal, 7);
    directory.store_in("");
    assert_eq!(directory.staged(), Vec::<String>::new());
}

/// Sets the age of a file to the given number of days and a minute.
fn make_older(host: &PathBuf, days: u64) {
    let now = SystemTime::UNIX_EPOCH + Duration::from_nanos(clock::unix_ns() as u64);
    let then = now - Duration::from_secs(days * 86_400 + 60);
    std::fs::OpenOptions::new().write(true).open(host).unwrap().set_modified(then).unwrap();
}

#[tokio::test]
async fn an_area_in_use_is_cleaned_once_a_day() {
    let directory = interrupted().await;
    make_older(&left(&directory).1, 7);
    directory.put("/other", "content").await.unwrap();
    assert_eq!(directory.staged().len(), 2);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(86_400)).await;
    tokio::time::resume();
    directory.put("/other", "content").await.unwrap();
    assert_eq!(directory.staged(), Vec::<String>::new());
}

#[tokio::test]
async fn a_directory_that_is_removed_takes_along_what_was_left_in_it() {
    let directory = interrupted().await;
    std::fs::create_dir(directory.host("directory")).unwrap();
    rustix::fs::rename(directory.host(".towpath"), directory.host("directory/.towpath")).unwrap();
    directory.store.remove_directory(&Caller::local(), &path("/directory")).await.unwrap();
}

#[tokio::test]
async fn a_directory_that_stays_keeps_what_can_be_resumed() {
    let directory = interrupted().await;
    std::fs::create_dir(directory.host("directory")).unwrap();
    rustix::fs::rename(directory.host(".towpath"), directory.host("directory/.towpath")).unwrap();
    let count = || directory.host("directory/.towpath").read_dir().unwrap().count();
    let before = count();
    directory.put("/directory/file", "content").await.unwrap();
    let error = directory.store.remove_directory(&Caller::local(), &path("/directory")).await.unwrap_err();
    assert_eq!((error.fault(), count()), (Fault::NotEmpty, before));
}

#[tokio::test]
async fn a_create_that_is_given_up_leaves_what_was_there() {
    let directory = interrupted().await;
    let mut creating = Box::pin(create(&directory.store));
    let _ = futures::poll!(&mut creating);
    drop(creating);
    // A running upload releases the key when it notices; until then the key is in use.
    let file = loop {
        match create(&directory.store).await {
            Err(error) if error.fault() == Fault::Overloaded => tokio::task::yield_now().await,
            outcome => break outcome.unwrap(),
        }
    };
    assert_eq!(ranges(&file.present().await.unwrap()), [(0, 4 * MIB + 100)]);
}

/// A handle that waits for the key may have opened the staging file just before it was published: it must not use that
/// file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_committed_file_is_nobodys_staged_file_any_more() {
    let directory = Directory::new();
    for _ in 0..300 {
        let file = create(&directory.store).await.unwrap();
        write(&*file, 0, 1000).await;
        let (store, is_done) = (directory.store.clone(), Arc::new(AtomicBool::new(false)));
        let stop = Arc::clone(&is_done);
        let other = tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                if let Ok(file) = create(&store).await {
                    file.abort().await.unwrap();
                }
            }
        });
        file.commit(Expectation::default()).await.unwrap();
        is_done.store(true, Ordering::Relaxed);
        other.await.unwrap();
        assert!(directory.get("/file").await.unwrap() == PATTERN.bytes(0, 1000));
    }
}

#[tokio::test]
async fn an_upload_to_a_full_disk_goes_on_when_there_is_room() {
    let directory = Directory::new();
    let Some(_mount) = Mount::new(&directory.host("small"), "6m") else { return };
    let store = directory.store_in("small");
    let (me, hog) = (&Caller::local(), path("/hog"));
    let fill = store.create(me, &hog, CreateOptions::default()).await.unwrap();
    let file = create(&store).await.unwrap();
    fill.write(0, vec![1; 3 << 20].into()).await.unwrap();
    let mut at = 0;
    let error = loop {
        match file.write(at, PATTERN.bytes(at, 1 << 19)).await {
            Ok(()) => at += 1 << 19,
            Err(error) => break error,
        }
    };
    assert_eq!(error.fault(), Fault::NoSpace);
    assert!(at >= 2 * MIB);
    drop(file);
    assert_eq!(create(&store).await.unwrap_err().fault(), Fault::NoSpace, "it is known beforehand");
    fill.abort().await.unwrap();
    // Stored data need no additional space.
    let file = create(&store).await.unwrap();
    assert_eq!(ranges(&file.present().await.unwrap()), [(0, at)]);
    write(&*file, at, SIZE).await;
    file.commit(Expectation { size: Some(SIZE), ..Expectation::default() }).await.unwrap();
}

/// An event in the life of an upload.
#[derive(Debug, Clone)]
enum Event {
    Write {
        start: u64,
        length: u64,
    },
    SetSize(u64),
    Sync,
    /// The handle is dropped, and the upload resumed.
    Break,
    /// As above, and a byte of the staging file or of the journal changes in between.
    DamageData(u64),
    DamageJournal(u64),
    CutData(u64),
    CutJournal(u64),
}

fn any_event() -> impl Strategy<Value = Event> {
    let at = 0..SIZE;
    prop_oneof![
        8 => (at.clone(), prop_oneof![1..1000_u64, 1..2 * MIB]).prop_map(|(start, length)| Event::Write { start, length }),
        1 => at.clone().prop_map(Event::SetSize),
        1 => Just(Event::Sync),
        2 => Just(Event::Break),
        1 => at.clone().prop_map(Event::DamageData),
        1 => (0..400_u64).prop_map(Event::DamageJournal),
        1 => at.prop_map(Event::CutData),
        1 => (0..400_u64).prop_map(Event::CutJournal),
    ]
}

/// Damages the leftovers of an upload, if there are any, as a disk may.
fn harm(directory: &Directory, event: &Event) {
    if directory.staged().is_empty() {
        return;
    }
    let (staged, journal) = left(directory);
    let length = |host: &PathBuf| host.metadata().unwrap().len();
    let cut = |host: &PathBuf, to: u64| {
        std::fs::OpenOptions::new().write(true).open(host).unwrap().set_len(to.min(length(host))).unwrap();
    };
    match event {
        Event::DamageData(at) if *at < length(&staged) => damage(&staged, *at),
        Event::DamageJournal(at) if *at < length(&journal) => damage(&journal, *at),
        Event::CutData(to) => cut(&staged, *to),
        Event::CutJournal(to) => cut(&journal, *to),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_happens_the_file_is_there_as_it_should_be_or_not_at_all(events in prop::collection::vec(any_event(), 1..25)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let directory = Directory::new();
            let mut file = create(&directory.store).await.unwrap();
            for event in &events {
                match event {
                    Event::Write { start, length } => write(&*file, *start, SIZE.min(start + length)).await,
                    // The file is only truncated: stored data must not be reported beyond that.
                    Event::SetSize(size) => file.set_size((*size).min(file.metadata().await.unwrap().size)).await.unwrap(),
                    Event::Sync => file.sync().await.unwrap(),
                    harmful => {
                        drop(file);
                        harm(&directory, harmful);
                        file = create(&directory.store).await.unwrap();
                        for extent in file.present().await.unwrap() {
                            let found = file.read(extent.offset(), extent.bytes() as usize).await.unwrap();
                            prop_assert_eq!(PATTERN.first_difference(extent.offset(), &found), None);
                        }
                    }
                }
                prop_assert!(directory.stat("/file").await.is_err(), "nothing is visible");
            }
            drop(file);
            finish(&directory, &*create(&directory.store).await.unwrap(), SIZE).await;
            Ok(())
        })?;
    }
}

/// The oldest are removed, but none of the last hours. Leftovers of other users, and of this process itself, are not
/// counted.
#[tokio::test]
async fn one_user_leaves_only_so_much() {
    const MOST: usize = 64;
    let directory = Directory::new();
    let store = &directory.store;
    let caller =
        |subject: &str| Caller { issuer: Some("issuer".into()), subject: Some(subject.into()), ..Caller::local() };
    let leave = async |caller: &Caller, number: usize| {
        let resume = Some(ResumeKey::of(&[&number.to_le_bytes()]));
        let file = store.create(caller, &path("/file"), CreateOptions { resume, ..options(SIZE) }).await.unwrap();
        let present = file.present().await.unwrap().len();
        write(&*file, 0, 10).await;
        drop(file);
        present
    };
    let (one, another, hasty) = (caller("one"), caller("another"), caller("hasty"));
    leave(&another, 0).await;
    for number in 0..MOST + 2 {
        for caller in [&one, &Caller::local()] {
            assert_eq!(leave(caller, number).await, 0);
        }
        let staged = directory.staged();
        staged.iter().for_each(|name| make_older_by(&directory.host(".towpath").join(name), 7));
    }
    for number in 0..MOST + 2 {
        assert_eq!(leave(&hasty, number).await, 0);
    }
    // Resuming the upload makes its leftovers the newest.
    assert_eq!(leave(&another, 0).await, 1);
    assert_eq!(leave(&hasty, 0).await, 1);
    assert_eq!(leave(&Caller::local(), 0).await, 1);
    assert_eq!(leave(&one, MOST + 1).await, 1);
    assert_eq!(leave(&one, 3).await, 1, "there is room for {MOST}");
    assert_eq!(leave(&one, 0).await, 0, "the oldest is gone");
}

/// Increases the age of a file by the given number of hours.
fn make_older_by(host: &PathBuf, hours: u64) {
    let file = std::fs::OpenOptions::new().write(true).open(host).unwrap();
    let then = file.metadata().unwrap().modified().unwrap() - Duration::from_secs(hours * 3600);
    file.set_modified(then).unwrap();
}
