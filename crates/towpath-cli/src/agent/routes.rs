//! The HTTP route with which its user stops an agent.

use async_trait::async_trait;
use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use towpath_server::routes::{RouteRequest, RouteResponse, Routes};
use towpath_store::{Error, Fault, Result};

use crate::cache::ControlKey;

/// The route: a POST with the key in the file `control` as its body.
pub(super) const STOP: &str = "agent/stop";

/// The routes of an agent, beside those of its cache.
#[derive(Debug)]
pub(super) struct AgentRoutes {
    /// The key that permits it.
    pub(super) key: ControlKey,
    /// Cancelled by the request.
    pub(super) stopping: CancellationToken,
}

#[async_trait]
impl Routes for AgentRoutes {
    fn methods(&self, path: &str) -> &[Method] {
        if path == STOP { &[Method::POST] } else { &[] }
    }

    async fn answer(&self, request: RouteRequest) -> Result<RouteResponse> {
        if !self.key.matches(&request.body) {
            return Err(Error::new(Fault::PermissionDenied, "the key is not that of this agent"));
        }
        self.stopping.cancel();
        Ok(RouteResponse::ok("application/json", json!({"stopping": true}).to_string()))
    }
}
