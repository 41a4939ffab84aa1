//! Where a bearer token comes from, as WLCG bearer token discovery 1.0 has it: the variable `BEARER_TOKEN`, the file that
//! `BEARER_TOKEN_FILE` names, `$XDG_RUNTIME_DIR/bt_u<uid>`, `/tmp/bt_u<uid>`; the first that is there counts, even if
//! what it holds is no token.
//!
//! Tokens are looked up anew for each login, because they live for an hour and are renewed in place.

use std::{env, io, path::Path, path::PathBuf};

use towpath_store::{Error, Fault, Result, Secret, sys::disk};

/// The longest token that is read, in bytes: issuers give out 1 to 16 KiB, and no server takes more than 64 KiB.
pub const MAX_TOKEN_BYTES: u64 = 64 << 10;

/// Where the bearer token comes from.
#[derive(Debug, Clone, Default)]
pub enum TokenSource {
    /// WLCG's discovery.
    #[default]
    Discover,
    /// A file.
    File(PathBuf),
    /// This token.
    Fixed(Secret),
    /// No token is ever sent, but for those that come with a call.
    Nothing,
}

impl TokenSource {
    /// The token as it is now; none if there is none to be found.
    ///
    /// # Errors
    /// `AuthenticationFailed` for a token file that was named but cannot be read, and for text that is no token.
    pub fn find(&self) -> Result<Option<Secret>> {
        match self {
            Self::Discover => discover(|name| env::var_os(name).map(|value| value.to_string_lossy().into_owned())),
            Self::File(path) => read_file(path).and_then(|text| parse(&text, &path.display().to_string())),
            Self::Fixed(token) => Ok(Some(token.clone())),
            Self::Nothing => Ok(None),
        }
    }
}

/// Discovery, with the environment as a function.
fn discover(variable: impl Fn(&str) -> Option<String>) -> Result<Option<Secret>> {
    if let Some(text) = variable("BEARER_TOKEN") {
        return parse(&text, "BEARER_TOKEN");
    }
    if let Some(path) = variable("BEARER_TOKEN_FILE").filter(|path| !path.is_empty()) {
        return read_file(Path::new(&path)).and_then(|text| parse(&text, &path));
    }
    let name = format!("bt_u{}", rustix::process::geteuid().as_raw());
    let directories = [variable("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()), Some("/tmp".to_owned())];
    for path in directories.into_iter().flatten().map(|directory| Path::new(&directory).join(&name)) {
        match disk::read(&path, MAX_TOKEN_BYTES) {
            Ok(text) => return parse(&String::from_utf8_lossy(&text), &path.display().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(unusable(&path.display().to_string(), &error.to_string())),
        }
    }
    Ok(None)
}

fn read_file(path: &Path) -> Result<String> {
    let text =
        disk::read(path, MAX_TOKEN_BYTES).map_err(|error| unusable(&path.display().to_string(), &error.to_string()))?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The token in `text`, without the white space around it; none if nothing else is there.
fn parse(text: &str, origin: &str) -> Result<Option<Secret>> {
    let token = text.trim();
    if token.is_empty() {
        return Ok(None);
    }
    if token.len() as u64 > MAX_TOKEN_BYTES {
        return Err(unusable(origin, "it is too long for a token"));
    }
    if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(unusable(origin, "it holds characters that no token has"));
    }
    Ok(Some(Secret::new(token)))
}

fn unusable(origin: &str, why: &str) -> Error {
    Error::new(Fault::AuthenticationFailed, format!("the bearer token in {origin} cannot be used: {why}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Option<Secret>> {
        let directory = tempfile::tempdir().unwrap();
        let runtime = directory.path().to_str().unwrap().to_owned();
        discover(|name| {
            let given = variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
            given.or_else(|| (name == "XDG_RUNTIME_DIR").then(|| runtime.clone()))
        })
    }

    #[test]
    fn the_variable_comes_first_and_is_trimmed() {
        let token = found(&[("BEARER_TOKEN", " a.b.c\n"), ("BEARER_TOKEN_FILE", "/nonexistent")]).unwrap();
        assert_eq!(token.unwrap().expose(), "a.b.c");
    }

    #[test]
    fn a_named_file_must_be_readable() {
        assert_eq!(found(&[("BEARER_TOKEN_FILE", "/nonexistent")]).unwrap_err().fault(), Fault::AuthenticationFailed);
    }

    #[test]
    fn a_file_in_the_runtime_directory_counts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(format!("bt_u{}", rustix::process::geteuid().as_raw()));
        disk::write(&path, b"from-file\n\n").unwrap();
        let token = found(&[("XDG_RUNTIME_DIR", directory.path().to_str().unwrap())]).unwrap();
        assert_eq!(token.unwrap().expose(), "from-file");
    }

    #[test]
    fn what_is_no_token_is_refused_without_being_shown() {
        let error = found(&[("BEARER_TOKEN", "top secret")]).unwrap_err();
        assert!(!error.to_string().contains("top"), "{error}");
        let long = "x".repeat(MAX_TOKEN_BYTES as usize + 1);
        assert_eq!(found(&[("BEARER_TOKEN", &long)]).unwrap_err().fault(), Fault::AuthenticationFailed);
        assert!(found(&[("BEARER_TOKEN", "")]).unwrap().is_none());
    }
}
