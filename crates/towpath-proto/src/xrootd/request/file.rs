//! Requests about open files, without data.

use std::fmt::Write as _;

use bytes::{BufMut as _, Bytes, BytesMut};

use super::{Layout, RequestHeader};
use crate::checksum::{Digest, Digests};
use crate::xrootd::wire::Parameters;
use crate::xrootd::{DecodeError, FileHandle, Mode, OpenOptions, OpenOptions2, PathAndCgi, RequestCode, Target};

/// `open`: open a file, perhaps creating it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Open {
    /// Access mode of a file that is created.
    pub mode: Mode,
    /// How to open.
    pub options: OpenOptions,
    /// More of how to open.
    pub options2: OpenOptions2,
    /// The open file that [`OpenOptions2::dup`] and [`OpenOptions2::samefs`] refer to.
    pub template: FileHandle,
    /// Which file.
    pub path: PathAndCgi,
}

impl Layout for Open {
    const CODE: RequestCode = RequestCode::open;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self {
            mode: Mode(p.u16(4)),
            options: OpenOptions(p.u16(6)),
            options2: OpenOptions2(p.u16(8)),
            template: p.handle(16),
            path: PathAndCgi::decode(payload)?,
        })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.mode.0.to_be_bytes()).put(6, self.options.0.to_be_bytes());
        parameters.put(8, self.options2.0.to_be_bytes()).put(16, self.template.0);
        self.path.encode(payload);
    }
}

/// `close`: close a file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Close {
    /// Which file.
    pub handle: FileHandle,
    /// What the client says of the file that it has written. Towpath's own addition, for servers that are known to be towpath:
    /// they compare before the file becomes visible, and answer with its [`StatInfo`](crate::xrootd::response::StatInfo).
    pub promise: Option<Promise>,
}

/// What is said of a file with its `close`, as `size=10000&crc32c=e3069283`: the names of algorithms are those of this crate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Promise {
    /// Its size in bytes.
    pub size: u64,
    /// Its digests, any number of them.
    pub digests: Digests,
}

impl Promise {
    fn decode(text: &[u8]) -> Option<Self> {
        let mut pairs = std::str::from_utf8(text).ok()?.split('&').map(|pair| pair.split_once('='));
        let (_, size) = pairs.next()?.filter(|(key, _)| *key == "size")?;
        let digests = pairs.map(|pair| {
            let (algorithm, value) = pair?;
            Digest::from_hex(algorithm.parse().ok()?, value).ok()
        });
        Some(Self { size: size.parse().ok()?, digests: digests.collect::<Option<_>>()? })
    }

    fn encode(&self, out: &mut BytesMut) {
        let mut text = format!("size={}", self.size);
        for digest in self.digests.iter() {
            let written = write!(text, "&{}={digest}", digest.algorithm());
            debug_assert!(written.is_ok(), "a string grows as needed");
        }
        out.put_slice(text.as_bytes());
    }
}

impl Layout for Close {
    const CODE: RequestCode = RequestCode::close;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let promise = match payload.is_empty() {
            true => None,
            false => Some(Promise::decode(&payload).ok_or(DecodeError::Invalid { what: "promise of a close" })?),
        };
        Ok(Self { handle: header.parameters.handle(4), promise })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.handle.0);
        if let Some(promise) = &self.promise {
            promise.encode(payload);
        }
    }
}

/// `sync`: force what was written to stable storage.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Sync {
    /// Which file.
    pub handle: FileHandle,
}

impl Layout for Sync {
    const CODE: RequestCode = RequestCode::sync;

    fn decode(header: &RequestHeader, _payload: Bytes) -> Result<Self, DecodeError> {
        Ok(Self { handle: header.parameters.handle(4) })
    }

    fn encode(&self, parameters: &mut Parameters, _payload: &mut BytesMut) {
        parameters.put(4, self.handle.0);
    }
}

/// `truncate`: set the length of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Truncate {
    /// Which file.
    pub target: Target,
    /// Its new length in bytes.
    pub size: u64,
}

impl Layout for Truncate {
    const CODE: RequestCode = RequestCode::truncate;

    fn decode(header: &RequestHeader, payload: Bytes) -> Result<Self, DecodeError> {
        let p = &header.parameters;
        Ok(Self { target: Target::decode(p.handle(4), payload)?, size: p.offset(8, "size")? })
    }

    fn encode(&self, parameters: &mut Parameters, payload: &mut BytesMut) {
        parameters.put(4, self.target.handle().0).put(8, self.size.to_be_bytes());
        self.target.encode(payload);
    }
}
