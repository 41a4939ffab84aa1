//! ALTO server: answers requests over HTTP from the facts of all agents, and sends updates to clients that follow
//! answers.
//!
//! [`AltoService`] is the application that `towpath_server` runs. It is the
//! [`Consumer`](towpath_alto_sources::Consumer) of the agents' facts: it builds a
//! [`NetworkState`](towpath_alto::network_state::NetworkState) of them and replaces it as a whole, so that each request
//! is answered from one network state. [`Delegates`] collects what a request needs from agents that are queried on
//! demand. [`updates`] holds versions, events and views of answers without I/O and clock; streams and TIPS views carry
//! them. [`Rucio`] is the table of distances for Rucio's sorter. `overview` is the page for browsers. [`settings`] are those of the role.

mod delegates;
mod metrics;
mod overview;
mod rucio;
mod service;
pub mod settings;
mod streams;
pub mod updates;
mod views;

pub use self::{
    delegates::Delegates,
    rucio::Rucio,
    service::{AltoService, SnapshotError},
};
