//! The physical limit beside which transfers are judged: `sendfile` on one side, receive and write on the other, and
//! nothing else but, optionally, a CRC32C of the received data; spliced data are read back for it.
//!
//! `bare_loop serve FILE HOST:PORT` serves any number of ranges; `bare_loop fetch HOST:PORT BYTES TARGET CONNECTIONS
//! (write|splice) [crc32c]` fetches the file over that many connections, a thread each, and writes it to TARGET.
#![allow(clippy::disallowed_methods, reason = "it measures the bare system, without towpath's seams")]

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::{fd::AsFd as _, unix::fs::FileExt as _},
    process::ExitCode,
    sync::Arc,
    thread,
};

use rustix::pipe::{PipeFlags, SpliceFlags, pipe_with, splice};
use towpath_proto::checksum::{Algorithm, Algorithms, Hasher};

/// Bytes received before they are written: a buffer that stays in the processor's second-level cache.
const BUFFER_BYTES: usize = 1 << 20;
/// Bytes moved by one `splice`, and so the size of its pipe.
const PIPE_BYTES: usize = 1 << 20;
/// Length of one `sendfile` in bytes.
const SEND_BYTES: u64 = 2 << 20;

fn serve(path: &str, address: &str) -> io::Result<()> {
    let file = Arc::new(File::open(path)?);
    let listener = TcpListener::bind(address)?;
    loop {
        let (mut stream, _) = listener.accept()?;
        let file = Arc::clone(&file);
        thread::spawn(move || -> io::Result<()> {
            let mut range = [0; 16];
            stream.read_exact(&mut range)?;
            let [mut offset, end] =
                [0, 8].map(|at| u64::from_be_bytes(range[at..at + 8].try_into().expect("eight bytes")));
            while offset < end {
                let wanted = (end - offset).min(SEND_BYTES) as usize;
                // sendfile advances `offset` by the number of bytes sent.
                rustix::fs::sendfile(&stream, &file, Some(&mut offset), wanted)?;
            }
            Ok(())
        });
    }
}

/// How data get from the socket into the file.
#[derive(Clone, Copy)]
struct ReceiveOptions {
    spliced: bool,
    checked: bool,
}

fn check(how: ReceiveOptions, hasher: &mut Hasher, data: &[u8]) {
    if how.checked {
        hasher.update(data);
    }
}

fn fetch_range(address: &str, target: &File, range: std::ops::Range<u64>, how: ReceiveOptions) -> io::Result<()> {
    let mut hasher = Hasher::new(Algorithms::of(&[Algorithm::Crc32c]));
    let mut stream = TcpStream::connect(address)?;
    stream.write_all(&[range.start.to_be_bytes(), range.end.to_be_bytes()].concat())?;
    let mut offset = range.start;
    let mut buffer = vec![0; BUFFER_BYTES];
    if how.spliced {
        let (out, into) = pipe_with(PipeFlags::CLOEXEC)?;
        rustix::pipe::fcntl_setpipe_size(&into, PIPE_BYTES)?;
        while offset < range.end {
            let wanted = ((range.end - offset) as usize).min(PIPE_BYTES);
            let mut held = splice(stream.as_fd(), None, &into, None, wanted, SpliceFlags::MOVE)?;
            while held > 0 {
                let start = offset;
                let moved = splice(&out, None, target, Some(&mut offset), held, SpliceFlags::MOVE)?;
                held -= moved;
                if how.checked {
                    target.read_exact_at(&mut buffer[..moved], start)?;
                    check(how, &mut hasher, &buffer[..moved]);
                }
            }
        }
        std::hint::black_box(hasher.finish());
        return Ok(());
    }
    while offset < range.end {
        let wanted = (range.end - offset).min(BUFFER_BYTES as u64) as usize;
        let mut filled = 0;
        while filled < wanted {
            match stream.read(&mut buffer[filled..wanted])? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                more => filled += more,
            }
        }
        check(how, &mut hasher, &buffer[..filled]);
        target.write_all_at(&buffer[..filled], offset)?;
        offset += filled as u64;
    }
    std::hint::black_box(hasher.finish());
    Ok(())
}

fn fetch(address: &str, bytes: u64, target: &str, connections: u64, how: ReceiveOptions) -> io::Result<()> {
    let target = OpenOptions::new().read(true).write(true).create(true).truncate(true).open(target)?;
    let share = bytes.div_ceil(connections.max(1));
    thread::scope(|scope| {
        let ranges = (0..connections).map(|n| n * share..((n + 1) * share).min(bytes));
        let threads: Vec<_> = ranges.map(|range| scope.spawn(|| fetch_range(address, &target, range, how))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match arguments.as_slice() {
        ["serve", path, address] => serve(path, address),
        ["fetch", address, bytes, target, connections, way, check @ ..] => match (bytes.parse(), connections.parse()) {
            (Ok(bytes), Ok(connections)) => {
                let how = ReceiveOptions { spliced: *way == "splice", checked: check == ["crc32c"] };
                fetch(address, bytes, target, connections, how)
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        },
        _ => Err(io::Error::other(
            "usage: bare_loop serve FILE HOST:PORT | fetch HOST:PORT BYTES TARGET CONNECTIONS (write|splice) [crc32c]",
        )),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bare_loop: {error}");
            ExitCode::FAILURE
        }
    }
}
