//! WebDAV (RFC 4918): the XML of requests and answers, and the header fields that come with it.
//!
//! Server side: [`Propfind`], [`Proppatch`] and [`LockRequest`] read request bodies; a [`Multistatus`] writes the answer,
//! from a list of [`Property`] values for each file. [`Depth`], [`parse_timeout`], [`IfHeader`] and [`parse_coded_url`] read the fields.
//! Client side: [`propfind_body`] asks, [`Entries`] reads the answer, one [`Entry`] for each file.
//!
//! XML comes from the network, so the reader ([`Element::parse`]) takes UTF-8 only, refuses document types, knows the five
//! predefined entities only, and has bounds on size, depth and number of elements, given by [`Limits`].
//!
//! Not here: where properties come from, and who holds which lock.

mod entry;
mod fields;
mod multistatus;
mod property;
mod request;
mod xml;

pub use self::{
    entry::{Entries, Entry, InvalidAnswer, propfind_body},
    fields::{Depth, IfCondition, IfHeader, IfList, parse_coded_url, parse_timeout},
    multistatus::{Multistatus, error_body, lock_body},
    property::{ActiveLock, LockScope, Property, ResourceType},
    request::{Action, Change, LockRequest, Propfind, Proppatch},
    xml::{Element, InvalidXml, Limits, Name},
};

/// The namespace of WebDAV itself.
pub const DAV: &str = "DAV:";

/// The namespace of ownCloud's properties, of which rclone and others read `checksums`.
pub const OWNCLOUD: &str = "http://owncloud.org/ns";

/// The namespace in which grid clients (davix, gfal2) look for a file's mode.
pub const LCGDM: &str = "LCGDM:";

/// The namespace of Towpath's own elements.
pub const TOWPATH: &str = "urn:towpath:dav";

#[cfg(test)]
mod tests;
