//! The failure list of a command: failures are printed immediately, counted by fault, and written to a file from which
//! they can be retried.
//!
//! A list has one JSON object per line, `{"from": LOCATION, "to": LOCATION, "error": "NotFound", "message": "..."}`. A
//! location is `{"at": "root://host/", "path": "/a"}`, without `at` on this machine; a path that is not UTF-8 is
//! replaced by `path_hex`. Text after `?` in a URL and its password are omitted, because they may be secret; the user
//! is kept, so that a retry finds the password in `~/.netrc`.
//!
//! An entry found in a tree has `root`, the directory at which filters start. A file with several sources has
//! `sources`, with `from` as the first, and its known properties: `size` in bytes and `digests`,
//! `["adler32:0a0b0c0d"]`. A location that only a Metalink names has `as_nobody`: no credentials are sent there.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, BufWriter, Write as _},
    path::{Path, PathBuf},
};

use futures::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use towpath_mover::{FailedJob, FileProperties, Job, Jobs, Replicas, StoreLocation};
use towpath_proto::checksum::Digest;
use towpath_store::{
    Error, Fault, StorePath,
    sys::{disk, random},
};

use crate::{
    failure::{Failure, Tally, complain, fault_of, is_hopeless, print_error},
    location::StoreResolver,
    output::quoted,
};

/// Maximum number of failures printed; the rest is only counted.
const MAX_PRINTED: usize = 100;

/// Maximum length of a line in bytes: enough for the paths of all sources of a file, in hexadecimal, and a message.
const MAX_LINE_BYTES: u64 = 2 << 20;

/// The failures of one command.
#[derive(Debug, Default)]
pub(crate) struct FailureList {
    pub(crate) tally: Tally,
    /// Number of failures of each kind.
    faults: BTreeMap<&'static str, u64>,
    list: Option<FailureFile>,
    /// The path of the list once it is complete.
    listed: Option<PathBuf>,
    /// Failures to write the list.
    unwritten: Tally,
    /// Whether the command ended before it examined all files.
    is_cut_off: bool,
    /// Whether new failures are those of deletions.
    is_deleting: bool,
    /// Whether a retry may succeed for some of the files.
    may_succeed: bool,
}

/// A list being written. It is renamed when it is complete, so that it may replace the list being read. An incomplete
/// list is removed when dropped.
#[derive(Debug)]
struct FailureFile {
    path: PathBuf,
    unfinished: PathBuf,
    file: BufWriter<File>,
    error: Option<io::Error>,
    is_over: bool,
}

/// One line of a list.
#[derive(Debug, Serialize, Deserialize)]
struct FailureEntry {
    from: ListedLocation,
    to: ListedLocation,
    error: String,
    message: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    root: Option<ListedLocation>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    sources: Vec<ListedLocation>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    digests: Vec<String>,
}

/// A location in a list.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct ListedLocation {
    #[serde(skip_serializing_if = "String::is_empty")]
    at: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    as_nobody: bool,
}

impl FailureList {
    /// Creates an empty list; failures are also written to the file `list`.
    ///
    /// # Errors
    /// The file cannot be created.
    pub(crate) fn new(list: Option<&Path>) -> Result<Self, Failure> {
        let list = list.map(FailureFile::create).transpose()?;
        Ok(Self { list, ..Self::default() })
    }

    /// Adds a failure, and prints it unless there are many.
    pub(crate) fn add(&mut self, FailedJob { job, error }: &FailedJob) {
        let row = error.fault().row();
        self.tally.add(error.exit_code());
        self.may_succeed |= !is_hopeless(error);
        *self.faults.entry(row.phrase).or_default() += 1;
        if let Some(list) = &mut self.list {
            list.add(job, error);
        }
        let count = self.tally.count;
        match count {
            0..=MAX_PRINTED => {
                let error = error.clone();
                print_error(&if self.is_deleting { job.to.locate(error) } else { job.locate(error) });
            }
            _ if count == MAX_PRINTED + 1 => {
                complain(format_args!("more than {MAX_PRINTED} failures: further ones are only counted"));
            }
            _ => {}
        }
    }

    /// Records that failures from now on are those of deletions.
    pub(crate) fn begin_deleting(&mut self) {
        self.is_deleting = true;
    }

    /// Records that the command ended before it examined all files.
    pub(crate) fn cut_off(&mut self) {
        self.is_cut_off = true;
    }

    /// Completes and renames the list. Must be called before output that may fail and end the command.
    pub(crate) fn close_list(&mut self) {
        match self.list.take().map(FailureFile::finish) {
            Some(Ok(path)) => self.listed = Some(path),
            Some(Err(error)) => self.unwritten.print(&error),
            None => {}
        }
    }

    /// Prints the summary of the failures and the command to retry them: `retry` returns it for the quoted name of the
    /// list, or for `None` without a complete list. Prints nothing for a single file without a list and without
    /// `others` that succeeded, whose failure was printed already. Returns the result of the command.
    pub(crate) fn finish(
        &self,
        others: u64,
        retry: impl FnOnce(Option<&str>) -> Option<String>,
    ) -> Result<(), Failure> {
        let count = self.tally.count;
        if count > 1 {
            let faults: Vec<_> = self.faults.iter().map(|(fault, count)| format!("{count} × {fault}")).collect();
            let what = if self.is_deleting { "deleted" } else { "copied" };
            complain(format_args!("{count} files or directories were not {what}: {}", faults.join(", ")));
        }
        let mut list = self.listed.as_ref().map(|path| quoted(path.as_os_str()));
        if let Some(path) = list.take_if(|_| self.is_cut_off) {
            complain(format_args!("{path} is not complete: it omits the files that were not examined"));
        }
        if count > 0
            && (self.may_succeed || self.is_cut_off)
            && (list.is_some() || count as u64 + others > 1)
            && let Some(command) = retry(list.as_deref())
        {
            complain(format_args!("to retry them: {command}"));
        }
        // The number of failures was printed above.
        self.tally.printed_outcome().and(self.unwritten.outcome())
    }
}

impl FailureFile {
    fn create(path: &Path) -> Result<Self, Failure> {
        let mut unfinished = OsString::from(path);
        unfinished.push(format!(".{}.part", random::key()));
        let unfinished = PathBuf::from(unfinished);
        let file = disk::create_new(&unfinished).map_err(|error| uncreatable(&unfinished, &error))?;
        Ok(Self { path: path.to_owned(), unfinished, file: BufWriter::new(file), error: None, is_over: false })
    }

    fn add(&mut self, job: &Job, error: &Error) {
        let written = serde_json::to_writer(&mut self.file, &FailureEntry::of(job, error)).map_err(io::Error::from);
        if let Err(error) = written.and_then(|()| self.file.write_all(b"\n")) {
            self.error.get_or_insert(error);
        }
    }

    fn finish(mut self) -> Result<PathBuf, Error> {
        self.is_over = true;
        let written = match self.error.take() {
            Some(error) => Err(error),
            None => self.file.flush().and_then(|()| disk::rename(&self.unfinished, &self.path)),
        };
        written.map_err(|error| {
            self.discard();
            let message = format!("{}: the list cannot be written: {error}", self.path.display());
            Error::new(fault_of(&error), message)
        })?;
        Ok(std::mem::take(&mut self.path))
    }

    /// Removes the incomplete list. An existing list of that name is kept: it may be the list being read.
    fn discard(&self) {
        // No other process uses the temporary name.
        let _ = disk::remove(&self.unfinished);
    }
}

impl Drop for FailureFile {
    fn drop(&mut self) {
        if !self.is_over {
            self.discard();
            complain(format_args!("{} was not written, because the command did not finish", self.path.display()));
        }
    }
}

impl FailureEntry {
    fn of(job: &Job, error: &Error) -> Self {
        let Job { from, to, root, .. } = job;
        let root = root.as_ref().filter(|root| **root != from.path);
        let replicas = from.replicas();
        let sources = replicas.map(Replicas::sources).unwrap_or_default();
        let FileProperties { size, digests } = replicas.map(Replicas::known).cloned().unwrap_or_default();
        Self {
            from: ListedLocation::of(from),
            to: ListedLocation::of(to),
            error: error.fault().name().to_owned(),
            message: error.to_string(),
            root: root.map(|root| ListedLocation::of(&from.with_path(root.clone()))),
            sources: sources.iter().map(ListedLocation::of).collect(),
            size,
            digests: digests.iter().map(|digest| format!("{}:{digest}", digest.algorithm())).collect(),
        }
    }

    fn job(&self, resolver: &StoreResolver) -> Result<Job, String> {
        let sources: Vec<_> = self.sources.iter().map(|source| source.location(resolver)).collect::<Result<_, _>>()?;
        let from = match Replicas::new(sources, self.known()?).location() {
            Some(from) => from,
            None => self.from.location(resolver)?,
        };
        let root = self.root.as_ref().map(|root| root.location(resolver)).transpose()?.map(|root| root.path);
        if root.as_ref().is_some_and(|root| !from.path.is_within(root)) {
            return Err("`from` is not below `root`".into());
        }
        let mut job = Job::new(from, self.to.location(resolver)?);
        (job.size, job.root) = (self.size, root);
        Ok(job)
    }

    fn known(&self) -> Result<FileProperties, String> {
        let digests = self.digests.iter().map(|digest| {
            let (algorithm, hex) = digest.split_once(':').ok_or("a digest must be algorithm:hex")?;
            let algorithm =
                algorithm.parse().map_err(|_| format!("the digest algorithm {algorithm:?} is not supported"))?;
            Digest::from_hex(algorithm, hex).map_err(|error| error.to_string())
        });
        Ok(FileProperties { size: self.size, digests: digests.collect::<Result<_, String>>()? })
    }
}

impl ListedLocation {
    fn of(location: &StoreLocation) -> Self {
        let (at, as_nobody) = (location.at_with_user(), location.caller.is_nobody);
        match std::str::from_utf8(location.path.as_bytes()) {
            Ok(path) => Self { at, path: Some(path.to_owned()), path_hex: None, as_nobody },
            Err(_) => {
                let hex = location.path.as_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
                Self { at, path: None, path_hex: Some(hex), as_nobody }
            }
        }
    }

    fn location(&self, resolver: &StoreResolver) -> Result<StoreLocation, String> {
        let bytes = match (&self.path, &self.path_hex) {
            (Some(path), None) => path.clone().into_bytes(),
            (None, Some(hex)) => unhexed(hex).ok_or("path_hex is not hexadecimal")?,
            _ => return Err("a location must have either path or path_hex".into()),
        };
        let path = StorePath::parse(&bytes).map_err(|error| error.to_string())?;
        let root = OsString::from(format!("{}/", self.at));
        let root = resolver.location(&root).map_err(|_| format!("{:?} is not a valid storage", self.at))?;
        let root = if self.as_nobody { resolver.named_by_others(root) } else { root };
        Ok(root.with_path(path))
    }
}

/// Returns the jobs in a list. The whole list is validated first, so that an invalid one has no effect, and then read
/// again on demand.
///
/// # Errors
/// The file cannot be read, or has an invalid line.
pub(crate) async fn read(path: &Path, resolver: &StoreResolver) -> Result<Jobs, Failure> {
    let mut checked = self::lines(path)?;
    let mut count = 0_u64;
    while let Some(line) = next(&mut checked, resolver).await {
        count += 1;
        line.map_err(|error| unreadable(path, format!("line {count}: {error}")))?;
    }
    let list = resolver.location(path.as_os_str())?;
    let state = (self::lines(path)?, resolver.clone(), Job::new(list.clone(), list), count);
    Ok(stream::unfold(state, |(mut lines, resolver, list, left)| async move {
        let outcome = match next(&mut lines, &resolver).await {
            None if left == 0 => return None,
            outcome => outcome.unwrap_or_else(|| Err("it became shorter".into())),
        };
        let left = if outcome.is_ok() { left.saturating_sub(1) } else { 0 };
        let outcome = outcome.map_err(|error| {
            let error = Error::new(Fault::Changed, format!("the list changed while it was read: {error}"));
            FailedJob { job: list.clone(), error }
        });
        Some((outcome, (lines, resolver, list, left)))
    })
    .boxed())
}

fn lines(path: &Path) -> Result<BufReader<tokio::fs::File>, Failure> {
    let file = disk::open(path).map_err(|error| unreadable(path, error))?;
    Ok(BufReader::new(tokio::fs::File::from_std(file)))
}

/// Returns the next job; `None` at the end.
async fn next(lines: &mut BufReader<tokio::fs::File>, resolver: &StoreResolver) -> Option<Result<Job, String>> {
    let mut line = Vec::new();
    match lines.take(MAX_LINE_BYTES).read_until(b'\n', &mut line).await {
        Ok(0) => None,
        Ok(_) => Some(job(&line, resolver)),
        Err(error) => Some(Err(error.to_string())),
    }
}

fn job(line: &[u8], resolver: &StoreResolver) -> Result<Job, String> {
    let line: FailureEntry = serde_json::from_slice(line).map_err(|error| error.to_string())?;
    line.job(resolver)
}

fn unhexed(hex: &str) -> Option<Vec<u8>> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).ok().filter(|pair| pair.len() == 2)?, 16).ok())
        .collect()
}

fn unreadable(path: &Path, error: impl std::fmt::Display) -> Failure {
    Failure::Usage(format!("{}: the list cannot be read: {error}", path.display()))
}

fn uncreatable(path: &Path, error: &io::Error) -> Failure {
    Failure::Usage(format!("{}: the list cannot be created: {error}", path.display()))
}

/// Returns the command line `words` for a shell, with `flags` added after `cp`; or a description of it if it
/// may contain a secret.
pub(crate) fn once_more(words: impl Iterator<Item = OsString>, flags: &[&str]) -> String {
    let printable: Option<Vec<_>> = words.skip(1).map(|word| is_printable(&word).then(|| quoted(&word))).collect();
    let Some(mut line) = printable else {
        return match flags {
            [] => "the same command".into(),
            flags => format!("the same command with {}", flags.join(" ")),
        };
    };
    let behind = line.iter().position(|word| word == "cp").map_or(0, |at| at + 1);
    line.splice(behind..behind, flags.iter().map(|flag| (*flag).to_owned()));
    format!("towpath {}", line.join(" "))
}

/// Returns whether a word may be printed: text after `?` or before `@` in a URL may be a secret.
fn is_printable(word: &OsStr) -> bool {
    word.to_str().is_some_and(|word| !word.split_once("://").is_some_and(|(_, rest)| rest.contains(['?', '@'])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args::Remote, location::Requests};

    fn retry_command(line: &str, flags: &[&str]) -> String {
        once_more(line.split(' ').map(OsString::from), flags)
    }

    #[tokio::test]
    async fn a_list_that_becomes_shorter_while_it_is_read_is_an_error() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("lost");
        let line = br#"{"from": {"path": "/a"}, "to": {"path": "/b"}, "error": "Io", "message": ""}"#;
        disk::write(&path, &[line.as_slice(), line].join(&b'\n')).unwrap();
        for (left, outcomes) in [(2, vec![None, None]), (1, vec![None, Some(Fault::Changed)])] {
            let jobs = read(&path, &StoreResolver::new(&Remote::default(), Requests::Long)).await.unwrap();
            disk::write(&path, &vec![line.as_slice(); left].join(&b'\n')).unwrap();
            let outcomes_now: Vec<_> =
                jobs.map(|job| job.err().map(|failed_job| failed_job.error.fault())).collect().await;
            assert_eq!(outcomes_now, outcomes);
        }
    }

    #[test]
    fn no_secret_is_printed() {
        assert_eq!(
            retry_command("/bin/towpath sync --exclude *.tmp a? b", &[]),
            "towpath sync --exclude '*.tmp' 'a?' b"
        );
        for url in ["root://host//b?authz=secret", "https://secret@host/b", "--s3-endpoint=http://a:b@host"] {
            assert_eq!(retry_command(&format!("towpath sync a {url}"), &[]), "the same command");
            assert_eq!(retry_command(&format!("towpath cp a {url}"), &["--nice"]), "the same command with --nice");
        }
    }

    #[test]
    fn flags_are_added_after_the_command() {
        let line = retry_command("towpath -v cp -r a b", &["--skip-existing", "-T"]);
        assert_eq!(line, "towpath -v cp --skip-existing -T -r a b");
    }
}
