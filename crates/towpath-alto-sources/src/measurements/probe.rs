//! What `towpath probe --json` prints.

use serde::de::SeqAccess;

use super::{
    json::Record,
    leaves::Leaves,
    samples::{Samples, Why},
};
use towpath_alto::lenient::{Fill, Filling};

/// What is wanted of a leg.
const FIELDS: [&str; 3] = ["direction", "rate_bytes_per_s", "min_rtt_s"];

/// The most legs of one probe; it makes at most a few for each direction.
const MAX_LEGS: usize = 1000;

/// The legs of a probe over the network.
#[derive(Default)]
pub(super) struct Legs(Vec<Leaves>);

impl Fill for Legs {
    fn elements<'de, A: SeqAccess<'de>>(&mut self, elements: &mut A) -> Result<(), A::Error> {
        loop {
            let mut leg = Leaves::of(&FIELDS);
            if elements.next_element_seed(Filling(&mut leg))?.is_none() {
                return Ok(());
            }
            if !leg.are_empty() && self.0.len() < MAX_LEGS {
                self.0.push(leg);
            }
        }
    }
}

/// Takes the samples of one probe that was made `here`.
///
/// # Errors
/// If it does not tell where the far end is, nobody tells the near one, or no leg over the network was measured.
pub(super) fn tell(record: &Record, here: Option<&str>, samples: &mut Samples) -> Result<(), Why> {
    let url = record.leaves.text_at("url");
    let far = host(&url).ok_or(Why::NoEnd)?;
    let here = here.ok_or(Why::NoHere)?;
    if record.legs.0.is_empty() {
        return Err(Why::NoValue);
    }
    for leg in &record.legs.0 {
        let (src, dst) = match &*leg.text_at("direction") {
            "down" => (far, here),
            "up" => (here, far),
            _ => {
                samples.doubt(&Why::NoEnd);
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

/// The host in a URL, without its brackets; none if there is none.
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
