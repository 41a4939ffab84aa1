//! Settings of agents: [`agent`] for every kind of agent, [`delegate`] for those that are queried when a request
//! arrives.

pub mod agent;
pub mod delegate;
