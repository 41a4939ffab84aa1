//! The xroot protocol as a face of a store.

use std::{net::SocketAddr, sync::Arc};

use crate::{Service, Socket};

/// Serves one connection until it ends.
pub async fn serve(_service: Arc<Service>, _socket: Socket, _peer: SocketAddr) {}
