//! Sources of one file with different contents: the result is the file of one of them or the one with the known
//! digest, and only compared files count as verified.

use std::{
    io::{BufRead as _, BufReader},
    process::Stdio,
};

use serde_json::Value;
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::sys::disk;
use towpath_testkit::{
    misbehaving_server::{MisbehavingServer, Misbehavior},
    pattern::Pattern,
};

use super::{
    plain_server::{PlainServer, Version},
    program::{Directory, Outcome, ServerProcess},
};

/// Large enough for a request to compute a digest.
const SIZE: usize = 20 << 20;

/// Large enough for an upload to be resumed after it was killed.
const RESUMED_SIZE: u64 = 160 << 20;

/// Bytes that must have arrived before a copy is killed.
const KILLED_AT: u64 = 40 << 20;

const HONEST: Pattern = Pattern::new(31);
const OTHER: Pattern = Pattern::new(32);

/// Serves a directory with `content` as `file`, below the working directory.
fn serve(directory: &Directory, name: &str, content: &[u8]) -> ServerProcess {
    std::fs::create_dir(directory.host(name)).unwrap();
    disk::write(&directory.host(name).join("file"), content).unwrap();
    ServerProcess::start(&directory.host(name))
}

fn read(directory: &Directory, name: &str) -> Vec<u8> {
    disk::read(&directory.host(name), RESUMED_SIZE + 1).unwrap()
}

/// Returns the first line that `--json` printed.
fn told(outcome: &Outcome) -> Value {
    serde_json::from_str(outcome.stdout.lines().next().unwrap()).unwrap()
}

#[test]
fn two_files_of_one_size_are_not_mixed() {
    let directory = Directory::new();
    let contents = [HONEST.bytes(0, SIZE), OTHER.bytes(0, SIZE)];
    let servers = [serve(&directory, "one", &contents[0]), serve(&directory, "two", &contents[1])];
    for protocol in [0, 1] {
        let [one, two] = servers.each_ref().map(|server| format!("{}/file", server.urls()[protocol]));
        for (first, second, expected) in [(&one, &two, &contents[0]), (&two, &one, &contents[1])] {
            let outcome = directory.run(&format!("cp -f --json --source {second} {first} copy")).expect(0);
            assert!(read(&directory, "copy") == **expected, "the first one counts");
            let told = told(&outcome);
            assert_eq!(told["sources"][1]["bytes"], 0, "{told}");
            let found = format!("crc32c:{}", Hasher::digest_of(Algorithm::Crc32c, expected));
            let verified = told["verified"].as_array().unwrap();
            assert!(verified.iter().all(|digest| *digest == found.as_str()), "{told}");
        }
    }
}

/// All commands show it: the digest is part of the first response.
#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_contradicts_its_digest_is_not_shown_as_right() {
    let directory = Directory::new();
    for (misbehavior, code) in [(None, 0), (Some(Misbehavior::OtherByte), 7)] {
        let server = MisbehavingServer::start(misbehavior, HONEST.bytes(0, SIZE));
        let url = format!("http://127.0.0.1:{}/file", server.port());
        for line in [format!("cat {url}"), format!("cp {url} -"), format!("cp -f {url} copy")] {
            let mut command = directory.command(line.split(' '));
            let outcome = command.stdout(Stdio::null()).output().unwrap();
            assert_eq!(outcome.status.code(), Some(code), "{line}: {}", String::from_utf8_lossy(&outcome.stderr));
        }
    }
}

/// Neither server has a digest, and both use one ETag for their files.
#[tokio::test(flavor = "multi_thread")]
async fn without_any_digest_one_source_is_read_and_that_is_said() {
    let directory = Directory::new();
    let version = |content| Version { etag: "\"1\"", content };
    let servers = [HONEST, OTHER].map(|content| PlainServer::start(SIZE as u64, version(content)));
    let (one, two) = (servers[0].url(), servers[1].url());
    let outcome = directory.run(&format!("cp --json --events events --source {two} {one} copy")).expect(0);
    HONEST.check(0, &read(&directory, "copy"));
    let told = told(&outcome);
    assert_eq!((&told["verified"], &told["sources"][1]["spare"]), (&Value::Array(Vec::new()), &true.into()), "{told}");
    assert!(outcome.stderr.contains(&format!("only {one} was read")), "{outcome:?}");
    assert!(directory.get("events").contains("\"one_source\""));
    let said = directory.run(&format!("cp -f --source {two} {one} copy")).expect(0).stderr;
    assert!(said.contains("; not verified"), "{said}");
}

#[test]
fn one_liar_of_a_metalink_is_left_out() {
    let directory = Directory::new();
    let content = HONEST.bytes(0, SIZE);
    for (number, wrong) in [0, SIZE / 2, SIZE - 1].into_iter().enumerate() {
        let mut urls = String::new();
        let mut servers = Vec::new();
        for source in 0..5 {
            let mut given = content.to_vec();
            if source == 2 * number {
                given[wrong] ^= 1;
            }
            servers.push(serve(&directory, &format!("{number}-{source}"), &given));
            let url = &servers[source].urls()[1];
            urls += &format!("<url priority=\"{}\">{url}/file</url>", source + 1);
        }
        let sum = Hasher::digest_of(Algorithm::Sha256, &content);
        directory.put(
            "five.meta4",
            &format!("<metalink xmlns=\"urn:ietf:params:xml:ns:metalink\"><file name=\"f\"><hash type=\"sha-256\">{sum}</hash>{urls}</file></metalink>"),
        );
        let outcome = directory.run("cp -f --json five.meta4 copy").expect(0);
        assert!(read(&directory, "copy") == *content, "one byte at {wrong} is wrong: {outcome:?}");
        let told = told(&outcome);
        assert_eq!(told["verified_by"][0]["source"], "named", "{told}");
        let out: Vec<_> = (0..5).filter(|source| !told["sources"][source]["error"].is_null()).collect();
        assert!(out.iter().all(|source| *source == 2 * number), "{told}");
    }
}

/// Starts a copy, and kills it before it ends.
fn kill(directory: &Directory, line: &str) {
    let mut copying = directory.command(line.split(' ')).stdout(Stdio::piped()).spawn().unwrap();
    let mut events = BufReader::new(copying.stdout.take().unwrap()).lines();
    let has_come = |event: &Value| event["bytes_moved"].as_u64().is_some_and(|bytes| bytes >= KILLED_AT);
    assert!(events.any(|event| has_come(&serde_json::from_str(&event.unwrap()).unwrap())), "it ended too early");
    copying.kill().unwrap();
    copying.wait().unwrap();
    assert!(!directory.host("copy").exists(), "it was killed too late");
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_of_a_liar_do_not_survive_a_killed_copy() {
    let version = |content| Version { etag: "\"1\"", content };
    let honest = PlainServer::start(RESUMED_SIZE, version(HONEST));
    let liar = PlainServer::start(RESUMED_SIZE, version(OTHER));
    let (honest, liar) = (honest.url(), liar.url());
    for (first, second) in [(&liar, &honest), (&honest, &liar)] {
        let directory = Directory::new();
        kill(&directory, &format!("cp --limit 200Mbit --events - --source {second} {first} copy"));
        directory.run(&format!("cp -q {honest} copy")).expect(0);
        HONEST.check(0, &read(&directory, "copy"));
    }
}

#[test]
fn what_was_not_compared_is_not_called_verified() {
    let directory = Directory::new();
    directory.put("file", "content");
    let outcome = directory.run("cp --json file copy").expect(0);
    let total: Value = serde_json::from_str(outcome.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&told(&outcome)["verified_by"], &total["files_verified"]), (&Value::Array(Vec::new()), &0.into()));
    assert!(directory.run("cp -f file copy").expect(0).stderr.contains("; not verified"));
    let outcome = directory.run("cp -f --json --checksum adler32 file copy").expect(0);
    let by = &told(&outcome)["verified_by"][0];
    assert_eq!([&by["algorithm"], &by["source"], &by["destination"]], ["adler32", "computed", "written"]);
    directory.put("s/a", "content");
    assert!(directory.run("sync --checksum crc32c s t").expect(0).stderr.contains("; verified by crc32c"));
}
