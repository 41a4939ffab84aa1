//! Resolves arguments to a store and a path in it.

use std::{
    ffi::{OsStr, OsString},
    io::{self, IsTerminal as _},
    os::unix::ffi::OsStrExt as _,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio_util::task::TaskTracker;
use towpath_client::{Client, ClientOptions, WaitReporter, s3::S3Options};
use towpath_mover::{RemoteStores, StoreLocation};
pub(crate) use towpath_proto::url::shown;
use towpath_proto::url::{Location, Url};
use towpath_store::{
    Caller, Error, Fault, FileKind, OpenOptions, Store, StorePath,
    local::{LocalOptions, LocalStore, Scope},
};

use crate::{
    args::{Addressing, Remote},
    failure::{Failure, complain},
};

/// One end of a copy.
#[derive(Debug, Clone)]
pub(crate) enum CopyEndpoint {
    /// A path in a store.
    Location(StoreLocation),
    /// The standard input or output.
    Standard,
    /// A device or pipe of this machine, or a file of unknown length, such as those in `/proc`: read or written from
    /// start to end.
    Stream(StoreLocation),
}

/// Maximum wait for a storage on a terminal, where a person waits too.
const TERMINAL_WAIT: Duration = Duration::from_secs(30);

/// The requests of a command.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Requests {
    /// Each has its response at once.
    Short,
    /// Some take long, such as checksums, and an interruption of the network must not end the command.
    Long,
}

impl Requests {
    /// Returns client options with limits of the time that a request waits: the time `chosen`, or, if the command runs
    /// on a terminal, [`TERMINAL_WAIT`].
    fn limited(self, chosen: Option<Duration>) -> ClientOptions {
        let options = ClientOptions::default();
        let Some(wait) = chosen.or_else(|| io::stderr().is_terminal().then_some(TERMINAL_WAIT)) else { return options };
        let retries = if chosen.is_some() { u32::MAX } else { options.retries };
        let options = ClientOptions { max_wait: Some(wait), retries, ..options };
        match self {
            Self::Short => {
                ClientOptions { patience: wait, retry_time: wait, stall: options.stall.min(wait), ..options }
            }
            Self::Long => ClientOptions {
                patience: options.patience.max(wait),
                retry_time: options.retry_time.max(wait),
                ..options
            },
        }
    }
}

/// Resolves arguments to stores, with one store per site, whose connections are shared. Clones share the stores.
#[derive(Debug, Clone)]
pub(crate) struct StoreResolver {
    local: Arc<Mutex<Option<Arc<dyn Store>>>>,
    remote: Arc<RemoteStores>,
    flags: Vec<String>,
    trusts_metalinks: bool,
    afterwards: TaskTracker,
}

impl StoreResolver {
    /// Creates a resolver with the options `remote` for a command whose requests are `requests`.
    pub(crate) fn new(remote: &Remote, requests: Requests) -> Self {
        let options = requests.limited(remote.wait.map(|wait| wait.0));
        let options = ClientOptions {
            ca_file: remote.ca_file.clone(),
            insecure: remote.insecure,
            s3: S3Options {
                endpoint: remote.s3_endpoint.clone(),
                region: remote.s3_region.clone(),
                path_style: remote.s3_addressing.map(|addressing| addressing == Addressing::Path),
                keys: None,
            },
            waits: WaitReporter::new(|message| complain(message)),
            // The mover limits the bytes in flight per path.
            window_bytes: towpath_mover::MAX_BYTES as usize,
            ..options
        };
        Self {
            local: Arc::default(),
            remote: Arc::new(RemoteStores::new(Arc::new(Client::new(Arc::new(options))))),
            flags: remote.flags(),
            trusts_metalinks: false,
            afterwards: TaskTracker::new(),
        }
    }

    /// Returns a resolver that sends credentials to all servers in a Metalink if `trusts_metalinks`.
    pub(crate) fn trusting_metalinks(&self, trusts_metalinks: bool) -> Self {
        Self { trusts_metalinks, ..self.clone() }
    }

    /// Returns the location named by `text`.
    pub(crate) fn location(&self, text: &OsStr) -> Result<StoreLocation, Failure> {
        match self.endpoint(text)? {
            CopyEndpoint::Location(location) | CopyEndpoint::Stream(location) => Ok(location),
            CopyEndpoint::Standard => Err(Failure::Usage("`-` (a standard stream) is not supported here".into())),
        }
    }

    /// Like [`Self::endpoint`], for a copy of single files: checks whether a local path is a stream.
    pub(crate) async fn copy_endpoint(&self, text: &OsStr) -> Result<CopyEndpoint, Failure> {
        Ok(match self.endpoint(text)? {
            CopyEndpoint::Location(location) if is_standard(&location) => CopyEndpoint::Standard,
            CopyEndpoint::Location(location) if !location.is_remote() && is_stream(&location).await => {
                CopyEndpoint::Stream(location)
            }
            end => end,
        })
    }

    /// Returns the location or standard stream named by `text`.
    pub(crate) fn endpoint(&self, text: &OsStr) -> Result<CopyEndpoint, Failure> {
        let location = Location::from_argument(text);
        match location.map_err(|error| Failure::Usage(format!("{}: {error}", shown(text))))? {
            Location::Standard => Ok(CopyEndpoint::Standard),
            Location::Local(path) => self.local(&path).map(CopyEndpoint::Location),
            Location::Remote(url) => self.remote(&url).map(CopyEndpoint::Location),
        }
    }

    /// Returns the options for remote storages as words for a shell.
    pub(crate) fn flags(&self) -> &[String] {
        &self.flags
    }

    /// Returns the client for remote storages.
    pub(crate) fn client(&self) -> Arc<Client> {
        Arc::clone(self.remote.client())
    }

    /// Returns the tracker of tasks that remove temporary files of a command, also when it is interrupted.
    pub(crate) fn afterwards(&self) -> &TaskTracker {
        &self.afterwards
    }

    /// Waits until the remains of dropped uploads at remote storages are removed, or cannot be removed, and until the
    /// tasks of [`Self::afterwards`] have ended.
    pub(crate) async fn cleaned_up(&self) {
        self.afterwards.close();
        self.afterwards.wait().await;
        self.remote.client().cleaned_up().await;
    }

    fn local(&self, path: &Path) -> Result<StoreLocation, Failure> {
        let absolute =
            std::path::absolute(path).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let bytes = normal(&absolute).map_err(|error| {
            Error::from_errno(error.raw_os_error().unwrap_or(0), &format!("resolving {}", path.display()))
        })?;
        let path = StorePath::parse(&bytes).map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        let options = LocalOptions { scope: Scope::User, ..LocalOptions::default() };
        let mut local = self.local.lock().expect("no panic while it is held");
        let store = match &*local {
            Some(store) => Arc::clone(store),
            None => Arc::clone(local.insert(Arc::new(LocalStore::open(Path::new("/"), options)?))),
        };
        let is_directory = absolute.as_os_str().as_encoded_bytes().ends_with(b"/");
        Ok(StoreLocation::local(store, Caller::local(), path).called_directory(is_directory))
    }

    /// Returns the location of a URL.
    pub(crate) fn remote(&self, url: &Url) -> Result<StoreLocation, Failure> {
        // An invalid path is a usage error.
        StorePath::parse(url.path()).map_err(|error| Failure::Usage(format!("{url}: {error}")))?;
        Ok(self.remote.locate(url, Caller::local())?)
    }

    /// Resolves a source in `metalink`. Its author may have named any server: credentials are sent only to the server
    /// of the Metalink.
    pub(crate) fn source_in(&self, metalink: &StoreLocation, url: &Url) -> Result<StoreLocation, Failure> {
        let location = self.remote(url)?;
        Ok(if location.is_beside(metalink) { location } else { self.named_by_others(location) })
    }

    /// Removes the user's identity from a location that the user did not name, unless the user trusts Metalinks.
    pub(crate) fn named_by_others(&self, mut location: StoreLocation) -> StoreLocation {
        if !self.trusts_metalinks {
            location.caller = Caller::nobody();
        }
        location
    }
}

/// Returns the argument that names `path`, a path below `root`, which was typed as `typed`: a URL without its password
/// and query. `None` if a URL cannot represent it.
pub(crate) fn argument_of(typed: &OsStr, root: &StorePath, path: &StorePath) -> Option<OsString> {
    match Location::from_argument(typed).ok()? {
        Location::Remote(url) => Some(url.with_path(path.as_bytes()).ok()?.without_secrets().into()),
        Location::Local(local) => {
            let below = path.components().skip(root.components().count()).map(OsStr::from_bytes);
            Some(below.fold(local, |path, name| path.join(name)).into())
        }
        Location::Standard => None,
    }
}

/// Returns whether a local path is another name for the standard input or output.
fn is_standard(location: &StoreLocation) -> bool {
    !location.is_remote() && [b"/dev/stdin".as_slice(), b"/dev/stdout"].contains(&location.path.as_bytes())
}

/// Returns whether a local path exists and is neither a directory nor a file of known length.
async fn is_stream(location: &StoreLocation) -> bool {
    let Ok(metadata) = location.store.stat(&location.caller, &location.path).await else { return false };
    match metadata.kind {
        FileKind::Other => true,
        FileKind::Directory => false,
        FileKind::File => {
            let is_refused = async || {
                let opened = location.store.open(&location.caller, &location.path, OpenOptions::default()).await;
                opened.is_err_and(|error| error.fault() == Fault::NotRegular)
            };
            metadata.size == 0 && is_refused().await
        }
    }
}

/// Returns an absolute path without `..`. The system resolves the part up to the last `..`, because `..` after a link
/// is the parent of its target.
fn normal(absolute: &Path) -> std::io::Result<Vec<u8>> {
    let components: Vec<_> = absolute.components().collect();
    let end = components.iter().rposition(|component| *component == Component::ParentDir).map_or(0, |last| last + 1);
    let (head, tail) = components.split_at(end);
    let mut path =
        if head.is_empty() { PathBuf::from("/") } else { head.iter().collect::<PathBuf>().canonicalize()? };
    path.extend(tail);
    Ok(path.into_os_string().into_encoded_bytes())
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    #[test]
    fn parents_are_resolved_like_the_system_does() {
        let directory = tempfile::tempdir().unwrap();
        let real = directory.path().canonicalize().unwrap();
        std::fs::create_dir_all(real.join("a/b")).unwrap();
        std::os::unix::fs::symlink("a/b", real.join("link")).unwrap();
        let of = |name: &str| normal(&real.join(name)).map(|path| PathBuf::from(OsStr::from_bytes(&path)));
        assert_eq!(of("link/../c").unwrap(), real.join("a/c"));
        assert_eq!(of("link/./c").unwrap(), real.join("link/c"));
        assert!(of("missing/../c").is_err());
        assert_eq!(normal(Path::new("/..")).unwrap(), b"/");
    }

    fn resolver() -> StoreResolver {
        StoreResolver::new(&Remote::default(), Requests::Short)
    }

    #[tokio::test]
    async fn a_location_includes_its_user() {
        let location = |text: &str| resolver().location(OsStr::new(text)).unwrap();
        let (of_user, of_nobody) = (location("root://alice@host//f"), location("https://host/f"));
        assert_eq!((of_user.at(), of_nobody.at()), ("root://alice@host/", "https://host"));
        let of_http_user = location("https://alice:hush@host/f");
        assert_eq!((of_http_user.at(), of_http_user.at_with_user().as_str()), ("https://host", "https://alice@host"));
        assert_eq!((of_user.at_with_user(), of_nobody.at_with_user().as_str()), (of_user.at().into(), "https://host"));
        assert_eq!(location(&format!("{}/", of_user.at())).at(), of_user.at());
    }

    #[tokio::test]
    async fn credentials_are_sent_only_to_the_server_of_a_metalink() {
        let resolver = resolver();
        for (metalink, url, is_nobody) in [
            ("https://host/f.meta4", "https://host/f", false),
            ("https://host/f.meta4", "davs://HOST:443/f", false),
            ("https://host/f.meta4", "https://host:8443/f", true),
            ("https://host/f.meta4", "root://host//f", true),
            ("https://host/f.meta4", "https://other/f", true),
            ("/f.meta4", "https://host/f", true),
        ] {
            let (metalink, url): (StoreLocation, Url) =
                (resolver.location(OsStr::new(metalink)).unwrap(), url.parse().unwrap());
            let is_anonymous = |resolver: &StoreResolver| resolver.source_in(&metalink, &url).unwrap().caller.is_nobody;
            assert_eq!(is_anonymous(&resolver), is_nobody, "{url}");
            assert!(!is_anonymous(&resolver.trusting_metalinks(true)), "{url}");
        }
    }
}
