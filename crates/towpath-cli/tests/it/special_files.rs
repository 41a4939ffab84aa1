//! Devices, pipes and other special files: in trees, as sources and as destinations.

use std::{
    io::Write as _,
    os::unix::fs::{FileTypeExt as _, MetadataExt as _},
    process::Stdio,
    thread,
};

use towpath_store::sys::disk;

use super::program::{Directory, Outcome};

fn make_fifo(directory: &Directory, name: &str) {
    rustix::fs::mkfifoat(rustix::fs::CWD, directory.host(name), rustix::fs::Mode::RWXU).unwrap();
}

#[test]
fn of_a_tree_they_are_counted_and_named() {
    let directory = Directory::new();
    directory.put("s/file", "content");
    make_fifo(&directory, "s/fifo");
    let served = directory.serve();
    for (number, from) in ["".into()].into_iter().chain(served.urls().map(|url| format!("{url}/"))).enumerate() {
        for command in ["cp -r", "sync"] {
            let to = format!("{}-{number}", &command[..2]);
            let outcome = directory.run(&format!("{command} {from}s {to}"));
            assert!(![Some(0), None].contains(&outcome.code), "{from} {command}: {outcome:?}");
            assert!(outcome.stderr.contains("s/fifo"), "{from} {command}: {outcome:?}");
            assert_eq!(directory.names(&to), ["file"], "{from} {command}");
        }
    }
    // The result of an earlier copy is not the same file.
    directory.put("sy-0/fifo", "");
    directory.run("sync --compare size s sy-0").expect(5);
}

#[test]
fn a_pipe_is_read_as_a_stream() {
    let directory = Directory::new();
    make_fifo(&directory, "fifo");
    std::fs::create_dir(directory.host("d")).unwrap();
    for to in ["copy", "d"] {
        let path = directory.host("fifo");
        let writer = thread::spawn(move || disk::open_to_write(&path).unwrap().write_all(b"from a pipe").unwrap());
        directory.run(&format!("cp fifo {to}")).expect(0);
        writer.join().unwrap();
    }
    assert_eq!((directory.get("copy"), directory.get("d/fifo")), ("from a pipe".into(), "from a pipe".into()));
    let mut command = directory.command(["cp", "/dev/stdin", "typed"]);
    let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    process.stdin.take().unwrap().write_all(b"typed").unwrap();
    Outcome::from(process.wait_with_output().unwrap()).expect(0);
    assert_eq!(directory.get("typed"), "typed");
}

#[test]
fn a_file_of_unknown_length_is_copied_whole() {
    let directory = Directory::new();
    directory.run("cp /proc/self/mounts copy").expect(0);
    assert_ne!(directory.get("copy"), "");
    directory.run("cp -r /proc/self/mounts other").expect(5);
    assert!(!directory.host("other").exists());
}

#[test]
fn a_device_or_pipe_that_is_named_is_written_into() {
    let directory = Directory::new();
    directory.put("file", "content");
    make_fifo(&directory, "fifo");
    let path = directory.host("fifo");
    let reader = thread::spawn(move || std::io::read_to_string(disk::open(&path).unwrap()).unwrap());
    directory.run("cp -f file fifo").expect(0);
    assert_eq!(reader.join().unwrap(), "content");
    assert!(directory.host("fifo").metadata().unwrap().file_type().is_fifo());
    directory.run("cp file /dev/null").expect(0);
    assert!(std::path::Path::new("/dev/null").metadata().unwrap().file_type().is_char_device());
    assert_eq!(directory.run("cp file /dev/stdout").expect(0).stdout, "content");
    directory.put("other", "content");
    directory.run("cp file other fifo").expect(2);
}

#[test]
fn those_of_a_server_are_not_replaced() {
    let directory = Directory::new();
    directory.put("file", "content");
    make_fifo(&directory, "fifo");
    let served = directory.serve();
    for url in served.urls() {
        let outcome = directory.run(&format!("cp -f file {url}/fifo"));
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert!(directory.host("fifo").metadata().unwrap().file_type().is_fifo(), "{url}");
    }
}

#[test]
fn holes_stay_holes_on_every_way() {
    let directory = Directory::new();
    let size = 256 << 20;
    std::fs::create_dir(directory.host("s")).unwrap();
    let mut file = std::fs::File::create_new(directory.host("s/sparse")).unwrap();
    file.set_len(size).unwrap();
    file.write_all(b"content").unwrap();
    let served = directory.serve();
    let [root, http] = served.urls();
    for (from, to) in [
        ("s/sparse", "local"),
        ("s/sparse", &*format!("{root}/by-root")),
        ("s/sparse", &*format!("{http}/by-http")),
        (&*format!("{root}/s/sparse"), "from-root"),
        (&*format!("{http}/s/sparse"), "from-http"),
    ] {
        directory.run(&format!("cp {from} {to}")).expect(0);
    }
    for name in ["local", "by-root", "by-http", "from-root", "from-http"] {
        let metadata = directory.host(name).metadata().unwrap();
        assert_eq!(metadata.len(), size, "{name}");
        assert!(metadata.blocks() * 512 < 1 << 20, "{name} takes {} blocks", metadata.blocks());
    }
}
