//! Capabilities of a site, learned from its responses, so that no unsupported request is sent twice.

use std::sync::atomic::{AtomicU8, Ordering};

use http::{HeaderMap, HeaderValue, header};

/// A capability that is supported, unsupported, or not yet known. Concurrent tasks may race: they record the same
/// value.
#[derive(Debug, Default)]
pub(super) struct Feature(AtomicU8);

impl Feature {
    /// Returns the recorded value; `None` if it is unknown.
    pub(super) fn get(&self) -> Option<bool> {
        match self.0.load(Ordering::Relaxed) {
            0 => None,
            known => Some(known == 1),
        }
    }

    /// Records whether the capability is supported.
    pub(super) fn learn(&self, so: bool) {
        self.0.store(if so { 1 } else { 2 }, Ordering::Relaxed);
    }

    /// Returns whether the capability is supported or unknown.
    pub(super) fn possible(&self) -> bool {
        self.get() != Some(false)
    }

    /// Returns whether the capability is known to be supported.
    pub(super) fn certain(&self) -> bool {
        self.get() == Some(true)
    }
}

/// The known capabilities of one site.
#[derive(Debug, Default)]
pub(super) struct SiteFeatures {
    /// Whether the site has sent any response.
    pub(super) answers: Feature,
    /// Support of PROPFIND.
    pub(super) dav: Feature,
    /// Whether a request for several ranges gets all of them.
    pub(super) many_ranges: Feature,
    /// Support of `Want-Digest`; some servers reject the whole request because of it.
    pub(super) want_digest: Feature,
    /// Whether the site sends `100 Continue` before the body of an upload.
    pub(super) says_continue: Feature,
    /// Whether the site reports free space.
    pub(super) quota: Feature,
    /// Whether an upload got the requested modification time.
    pub(super) keeps_times: Feature,
    /// Whether the site is a towpath server: uploads are staged, and conditions are checked until the upload becomes
    /// visible.
    pub(super) is_towpath: Feature,
    /// Whether the site accepts large files in parts ([`super::parts`]).
    pub(super) takes_parts: Feature,
    /// Whether uploads with a key can be resumed.
    pub(super) resumes: Feature,
    /// Whether the site is XRootD's own server. Seen with 5.5.3: it announces a range beyond the end of a file and then
    /// does not send it, responses have no version, a request for a digest makes it read the whole file or is rejected
    /// with 405, and conditions of uploads are ignored.
    pub(super) is_xrootd: Feature,
}

impl SiteFeatures {
    /// Records the capabilities in the header of a response.
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

/// Returns whether a response with these `headers` is from XRootD: `XrootD/v5.5.3`, or just `XRootD` (6.1.0).
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
