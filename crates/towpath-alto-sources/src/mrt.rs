//! Reader for route dumps in the MRT format (RFC 6396, RFC 8050): tables and updates as published by route collectors
//! and written by routers.
//!
//! [`read`] makes one pass over a dump and emits an [`Event`] for each route, withdrawal, lost session and end of a
//! table, in file order. It also emits where tables begin and end: some routers append table after table to one file,
//! and the last one is valid. It supports `TABLE_DUMP_V2` and `TABLE_DUMP` (the entries of all peers) and `BGP4MP` with
//! and without `_ET` (updates received by the collector, state changes of its sessions), each with and without
//! ADD-PATH. The file is plain or gzip-compressed.
//!
//! Memory is bounded by the longest record (16 MiB) and the peer index table (65,535 peers), whatever the length of the
//! dump. A damaged record is skipped and counted; in a table record only the damaged entries are.
//!
//! `bgpkit-parser` splits the file into records and identifies their types; `bgp_update.rs` explains why it is not used
//! for more. Routes are not stored, compared or selected here, and timestamps are dropped.

mod messages;
mod records;
mod table;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeSet, HashSet},
    io::{self, Read},
    mem,
};

use bgpkit_parser::{RawMrtRecord, models::EntryType};

use crate::bgp_update::BgpDecodeError;
pub use crate::bgp_update::{Event, Peer, Preference, Rib};
use records::{NextRecord, Records};
use towpath_alto::address::AddressType;

/// Event read from a dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MrtEvent {
    /// Change of a router's routes or session.
    Change(Event),
    /// Following tables replace all routes of this router.
    TableBegins {
        /// The router.
        router: Peer,
    },
    /// All routes of this router in one address family have been emitted since its table began.
    TableEnds {
        /// The router.
        router: Peer,
        /// The address family.
        family: AddressType,
    },
}

/// Contents of a dump.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Number of routes emitted.
    pub routes: u64,
    /// Number of withdrawals emitted.
    pub withdrawals: u64,
    /// Number of lost sessions.
    pub lost: u64,
    /// Number of end-of-RIB markers.
    pub ends_of_rib: u64,
    /// Number of records that carry no unicast routes of peers: multicast, VPNs, other protocols, messages sent by the
    /// collector.
    pub ignored: u64,
    /// Number of damaged records, and of damaged entries in table records.
    pub skipped: u64,
    /// Position and damage of the first of them.
    pub first_skipped: Option<String>,
    /// The file ends within a record, or its length is damaged so that the next record cannot be found. Earlier events
    /// were emitted.
    pub is_truncated: bool,
    /// The file is truncated within a table, which is therefore incomplete.
    pub is_table_truncated: bool,
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MrtError {
    /// The file is not an MRT dump.
    #[error("this is not an MRT dump: {0}")]
    NotMrt(&'static str),
    /// The file is compressed by bzip2.
    #[error("bzip2 compression is not supported: decompress it first with `bzcat FILE > DUMP`")]
    Bzip2,
    /// The source failed, the compressed data is corrupt, or it decompresses to more than 64 GiB.
    #[error("cannot read the rest of the dump: {0}")]
    Read(#[from] io::Error),
}

/// Reads a dump and passes its events to `take` in order. `source` need not be buffered.
///
/// A truncated file is not an error; [`Summary::is_truncated`] reports it. A file without any record is an error: it is
/// more likely a dump that has not been written yet than an empty table.
///
/// # Errors
/// Returns [`MrtError`]. Events before the error have already been passed to `take`.
pub fn read(source: impl Read, take: impl FnMut(MrtEvent)) -> Result<Summary, MrtError> {
    let mut records = Records::open(source)?;
    let mut dump = Dump::new(take);
    loop {
        dump.number += 1;
        match records.next()? {
            NextRecord::Record(record) => dump.record(&record),
            NextRecord::Damaged(damage) => dump.skip(&damage),
            NextRecord::Unbounded(damage) => {
                dump.skip(&damage);
                return Ok(dump.truncated_summary());
            }
            NextRecord::Truncated => return Ok(dump.truncated_summary()),
            NextRecord::End => {
                dump.end_tables();
                return Ok(dump.summary);
            }
        }
    }
}

/// State while reading a dump.
struct Dump<F> {
    take: F,
    /// Number of the current record, from 1.
    number: u64,
    /// The last peer index table (RFC 6396 §4.3.1).
    peers: Vec<Peer>,
    tables: Tables,
    summary: Summary,
}

/// Tables of one dump, possibly of several views, each view once.
#[derive(Default)]
struct Tables {
    /// Names of the views.
    views: BTreeSet<Vec<u8>>,
    /// Peers with routes in these tables or in earlier ones.
    peers: HashSet<Peer>,
    /// Address families seen so far.
    families: BTreeSet<AddressType>,
    /// Whether the last record belonged to a table.
    is_open: bool,
}

impl<F: FnMut(MrtEvent)> Dump<F> {
    fn new(take: F) -> Self {
        Self { take, number: 0, peers: Vec::new(), tables: Tables::default(), summary: Summary::default() }
    }

    /// Returns the summary of a dump truncated here.
    fn truncated_summary(mut self) -> Summary {
        self.summary.is_truncated = true;
        self.summary.is_table_truncated = self.tables.is_open;
        self.summary
    }

    /// Starts the table of a view with these peers. It belongs to the current set of tables, unless that already has
    /// this view; then a new set begins.
    fn begin_table(&mut self, view: &[u8], peers: Vec<Peer>) {
        if self.tables.views.contains(view) {
            self.end_tables();
            self.tables.views.clear();
            // Including peers that have disappeared since.
            self.tables.peers.iter().for_each(|router| (self.take)(MrtEvent::TableBegins { router: *router }));
        }
        self.tables.views.insert(view.to_vec());
        for router in &peers {
            if self.tables.peers.insert(*router) {
                (self.take)(MrtEvent::TableBegins { router: *router });
            }
        }
        self.peers = peers;
    }

    /// Ends the open tables.
    fn end_tables(&mut self) {
        for family in mem::take(&mut self.tables.families) {
            self.tables.peers.iter().for_each(|router| (self.take)(MrtEvent::TableEnds { router: *router, family }));
        }
    }

    fn record(&mut self, record: &RawMrtRecord) {
        let subtype = record.common_header.entry_subtype;
        let body = &*record.message_bytes;
        self.tables.is_open =
            matches!(record.common_header.entry_type, EntryType::TABLE_DUMP | EntryType::TABLE_DUMP_V2);
        if !self.tables.is_open {
            self.end_tables();
        }
        let read = match record.common_header.entry_type {
            EntryType::TABLE_DUMP => self.table_dump(subtype, body),
            EntryType::TABLE_DUMP_V2 => self.table_dump_v2(subtype, body),
            EntryType::BGP4MP | EntryType::BGP4MP_ET => self.bgp4mp(subtype, body),
            _ => {
                self.ignore();
                Ok(())
            }
        };
        if let Err(damage) = read {
            self.skip(&damage);
        }
    }

    fn emit(&mut self, event: Event) {
        let count = match event {
            Event::Route { .. } => &mut self.summary.routes,
            Event::Withdraw { .. } => &mut self.summary.withdrawals,
            Event::Lost { .. } => &mut self.summary.lost,
            Event::EndOfRib { .. } => &mut self.summary.ends_of_rib,
        };
        *count += 1;
        (self.take)(MrtEvent::Change(event));
    }

    fn ignore(&mut self) {
        self.summary.ignored += 1;
    }

    fn skip(&mut self, damage: &BgpDecodeError) {
        self.summary.skipped += 1;
        let number = self.number;
        self.summary.first_skipped.get_or_insert_with(|| format!("record {number}: {damage}"));
    }
}
