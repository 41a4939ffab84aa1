//! ALTO server: answers requests over HTTP from the facts of all agents, and sends updates to clients that follow answers.
//!
//! [`Answers`] is the application that `towpath_server` runs. It is the [`Consumer`](towpath_alto_sources::Consumer) of the agents' facts: it builds a
//! [`World`](towpath_alto::world::World) of them and replaces it as a whole, so that each request is answered from one world. [`Delegates`] collects what a
//! request needs from agents that are queried on demand. [`updates`] holds versions, events and views of answers without I/O and clock; streams and TIPS
//! views carry them. [`Rucio`] is the table of distances for Rucio's sorter. [`settings`] are those of the role.

mod answers;
mod delegates;
mod rucio;
pub mod settings;
mod streams;
pub mod updates;
mod views;

pub use self::{
    answers::{Answers, Unservable},
    delegates::Delegates,
    rucio::Rucio,
};
