//! Settings that change while the server runs: access rules, certificate, access log.
//!
//! A reload builds everything from the new settings before it replaces anything: invalid settings change nothing.
//! Requests in flight finish under the old settings. The other settings need a restart; a reload reports those that
//! have changed. A certificate that was renewed in place is loaded without a reload ([`follow_certificate`]).

use std::{
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use serde_json::Value;

use crate::{ServeConfig, Service, StartError, access::Access, access_log::AccessLog, config::ExportAccess, tls::Tls};

/// Interval between two checks of the certificate's files. Certificates are renewed days before they expire.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(30);

/// Sections of the settings that a reload applies.
const RELOADED: [&str; 3] = ["access", "tls", "access_log"];

/// A value that a reload replaces.
#[derive(Debug)]
pub(crate) struct Reloadable<T>(RwLock<Arc<T>>);

impl<T> Reloadable<T> {
    /// Creates a holder of `value`.
    pub(crate) fn new(value: T) -> Self {
        Self(RwLock::new(Arc::new(value)))
    }

    /// Returns the current value.
    pub(crate) fn get(&self) -> Arc<T> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the value and returns the old one.
    pub(crate) fn replace(&self, value: T) -> Arc<T> {
        std::mem::replace(&mut self.0.write().unwrap_or_else(PoisonError::into_inner), Arc::new(value))
    }

    /// Replaces the value if it is still `old`, and returns whether it was.
    fn replace_if(&self, old: &Arc<T>, value: T) -> bool {
        let mut current = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_current = Arc::ptr_eq(&current, old);
        if is_current {
            *current = Arc::new(value);
        }
        is_current
    }
}

impl Service {
    /// Applies the access rules, the TLS settings and the access log of `config`. The certificate and all files of the
    /// access rules are read again, and the access log is opened again. Returns the changed settings that need a
    /// restart, such as `limits.connections`.
    ///
    /// # Errors
    /// [`StartError`] as at the start of the server, and [`StartError::Export`] if other directories are exported; then
    /// nothing has changed.
    pub fn reload(&self, config: &ServeConfig) -> Result<Vec<String>, StartError> {
        let changed = changed_keys(&self.config, config);
        // The new rights must not apply to the directories that are served now.
        if changed.iter().any(|key| key == "root" || key == "export") {
            let why = "the exported directories have changed, which needs a restart";
            return Err(StartError::Export(why.into()));
        }
        let (access, tls) = secure(config, Some(&self.access()))?;
        let access_log = AccessLog::start(&config.access_log, self.metrics.log_lines_lost.clone())?;
        access.fetch_keys();
        self.access.replace(access);
        self.tls.replace(tls.map(Arc::new));
        let old = self.access_log.replace(access_log);
        tokio::spawn(async move { old.finish().await });
        Ok(changed)
    }
}

/// Loads the access rules and TLS. `previous` are the current access rules, whose state is kept: keys of issuers and
/// failed attempts to log in.
///
/// # Errors
/// [`StartError`] for invalid settings.
pub(crate) fn secure(config: &ServeConfig, previous: Option<&Access>) -> Result<(Access, Option<Tls>), StartError> {
    let (access, tls) = (Access::load(config, previous)?, Tls::new(&config.tls)?);
    if access.passwords().is_some() && tls.is_none() {
        let why = "passwords are accepted over TLS only: configure a certificate in [tls]";
        return Err(StartError::Access(why.into()));
    }
    Ok((access, tls))
}

/// Loads the certificate again whenever its files change.
pub(crate) async fn follow_certificate(service: Arc<Service>) {
    let mut refused = None;
    loop {
        tokio::time::sleep(CERTIFICATE_INTERVAL).await;
        let current = service.tls.get();
        let Some(tls) = &*current else { continue };
        let stamp = tls.stamp_of_files();
        if stamp == tls.stamp || refused == Some(stamp) {
            continue;
        }
        match Tls::new(&tls.config) {
            // A reload at the same time has read the files itself, and may have changed the settings.
            Ok(new) => {
                if service.tls.replace_if(&current, new.map(Arc::new)) {
                    tracing::info!("loaded the renewed certificate");
                }
            }
            // The certificate may have been written, but not yet its key.
            Err(error) => {
                tracing::warn!("keeping the old certificate, because the renewed one cannot be used: {error}");
                refused = Some(stamp);
            }
        }
    }
}

/// Returns the paths of the values that differ between `old` and `new`, except those that a reload applies.
fn changed_keys(old: &ServeConfig, new: &ServeConfig) -> Vec<String> {
    let values = [old, new].map(|config| serde_json::to_value(without_export_rights(config)).unwrap_or_default());
    let mut keys = Vec::new();
    compare("", &values[0], &values[1], &mut keys);
    keys.retain(|key| !RELOADED.contains(&key.split('.').next().unwrap_or_default()));
    keys
}

/// Returns `config` without the settings of exports that a reload applies.
fn without_export_rights(config: &ServeConfig) -> ServeConfig {
    let mut config = config.clone();
    for export in &mut config.export {
        (export.writable, export.access) = (true, ExportAccess::default());
    }
    config
}

fn compare(path: &str, old: &Value, new: &Value, keys: &mut Vec<String>) {
    let (Value::Object(old), Value::Object(new)) = (old, new) else {
        if old != new {
            keys.push(path.to_owned());
        }
        return;
    };
    let added = new.keys().filter(|key| !old.contains_key(*key));
    for key in old.keys().chain(added) {
        let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
        compare(&path, old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null), keys);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use towpath_store::{memory::MemoryStore, sys::disk};

    use super::*;
    use crate::Server;

    /// Writes a new certificate and its key into `directory`.
    fn certify(directory: &Path) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        disk::write(&directory.join("key"), made.signing_key.serialize_pem().as_bytes()).unwrap();
        disk::write(&directory.join("certificate"), made.cert.pem().as_bytes()).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_renewed_certificate_is_loaded_and_an_unusable_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        certify(directory.path());
        let mut config = ServeConfig { listen: Vec::new(), ..ServeConfig::default() };
        config.tls.certificate = Some(directory.path().join("certificate"));
        config.tls.key = Some(directory.path().join("key"));
        let service = Server::builder(Arc::new(MemoryStore::new(0)), &config).bind().unwrap().service();
        tokio::spawn(follow_certificate(Arc::clone(&service)));
        let current = || service.tls().unwrap();
        let renewed = async |old: &Arc<Tls>| {
            tokio::time::sleep(CERTIFICATE_INTERVAL * 2).await;
            !Arc::ptr_eq(old, &current())
        };
        let first = current();
        assert!(!renewed(&first).await);
        disk::write(&directory.path().join("certificate"), b"half").unwrap();
        assert!(!renewed(&first).await);
        certify(directory.path());
        assert!(renewed(&first).await);
    }

    #[test]
    fn a_value_that_was_replaced_meanwhile_stays() {
        let held = Reloadable::new(1);
        let first = held.get();
        held.replace(2);
        assert!(!held.replace_if(&first, 3));
        assert_eq!(*held.get(), 2);
        assert!(held.replace_if(&held.get(), 3));
        assert_eq!(*held.get(), 3);
    }

    #[test]
    fn a_reload_reports_changed_settings_that_need_a_restart() {
        let old = ServeConfig::default();
        let mut new = old.clone();
        assert_eq!(changed_keys(&old, &new), [""; 0]);
        new.site = "other".into();
        new.limits.connections += 1;
        new.third_party.ca = Some("/ca".into());
        new.access.audiences = vec!["https://a".into()];
        new.access_log.path = "-".into();
        new.tls.required = true;
        assert_eq!(changed_keys(&old, &new), ["limits.connections", "site", "third_party.ca"]);
    }
}
