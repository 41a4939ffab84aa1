//! Properties of hosts.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, send, socket_with};
use towpath_wan::{Error, LinkName, LinkSettings, Wan};

use super::lab::{host, is_root, link, ping, wan};

/// Minimum wake-up latency of the emulator, which is subtracted from the arrival time of a packet that wakes it: a
/// packet may arrive early by this much.
const FORESTALLED: Duration = Duration::from_micros(200);

/// Reads a sysctl in this thread's network namespace.
fn sysctl(name: &str) -> String {
    let output = Command::new("cat").arg(format!("/proc/sys/net/ipv4/{name}")).output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn congestion_control() -> String {
    sysctl("tcp_congestion_control")
}

/// Returns whether a round trip took its delay.
fn takes(trip: Duration, delay_ms: u64) -> bool {
    trip >= Duration::from_millis(delay_ms).saturating_sub(2 * FORESTALLED)
}

#[test]
fn no_round_trip_is_shorter_than_the_delay() {
    for delay_ms in [0, 5, 40] {
        let Some(wan) = wan(Wan::builder().pairs(link(1000, delay_ms))) else { return };
        let [first, second] = wan.hosts() else { panic!("two hosts") };
        let mut trips = ping(first, second, 10);
        trips.sort();
        println!("delay {delay_ms} ms each way: median {:?}, longest {:?}", trips[5], trips[9]);
        assert!(takes(trips[0], 2 * delay_ms), "{trips:?}");
        assert!(takes(ping(second, first, 1)[0], 2 * delay_ms));
    }
}

#[test]
fn a_delay_changes_while_the_network_runs() {
    let Some(wan) = wan(Wan::builder().pairs(link(1000, 1))) else { return };
    let name = LinkName::Pair(host(1), host(2));
    wan.set(name, link(1000, 30)).unwrap();
    assert_eq!(wan.report().unwrap().settings(name), link(1000, 30));
    assert!(takes(ping(&wan.hosts()[0], &wan.hosts()[1], 1)[0], 31));
    let wrong = LinkSettings { loss: -1.0, ..link(1000, 30) };
    assert!(matches!(wan.set(name, wrong), Err(Error::Invalid(_))));
    assert!(matches!(wan.set(LinkName::Up(host(3)), link(1, 1)), Err(Error::Invalid(_))));
}

#[test]
fn sysctls_are_set_in_the_hosts_alone() {
    let ours = congestion_control();
    let Some(wan) = wan(Wan::builder().congestion_control("reno").most_buffer(1 << 20)) else { return };
    for host in wan.hosts() {
        assert_eq!(host.within(congestion_control).unwrap(), "reno");
        let mut command = Command::new("cat");
        command.arg("/proc/sys/net/ipv4/tcp_wmem").stdout(Stdio::piped());
        let output = host.spawn(command).unwrap().wait_with_output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap().split_whitespace().last(), Some("1048576"));
        assert_eq!(host.within(|| sysctl("tcp_no_metrics_save")).unwrap(), "1");
    }
    assert_eq!(congestion_control(), ours);
}

#[test]
fn a_congestion_control_that_is_not_there_is_told_with_those_that_are() {
    if !is_root() {
        return;
    }
    let error = Wan::builder().congestion_control("none-such").build().unwrap_err().to_string();
    assert!(error.contains("none-such") && error.contains("reno"), "{error}");
}

/// Deletes the device that leads out of the calling host, like `ip link del wan0`: `RTM_DELLINK` of rtnetlink(7).
fn delete_device() {
    let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None).unwrap();
    let mut request = [0_u8; 44];
    request[..4].copy_from_slice(&44_u32.to_ne_bytes());
    // The type, followed by flags: a request with a response.
    request[4..6].copy_from_slice(&17_u16.to_ne_bytes());
    request[6..8].copy_from_slice(&5_u16.to_ne_bytes());
    // After a `struct ifinfomsg` without an index: the attribute with the name, as length and type.
    request[32..34].copy_from_slice(&9_u16.to_ne_bytes());
    request[34..36].copy_from_slice(&3_u16.to_ne_bytes());
    request[36..41].copy_from_slice(b"wan0\0");
    send(&socket, &request, SendFlags::empty()).unwrap();
    let mut answer = [0_u8; 100];
    let (bytes, _) = recv(&socket, &mut answer, RecvFlags::empty()).unwrap();
    assert_eq!(answer[..bytes][16..20], [0; 4], "it is an error number");
}

#[test]
fn a_host_without_its_device_is_left_out_and_told() {
    let Some(wan) = wan(Wan::builder().hosts(3).pairs(link(1000, 1))) else { return };
    let [first, second, third] = wan.hosts() else { panic!("three hosts") };
    assert!(wan.report().unwrap().network.cut_off.is_empty());
    first.within(delete_device).unwrap();
    // Packets of the other hosts are carried in rounds that poll all devices.
    assert!(takes(ping(second, third, 3)[0], 2));
    assert_eq!(wan.report().unwrap().network.cut_off, [host(1)]);
}

#[test]
fn hosts_can_be_many() {
    let Some(wan) = wan(Wan::builder().hosts(5).pairs(link(1000, 2))) else { return };
    for from in wan.hosts() {
        for to in wan.hosts() {
            let trip = ping(from, to, 1)[0];
            assert!(from.index() == to.index() || takes(trip, 4));
        }
    }
    assert_eq!(wan.report().unwrap().hosts.len(), 5);
}
