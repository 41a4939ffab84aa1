//! TCP sockets.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket, TcpStream};

/// How many connections the kernel may hold for us before we accept them.
const BACKLOG: u32 = 4096;

/// Listens on `address`. The port can be taken again at once after a restart.
///
/// # Errors
/// The system's: the address is in use, or not ours.
pub fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Connects to `address`, without Nagle's delay.
///
/// # Errors
/// The system's: refused, unreachable. It does not time out by itself before the kernel does.
pub async fn connect(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// The addresses of a host name.
///
/// # Errors
/// The resolver's.
pub async fn resolve(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    Ok(tokio::net::lookup_host((host, port)).await?.collect())
}
