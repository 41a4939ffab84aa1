//! The allocator of the program: mimalloc.
//!
//! The system allocator returns freed memory to the kernel too early: a server of an upload spent an eighth of its time
//! on mapping buffers of 1 MiB and clearing their pages. mimalloc is used without transparent huge pages: with them,
//! small objects of several hundred threads occupied 0.8 GiB for 50 MB in use (an upload of 4,000 concurrent files),
//! without a gain in speed.
//!
//! A full page of mimalloc belongs to no thread. By default the thread that filled it takes it back when one of its
//! objects is freed, and no other thread can use its free objects then. In a server with several dozen threads, where an
//! object is often freed by another thread than it was allocated by, most memory was such free objects: a site cache
//! with 1,000 busy readers had 385 MiB, and has 250 if pages are not taken back.

#![allow(unsafe_code, reason = "options of mimalloc have no safe form")]

use std::ffi::{c_int, c_long};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// The option `page_reclaim_on_free` in `mi_option_t` of mimalloc 3.
const PAGE_RECLAIM_ON_FREE: c_int = 35;
/// Its value for: never.
const NEVER: c_long = -1;

unsafe extern "C" {
    fn mi_option_set(option: c_int, value: c_long);
}

/// Sets the options of the allocator. To be called before there are other threads.
pub(crate) fn configure() {
    // SAFETY: the function stores a number, and ignores an option that does not exist. There is only one thread.
    unsafe { mi_option_set(PAGE_RECLAIM_ON_FREE, NEVER) };
}

#[cfg(test)]
mod tests {
    use std::{env, process::Command};

    use towpath_store::sys::environment;

    use super::*;

    unsafe extern "C" {
        fn mi_option_get(option: c_int) -> c_long;
    }

    /// mimalloc reads options from the environment when the process starts.
    const VARIABLE: &str = "MIMALLOC_PAGE_RECLAIM_ON_FREE";

    #[test]
    fn the_number_is_that_of_the_option() {
        if let Some(value) = environment::text(VARIABLE) {
            // SAFETY: the function returns a number, and 0 for an option that does not exist.
            assert_eq!(unsafe { mi_option_get(PAGE_RECLAIM_ON_FREE) }.to_string(), value);
            return;
        }
        let name = concat!(module_path!(), "::the_number_is_that_of_the_option");
        let name = name.split_once("::").unwrap().1;
        let mut again = Command::new(env::current_exe().unwrap());
        let output = again.args(["--exact", name]).env(VARIABLE, "7").output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && printed.contains("1 passed"), "{printed}");
    }
}
