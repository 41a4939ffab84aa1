//! Cache of responses with an entity tag, which need not be sent again while unchanged.

use std::{collections::HashMap, sync::Arc};

use crate::{Document, Request};

/// Maximum number and total size in bytes (as sent) of cached responses. The least recently used one is evicted.
const MAX_ANSWERS: usize = 64;
const MAX_BYTES: usize = 128 << 20;

/// Key of a response.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    uri: String,
    document: Option<Vec<u8>>,
}

impl Key {
    /// Returns the key for the response to `question`.
    pub(super) fn of(question: &Request) -> Self {
        let document = question.document.as_ref().map(|(_, document)| document.clone());
        Self { uri: question.uri.clone(), document }
    }

    fn bytes(&self) -> usize {
        self.uri.len() + self.document.as_ref().map_or(0, Vec::len)
    }
}

/// Responses by their requests.
#[derive(Debug, Default)]
pub(super) struct Cache {
    answers: HashMap<Key, Kept>,
    bytes: usize,
    /// Number of accesses.
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    document: Arc<Document>,
    bytes: usize,
    /// Access number of the last use.
    use_: u64,
}

impl Cache {
    /// Returns the cached response.
    pub(super) fn get(&mut self, key: &Key) -> Option<Arc<Document>> {
        self.uses += 1;
        let kept = self.answers.get_mut(key)?;
        kept.use_ = self.uses;
        Some(Arc::clone(&kept.document))
    }

    /// Stores a response with its size as sent, replacing the previous one. Responses without an entity tag are not stored.
    pub(super) fn put(&mut self, key: Key, document: Arc<Document>, bytes: usize) {
        self.remove(&key);
        let bytes = bytes + key.bytes();
        if document.etag.is_none() || bytes > MAX_BYTES {
            return;
        }
        while self.answers.len() >= MAX_ANSWERS || self.bytes + bytes > MAX_BYTES {
            let oldest = self.answers.iter().min_by_key(|(_, kept)| kept.use_);
            let oldest = oldest.map(|(key, _)| key.clone()).expect("an empty cache has room");
            self.remove(&oldest);
        }
        self.uses += 1;
        self.bytes += bytes;
        self.answers.insert(key, Kept { document, bytes, use_: self.uses });
    }

    fn remove(&mut self, key: &Key) {
        if let Some(kept) = self.answers.remove(key) {
            self.bytes -= kept.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: usize) -> Key {
        Key { uri: format!("http://h/{name:3}"), document: None }
    }

    fn document(etag: Option<&str>) -> Arc<Document> {
        let mut document = Document::parse("x", "http://h/", "application/json", b"{}").unwrap();
        document.etag = etag.map(str::to_owned);
        Arc::new(document)
    }

    #[test]
    fn of_many_answers_those_are_kept_that_are_asked_for() {
        let mut cache = Cache::default();
        for name in 0..MAX_ANSWERS {
            cache.put(key(name), document(Some("e")), 1);
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(key(100), document(Some("e")), 1);
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(1)).is_none());
        assert_eq!(cache.answers.len(), MAX_ANSWERS);
        cache.put(key(101), document(Some("e")), MAX_BYTES - key(101).bytes());
        assert_eq!((cache.answers.len(), cache.bytes), (1, MAX_BYTES));
        cache.put(key(102), document(Some("e")), MAX_BYTES);
        assert!(cache.get(&key(101)).is_some() && cache.get(&key(102)).is_none(), "it would be too long");
    }

    #[test]
    fn an_answer_without_version_is_not_kept_and_the_one_before_goes() {
        let mut cache = Cache::default();
        cache.put(key(0), document(Some("e")), 5);
        cache.put(key(0), document(None), 5);
        assert_eq!((cache.get(&key(0)), cache.bytes), (None, 0));
    }
}
