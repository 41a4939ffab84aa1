//! Requests about paths.

use bytes::{BufMut, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::xrootd::wire::{Parameters, text};
use crate::xrootd::{
    DecodeError, DirlistOptions, LocateOptions, MkdirOptions, Mode, PathAndCgi, PrepareOptions, PrepareOptionsX,
    RequestCode, StatOptions, Target,
};

/// `stat`: metadata of a path, of an open file or of a file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Subject of the response: the file or its file system.
    pub options: StatOptions,
    /// Extended fields that the client requests.
    pub wants: u32,
    /// Requests identification of directories and links ([`NodeInfo`](crate::xrootd::response::NodeInfo)). Encoded in
    /// the reserved bytes, which every server ignores. Towpath's own addition.
    pub wants_node: bool,
    /// The file.
    pub target: Target,
}

/// Prefix of the reserved bytes of a `stat` or `dirlist` that requests identification of entries.
const WANTS_NODE: [u8; 4] = *b"tpN1";

impl Layout for Stat {
    const CODE: RequestCode = RequestCode::stat;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            options: StatOptions(p.u8(4)),
            wants: p.u32(12),
            wants_node: p.u32(5) == u32::from_be_bytes(WANTS_NODE),
            target: Target::decode(p.handle(16), payload)?,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, [self.options.0]).put(12, self.wants.to_be_bytes()).put(16, self.target.handle().0);
        if self.wants_node {
            parameters.put(5, WANTS_NODE);
        }
        self.target.encode(payload);
    }
}

/// `dirlist`: entries of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Dirlist {
    /// Details to return for each entry.
    pub options: DirlistOptions,
    /// Requests identification of entries, as in [`Stat::wants_node`], and percent-encoded names. Only with stat lines,
    /// which show whether the server supports this.
    pub wants_node: bool,
    /// The directory.
    pub path: PathAndCgi,
}

impl Layout for Dirlist {
    const CODE: RequestCode = RequestCode::dirlist;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            options: DirlistOptions(p.u8(19)),
            wants_node: p.u32(4) == u32::from_be_bytes(WANTS_NODE),
            path: PathAndCgi::decode(payload)?,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(19, [self.options.0]);
        if self.wants_node {
            parameters.put(4, WANTS_NODE);
        }
        self.path.encode(payload);
    }
}

/// `locate`: find the servers that have a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Locate {
    /// Search and response options.
    pub options: LocateOptions,
    /// The path; `*` alone selects all servers, `*/path` all servers that may have the path. See
    /// [`Locate::wildcard_path`].
    pub path: PathAndCgi,
}

impl Locate {
    /// Returns the path after the `*` in a request for all servers; empty for `*` alone.
    #[must_use]
    pub fn wildcard_path(&self) -> Option<PathAndCgi> {
        let path = self.path.path.first().filter(|&&byte| byte == b'*').map(|_| self.path.path.slice(1..))?;
        Some(PathAndCgi { path, cgi: self.path.cgi.clone() })
    }
}

impl Layout for Locate {
    const CODE: RequestCode = RequestCode::locate;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { options: LocateOptions(header.parameters.u16(4)), path: PathAndCgi::decode(payload)? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.options.0.to_be_bytes());
        self.path.encode(payload);
    }
}

/// `mkdir`: create a directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mkdir {
    /// Whether to create missing parents.
    pub options: MkdirOptions,
    /// Access mode of the new directory.
    pub mode: Mode,
    /// The directory.
    pub path: PathAndCgi,
}

impl Layout for Mkdir {
    const CODE: RequestCode = RequestCode::mkdir;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self { options: MkdirOptions(p.u8(4)), mode: Mode(p.u16(18)), path: PathAndCgi::decode(payload)? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, [self.options.0]).put(18, self.mode.0.to_be_bytes());
        self.path.encode(payload);
    }
}

/// `chmod`: change the access mode of a path.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Chmod {
    /// The new mode.
    pub mode: Mode,
    /// The path.
    pub path: PathAndCgi,
}

impl Chmod {
    /// Key in the opaque part with which a client also sets the modification time, in nanoseconds since the Unix epoch.
    /// A mode of 0 then keeps the mode. Towpath's own addition; sent only to towpath servers.
    pub const MTIME_KEY: &str = "towpath.mtime";
}

impl Layout for Chmod {
    const CODE: RequestCode = RequestCode::chmod;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { mode: Mode(header.parameters.u16(18)), path: PathAndCgi::decode(payload)? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(18, self.mode.0.to_be_bytes());
        self.path.encode(payload);
    }
}

/// Declares a request that consists of a single path.
macro_rules! path_request {
    ($(#[$doc:meta])* $name:ident, $code:expr) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default)]
        pub struct $name {
            /// The path.
            pub path: PathAndCgi,
        }

        impl Layout for $name {
            const CODE: RequestCode = $code;

            fn decode(_header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
                Ok(Self { path: PathAndCgi::decode(payload)? })
            }

            fn encode(&self, _parameters: &mut Parameters, payload: &mut BytesMut) {
                self.path.encode(payload);
            }
        }
    };
}

path_request! {
    /// `rm`: remove a file.
    Rm, RequestCode::rm
}

path_request! {
    /// `rmdir`: remove an empty directory.
    Rmdir, RequestCode::rmdir
}

/// `mv`: rename.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Mv {
    /// The current path.
    pub from: PathAndCgi,
    /// The new path.
    pub to: PathAndCgi,
}

impl Layout for Mv {
    const CODE: RequestCode = RequestCode::mv;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let mut from = text(payload, "paths")?;
        let split = match header.parameters.u16(18) {
            0 => from.iter().position(|&byte| byte == b' ').ok_or(DecodeError::Missing { what: "new path" })?,
            length => usize::from(length),
        };
        if from.get(split) != Some(&b' ') {
            return Err(DecodeError::Invalid { what: "length of the first path" });
        }
        let to = from.split_off(split).slice(1..);
        Ok(Self { from: PathAndCgi::decode(from)?, to: PathAndCgi::decode(to)? })
    }

    /// The length of the first path is 0, meaning "up to the blank", if it does not fit into 16 bits.
    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(18, u16::try_from(self.from.encoded_len()).unwrap_or(0).to_be_bytes());
        self.from.encode(payload);
        payload.put_u8(b' ');
        self.to.encode(payload);
    }
}

/// Splits a payload into paths, one per line; empty lines are skipped.
fn lines(payload: &Bytes) -> impl Iterator<Item = PathAndCgi> {
    payload
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| PathAndCgi::new(payload.slice_ref(line)))
}

/// Returns the payload for [`lines`].
fn join_lines(paths: impl IntoIterator<Item = PathAndCgi>) -> Bytes {
    let mut out = BytesMut::new();
    for (index, path) in paths.into_iter().enumerate() {
        if index > 0 {
            out.put_u8(b'\n');
        }
        path.encode(&mut out);
    }
    out.freeze()
}

/// `statx`: file types of many paths. The response has a byte of [`StatFlags`](crate::xrootd::StatFlags) for each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Statx {
    /// The paths, one per line; see [`Statx::paths`].
    pub list: Bytes,
}

impl Statx {
    /// Creates a request for `paths`.
    #[must_use]
    pub fn new(paths: impl IntoIterator<Item = PathAndCgi>) -> Self {
        Self { list: join_lines(paths) }
    }

    /// Returns the paths, in the order of the response.
    pub fn paths(&self) -> impl Iterator<Item = PathAndCgi> {
        lines(&self.list)
    }
}

impl Layout for Statx {
    const CODE: RequestCode = RequestCode::statx;

    fn decode(_header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { list: text(payload, "paths")? })
    }

    fn encode(&self, _parameters: &mut Parameters, payload: &mut BytesMut) {
        payload.put_slice(&self.list);
    }
}

/// `prepare`: stage files, cancel staging, or release files.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prepare {
    /// Operation and options.
    pub options: PrepareOptions,
    /// 0 (lowest) to 3.
    pub priority: u8,
    /// UDP port for notifications, 0 for none.
    pub port: u16,
    /// Further options.
    pub options_x: PrepareOptionsX,
    /// The paths, one per line; for [`PrepareOptions::cancel`] the request id.
    pub list: Bytes,
}

impl Prepare {
    /// Returns the paths.
    pub fn paths(&self) -> impl Iterator<Item = PathAndCgi> {
        lines(&self.list)
    }

    /// Returns the same request for `paths`.
    #[must_use]
    pub fn with_paths(self, paths: impl IntoIterator<Item = PathAndCgi>) -> Self {
        Self { list: join_lines(paths), ..self }
    }
}

impl Layout for Prepare {
    const CODE: RequestCode = RequestCode::prepare;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            options: PrepareOptions(p.u8(4)),
            priority: p.u8(5),
            port: p.u16(6),
            options_x: PrepareOptionsX(p.u16(8)),
            list: text(payload, "paths")?,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, [self.options.0, self.priority]).put(6, self.port.to_be_bytes());
        parameters.put(8, self.options_x.0.to_be_bytes());
        payload.put_slice(&self.list);
    }
}
