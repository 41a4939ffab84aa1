//! Trusted authorities: the system's, the grid's, and those that the user names.

use std::{
    collections::HashSet,
    env, io,
    path::{Path, PathBuf},
};

use rustls::{
    RootCertStore,
    pki_types::{CertificateDer, pem::PemObject as _},
};
use towpath_store::{
    Error, Result, os_message,
    sys::{disk, environment},
};

/// The directory of the grid's authorities (IGTF), on machines that have one.
const GRID_DIRECTORY: &str = "/etc/grid-security/certificates";

/// Maximum size of a file of authorities, in bytes; the system's has 200 KiB.
const MAX_FILE_BYTES: u64 = 8 << 20;

/// Maximum number of entries of a directory of authorities; the grid's has about 700.
const MAX_ENTRIES: usize = 20_000;

/// Default authorities, in addition to the file or directory of the user's option.
#[derive(Debug, Clone, Default)]
pub struct AuthoritySettings {
    /// Files and directories in place of the system's authorities; empty for the system's.
    pub system: Vec<AuthorityPath>,
    /// The directory of the grid's authorities.
    pub grid: Option<AuthorityPath>,
}

/// A file or directory with certificates of authorities.
#[derive(Debug, Clone)]
pub struct AuthorityPath {
    /// The path.
    pub path: PathBuf,
    /// The name of the setting, for messages.
    pub setting: String,
}

impl AuthoritySettings {
    /// Returns the settings in the environment: `SSL_CERT_FILE` and `SSL_CERT_DIR` (several directories are separated by
    /// colons) replace the system's authorities; `X509_CERT_DIR` names the grid's, which are else those in
    /// `/etc/grid-security/certificates`, if this exists.
    pub fn from_environment() -> Self {
        let named = |setting: &str, path: PathBuf| AuthorityPath { path, setting: setting.to_owned() };
        let file = environment::variable("SSL_CERT_FILE").map(|path| named("SSL_CERT_FILE", path.into()));
        let directories = environment::variable("SSL_CERT_DIR").unwrap_or_default();
        let directories = env::split_paths(&directories).filter(|path| !path.as_os_str().is_empty());
        let system = file.into_iter().chain(directories.map(|path| named("SSL_CERT_DIR", path))).collect();
        let grid = environment::variable("X509_CERT_DIR").map(|path| named("X509_CERT_DIR", path.into()));
        let usual = || Path::new(GRID_DIRECTORY).is_dir().then(|| named("", GRID_DIRECTORY.into()));
        Self { system, grid: grid.or_else(usual) }
    }
}

/// Loads the authorities in `settings`, and in the file or directory `ca_file`. Returns also the certificates that
/// the user named.
///
/// # Errors
/// `InvalidArgument` if a named file or directory has no certificate, or if there is none at all.
pub(super) fn load(
    ca_file: Option<&Path>,
    settings: &AuthoritySettings,
) -> Result<(RootCertStore, HashSet<CertificateDer<'static>>)> {
    let mut authorities = Authorities { roots: RootCertStore::empty(), seen: HashSet::new(), named: HashSet::new() };
    if settings.system.is_empty() {
        authorities.add_system();
    }
    let own = ca_file.map(|path| AuthorityPath { path: path.to_owned(), setting: "--ca-file".to_owned() });
    for named in settings.system.iter().chain(&settings.grid).chain(&own) {
        authorities.add(named)?;
    }
    if authorities.roots.is_empty() {
        let message = "no certificate authorities found: install ca-certificates or name a CA with --ca-file";
        return Err(Error::invalid_setting(message));
    }
    Ok((authorities.roots, authorities.named))
}

/// Authorities, each once: directories have several names for a certificate.
struct Authorities {
    roots: RootCertStore,
    seen: HashSet<CertificateDer<'static>>,
    /// Those in files and directories that the user named.
    named: HashSet<CertificateDer<'static>>,
}

impl Authorities {
    fn add_system(&mut self) {
        let openssl_probe::ProbeResult { cert_file, cert_dir } = openssl_probe::probe();
        // The file has the certificates of the directories.
        for path in cert_file.map_or(cert_dir, |file| vec![file]) {
            // Without any authority, the error is that of `load`.
            let _ = self.add(&AuthorityPath { path, setting: String::new() });
        }
    }

    /// Adds the certificates of a file, or of the files in a directory.
    ///
    /// # Errors
    /// `InvalidArgument` if a named path has no certificate.
    fn add(&mut self, AuthorityPath { path, setting }: &AuthorityPath) -> Result<()> {
        let is_named = !setting.is_empty();
        let failed = |why: &str| Error::invalid_setting(format!("{setting}: {}: {why}", path.display()));
        match self.add_path(path, is_named) {
            Err(error) if is_named => return Err(failed(&os_message(&error))),
            Ok((0, _)) if is_named => return Err(failed("no certificate (PEM) of an authority in it")),
            Ok((found, skipped)) if skipped > 0 && is_named => {
                tracing::warn!(path = %path.display(), found, skipped, "some files or certificates cannot be used");
            }
            Ok((found, skipped)) => {
                tracing::debug!(path = %path.display(), found, skipped, "loaded certificate authorities");
            }
            Err(error) => tracing::debug!(path = %path.display(), %error, "no certificate authorities"),
        }
        Ok(())
    }

    /// Returns the numbers of certificates that can be used, and of files and certificates that cannot.
    fn add_path(&mut self, path: &Path, is_named: bool) -> io::Result<(usize, usize)> {
        if !path.is_dir() {
            return Ok(self.add_pem(&disk::read(path, MAX_FILE_BYTES)?, is_named));
        }
        let (mut found, mut skipped) = (0, 0);
        for file in certificate_files(path)? {
            let (good, bad) = disk::read(&file, MAX_FILE_BYTES).map_or((0, 1), |pem| self.add_pem(&pem, is_named));
            (found, skipped) = (found + good, skipped + bad);
        }
        Ok((found, skipped))
    }

    /// Adds the certificates in `pem`. Returns the numbers of those that can and cannot be used.
    fn add_pem(&mut self, pem: &[u8], is_named: bool) -> (usize, usize) {
        let (mut good, mut bad) = (0, 0);
        for certificate in CertificateDer::pem_slice_iter(pem) {
            match certificate.is_ok_and(|certificate| self.add_certificate(certificate, is_named)) {
                true => good += 1,
                false => bad += 1,
            }
        }
        (good, bad)
    }

    /// Adds a certificate. Returns whether it can be used.
    fn add_certificate(&mut self, certificate: CertificateDer<'static>, is_named: bool) -> bool {
        let is_good = self.seen.contains(&certificate) || self.roots.add(certificate.clone()).is_ok();
        if is_good && is_named {
            self.named.insert(certificate.clone());
        }
        if is_good {
            self.seen.insert(certificate);
        }
        is_good
    }
}

/// Returns the files of a directory that have certificates: `*.pem`, `*.crt`, and those named by a hash (`*.0`). The
/// others are revocation lists, policies and descriptions.
fn certificate_files(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let has_certificates = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        matches!(extension, "pem" | "crt") || (!extension.is_empty() && extension.bytes().all(|c| c.is_ascii_digit()))
    };
    let mut files = disk::entries(directory, MAX_ENTRIES)?;
    files.retain(has_certificates);
    files.sort();
    Ok(files)
}
