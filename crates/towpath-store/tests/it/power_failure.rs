//! The order of writes to disk. A test cannot cut the power, but the state after a power failure follows from the order
//! of system calls, which `strace` records.

use std::{
    path::Path,
    process::{Command, Stdio},
};

use towpath_proto::checksum::Algorithm;
use towpath_store::{
    Caller, Changes, CreateOptions, Expectation, Overwrite, Store as _,
    local::{Durability, LocalOptions, LocalStore},
    sys::disk,
};

use crate::directory::{Directory, path};

/// Environment variable with the working directory of the child process, which is this test program under `strace`.
const CHILD: &str = "TOWPATH_TEST_POWER";

const TRACE_BYTES: u64 = 16 << 20;

/// Body of the child process: changes files, each with its own name.
#[tokio::test]
async fn child_works_under_strace() {
    let Some(root) = towpath_store::sys::environment::variable(CHILD) else { return };
    let options = LocalOptions { durability: Durability::FileAndDirectory, ..LocalOptions::default() };
    let store = LocalStore::open(root.as_ref(), options).unwrap();
    let me = &Caller::local();
    let upload = store.create(me, &path("/uploads/file"), CreateOptions::default()).await.unwrap();
    upload.write(0, "content".into()).await.unwrap();
    upload.commit(Expectation::default()).await.unwrap();
    let update = store.update(me, &path("/updated")).await.unwrap();
    update.write(0, "C".into()).await.unwrap();
    update.write(1, "O".into()).await.unwrap();
    update.commit(Expectation::default()).await.unwrap();
    store.digest(me, &path("/foreign"), Algorithm::Md5, &|_| {}).await.unwrap();
    store.rename(me, &path("/old/file"), &path("/new/file"), Overwrite::Refuse).await.unwrap();
}

/// Returns the names of the system calls that contain one of `words`, in order, without repetitions.
fn calls(trace: &str, words: &[&str]) -> Vec<String> {
    let ours = trace.lines().filter(|line| words.iter().any(|word| line.contains(word)));
    let mut names: Vec<_> =
        ours.filter_map(|line| Some(line.split_once('(')?.0.rsplit(' ').next()?.to_owned())).collect();
    names.dedup();
    names
}

#[tokio::test]
async fn what_speaks_of_data_is_on_the_disk_after_them() {
    let directory = Directory::on_disk();
    for name in ["uploads", "old", "new"] {
        std::fs::create_dir(directory.host(name)).unwrap();
    }
    for name in ["/updated", "/old/file"] {
        directory.put(name, "content").await.unwrap();
    }
    disk::write(&directory.host("foreign"), b"content").unwrap();
    let settled = Changes { mtime_ns: Some(86_400_000_000_000), ..Changes::default() };
    directory.store.change(&Caller::local(), &path("/foreign"), settled).await.unwrap();
    let Some(trace) = strace(&directory) else { return };
    assert_eq!(calls(&trace, &["/upload-", "/uploads>"]), ["pwrite64", "fsetxattr", "fsync", "renameat2", "fsync"]);
    assert_eq!(calls(&trace, &["/updated>"]), ["fremovexattr", "fsync", "pwrite64", "fsync"]);
    assert_eq!(calls(&trace, &["/foreign>"]), ["fsync", "fsetxattr"]);
    assert_eq!(calls(&trace, &["/new>"]), ["renameat2", "fsync"]);
    assert_eq!(calls(&trace, &["/old>"]), ["renameat2", "fsync"]);
    let synced = |name| trace.lines().position(|line| line.contains("fsync(") && line.contains(name));
    assert!(synced("/new>") < synced("/old>"), "the new name is there before the old one is gone");
}

/// Returns the writing system calls of the child; `None` and a message if it cannot be traced.
fn strace(directory: &Directory) -> Option<String> {
    let trace = directory.host("trace");
    let calls = "trace=pwrite64,fsync,fdatasync,renameat,renameat2,fsetxattr,setxattr,fremovexattr,removexattr";
    let child = Command::new("strace")
        .args(["-f", "-qq", "-y", "-e", calls, "-o"])
        .args([trace.as_os_str(), std::env::current_exe().unwrap().as_os_str()])
        .args(["--exact", "power_failure::child_works_under_strace"])
        .env(CHILD, directory.host(""))
        .stdout(Stdio::null())
        .status();
    match child {
        Ok(status) if status.success() => Some(read(&trace)),
        outcome => {
            eprintln!("skipped: this test needs strace, and the right to use it ({outcome:?})");
            None
        }
    }
}

fn read(trace: &Path) -> String {
    String::from_utf8(disk::read(trace, TRACE_BYTES).unwrap()).unwrap()
}
