//! Trusted authorities, and the errors of certificates.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair, date_time_ymd};
use towpath_client::{AuthorityPath, AuthoritySettings, ClientOptions, TokenSource};
use towpath_store::{Blame, Caller, Error, Fault, Metadata, Secret, sys::disk};

use super::{
    own::{TokenServer, serve, serve_guarded},
    peer::{self, store_at},
    web::{error, path},
};

/// A TLS server with a certificate of its own.
struct TlsServer {
    directory: tempfile::TempDir,
    port: u16,
}

impl TlsServer {
    /// Starts a server whose certificate is that for `localhost`, changed by `change`.
    fn start(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut parameters = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        change(&mut parameters);
        let key = KeyPair::generate().unwrap();
        let certificate = parameters.self_signed(&key).unwrap();
        let (certificate_file, key_file) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
        disk::write(&certificate_file, certificate.pem().as_bytes()).unwrap();
        disk::write(&key_file, key.serialize_pem().as_bytes()).unwrap();
        let port = serve(|config| {
            (config.tls.certificate, config.tls.key) = (Some(certificate_file), Some(key_file));
        });
        Self { directory, port }
    }

    fn certificate(&self) -> PathBuf {
        self.directory.path().join("cert.pem")
    }

    async fn stat(&self, scheme: &str, options: ClientOptions) -> Result<Metadata, Error> {
        store_at(scheme, self.port, options).stat(&Caller::local(), &path("/")).await
    }
}

/// Options without the authorities of this machine.
fn options() -> ClientOptions {
    ClientOptions { authorities: AuthoritySettings::default(), ..peer::options() }
}

fn with_ca(ca: &Path) -> ClientOptions {
    ClientOptions { ca_file: Some(ca.to_owned()), ..options() }
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_certificates_are_plain_and_name_the_flag() {
    let valid = TlsServer::start(|_| ());
    let expired = TlsServer::start(|certificate| {
        (certificate.not_before, certificate.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1));
    });
    let early = TlsServer::start(|certificate| certificate.not_before = date_time_ymd(2090, 1, 1));
    let other = TlsServer::start(|certificate| {
        *certificate = CertificateParams::new(vec!["one.example".to_owned(), "192.0.2.7".to_owned()]).unwrap();
    });
    let unknown = "is signed by an unknown authority: name its CA with --ca-file, or try with --insecure";
    for (server, ca, words) in [
        (&valid, expired.certificate(), unknown),
        (&expired, expired.certificate(), "expired on Sat, 01 Feb 2020"),
        (&early, early.certificate(), "is not valid before Sun, 01 Jan 2090"),
        (&other, other.certificate(), "is for other names (one.example, 192.0.2.7)"),
    ] {
        for scheme in ["https", "roots"] {
            let error = error(server.stat(scheme, with_ca(&ca)).await);
            assert!(error.to_string().contains(&format!("the certificate of localhost {words}")), "{scheme}: {error}");
            assert!(error.to_string().contains("--insecure"), "{scheme}: {error}");
            let described = error.describe().to_string();
            assert!(
                described.contains(&format!("the server is not trusted: the certificate of localhost {words}")),
                "{described}"
            );
            assert_eq!((error.fault(), error.blame()), (Fault::ServerUntrusted, Blame::Storage), "{error}");
        }
    }
}

/// As made by `openssl req -x509`.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_have_the_trusted_certificate_of_an_authority_itself() {
    let of_authority = |certificate: &mut CertificateParams| {
        certificate.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    };
    let good = TlsServer::start(of_authority);
    let other = TlsServer::start(of_authority);
    let misnamed = TlsServer::start(|certificate| {
        *certificate = CertificateParams::new(vec!["one.example".to_owned()]).unwrap();
        of_authority(certificate);
    });
    let expired = TlsServer::start(|certificate| {
        (certificate.not_before, certificate.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2020, 2, 1));
        of_authority(certificate);
    });
    for scheme in ["https", "roots"] {
        assert!(good.stat(scheme, with_ca(&good.certificate())).await.unwrap().is_directory());
        for (server, ca, words) in [
            (&good, &other, "is that of an authority: if it is the server's own, name it with --ca-file"),
            (&misnamed, &misnamed, "is for other names (one.example)"),
            (&expired, &expired, "expired on Sat, 01 Feb 2020"),
        ] {
            let error = error(server.stat(scheme, with_ca(&ca.certificate())).await);
            assert_eq!(error.fault(), Fault::ServerUntrusted);
            assert!(error.message().contains(words), "{scheme}: {error}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_tls_is_reported_as_such() {
    let (port, other) = (serve(|_| ()), TlsServer::start(|_| ()));
    let any_ca = other.certificate();
    for (scheme, words) in
        [("https", "the server may not support TLS: use http:// or root://"), ("roots", "does not support TLS")]
    {
        let error = error(store_at(scheme, port, with_ca(&any_ca)).stat(&Caller::local(), &path("/")).await);
        assert_eq!((error.fault(), error.blame()), (Fault::TlsRequired, Blame::Storage), "{scheme}: {error}");
        assert!(error.message().contains(words) && !error.is_retryable(), "{scheme}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn authorities_are_found_in_directories() {
    let server = TlsServer::start(|_| ());
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, content: &[u8]| disk::write(&directory.path().join(name), content).unwrap();
    write("broken.pem", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n");
    write("0123abcd.r0", b"a revocation list");
    std::os::unix::fs::symlink("/nonexistent", directory.path().join("dangling.crt")).unwrap();
    let settings = |path: &Path| {
        let named = || AuthorityPath { path: path.to_owned(), setting: "X509_CERT_DIR".to_owned() };
        let grid = AuthoritySettings { grid: Some(named()), ..AuthoritySettings::default() };
        let system = AuthoritySettings { system: vec![named()], ..AuthoritySettings::default() };
        [grid, system].map(|authorities| ClientOptions { authorities, ..options() })
    };
    let [grid, system] = settings(directory.path());
    for (options, setting) in
        [(with_ca(directory.path()), "--ca-file"), (grid, "X509_CERT_DIR"), (system, "X509_CERT_DIR")]
    {
        let error = error(server.stat("https", options).await);
        let words = format!("{setting}: {}: no certificate (PEM) of an authority in it", directory.path().display());
        assert!(error.fault() == Fault::InvalidArgument && error.to_string().contains(&words), "{error}");
    }
    for name in ["0123abcd.0", "authority.pem", "authority.crt"] {
        let file = directory.path().join(name);
        std::fs::copy(server.certificate(), &file).unwrap();
        let [grid, system] = settings(directory.path());
        for options in [with_ca(directory.path()), grid, system] {
            for scheme in ["https", "roots"] {
                assert!(server.stat(scheme, options.clone()).await.unwrap().is_directory(), "{name}");
            }
        }
        disk::remove(&file).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_named_file_must_be_readable() {
    let server = TlsServer::start(|_| ());
    let error = error(server.stat("https", with_ca(Path::new("/nonexistent"))).await);
    assert!(
        error.fault() == Fault::InvalidArgument && error.to_string().contains("--ca-file: /nonexistent"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn unverified_servers_get_no_token() {
    let TokenServer { directory: _directory, port, token, .. } = serve_guarded();
    let token = TokenSource::Fixed(Secret::new(token));
    let insecure = ClientOptions { insecure: true, token, ..options() };
    let refused = error(store_at("roots", port, insecure).stat(&Caller::local(), &path("/")).await);
    assert!(refused.to_string().contains("not sent with --insecure"), "{refused}");

    let server = TlsServer::start(|_| ());
    for scheme in ["https", "roots"] {
        let insecure = ClientOptions { insecure: true, ..options() };
        assert!(server.stat(scheme, insecure).await.unwrap().is_directory(), "{scheme}");
    }
}
