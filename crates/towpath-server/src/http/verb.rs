//! The supported HTTP methods.

use http::{HeaderValue, Method};
use towpath_store::Capabilities;

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

    /// Whether files of a store with these capabilities have the method. A COPY to another server only reads.
    fn is_allowed(self, can: &Capabilities) -> bool {
        match self {
            Self::Put | Self::Mkcol => can.create,
            Self::Delete => can.remove,
            Self::Move => can.rename,
            Self::Post | Self::Other => false,
            _ => true,
        }
    }

    /// Returns the value of `Allow` for files of a store with these capabilities.
    pub(super) fn allowed(can: &Capabilities) -> HeaderValue {
        let names: Vec<_> = NAMES.iter().filter(|(_, verb)| verb.is_allowed(can)).map(|(name, _)| *name).collect();
        HeaderValue::try_from(names.join(", ")).expect("names of methods are ASCII")
    }

    /// Returns the name, from a fixed set.
    pub(super) fn name(self) -> &'static str {
        NAMES.iter().find(|(_, verb)| *verb == self).map_or("other", |(name, _)| name)
    }
}

#[cfg(test)]
mod tests {
    use towpath_store::{Store as _, memory::MemoryStore};

    use super::*;

    #[test]
    fn allow_lists_what_the_store_supports() {
        let all = MemoryStore::new(0).capabilities();
        for (limit, missing) in [
            (all.clone(), &["POST"][..]),
            (Capabilities { create: false, ..all.clone() }, &["POST", "PUT", "MKCOL"]),
            (Capabilities { rename: false, remove: false, ..all.clone() }, &["POST", "DELETE", "MOVE"]),
            (all.without_changes(), &["POST", "PUT", "DELETE", "MKCOL", "MOVE"]),
        ] {
            let expected: Vec<_> = NAMES.iter().map(|(name, _)| *name).filter(|name| !missing.contains(name)).collect();
            assert_eq!(Verb::allowed(&limit), expected.join(", "));
        }
        assert_eq!(Verb::of(&Method::TRACE), Verb::Other);
        assert!(NAMES.iter().all(|(name, verb)| verb.name() == *name));
    }
}
