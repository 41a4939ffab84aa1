//! GET and HEAD of files: conditions, ranges, digests. Directories go to [`super::listing_page`].

use std::{ops::Range, sync::Arc};

use futures::{StreamExt as _, stream};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use towpath_proto::http::{
    condition::{Decision, IfRange, PIN_FIELD, Validators},
    multipart::Boundary,
    range::{ContentRange, RangeRequest, Resolution},
};
use towpath_store::{Blame, ContentStream, Error, Fault, FileKind, Metadata, OpenOptions, ReadHandle, sys};

use super::{
    body::{Chunk, Content},
    cache_fields, digests,
    exchange::{Exchange, too_many_files},
    file_body::{self, FileBody, READ_BYTES, Segment, read_all},
    listing_page, media_type, namespace,
    refusal::Refusal,
    respond::{self, value},
    service_pages,
    verb::Verb,
};
use crate::{access::Activity, fair_pool::Lease};

/// Maximum length of a response for which a file may be opened with a lease from the reserve, in bytes. It is read
/// immediately and the file is closed.
const SHORT_BYTES: u64 = READ_BYTES;

/// Handles a GET or HEAD. HEAD is processed as a GET without its body, so that both have the same status and fields.
pub(super) async fn answer(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    match get(exchange).await {
        // The pages of a cache must not depend on its origin.
        Err(refusal) if matches!(refusal.fault(), Fault::NotFound | Fault::Unavailable | Fault::TimedOut) => {
            service_pages::find(exchange).await.ok_or(refusal)
        }
        answered => answered,
    }
}

/// Answers a HEAD of a caller who may stat the target but not read it, with the fields that a permitted GET would
/// have.
async fn head_without_read(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    let metadata = exchange.store().stat(exchange.caller(), exchange.path()).await?;
    match metadata.kind {
        FileKind::Directory => Ok(listing_page::fields(exchange, &metadata)),
        FileKind::Other => Err(namespace::not_regular(exchange.path()).into()),
        FileKind::File => file(exchange, &metadata, None).await,
    }
}

/// Opens the requested file and requests its metadata. A plain GET reads the current content while it is sent, as with
/// other servers; a conditional one reads one version.
async fn open(exchange: &Exchange) -> Result<(Arc<dyn ReadHandle>, Result<Metadata, Error>), Error> {
    let pins = [header::IF_MATCH, header::IF_UNMODIFIED_SINCE, header::IF_RANGE, HeaderName::from_static(PIN_FIELD)];
    let follows = !pins.iter().any(|field| exchange.headers.contains_key(field));
    let cache = cache_fields::directives(&exchange.headers);
    let query = exchange.content_query().map(Arc::from);
    let options = OpenOptions { follows, cache, query, ..OpenOptions::default() };
    let handle = exchange.store().open(exchange.caller(), exchange.path(), options).await?;
    let metadata = handle.metadata().await;
    Ok((handle, metadata))
}

async fn get(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    // The required right is only known when the path is opened.
    let may_read = exchange.may(Activity::Read);
    // The metadata of a query's result need the right to read.
    let is_stat = exchange.verb == Verb::Head && exchange.content_query().is_none();
    if may_read.is_err() && is_stat && exchange.may(Activity::List).is_err() {
        exchange.may(Activity::Stat)?;
        return head_without_read(exchange).await;
    }
    // A long name is not that of its directory.
    let is_long = exchange.target.long_name.is_some();
    if is_long {
        may_read.clone()?;
    }
    if may_read.is_err() {
        exchange.may(Activity::List).or(may_read.clone())?;
        return listing_page::answer(exchange).await.map_err(|refusal| match (refusal.fault(), may_read) {
            (Fault::NotDirectory, Err(denied)) => denied.into(),
            _ => refusal,
        });
    }
    let lease = exchange.open_file().await?;
    match open(exchange).await {
        Ok((handle, Ok(metadata))) => {
            // The lease is also held while a digest is computed.
            let lease = Arc::new(lease);
            file(exchange, &metadata, Some((handle, Arc::clone(&lease)))).await
        }
        Ok((handle, Err(error))) if error.fault() == Fault::Unsupported => {
            of_unknown_length(exchange, ContentStream::instead_of(error, &*handle).await?, lease)
        }
        Ok((_, Err(error))) | Err(error) if error.fault() == Fault::IsDirectory && !is_long => {
            drop(lease);
            listing_page::answer(exchange).await
        }
        Ok((_, Err(error))) | Err(error) => Err(error.into()),
    }
}

/// Builds the response for a file whose storage sends no length, such as the result of a query.
///
/// # Errors
/// 502 if the storage does not mark the end either, or if the client speaks HTTP/1.0, which cannot: a truncated response
/// would look complete.
fn of_unknown_length(exchange: &Exchange, content: ContentStream, lease: Lease) -> Result<Response<Content>, Refusal> {
    exchange.refuse_slash_of_file(None)?;
    if !content.is_framed || exchange.version == http::Version::HTTP_10 {
        let message = "the storage sends neither the length of the file nor its end: it could be truncated";
        return Err(Error::new(Fault::Protocol, message).blamed_on(Blame::Storage).at(exchange.path()).into());
    }
    if lease.is_of_reserve() {
        return Err(too_many_files());
    }
    match exchange.conditions()?.evaluate(true, &Validators { exists: true, ..Validators::default() }) {
        Decision::PreconditionFailed => return Err(Refusal::precondition_failed()),
        Decision::NotModified => return Ok(respond::empty(StatusCode::NOT_MODIFIED)),
        Decision::Proceed => {}
    }
    let pieces = content.pieces.map(move |piece| {
        let _open = &lease;
        piece.map(|bytes| Chunk::Bytes(bytes, None))
    });
    let mut response = Response::new(Content::Stream(pieces.boxed(), None));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(type_of(exchange)));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    insert_sandbox_headers(headers);
    Ok(response)
}

/// An open file for a response.
type OpenedFile = (Arc<dyn ReadHandle>, Arc<Lease>);

/// Builds the response for a file; includes its bytes if it is open.
async fn file(
    exchange: &Exchange,
    metadata: &Metadata,
    opened: Option<OpenedFile>,
) -> Result<Response<Content>, Refusal> {
    exchange.refuse_slash_of_file(Some(metadata))?;
    let validators = respond::validators(metadata);
    let mut response = match exchange.conditions()?.evaluate(true, &validators) {
        Decision::PreconditionFailed => return Err(Refusal::precondition_failed()),
        Decision::NotModified => respond::empty(StatusCode::NOT_MODIFIED),
        Decision::Proceed => match opened {
            Some(opened) => content(exchange, metadata, &validators, opened).await?,
            None => whole(exchange, metadata.size),
        },
    };
    let digest = digests::wanted(exchange, metadata).await;
    let headers = response.headers_mut();
    respond::insert_validators(headers, &validators);
    cache_fields::insert(headers, metadata, sys::clock::unix_s());
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.extend(digest);
    Ok(response)
}

/// Builds the fields of a response with the whole file.
fn whole(exchange: &Exchange, size: u64) -> Response<Content> {
    let mut response = Response::new(Content::Empty);
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, size.into());
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(type_of(exchange)));
    insert_sandbox_headers(headers);
    response
}

/// Anyone with write access can upload files, so browsers must not give them rights on this origin.
fn insert_sandbox_headers(headers: &mut http::HeaderMap) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("sandbox"));
}

fn type_of(exchange: &Exchange) -> &'static str {
    media_type::of(exchange.path().name().unwrap_or_default())
}

async fn content(
    exchange: &Exchange,
    metadata: &Metadata,
    validators: &Validators,
    opened: OpenedFile,
) -> Result<Response<Content>, Refusal> {
    let size = metadata.size;
    let ranges = match requested_range(exchange, validators).map(|range| range.resolve(size)) {
        None | Some(Resolution::Whole) => {
            let mut response = whole(exchange, size);
            *response.body_mut() = body(exchange, opened, vec![Segment::Part(0..size)], size).await?;
            return Ok(response);
        }
        Some(Resolution::Partial(ranges)) => ranges,
        Some(Resolution::Unsatisfiable) => {
            let range = value(ContentRange::Unsatisfied { size });
            return Err(Refusal::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("the file has {size} bytes"))
                .with(header::CONTENT_RANGE, range));
        }
        Some(Resolution::Abusive) => {
            return Err(Refusal::bad_request("too many ranges or overlapping ranges"));
        }
    };
    match ranges.as_slice() {
        [range] => one_range(exchange, opened, range.clone(), size).await,
        _ => many_ranges(exchange, opened, &ranges, size).await,
    }
}

/// Returns the requested range, unless `If-Range` disables it. HEAD ignores ranges (RFC 9110 §14.2).
fn requested_range(exchange: &Exchange, validators: &Validators) -> Option<RangeRequest> {
    if exchange.verb == Verb::Head {
        return None;
    }
    let range = RangeRequest::parse(&exchange.field(header::RANGE)?)?;
    match exchange.field(header::IF_RANGE) {
        Some(text) if !IfRange::parse(&text)?.holds(validators, sys::clock::unix_s()) => None,
        _ => Some(range),
    }
}

/// Creates a response body of `length` bytes. The reserve is only for short responses, which are read immediately so
/// that its leases return soon regardless of the client.
///
/// # Errors
/// 503 if the lease is from the reserve and the response is long or must wait for the client to read others; or the
/// read error of a short response.
async fn body(
    exchange: &Exchange,
    (handle, lease): OpenedFile,
    segments: Vec<Segment>,
    length: u64,
) -> Result<Content, Refusal> {
    if length == 0 {
        return Ok(Content::Empty);
    }
    if exchange.verb == Verb::Head {
        // Only the length is sent; a cache must not fetch the content.
        return Ok(Content::Stream(stream::empty().boxed(), Some(length)));
    }
    if cache_fields::directives(&exchange.headers).only_if_cached {
        // Fails with 504 as long as the status is not sent.
        file_body::ready(&*handle, &segments).await?;
    }
    if !lease.is_of_reserve() {
        let body = FileBody::new(handle, lease, exchange.claim(), exchange.version, segments);
        body.first_ready().await?;
        return Ok(Content::Stream(body.boxed(), Some(length)));
    }
    if length > SHORT_BYTES {
        return Err(too_many_files());
    }
    let (claim, bytes) = (exchange.claim(), length as usize);
    file_body::ready(&*handle, &segments).await?;
    let reserved = claim.try_reserve(bytes).await.ok_or_else(too_many_files)?;
    let all = read_all(&*handle, &claim, reserved, segments, bytes).await?;
    Ok(Content::Stream(stream::iter([Ok(all)]).boxed(), Some(length)))
}

async fn one_range(
    exchange: &Exchange,
    opened: OpenedFile,
    range: Range<u64>,
    size: u64,
) -> Result<Response<Content>, Refusal> {
    let length = range.end - range.start;
    let mut response = whole(exchange, length);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    if let Some(part) = ContentRange::part(&range, Some(size)) {
        response.headers_mut().insert(header::CONTENT_RANGE, value(part));
    }
    *response.body_mut() = body(exchange, opened, vec![Segment::Part(range)], length).await?;
    Ok(response)
}

async fn many_ranges(
    exchange: &Exchange,
    opened: OpenedFile,
    ranges: &[Range<u64>],
    size: u64,
) -> Result<Response<Content>, Refusal> {
    let boundary = Boundary::from_random(u128::from_ne_bytes(sys::random::bytes()));
    let part_type = type_of(exchange);
    let length = boundary
        .body_bytes(part_type, ranges, size)
        .ok_or_else(|| Refusal::bad_request("the total length of the ranges is too large"))?;
    let mut segments = Vec::with_capacity(2 * ranges.len() + 1);
    for range in ranges {
        let part = ContentRange::part(range, Some(size));
        segments.extend(part.map(|part| Segment::Text(boundary.part_header(part_type, &part))));
        segments.push(Segment::Part(range.clone()));
    }
    segments.push(Segment::Text(boundary.closing()));
    let mut response = whole(exchange, length);
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response.headers_mut().insert(header::CONTENT_TYPE, value(boundary.content_type()));
    *response.body_mut() = body(exchange, opened, segments, length).await?;
    Ok(response)
}
