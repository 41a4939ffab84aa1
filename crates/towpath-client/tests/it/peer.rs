//! A real `xrootd` of its own for each test that wants one.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
};

use tempfile::TempDir;
use towpath_client::{Client, ClientOptions, PasswordSource, ProxySettings, TokenSource};
use towpath_store::{Caller, Store, StorePath, sys::environment};

/// The number of the unprivileged user.
const NOBODY: u32 = 65534;

/// A command that runs the server `name`, or none (and a word on why) where it is not installed. Where
/// `TOWPATH_REQUIRE_PEERS` is set, as `make test` does, that is an error.
pub(crate) fn peer(name: &str) -> Option<Command> {
    let path = environment::variable("PATH").unwrap_or_default();
    // Servers often lie where only root looks, and some come from PyPI (`interop/peers`).
    let cache = environment::variable("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| Some(PathBuf::from(environment::variable("HOME")?).join(".cache")));
    let python = cache.map(|cache| cache.join("towpath/venv/bin"));
    let directories = env::split_paths(&path).chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from)).chain(python);
    let found = directories.map(|directory| directory.join(name)).find(|program| program.is_file());
    if found.is_none() {
        assert!(
            environment::variable("TOWPATH_REQUIRE_PEERS").is_none(),
            "there is no {name} to test against: run interop/peers"
        );
        eprintln!("SKIPPED: there is no {name} to test against");
    }
    found.map(Command::new)
}

/// A running server; it ends when it is dropped.
pub(crate) struct Xrootd {
    process: Child,
    pub(crate) port: u16,
    directory: TempDir,
}

impl Xrootd {
    /// A server with TLS too, and its certificate, which bears the name `localhost`.
    pub(crate) fn start_with_tls(extra: &str) -> Option<(Self, TempDir)> {
        let directory = tempfile::Builder::new().prefix("towpath-tls").tempdir().unwrap();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let at = |name: &str| directory.path().join(name);
        write(&at("cert.pem"), made.cert.pem().as_bytes());
        write(&at("key.pem"), made.signing_key.serialize_pem().as_bytes());
        // The server requires a certificate that other users cannot write, and a key that only its user can read.
        fs::set_permissions(at("cert.pem"), fs::Permissions::from_mode(0o644)).unwrap();
        fs::set_permissions(at("key.pem"), fs::Permissions::from_mode(0o400)).unwrap();
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(at("key.pem"), Some(NOBODY), None).unwrap();
        }
        fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let files = format!("xrd.tls {} {}", at("cert.pem").display(), at("key.pem").display());
        Some((Self::start(&format!("{files}\nxrd.tlsca noverify\n{extra}"))?, directory))
    }

    /// A server with `extra` configuration, or none (and a word on why) where there is no `xrootd`.
    pub(crate) fn start(extra: &str) -> Option<Self> {
        let directory = tempfile::Builder::new().prefix("towpath-xrootd").tempdir().unwrap();
        let root = directory.path().join("root");
        fs::create_dir(&root).unwrap();
        // The server runs as another user where the test runs as root, which it refuses to be.
        for path in [directory.path(), &root] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let configuration = directory.path().join("xrootd.cfg");
        let text = format!(
            "all.export /\noss.localroot {root}\nxrootd.chksum max 2 adler32 crc32c\nxrd.port any\nall.adminpath {admin}\n\
             all.pidpath {admin}\n{extra}\n",
            root = root.display(),
            admin = directory.path().display(),
        );
        write(&configuration, text.as_bytes());
        let mut command = peer("xrootd")?;
        if rustix::process::geteuid().is_root() {
            command.args(["-R", "nobody"]);
        }
        command.arg("-c").arg(&configuration).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command.current_dir(directory.path());
        let mut process = command.spawn().unwrap();
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let mut seen = String::new();
        let port = loop {
            let start = seen.len();
            assert!(log.read_line(&mut seen).unwrap() > 0, "xrootd did not start:\n{seen}");
            let line = seen[start..].trim_end();
            if let Some(name) = line.strip_suffix(" initialization completed.").filter(|line| line.contains('@')) {
                break name.rsplit_once(':').unwrap().1.parse().unwrap();
            }
        };
        // Nobody may fill the pipe up.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Some(Self { process, port, directory })
    }

    /// Where the server keeps `name`.
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.directory.path().join("root").join(name)
    }

    /// Puts a file into the server's directory.
    pub(crate) fn put(&self, name: &str, content: &[u8]) {
        write(&self.file(name), content);
    }

    /// The store of this server.
    pub(crate) fn store(&self) -> Arc<dyn Store> {
        store_at("root", self.port, options())
    }
}

impl Drop for Xrootd {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Options that look for no token and give up early.
pub(crate) fn options() -> ClientOptions {
    ClientOptions {
        token: TokenSource::Nothing,
        passwords: PasswordSource::Nothing,
        proxies: ProxySettings::default(),
        ..ClientOptions::default()
    }
}

/// The store at a port of this machine.
pub(crate) fn store_at(scheme: &str, port: u16, options: ClientOptions) -> Arc<dyn Store> {
    let url = format!("{scheme}://localhost:{port}//").parse().unwrap();
    Client::new(Arc::new(options)).connect(&url).unwrap().0
}

pub(crate) fn path(text: &str) -> StorePath {
    StorePath::parse(text.as_bytes()).unwrap()
}

pub(crate) fn caller() -> Caller {
    Caller::local()
}

/// Bytes that depend on their offset.
pub(crate) fn content(length: usize) -> Vec<u8> {
    (0..length as u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn write(path: &Path, content: &[u8]) {
    towpath_store::sys::disk::write(path, content).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).unwrap();
}
