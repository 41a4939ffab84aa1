//! The error table: every error of towpath, and its name in each protocol.
//!
//! An errno from a disk becomes an XRootD error code or an HTTP status in the server, is decoded by a client, and ends
//! as a process exit code. All these translations are columns of **one** constant table, [`TABLE`], with one [`Row`]
//! per [`Fault`].
//!
//! A [`Fault`] says what happened; its [`Kind`] says what the caller can do about it; its [`Retry`] says whether
//! the same request can succeed later. The error types of the other crates carry a `Fault` and add the message.
//!
//! Outgoing translations ([`Fault::xrootd_code`], [`Fault::http_status`], [`Fault::errno`], ...) pick one value.
//! Incoming ones ([`Fault::from_xrootd`], [`Fault::from_http`], [`Fault::from_errno`]) are total: each known
//! value belongs to exactly one fault, and an unknown value to a stated default. The way out and back changes
//! the fault only where the foreign vocabulary is poorer than ours; a test lists every such loss.
//!
//! Not here: messages, the context of an error, and meaning that depends on the request (a WebDAV 409 on MKCOL
//! means that the parent is missing): callers that know the request interpret it before they consult the table.

mod table;

use std::fmt;

pub use table::{Row, TABLE};

/// What the caller can do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The object does not exist.
    NotFound,
    /// The caller lacks permission and needs other credentials.
    Denied,
    /// The request can never work as it stands: change it.
    Invalid,
    /// The state of the target is in the way: change that state, or wait until it changes.
    Conflict,
    /// The bytes that arrived cannot be trusted: discard them and fetch them again, elsewhere if possible.
    Corrupt,
    /// The other side or the path to it does not work now: try again later, or try a replica.
    Unavailable,
    /// A defect on the side that reports it: nothing to do but to report it.
    Internal,
}

/// Whether the request that failed can succeed when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same request fails again.
    No,
    /// The same request may succeed, after a pause, on the same connection and handle.
    Yes,
    /// The same request may succeed, but only after the connection and the file have been opened again.
    AfterReopen,
}

/// How a process ends; `towpath` uses these and no other codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Everything succeeded.
    Success = 0,
    /// A defect, ours or the peer's ([`Kind::Internal`]).
    Internal = 1,
    /// The command line is wrong (also what clap uses).
    Usage = 2,
    /// [`Kind::NotFound`].
    NotFound = 3,
    /// [`Kind::Denied`].
    Denied = 4,
    /// [`Kind::Invalid`].
    Invalid = 5,
    /// [`Kind::Conflict`], except for lack of space.
    Conflict = 6,
    /// [`Kind::Corrupt`].
    Corrupt = 7,
    /// [`Kind::Unavailable`], except for a cancelled run.
    Unavailable = 8,
    /// No space or quota left at the destination.
    NoSpace = 9,
    /// Interrupted by the user: 128 + SIGINT, as shells expect.
    Cancelled = 130,
}

/// Header field of error responses with the name of the [`Fault`] ([`Fault::name`]): a status is less specific, and a
/// response to HEAD has no body.
pub const FAULT_FIELD: &str = "towpath-fault";

/// What went wrong. The phrase, and what every protocol calls it, is in [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// No such file or directory.
    NotFound,
    /// The file has no such extended attribute.
    AttributeNotFound,
    /// The caller is known, but may not do this.
    PermissionDenied,
    /// Credentials are missing, expired, forged or not understood; the message says which.
    AuthenticationFailed,
    /// The other side insists on an encrypted connection.
    TlsRequired,
    /// The file system or the export is read-only.
    ReadOnly,
    /// An argument has a value that makes no sense.
    InvalidArgument,
    /// A name or path, or a list in a request, is longer than allowed.
    NameTooLong,
    /// A file, a body or a request is larger than the other side accepts.
    TooLarge,
    /// The request is understood, but not implemented or not enabled.
    Unsupported,
    /// The client violated the protocol: its request cannot be decoded.
    MalformedRequest,
    /// A file was expected, a directory was found.
    IsDirectory,
    /// A directory was expected, something else was found.
    NotDirectory,
    /// A regular file was expected, a device, socket or the like was found.
    NotRegular,
    /// Something of that name exists already.
    AlreadyExists,
    /// The directory still has entries.
    NotEmpty,
    /// Someone else holds a lock on it or is writing it.
    Locked,
    /// The device is full.
    NoSpace,
    /// The caller's share of the device is used up.
    QuotaExceeded,
    /// The file is no longer the version that was opened, or a precondition does not hold.
    Changed,
    /// The data do not match their digest.
    ChecksumMismatch,
    /// Fewer bytes came than were promised.
    Truncated,
    /// The server violated the protocol: its response cannot be decoded.
    Protocol,
    /// The file handle is not open (any more), for instance after the session was lost.
    HandleNotOpen,
    /// The storage device or the file system failed.
    Io,
    /// No answer in the time allowed.
    TimedOut,
    /// The other side works, but has too much to do.
    Overloaded,
    /// The connection was refused or lost, or the service is not running.
    Unavailable,
    /// The caller, or someone for it, stopped the operation.
    Cancelled,
    /// A defect in the side that reports it.
    Internal,
}

impl Fault {
    /// The row of [`TABLE`] that describes this fault.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Its name, for logs, metrics and programs: `NotFound`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The fault of that name ([`Self::name`]); none if there is no such fault.
    pub fn from_name(name: &str) -> Option<Fault> {
        find(|row| row.name == name)
    }

    /// What the caller can do.
    pub fn kind(self) -> Kind {
        self.row().kind
    }

    /// Whether sending the request again can help.
    pub fn retry(self) -> Retry {
        self.row().retry
    }

    /// The XRootD error code (`kXR_...`, 3000 to 3035) to send for this fault.
    pub fn xrootd_code(self) -> u32 {
        self.row().xrootd
    }

    /// The HTTP status to send for this fault.
    ///
    /// 401 obliges the sender to add `WWW-Authenticate`, 426 to add `Upgrade` (RFC 9110 §15.5.2, §15.5.22);
    /// 429 and 503 should carry `Retry-After`.
    pub fn http_status(self) -> u16 {
        self.row().http
    }

    /// The Linux error number (asm-generic values) for this fault, positive.
    pub fn errno(self) -> i32 {
        self.row().errno
    }

    /// How a process whose main task failed like this ends.
    pub fn exit(self) -> Exit {
        self.row().exit
    }

    /// [`Fault::exit`] as the number that `std::process::ExitCode` takes.
    pub fn exit_code(self) -> u8 {
        self.row().exit as u8
    }

    /// A few words for people, lower case, without full stop: `no such file or directory`.
    pub fn phrase(self) -> &'static str {
        self.row().phrase
    }

    /// The fault behind an XRootD error code; [`Fault::Internal`] for a code that is not in the table.
    pub fn from_xrootd(code: u32) -> Fault {
        find(|row| row.xrootd_in.contains(&code)).unwrap_or(Fault::Internal)
    }

    /// The fault behind an HTTP status.
    ///
    /// An unknown 4xx is [`Fault::InvalidArgument`], an unknown 5xx [`Fault::Internal`]; a status that is no
    /// error (below 400) or no status at all, where an error was expected, is [`Fault::Protocol`].
    pub fn from_http(status: u16) -> Fault {
        find(|row| row.http_in.contains(&status)).unwrap_or(match status {
            400..=499 => Fault::InvalidArgument,
            500..=599 => Fault::Internal,
            _ => Fault::Protocol,
        })
    }

    /// The fault behind a Linux error number (asm-generic values, positive); [`Fault::Io`] for an unknown one.
    pub fn from_errno(errno: i32) -> Fault {
        find(|row| row.errno_in.contains(&errno)).unwrap_or(Fault::Io)
    }
}

// The lookup in `Fault::row` is an index: the rows stand in the order of the enum and none is missing.
const _: () = {
    assert!(TABLE.len() == Fault::Internal as usize + 1);
    let mut index = 0;
    while index < TABLE.len() {
        assert!(TABLE[index].fault as usize == index);
        index += 1;
    }
};

fn find(matches: impl Fn(&Row) -> bool) -> Option<Fault> {
    TABLE.iter().find(|row| matches(row)).map(|row| row.fault)
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.phrase())
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests;
