//! The socket with which other processes control a running emulator: one request and one response per connection, each
//! a line of JSON.
//!
//! [`Control::open`] takes a name in `/run/towpath-wan`, [`Control::serve`] responds until a stop request, [`ask`] is
//! the client. The directory belongs to root alone. The holder of the lock on `NAME.lock` owns the name: a socket left
//! by a killed emulator is replaced by the next one with its name, or removed by any later one if it is an
//! [`own_name`], which is never reused.

use std::{
    fs::{DirBuilder, File, OpenOptions, TryLockError},
    io::{self, BufRead as _, BufReader, Read, Write as _},
    os::unix::{
        fs::DirBuilderExt as _,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{Error, LinkName, LinkSettings, Report, Wan};

const DIRECTORY: &str = "/run/towpath-wan";

/// Prefix of the names of unnamed emulators; the number of the process follows.
const OWN_PREFIX: &str = "run-";

/// Maximum length of a line in bytes. A request has a few hundred bytes, a report of 64 hosts 2 MiB.
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Timeout of a request. Both ends are on this machine, so only a stopped process takes longer.
const PATIENCE: Duration = Duration::from_secs(10);

/// A request to a running emulator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Request {
    /// Requests all settings and counters.
    Report,
    /// [`Wan::set`].
    Set(LinkName, LinkSettings),
    /// [`Wan::outage`].
    Outage(LinkName, Duration),
    /// Stops the emulator and everything that runs in its hosts.
    Stop,
}

/// The response of an emulator.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlResponse {
    /// Response to [`Request::Report`].
    Report(Box<Report>),
    /// The request was carried out.
    Done,
    /// The request failed, for this reason.
    Refused(String),
}

/// The control socket of a running emulator.
#[derive(Debug)]
pub struct Control {
    listener: UnixListener,
    path: PathBuf,
    /// The lock on the name, held while this exists.
    _lock: File,
}

impl Control {
    /// Claims the name for this process.
    ///
    /// # Errors
    /// [`Error::Invalid`] if the name is invalid or used by another emulator; [`Error::Kernel`] if the socket cannot be
    /// created.
    pub fn open(name: &str) -> Result<Self, Error> {
        let path = path(name)?;
        let made = DirBuilder::new().recursive(true).mode(0o700).create(DIRECTORY);
        made.map_err(Error::kernel(format!("make {DIRECTORY}")))?;
        let lock = lock(&path).map_err(Error::kernel(format!("take the name `{name}`")))?;
        let lock = lock.ok_or_else(|| {
            Error::Invalid(format!("a WAN named `{name}` is already running; `towpath wan down` stops it"))
        })?;
        remove_abandoned(Path::new(DIRECTORY));
        // Usually there is none.
        let _ = rustix::fs::unlink(&path);
        let listener = UnixListener::bind(&path).map_err(Error::kernel(format!("listen on {}", path.display())))?;
        Ok(Self { listener, path, _lock: lock })
    }

    /// Serves requests until a stop request, whose client waits for [`StopConfirmation::confirm`]. Call that when the
    /// emulator is gone.
    ///
    /// # Errors
    /// [`Error::Kernel`] if the socket fails. Errors of a single client do not end the service.
    pub fn serve(&self, wan: &Wan) -> Result<StopConfirmation, Error> {
        loop {
            let (stream, _) = self.listener.accept().map_err(Error::kernel("accept on the control socket"))?;
            let request = set_patience(&stream).and_then(|()| read_line(&stream));
            let answer = match request {
                Ok(Request::Stop) => return Ok(StopConfirmation(stream)),
                Ok(request) => answer(wan, request),
                Err(error) => ControlResponse::Refused(format!("cannot read the request: {error}")),
            };
            // The client may be gone.
            let _ = write_line(&stream, &answer);
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        remove(&self.path);
    }
}

/// Returns a private name for an emulator: `run-` and the number of this process.
#[must_use]
pub fn own_name() -> String {
    format!("{OWN_PREFIX}{}", std::process::id())
}

/// Removes a socket and its lock, which the caller holds.
fn remove(socket: &Path) {
    // The socket first: the name is free as soon as its lock file is unlinked. Another process may have cleaned up
    // already.
    let _ = rustix::fs::unlink(socket);
    let _ = rustix::fs::unlink(lock_path(socket));
}

/// Removes files of killed unnamed emulators from `directory`.
fn remove_abandoned(directory: &Path) {
    for entry in directory.read_dir().into_iter().flatten().flatten() {
        let name = entry.file_name();
        let number = name.to_str().and_then(|name| name.strip_prefix(OWN_PREFIX)?.strip_suffix(".lock"));
        // A starting emulator may not have its lock yet.
        if number.is_none_or(|number| number.parse::<u32>().is_err() || Path::new("/proc").join(number).exists()) {
            continue;
        }
        let socket = entry.path().with_extension("sock");
        // If the lock is free, its emulator has ended.
        if let Ok(Some(_lock)) = lock(&socket) {
            remove(&socket);
        }
    }
}

/// Locks the name of that socket; `None` if another process holds the lock.
fn lock(socket: &Path) -> io::Result<Option<File>> {
    let path = lock_path(socket);
    loop {
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(None),
            Err(TryLockError::Error(error)) => return Err(error),
        }
        // The previous holder may have unlinked the file since it was opened: then the lock is on a file that others no
        // longer see.
        let held = rustix::fs::fstat(&file)?.st_ino;
        if rustix::fs::stat(&path).is_ok_and(|named| named.st_ino == held) {
            return Ok(Some(file));
        }
    }
}

fn lock_path(socket: &Path) -> PathBuf {
    socket.with_extension("lock")
}

/// The client of the stop request, which waits for the confirmation.
#[derive(Debug)]
#[must_use]
pub struct StopConfirmation(UnixStream);

impl StopConfirmation {
    /// Confirms that everything is gone.
    pub fn confirm(self) {
        // The client may not have waited.
        let _ = write_line(&self.0, &ControlResponse::Done);
    }
}

fn answer(wan: &Wan, request: Request) -> ControlResponse {
    let done = match request {
        Request::Report => {
            return wan
                .report()
                .map_or_else(|error| refused(&error), |report| ControlResponse::Report(Box::new(report)));
        }
        Request::Set(link, settings) => wan.set(link, settings),
        Request::Outage(link, length) => wan.outage(link, length),
        Request::Stop => Ok(()),
    };
    done.map_or_else(|error| refused(&error), |()| ControlResponse::Done)
}

fn refused(error: &Error) -> ControlResponse {
    ControlResponse::Refused(error.to_string())
}

/// Sends a request to the emulator with that name.
///
/// # Errors
/// [`Error::Invalid`] if there is none, or it refuses the request; [`Error::Kernel`] if it cannot be reached.
pub fn ask(name: &str, request: &Request) -> Result<ControlResponse, Error> {
    let stream = UnixStream::connect(path(name)?).map_err(|source| match source.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
            Error::Invalid(format!("no WAN named `{name}` is running; `towpath wan up` starts one"))
        }
        io::ErrorKind::PermissionDenied => Error::NeedsRoot,
        _ => Error::Kernel { doing: format!("reach the WAN `{name}`"), source },
    })?;
    let exchange = || {
        set_patience(&stream)?;
        write_line(&stream, request)?;
        read_line(&stream)
    };
    match exchange().map_err(Error::kernel(format!("ask the WAN `{name}`")))? {
        ControlResponse::Refused(why) => Err(Error::Invalid(why)),
        answer => Ok(answer),
    }
}

/// Returns the path of the socket. Names consist of at most 64 letters, digits, `-` and `_`.
fn path(name: &str) -> Result<PathBuf, Error> {
    let is_name = (1..=64).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    let invalid =
        || Error::Invalid(format!("`{name}` is not a valid name of a WAN: letters, digits, - and _, at most 64"));
    is_name.then(|| Path::new(DIRECTORY).join(format!("{name}.sock"))).ok_or_else(invalid)
}

fn set_patience(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn write_line(mut stream: &UnixStream, message: &impl Serialize) -> io::Result<()> {
    let mut line = serde_json::to_vec(message)?;
    line.push(b'\n');
    stream.write_all(&line)
}

fn read_line<T: for<'de> Deserialize<'de>>(stream: &UnixStream) -> io::Result<T> {
    let mut line = String::new();
    BufReader::new(stream.take(MAX_LINE_BYTES)).read_line(&mut line)?;
    Ok(serde_json::from_str(&line)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostIndex, Rate};

    #[test]
    fn requests_survive_the_line() {
        let [first, second] = [1, 2].map(|number| HostIndex::from_number(number).unwrap());
        let settings = LinkSettings { rate: Some(Rate::from_mbit_per_s(5)), loss: 0.1, ..LinkSettings::default() };
        let (ours, theirs) = UnixStream::pair().unwrap();
        write_line(&ours, &Request::Set(LinkName::Pair(first, second), settings.clone())).unwrap();
        let read: Request = read_line(&theirs).unwrap();
        let Request::Set(LinkName::Pair(from, to), read) = read else { panic!("{read:?}") };
        assert_eq!((from, to, read), (first, second, settings));
    }

    #[test]
    fn lines_that_make_no_sense_are_errors() {
        for line in ["\n", "{}\n", "{\"set\":[{\"up\":0},{}]}\n", "{\"set\":[{\"up\":1},{\"speed\":1}]}\n", "\"report"]
        {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(line.as_bytes()).unwrap();
            drop(ours);
            assert!(read_line::<Request>(&theirs).is_err(), "{line}");
        }
    }

    #[test]
    fn one_of_many_has_a_name() {
        let directory = std::env::temp_dir().join(format!("towpath-wan-lock-{}", std::process::id()));
        DirBuilder::new().create(&directory).unwrap();
        let socket = directory.join("lab.sock");
        let take = || lock(&socket).unwrap();
        let held: Vec<Option<File>> = std::thread::scope(|scope| {
            let takers: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            takers.into_iter().map(|taker| taker.join().unwrap()).collect()
        });
        assert_eq!(held.iter().flatten().count(), 1);
        // Unlinked while another process has it open: a lock on it must not count.
        rustix::fs::unlink(lock_path(&socket)).unwrap();
        assert!(take().is_some());
        drop(held);
        rustix::fs::unlink(lock_path(&socket)).unwrap();
        rustix::fs::rmdir(&directory).unwrap();
    }

    #[test]
    fn what_killed_emulators_left_is_removed() {
        let directory = std::env::temp_dir().join(format!("towpath-wan-left-{}", std::process::id()));
        DirBuilder::new().create(&directory).unwrap();
        let left = |name: &str| {
            let socket = directory.join(name).with_extension("sock");
            // The files are left.
            drop(UnixListener::bind(&socket).unwrap());
            lock(&socket).unwrap().unwrap()
        };
        // No process has such a number.
        let _alive = left("run-4000000001");
        for unlocked in ["run-4000000002", "run-4000000033", "run-x", "lab", &own_name()] {
            drop(left(unlocked));
        }
        remove_abandoned(&directory);
        let entries = directory.read_dir().unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        // This process may be about to lock its own name.
        let mut stay: Vec<_> = ["lab", "run-4000000001", "run-x", &own_name()]
            .iter()
            .flat_map(|name| ["lock", "sock"].map(|kind| format!("{name}.{kind}")))
            .collect();
        stay.sort();
        assert_eq!(names, stay);
        for name in names {
            rustix::fs::unlink(directory.join(name)).unwrap();
        }
        rustix::fs::rmdir(&directory).unwrap();
    }

    #[test]
    fn names_stay_in_their_directory() {
        assert_eq!(path("lab-1").unwrap(), Path::new("/run/towpath-wan/lab-1.sock"));
        for name in ["", "..", "a/b", "a b", &"x".repeat(65)] {
            assert!(path(name).is_err(), "{name}");
        }
    }
}
