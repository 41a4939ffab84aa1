//! The supported HTTP methods.

use http::Method;

/// The value of `Allow` for files.
pub(super) const ALLOW: &str = "OPTIONS, GET, HEAD, PUT, DELETE, MKCOL, COPY, MOVE, PROPFIND, PROPPATCH, LOCK, UNLOCK";

/// An HTTP method.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Options,
    Get,
    /// For applications, probes and additional routes only.
    Post,
    Head,
    Put,
    Delete,
    Mkcol,
    Copy,
    Move,
    Propfind,
    Proppatch,
    Lock,
    Unlock,
    /// An unsupported method.
    Other,
}

const NAMES: [(&str, Verb); 13] = [
    ("OPTIONS", Verb::Options),
    ("GET", Verb::Get),
    ("POST", Verb::Post),
    ("HEAD", Verb::Head),
    ("PUT", Verb::Put),
    ("DELETE", Verb::Delete),
    ("MKCOL", Verb::Mkcol),
    ("COPY", Verb::Copy),
    ("MOVE", Verb::Move),
    ("PROPFIND", Verb::Propfind),
    ("PROPPATCH", Verb::Proppatch),
    ("LOCK", Verb::Lock),
    ("UNLOCK", Verb::Unlock),
];

impl Verb {
    /// Returns the method of a request.
    pub(super) fn of(method: &Method) -> Self {
        NAMES.iter().find(|(name, _)| *name == method.as_str()).map_or(Verb::Other, |(_, verb)| *verb)
    }

    /// Returns the name, from a fixed set.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, verb)| *verb == self).map_or("other", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allow_lists_what_is_understood() {
        let mut allowed: Vec<_> = ALLOW.split(", ").chain(["POST"]).collect();
        let mut known: Vec<_> = NAMES.iter().map(|(name, _)| *name).collect();
        allowed.sort_unstable();
        known.sort_unstable();
        assert_eq!(allowed, known);
        assert_eq!(Verb::of(&Method::TRACE), Verb::Other);
        assert!(NAMES.iter().all(|(name, verb)| verb.name() == *name));
    }
}
