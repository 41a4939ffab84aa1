//! The `towpath` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    towpath_cli::main(std::env::args_os())
}
