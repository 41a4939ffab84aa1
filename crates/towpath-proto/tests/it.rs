//! Tests of the crate from outside, through its public interface.

#[cfg(test)]
mod it {
    mod fuzz;
    mod xrootd_arbitrary;
    mod xrootd_captures;
    mod xrootd_framing;
    mod xrootd_golden;
    mod xrootd_round_trips;
}
