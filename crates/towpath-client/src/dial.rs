//! From a host name to a connection, if it may be made.

use std::{fmt, time::Duration};

use tokio::{net::TcpStream, time::timeout};
use towpath_proto::reach::Reach;
use towpath_store::{Blame, Error, Fault, Result, sys::net};

/// Connects to the first address of `host` that answers, each within `limit`. `reach` is asked about each address, so a name that changes
/// its meaning leads nowhere else.
///
/// # Errors
/// `PermissionDenied` if the host has addresses, and none of them may be connected to; trying again is of no use then. Else `Unavailable`
/// and `TimedOut`.
pub(crate) async fn connect(host: &str, port: u16, limit: Duration, reach: &Reach) -> Result<TcpStream> {
    let name = if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") };
    let unreachable = |why: String| {
        Error::new(Fault::Unavailable, format!("{name} cannot be reached: {why}")).blamed_on(Blame::Network)
    };
    let resolved = timeout(limit, net::resolve(host, port)).await;
    let addresses =
        resolved.map_err(|_| timed_out(&name, "DNS lookup"))?.map_err(|error| unreachable(error.to_string()))?;
    let mut last = unreachable("it has no address".into());
    let mut forbidden = None;
    let mut tried = false;
    for address in addresses {
        if !reach.permits(host, address.ip()) {
            forbidden = Some(address.ip());
            continue;
        }
        tried = true;
        match timeout(limit, net::connect(address)).await {
            Ok(Ok(stream)) => return Ok(stream),
            Ok(Err(error)) => last = unreachable(format!("{address}: {error}")),
            Err(_) => last = timed_out(&name, "connecting"),
        }
    }
    match forbidden {
        Some(address) if !tried => Err(Error::new(
            Fault::PermissionDenied,
            format!("{host} is {address}, which is no public address and not among those that are allowed"),
        )),
        _ => Err(last),
    }
}

/// That something about a connection to `server` took too long.
pub(crate) fn timed_out(server: impl fmt::Display, what: &str) -> Error {
    Error::new(Fault::TimedOut, format!("{server}: {what} timed out")).blamed_on(Blame::Network)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_address_that_is_connected_to_is_the_one_that_was_checked() {
        let listener = net::listen(([127, 0, 0, 1], 0).into()).unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_secs(10);
        for host in ["127.0.0.1", "localhost", "::ffff:127.0.0.1", "0x7f.1", "2130706433", "0177.0.0.1", "0"] {
            let refused = connect(host, port, limit, &Reach::public()).await.unwrap_err();
            assert_eq!(refused.fault(), Fault::PermissionDenied, "{host}");
        }
        let reach = Reach::beyond_public(&["127.0.0.1"]).unwrap();
        let stream = connect("localhost", port, limit, &reach).await.unwrap();
        assert_eq!(stream.peer_addr().unwrap(), listener.local_addr().unwrap());
    }
}
