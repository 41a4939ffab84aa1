//! The program as a process of its own.

use std::{
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use towpath_store::sys::disk;

/// `towpath serve`, ended when dropped.
pub(super) struct Served {
    process: Child,
    pub(super) address: SocketAddr,
}

impl Served {
    /// Serves `directory` on a free port.
    pub(super) fn start(directory: &Path) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_towpath"));
        command.arg("serve").arg(directory).args(["--listen", "127.0.0.1:0"]).stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").expect("it says where it listens");
        Self { address: address.parse().unwrap(), process }
    }

    /// Memory that the process really has (`VmRSS`).
    pub(super) fn resident_bytes(&self) -> u64 {
        let status = disk::read(&PathBuf::from(format!("/proc/{}/status", self.process.id())), 1 << 20).unwrap();
        let status = String::from_utf8(status).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
