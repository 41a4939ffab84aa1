//! `query`: configuration, checksums, space, and other information.

use std::{fmt::Write as _, os::fd::RawFd};

use bytes::{Bytes, BytesMut};
use tokio_util::sync::CancellationToken;
use towpath_proto::{
    checksum::{Algorithm, Digest},
    tcp::{TCP_INFO_WORD, TcpInfo},
    xrootd::{
        PathAndCgi,
        request::{Fattr, Query, SharedHandle, config_words},
        response::{NodeInfo, Text},
    },
};
use towpath_store::{
    Error, Fault, FileKind, StorePath,
    sys::{clock, net, processor},
};

use super::{
    active_request::{ActiveRequest, ErrorResponse, ServeResult},
    read::vector,
    session::{BIND_MAX, Session},
    staging, third_party,
};
use crate::access::{Activity, Identity};

/// Supported checksums in order of preference; the first is the default.
const ALGORITHMS: [Algorithm; 8] = [
    Algorithm::Adler32,
    Algorithm::Crc32c,
    Algorithm::Cksum,
    Algorithm::Crc32,
    Algorithm::Md5,
    Algorithm::Sha1,
    Algorithm::Sha256,
    Algorithm::Crc64,
];
/// Maximum number of configuration words in one request; about twenty are in use.
const MAX_WORDS: usize = 64;
/// Maximum number of parallel reads on one connection, as reported to clients (`pio_max`).
const PIO_MAX: u32 = 5;

/// Handles `query`, except for configuration queries, which are answered immediately.
pub(super) async fn query(active_request: &ActiveRequest, request: Query) -> ServeResult {
    match request {
        Query::Checksum(path) => checksum(active_request, &path).await,
        Query::ChecksumCancel(path) => {
            let (identity, path) = active_request.subject(&path).await?;
            identity.check(Activity::Stat, &path)?;
            active_request.session.cancel_checksums(&path);
            active_request.done()
        }
        Query::Space(path) => space(active_request, &path).await,
        Query::Xattr(path) => xattr(active_request, &path).await,
        Query::Stats(_) => active_request.ok(&statistics(&active_request.session)),
        Query::Prepare(_) => Err(staging::status().into()),
        Query::OpaqueHandle { handle, argument } if argument.trim_ascii_end() == third_party::CANCEL => {
            active_request.session.files.find(handle)?.file()?.pull()?.cancel();
            active_request.done()
        }
        other => {
            let message = format!("this server does not support query {}", other.kind());
            Err(ErrorResponse::new(Fault::Unsupported, message).into())
        }
    }
}

/// Returns the values of configuration words, one per line, without a trailing NUL, because uproot parses the last
/// line as a number. An unknown word is echoed: 'not supported'. `socket` is the connection for the response, and
/// whether no other request is in flight on it.
///
/// # Errors
/// More than [`MAX_WORDS`].
pub(super) fn config(session: &Session, words: &[u8], socket: (RawFd, bool)) -> Result<Bytes, ErrorResponse> {
    let mut text = BytesMut::new();
    for (number, word) in config_words(words).enumerate() {
        if number >= MAX_WORDS {
            return Err(ErrorResponse::new(Fault::NameTooLong, format!("more than {MAX_WORDS} words in one request")));
        }
        match config_value(session, word, socket) {
            Some(value) => text.extend_from_slice(value.as_bytes()),
            None => text.extend_from_slice(word),
        }
        text.extend_from_slice(b"\n");
    }
    Ok(text.freeze())
}

fn config_value(session: &Session, word: &[u8], (socket, is_unasked): (RawFd, bool)) -> Option<String> {
    Some(match word {
        b"readv_iov_max" => vector::MAX_ELEMENTS.to_string(),
        b"readv_ior_max" => vector::MAX_ELEMENT_BYTES.to_string(),
        b"bind_max" => BIND_MAX.to_string(),
        b"pio_max" => PIO_MAX.to_string(),
        b"chksum" => checksum_list(session)?,
        b"fattr" if session.service.store.capabilities().attributes => {
            format!("{} {}", Fattr::MAX_NAME_BYTES, Fattr::MAX_VALUE_BYTES)
        }
        b"tpc" if session.service.third_party.settings.enabled => "1".into(),
        // Extension: an upload can be opened with `towpath.resume=KEY`.
        b"towpath.resume" if session.service.store.capabilities().resume => "1".into(),
        // Extension: `stat` and `dirlist` with this key identify directories and carry any name.
        word if word == NodeInfo::KEY.as_bytes() => "1".into(),
        // Extension: another handle of a file open for writing can be opened with `towpath.share=…`.
        word if word == SharedHandle::KEY.as_bytes() => "1".into(),
        // Extension: the sender's TCP statistics. Not available to callers who have no rights here.
        TCP_INFO_WORD if session.known_identity().has_rights() || session.files.has_open() => {
            let processor_percent = processor::percent_wanted_lately();
            TcpInfo { is_unasked, processor_percent, ..net::tcp_info(&socket).ok()? }.to_string()
        }
        b"role" => "server".into(),
        b"sitename" => session.service.site_name().into(),
        b"version" => concat!("towpath-", env!("CARGO_PKG_VERSION")).into(),
        _ => return None,
    })
}

fn checksum_list(session: &Session) -> Option<String> {
    let known = session.service.store.capabilities().digests;
    let mut list = String::new();
    for (number, algorithm) in ALGORITHMS.into_iter().filter(|algorithm| known.contains(*algorithm)).enumerate() {
        let comma = if number > 0 { "," } else { "" };
        write!(list, "{comma}{number}:{algorithm}").expect("writing to a string does not fail");
    }
    (!list.is_empty()).then_some(list)
}

/// Returns the checksum requested by `cks.type` in the opaque part, or the default.
pub(super) fn wanted_algorithm(active_request: &ActiveRequest, path: &PathAndCgi) -> Result<Algorithm, ErrorResponse> {
    let known = active_request.session.service.store.capabilities().digests;
    let Some(name) = path.cgi_value("cks.type") else {
        let first = ALGORITHMS.into_iter().find(|algorithm| known.contains(*algorithm));
        return Ok(first.unwrap_or(Algorithm::Adler32));
    };
    let algorithm = std::str::from_utf8(name).ok().and_then(|name| name.parse().ok());
    algorithm.filter(|algorithm| known.contains(*algorithm)).ok_or_else(|| {
        ErrorResponse::new(
            Fault::Unsupported,
            format!("checksums of type `{}` are not computed here", name.escape_ascii()),
        )
    })
}

async fn checksum(active_request: &ActiveRequest, request: &PathAndCgi) -> ServeResult {
    let algorithm = wanted_algorithm(active_request, request)?;
    let (identity, path) = active_request.subject(request).await?;
    identity.check(Activity::Stat, &path)?;
    let found = active_request.session.service.store.stat(&identity.caller, &path).await?;
    if let Some(digest) = found.digests.get(algorithm) {
        return active_request.ok(&checksum_text(digest));
    }
    // Computing reads the file, so it requires the right to read.
    identity.check(Activity::Read, &path)?;
    let cancelled = active_request.session.register_checksum(active_request.stream_id, &path);
    let digest =
        active_request.with_wait_notices(compute(active_request, &identity, &path, algorithm, &cancelled)).await?;
    active_request.session.unregister_checksum(active_request.stream_id);
    active_request.ok(&checksum_text(digest?))
}

async fn compute(
    active_request: &ActiveRequest,
    identity: &Identity,
    path: &StorePath,
    algorithm: Algorithm,
    cancelled: &CancellationToken,
) -> towpath_store::Result<Digest> {
    let store = &active_request.session.service.store;
    tokio::select! {
        digest = store.digest(&identity.caller, path, algorithm, &|_| ()) => digest,
        () = cancelled.cancelled() => Err(Error::new(Fault::Cancelled, "the checksum was cancelled").at(path)),
    }
}

fn checksum_text(digest: Digest) -> Text {
    Text::from(format!("{} {digest}", digest.algorithm()))
}

async fn space(active_request: &ActiveRequest, path: &PathAndCgi) -> ServeResult {
    let (identity, path) = active_request.subject(path).await?;
    identity.check(Activity::Stat, &path)?;
    let space = active_request.session.service.store.space(&identity.caller, &path).await?;
    let (total, free) = (space.total, space.free);
    let used = total.saturating_sub(free);
    let text =
        format!("oss.cgroup=public&oss.space={total}&oss.free={free}&oss.maxf={free}&oss.used={used}&oss.quota=-1");
    active_request.ok(&Text::from(text))
}

async fn xattr(active_request: &ActiveRequest, path: &PathAndCgi) -> ServeResult {
    let (identity, path) = active_request.subject(path).await?;
    identity.check(Activity::Stat, &path)?;
    let found = active_request.session.service.store.stat(&identity.caller, &path).await?;
    let kind = match found.kind {
        FileKind::File => 'f',
        FileKind::Directory => 'd',
        FileKind::Other => 'o',
    };
    let (size, mtime) = (found.size, found.mtime_s());
    active_request.ok(&Text::from(format!("oss.cgroup=public&oss.type={kind}&oss.used={size}&oss.mt={mtime}")))
}

/// Returns the minimum that statistics clients expect.
fn statistics(session: &Session) -> Text {
    let (now, version, address) = (clock::unix_s(), env!("CARGO_PKG_VERSION"), session.local);
    let links = session.service.metrics.connections.get();
    Text::from(format!(
        "<statistics tod=\"{now}\" ver=\"towpath-{version}\" src=\"{address}\" tos=\"{now}\" pgm=\"towpath\" \
         ins=\"anon\" pid=\"{}\"><stats id=\"link\"><num>{links}</num></stats></statistics>",
        std::process::id()
    ))
}
