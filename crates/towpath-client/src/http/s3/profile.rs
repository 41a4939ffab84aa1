//! Amazon's profile files: `~/.aws/credentials` and `~/.aws/config`
//! (<https://docs.aws.amazon.com/sdkref/latest/guide/file-format.html>).

use std::{collections::HashMap, io, path::Path};

use towpath_store::{
    Error, Fault, Result,
    sys::disk::{self, RequiredOwner},
};

/// Maximum length of a profile file in bytes; real ones are shorter.
const LIMIT_BYTES: u64 = 1 << 20;

/// The settings of one profile: keys in lower case, those of nested sections prefixed by the section and a dot. The
/// credentials file takes precedence. Not printable, because it holds secrets.
#[derive(Default)]
pub(super) struct Profile(HashMap<String, String>);

impl Profile {
    /// Reads the profile `name` from both files; either may be missing.
    ///
    /// # Errors
    /// `InvalidArgument` for a file that cannot be read.
    pub(super) fn read(name: &str, config: &Path, credentials: &Path) -> Result<Self> {
        let mut profile = Self::default();
        let section = if name == "default" { name.to_owned() } else { format!("profile {name}") };
        for (path, section) in [(config, section.as_str()), (credentials, name)] {
            match disk::read_regular(path, LIMIT_BYTES, RequiredOwner::Any) {
                Ok(text) => profile.add(&String::from_utf8_lossy(&text), section),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => {
                    return Err(Error::new(Fault::InvalidArgument, format!("{}: {error}", path.display())));
                }
            }
        }
        Ok(profile)
    }

    /// Adds the settings in `section` of `text`.
    fn add(&mut self, text: &str, section: &str) {
        let mut is_wanted = false;
        let mut nest = None;
        for line in text.lines() {
            let is_indented = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() || line.starts_with(['#', ';']) {
                continue;
            }
            if let Some(header) = line.strip_prefix('[').and_then(|line| line.split(']').next()) {
                is_wanted = header.split_whitespace().eq(section.split_whitespace());
                nest = None;
                continue;
            }
            let Some((key, value)) = line.split_once('=').filter(|_| is_wanted) else { continue };
            let (key, value) = (key.trim().to_ascii_lowercase(), value.trim());
            if !is_indented {
                nest = value.is_empty().then(|| key.clone());
            }
            let key = match &nest {
                Some(nest) if is_indented => format!("{nest}.{key}"),
                _ => key,
            };
            self.0.insert(key, value.to_owned());
        }
    }

    /// Returns the value of `key`, if it is set and not empty.
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read_from_both_files() {
        let directory = tempfile::tempdir().unwrap();
        let (config, credentials) = (directory.path().join("config"), directory.path().join("credentials"));
        disk::write(
            &config,
            b"# mine\n[default]\nregion = here\n[profile  ceph]\nregion=there\nendpoint_url = https://s3.example:9000\ns3 =\n  addressing_style = path\noutput = json\n",
        )
        .unwrap();
        disk::write(&credentials, b"[ceph]\naws_access_key_id = KEY\naws_secret_access_key = a=b/c\n").unwrap();
        let ceph = Profile::read("ceph", &config, &credentials).unwrap();
        for (key, value) in [
            ("region", "there"),
            ("endpoint_url", "https://s3.example:9000"),
            ("s3.addressing_style", "path"),
            ("output", "json"),
            ("aws_access_key_id", "KEY"),
            ("aws_secret_access_key", "a=b/c"),
        ] {
            assert_eq!(ceph.get(key), Some(value), "{key}");
        }
        let default = Profile::read("default", &config, &directory.path().join("missing")).unwrap();
        assert_eq!((default.get("region"), default.get("aws_access_key_id")), (Some("here"), None));
    }
}
