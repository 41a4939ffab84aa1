//! Third-party copies between two servers in separate processes.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use towpath_store::sys::net;

use super::program::{Directory, ServerProcess, towpath};

/// Returns the response of the server to a COPY of `target` with this additional header field.
async fn copy(server: &ServerProcess, target: &str, field: &str) -> String {
    let mut stream = net::connect(server.address).await.unwrap();
    let request = format!("COPY {target} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n{field}\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

#[tokio::test]
async fn files_are_fetched_and_sent() {
    let (ours, theirs) = (Directory::new(), Directory::new());
    let content = "some bytes ".repeat(90_000);
    theirs.put("export/file", &content);
    ours.put("export/none", "");
    ours.put("serve.toml", "[third_party]\nanonymous = true\nallow = [\"127.0.0.1\"]\n");
    let settings = ours.host("serve.toml");
    let here = ServerProcess::start_with(&ours.host("export"), &["--writable", "--config", settings.to_str().unwrap()]);
    let there = ServerProcess::start_with(&theirs.host("export"), &["--writable"]);
    let fetched = copy(&here, "/copy", &format!("Source: http://{}/file", there.address)).await;
    assert!(fetched.starts_with("HTTP/1.1 202") && fetched.contains("\nsuccess: Created\n"), "{fetched}");
    let sent = copy(&here, "/copy", &format!("Destination: http://{}/back", there.address)).await;
    assert!(sent.contains("Stripe Bytes Transferred: 990000\n") && sent.contains("\nsuccess: Created\n"), "{sent}");
    assert!(ours.get("export/copy") == content && theirs.get("export/back") == content);
}

#[tokio::test]
async fn copies_use_no_proxy() {
    let directory = Directory::new();
    directory.put("export/file", "content");
    let there = ServerProcess::start(&directory.host("export"));
    for allow in ["127.0.0.1", "*"] {
        directory.put("serve.toml", &format!("[third_party]\nanonymous = true\nallow = [\"{allow}\"]\n"));
        let settings = directory.host("serve.toml");
        let mut command = towpath(["serve", "--listen", "127.0.0.1:0", "--writable", "--config"]);
        command.arg(settings).arg(directory.host("export")).env("http_proxy", "http://127.0.0.1:1");
        let here = ServerProcess::of(command);
        let fetched = copy(&here, "/copy", &format!("Source: http://{}/file\r\nOverwrite: T", there.address)).await;
        assert!(fetched.contains("\nsuccess: Created\n"), "{allow}: {fetched}");
    }
}

#[tokio::test]
async fn a_server_leads_nobody_to_its_own_machine() {
    let directory = Directory::new();
    directory.put("serve.toml", "[third_party]\nanonymous = true\n");
    let settings = directory.host("serve.toml");
    for (options, status) in [(vec![], "401"), (vec!["--config", settings.to_str().unwrap()], "403")] {
        let here = ServerProcess::start_with(&directory.host(""), &[vec!["--writable"], options].concat());
        let refused = copy(&here, "/copy", &format!("Source: http://{}/file", here.address)).await;
        assert!(refused.starts_with(&format!("HTTP/1.1 {status}")), "{refused}");
    }
}

#[tokio::test]
async fn cp_has_storages_copy_between_themselves() {
    let (ours, theirs) = (Directory::new(), Directory::new());
    let content = "some bytes ".repeat(90_000);
    ours.put("export/file", &content);
    theirs.put("export/none", "");
    theirs.put("serve.toml", "[third_party]\nanonymous = true\nallow = [\"127.0.0.1\"]\n");
    let settings = theirs.host("serve.toml");
    let here = ServerProcess::start_with(&ours.host("export"), &["--writable"]);
    let there =
        ServerProcess::start_with(&theirs.host("export"), &["--writable", "--config", settings.to_str().unwrap()]);
    for (from, to) in std::iter::zip(here.urls(), there.urls()) {
        let copy = |options: &str, from: &str, to: &str| theirs.run(&format!("cp --json -v {options} {from} {to}"));
        let (file, name) = (format!("{from}/file"), to.split(':').next().unwrap());
        let done = copy("--third-party only --checksum adler32", &file, &format!("{to}/{name}")).expect(0);
        assert!(done.stdout.contains(r#""route":"pull""#) && done.stdout.contains("adler32:"), "{done:?}");
        assert_eq!(theirs.get(&format!("export/{name}")), content);
        // The other server may not connect to this machine: over HTTP the source pushes the file, over xroot the copy
        // fails.
        let (back, again) = (format!("{to}/{name}"), format!("{from}/{name}"));
        let done = copy("--third-party auto", &back, &again).expect(0);
        let route = if name == "http" { "push" } else { "streamed" };
        assert!(done.stdout.contains(&format!(r#""route":"{route}""#)), "{done:?}");
        assert_eq!(ours.get(&format!("export/{name}")), content);
        copy("--third-party only", &file, theirs.host("local").to_str().unwrap()).expect(5);
        theirs.put("export/other", "other");
        let exists = copy("--third-party auto", &file, &format!("{to}/other")).expect(6);
        assert!(exists.stderr.contains("exists"), "{exists:?}");
    }
}
