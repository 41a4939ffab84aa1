//! What the server reads from its callers and its disk besides the protocols: tokens, keys and journals of uploads.

/// A bearer token and a set of keys.
pub fn token(input: &[u8]) {
    towpath_server::access::tokens::fuzz(input);
}

/// A journal. Checksums are not compared, so that the fuzzer gets past them. Property: all records are within the file.
pub fn journal(input: &[u8]) {
    towpath_store::local::fuzz_journal(input);
}
