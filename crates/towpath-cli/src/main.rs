//! The `towpath` command.

use std::process::ExitCode;

/// The system's allocator gives freed memory back to the kernel too soon: an eighth of the time of an upload's server went into
/// mapping its buffers, of 1 MiB each, and clearing their pages, again and again.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    towpath_cli::main(std::env::args_os())
}
