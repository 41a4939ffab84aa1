//! `cp`: results and refused copies.

use std::{os::unix::fs::PermissionsExt, process::Command};

use super::program::{Directory, ServerProcess};

#[test]
fn a_tree_is_not_copied_into_itself() {
    let directory = Directory::new();
    directory.put("s/file", "content");
    directory.link("alias", "s");
    let served = directory.serve();
    let [root, http] = served.urls();
    for (from, to) in [
        ("s", "s/x"),
        ("s", "s"),
        ("s", "alias/x"),
        ("alias", "s/x"),
        (&format!("{root}/s"), &format!("{root}/s/x")),
        (&format!("{root}/s"), &format!("{root}/alias/x")),
        (&format!("{http}/s"), &format!("{root}/s/x")),
    ] {
        let outcome = directory.run(&format!("cp -r {from} {to}")).expect(5);
        assert!(outcome.stderr.contains("it cannot be copied to"), "{outcome:?}");
        assert_eq!(directory.names("s"), ["file"]);
    }
    directory.run("cp -f s/file s/file").expect(5);
    assert_eq!(directory.get("s/file"), "content");
}

/// The tree has enough directories for one batch of listings to be entirely empty.
#[test]
fn empty_directories_do_not_end_the_walk_through_a_tree() {
    let directory = Directory::new();
    for number in 0..10 {
        for empty in 0..100 {
            std::fs::create_dir_all(directory.host(&format!("s/{number}/{empty}"))).unwrap();
        }
        directory.put(&format!("s/{number}/full/file"), "content");
    }
    let served = directory.serve();
    for (number, from) in ["".into()].into_iter().chain(served.urls().map(|url| format!("{url}/"))).enumerate() {
        let listed = directory.run(&format!("ls -R {from}s")).expect(0).stdout;
        assert_eq!(listed.lines().count(), 10 + 1010 + 10, "{from}");
        directory.run(&format!("cp -r {from}s copy-{number}")).expect(0);
        for full in 0..10 {
            assert_eq!(directory.names(&format!("copy-{number}/{full}/full")), ["file"], "{from}");
        }
    }
    directory.run("rm -r s").expect(0);
    assert!(!directory.host("s").exists());
}

#[test]
fn links_are_followed_unless_that_would_never_end() {
    let directory = Directory::new();
    directory.put("elsewhere/file", "content");
    directory.put("s/d/e/file", "content");
    directory.link("s/file", "../elsewhere/file");
    directory.link("s/directory", "../elsewhere");
    directory.run("cp -r s good").expect(0);
    assert_eq!(directory.names("good/directory"), ["file"]);
    assert!(!directory.host("good/directory").is_symlink());
    assert_eq!(directory.get("good/file"), "content");
    directory.link("s/d/e/up", "../..");
    directory.link("s/d/all", "../..");
    let outcome = directory.run("cp -r s bad").expect(5);
    assert_eq!(outcome.stderr.matches("it is skipped").count(), 2, "{outcome:?}");
    assert_eq!(directory.names("bad/d"), ["e"]);
    assert_eq!(directory.names("bad/d/e"), ["file"]);
    directory.link("beside", ".");
    std::fs::create_dir(directory.host("other")).unwrap();
    directory.link("other/out", "..");
    directory.run("cp -r other s/new").expect(5);
}

/// Directories may have the name and the content of their parent.
#[test]
fn a_link_to_a_directory_above_is_not_followed_from_afar() {
    let directory = Directory::new();
    let deep = format!("s/zarr/{}/chunk", ["0"; 12].join("/"));
    directory.put(&deep, "content");
    directory.put("s/d/file", "content");
    directory.put("s/d/e/d/file", "another directory of that name");
    directory.link("s/d/self", ".");
    directory.link("s/d/up", "..");
    let served = directory.serve();
    for url in served.urls() {
        let outcome = directory.run(&format!("cp -r {url}/s t")).expect(5);
        assert_eq!(outcome.stderr.matches("it is skipped").count(), 2, "{outcome:?}");
        assert_eq!(directory.get(&deep.replacen("s/", "t/", 1)), "content");
        assert_eq!(directory.names("t/d"), ["e", "file"]);
        assert_eq!(directory.names("t/d/e/d"), ["file"]);
        directory.run("rm -r t").expect(0);
    }
}

#[test]
fn of_a_tree_only_what_is_chosen_is_copied() {
    let directory = Directory::new();
    for name in ["a.root", "a.txt", "d/b.root", "d/e/large.root", "d/tmp/c.root", "tmp", "none/x.txt"] {
        directory.put(&format!("s/{name}"), if name.contains("large") { "a long content" } else { "short" });
    }
    let served = directory.serve();
    let sources = ["".into()].into_iter().chain(served.urls().map(|url| format!("{url}/")));
    for (number, from) in sources.enumerate() {
        let flags = "--exclude tmp/ --include *.root --max-size 10";
        directory.run(&format!("cp -r {flags} {from}s copy-{number}")).expect(0);
        assert_eq!(directory.names(&format!("copy-{number}")), ["a.root", "d"], "{from}");
        assert_eq!(directory.names(&format!("copy-{number}/d")), ["b.root"], "{from}");
    }
    directory.run("cp -r --exclude *.root --exclude /d/ s rest").expect(0);
    assert_eq!(directory.names("rest"), ["a.txt", "none", "tmp"]);
    directory.run("cp --include x s/tmp copy").expect(2);
    directory.run("cp -r --include [ s copy").expect(2);
}

#[test]
fn two_sources_do_not_become_one() {
    let directory = Directory::new();
    directory.put("p/f", "p");
    directory.put("q/f", "q");
    std::fs::create_dir(directory.host("out")).unwrap();
    let outcome = directory.run("cp -f p/f q/f out").expect(5);
    let named = ["p/f", "q/f", "out/f"].map(|name| directory.host(name).display().to_string());
    let [p, q, out] = named;
    assert!(outcome.stderr.contains(&format!("{out}: {p} and {q} would both be copied to it")), "{outcome:?}");
    assert!(directory.names("out").is_empty());
}

#[test]
fn what_is_there_is_skipped_if_asked() {
    let directory = Directory::new();
    directory.put("s/same", "same");
    directory.put("s/changes", "before");
    // A time of this moment shows nothing.
    directory.age("s/same", 100);
    directory.age("s/changes", 100);
    std::fs::create_dir(directory.host("t")).unwrap();
    let served = directory.serve();
    let [root, http] = served.urls();
    for target in [".", &format!("{root}/"), &format!("{http}/")] {
        directory.run("rm -r t").expect(0);
        std::fs::create_dir(directory.host("t")).unwrap();
        let line = format!("cp -r s {target}t").replace(".t", "t");
        directory.run(&line).expect(0);
        let outcome = directory.run(&line).expect(0);
        assert!(outcome.stderr.contains("2 files are the same already: skipped (-f replaces them"), "{outcome:?}");
        let outcome = directory.run(&format!("{line} --skip-existing")).expect(0);
        assert!(outcome.stderr.contains("0 files") && outcome.stderr.contains("2 already present"), "{outcome:?}");
        directory.put("t/s/changes", "other size");
        directory.run(&line).expect(6);
        directory.run(&format!("{line} --skip-existing")).expect(6);
        let outcome = directory.run(&format!("{line} --skip-existing -f --json")).expect(0);
        assert!(outcome.stdout.contains("\"skipped\":1"), "{outcome:?}");
        assert_eq!(directory.get("t/s/changes"), "before");
    }
}

#[test]
fn a_digest_that_is_insisted_on_is_compared_at_both_ends() {
    let directory = Directory::new();
    directory.put("written", "content");
    // Now the source has digests, too.
    directory.run("cp written known").expect(0);
    let served = directory.serve();
    let [root, http] = served.urls();
    for source in ["written", "known"] {
        for target in ["local", &format!("{root}/root"), &format!("{http}/http")] {
            let outcome = directory.run(&format!("cp -f --json --checksum md5 {source} {target}")).expect(0);
            assert!(outcome.stdout.contains("md5:9a0364b9e99bb480dd25e1f0284c8555"), "{target}: {outcome:?}");
        }
    }
}

#[test]
fn a_source_cannot_open_files_to_others() {
    let directory = Directory::new();
    directory.put("open", "content");
    std::fs::set_permissions(directory.host("open"), PermissionsExt::from_mode(0o777)).unwrap();
    let served = directory.serve();
    for source in ["open", &format!("{}/open", served.urls()[0])] {
        let line = format!("umask 027; exec {} cp -f {source} copy", env!("CARGO_BIN_EXE_towpath"));
        let status = Command::new("sh").args(["-c", &line]).current_dir(directory.host("")).status().unwrap();
        assert!(status.success());
        assert_eq!(directory.host("copy").metadata().unwrap().permissions().mode() & 0o777, 0o750, "{source}");
    }
}

#[test]
fn a_remote_file_is_not_replaced_by_itself() {
    let directory = Directory::new();
    directory.put("file", "content");
    directory.link("alias", "file");
    let served = directory.serve();
    let [root, _] = served.urls();
    let other_name = root.replace("127.0.0.1", "localhost");
    for (from, to) in
        [(format!("{root}/file"), format!("{other_name}/file")), (format!("{root}/alias"), format!("{root}/file"))]
    {
        let outcome = directory.run(&format!("cp -f {from} {to}")).expect(5);
        assert!(outcome.stderr.contains("which is the same file"), "{outcome:?}");
        assert_eq!(directory.get("file"), "content");
    }
    directory.put("other", "another");
    directory.run(&format!("cp -f {root}/other {root}/file")).expect(0);
}

#[test]
fn a_directory_is_copied_only_if_asked() {
    let directory = Directory::new();
    directory.put("d/file", "content");
    let served = directory.serve();
    let [root, http] = served.urls();
    for source in ["d", &format!("{root}/d"), &format!("{http}/d")] {
        let outcome = directory.run(&format!("cp {source} copy")).expect(5);
        assert!(outcome.stderr.contains("use -r to copy it"), "{outcome:?}");
    }
}

#[test]
fn what_is_out_of_reach_is_not_tried_for_ever() {
    let directory = Directory::new();
    std::fs::create_dir(directory.host("t")).unwrap();
    // No server listens on this port.
    let sources: Vec<_> = (0..50).map(|number| format!("root://127.0.0.1:1//{number}")).collect();
    let outcome = directory.run(&format!("cp --files 2 {} t", sources.join(" "))).expect(8);
    assert!(outcome.stderr.contains("16 files in a row failed"), "{outcome:?}");
    assert_eq!(outcome.stderr.matches("towpath: cp: root://127.0.0.1:1//").count(), 50);
    let untried = outcome.stderr.matches("it was not tried").count();
    assert!((30..=34).contains(&untried), "all but those under way: {outcome:?}");
}

#[test]
fn a_program_is_told_what_failed() {
    let directory = Directory::new();
    directory.put("s/a", "new");
    directory.put("t/s/a", "older");
    let outcome = directory.run("cp -r --json s t").expect(6);
    assert!(outcome.stdout.contains("\"error\":\"AlreadyExists\"") && outcome.stdout.contains("/t/s/a"), "{outcome:?}");
}

#[test]
fn a_copy_says_where_its_time_went() {
    let directory = Directory::new();
    directory.put("file", &"content".repeat(1_000_000));
    let served = directory.serve();
    for (number, url) in served.urls().into_iter().enumerate() {
        let told = directory.run(&format!("cp --explain {url}/file down-{number}")).expect(0).stderr;
        assert!(told.contains("\nwhere 0.") && told.contains("\nverdict: "), "{told}");
        let told = directory.run(&format!("cp --json file {url}/up-{number}")).expect(0).stdout;
        let total: serde_json::Value = serde_json::from_str(told.lines().last().unwrap()).unwrap();
        let explained = &total["explained"];
        let spent: f64 =
            explained["spent"].as_array().unwrap().iter().map(|one| one["seconds"].as_f64().unwrap()).sum();
        assert!((spent - explained["seconds"].as_f64().unwrap()).abs() < 1e-6, "{explained}");
        assert!(explained["legs"]["in"].is_null(), "the source is on this machine: {explained}");
        assert!(explained["legs"]["out"]["bytes"].as_u64().unwrap() <= 7_100_000, "{explained}");
        assert!(explained["verdict"]["cause"].is_string(), "{explained}");
    }
    let told = directory.run("cp file other").expect(0).stderr;
    assert!(!told.contains("verdict"), "of a short copy nobody asked: {told}");
}

#[test]
fn a_run_that_copied_nothing_gets_no_verdict() {
    let directory = Directory::new();
    directory.put("file", "content");
    directory.put("copy", "content");
    directory.age("copy", 4_000_000_000);
    let gone = "root://127.0.0.1:1//file";
    for (line, code) in [(format!("{gone} t"), 8), (format!("-r {gone} t"), 8), (format!("{gone} -"), 8)] {
        let outcome = directory.run(&format!("cp --explain {line}")).expect(code);
        assert!(!outcome.stderr.contains("verdict") && !outcome.stderr.contains("where "), "{outcome:?}");
    }
    let outcome = directory.run("cp --explain --update file copy").expect(0);
    assert!(!outcome.stderr.contains("verdict") && !outcome.stderr.contains("where "), "{outcome:?}");
    let outcome = directory.run(&format!("cp --json {gone} t")).expect(8);
    assert!(!outcome.stdout.contains("explained"), "{outcome:?}");
    let outcome = directory.run(&format!("sync --explain {gone} t")).expect(8);
    assert!(!outcome.stderr.contains("verdict"), "{outcome:?}");
}

#[test]
fn a_dry_run_prints_the_copies_and_changes_nothing() {
    let directory = Directory::new();
    directory.put("s/new", "new");
    directory.put("s/d/same", "same");
    directory.put("s/other", "longer than there");
    directory.age("s/d/same", 100);
    std::fs::create_dir_all(directory.host("t/s/d")).unwrap();
    directory.run("cp -p s/d/same t/s/d/same").expect(0);
    directory.put("t/s/other", "other");
    let served = directory.serve();
    let [root, http] = served.urls();
    for (from, to) in [("", ""), (&format!("{root}/"), ""), ("", &format!("{root}/")), ("", &format!("{http}/"))] {
        let outcome = directory.run(&format!("cp -R -n {from}s {to}t")).expect(6);
        let lines: Vec<_> = outcome.stdout.lines().collect();
        assert!(lines.len() == 1 && lines[0].starts_with("copy ") && lines[0].ends_with("/t/s/new"), "{outcome:?}");
        assert!(outcome.stderr.contains("t/s/other: exists already"), "{outcome:?}");
        assert!(outcome.stderr.contains("1 file to be copied") && outcome.stderr.contains("1 is the same"));
        let outcome = directory.run(&format!("cp -r -f --dry-run {from}s {to}t/new")).expect(0);
        assert_eq!(outcome.stdout.matches("copy ").count(), 3, "{outcome:?}");
        assert_eq!(outcome.stdout.matches("mkdir ").count(), 2, "{outcome:?}");
        let line = directory.run(&format!("cp -n --json {from}s/new {to}t/s")).expect(0).stdout;
        assert!(line.contains("\"action\":\"copy\"") && line.contains("\"dry_run\":true"), "{line}");
        directory.run(&format!("cp -n {from}s {to}t")).expect(5);
        directory.run(&format!("cp -n {from}missing {to}t")).expect(3);
        assert_eq!(directory.names("t/s"), ["d", "other"]);
        assert_eq!(directory.names("t"), ["s"]);
    }
    directory.run("cp -n - t/stream").expect(2);
}

#[test]
fn an_update_replaces_older_files_only() {
    let directory = Directory::new();
    let put = |name: &str, content: &str, seconds| {
        directory.put(name, content);
        directory.age(name, seconds);
    };
    let served = directory.serve();
    let [root, http] = served.urls();
    for to in ["", &format!("{root}/"), &format!("{http}/")] {
        for (name, ours, theirs) in [("older", 200, 100), ("newer", 100, 200), ("same", 100, 100)] {
            put(&format!("s/{name}"), "source", ours);
            put(&format!("t/s/{name}"), "destination", theirs);
        }
        put("s/missing", "source", 1);
        let outcome = directory.run(&format!("cp -r -u s {to}t")).expect(0);
        assert!(outcome.stderr.contains("2 files") && outcome.stderr.contains("2 not older"), "{to}: {outcome:?}");
        let contents = ["older", "newer", "same", "missing"].map(|name| directory.get(&format!("t/s/{name}")));
        assert_eq!(contents, ["source", "destination", "destination", "source"], "{to}");
        put("s/newer", "changed", 300);
        directory.run(&format!("cp -u s/newer s/same {to}t/s")).expect(0);
        assert_eq!(directory.get("t/s/newer"), "changed", "{to}");
        assert_eq!(directory.get("t/s/same"), "destination", "{to}");
        directory.run("rm -r s t").expect(0);
    }
    directory.run("cp -u --skip-existing a b").expect(2);
}

#[test]
fn a_digest_is_printed_and_expected_as_by_xrdcp() {
    let directory = Directory::new();
    directory.put("file", "content");
    let served = directory.serve();
    let digest = directory.run("sum file").expect(0).stdout[..8].to_owned();
    for (number, url) in served.urls().iter().enumerate() {
        let outcome = directory.run(&format!("cp --cksum adler32:print {url}/file print-{number}")).expect(0);
        assert!(outcome.stderr.contains(&format!("adler32:{digest} ")), "{outcome:?}");
        directory.run(&format!("cp --cksum adler32:{digest} {url}/file right-{number}")).expect(0);
        directory.run(&format!("cp --cksum adler32:source file {url}/source-{number}")).expect(0);
        let outcome = directory.run(&format!("cp --cksum adler32:00000001 {url}/file wrong")).expect(7);
        assert!(outcome.stderr.contains("adler32"), "{outcome:?}");
        directory.run(&format!("cp --cksum adler32:00000001 file {url}/wrong")).expect(7);
        assert!(!directory.host("wrong").exists());
    }
    directory.run("cp --cksum adler32:00000001 file file .").expect(2);
    directory.run("cp -r --cksum adler32:00000001 file copy").expect(2);
    directory.run("sync --checksum adler32:00000001 file copy").expect(2);
}

#[test]
fn a_digest_other_than_the_expected_one_is_reported_with_both_values() {
    let directory = Directory::new();
    directory.put("file", "content");
    let served = directory.serve();
    let digest = directory.run("sum file").expect(0).stdout[..8].to_owned();
    let [root, http] = served.urls();
    // A server reports the digests of the files that it received with each response over HTTP.
    directory.run(&format!("cp file {root}/known")).expect(0);
    let differs = format!("its adler32 is {digest}, expected 00000001");
    let arrived = format!("the data have adler32:{digest}, but adler32:00000001 was expected");
    for (sources, message) in [
        (format!("{http}/known"), &differs),
        (format!("--source {http}/known {http}/known"), &differs),
        (format!("{root}/known"), &arrived),
        (format!("{root}/file"), &arrived),
        (format!("{http}/file"), &arrived),
        ("file".to_owned(), &arrived),
    ] {
        let outcome = directory.run(&format!("cp --checksum adler32:00000001 {sources} wrong")).expect(7);
        assert!(outcome.stderr.contains(message), "{outcome:?}");
        assert!(!outcome.stderr.contains("at fault") && !outcome.stderr.contains("a retry may"), "{outcome:?}");
        assert!(!directory.host("wrong").exists());
    }
    let line = format!("cp --checksum adler32:00000001 --source {http}/file {root}/file wrong");
    let outcome = directory.run(&line).expect(7);
    assert!(!outcome.stderr.contains("a retry may"), "{outcome:?}");
    let line = format!("cp --checksum adler32:{digest} --source {http}/file {root}/known right");
    directory.run(&line).expect(0);
}

#[test]
fn an_upload_without_rights_is_refused_for_the_upload() {
    let directory = Directory::new();
    directory.put("file", "content");
    directory.put("data/public/file", "content");
    let settings =
        "listen = ['127.0.0.1:0']\nroot = 'data'\n[[access.anonymous]]\npath = '/public'\nallow = ['read']\n";
    directory.put("serve.toml", settings);
    let served = ServerProcess::of(directory.command(["serve", "--config", "serve.toml"]));
    for url in served.urls() {
        for line in ["cp file URL/inbox/file", "cp -f file URL/inbox/file", "cp -q - URL/inbox/file", "mkdir URL/inbox"]
        {
            let outcome = directory.run(&line.replace("URL", &url)).expect(4);
            assert!(outcome.stderr.contains("anonymous callers may not create this"), "{line}: {outcome:?}");
            assert!(!outcome.stderr.contains("stat this"), "{line}: {outcome:?}");
        }
        let outcome = directory.run(&format!("cp -r data {url}/inbox")).expect(4);
        assert!(outcome.stderr.contains("cannot check whether it is a directory: "), "{outcome:?}");
        assert!(outcome.stderr.contains("may not stat this"), "{outcome:?}");
    }
}

#[test]
fn options_of_other_programs_are_explained() {
    let directory = Directory::new();
    let outcome = directory.run("cp --transfers 8 a b").expect(2);
    assert!(outcome.stderr.starts_with("towpath: no option --transfers (of rclone): use --files N"), "{outcome:?}");
    let outcome = directory.run("sync --checksum a b").expect(2);
    assert!(outcome.stderr.contains("use towpath sync --compare digest"), "{outcome:?}");
    let outcome = directory.run("copy a b").expect(2);
    assert!(outcome.stderr.starts_with("towpath: no command copy (of rclone): use towpath sync"), "{outcome:?}");
    let outcome = directory.run("cp --tpc first --limit 10MB/s missing b").expect(3);
    assert!(outcome.stderr.contains("missing"), "{outcome:?}");
}
