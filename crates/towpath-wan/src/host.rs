//! A host: an unnamed network namespace, and the thread that lives in it.
//!
//! [`Host::start`] starts a thread, which creates the namespace, its TUN device, addresses and sysctls, and then runs
//! work: all its network operations are in the host. So are the threads and processes that it spawns. When the host is
//! dropped the thread ends, and the kernel kills the processes that it spawned.
//!
//! The namespace has no name in any file system: it is gone when its last process and descriptor are.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::{Ipv4Addr, Ipv6Addr},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    },
    path::Path,
    process::{Child, Command},
    sync::mpsc,
    thread,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{OFlags, Stat, fstat, stat},
    net::{AddressFamily, SocketFlags, SocketType, socket_with},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
    thread::{LinkNameSpaceType, gettid, move_into_link_name_space},
};

use crate::{
    clock::timespec,
    error::Error,
    kernel::{self, Interface},
    network::{HostIndex, address_v4, address_v6},
    segment::VNET_BYTES,
};

/// Name of the device that connects a host to the others.
const DEVICE: &str = "wan0";

/// Number of packets that the kernel queues for the engine. The emulated queue is the link's: this one only has to
/// cover a wake-up that is 10 ms late at 1 Mpacket/s.
const DEVICE_QUEUE_PACKETS: u16 = 10_000;

/// Maximum wait for killed processes. They end within milliseconds, unless the kernel waits for a device or a server on
/// their behalf.
const PATIENCE_NS: u64 = 2_000_000_000;

/// Maximum length of `/proc/thread-self/net/dev` in bytes; a namespace with two devices has half a KiB.
const COUNTERS_BYTES: u64 = 16 << 10;

/// Kernel settings of a host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HostSettings {
    pub(crate) mtu_bytes: u16,
    /// Name of the congestion control for new connections; `None` for the machine's default.
    pub(crate) congestion_control: Option<String>,
    /// Maximum send and receive buffer of a connection in bytes; `None` for the machine's default.
    pub(crate) most_buffer_bytes: Option<u32>,
}

type Job = Box<dyn FnOnce() + Send>;

/// A host of the emulated network with its own kernel TCP.
#[derive(Debug)]
pub struct Host {
    index: HostIndex,
    /// `None` while the host is being dropped.
    jobs: Option<mpsc::Sender<Job>>,
    thread: Option<thread::JoinHandle<()>>,
    thread_id: Pid,
    namespace: OwnedFd,
}

impl Host {
    /// Creates a host; returns it with its open TUN device.
    pub(crate) fn start(index: HostIndex, settings: HostSettings) -> Result<(Self, OwnedFd), Error> {
        let (jobs, given) = mpsc::channel::<Job>();
        let (made, is_made) = mpsc::channel();
        let live = move || {
            let parts = make(index, &settings);
            let failed = parts.is_err();
            if made.send(parts.map(|parts| (parts, gettid()))).is_err() || failed {
                return;
            }
            while let Ok(job) = given.recv() {
                job();
            }
        };
        let name = format!("wan-host-{}", index.number());
        let thread =
            thread::Builder::new().name(name).spawn(live).map_err(Error::kernel("start a thread for a host"))?;
        let ((namespace, device), thread_id) = is_made.recv().map_err(|_| Error::Ended)??;
        Ok((Self { index, jobs: Some(jobs), thread: Some(thread), thread_id, namespace }, device))
    }

    /// Returns the index of the host.
    #[must_use]
    pub fn index(&self) -> HostIndex {
        self.index
    }

    /// Returns the IPv4 address, 198.18.0.*number*.
    #[must_use]
    pub fn address(&self) -> Ipv4Addr {
        address_v4(self.index)
    }

    /// Returns the IPv6 address, 2001:2::*number*.
    #[must_use]
    pub fn address_v6(&self) -> Ipv6Addr {
        address_v6(self.index)
    }

    /// Returns a path under `/proc` to the namespace, for `setns` by another process while the host exists.
    #[must_use]
    pub fn namespace_path(&self) -> String {
        let process = rustix::process::getpid();
        format!("/proc/{}/task/{}/ns/net", process.as_raw_nonzero(), self.thread_id.as_raw_nonzero())
    }

    /// Runs `work` in the host and returns its result. Its sockets and threads belong to the host. Only one runs at a
    /// time, so long work should start a thread.
    ///
    /// # Errors
    /// [`Error::Ended`] if `work`, or some work before it, panicked.
    pub fn within<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, Error> {
        let (done, is_done) = mpsc::channel();
        let job: Job = Box::new(move || {
            // Without a receiver the result is dropped.
            let _ = done.send(work());
        });
        self.jobs.as_ref().ok_or(Error::Ended)?.send(job).map_err(|_| Error::Ended)?;
        is_done.recv().map_err(|_| Error::Ended)
    }

    /// Starts a command in the host. It is killed when the host is dropped, and when this process ends, even by `kill
    /// -9`.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&self, mut command: Command) -> Result<Child, Error> {
        let program = command.get_program().to_string_lossy().into_owned();
        let spawn = move || {
            kernel::die_with_this_thread(&mut command);
            command.spawn()
        };
        self.within(spawn)?.map_err(Error::kernel(format!("run `{program}`")))
    }

    /// Returns the number of packets that the host's kernel dropped because the emulator did not read them in time.
    ///
    /// # Errors
    /// If the host's thread ended or `/proc` cannot be read.
    pub fn overruns(&self) -> Result<u64, Error> {
        let read = || {
            let mut text = String::new();
            let file = OpenOptions::new().read(true).open("/proc/thread-self/net/dev")?;
            file.take(COUNTERS_BYTES).read_to_string(&mut text)?;
            io::Result::Ok(transmit_drops(&text))
        };
        self.within(read)?.map_err(Error::kernel("read a host's counters"))
    }

    /// Kills every process in the host except this one, including those started meanwhile, until none is left. Gives up
    /// on a process that does not end within [`PATIENCE_NS`].
    pub(crate) fn kill_processes(&self) {
        loop {
            let killed: Vec<OwnedFd> = self.processes().filter(kill).collect();
            if killed.is_empty() || !killed.iter().all(has_ended) {
                return;
            }
        }
    }

    /// Returns handles of the processes in the host.
    fn processes(&self) -> impl Iterator<Item = OwnedFd> {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let ours = fstat(&self.namespace).map(identity);
        let numbers = Path::new("/proc").read_dir().into_iter().flatten();
        let numbers = numbers.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let others = numbers.filter_map(Pid::from_raw).filter(|process| *process != rustix::process::getpid());
        others.filter_map(move |process| {
            // Opened before the check, so that a reused process number cannot lead to killing another process.
            let handle = pidfd_open(process, PidfdFlags::empty()).ok()?;
            let theirs = stat(format!("/proc/{}/ns/net", process.as_raw_nonzero())).map(identity);
            (theirs.is_ok() && theirs == ours).then_some(handle)
        })
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.kill_processes();
        // The thread ends when all senders are gone; a panic was reported to the caller of its work.
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Kills a process; returns false if it has already ended.
fn kill(process: &OwnedFd) -> bool {
    pidfd_send_signal(process, Signal::KILL).is_ok()
}

/// Waits for a process to end.
fn has_ended(process: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timespec(PATIENCE_NS))).is_ok_and(|ended| ended > 0)
}

/// Replaces this process by `command` in the host with this [`Host::namespace_path`]; returns only on failure. The
/// command survives if the emulator is killed; an orderly end kills it.
pub fn exec_in(namespace_path: &str, mut command: Command) -> Error {
    let enter = || {
        let namespace = open(namespace_path, OpenOptions::new().read(true))?;
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(Error::kernel("enter the host"))
    };
    if let Err(error) = enter() {
        return error;
    }
    let source = command.exec();
    Error::Kernel { doing: format!("run `{}`", command.get_program().to_string_lossy()), source }
}

/// Creates the namespace and moves the calling thread into it; returns it with its TUN device.
fn make(index: HostIndex, settings: &HostSettings) -> Result<(OwnedFd, OwnedFd), Error> {
    kernel::enter_new_network().map_err(Error::kernel("make a network namespace"))?;
    let namespace = open("/proc/thread-self/ns/net", OpenOptions::new().read(true))?;
    let nonblocking = OFlags::NONBLOCK.bits().cast_signed();
    let device = open("/dev/net/tun", OpenOptions::new().read(true).write(true).custom_flags(nonblocking))?;
    let device = OwnedFd::from(device);
    kernel::attach_tun(&device, DEVICE, VNET_BYTES).map_err(Error::kernel("make a TUN device"))?;
    set_sysctls(settings)?;
    set_up_devices(index, settings.mtu_bytes).map_err(Error::kernel("set up a host's devices"))?;
    Ok((namespace.into(), device))
}

fn set_up_devices(index: HostIndex, mtu_bytes: u16) -> io::Result<()> {
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    let device = Interface { socket: &socket, name: DEVICE };
    device.set_mtu(mtu_bytes)?;
    device.set_queue_packets(DEVICE_QUEUE_PACKETS)?;
    device.set_address_v4(address_v4(index), Ipv4Addr::new(255, 255, 255, 0))?;
    device.bring_up()?;
    Interface { socket: &socket, name: "lo" }.bring_up()?;
    // If the kernel lacks IPv6, the host has only IPv4.
    if let Ok(socket_v6) = socket_with(AddressFamily::INET6, SocketType::DGRAM, SocketFlags::CLOEXEC, None) {
        device.add_address_v6(&socket_v6, address_v6(index), 64)?;
    }
    Ok(())
}

/// Sets sysctls of the caller's namespace; those of the machine are not changed.
fn set_sysctls(settings: &HostSettings) -> Result<(), Error> {
    // Connections must not inherit the slow start threshold of earlier ones, so that measurements are independent.
    set_sysctl("tcp_no_metrics_save", "1")?;
    if let Some(name) = &settings.congestion_control {
        set_sysctl("tcp_congestion_control", name)?;
    }
    if let Some(most_bytes) = settings.most_buffer_bytes {
        // Minimum and initial sizes are the kernel's defaults.
        let first_bytes = most_bytes.min(131_072);
        set_sysctl("tcp_rmem", &format!("4096 {first_bytes} {most_bytes}"))?;
        set_sysctl("tcp_wmem", &format!("4096 {} {most_bytes}", most_bytes.min(16_384)))?;
    }
    Ok(())
}

fn set_sysctl(name: &str, value: &str) -> Result<(), Error> {
    let mut file = open(&format!("/proc/sys/net/ipv4/{name}"), OpenOptions::new().write(true))?;
    file.write_all(value.as_bytes()).map_err(|source| {
        let mut doing = format!("set net.ipv4.{name} to `{value}`");
        if name == "tcp_congestion_control" {
            doing.push_str(" (the kernel has: ");
            doing.push_str(&available_congestion_controls());
            doing.push(')');
            if source.kind() == io::ErrorKind::PermissionDenied {
                // It must be permitted in the settings of the machine, which the emulator does not change.
                doing.push_str("; root can permit it: add it to net.ipv4.tcp_allowed_congestion_control");
            }
        }
        Error::Kernel { doing, source }
    })
}

fn available_congestion_controls() -> String {
    let mut text = String::new();
    if let Ok(file) = OpenOptions::new().read(true).open("/proc/sys/net/ipv4/tcp_available_congestion_control") {
        // The text is used only in a message.
        let _ = file.take(4096).read_to_string(&mut text);
    }
    text.trim().to_owned()
}

fn open(path: &str, options: &OpenOptions) -> Result<File, Error> {
    options.open(path).map_err(Error::kernel(format!("open {path}")))
}

/// Returns the number of packets that the device could not send: the twelfth number after its name in `/proc/net/dev`.
fn transmit_drops(text: &str) -> u64 {
    let line = text.lines().find_map(|line| line.trim().strip_prefix(DEVICE)?.strip_prefix(':'));
    line.and_then(|numbers| numbers.split_ascii_whitespace().nth(11)?.parse().ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    #[test]
    fn drops_are_read_from_the_right_column() {
        let text = "Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier compressed
    lo:       1       2    3    4    5     6          7         8        9      10   11   12   13    14      15         16
  wan0:     101     102  103  104  105   106        107       108      109     110  111  112  113   114     115        116
";
        assert_eq!(super::transmit_drops(text), 112);
        assert_eq!(super::transmit_drops("lo: 1"), 0);
    }
}
