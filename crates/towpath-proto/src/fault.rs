//! The error table: all errors of towpath, and their codes in each protocol.
//!
//! An errno from a disk becomes an XRootD error code or an HTTP status in the server, is decoded by a client, and ends
//! as a process exit code. All these translations are columns of **one** constant table, [`TABLE`], with one [`Row`]
//! per [`Fault`].
//!
//! A [`Fault`] is what happened; its [`Kind`] is what the caller can do about it; its [`Retry`] is whether the same
//! request can succeed later. The error types of the other crates contain a `Fault` and add the message.
//!
//! Outgoing translations ([`Fault::xrootd_code`], [`Fault::http_status`], [`Fault::errno`], ...) select one value.
//! Incoming ones ([`Fault::from_xrootd`], [`Fault::from_http`], [`Fault::from_errno`]) are total: each known value
//! belongs to exactly one fault, and unknown values map to a documented default. A round trip changes the fault only
//! where the foreign vocabulary is smaller than ours; a test lists all such losses.
//!
//! Not here: messages, the context of an error, and meanings that depend on the request (a WebDAV 409 on MKCOL means
//! that the parent is missing). Callers that know the request interpret these before they consult the table.

mod table;

use std::fmt;

pub use table::{Row, TABLE};

/// The caller's options after an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// The object does not exist.
    NotFound,
    /// The caller lacks permission and needs other credentials.
    Denied,
    /// The request can never succeed unchanged: change it.
    Invalid,
    /// The state of the target prevents the request: change that state, or wait until it changes.
    Conflict,
    /// The received bytes cannot be trusted: discard them and fetch them again, from elsewhere if possible.
    Corrupt,
    /// The peer, or the path to it, does not work now: try again later, or try a replica.
    Unavailable,
    /// A defect in the program that reports it: file a bug report.
    Internal,
}

/// Whether the failed request can succeed when it is sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Retry {
    /// The same request fails again.
    No,
    /// The same request may succeed, after a pause, on the same connection and handle.
    Yes,
    /// The same request may succeed, but only after the connection and the file have been opened again.
    AfterReopen,
}

/// Exit code of a process; `towpath` uses only these codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Exit {
    /// Everything succeeded.
    Success = 0,
    /// A defect in towpath or in the peer ([`Kind::Internal`]).
    Internal = 1,
    /// The command line is wrong (the same code as clap's).
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

/// What went wrong. [`TABLE`] has its phrase and its code in each protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// No such file or directory.
    NotFound,
    /// The file has no such extended attribute.
    AttributeNotFound,
    /// The caller is authenticated, but lacks the permission.
    PermissionDenied,
    /// Credentials are missing, expired, forged or not understood; the message has the reason.
    AuthenticationFailed,
    /// The server's certificate does not prove its identity; the credentials of the caller do not matter.
    ServerUntrusted,
    /// The peer requires an encrypted connection.
    TlsRequired,
    /// The file system or the export is read-only.
    ReadOnly,
    /// An argument has an invalid value.
    InvalidArgument,
    /// A name, a path, or a list in a request is longer than allowed.
    NameTooLong,
    /// A file, a body or a request is larger than the peer accepts.
    TooLarge,
    /// The request is understood, but not implemented or not enabled.
    Unsupported,
    /// The client violated the protocol: its request cannot be decoded.
    MalformedRequest,
    /// A file was expected, but the object is a directory.
    IsDirectory,
    /// A directory was expected, but the object is something else.
    NotDirectory,
    /// A regular file was expected, but the object is a device, socket or similar.
    NotRegular,
    /// An object with that name already exists.
    AlreadyExists,
    /// The directory still has entries.
    NotEmpty,
    /// Another client has locked or is writing the object.
    Locked,
    /// The device is full.
    NoSpace,
    /// The caller's quota is exhausted.
    QuotaExceeded,
    /// The file is no longer the version that was opened, or a precondition does not hold.
    Changed,
    /// The data do not match their digest.
    ChecksumMismatch,
    /// Fewer bytes arrived than announced.
    Truncated,
    /// The server violated the protocol: its response cannot be decoded.
    Protocol,
    /// The file handle is not open (any more), for example after loss of the session.
    HandleNotOpen,
    /// The storage device or the file system failed.
    Io,
    /// No response before the timeout.
    TimedOut,
    /// The peer works, but is overloaded.
    Overloaded,
    /// The connection was refused or lost, or the service is not running.
    Unavailable,
    /// The operation was stopped by the caller or on its behalf.
    Cancelled,
    /// A defect in the program that reports it.
    Internal,
}

impl Fault {
    /// Returns the row of [`TABLE`] for this fault.
    pub fn row(self) -> &'static Row {
        &TABLE[self as usize]
    }

    /// Returns the name for logs, metrics and programs: `NotFound`.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// Returns the fault with that name ([`Self::name`]); `None` if there is no such fault.
    pub fn from_name(name: &str) -> Option<Fault> {
        find(|row| row.name == name)
    }

    /// Returns the caller's options.
    pub fn kind(self) -> Kind {
        self.row().kind
    }

    /// Returns whether sending the request again can help.
    pub fn retry(self) -> Retry {
        self.row().retry
    }

    /// Returns the XRootD error code (`kXR_...`, 3000 to 3035) to send for this fault.
    pub fn xrootd_code(self) -> u32 {
        self.row().xrootd
    }

    /// Returns the HTTP status to send for this fault.
    ///
    /// With 401 the sender must add `WWW-Authenticate`, with 426 `Upgrade` (RFC 9110 §15.5.2, §15.5.22); 429 and 503
    /// should have `Retry-After`.
    pub fn http_status(self) -> u16 {
        self.row().http
    }

    /// Returns the Linux error number (asm-generic values) for this fault, positive.
    pub fn errno(self) -> i32 {
        self.row().errno
    }

    /// Returns the exit code of a process whose main task failed with this fault.
    pub fn exit(self) -> Exit {
        self.row().exit
    }

    /// Returns [`Fault::exit`] as a number for `std::process::ExitCode`.
    pub fn exit_code(self) -> u8 {
        self.row().exit as u8
    }

    /// Returns a short description for people, in lower case without a full stop: `no such file or directory`.
    pub fn phrase(self) -> &'static str {
        self.row().phrase
    }

    /// Returns the fault for an XRootD error code; [`Fault::Internal`] for a code that is not in the table.
    pub fn from_xrootd(code: u32) -> Fault {
        find(|row| row.xrootd_in.contains(&code)).unwrap_or(Fault::Internal)
    }

    /// Returns the fault for an HTTP status.
    ///
    /// An unknown 4xx is [`Fault::InvalidArgument`], an unknown 5xx [`Fault::Internal`]. Where an error was expected, a
    /// status that is not an error (below 400) or not a status at all is [`Fault::Protocol`].
    pub fn from_http(status: u16) -> Fault {
        find(|row| row.http_in.contains(&status)).unwrap_or(match status {
            400..=499 => Fault::InvalidArgument,
            500..=599 => Fault::Internal,
            _ => Fault::Protocol,
        })
    }

    /// Returns the fault for a Linux error number (asm-generic values, positive); [`Fault::Io`] for an unknown one.
    pub fn from_errno(errno: i32) -> Fault {
        find(|row| row.errno_in.contains(&errno)).unwrap_or(Fault::Io)
    }
}

// `Fault::row` uses the fault as an index, so the rows must be complete and in the order of the enum.
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
