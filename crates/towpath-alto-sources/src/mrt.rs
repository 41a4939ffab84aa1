//! Dumps of routes in the MRT format (RFC 6396, RFC 8050): tables and updates, as route collectors publish them and routers write them.
//!
//! [`read`] goes once through a dump and gives an [`Event`] for each route, withdrawal, lost session and end of a table, in the
//! order of the file, and says where tables begin and end: some routers write one behind the other into a file, and the last holds. It reads `TABLE_DUMP_V2` and `TABLE_DUMP` (the entries of all peers) and `BGP4MP` with and without `_ET`
//! (updates that the collector received, changes of its sessions), each with and without ADD-PATH. The file is plain or
//! compressed by gzip.
//!
//! Memory is bounded by the longest record (16 MiB) and the peer index table (65,535 peers), however long the dump is. A record
//! that is damaged is passed over and counted; of a table record, only those entries that are damaged.
//!
//! `bgpkit-parser` cuts the file into records and names their kinds; why not more: `bgp_update.rs`. Routes are not kept, compared
//! or chosen here, and times are not told.

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

use crate::bgp_update::Damage;
pub use crate::bgp_update::{Event, Peer, Preference, Rib};
use records::{Next, Records};
use towpath_alto::address::AddressType;

/// What a dump tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MrtEvent {
    /// Something of a router.
    Change(Event),
    /// Whatever tables tell of this router from here on, they tell anew.
    TableBegins {
        /// Of whom.
        router: Peer,
    },
    /// All routes of a family that this router has were told since its table began.
    TableEnds {
        /// Of whom.
        router: Peer,
        /// Of which.
        family: AddressType,
    },
}

/// What was in a dump.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Routes that were told.
    pub routes: u64,
    /// Withdrawals that were told.
    pub withdrawals: u64,
    /// Sessions that were lost.
    pub lost: u64,
    /// Ends of tables that were told anew.
    pub ends_of_rib: u64,
    /// Records of kinds that tell no unicast routes of peers: multicast, VPNs, other protocols, what the collector itself sent.
    pub ignored: u64,
    /// Damaged records, and damaged entries of table records.
    pub skipped: u64,
    /// Where the first of them is, and what it has.
    pub first_skipped: Option<String>,
    /// The file ends within a record, or nothing can be found behind a damaged one. What came before was told.
    pub is_truncated: bool,
    /// And that is within a table, so that it does not tell all routes.
    pub is_table_truncated: bool,
}

/// Why a dump cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum MrtError {
    /// The file is something else.
    #[error("this is no MRT dump: {0}")]
    NotMrt(&'static str),
    /// The file is compressed by bzip2.
    #[error("this is compressed by bzip2, which is not read here: unpack it first with `bzcat FILE > DUMP`")]
    Bzip2,
    /// Its source failed, what is compressed is corrupt, or it unpacks to more than 64 GiB.
    #[error("the dump cannot be read any further: {0}")]
    Read(#[from] io::Error),
}

/// Reads a dump and gives its events to `take`, in their order. `source` need not be buffered.
///
/// A file that is cut off is no error, but tells so in [`Summary::is_truncated`]. One without any record is one: it is more
/// likely a dump that nobody wrote yet than a table without routes.
///
/// # Errors
/// [`MrtError`]; `take` has been given what came before.
pub fn read(source: impl Read, take: impl FnMut(MrtEvent)) -> Result<Summary, MrtError> {
    let mut records = Records::open(source)?;
    let mut dump = Dump::new(take);
    loop {
        dump.number += 1;
        match records.next()? {
            Next::Record(record) => dump.record(&record),
            Next::Damaged(damage) => dump.skip(&damage),
            Next::Unbounded(damage) => {
                dump.skip(&damage);
                return Ok(dump.truncated());
            }
            Next::Truncated => return Ok(dump.truncated()),
            Next::End => {
                dump.end_tables();
                return Ok(dump.summary);
            }
        }
    }
}

/// A dump in the middle of being read.
struct Dump<F> {
    take: F,
    /// Of the record that is read, from 1.
    number: u64,
    /// The last peer index table (RFC 6396 §4.3.1).
    peers: Vec<Peer>,
    tables: Tables,
    summary: Summary,
}

/// Tables that were written together: of several views perhaps, each once.
#[derive(Default)]
struct Tables {
    /// Their names.
    views: BTreeSet<Vec<u8>>,
    /// Who has routes in them, or had in earlier ones.
    peers: HashSet<Peer>,
    /// What they have told so far.
    families: BTreeSet<AddressType>,
    /// Whether the last record was of one.
    is_open: bool,
}

impl<F: FnMut(MrtEvent)> Dump<F> {
    fn new(take: F) -> Self {
        Self { take, number: 0, peers: Vec::new(), tables: Tables::default(), summary: Summary::default() }
    }

    /// It is cut off here.
    fn truncated(mut self) -> Summary {
        self.summary.is_truncated = true;
        self.summary.is_table_truncated = self.tables.is_open;
        self.summary
    }

    /// A table of that view begins, with these peers: the next one of those that are written together, or the first if there was one of this view.
    fn begin_table(&mut self, view: &[u8], peers: Vec<Peer>) {
        if self.tables.views.contains(view) {
            self.end_tables();
            self.tables.views.clear();
            // Also those that have gone since.
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

    /// Tables that were begun have told all.
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

    fn tell(&mut self, event: Event) {
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

    fn skip(&mut self, damage: &Damage) {
        self.summary.skipped += 1;
        let number = self.number;
        self.summary.first_skipped.get_or_insert_with(|| format!("record {number}: {damage}"));
    }
}
