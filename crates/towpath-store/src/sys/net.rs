//! TCP sockets.

mod control;
mod info;
mod peer_user;
mod receive_window;
mod resolver;

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd,
    time::Duration,
};

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use control::suit_to_path;
pub use info::{tcp_info, vain_resends};
pub use peer_user::{listening_user, peer_user};
pub use resolver::Resolver;
pub use towpath_proto::tcp::TcpInfo;

/// Maximum number of connections that the kernel queues before they are accepted.
const BACKLOG: u32 = 4096;

/// Time without any sign of the peer after which the kernel drops a connection, both for unacknowledged data and for
/// probes of an idle connection. The kernel's defaults are a quarter of an hour and two hours. Routers take up to a
/// minute or two to find another path.
const LOST: Duration = Duration::from_secs(120);

/// Keepalive probes within that time; single probes may get lost.
const PROBES: u32 = 4;

/// Listens on `address`. The port can be reused immediately after a restart. Vanished clients are detected as with
/// [`connect`]: connections inherit the options of the listening socket.
///
/// # Errors
/// Errors of the system: the address is in use, or not local.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    listen_beside(address, &[])
}

/// Like [`listen`], for one of several addresses of a server. `[::]` includes all addresses of IPv4, unless `0.0.0.0`
/// with the same port is in `all`.
///
/// # Errors
/// As [`listen`].
pub fn listen_beside(address: SocketAddr, all: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = new_socket(address)?;
    socket.set_reuseaddr(true)?;
    if address.is_ipv6() {
        let of_ipv4 = SocketAddr::from((Ipv4Addr::UNSPECIFIED, address.port()));
        sockopt::set_ipv6_v6only(&socket, all.contains(&of_ipv4))?;
    }
    notice_loss(&socket)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Connects to `address` with Nagle's algorithm disabled. A peer that vanishes, because of lost power or network, is
/// detected within two minutes; the connection may be idle for any time.
///
/// # Errors
/// Errors of the system: refused, unreachable. There is no timeout except the kernel's.
pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    connect_by(new_socket(address)?, address).await
}

/// Like [`connect`], with a receive window that does not slow the start of a sender far away.
///
/// # Errors
/// As [`connect`].
pub async fn connect_to_receive(address: SocketAddr) -> io::Result<TcpStream> {
    let socket = new_socket(address)?;
    receive_window::open(&socket);
    connect_by(socket, address).await
}

fn new_socket(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

async fn connect_by(socket: TcpSocket, address: SocketAddr) -> io::Result<TcpStream> {
    let stream = socket.connect(address).await?;
    stream.set_nodelay(true)?;
    notice_loss(&stream)?;
    Ok(stream)
}

/// Sets the options with which the kernel drops a connection whose peer was not heard of for [`LOST`].
fn notice_loss(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(socket, LOST.as_millis() as u32)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, LOST / 2)?;
    sockopt::set_tcp_keepintvl(socket, LOST / 2 / PROBES)?;
    Ok(sockopt::set_tcp_keepcnt(socket, PROBES)?)
}

/// Returns the addresses of a host name that the user or operator of this program configured. For names chosen by
/// remote clients use a separate [`Resolver`], because those could delay these lookups.
///
/// # Errors
/// Like [`Resolver::resolve`].
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    resolver::OWN.resolve(host, port).await
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_vanishes_is_noticed() {
        let listener = listen(([127, 0, 0, 1], 0).into()).unwrap();
        let client = connect(listener.local_addr().unwrap()).await.unwrap();
        let (server, _) = listener.accept().await.unwrap();
        for stream in [client, server] {
            assert!(sockopt::socket_keepalive(&stream).unwrap());
            let probes = sockopt::tcp_keepintvl(&stream).unwrap() * sockopt::tcp_keepcnt(&stream).unwrap();
            assert_eq!(sockopt::tcp_keepidle(&stream).unwrap() + probes, LOST);
            assert_eq!(u128::from(sockopt::tcp_user_timeout(&stream).unwrap()), LOST.as_millis());
        }
    }

    #[tokio::test]
    async fn a_server_listens_on_all_addresses_of_both_families() {
        let of_ipv4 = listen((Ipv4Addr::UNSPECIFIED, 0).into()).unwrap();
        let port = of_ipv4.local_addr().unwrap().port();
        let all = [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
        assert_eq!(listen(all[1]).unwrap_err().kind(), io::ErrorKind::AddrInUse, "it includes IPv4");
        listen_beside(all[1], &all).unwrap();
    }
}
