//! Environment variables. An empty variable counts as unset: `NAME= command` is how a shell removes one for a command.

use std::{env, ffi::OsString};

/// Returns the value of the environment variable `name`; `None` if it is unset or empty.
pub fn variable(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}

/// Returns the value of the environment variable `name` as text; `None` if it is unset or empty. Bytes that are not
/// UTF-8 become U+FFFD, so that the use of the value fails instead of the variable being ignored.
pub fn text(name: &str) -> Option<String> {
    variable(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns the environment variables that are valid UTF-8 and not empty.
pub fn variables() -> impl Iterator<Item = (String, String)> {
    let pairs = env::vars_os().filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)));
    pairs.filter(|(_, value)| !value.is_empty())
}
