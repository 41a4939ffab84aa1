//! Numbers of the protocol: request codes, response statuses, error codes and the small enumerations inside requests.
//!
//! Each set of numbers is a newtype with one constant per known value, with the protocol's spelling but without its
//! `kXR_` prefix (`ErrorCode::NotFound` is `kXR_NotFound`). It is a newtype rather than an `enum` because a peer may be
//! newer than this crate: unknown numbers are kept, displayed, and rejected where they cannot be handled.

/// Declares a newtype over an integer with the protocol's names for its known values.
macro_rules! codes {
    ($(#[$meta:meta])* $name:ident($int:ty) { $($(#[$doc:meta])* $variant:ident = $value:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(pub $int);

        #[allow(non_upper_case_globals, reason = "the protocol's own spelling")]
        impl $name {
            $($(#[$doc])* pub const $variant: Self = Self($value);)+

            /// All known values, in numeric order.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Returns the protocol's name with its prefix; `None` for an unknown number.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($value => Some(concat!("kXR_", stringify!($variant))),)+
                    _ => None,
                }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, "{}({})", stringify!($name), self.0),
                }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{self}")
            }
        }
    };
}

codes! {
    /// Request code: bytes 2-3 of the request header.
    RequestCode(u16) {
        /// Security credentials.
        auth = 3000,
        /// Server information of many kinds.
        query = 3001,
        /// Change the access mode of a path.
        chmod = 3002,
        /// Close a file.
        close = 3003,
        /// List a directory.
        dirlist = 3004,
        /// Get or put a whole file; reserved and not implemented by any server.
        gpfile = 3005,
        /// Protocol version and capabilities.
        protocol = 3006,
        /// Start a session.
        login = 3007,
        /// Create a directory.
        mkdir = 3008,
        /// Rename.
        mv = 3009,
        /// Open a file.
        open = 3010,
        /// Check that the server is alive.
        ping = 3011,
        /// Checkpointed updates of a file.
        chkpoint = 3012,
        /// Read one range.
        read = 3013,
        /// Remove a file.
        rm = 3014,
        /// Remove an empty directory.
        rmdir = 3015,
        /// Flush written data to stable storage.
        sync = 3016,
        /// Metadata of a path, a handle or a file system.
        stat = 3017,
        /// Set a property of the session.
        set = 3018,
        /// Write one range.
        write = 3019,
        /// Extended attributes.
        fattr = 3020,
        /// Stage files.
        prepare = 3021,
        /// File types of many paths.
        statx = 3022,
        /// End an earlier session of this client.
        endsess = 3023,
        /// Join a connection to a session.
        bind = 3024,
        /// Read many ranges.
        readv = 3025,
        /// Write one range, with a CRC32C for each page.
        pgwrite = 3026,
        /// Locations of a path.
        locate = 3027,
        /// Set the length of a file.
        truncate = 3028,
        /// Signature of the request that follows.
        sigver = 3029,
        /// Read one range, with a CRC32C for each page.
        pgread = 3030,
        /// Write many ranges.
        writev = 3031,
        /// Copy ranges between files within the server.
        clone = 3032,
    }
}

codes! {
    /// Status of a response: bytes 2-3 of the response header.
    Status(u16) {
        /// The final, or only, response.
        ok = 0,
        /// A piece of the response; more follow on the same stream id.
        oksofar = 4000,
        /// Unsolicited: not a response to the stream id in the header.
        attn = 4001,
        /// The security exchange needs another round.
        authmore = 4002,
        /// The request failed.
        error = 4003,
        /// Repeat the request elsewhere.
        redirect = 4004,
        /// Repeat the request here, later.
        wait = 4005,
        /// The response will arrive unsolicited; do not repeat the request.
        waitresp = 4006,
        /// Extended response with a checksum, with data beyond `dlen`.
        status = 4007,
    }
}

codes! {
    /// Reason for the failure of a request: the first number in the body of a [`Status::error`] response.
    ErrorCode(u32) {
        /// An argument is invalid.
        ArgInvalid = 3000,
        /// An argument is missing.
        ArgMissing = 3001,
        /// An argument is too long.
        ArgTooLong = 3002,
        /// The file is locked, or open in a conflicting mode.
        FileLocked = 3003,
        /// The handle does not belong to an open file.
        FileNotOpen = 3004,
        /// File system error; also the code for errors without a more specific one.
        FSError = 3005,
        /// The request is unknown, or not allowed now.
        InvalidRequest = 3006,
        /// The device failed.
        IOError = 3007,
        /// Not enough memory, or a request too large for the server to process at once.
        NoMemory = 3008,
        /// No space left.
        NoSpace = 3009,
        /// The client lacks the permission.
        NotAuthorized = 3010,
        /// No such path.
        NotFound = 3011,
        /// The server failed.
        ServerError = 3012,
        /// The server does not support the operation.
        Unsupported = 3013,
        /// No server can be reached.
        noserver = 3014,
        /// The path is not a file.
        NotFile = 3015,
        /// The path is a directory.
        isDirectory = 3016,
        /// The operation was cancelled.
        Cancelled = 3017,
        /// The path already exists.
        ItExists = 3018,
        /// A checksum did not match.
        ChkSumErr = 3019,
        /// The operation is already in progress.
        inProgress = 3020,
        /// The quota is exhausted.
        overQuota = 3021,
        /// The request's signature is wrong.
        SigVerErr = 3022,
        /// The message could not be decrypted.
        DecryptErr = 3023,
        /// Too many users or requests.
        Overloaded = 3024,
        /// The file system is read-only.
        fsReadOnly = 3025,
        /// The payload is malformed.
        BadPayload = 3026,
        /// No such extended attribute.
        AttrNotFound = 3027,
        /// The operation requires TLS.
        TLSRequired = 3028,
        /// No more replicas to try.
        noReplicas = 3029,
        /// The authentication failed.
        AuthFailed = 3030,
        /// The request can never be satisfied.
        Impossible = 3031,
        /// The request conflicts with another.
        Conflict = 3032,
        /// Too many errors (uncorrected bad pages).
        TooManyErrs = 3033,
        /// The request timed out.
        ReqTimedOut = 3034,
        /// A timer expired.
        TimerExpired = 3035,
    }
}

codes! {
    /// Kind of query: bytes 4-5 of a `query` request.
    QueryCode(u16) {
        /// Statistics, as XML.
        QStats = 1,
        /// State of a prepare request.
        QPrep = 2,
        /// Checksum of a file.
        Qcksum = 3,
        /// Attributes of a path in `oss.` form.
        Qxattr = 4,
        /// Space of a path's file system.
        Qspace = 5,
        /// Cancel a checksum computation.
        Qckscan = 6,
        /// Values of configuration words.
        Qconfig = 7,
        /// Visa of an open file.
        Qvisa = 8,
        /// Information about an open file.
        QFinfo = 9,
        /// Information about a file system.
        QFSinfo = 10,
        /// Free form.
        Qopaque = 16,
        /// Free form about a path.
        Qopaquf = 32,
        /// Free form about an open file.
        Qopaqug = 64,
    }
}

codes! {
    /// The client's next request after `protocol`: byte 9 of that request. The server uses it for its decision on TLS.
    Expect(u8) {
        /// Not specified.
        ExpNone = 0,
        /// A `bind` follows.
        ExpBind = 1,
        /// A `gpfile` follows.
        ExpGPF = 2,
        /// A `login` follows.
        ExpLogin = 3,
        /// A `login` for a third-party copy follows.
        ExpTPC = 4,
        /// A `gpfile` without login follows.
        ExpGPFA = 8,
    }
}

codes! {
    /// Subject of an unsolicited response: the first number of a [`Status::attn`] body.
    ActionCode(u32) {
        /// A message for the user.
        asyncms = 5002,
        /// The response announced by an earlier `waitresp`.
        asynresp = 5008,
    }
}

codes! {
    /// Operation of a checkpoint request: byte 19 of `chkpoint`.
    CheckpointCode(u8) {
        /// Begin a checkpoint.
        ckpBegin = 0,
        /// Commit and end it.
        ckpCommit = 1,
        /// Query its limits.
        ckpQuery = 2,
        /// Restore the file and end it.
        ckpRollback = 3,
        /// Execute the request in the payload under the checkpoint.
        ckpXeq = 4,
    }
}

/// Protocol version announced by this crate: 5.2.0, in the encoding of the handshake and `protocol`.
pub const PROTOCOL_VERSION: u32 = 0x0000_0520;

/// Minimum protocol version with which clients use `pgread` and `pgwrite` (5.1.1).
pub const PROTOCOL_VERSION_PGRW: u32 = 0x0000_0511;
