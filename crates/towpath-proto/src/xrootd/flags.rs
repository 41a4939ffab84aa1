//! Bit sets of the protocol: each is a newtype with one constant per bit, with the protocol's spelling.

/// Declares a bit set: constants, set operations and a `Debug` that names the bits.
macro_rules! flags {
    ($(#[$meta:meta])* $name:ident($int:ty) { $($(#[$doc:meta])* $flag:ident = $value:literal,)+ }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $int);

        #[allow(non_upper_case_globals, reason = "the protocol's own spelling")]
        impl $name {
            /// The empty set.
            pub const NONE: Self = Self(0);
            $($(#[$doc])* pub const $flag: Self = Self($value);)+

            /// Returns whether all bits of `other` are set.
            #[must_use]
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            /// Returns whether at least one bit of `other` is set.
            #[must_use]
            pub const fn intersects(self, other: Self) -> bool {
                self.0 & other.0 != 0
            }

            /// Returns the union; the same as `|`, but usable in constants.
            #[must_use]
            pub const fn union(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            /// Returns these bits without those of `other`.
            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }

        impl std::ops::BitOr for $name {
            type Output = Self;
            fn bitor(self, other: Self) -> Self {
                self.union(other)
            }
        }

        impl std::ops::BitOrAssign for $name {
            fn bitor_assign(&mut self, other: Self) {
                self.0 |= other.0;
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                write!(f, "{}({:#x}", stringify!($name), self.0)?;
                $(if self.contains(Self::$flag) {
                    f.write_str(concat!(" ", stringify!($flag)))?;
                })+
                f.write_str(")")
            }
        }
    };
}

flags! {
    /// Wishes and abilities of the client: byte 8 of `protocol`.
    ProtocolRequestFlags(u8) {
        /// Send the signing requirements.
        secreqs = 0x01,
        /// The client supports TLS.
        ableTLS = 0x02,
        /// The client requests TLS now.
        wantTLS = 0x04,
        /// Send the bind interfaces.
        bifreqs = 0x08,
    }
}

flags! {
    /// Role and abilities of the server: the second number of the response to `protocol`.
    ServerFlags(u32) {
        /// Data server.
        isServer = 0x0000_0001,
        /// Redirector.
        isManager = 0x0000_0002,
        /// Cache.
        attrCache = 0x0000_0080,
        /// Meta manager.
        attrMeta = 0x0000_0100,
        /// Proxy.
        attrProxy = 0x0000_0200,
        /// Supervisor.
        attrSuper = 0x0000_0400,
        /// Virtual redirector.
        attrVirtRdr = 0x0000_0800,
        /// Persist-on-successful-close.
        supposc = 0x0010_0000,
        /// `pgread` and `pgwrite`.
        suppgrw = 0x0020_0000,
        /// `gpfile`.
        supgpf = 0x0040_0000,
        /// `gpfile` without login.
        anongpf = 0x0080_0000,
        /// Bound data connections need TLS.
        tlsData = 0x0100_0000,
        /// `gpfile` needs TLS.
        tlsGPF = 0x0200_0000,
        /// `login` needs TLS.
        tlsLogin = 0x0400_0000,
        /// The session needs TLS after the login.
        tlsSess = 0x0800_0000,
        /// Third-party copies need TLS.
        tlsTPC = 0x1000_0000,
        /// Anonymous `gpfile` needs TLS.
        tlsGPFA = 0x2000_0000,
        /// The TLS handshake starts right after this response.
        gotoTLS = 0x4000_0000,
        /// The server supports TLS.
        haveTLS = 0x8000_0000,
    }
}

flags! {
    /// Permitted uses of a redirect to a URL: the complement of the redirect's port.
    RedirectFlags(u32) {
        /// Writes can be recovered by returning to the redirector.
        recoverWrts = 0x1000,
        /// The redirect may be cached for the whole session.
        collapseRedir = 0x2000,
        /// The file is erasure coded.
        ecRedir = 0x4000,
    }
}

flags! {
    /// Abilities of a client: byte 17 of `login`.
    LoginAbility(u8) {
        /// Redirects may contain a whole URL.
        fullurl = 0x01,
        /// Supports more than one protocol; implies `fullurl`.
        multipr = 0x03,
        /// Reads may be redirected.
        readrdok = 0x04,
        /// Has both IPv4 and IPv6.
        hasipv64 = 0x08,
        /// Only a private IPv4 address.
        onlyprv4 = 0x10,
        /// Only a private IPv6 address.
        onlyprv6 = 0x20,
        /// May be redirected to a local file.
        lclfile = 0x40,
        /// Understands flags in redirects.
        redirflags = 0x80,
    }
}

flags! {
    /// Further abilities of a client: byte 16 of `login`.
    LoginAbility2(u8) {
        /// May be redirected to an erasure-coded file.
        ecredir = 0x01,
    }
}

flags! {
    /// Options of an open: bytes 6-7 of `open`.
    OpenOptions(u16) {
        /// Read a compressed file without decompression.
        compress = 0x0001,
        /// Truncate an existing file.
        delete = 0x0002,
        /// Ignore usage rules.
        force = 0x0004,
        /// The file must not exist.
        new = 0x0008,
        /// Read.
        open_read = 0x0010,
        /// Read and write.
        open_updt = 0x0020,
        /// Asynchronous reads.
        async_ = 0x0040,
        /// Refresh the cached location.
        refresh = 0x0080,
        /// Create missing directories.
        mkpath = 0x0100,
        /// Append only.
        open_apnd = 0x0200,
        /// Return the stat text with the handle.
        retstat = 0x0400,
        /// The file is an incomplete replica.
        replica = 0x0800,
        /// Persist on successful close.
        posc = 0x1000,
        /// Do not wait for staging.
        nowait = 0x2000,
        /// Access will be sequential.
        seqio = 0x4000,
        /// Write only.
        open_wrto = 0x8000,
    }
}

impl OpenOptions {
    /// Returns whether this open permits writing (update, append or write-only).
    #[must_use]
    pub const fn writes(self) -> bool {
        self.intersects(Self::open_updt.union(Self::open_apnd).union(Self::open_wrto))
    }

    /// Returns whether this open creates a missing file (`new` or `delete`).
    #[must_use]
    pub const fn creates(self) -> bool {
        self.intersects(Self::new.union(Self::delete))
    }
}

flags! {
    /// Further options of an open: bytes 8-9 of `open`.
    OpenOptions2(u16) {
        /// Duplicate the template handle.
        dup = 0x0001,
        /// Same file system as the template handle.
        samefs = 0x0002,
        /// Return the extended stat text.
        retstatx = 0x0004,
        /// Bypass the page cache.
        directio = 0x0008,
    }
}

flags! {
    /// Access mode of a file or directory, nine bits as in POSIX.
    Mode(u16) {
        /// Owner may read.
        ur = 0x100,
        /// Owner may write.
        uw = 0x080,
        /// Owner may execute or search.
        ux = 0x040,
        /// Group may read.
        gr = 0x020,
        /// Group may write.
        gw = 0x010,
        /// Group may execute or search.
        gx = 0x008,
        /// Others may read.
        or = 0x004,
        /// Others may write.
        ow = 0x002,
        /// Others may execute or search.
        ox = 0x001,
    }
}

flags! {
    /// Options of a stat: byte 4 of `stat`.
    StatOptions(u8) {
        /// Describe the file system, not the file.
        vfs = 0x01,
    }
}

flags! {
    /// State of a file: the third field of a stat text, and the response to `statx`.
    StatFlags(u32) {
        /// Executable, or a directory that can be searched.
        xset = 0x0001,
        /// Directory.
        isDir = 0x0002,
        /// Neither file nor directory.
        other = 0x0004,
        /// Offline: reading requires staging.
        offline = 0x0008,
        /// Readable by this client.
        readable = 0x0010,
        /// Writable by this client.
        writable = 0x0020,
        /// Persist-on-successful-close is pending.
        poscpend = 0x0040,
        /// A copy exists on the backing store.
        bkpexist = 0x0080,
        /// Completely cached.
        cachersp = 0x0200,
    }
}

flags! {
    /// Options of a listing: byte 19 of `dirlist`.
    DirlistOptions(u8) {
        /// Only online entries.
        online = 0x01,
        /// Include a stat text for each entry.
        dstat = 0x02,
        /// Include a checksum for each entry; implies `dstat`.
        dcksm = 0x04,
        /// Include the extended stat text.
        dstatx = 0x08,
    }
}

impl DirlistOptions {
    /// Returns whether the response contains a stat line for each entry.
    #[must_use]
    pub const fn with_stat(self) -> bool {
        self.intersects(Self::dstat.union(Self::dcksm).union(Self::dstatx))
    }
}

flags! {
    /// Options of a directory creation: byte 4 of `mkdir`.
    MkdirOptions(u8) {
        /// Create missing parents too.
        mkdirpath = 0x01,
    }
}

flags! {
    /// Options of a location query: bytes 4-5 of `locate`.
    LocateOptions(u16) {
        /// Unique hosts only.
        compress = 0x0001,
        /// Refresh the cached location.
        refresh = 0x0080,
        /// Prefer host names to addresses.
        prefname = 0x0100,
        /// For a directory listing (`kXR_4dirlist`).
        ForDirlist = 0x0400,
        /// Do not wait for the responses of all servers.
        nowait = 0x2000,
    }
}

flags! {
    /// Options of staging: byte 4 of `prepare`.
    PrepareOptions(u8) {
        /// Cancel the request whose id is in the payload.
        cancel = 0x01,
        /// Notify the client on completion.
        notify = 0x02,
        /// Do not report errors.
        noerrs = 0x04,
        /// Stage the files.
        stage = 0x08,
        /// Files will be written.
        wmode = 0x10,
        /// Place the files together.
        coloc = 0x20,
        /// Refresh the access times.
        fresh = 0x40,
        /// Notify over TCP rather than UDP.
        usetcp = 0x80,
    }
}

flags! {
    /// Further options of staging: bytes 8-9 of `prepare`.
    PrepareOptionsX(u16) {
        /// The files are no longer needed.
        evict = 0x0001,
    }
}

flags! {
    /// Flags of `pgread` (second argument byte) and `pgwrite` (byte 17).
    PageFlags(u8) {
        /// This request repeats pages that failed their checksum.
        retry = 0x01,
    }
}

flags! {
    /// Options of a vector write: byte 4 of `writev`.
    WritevOptions(u8) {
        /// Flush the data to stable storage afterwards.
        doSync = 0x01,
    }
}

flags! {
    /// Options of a signature: byte 7 of `sigver`.
    SigverFlags(u8) {
        /// The signature does not cover the payload.
        nodata = 0x01,
    }
}
