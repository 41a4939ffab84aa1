//! LOCK, UNLOCK, and the effect of locks and the `If` field on all modifying methods.

use std::{collections::HashMap, time::Duration};

use http::{HeaderName, Response, StatusCode};
use hyper::body::Incoming;
use towpath_proto::http::{
    condition::EntityTag,
    dav::{
        ActiveLock, Depth, Element, IfCondition, IfHeader, LockRequest, error_body, lock_body, parse_coded_url,
        parse_timeout,
    },
};
use towpath_store::{CreateOptions, Expectation, Fault, Overwrite, StorePath};

use super::{
    body::Content,
    exchange::Exchange,
    locks::{LockDepth, LockError, LockParameters, MAX_LIFETIME},
    refusal::Refusal,
    respond::{self, value},
    target, upload,
};
use crate::access::Activity;

/// Default lifetime of a lock.
const DEFAULT_LIFETIME: Duration = Duration::from_secs(600);

/// Maximum size of a stored `owner` element, in bytes of XML.
const MAX_OWNER_BYTES: usize = 4096;

const LOCK_TOKEN: HeaderName = HeaderName::from_static("lock-token");

/// Handles a LOCK: creates or refreshes a lock.
pub(super) async fn lock(exchange: &Exchange, body: Incoming) -> Result<Response<Content>, Refusal> {
    exchange.may(Activity::Create).or(exchange.may(Activity::Modify))?;
    let text = upload::text(exchange, body).await?;
    let request = LockRequest::parse(&text).map_err(|error| Refusal::bad_request(error.to_string()))?;
    let asked = exchange.custom_field("timeout").and_then(|text| parse_timeout(&text));
    let lasts = asked.map_or(DEFAULT_LIFETIME, |seconds| Duration::from_secs(seconds.into())).min(MAX_LIFETIME);
    match request {
        LockRequest::Refresh => refresh(exchange, lasts),
        LockRequest::New { scope, owner } => {
            let depth = match exchange.custom_field("depth").as_deref().map_or(Some(Depth::Infinity), Depth::parse) {
                Some(Depth::Zero) => LockDepth::One,
                Some(Depth::Infinity) => LockDepth::Tree,
                _ => return Err(Refusal::bad_request("the Depth of a lock is 0 or infinity")),
            };
            check_owner(owner.as_ref())?;
            let parameters = LockParameters { path: exchange.path().clone(), depth, scope, owner, lasts };
            grant(exchange, parameters).await
        }
    }
}

fn check_owner(owner: Option<&Element>) -> Result<(), Refusal> {
    let mut xml = String::new();
    owner.inspect(|owner| owner.write(&mut xml));
    if xml.len() > MAX_OWNER_BYTES {
        return Err(Refusal::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the owner is longer than {MAX_OWNER_BYTES} bytes"),
        ));
    }
    Ok(())
}

fn refresh(exchange: &Exchange, lasts: Duration) -> Result<Response<Content>, Refusal> {
    let shown = if_header(exchange)?.ok_or_else(|| Refusal::bad_request("to refresh a lock, send its token in If"))?;
    let locks = &exchange.service.http.locks;
    let refreshed = shown.tokens().find_map(|token| locks.refresh(exchange.caller(), exchange.path(), token, lasts));
    let lock = refreshed.ok_or_else(Refusal::precondition_failed)?;
    Ok(lock_response(StatusCode::OK, &lock))
}

async fn grant(exchange: &Exchange, parameters: LockParameters) -> Result<Response<Content>, Refusal> {
    let existing = exchange.metadata().await?;
    exchange.may(if existing.is_some() { Activity::Modify } else { Activity::Create })?;
    check_if(exchange).await?;
    let locks = &exchange.service.http.locks;
    let lock = locks.grant(exchange.caller(), parameters).map_err(|no| match no {
        LockError::Conflict(path) => locked(&path, "no-conflicting-lock"),
        LockError::TooMany => Refusal::overloaded("your share of locks is exhausted: release some"),
    })?;
    let mut status = StatusCode::OK;
    if existing.is_none() {
        // Locking an unmapped URL creates an empty file (RFC 4918 §7.3).
        status = StatusCode::CREATED;
        if let Err(refusal) = make_empty_file(exchange).await {
            locks.end(exchange.caller(), exchange.path(), &lock.token);
            return Err(refusal);
        }
    }
    let mut response = lock_response(status, &lock);
    response.headers_mut().insert(LOCK_TOKEN, value(format_args!("<{}>", lock.token)));
    Ok(response)
}

async fn make_empty_file(exchange: &Exchange) -> Result<(), Refusal> {
    may_change_parent(exchange, exchange.path())?;
    let options = CreateOptions { overwrite: Overwrite::Refuse, ..CreateOptions::default() };
    let created = exchange.store().create(exchange.caller(), exchange.path(), options).await;
    let handle = created.map_err(|error| Refusal::from(error).or_status(Fault::NotFound, StatusCode::CONFLICT))?;
    match handle.commit(Expectation::default()).await {
        Err(error) if error.fault() != Fault::AlreadyExists => Err(error.into()),
        _ => Ok(()),
    }
}

fn lock_response(status: StatusCode, lock: &ActiveLock) -> Response<Content> {
    let mut response = respond::with_status(status, Content::text(lock_body(lock)));
    response.headers_mut().insert(http::header::CONTENT_TYPE, respond::XML);
    response
}

/// Handles an UNLOCK.
pub(super) async fn unlock(exchange: &Exchange) -> Result<Response<Content>, Refusal> {
    let field = exchange.field(LOCK_TOKEN);
    let token = field.as_deref().and_then(parse_coded_url);
    let token = token.ok_or_else(|| Refusal::bad_request("Lock-Token must name the lock, as in <urn:uuid:...>"))?;
    match exchange.service.http.locks.end(exchange.caller(), exchange.path(), token) {
        true => Ok(respond::empty(StatusCode::NO_CONTENT)),
        false => Err(Refusal::condition(StatusCode::CONFLICT, error_body("lock-token-matches-request-uri", None))),
    }
}

/// Checks that locks and `If` permit changes to the content or the properties of `path`.
pub(super) async fn may_change(exchange: &Exchange, path: &StorePath) -> Result<(), Refusal> {
    check_if(exchange).await?;
    check(exchange, path, LockDepth::One)
}

/// Checks that locks and `If` permit creating or replacing a name, which also changes its directory.
pub(super) async fn may_add(exchange: &Exchange, path: &StorePath) -> Result<(), Refusal> {
    may_change(exchange, path).await?;
    may_change_parent(exchange, path)
}

/// Checks that locks and `If` permit removing `path` with everything below it.
pub(super) async fn may_remove(exchange: &Exchange, path: &StorePath) -> Result<(), Refusal> {
    check_if(exchange).await?;
    check(exchange, path, LockDepth::Tree)?;
    may_change_parent(exchange, path)
}

fn may_change_parent(exchange: &Exchange, path: &StorePath) -> Result<(), Refusal> {
    path.parent().map_or(Ok(()), |parent| check(exchange, &parent, LockDepth::One))
}

fn check(exchange: &Exchange, path: &StorePath, depth: LockDepth) -> Result<(), Refusal> {
    let shown = if_header(exchange)?;
    let tokens: Vec<_> = shown.iter().flat_map(IfHeader::tokens).collect();
    match exchange.service.http.locks.find_conflict(exchange.caller(), path, depth, &tokens) {
        Some(at) => Err(locked(&at, "lock-token-submitted")),
        None => Ok(()),
    }
}

fn locked(path: &StorePath, condition: &'static str) -> Refusal {
    Refusal::condition(StatusCode::LOCKED, error_body(condition, Some(&target::encode(path, false))))
}

fn if_header(exchange: &Exchange) -> Result<Option<IfHeader>, Refusal> {
    let Some(text) = exchange.custom_field("if") else { return Ok(None) };
    IfHeader::parse(&text).map(Some).ok_or_else(|| Refusal::bad_request("the If field is invalid"))
}

/// Rejects a request whose `If` field does not hold.
async fn check_if(exchange: &Exchange) -> Result<(), Refusal> {
    let Some(shown) = if_header(exchange)? else { return Ok(()) };
    let mut resources: HashMap<Option<&str>, (Option<StorePath>, Option<EntityTag>)> = HashMap::new();
    for list in &shown.lists {
        let resource = list.resource.as_deref();
        if resources.contains_key(&resource) {
            continue;
        }
        let path = resource.map_or_else(|| Some(exchange.path().clone()), target::of_url);
        let metadata = match &path {
            Some(path) => exchange.metadata_of(path).await?,
            None => None,
        };
        resources.insert(resource, (path, metadata.and_then(|metadata| respond::validators(&metadata).etag)));
    }
    let locks = &exchange.service.http.locks;
    let holds = |resource: Option<&str>, condition: &IfCondition| match (resources.get(&resource), condition) {
        (Some((Some(path), _)), IfCondition::Token(token)) => locks.has(path, token),
        (Some((_, Some(etag))), IfCondition::ETag(text)) => {
            EntityTag::parse(text).is_some_and(|asked| asked.matches_strongly(etag))
        }
        _ => false,
    };
    if shown.evaluate(holds) { Ok(()) } else { Err(Refusal::precondition_failed()) }
}
