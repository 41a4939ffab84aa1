//! ALTO (RFC 7285 and its extensions): what a path costs.
//!
//! Agents tell [`facts`]; all of them make a [`world`], which is checked and never changed: a new one takes its place. What the world has to tell
//! follows from it: a [`directory`] of [`resource`]s, each a pure function of the world and a request. Requests are taken apart by [`fields`], and what is wrong
//! with one is a [`problem`]. Costs of many pairs are a [`matrix`], and some have a [`calendar`]; ways between them, [`path`]s through the [`routes`] of routers and over the links of a [`topology`]. What it lacks may be asked for when a request comes ([`delegation`]). What is offered beside what the RFCs say is [`compatibility`].
//!
//! Beside that stand [`geo`], where addresses are on Earth; [`order`], the expression by which replicas are ordered, and [`replicas`], the lists
//! that it orders; [`patch`], the changes of documents, and [`update_services`], which announces them.
//!
//! What is not here: HTTP, files and clocks. Everything is a function of bytes, but for what reads a stream that it is given.

pub mod address;
pub mod answer;
pub mod calendar;
pub mod calendared;
pub mod compatibility;
pub mod cost;
pub mod delegation;
pub mod directory;
pub mod entity;
pub mod facts;
pub mod fields;
pub mod geo;
pub mod lenient;
pub mod matrix;
pub mod media;
pub mod names;
pub mod nested;
pub mod network_map;
pub mod order;
pub mod patch;
pub mod path;
pub mod problem;
pub mod properties;
pub mod replicas;
mod reserved;
pub mod resource;
pub mod route;
pub mod routes;
pub mod topology;
pub mod update_services;
pub mod world;
