//! WebDAV (RFC 4918): the XML of requests and answers, and the header fields that come with it.
//!
//! Server side: [`Propfind`], [`Proppatch`] and [`LockRequest`] read request bodies; a [`Multistatus`] writes the
//! answer, from a list of [`Property`] values for each file. [`Depth`], [`parse_timeout`], [`IfHeader`] and
//! [`parse_coded_url`] read the fields. Client side: [`propfind_body`] is the request, [`Entries`] reads the response,
//! one [`Entry`] per file.
//!
//! XML comes from the network, so the reader ([`Element::parse`]) takes UTF-8 only, refuses document types, knows the
//! five predefined entities only, and has bounds on size, depth and number of elements, given by [`Limits`].
//!
//! Not here: the source of properties, and the table of locks.

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

/// The namespace of ownCloud's properties; rclone and others read its `checksums`.
pub const OWNCLOUD: &str = "http://owncloud.org/ns";

/// The namespace of the `mode` property that grid clients (davix, gfal2) read.
pub const LCGDM: &str = "LCGDM:";

/// The namespace of Towpath's own elements.
pub const TOWPATH: &str = "urn:towpath:dav";

#[cfg(test)]
mod tests;
