//! Text after `?` in a URL may be a secret, and is not printed.

use std::sync::{Arc, Mutex};

use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use towpath_store::sys::net;

use super::program::{Directory, Outcome};

#[test]
fn what_is_told_of_a_url_has_nothing_behind_its_question_mark() {
    let directory = Directory::new();
    directory.put("d/file", "content");
    let served = directory.serve();
    let [root, _] = served.urls();
    for (command, path) in
        [("stat", "d/file"), ("sum", "d/file"), ("ls", "d/file"), ("df", "d"), ("ping -c 1", "d/file")]
    {
        let url = format!("{root}/{path}");
        for flag in ["", " --json"] {
            let told = directory.run(&format!("{command}{flag} {url}?key=hush")).expect(0).stdout;
            assert!(told.contains(&url) && !told.contains("hush"), "{command}: {told}");
        }
    }
}

#[test]
fn a_url_that_cannot_be_read_is_not_told_with_its_secrets() {
    let directory = Directory::new();
    for (line, told) in [
        ("cp root://host:99999//f?authz=hush .", "towpath: cp: root://host:99999//f: the port"),
        ("probe root://host:99999//f?authz=hush", "towpath: probe: root://host:99999//f: the port"),
        ("stat root://alice:hush@host//f", "towpath: stat: root://***@host//f: the user"),
    ] {
        let outcome = directory.run(line).expect(2);
        assert!(outcome.stderr.contains(told) && !outcome.stderr.contains("hush"), "{outcome:?}");
    }
}

/// Responds to all requests that they are denied; returns the URL without its scheme, and the credentials received.
fn denying_server() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let credentials = Arc::<Mutex<Vec<String>>>::default();
    let received = Arc::clone(&credentials);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let received = Arc::clone(&received);
            tokio::spawn(async move {
                let (reader, mut writer) = stream.into_split();
                let mut lines = BufReader::new(reader).lines();
                while let Ok(Some(line)) = lines.next_line().await {
                    if let Some(value) = line.to_ascii_lowercase().strip_prefix("authorization: ") {
                        received.lock().unwrap().push(line[line.len() - value.len()..].to_owned());
                    }
                    if line.is_empty() {
                        let response = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n";
                        writer.write_all(response).await.unwrap();
                    }
                }
            });
        }
    });
    (address, credentials)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_has_the_user_of_the_first_attempt() {
    let directory = Directory::new();
    let (address, credentials) = denying_server();
    directory
        .put("netrc", "machine 127.0.0.1 login bob password of-bob\nmachine 127.0.0.1 login alice password of-alice\n");
    let run = |line: &str| {
        let output = directory.command(line.split(' ')).env("NETRC", directory.host("netrc")).output().unwrap();
        std::mem::take(&mut *credentials.lock().unwrap());
        Outcome::from(output)
    };
    let outcome = run(&format!("cp --failed-to lost http://alice:hush@{address}/f x")).expect(4);
    assert!(!outcome.stderr.contains("alice") && !outcome.stderr.contains("hush"), "{outcome:?}");
    let list = directory.get("lost");
    assert!(list.contains(&format!("\"at\":\"http://alice@{address}\"")) && !list.contains("hush"), "{list}");
    let mut command = directory.command(["cp", "--retry-from", "lost"]);
    let outcome = Outcome::from(command.env("NETRC", directory.host("netrc")).output().unwrap()).expect(4);
    let sent = credentials.lock().unwrap().clone();
    // alice:of-alice
    assert!(!sent.is_empty() && sent.iter().all(|value| value == "Basic YWxpY2U6b2YtYWxpY2U="), "{sent:?} {outcome:?}");
}

#[test]
fn the_output_of_find_has_the_user_of_a_url_for_other_commands() {
    let directory = Directory::new();
    directory.put("d/file", "content");
    let served = directory.serve();
    let url = |user: &str| format!("http://{user}@{}/d", served.address);
    let outcome = directory.run(&format!("find {}?key=hush", url("alice:hush"))).expect(0);
    assert_eq!(outcome.stdout, format!("{0}\n{0}/file\n", url("alice")));
    let outcome = directory.run(&format!("du {}", url("alice"))).expect(0);
    assert!(!outcome.stdout.contains("alice"), "{outcome:?}");
}

#[test]
fn du_of_a_root_prints_urls_with_two_slashes() {
    let directory = Directory::new();
    directory.put("d/file", "content");
    let served = directory.serve();
    let [root, http] = served.urls();
    assert_eq!(directory.run(&format!("du {root}/")).expect(0).stdout, format!("7\t{root}/d\n7\t{root}/\n"));
    assert_eq!(directory.run(&format!("du {http}/")).expect(0).stdout, format!("7\t{http}/d\n7\t{http}/\n"));
}
