//! Coverage-guided fuzzing of the decoders that read bytes from the network or from a disk.
//!
//! One program holds all targets, so that it links once; `FUZZ_TARGET` names the target. `fuzz/run` builds and starts
//! it. A target panics when a decoder panics or when one of its properties does not hold; libFuzzer then writes the
//! input to a file.

#![no_main]

mod alto;
mod http;
mod rootfile;
mod state;
mod xrootd;

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

type Target = fn(&[u8]);

/// Every target, by the name of its corpus directory.
const TARGETS: &[(&str, Target)] = &[
    ("alto_document", alto::documents),
    ("alto_events", alto::events),
    ("alto_program", alto::program),
    ("alto_replicas", alto::replicas),
    ("alto_response", alto::response),
    ("bmp", alto::bmp),
    ("dav_xml", http::dav_xml),
    ("http_fields", http::fields),
    ("journal", state::journal),
    ("metalink", http::metalink),
    ("mrt", alto::mrt),
    ("multipart", http::multipart),
    ("rootfile", rootfile::file),
    ("s3_xml", http::s3_xml),
    ("token", state::token),
    ("url", http::url),
    ("xrootd_request", xrootd::request),
    ("xrootd_response", xrootd::response),
    ("zip", http::zip),
];

static SELECTED: OnceLock<Target> = OnceLock::new();

/// Returns the target that `FUZZ_TARGET` names.
///
/// # Panics
/// If the variable is unset or names no target; the message lists the names.
fn selected() -> Target {
    let name = std::env::var("FUZZ_TARGET").unwrap_or_default();
    let target = TARGETS.iter().find(|(target, _)| *target == name);
    let Some((_, target)) = target else {
        panic!("FUZZ_TARGET is {name:?}; targets: {:?}", TARGETS.iter().map(|(name, _)| name).collect::<Vec<_>>());
    };
    *target
}

fuzz_target!(
    init: {
        SELECTED.get_or_init(selected);
    },
    |input: &[u8]| SELECTED.get_or_init(selected)(input)
);
