//! `towpath completions` and `towpath man`: completion scripts and manual pages, generated from the clap definition.

use std::{
    fs,
    io::{self, Write as _},
};

use towpath_store::{Error, os_message};

use crate::{
    args::{Completions, Man, definition},
    failure::{Failure, fault_of},
};

/// Runs `towpath completions`.
pub(crate) fn print_completions(arguments: &Completions) -> Result<(), Failure> {
    // The generator panics if it cannot write.
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut definition(), "towpath", &mut script);
    Ok(io::stdout().write_all(&script)?)
}

/// Runs `towpath man`.
pub(crate) fn write_pages(arguments: &Man) -> Result<(), Failure> {
    let directory = &arguments.directory;
    let written = fs::create_dir_all(directory).and_then(|()| clap_mangen::generate_to(definition(), directory));
    written.map_err(|error| {
        let message = format!("cannot write manual pages to {}: {}", directory.display(), os_message(&error));
        Error::new(fault_of(&error), message).into()
    })
}
