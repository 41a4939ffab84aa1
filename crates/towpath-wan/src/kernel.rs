//! Kernel interfaces without safe wrappers: ioctls of TUN devices and interfaces, new network namespaces, and children
//! that end with the thread that spawned them. The only module of the crate with `unsafe`; it contains no policy.
//!
//! Sources: `linux/if_tun.h`, netdevice(7), unshare(2), `PR_SET_PDEATHSIG`(2const).
#![allow(unsafe_code, reason = "these calls have no safe form; each block says why it is sound")]

use std::{
    io,
    net::{Ipv4Addr, Ipv6Addr},
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
};

use rustix::{
    ioctl::{IntegerSetter, Opcode, Setter, Updater, ioctl},
    process::{Signal, getpid, getppid, set_parent_process_death_signal},
    thread::{UnshareFlags, unshare_unsafe},
};

const TUNSETIFF: Opcode = 0x4004_54ca;
const TUNSETOFFLOAD: Opcode = 0x4004_54d0;
const TUNSETVNETHDRSZ: Opcode = 0x4004_54d8;
const SIOCGIFFLAGS: Opcode = 0x8913;
const SIOCSIFFLAGS: Opcode = 0x8914;
const SIOCSIFADDR: Opcode = 0x8916;
const SIOCSIFNETMASK: Opcode = 0x891c;
const SIOCSIFMTU: Opcode = 0x8922;
const SIOCGIFINDEX: Opcode = 0x8933;
const SIOCSIFTXQLEN: Opcode = 0x8943;

const IFF_TUN: u16 = 0x0001;
const IFF_NO_PI: u16 = 0x1000;
const IFF_VNET_HDR: u16 = 0x4000;
const IFF_UP: u16 = 0x0001;

const TUN_F_CSUM: usize = 0x01;
const TUN_F_TSO4: usize = 0x02;
const TUN_F_TSO6: usize = 0x04;

const AF_INET: u16 = 2;

/// `struct ifreq`: a name, and a union whose interpretation depends on the request.
#[repr(C)]
#[derive(Clone, Copy)]
struct InterfaceRequest {
    name: [u8; 16],
    value: [u8; 24],
}

impl InterfaceRequest {
    fn new(name: &str, value: &[u8]) -> Self {
        let mut request = Self { name: [0; 16], value: [0; 24] };
        // Interface names have at most 15 bytes; those used here are shorter constants.
        for (to, from) in request.name[..15].iter_mut().zip(name.as_bytes()) {
            *to = *from;
        }
        for (to, from) in request.value.iter_mut().zip(value) {
            *to = *from;
        }
        request
    }
}

/// `struct in6_ifreq`.
#[repr(C)]
struct AddressRequest {
    address: [u8; 16],
    prefix_bits: u32,
    interface: u32,
}

/// Moves the calling thread into a new network namespace, in which only a loopback device exists, which is down.
pub(crate) fn enter_new_network() -> io::Result<()> {
    // SAFETY: descriptors stay shared; only the network namespace of this thread changes.
    unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
    Ok(())
}

/// Attaches `tun` (an open `/dev/net/tun`) as the TUN device `name` of the caller's namespace, for packets with a
/// virtio-net header of `vnet_bytes`, and with TCP segmentation offload.
pub(crate) fn attach_tun(tun: &OwnedFd, name: &str, vnet_bytes: usize) -> io::Result<()> {
    let flags = IFF_TUN | IFF_NO_PI | IFF_VNET_HDR;
    update::<TUNSETIFF>(tun, &mut InterfaceRequest::new(name, &flags.to_ne_bytes()))?;
    let vnet_bytes = vnet_bytes as i32;
    // SAFETY: TUNSETVNETHDRSZ reads an int from the pointer and keeps nothing.
    unsafe { ioctl(tun, Setter::<TUNSETVNETHDRSZ, i32>::new(vnet_bytes)) }?;
    // UDP is segmented by the sending kernel: TUN_F_UFO has had no effect since Linux 4.14.
    // SAFETY: TUNSETOFFLOAD takes its flags as the argument itself, not by pointer.
    unsafe { ioctl(tun, IntegerSetter::<TUNSETOFFLOAD>::new_usize(TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6)) }?;
    Ok(())
}

/// Sets up an interface of the caller's namespace through any IPv4 socket of it.
pub(crate) struct Interface<'a> {
    pub(crate) socket: &'a OwnedFd,
    pub(crate) name: &'static str,
}

impl Interface<'_> {
    pub(crate) fn set_mtu(&self, bytes: u16) -> io::Result<()> {
        self.set::<SIOCSIFMTU>(&i32::from(bytes).to_ne_bytes())
    }

    /// Sets the number of packets queued for the reader of a TUN device before the kernel drops packets.
    pub(crate) fn set_queue_packets(&self, packets: u16) -> io::Result<()> {
        self.set::<SIOCSIFTXQLEN>(&i32::from(packets).to_ne_bytes())
    }

    pub(crate) fn set_address_v4(&self, address: Ipv4Addr, mask: Ipv4Addr) -> io::Result<()> {
        self.set::<SIOCSIFADDR>(&socket_address(address))?;
        self.set::<SIOCSIFNETMASK>(&socket_address(mask))
    }

    /// Adds an IPv6 address, through an IPv6 socket.
    pub(crate) fn add_address_v6(&self, socket: &OwnedFd, address: Ipv6Addr, prefix_bits: u32) -> io::Result<()> {
        let mut request = InterfaceRequest::new(self.name, &[]);
        update::<SIOCGIFINDEX>(self.socket, &mut request)?;
        let [first, second, third, fourth, ..] = request.value;
        let interface = u32::from_ne_bytes([first, second, third, fourth]);
        let request = AddressRequest { address: address.octets(), prefix_bits, interface };
        // SAFETY: on an IPv6 socket, SIOCSIFADDR reads a `struct in6_ifreq`, whose layout the type has.
        unsafe { ioctl(socket, Setter::<SIOCSIFADDR, AddressRequest>::new(request)) }?;
        Ok(())
    }

    pub(crate) fn bring_up(&self) -> io::Result<()> {
        let mut request = InterfaceRequest::new(self.name, &[]);
        update::<SIOCGIFFLAGS>(self.socket, &mut request)?;
        let [low, high, ..] = request.value;
        self.set::<SIOCSIFFLAGS>(&(u16::from_ne_bytes([low, high]) | IFF_UP).to_ne_bytes())
    }

    fn set<const REQUEST: Opcode>(&self, value: &[u8]) -> io::Result<()> {
        update::<REQUEST>(self.socket, &mut InterfaceRequest::new(self.name, value))
    }
}

/// Returns the start of a `struct sockaddr_in`, without a port.
fn socket_address(address: Ipv4Addr) -> [u8; 8] {
    let [first, second] = AF_INET.to_ne_bytes();
    let [a, b, c, d] = address.octets();
    [first, second, 0, 0, a, b, c, d]
}

/// Runs a request that reads a `struct ifreq` and may write to it.
fn update<const REQUEST: Opcode>(fd: impl AsFd, request: &mut InterfaceRequest) -> io::Result<()> {
    // SAFETY: every request passed to this function takes a pointer to a `struct ifreq`, whose size and layout the type
    // has; the kernel accesses no more than that, and any bytes are a valid value.
    unsafe { ioctl(fd, Updater::<REQUEST, InterfaceRequest>::new(request)) }?;
    Ok(())
}

/// Makes the kernel kill the command's process when the thread that spawns it ends for any reason. This does not extend
/// to children of that process.
pub(crate) fn die_with_this_thread(command: &mut Command) {
    let parent = getpid();
    let bind = move || {
        set_parent_process_death_signal(Some(Signal::KILL))?;
        // If the parent ended before that call, the signal would never be sent.
        if getppid() == Some(parent) { Ok(()) } else { Err(io::ErrorKind::BrokenPipe.into()) }
    };
    // SAFETY: between fork and exec the closure makes only two system calls; it does not allocate, lock, or access
    // shared memory.
    unsafe { command.pre_exec(bind) };
}
