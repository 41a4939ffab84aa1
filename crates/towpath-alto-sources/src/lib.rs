//! Sources of the ALTO model: readers of what routers, registries and tools publish, and the agents that run them.
//!
//! Readers are functions of bytes, or of a stream that the caller passes, and return [`towpath_alto::agent_state`]:
//! [`looking_glass`], [`mrt`] and [`bmp`] read routes, and [`rib`] keeps them; [`sites`] reads registries,
//! [`measurements`] the output of measurement tools, [`program_protocol`] the output of programs.
//!
//! [`Agents`] runs one task for each configured agent ([`settings`]), keeps what each of them reported last, and passes
//! it to a [`Consumer`]. A [`QueryBatcher`] queues the requests to a delegate, an agent that is queried on demand.

mod agents;
mod bgp_update;
pub mod bmp;
pub mod looking_glass;
pub mod measurements;
pub mod mrt;
pub mod program_protocol;
mod query_batcher;
mod recent;
pub(crate) mod rib;
pub mod settings;
pub mod sites;
mod snapshot;
mod sources;

pub use self::{
    agents::{AgentStatistics, Agents, AgentsError, Consumer, Purpose, StaleAgent, run_agents},
    query_batcher::{ItemLookup, QueryBatcher},
};
