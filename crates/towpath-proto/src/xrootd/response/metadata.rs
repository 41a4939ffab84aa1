//! Responses about files: the stat text and the responses that contain it.

use std::{borrow::Cow, fmt::Write as _};

use bytes::{Buf as _, BufMut, Bytes, BytesMut};

use super::{Body, EntryChecksum, dirlist::parse_stat_line};
use crate::checksum::{Algorithm, Digest, Digests, Extent};
use crate::xrootd::wire::{Reader, until_nul};
use crate::xrootd::{DecodeError, FileHandle, Mode, StatFlags};

/// Metadata of a file: the stat text `id size flags mtime [ctime atime mode owner group]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatInfo {
    /// Identifies the file within the server, for example by device and inode. Some servers send no number here; other
    /// text is decoded as 0.
    pub id: u64,
    /// Size in bytes.
    pub size: u64,
    /// State of the file.
    pub flags: StatFlags,
    /// Last modification, in seconds since 1970.
    pub mtime: i64,
    /// Additional fields of newer servers.
    pub extended: Option<StatExtended>,
    /// Identity of the entry; only after the extended fields, and only if requested
    /// ([`Stat::wants_node`](crate::xrootd::request::Stat::wants_node)).
    pub node: Option<NodeInfo>,
}

/// Whether an entry is a link, and the identity of a directory. Towpath's own addition to the stat text: a field
/// `towpath:` with `l` for a link and the id of a directory in hexadecimal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct NodeInfo {
    /// True if the entry of a listing is a symbolic link.
    pub is_link: bool,
    /// Identifies a directory across servers; never 0.
    pub directory_id: Option<u64>,
}

impl NodeInfo {
    /// Key of `query config`: whether the server sends these fields and accepts percent-encoded paths.
    pub const KEY: &str = "towpath.node";

    /// Prefix of the field.
    const PREFIX: &[u8] = b"towpath:";

    fn write(self, out: &mut BytesMut) {
        out.put_u8(b' ');
        out.put_slice(Self::PREFIX);
        if self.is_link {
            out.put_u8(b'l');
        }
        if let Some(id) = self.directory_id {
            out.put_slice(format!("{id:x}").as_bytes());
        }
    }

    fn parse(field: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(field.strip_prefix(Self::PREFIX)?).ok()?;
        let (is_link, id) = text.strip_prefix('l').map_or((false, text), |id| (true, id));
        let directory_id =
            if id.is_empty() { None } else { Some(u64::from_str_radix(id, 16).ok().filter(|id| *id > 0)?) };
        Some(Self { is_link, directory_id })
    }
}

/// The second half of a stat text.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatExtended {
    /// Last change of metadata, in seconds since 1970.
    pub ctime: i64,
    /// Last access, in seconds since 1970.
    pub atime: i64,
    /// Access mode.
    pub mode: Mode,
    /// Name (or number) of the owner. Must not contain a blank.
    pub owner: Cow<'static, str>,
    /// Name (or number) of the group. Must not contain a blank.
    pub group: Cow<'static, str>,
}

/// Name of owners and groups in responses of towpath's server.
const UNKNOWN_NAME: &[u8] = b"-";

impl StatInfo {
    /// Appends the text, without a NUL.
    pub fn write(&self, out: &mut BytesMut) {
        // Each entry of a listing has a stat text: `write!` takes several times as long.
        let mut digits = itoa::Buffer::new();
        out.put_slice(digits.format(self.id).as_bytes());
        put_field(out, digits.format(self.size));
        put_field(out, digits.format(self.flags.0));
        put_field(out, digits.format(self.mtime));
        if let Some(more) = &self.extended {
            put_field(out, digits.format(more.ctime));
            put_field(out, digits.format(more.atime));
            out.put_u8(b' ');
            let highest = if more.mode.0 > 0o7777 { 15 } else { 9 };
            for shift in (0..=highest).rev().step_by(3) {
                out.put_u8(b'0' + (more.mode.0 >> shift & 0o7) as u8);
            }
            put_field(out, &more.owner);
            put_field(out, &more.group);
            if let Some(node) = self.node {
                node.write(out);
            }
        }
    }

    /// Parses the text; anything after the known fields is ignored.
    ///
    /// # Errors
    /// [`DecodeError::Invalid`] if size, flags or mtime is missing or not a number. Invalid extended fields are treated
    /// as missing.
    pub fn parse(text: &[u8]) -> Result<Self, DecodeError> {
        let mut fields = text.split(|&byte| byte == b' ' || byte == 0).filter(|field| !field.is_empty());
        let id = number(fields.next()).unwrap_or(0);
        Ok(Self {
            id,
            size: number(fields.next()).ok_or(DecodeError::Invalid { what: "stat size" })?,
            flags: StatFlags(number(fields.next()).ok_or(DecodeError::Invalid { what: "stat flags" })?),
            mtime: number(fields.next()).ok_or(DecodeError::Invalid { what: "stat mtime" })?,
            extended: StatExtended::parse(&mut fields),
            node: fields.next().and_then(NodeInfo::parse),
        })
    }
}

impl StatExtended {
    fn parse<'a>(fields: &mut impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let name = |field: &[u8]| match field {
            UNKNOWN_NAME => Cow::Borrowed("-"),
            name => Cow::Owned(String::from_utf8_lossy(name).into_owned()),
        };
        let ctime = number(fields.next())?;
        let atime = number(fields.next())?;
        let mode = fields.next().and_then(|octal| std::str::from_utf8(octal).ok())?;
        let mode = Mode(u16::from_str_radix(mode, 8).ok()?);
        Some(Self { ctime, atime, mode, owner: name(fields.next()?), group: name(fields.next()?) })
    }
}

fn put_field(out: &mut BytesMut, text: &str) {
    out.put_u8(b' ');
    out.put_slice(text.as_bytes());
}

/// Parses a decimal number in ASCII.
fn number<T: std::str::FromStr>(field: Option<&[u8]>) -> Option<T> {
    std::str::from_utf8(field?).ok()?.parse().ok()
}

impl Body for StatInfo {
    fn encode(&self, out: &mut BytesMut) {
        self.write(out);
        out.put_u8(0);
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Self::parse(&body)
    }
}

/// The response to `open`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OpenReply {
    /// Handle of the file for later requests.
    pub handle: FileHandle,
    /// Metadata, if requested with `retstat` (and supported by the server).
    pub stat: Option<StatInfo>,
    /// A known checksum of the whole file, after the metadata in the form of a listing; only if requested
    /// ([`Open::wants_checksum`](crate::xrootd::request::Open::wants_checksum)). Towpath's own addition.
    pub checksum: Option<EntryChecksum>,
    /// Extents of a resumed upload that are already stored, with CRC32C and Adler32; present if the client sent
    /// [`RESUME_KEY`](Self::RESUME_KEY) and the upload is resumable. Towpath's own addition.
    pub present: Option<Vec<Extent>>,
}

impl OpenReply {
    /// Key in the opaque part of an `open` that creates a file; its value (32 hexadecimal digits) names the upload when
    /// it is resumed. Sent only to towpath servers.
    pub const RESUME_KEY: &str = "towpath.resume";

    /// Prefix of the stored extents, after the metadata and its NUL.
    const PRESENT: [u8; 4] = *b"tpR1";

    /// Compression page size and type, which precede the metadata: always zero.
    const COMPRESSION: [u8; 8] = [0; 8];
}

impl Body for OpenReply {
    fn encode(&self, out: &mut BytesMut) {
        out.put_slice(&self.handle.0);
        if self.stat.is_none() && self.present.is_none() {
            return;
        }
        out.put_slice(&Self::COMPRESSION);
        if let Some(stat) = &self.stat {
            stat.write(out);
            if let Some(checksum) = &self.checksum {
                EntryChecksum::write(&checksum.algorithm, Some(checksum), out);
            }
        }
        out.put_u8(0);
        if let Some(present) = &self.present {
            out.put_slice(&Self::PRESENT);
            present.iter().for_each(|extent| put_extent(extent, out));
        }
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let handle = FileHandle(reader.array("file handle")?);
        let mut reply = Self { handle, ..Self::default() };
        if reader.is_empty() {
            return Ok(reply);
        }
        reader.take(Self::COMPRESSION.len(), "compression")?;
        let mut line = reader.rest();
        if let Some(end) = line.iter().position(|&byte| byte == 0) {
            let mut behind = line.split_off(end);
            behind.advance(1);
            if behind.starts_with(&Self::PRESENT) {
                reply.present = Some(extents(behind.split_off(Self::PRESENT.len()))?);
            }
        }
        if !line.is_empty() {
            let (stat, checksum) = parse_stat_line(&line)?;
            (reply.stat, reply.checksum) = (Some(stat), checksum);
        }
        Ok(reply)
    }
}

/// Appends an extent: offset and length of eight bytes each, CRC32C and Adler32 of four bytes each. An extent without
/// these checksums is omitted.
fn put_extent(extent: &Extent, out: &mut BytesMut) {
    let digests = extent.digests();
    if let (Some(crc32c), Some(adler32)) = (digests.get(Algorithm::Crc32c), digests.get(Algorithm::Adler32)) {
        out.put_u64(extent.offset());
        out.put_u64(extent.bytes());
        out.put_slice(crc32c.bytes());
        out.put_slice(adler32.bytes());
    }
}

fn extents(bytes: Bytes) -> Result<Vec<Extent>, DecodeError> {
    const INVALID: DecodeError = DecodeError::Invalid { what: "extents that are present" };
    let mut reader = Reader::new(bytes);
    let mut extents = Vec::new();
    while !reader.is_empty() {
        let (offset, bytes) = (reader.offset("extent")?, reader.offset("extent")?);
        let mut digest = |algorithm| Digest::new(algorithm, &reader.array::<4>("extent")?).map_err(|_| INVALID);
        let digests: Digests = [digest(Algorithm::Crc32c)?, digest(Algorithm::Adler32)?].into_iter().collect();
        extents.push(Extent::from_digests(offset, bytes, &digests).ok_or(INVALID)?);
    }
    Ok(extents)
}

/// The response to `stat` with `vfs`: read-write and staging space for a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct VfsInfo {
    /// Nodes that can provide read-write space.
    pub rw_nodes: u32,
    /// Largest free read-write space, in MiB.
    pub rw_free_mib: u64,
    /// Used fraction of the read-write space in percent.
    pub rw_used_percent: u32,
    /// Nodes that can provide staging space.
    pub staging_nodes: u32,
    /// Largest free staging space, in MiB.
    pub staging_free_mib: u64,
    /// Used fraction of the staging space in percent.
    pub staging_used_percent: u32,
}

impl Body for VfsInfo {
    fn encode(&self, out: &mut BytesMut) {
        let Self { rw_nodes, rw_free_mib, rw_used_percent, staging_nodes, staging_free_mib, staging_used_percent } =
            self;
        let written = write!(
            out,
            "{rw_nodes} {rw_free_mib} {rw_used_percent} {staging_nodes} {staging_free_mib} {staging_used_percent}\0"
        );
        debug_assert!(written.is_ok(), "BytesMut grows as needed");
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        const INVALID: DecodeError = DecodeError::Invalid { what: "statvfs response" };
        let body = until_nul(body);
        let mut fields = body.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
        Ok(Self {
            rw_nodes: number(fields.next()).ok_or(INVALID)?,
            rw_free_mib: number(fields.next()).ok_or(INVALID)?,
            rw_used_percent: number(fields.next()).ok_or(INVALID)?,
            staging_nodes: number(fields.next()).ok_or(INVALID)?,
            staging_free_mib: number(fields.next()).ok_or(INVALID)?,
            staging_used_percent: number(fields.next()).ok_or(INVALID)?,
        })
    }
}

/// The response to `statx`: the flags of each path, in order. Only the low eight bits are transmitted.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StatxReply(pub Vec<StatFlags>);

impl Body for StatxReply {
    fn encode(&self, out: &mut BytesMut) {
        out.extend(self.0.iter().map(|flags| (flags.0 & 0xff) as u8));
    }

    fn decode(body: Bytes) -> Result<Self, DecodeError> {
        Ok(Self(body.iter().map(|&flags| StatFlags(u32::from(flags))).collect()))
    }
}
