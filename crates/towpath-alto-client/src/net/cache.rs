//! Cache of responses with an entity tag, which need not be sent again while unchanged.

use std::{hash::RandomState, num::NonZeroUsize, sync::Arc};

use clru::{CLruCache, CLruCacheConfig, WeightScale};

use crate::{Document, Request};

/// Maximum number of cached responses, and their maximum total size in bytes as sent.
const MAX_RESPONSES: usize = 64;
const MAX_BYTES: usize = 128 << 20;

/// Key of a response: the resource, and of the request the URI, the accepted media types and the body. Several
/// resources may have one URI.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    resource: String,
    uri: String,
    accept: String,
    /// The body of a POST.
    body: Option<Vec<u8>>,
}

impl Key {
    /// Returns the key for the response to `request`, which is for `resource`.
    pub(super) fn of(resource: &str, request: &Request) -> Self {
        let body = request.document.as_ref().map(|(_, body)| body.clone());
        Self { resource: resource.to_owned(), uri: request.uri.clone(), accept: request.accept.clone(), body }
    }

    fn bytes(&self) -> usize {
        self.resource.len() + self.uri.len() + self.accept.len() + self.body.as_ref().map_or(0, Vec::len)
    }
}

/// Responses by their requests. The least recently used one is evicted.
#[derive(Debug)]
pub(super) struct Cache(CLruCache<Key, CachedResponse, RandomState, SentBytes>);

#[derive(Debug)]
struct CachedResponse {
    document: Arc<Document>,
    /// Size of the response as sent.
    bytes: usize,
}

#[derive(Debug)]
struct SentBytes;

impl WeightScale<Key, CachedResponse> for SentBytes {
    fn weight(&self, key: &Key, cached: &CachedResponse) -> usize {
        key.bytes() + cached.bytes
    }
}

impl Default for Cache {
    fn default() -> Self {
        // Each response takes one unit of capacity besides its bytes.
        let capacity = const { NonZeroUsize::new(MAX_BYTES + MAX_RESPONSES).unwrap() };
        Self(CLruCache::with_config(CLruCacheConfig::new(capacity).with_scale(SentBytes)))
    }
}

impl Cache {
    /// Returns the cached response.
    pub(super) fn get(&mut self, key: &Key) -> Option<Arc<Document>> {
        self.0.get(key).map(|cached| Arc::clone(&cached.document))
    }

    /// Stores a response with its size as sent, replacing the previous one. Responses without an entity tag, and those
    /// that exceed the capacity, are not stored.
    pub(super) fn put(&mut self, key: Key, document: Arc<Document>, bytes: usize) {
        self.0.pop(&key);
        if document.etag.is_some() && self.0.put_with_weight(key, CachedResponse { document, bytes }).is_ok() {
            while self.0.len() > MAX_RESPONSES || self.0.weight() > MAX_BYTES {
                self.0.pop_back();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: usize) -> Key {
        Key { resource: "map".into(), uri: format!("http://h/{name:3}"), accept: "application/json".into(), body: None }
    }

    fn document(etag: Option<&str>) -> Arc<Document> {
        let mut document = Document::parse("x", "http://h/", "application/json", b"{}").unwrap();
        document.etag = etag.map(str::to_owned);
        Arc::new(document)
    }

    #[test]
    fn of_many_answers_those_are_kept_that_are_asked_for() {
        let mut cache = Cache::default();
        for name in 0..MAX_RESPONSES {
            cache.put(key(name), document(Some("e")), 1);
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(key(100), document(Some("e")), 1);
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(1)).is_none());
        assert_eq!(cache.0.len(), MAX_RESPONSES);
        cache.put(key(101), document(Some("e")), MAX_BYTES - key(101).bytes());
        assert_eq!((cache.0.len(), cache.0.weight()), (1, MAX_BYTES));
        cache.put(key(102), document(Some("e")), MAX_BYTES + MAX_RESPONSES);
        assert!(cache.get(&key(101)).is_some() && cache.get(&key(102)).is_none(), "it would be too long");
    }

    #[test]
    fn an_answer_without_version_is_not_kept_and_the_one_before_goes() {
        let mut cache = Cache::default();
        cache.put(key(0), document(Some("e")), 5);
        cache.put(key(0), document(None), 5);
        assert_eq!((cache.get(&key(0)), cache.0.len()), (None, 0));
    }

    #[test]
    fn resources_and_media_types_of_one_uri_have_answers_of_their_own() {
        let (mut cache, map) = (Cache::default(), key(0));
        cache.put(map.clone(), document(Some("e")), 5);
        assert!(cache.get(&Key { resource: "costs".into(), ..map.clone() }).is_none());
        assert!(cache.get(&Key { accept: "application/alto-costmap+json".into(), ..map.clone() }).is_none());
        assert!(cache.get(&map).is_some());
    }
}
