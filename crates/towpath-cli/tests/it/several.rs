//! One file from several sources, named one by one or by a Metalink.

use std::sync::{Arc, Mutex};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use towpath_store::sys::net;

use super::program::{Directory, Outcome, ServerProcess};

/// Content of many pieces, as text, for readable comparisons.
fn content() -> String {
    (0..600_000).map(|line| format!("line {line} of a file\n")).collect()
}

/// A directory with several copies of the file, one of them different.
struct Sites {
    directory: Directory,
    good: [ServerProcess; 2],
    wrong: ServerProcess,
    content: String,
}

impl Sites {
    fn new() -> Self {
        let (directory, content) = (Directory::new(), content());
        for site in ["one", "two"] {
            directory.put(&format!("{site}/file"), &content);
        }
        directory.put("wrong/file", "another");
        let serve = |name: &str| ServerProcess::start(&directory.host(name));
        let (good, wrong) = ([serve("one"), serve("two")], serve("wrong"));
        Self { directory, good, wrong, content }
    }

    fn urls(&self) -> [String; 3] {
        let [one, two] = &self.good;
        [format!("{}/file", one.urls()[0]), format!("{}/file", two.urls()[1]), format!("{}/file", self.wrong.urls()[1])]
    }

    /// No server listens on this port.
    fn nowhere() -> &'static str {
        "root://127.0.0.1:1//file"
    }

    fn arrived(&self, name: &str) {
        let read = towpath_store::sys::disk::read(&self.directory.host(name), 1 << 30).unwrap();
        assert!(read == self.content.as_bytes());
    }
}

#[test]
fn a_file_comes_from_all_its_sources_and_the_bad_ones_are_told() {
    let sites = Sites::new();
    let [one, two, wrong] = sites.urls();
    let nowhere = Sites::nowhere();
    let line = format!("cp --json --source {two} --source {wrong} --source {nowhere} {one} copy");
    let outcome = sites.directory.run(&line).expect(0);
    sites.arrived("copy");
    let told: serde_json::Value = serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap();
    let sources = told["sources"].as_array().unwrap();
    let bytes: Vec<_> = sources.iter().map(|source| source["bytes"].as_u64().unwrap()).collect();
    assert_eq!((bytes[0] + bytes[1], bytes[2], bytes[3]), (sites.content.len() as u64, 0, 0));
    assert_eq!((&sources[2]["error"], &sources[3]["error"]), (&"Changed".into(), &"Unavailable".into()));
    assert_eq!(outcome.stderr.matches("was left out").count(), 2, "{outcome:?}");
    // The first source may be unreachable.
    sites.directory.run(&format!("cp -q --source {one} --source {two} {nowhere} other")).expect(0);
    sites.arrived("other");
    let failed = sites.directory.run(&format!("cp -q --source {nowhere} {nowhere} none")).expect(8);
    assert!(failed.stderr.contains("all 2 sources failed"), "{failed:?}");
    assert!(!sites.directory.host("none").exists());
}

#[test]
fn a_metalink_is_followed() {
    let sites = Sites::new();
    let [one, two, wrong] = sites.urls();
    let size = sites.content.len();
    sites.directory.put("plain", &sites.content);
    let sum = sites.directory.run("sum -a sha256 plain").expect(0).stdout;
    let sum = sum.split(' ').next().unwrap();
    let file = |name: &str, sum: &str| {
        format!(
            "<file name=\"{name}\"><size>{size}</size><hash type=\"sha-256\">{sum}</hash><url priority=\"3\">{one}</url>\
             <url priority=\"2\">{two}</url><url priority=\"1\">{wrong}</url><url>file:///etc/passwd</url></file>"
        )
    };
    let write = |name: &str, files: &[String]| {
        let files = files.concat();
        sites.directory.put(name, &format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\">{files}</metalink>"));
    };
    write("one.meta4", &[file("deep/name", sum)]);
    let outcome = sites.directory.run("cp --json one.meta4 copy").expect(0);
    sites.arrived("copy");
    assert!(outcome.stdout.contains(&format!("sha256:{sum}")), "{outcome:?}");
    assert!(outcome.stderr.contains("was left out"), "{outcome:?}");
    std::fs::create_dir(sites.directory.host("into")).unwrap();
    write("two.meta4", &[file("deep/name", sum), file("other", sum)]);
    sites.directory.run("cp -q two.meta4 into").expect(0);
    sites.arrived("into/deep/name");
    sites.arrived("into/other");
    sites.directory.run("cp -q two.meta4 nowhere").expect(5);
    write("bad.meta4", &[file("name", &"0".repeat(64))]);
    sites.directory.run("cp -q bad.meta4 into").expect(7);
    assert!(!sites.directory.host("into/name").exists());
    write("out.meta4", &[file("../out", sum)]);
    let refused = sites.directory.run("cp -q out.meta4 into").expect(5);
    assert!(refused.stderr.contains("leads out of the destination directory"), "{refused:?}");
    sites.directory.run("cp -q --as-is out.meta4 into").expect(0);
    assert_eq!(sites.directory.get("into/out.meta4"), sites.directory.get("out.meta4"));
}

/// A server that records headers. It serves clients with a token the same content under all names but `/f.meta4`.
struct Doorkeeper {
    url: String,
    headers: Arc<Mutex<Vec<String>>>,
}

impl Doorkeeper {
    fn start(metalink: String) -> Self {
        let listener = net::listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let headers: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&headers);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, metalink.clone(), Arc::clone(&seen)));
            }
        });
        Self { url, headers }
    }

    /// Returns whether a token was received since the last call.
    fn saw_token(&self) -> bool {
        let headers = std::mem::take(&mut *self.headers.lock().unwrap());
        headers.iter().any(|header| header.contains("authorization: bearer hush"))
    }
}

async fn answer(mut stream: TcpStream, metalink: String, seen: Arc<Mutex<Vec<String>>>) {
    let mut request = Vec::new();
    let header = loop {
        if stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return;
        }
        let text = String::from_utf8_lossy(&request).to_lowercase();
        let Some((header, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = header.lines().find_map(|line| line.strip_prefix("content-length: "));
        if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
            break header.to_owned();
        }
    };
    let (status, content) = match header.split_whitespace().collect::<Vec<_>>()[..] {
        ["get" | "head", "/f.meta4", ..] => ("200 OK", metalink),
        ["get" | "head", ..] if header.contains("authorization: ") => ("200 OK", "content".to_owned()),
        ["get" | "head", ..] => ("401 Unauthorized", String::new()),
        _ => ("405 Method Not Allowed", String::new()),
    };
    let length = content.len();
    let body = if header.starts_with("head") { "" } else { content.as_str() };
    seen.lock().unwrap().push(header);
    let answer = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
    let _ = stream.write_all(answer.as_bytes()).await;
}

fn metalink(url: &str) -> String {
    format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><url>{url}</url></file></metalink>")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_metalink_leads_the_token_nowhere_unless_it_is_trusted() {
    let other = Doorkeeper::start(String::new());
    let home = Doorkeeper::start(metalink(&format!("{}/f", other.url)));
    let directory = Directory::new();
    directory.put("at-home.meta4", &metalink(&format!("{}/f", home.url)));
    let run = |line: &str| {
        let output = directory.command(line.split(' ')).env("BEARER_TOKEN", "hush").output().unwrap();
        Outcome::from(output)
    };
    let metalink = format!("{}/f.meta4", home.url);
    let refused = run(&format!("cp --failed-to lost {metalink} copy")).expect(4);
    assert!(refused.stderr.contains("--trust-metalink"), "{refused:?}");
    assert!(home.saw_token() && !other.saw_token(), "{refused:?}");
    // A failure list does not send it there either.
    run("cp --retry-from lost --failed-to lost").expect(4);
    assert!(!other.saw_token());
    run("cp --retry-from lost --trust-metalink").expect(0);
    assert!(other.saw_token());
    assert_eq!(directory.get("copy"), "content");
    run(&format!("cp -f --trust-metalink {metalink} copy")).expect(0);
    assert!(other.saw_token() && home.saw_token());
    // A local Metalink has no server that gets credentials.
    run("cp -f at-home.meta4 copy").expect(4);
    assert!(!home.saw_token());
}

#[test]
fn several_sources_are_of_one_file() {
    let directory = Directory::new();
    directory.put("a", "content");
    directory.put("b", "content");
    for line in
        ["cp -r --source b a c", "cp --source b a b c", "cp --source b a -", "cp --third-party auto --source b a c"]
    {
        directory.run(line).expect(2);
    }
    directory.run("cp -q --source b a c").expect(0);
    assert_eq!(directory.get("c"), "content");
}
