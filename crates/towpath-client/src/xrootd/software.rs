//! The software of a server and its extensions of the protocol, as it reports them.

/// The reported software and extensions of a server.
#[derive(Debug, Clone, Copy)]
pub(super) struct ServerSoftware {
    pub(super) is_ours: bool,
    /// Whether it is the reference implementation.
    pub(super) is_xrootd: bool,
    /// Whether uploads can be resumed.
    pub(super) resumes: bool,
    pub(super) reopen: Option<ReopenMethod>,
    /// Whether the server accepts percent-encoded paths, as reported with `towpath.node`
    /// ([`NodeInfo::KEY`](towpath_proto::xrootd::response::NodeInfo::KEY)).
    pub(super) takes_encoded_paths: bool,
    /// Whether third-party copies are disabled.
    pub(super) lacks_third_party: bool,
}

/// The way to open a file once more while it is being written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReopenMethod {
    /// A towpath server returns another handle of a named open file.
    ByHandle,
    /// An XRootD server accepts a further open of the same name.
    ByName,
}

impl ServerSoftware {
    /// The value for a server that does not support the query, or responds like a third-party server.
    pub(super) const FOREIGN: Self = Self {
        is_ours: false,
        is_xrootd: false,
        resumes: false,
        reopen: None,
        takes_encoded_paths: false,
        lacks_third_party: false,
    };

    /// The words of the query.
    pub(super) const WORDS: &'static [u8] = b"version towpath.resume towpath.share towpath.node tpc";

    /// Parses the values of [`Self::WORDS`], one per line; an unknown word is echoed.
    pub(super) fn of_answer(answer: &[u8]) -> Self {
        let mut lines = answer.split(|byte| *byte == b'\n');
        let mut next = || lines.next().unwrap_or_default();
        let (version, resume, share, node, tpc) = (next(), next(), next(), next(), next());
        // Such as `v5.5.3`; other implementations of the protocol report other versions.
        let is_xrootd = matches!(version, [b'v', digit, ..] if digit.is_ascii_digit());
        let is_ours = version.starts_with(b"towpath");
        let lacks_third_party = (is_ours || is_xrootd) && tpc == b"tpc";
        if !is_ours {
            let reopen = is_xrootd.then_some(ReopenMethod::ByName);
            return Self { is_xrootd, reopen, lacks_third_party, ..Self::FOREIGN };
        }
        Self {
            is_ours,
            is_xrootd,
            resumes: resume == b"1",
            reopen: (share == b"1").then_some(ReopenMethod::ByHandle),
            takes_encoded_paths: node == b"1",
            lacks_third_party,
        }
    }
}
