//! The users of sockets within this machine.

use std::{
    io::{self, BufRead, BufReader},
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use crate::sys::disk;

/// The TCP sockets of this network namespace (proc_net_tcp(5)). The second table is missing without IPv6.
const TABLES: [&str; 2] = ["/proc/self/net/tcp", "/proc/self/net/tcp6"];

/// Attempts to find a socket: the kernel may omit sockets from a table that changes while it is read.
const ATTEMPTS: u32 = 3;

/// Returns the user of the socket at the other end of a connection from `remote` to `local`; `None` if no process of this
/// machine and network namespace has it. Reads a line for each connection of the machine.
///
/// # Errors
/// The tables of the kernel cannot be read.
pub fn peer_user(local: SocketAddr, remote: SocketAddr) -> io::Result<Option<u32>> {
    find(remote, local)
}

/// Returns the user who listens at `address`, which is one of this machine; `None` if no process listens there, or one that
/// listens at all addresses.
///
/// # Errors
/// The tables of the kernel cannot be read.
pub fn listening_user(address: SocketAddr) -> io::Result<Option<u32>> {
    let nobody = if address.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { IpAddr::from(Ipv6Addr::UNSPECIFIED) };
    find(address, SocketAddr::new(nobody, 0))
}

/// Returns the user of the socket with these addresses.
fn find(own: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    for _ in 0..ATTEMPTS {
        for table in TABLES {
            let table = match disk::open(Path::new(table)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                table => BufReader::new(table?),
            };
            if let Some(user) = user_of(table, own, peer)? {
                return Ok(Some(user));
            }
        }
    }
    Ok(None)
}

/// Returns the user of the socket with these addresses in a table, if a process has it.
fn user_of(table: impl BufRead, own: SocketAddr, peer: SocketAddr) -> io::Result<Option<u32>> {
    let wanted = [own, peer].map(canonical);
    for line in table.lines() {
        if let Some(row) = Row::parse(&line?)
            && row.addresses.map(canonical) == wanted
            && row.inode != 0
        {
            return Ok(Some(row.user));
        }
    }
    Ok(None)
}

/// An address of IPv4 in one of IPv6 is that of IPv4; scopes do not count.
fn canonical(address: SocketAddr) -> (IpAddr, u16) {
    (address.ip().to_canonical(), address.port())
}

/// A row of a table.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Those of the socket itself and of its peer.
    addresses: [SocketAddr; 2],
    user: u32,
    /// 0 if no process has the socket any more; the user is then unknown.
    inode: u64,
}

impl Row {
    /// Parses a row; `None` for the header.
    fn parse(line: &str) -> Option<Self> {
        let mut fields = line.split_whitespace();
        let addresses = [parse_address(fields.nth(1)?)?, parse_address(fields.next()?)?];
        // State, queues, timer and retransmissions are before the user, a timeout before the inode.
        let user = fields.nth(4)?.parse().ok()?;
        let inode = fields.nth(1)?.parse().ok()?;
        Some(Self { addresses, user, inode })
    }
}

/// Parses an address: the words of the IP address in the byte order of the machine, and the port, as hexadecimal digits.
fn parse_address(text: &str) -> Option<SocketAddr> {
    let (ip, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| Some(u32::from_str_radix(ip.get(8 * at..8 * (at + 1))?, 16).ok()?.to_ne_bytes());
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let words: [[u8; 4]; 4] = [word(0)?, word(1)?, word(2)?, word(3)?];
            IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(words.as_flattened()).ok()?))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_user_of_a_client_is_that_of_this_process() {
        let own = rustix::process::geteuid().as_raw();
        for listen in ["127.0.0.1:0", "[::]:0"] {
            // A machine without IPv6 has only the first one.
            let Ok(listener) = TcpListener::bind(listen) else { continue };
            let port = listener.local_addr().unwrap().port();
            let of_listener = listening_user(listener.local_addr().unwrap()).unwrap();
            assert_eq!(of_listener, Some(own), "{listen}");
            let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            let (accepted, remote) = listener.accept().unwrap();
            let local = accepted.local_addr().unwrap();
            assert_eq!(peer_user(local, remote).unwrap(), Some(own), "{listen}");
            drop(client);
            assert_eq!(peer_user(local, remote).unwrap(), None, "{listen}: no process has the socket");
            let address = listener.local_addr().unwrap();
            drop((listener, accepted));
            assert_eq!(listening_user(address).unwrap(), None, "{listen}");
        }
    }

    #[test]
    fn rows_are_parsed_as_the_kernel_writes_them() {
        let table = b"\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:0446 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 101 1 0000000000000000 100
   1: 0100007F:C350 0100007F:0446 01 00000000:00000000 00:00000000 00000000  1000        0 102 1 0000000000000000 20
   2: 0100007F:C351 0100007F:0446 06 00000000:00000000 03:00000000 00000000     0        0 0 3 0000000000000000
   3: 0000000000000000FFFF00000100007F:C352 0000000000000000FFFF00000100007F:0446 01 00000000:00000000 00:00000000 00000000  1001        0 103 1
   4: 00000000000000000000000001000000:C353 00000000000000000000000001000000:0446 01 00000000:00000000 00:00000000 00000000  1002        0 104 1
   x
";
        if cfg!(target_endian = "big") {
            return;
        }
        let user = |own: &str, peer: &str| user_of(&table[..], own.parse().unwrap(), peer.parse().unwrap()).unwrap();
        assert_eq!(user("127.0.0.1:50000", "127.0.0.1:1094"), Some(1000));
        assert_eq!(user("127.0.0.1:50001", "127.0.0.1:1094"), None, "no process has it");
        assert_eq!(user("127.0.0.1:50002", "127.0.0.1:1094"), Some(1001), "an address of IPv4 in one of IPv6");
        assert_eq!(user("[::1]:50003", "[::1]:1094"), Some(1002));
        assert_eq!(user("127.0.0.1:1094", "127.0.0.1:50000"), None, "the end of the server");
        assert_eq!(user("127.0.0.1:50000", "127.0.0.1:1095"), None);
    }
}
