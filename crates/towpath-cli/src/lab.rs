//! `towpath lab`: the transport lab, a part of the Python package.

use std::{
    ffi::{OsStr, OsString},
    os::unix::process::CommandExt as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use clap::Args;

use crate::failure::Failure;

/// Removes the current directory from the search path of modules: another user may have written it.
const SAFE_PATH: &str = "import sys; sys.path[:] = [entry for entry in sys.path if entry]; ";

/// Exits with 0 if the interpreter has the package.
const HAS_PACKAGE: &str = "import importlib.util as u; sys.exit(u.find_spec('towpath.lab') is None)";

/// Runs the package as `python3 -m` would.
const RUN: &str = "import runpy; runpy.run_module('towpath.lab', run_name='__main__', alter_sys=True)";

/// Environment variable with this program, which the lab runs.
const PROGRAM: &str = "TOWPATH_PROGRAM";

/// Arguments of `lab`.
#[derive(Debug, Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Lab {
    /// Command of the lab and its arguments; `--help` lists them.
    #[arg(value_name = "ARGUMENT", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<OsString>,
}

/// Replaces this process by the lab in the first interpreter that has the package.
pub(crate) fn run(lab: &Lab) -> Result<(), Failure> {
    let program = std::env::current_exe().map_err(Failure::system("find the executable of towpath"))?;
    let beside = program.with_file_name("python3");
    let interpreters = [beside, PathBuf::from("python3")];
    let Some(interpreter) = interpreters.iter().find(|interpreter| has_package(interpreter.as_os_str())) else {
        return Err(Failure::Usage(
            "the lab is a part of the Python package, which python3 does not have: \
             install it with `pip install 'towpath[lab]'`"
                .to_owned(),
        ));
    };
    let mut command = Command::new(interpreter);
    command.args(["-c", &format!("{SAFE_PATH}{RUN}")]).args(&lab.arguments).env(PROGRAM, program);
    Err(Failure::system("start python3")(command.exec()))
}

fn has_package(interpreter: &OsStr) -> bool {
    let mut command = Command::new(interpreter);
    command
        .args(["-c", &format!("{SAFE_PATH}{HAS_PACKAGE}")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
