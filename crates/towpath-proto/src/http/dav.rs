//! WebDAV (RFC 4918): the XML of requests and responses, and the related header fields.
//!
//! Server side: [`Propfind`], [`Proppatch`] and [`LockRequest`] parse request bodies; a [`Multistatus`] writes the
//! response from a list of [`Property`] values for each file. [`Depth`], [`parse_timeout`], [`IfHeader`] and
//! [`parse_coded_url`] parse the fields. Client side: [`propfind_body`] is the request, [`Entries`] parses the
//! response, one [`Entry`] per file.
//!
//! XML comes from the network, so the parser ([`Element::parse`]) accepts only UTF-8, rejects document types, knows
//! only the five predefined entities, and limits the size, depth and number of elements ([`Limits`]).
//!
//! Not here: the source of properties, and the table of locks.

mod entry;
mod fields;
mod multistatus;
mod property;
mod request;
mod xml;

pub use self::{
    entry::{Entries, Entry, InvalidMultistatus, propfind_body},
    fields::{Depth, IfCondition, IfHeader, IfList, parse_coded_url, parse_timeout},
    multistatus::{Multistatus, error_body, lock_body},
    property::{ActiveLock, LockScope, Property, ResourceType},
    request::{Action, LockRequest, PropertyChange, Propfind, Proppatch},
    xml::{Element, InvalidXml, Limits, Name},
};

/// The namespace of WebDAV itself.
pub const DAV: &str = "DAV:";

/// The namespace of ownCloud's properties; rclone and others read its `checksums`.
pub const OWNCLOUD: &str = "http://owncloud.org/ns";

/// The namespace of the `mode` property that grid clients (davix, gfal2) read.
pub const LCGDM: &str = "LCGDM:";

/// The namespace of Towpath's own elements.
pub const TOWPATH: &str = "urn:towpath:dav";

#[cfg(test)]
mod tests;
