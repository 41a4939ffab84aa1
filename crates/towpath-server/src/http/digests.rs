//! Digests in requests and responses: the digest that a client wants, and the digests that an upload promises.

use http::{HeaderName, HeaderValue, StatusCode};
use towpath_proto::{
    checksum::{Algorithm, Digest, Digests},
    http::digest::{self, DigestPreferences, InvalidField},
};
use towpath_store::{FileKind, Metadata, Result};

use super::{exchange::Exchange, refusal::Refusal, respond::value};
use crate::access::Activity;

/// Maximum size of a file that is read to compute a wanted digest, in bytes. For larger files the field is omitted;
/// clients can use the xroot protocol (`query checksum`), which supports waiting.
const MAX_COMPUTED_BYTES: u64 = 16 << 20;

const DIGEST: HeaderName = HeaderName::from_static("digest");
const REPR_DIGEST: HeaderName = HeaderName::from_static("repr-digest");

/// Returns the wanted digest of the file with this `metadata` as a header field. Returns `None` if none is wanted, or
/// if none is known and the file is large.
pub(super) async fn wanted(exchange: &Exchange, metadata: &Metadata) -> Option<(HeaderName, HeaderValue)> {
    let old = exchange.custom_field("want-digest").map(|text| DigestPreferences::parse_want_digest(&text));
    let new = exchange.custom_field("want-repr-digest").map(|text| DigestPreferences::parse_want_repr_digest(&text));
    // A request with both fields is from an old client with a new library, so the old form is safe.
    let (wanted, is_old) = match (old, new) {
        (Some(old), _) => (old, true),
        (None, new) => (new?, false),
    };
    let digest = find(exchange, metadata, &wanted).await?;
    let digests = Digests::from(digest);
    let (name, text) = match is_old {
        true => (DIGEST, digest::write_digest(&digests)),
        false => (REPR_DIGEST, digest::write_repr_digest(&digests)),
    };
    Some((name, value(text?)))
}

async fn find(exchange: &Exchange, metadata: &Metadata, wanted: &DigestPreferences) -> Option<Digest> {
    if let Some(known) = wanted.best(metadata.digests.algorithms()) {
        return metadata.digests.get(known);
    }
    let algorithm = wanted.best(exchange.store().capabilities().digests)?;
    // The store would compute it for the path alone.
    if metadata.size > MAX_COMPUTED_BYTES || metadata.kind != FileKind::File || exchange.content_query().is_some() {
        return None;
    }
    // Computing reads the file, so it requires the right to read.
    exchange.may(Activity::Read).ok()?;
    compute(exchange, metadata, algorithm).await.unwrap_or_else(|error| {
        tracing::debug!(%error, "failed to compute a digest requested by a client");
        None
    })
}

/// Computes a digest; `None` if the file changed meanwhile, because the digest must match the version of the
/// response.
async fn compute(exchange: &Exchange, metadata: &Metadata, algorithm: Algorithm) -> Result<Option<Digest>> {
    let (store, caller, path) = (exchange.store(), exchange.caller(), exchange.path());
    let digest = store.digest(caller, path, algorithm, &|_| {}).await?;
    let now = store.stat(caller, path).await?;
    Ok((now.version == metadata.version).then_some(digest))
}

/// Returns the digests of the whole file that an upload promises, in any of the fields.
pub(super) fn promised(exchange: &Exchange) -> Result<Digests, Refusal> {
    let mut promised = in_field(exchange, "digest", digest::parse_digest)?;
    let more = [
        in_field(exchange, "repr-digest", digest::parse_repr_digest)?,
        in_field(exchange, "oc-checksum", digest::parse_owncloud)?,
    ];
    more.iter().flat_map(Digests::iter).for_each(|digest| promised.insert(*digest));
    Ok(promised)
}

/// Returns the digests of this request's body that an upload promises.
pub(super) fn promised_of_content(exchange: &Exchange) -> Result<Digests, Refusal> {
    let mut promised = in_field(exchange, "content-digest", digest::parse_repr_digest)?;
    let md5 = in_field(exchange, "content-md5", |text| digest::parse_content_md5(text).map(Digests::from))?;
    md5.iter().for_each(|digest| promised.insert(*digest));
    Ok(promised)
}

fn in_field(
    exchange: &Exchange,
    name: &'static str,
    parse: impl Fn(&str) -> Result<Digests, InvalidField>,
) -> Result<Digests, Refusal> {
    let Some(text) = exchange.custom_field(name) else { return Ok(Digests::new()) };
    parse(&text).map_err(|error| Refusal::new(StatusCode::BAD_REQUEST, error.to_string()))
}
