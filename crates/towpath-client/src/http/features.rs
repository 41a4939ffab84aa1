//! Capabilities of a site, learned from its responses, so that no unsupported request is sent twice.

use std::sync::atomic::{AtomicU8, Ordering};

use http::{HeaderMap, HeaderValue, header};

/// Something that is either so or not, once it is known. Stores of several tasks may race: they learn the same.
#[derive(Debug, Default)]
pub(super) struct Feature(AtomicU8);

impl Feature {
    /// What is known.
    pub(super) fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            known => Some(known == 1),
        }
    }

    /// It is so, or it is not.
    pub(super) fn learn(&self, so: bool) {
        self.0.store(if so { 1 } else { 2 }, Ordering::Relaxed);
    }

    /// Whether it may be so.
    pub(super) fn possible(&self) -> bool {
        self.get() != Some(false)
    }

    /// Whether it is known to be so.
    pub(super) fn certain(&self) -> bool {
        self.get() == Some(true)
    }
}

/// The known capabilities of one site.
#[derive(Debug, Default)]
pub(super) struct SiteFeatures {
    /// It has answered at all.
    pub(super) answers: Feature,
    /// It understands PROPFIND.
    pub(super) dav: Feature,
    /// It answers a request for several ranges with all of them.
    pub(super) many_ranges: Feature,
    /// It takes `Want-Digest`; some refuse the whole request for it.
    pub(super) want_digest: Feature,
    /// It says 'continue' before the body of an upload.
    pub(super) says_continue: Feature,
    /// It reports free space.
    pub(super) quota: Feature,
    /// It has given an upload the time that it was to have.
    pub(super) keeps_times: Feature,
    /// It is a towpath server: uploads are staged, and conditions are checked until the upload becomes visible.
    pub(super) is_towpath: Feature,
    /// It takes large files in parts ([`super::parts`]).
    pub(super) takes_parts: Feature,
    /// Uploads with a key can be taken up again.
    pub(super) resumes: Feature,
    /// It is XRootD's. Seen with 5.5.3: a range beyond the end of a file is promised and then not sent, answers have no
    /// version, a wish for a digest makes it read the whole file or is refused with 405, conditions of uploads are
    /// ignored.
    pub(super) is_xrootd: Feature,
}

impl SiteFeatures {
    /// Learns from the header of any answer.
    pub(super) fn learn(&self, headers: &HeaderMap) {
        self.answers.learn(true);
        if let Some(server) = headers.get(header::SERVER).and_then(|value| value.to_str().ok()) {
            self.is_towpath.learn(server.starts_with("towpath/"));
            self.is_xrootd.learn(is_xrootd(headers));
        }
        if headers.get("x-oc-mtime").is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"accepted")) {
            self.keeps_times.learn(true);
        }
        if headers.contains_key("dav") {
            self.dav.learn(true);
        }
    }
}

/// Whether the server that sent an answer with these `headers` is XRootD: `XrootD/v5.5.3`, or just `XRootD` (6.1.0).
pub(super) fn is_xrootd(headers: &HeaderMap) -> bool {
    let server = headers.get(header::SERVER).map(HeaderValue::as_bytes).unwrap_or_default();
    server.split(|byte| *byte == b'/').next().is_some_and(|name| name.eq_ignore_ascii_case(b"xrootd"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xrootd_is_known_by_its_name_with_or_without_a_version() {
        for (server, is_known) in
            [("XrootD/v5.5.3", true), ("XRootD/6.0", true), ("XRootD", true), ("XRootD-proxy", false), ("nginx", false)]
        {
            let headers = HeaderMap::from_iter([(header::SERVER, HeaderValue::from_static(server))]);
            assert_eq!(is_xrootd(&headers), is_known, "{server}");
        }
        assert!(!is_xrootd(&HeaderMap::new()));
    }
}
