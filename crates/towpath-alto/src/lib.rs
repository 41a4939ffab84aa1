//! ALTO (RFC 7285 and its extensions): network path costs.
//!
//! Agents provide [`agent_state`], which are combined into a [`network_state`]. A network state is validated and
//! immutable; updates create a new one. From it follows a [`directory`] of [`resource`]s, each a pure function of the
//! network state and a request. [`fields`] parses requests, and [`problem`] describes errors in them. Costs of many
//! pairs form a [`matrix`], and some have a [`calendar`]. A [`path`] leads through the [`routes`] of routers and over
//! the links of a [`topology`]. Values that the network state lacks can be fetched on demand ([`delegation`]).
//! [`compatibility`] contains extensions beyond the RFCs.
//!
//! [`geo`] locates addresses. [`order`] is the expression language that orders [`replicas`]. [`patch`] represents
//! changes of documents, and [`update_services`] announces the services that send them.
//!
//! The crate does no HTTP, file access or timekeeping. Everything is a function of bytes.

pub mod address;
pub mod agent_state;
pub mod calendar;
pub mod compatibility;
pub mod cost;
pub mod delegation;
pub mod directory;
pub mod entity;
pub mod fields;
pub mod geo;
pub mod lenient;
pub(crate) mod matrix;
pub mod media;
pub mod multipart;
pub mod names;
pub mod nested;
pub mod network_map;
pub mod network_state;
pub mod order;
pub mod patch;
pub mod path;
pub mod problem;
pub mod properties;
pub mod replicas;
pub mod requested_calendars;
mod reserved;
pub mod resource;
pub mod response;
pub mod route;
pub mod routes;
pub mod topology;
pub mod update_services;
