//! Random numbers from the kernel.

use rustix::rand::{GetRandomFlags, getrandom};

/// Returns random bytes that are suitable for session identifiers and temporary names.
pub fn bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    let mut filled = 0;
    while filled < N {
        // Fails only if interrupted before the kernel's generator is seeded; then it is retried.
        if let Ok(more) = getrandom(&mut bytes[filled..], GetRandomFlags::empty()) {
            filled += more;
        }
    }
    bytes
}

/// Returns 128 random bits in hexadecimal, as an unguessable key.
pub fn key() -> String {
    bytes::<16>().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns a random number.
pub fn number() -> u64 {
    u64::from_ne_bytes(bytes())
}
