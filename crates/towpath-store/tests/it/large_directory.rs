//! Listing a very large directory in little memory.

use futures::StreamExt as _;
use rustix::fs::{Mode, OFlags, linkat, open, unlink};
use towpath_store::{Caller, ListOptions, Store as _, StorePath, sys::disk};

use crate::directory::Directory;

const ENTRIES: usize = 200_000;

/// Maximum memory of the listing in bytes: a batch of a thousand entries takes about 250 kB, the whole directory 50 MB.
const MEMORY_BYTES: u64 = 8 << 20;

/// Returns the resident memory of this process in bytes.
fn resident_bytes() -> u64 {
    let fields = disk::read("/proc/self/statm".as_ref(), 4096).unwrap();
    let pages: u64 = String::from_utf8(fields).unwrap().split(' ').nth(1).unwrap().parse().unwrap();
    pages * rustix::param::page_size() as u64
}

/// Returns whether this test has its own process, so that it can measure its memory; otherwise runs it in one.
fn is_in_its_own_process(test: &str) -> bool {
    const CHILD: &str = "TOWPATH_TEST_ALONE";
    if towpath_store::sys::environment::variable(CHILD).is_some() {
        return true;
    }
    let mut alone = std::process::Command::new(std::env::current_exe().unwrap());
    assert!(alone.args(["--exact", test]).env(CHILD, "1").status().unwrap().success(), "{test} failed");
    false
}

#[tokio::test]
async fn very_many_entries_are_listed_in_bounded_memory() {
    if !is_in_its_own_process("large_directory::very_many_entries_are_listed_in_bounded_memory") {
        return;
    }
    let directory = Directory::new();
    disk::write(&directory.host("0"), b"").unwrap();
    let root = open(directory.host(""), OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    // Hard links to one file, which are faster to create than files.
    for number in 1..ENTRIES {
        linkat(&root, "0", &root, number.to_string(), rustix::fs::AtFlags::empty()).unwrap();
    }
    let before = resident_bytes();
    let (mut entries, mut peak, mut sum) = (0, before, 0);
    let mut batches = directory.store.list(&Caller::local(), &StorePath::root(), ListOptions::default());
    while let Some(batch) = batches.next().await {
        let batch = batch.unwrap();
        assert!(batch.len() <= 1000);
        entries += batch.len();
        sum += batch
            .iter()
            .map(|entry| std::str::from_utf8(&entry.name).unwrap().parse::<usize>().unwrap())
            .sum::<usize>();
        peak = peak.max(resident_bytes());
    }
    assert_eq!((entries, sum), (ENTRIES, ENTRIES * (ENTRIES - 1) / 2));
    assert!(peak - before <= MEMORY_BYTES, "{} bytes were taken", peak - before);
}

#[tokio::test]
async fn entries_that_vanish_while_they_are_listed_are_skipped() {
    let directory = Directory::new();
    for number in 0..3000 {
        disk::write(&directory.host(&number.to_string()), b"").unwrap();
    }
    let options = ListOptions { metadata: true, digests: true };
    let mut batches = directory.store.list(&Caller::local(), &StorePath::root(), options);
    let mut entries = batches.next().await.unwrap().unwrap().len();
    for number in 0..3000 {
        unlink(directory.host(&number.to_string())).unwrap();
    }
    while let Some(batch) = batches.next().await {
        entries += batch.unwrap().len();
    }
    assert!(entries <= 3000);
}
