//! Several exports in one server.

use rustix::process::Signal;
use towpath_store::sys::disk;

use super::{
    alto::{ask, expect},
    program::{Directory, Outcome, ServerProcess},
    serving::wait_for,
};

/// Three exports: one with the rights of the server, one that everyone reads, one that nobody can change.
const EXPORTS: &str = "
listen = ['127.0.0.1:0']
[[access.anonymous]]
path = '/'
allow = ['read', 'modify']
[[export]]
prefix = '/vo/atlas'
root = 'disk1/atlas'
[[export]]
prefix = '/public'
root = 'disk2'
access.anonymous = [{ path = '/', allow = ['read'] }, { path = '/inbox', allow = ['create'] }]
[[export]]
prefix = '/archive'
root = 'disk3'
writable = false
";

fn directory() -> Directory {
    let directory = Directory::new();
    for file in ["disk1/atlas/run1/a", "disk1/atlas/run1/b", "disk2/hello", "disk2/inbox/x", "disk3/old"] {
        directory.put(file, file);
    }
    directory.put("serve.toml", EXPORTS);
    directory
}

/// Starts the server. Its standard error stream goes to `err`.
fn serve(directory: &Directory) -> ServerProcess {
    let mut command = directory.command(["serve", "--config", "serve.toml"]);
    command.stderr(disk::create(&directory.host("err")).unwrap());
    ServerProcess::of(command)
}

/// Lines of the standard output, sorted.
fn lines(outcome: &Outcome) -> Vec<&str> {
    let mut lines: Vec<_> = outcome.stdout.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn several_exports_are_one_tree_of_names() {
    let directory = directory();
    let served = serve(&directory);
    assert!(
        directory
            .get("err")
            .contains("serving disk1/atlas as /vo/atlas, disk2 as /public, disk3 as /archive at root://127.0.0.1:")
    );
    assert!(directory.get("err").contains("; may write: everyone below /vo/atlas, everyone below /public/inbox\n"));
    for (url, all) in served.urls().iter().zip(["by-xroot", "by-http"]) {
        let run = |line: &str| directory.run(&line.replace("URL", url));
        assert_eq!(lines(&run("ls URL/").expect(0)), ["archive", "public", "vo"]);
        assert_eq!(lines(&run("ls URL/vo").expect(0)), ["atlas"]);
        assert_eq!(lines(&run("ls URL/vo/atlas/run1").expect(0)), ["a", "b"]);
        assert_eq!(run("cat URL/public/hello").expect(0).stdout, "disk2/hello");
        // From one export to another, by the client.
        run("cp -r URL/public URL/vo/atlas/copy").expect(0);
        assert_eq!(directory.get("disk1/atlas/copy/inbox/x"), "disk2/inbox/x");
        run("rm -r URL/vo/atlas/copy").expect(0);
        run(&format!("cp -r URL/ {all}")).expect(0);
        assert_eq!(directory.get(&format!("{all}/vo/atlas/run1/b")), "disk1/atlas/run1/b");
    }
}

#[test]
fn an_export_has_rights_of_its_own() {
    let directory = directory();
    let served = serve(&directory);
    for url in served.urls() {
        let run = |line: &str| directory.run(&line.replace("URL", &url));
        run("cp disk2/hello URL/vo/atlas/new").expect(0);
        run("rm URL/vo/atlas/new").expect(0);
        run("cp disk2/hello URL/public/new").expect(4);
        run("rm URL/public/hello").expect(4);
        run("cat URL/archive/old").expect(0);
        for line in ["cp disk2/hello URL/archive/new", "rm URL/archive/old", "mkdir URL/archive/d"] {
            let refused = run(line).expect(4);
            assert!(refused.stderr.contains("the export /archive is read-only"), "{line}: {refused:?}");
        }
        for line in ["cp disk2/hello URL/new", "mkdir URL/vo/cms"] {
            let refused = run(line).expect(4);
            assert!(refused.stderr.contains("only the exports can be changed: /vo/atlas, /pub"), "{line}: {refused:?}");
        }
        run("cat URL/typo/hello").expect(3);
    }
    let (url, http) = (&served.urls()[0], &served.urls()[1]);
    directory.run(&format!("cp disk2/hello {url}/public/inbox/{}", "root")).expect(0);
    directory.run(&format!("cp disk2/hello {http}/public/inbox/{}", "http")).expect(0);
    assert_eq!(directory.names("disk2/inbox"), ["http", "root", "x"]);
}

#[tokio::test]
async fn an_export_can_be_neither_removed_nor_renamed_nor_replaced() {
    let directory = directory();
    let served = serve(&directory);
    for (request, fields) in [
        ("DELETE /vo/atlas", vec![]),
        ("DELETE /vo", vec![]),
        ("DELETE /", vec![]),
        ("MOVE /vo/atlas", vec![("Destination", "/vo/other")]),
        ("MOVE /vo/atlas/run1", vec![("Destination", "/vo/atlas")]),
        ("COPY /public", vec![("Destination", "/vo/atlas")]),
        ("COPY /vo", vec![("Destination", "/vo/atlas/in")]),
    ] {
        let response = ask(&served, request, &fields, "").await;
        assert!(response.starts_with("HTTP/1.1 403 Forbidden"), "{request}: {response}");
    }
    let vo = ask(&served, "COPY /vo/", &[("Destination", "/public/inbox/vo")], "").await;
    expect(&vo, &["403 Forbidden", "copied one by one"]);
    let from_public = async |method| {
        ask(&served, &format!("{method} /public/inbox"), &[("Destination", "/vo/atlas/inbox")], "").await
    };
    expect(&from_public("MOVE").await, &["401 Unauthorized"]);
    expect(&from_public("COPY").await, &["201 Created"]);
    assert_eq!(directory.get("disk1/atlas/inbox/x"), "disk2/inbox/x");
    // The old content of the destination stays.
    directory.put(
        "serve.toml",
        &EXPORTS.replace(
            "access.anonymous = [{ path = '/', allow = ['read'] }, ",
            "access.anonymous = [{ path = '/', allow = ['read', 'modify'] }, ",
        ),
    );
    served.signal(Signal::HUP);
    wait_for(&directory, "reloaded the settings\n").await;
    directory.put("disk2/kept/file", "x");
    let replacing = ask(&served, "MOVE /vo/atlas/run1", &[("Destination", "/public/kept")], "").await;
    expect(&replacing, &["501 Not Implemented", "different exports"]);
    assert_eq!(directory.get("disk2/kept/file"), "x");
    // As between two file systems.
    let moved = ask(&served, "MOVE /vo/atlas/run1/a", &[("Destination", "/public/inbox/a")], "").await;
    expect(&moved, &["501 Not Implemented", "different exports"]);
    for url in served.urls() {
        for line in ["rm -r URL/vo/atlas", "rm -r URL/vo", "mv URL/vo/atlas URL/vo/atlas2"] {
            let outcome = directory.run(&line.replace("URL", &url));
            assert_ne!(outcome.code, Some(0), "{line}: {outcome:?}");
        }
    }
    assert_eq!(directory.names("disk1"), ["atlas"]);
}

#[tokio::test]
async fn a_reload_changes_the_rights_of_exports() {
    let directory = directory();
    let served = serve(&directory);
    let get = async |path: &str| ask(&served, &format!("GET {path}"), &[], "").await;
    expect(&get("/public/hello").await, &["200 OK"]);
    expect(&get("/metrics").await, &["200 OK"]);
    directory.put("serve.toml", &EXPORTS.replace("path = '/', allow = ['read']", "path = '/inbox', allow = ['read']"));
    served.signal(Signal::HUP);
    wait_for(&directory, "reloaded the settings\n").await;
    expect(&get("/public/hello").await, &["401 Unauthorized"]);
    expect(&get("/public/inbox/x").await, &["200 OK"]);
    // The metrics need the right to read all exports.
    expect(&get("/metrics").await, &["404 Not Found"]);
    // A server has one directory or exports, also after a reload.
    directory.put("serve.toml", &format!("root = 'disk1'\n{EXPORTS}"));
    served.signal(Signal::HUP);
    wait_for(&directory, "both `root` and [[export]]").await;
    // Other exports than those that are served: their rights must not apply to the old directories.
    let only_archive = EXPORTS.split("[[export]]\nprefix = '/public'").next().unwrap();
    for (settings, count) in [(EXPORTS.replace("disk3", "disk4"), 1), (only_archive.to_owned(), 2)] {
        directory.put("serve.toml", &settings);
        served.signal(Signal::HUP);
        while directory.get("err").matches("have changed, which needs a restart").count() < count {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        expect(&get("/public/hello").await, &["401 Unauthorized"]);
    }
}

#[test]
fn check_and_explain_know_exports() {
    let directory = directory();
    let table = directory.run("serve --config serve.toml --check").expect(0);
    for part in [
        "ok      root disk1/atlas: can be opened\n",
        "ok      root disk3: can be opened\n",
        "everyone  /vo/atlas      read, modify\n",
        "everyone  /archive       read\n",
        "everyone  /public        read\n",
        "everyone  /public/inbox  create\n",
        "nobody    /archive       change anything: the export is read-only\n",
    ] {
        assert!(table.stdout.contains(part), "{part} is missing: {}", table.stdout);
    }
    assert!(!table.stdout.contains("WARNING"), "{}", table.stdout);
    directory.put("serve.toml", &EXPORTS.replace("root = 'disk3'", "root = 'disk2/../disk2/inbox'"));
    let table = directory.run("serve --config serve.toml --check").expect(0);
    let shared = "export.root: /public (disk2) and /archive (disk2/../disk2/inbox) share files";
    assert!(table.stdout.contains(shared), "{}", table.stdout);
    directory.put("serve.toml", EXPORTS);
    let explained = directory.run("access explain /archive/old --config serve.toml").expect(0);
    let outside = directory.run("access explain /typo --config serve.toml").expect(0);
    assert!(outside.stdout.contains("read                no   no export contains this path"), "{}", outside.stdout);
    for part in ["read                yes  everyone may read /archive", "no   the export /archive is read-only"] {
        assert!(explained.stdout.contains(part), "{part} is missing: {}", explained.stdout);
    }
}

#[test]
fn wrong_exports_are_refused_with_the_reason() {
    let directory = directory();
    for (settings, problem) in [
        (format!("root = 'disk1'\n{EXPORTS}"), "both `root` and [[export]]"),
        (EXPORTS.replace("'/public'", "'/vo/atlas/public'"), "one contains the other"),
        (EXPORTS.replace("path = '/'\n", "path = '/atlas'\n"), "anonymous path `/atlas`: no export contains this path"),
        (EXPORTS.replace("path = '/'\n", "path = '/public/x'\n"), "the export /public has rules of its own"),
        (EXPORTS.replace("disk3", "none"), "none: "),
        (EXPORTS.replace("writable", "writeable"), "did you mean `writable`?"),
    ] {
        directory.put("serve.toml", &settings);
        let refused = directory.run("serve --config serve.toml");
        assert!(refused.code != Some(0) && refused.stderr.contains(problem), "{problem}: {refused:?}");
    }
    directory.put("serve.toml", EXPORTS);
    let refused = directory.run("serve disk1 --config serve.toml").expect(2);
    assert!(refused.stderr.contains("both `root` and [[export]]"), "{refused:?}");
}
