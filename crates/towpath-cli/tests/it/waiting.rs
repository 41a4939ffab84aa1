//! Storages that are busy or silent: the client reports the wait, and gives up after the time of `--wait`, or after 30 s
//! on a terminal.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    runtime::Runtime,
};
use towpath_store::sys::net;

use super::{program::Directory, terminal::Terminal};

/// Starts a server that responds to each request with `response`, or accepts requests and stays silent if that is
/// empty. Returns its URL. It ends with the runtime.
fn server(runtime: &Runtime, response: &'static str) -> String {
    let _guard = runtime.enter();
    let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
    let port = listener.local_addr().unwrap().port();
    runtime.spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 16 << 10];
                while let Ok(1..) = stream.read(&mut buffer).await {
                    // A closed connection is not an error.
                    let _ = stream.write_all(response.as_bytes()).await;
                }
            });
        }
    });
    format!("http://127.0.0.1:{port}/data")
}

/// A response that requests a wait of `$seconds`.
macro_rules! busy {
    ($seconds:literal) => {
        concat!("HTTP/1.1 503 Busy\r\nRetry-After: ", $seconds, "\r\nContent-Length: 0\r\n\r\n")
    };
}

#[test]
fn on_a_terminal_a_storage_is_given_up_after_30_s() {
    let (directory, runtime) = (Directory::new(), Runtime::new().unwrap());
    for command in ["ls URL", "cp URL t", "sync URL t"] {
        // A storage that requests a longer wait is given up immediately.
        let line = command.replace("URL", &server(&runtime, busy!(60)));
        let seen = Terminal::new(24, 200).run(&directory, &line, None, 8);
        seen.expect(&["use --wait to wait longer than 30s"]);
    }
}

#[test]
fn a_client_says_that_it_waits_and_gives_up_when_told() {
    let (directory, runtime) = (Directory::new(), Runtime::new().unwrap());
    for (response, words) in [
        (busy!(3), ["retrying in 3 s: ", "use --wait to wait longer than 4s"]),
        ("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n", ["retrying in ", "503"]),
        ("", ["no response to ", "did not respond in time"]),
    ] {
        let outcome = directory.run(&format!("ls --wait 4s {}", server(&runtime, response)));
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        for word in words {
            assert!(outcome.stderr.contains(word), "{word}: {outcome:?}");
        }
    }
}

#[test]
fn a_silent_storage_is_asked_once() {
    let (directory, runtime) = (Directory::new(), Runtime::new().unwrap());
    directory.put("f", "content");
    for command in ["cp URL t", "cp f URL", "sync URL t", "sum URL"] {
        let line = command.replace("URL", &server(&runtime, ""));
        let outcome = directory.run(&format!("-vv {line} --wait 2s"));
        assert_ne!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(outcome.stderr.matches("attempt failed").count(), 1, "{outcome:?}");
    }
}

#[test]
fn a_wait_has_bounds() {
    let directory = Directory::new();
    for wait in ["0s", "8d", "soon"] {
        directory.run(&format!("ls --wait {wait} http://127.0.0.1:9/")).expect(2);
    }
}
