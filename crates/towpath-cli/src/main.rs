//! The `towpath` command.

use std::process::ExitCode;

/// The system's allocator returns freed memory to the kernel too early: an eighth of the time of an upload's server
/// went into mapping its buffers of 1 MiB and clearing their pages. mimalloc is used without transparent huge pages:
/// with them the small objects of some hundred threads took 0.8 GiB with 50 MB in use (an upload of 4,000 files at
/// once), and nothing was faster.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    towpath_cli::main(std::env::args_os())
}
