//! Tests of the crate from outside, through its public interface.

#[cfg(test)]
mod it {
    mod xrootd_golden;
}
