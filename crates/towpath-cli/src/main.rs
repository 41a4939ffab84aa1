//! The `towpath` command.

use std::process::ExitCode;

/// The system allocator returns freed memory to the kernel too early: a server of an upload spent an eighth of its time
/// on mapping buffers of 1 MiB and clearing their pages. mimalloc is used without transparent huge pages: with them,
/// small objects of several hundred threads occupied 0.8 GiB for 50 MB in use (an upload of 4,000 concurrent files),
/// without a gain in speed.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    towpath_cli::main(std::env::args_os())
}
