//! Readiness notification of systemd (sd_notify(3)): a datagram to the socket in `NOTIFY_SOCKET`.

use std::os::{
    linux::net::SocketAddrExt as _,
    unix::net::{SocketAddr, UnixDatagram},
};

use towpath_store::sys::environment;

/// Notifies systemd of `state` (`READY=1`, `STOPPING=1`) if the environment has `NOTIFY_SOCKET`.
pub(crate) fn notify_systemd(state: &str) {
    let Some(path) = environment::variable("NOTIFY_SOCKET") else { return };
    let bytes = path.as_encoded_bytes();
    let address = match bytes.strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(&path),
    };
    let sent = address.and_then(|address| UnixDatagram::unbound()?.send_to_addr(state.as_bytes(), &address));
    if let Err(error) = sent {
        tracing::warn!(%error, "cannot notify systemd of `{state}`");
    }
}
