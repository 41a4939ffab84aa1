//! ALTO (RFC 7285 and its extensions): network path costs.
//!
//! Agents provide [`facts`], which are combined into a [`world`]. A world is validated and immutable; updates create
//! a new one. From it follows a [`directory`] of [`resource`]s, each a pure function of the world and a request.
//! [`fields`] parses requests, and [`problem`] describes errors in them. Costs of many pairs form a [`matrix`], and
//! some have a [`calendar`]. A [`path`] leads through the [`routes`] of routers and over the links of a [`topology`].
//! Values that the world lacks can be fetched on demand ([`delegation`]). [`compatibility`] contains extensions
//! beyond the RFCs.
//!
//! Inputs: [`looking_glass`], [`mrt`] and [`bmp`] decode the output of routers, and [`feed`] maintains their routes;
//! [`geo`] locates addresses; [`lines`] reads the output of programs; [`sites`] and [`measurements`] read registries
//! and measurement tools. [`order`] is the expression language that orders [`replicas`]. [`patch`] represents
//! changes of documents, and [`updates`] sends them to followers. [`client`] queries other servers.
//!
//! The crate does no HTTP, file access or timekeeping. Everything is a function of bytes, except for readers of a
//! given stream.

pub mod address;
mod bgp_update;
pub mod bmp;
pub mod calendar;
pub mod client;
pub mod compatibility;
pub mod cost;
pub mod delegation;
pub mod directory;
pub mod entity;
pub mod facts;
pub mod feed;
pub mod fields;
pub mod geo;
mod lenient;
pub mod lines;
pub mod looking_glass;
pub mod matrix;
pub mod measurements;
pub mod media;
pub mod mrt;
pub mod names;
mod nested;
pub mod network_map;
pub mod order;
pub mod patch;
pub mod path;
pub mod problem;
pub mod properties;
pub mod replicas;
pub mod resource;
pub mod route;
pub mod routes;
pub mod rucio;
pub mod sites;
pub mod topology;
pub mod updates;
pub mod world;
