//! TCP sockets.

mod control;
mod info;
mod resolver;

use std::{io, net::SocketAddr, os::fd::AsFd, time::Duration};

use rustix::net::sockopt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

pub use control::suit_to_path;
pub use info::{tcp_info, vain_resends};
pub use resolver::Resolver;
pub use towpath_proto::tcp::TcpInfo;

/// How many connections the kernel may hold for us before we accept them.
const BACKLOG: u32 = 4096;

/// How long a peer may not be heard of before the kernel gives its connection up: data that it does not acknowledge, or probes where
/// nothing is underway. The kernel's own limits are a quarter of an hour and two hours. Routers take up to a minute or two to find another way.
const LOST: Duration = Duration::from_secs(120);

/// Keepalive probes within that time; single ones may get lost.
const PROBES: u32 = 4;

/// Listens on `address`. The port can be reused immediately after a restart. Vanished clients are detected as with
/// [`connect`]: connections inherit the options of the listening socket.
///
/// # Errors
/// The system's: the address is in use, or not ours.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    notice_loss(&socket)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Connects to `address`, without Nagle's delay. A peer that vanishes without a word, because it lost its power or its network, is noticed
/// within two minutes, however long it may be silent.
///
/// # Errors
/// The system's: refused, unreachable. It does not time out by itself before the kernel does.
pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    notice_loss(&stream)?;
    Ok(stream)
}

/// Has the kernel give up connections whose peer is not heard of for [`LOST`].
fn notice_loss(socket: &impl AsFd) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(socket, LOST.as_millis() as u32)?;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, LOST / 2)?;
    sockopt::set_tcp_keepintvl(socket, LOST / 2 / PROBES)?;
    Ok(sockopt::set_tcp_keepcnt(socket, PROBES)?)
}

/// Returns the addresses of a host name that the user or the operator of this program chose. For names that strangers choose, use a [`Resolver`] of
/// its own: else they can keep these waiting.
///
/// # Errors
/// As [`Resolver::resolve`].
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    resolver::OWN.resolve(host, port).await
}

#[cfg(test)]
mod tests {
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
}
