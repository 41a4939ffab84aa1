//! `dirlist` and `locate`.

use std::net::{IpAddr, SocketAddr};

use bytes::BytesMut;
use futures::StreamExt as _;
use towpath_proto::{
    checksum::Algorithm,
    xrootd::{
        DirlistOptions,
        request::{Dirlist, Locate},
        response::{DirlistEntry, DirlistWriter, LocationInfo, Locations},
    },
};
use towpath_store::{Capabilities, Entry, ListOptions, Printable, StorePath};

use super::{
    active_request::{ActiveRequest, FinalFrame, ServeResult},
    metadata, query,
};
use crate::{
    access::{Activity, Identity},
    fair_pool::Class,
};

/// Memory accounted for an entry with its line, in bytes.
const ENTRY_BYTES: usize = 512;
/// Fewer bytes wait for the next batch or the end: most directories are one response.
const SEND_BYTES: usize = 16 << 10;

/// Handles `dirlist` in batches, so that memory does not grow with the directory.
pub(super) async fn dirlist(active_request: &ActiveRequest, request: &Dirlist) -> ServeResult {
    let (identity, path) = active_request.subject(&request.path).await?;
    identity.check(Activity::List, &path)?;
    let with_digests = request.options.contains(DirlistOptions::dcksm);
    let options = ListOptions { metadata: request.options.with_stat(), digests: with_digests };
    let algorithm = query::wanted_algorithm(active_request, &request.path)?;
    let mut writer = DirlistWriter::new(active_request.stream_id, request, algorithm.name());
    let mut frames = BytesMut::new();
    let _lease = active_request.session.lease_file(Class::Small, &active_request.session.sending).await?;
    let can = active_request.session.service.store.capabilities();
    let mut batches = active_request.session.service.store.list(&identity.caller, &path, options);
    while let Some(batch) = batches.next().await {
        let batch = batch?;
        let _memory = active_request.session.memory_to_answer(frames.len() + batch.len() * ENTRY_BYTES).await;
        for entry in batch {
            if request.options.contains(DirlistOptions::online) && entry.metadata.residency.is_offline() {
                continue;
            }
            let line = line(&can, &identity, &path, entry, algorithm, request.wants_node);
            if !writer.entry(&line, &mut frames) {
                let name = Printable(&line.name);
                tracing::warn!(directory = %path, %name, "leaving an entry out of a listing: the xroot protocol cannot carry its name");
            }
        }
        if frames.len() > SEND_BYTES {
            active_request.send(&frames).await?;
            frames.clear();
        }
    }
    writer.finish(&mut frames);
    Ok(FinalFrame::frame(frames))
}

fn line(
    can: &Capabilities,
    identity: &Identity,
    directory: &StorePath,
    entry: Entry,
    algorithm: Algorithm,
    wants_node: bool,
) -> DirlistEntry {
    let path = directory.join(&entry.name);
    let describe = if wants_node { metadata::stat_info_with_node } else { metadata::stat_info };
    let stat = path.ok().map(|path| describe(can, identity, &path, &entry.metadata));
    let checksum = metadata::checksum(&entry.metadata, algorithm);
    DirlistEntry { name: entry.name, stat, checksum }
}

/// Handles `locate`: all files are on this server.
pub(super) async fn locate(active_request: &ActiveRequest, request: &Locate) -> ServeResult {
    let can = active_request.session.service.store.capabilities();
    let writable;
    if request.path.path.first() == Some(&b'*') {
        let identity = active_request.session.identity().await;
        writable = can.create && identity.may(Activity::CreateDirectory, &StorePath::root());
    } else {
        let (identity, path) = active_request.subject(&request.path).await?;
        identity.check(Activity::Stat, &path)?;
        let found = active_request.session.service.store.stat(&identity.caller, &path).await?;
        let change = if found.is_directory() { Activity::CreateDirectory } else { Activity::Modify };
        writable = metadata::is_changeable(&can, &found) && identity.check(change, &path).is_ok();
    }
    let address = in_brackets(active_request.session.local);
    active_request.ok(&Locations(vec![LocationInfo { manager: false, pending: false, writable, address }]))
}

/// Formats an address like the reference server: `[::127.0.0.1]:1094`.
fn in_brackets(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(v4) => format!("[::{v4}]:{}", address.port()),
        IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
            Some(v4) => format!("[::{v4}]:{}", address.port()),
            None => format!("[{v6}]:{}", address.port()),
        },
    }
}
