//! Output of `towpath probe --json`.

use serde::de::SeqAccess;

use super::{
    json::Record,
    leaves::Leaves,
    samples::{SampleError, Samples},
};
use towpath_alto::lenient::{PartialJson, PartialJsonSeed};

/// Paths read from a leg.
const FIELDS: [&str; 3] = ["direction", "rate_bytes_per_s", "min_rtt_s"];

/// Maximum number of legs per probe. A probe has at most a few per direction.
const MAX_LEGS: usize = 1000;

/// Network legs of a probe.
#[derive(Default)]
pub(super) struct Legs(Vec<Leaves>);

impl PartialJson for Legs {
    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        loop {
            let mut leg = Leaves::of(&FIELDS);
            if elements.next_element_seed(PartialJsonSeed(&mut leg))?.is_none() {
                return Ok(());
            }
            if !leg.are_empty() && self.0.len() < MAX_LEGS {
                self.0.push(leg);
            }
        }
    }
}

/// Adds the samples of one probe that ran at `here`.
///
/// # Errors
/// Returns an error if the remote end or `here` is missing, or if no network leg was measured.
pub(super) fn add_samples(record: &Record, here: Option<&str>, samples: &mut Samples) -> Result<(), SampleError> {
    let url = record.leaves.text_at("url");
    let far = host(&url).ok_or(SampleError::NoEnd)?;
    let here = here.ok_or(SampleError::NoHere)?;
    if record.legs.0.is_empty() {
        return Err(SampleError::NoValue);
    }
    for leg in &record.legs.0 {
        let (src, dst) = match &*leg.text_at("direction") {
            "down" => (far, here),
            "up" => (here, far),
            _ => {
                samples.skip(&SampleError::NoEnd);
                continue;
            }
        };
        let min_rtt_us = leg.number_at("min_rtt_s").map(|seconds| seconds * 1e6);
        for (metric, value) in [("tput", leg.number_at("rate_bytes_per_s")), ("delay-rt", min_rtt_us)] {
            if let Some(value) = value {
                let series = samples.series(src, dst, metric)?;
                samples.take(series, None, [(value, 1.0)]);
            }
        }
    }
    Ok(())
}

/// Returns the host of a URL, without brackets.
fn host(url: &str) -> Option<&str> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(address) => address.split_once(']')?.0,
        None => host.split(':').next()?,
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_urls() {
        for (url, expected) in [
            ("root://far.example.org//run7/f.root", "far.example.org"),
            ("https://user@192.0.2.1:1094/f", "192.0.2.1"),
            ("roots://[2001:db8::1]:1094//f", "2001:db8::1"),
            ("https://far.example.org", "far.example.org"),
        ] {
            assert_eq!(host(url), Some(expected), "{url}");
        }
        for url in ["", "/data/f", "https://", "https://:1094/f", "https://[2001:db8::1", "file:///f"] {
            assert_eq!(host(url), None, "{url}");
        }
    }
}
