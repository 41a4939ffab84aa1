//! The missing ranges of a file, and their division into pieces.

use std::{iter, ops::Range};

use towpath_proto::checksum::Extent;

/// Returns the ranges of `0..size` that are not in `present`, in file order. The extents are in order and do not
/// overlap, as returned by [`towpath_store::WriteHandle::present`]; parts beyond `size` are ignored.
pub(crate) fn missing(size: u64, present: &[Extent]) -> Vec<Range<u64>> {
    let mut missing = Vec::new();
    let mut next = 0;
    for extent in present {
        let (start, end) = (extent.offset().min(size), extent.end().min(size));
        if next < start {
            missing.push(next..start);
        }
        next = next.max(end);
    }
    if next < size {
        missing.push(next..size);
    }
    missing
}

/// Divides the part of `ranges` that starts at `from` into pieces. `length` is called for each piece and returns its
/// maximum length, at least one byte.
pub(crate) fn pieces(
    ranges: Vec<Range<u64>>,
    from: u64,
    length: impl Fn() -> u64 + Send,
) -> impl Iterator<Item = Range<u64>> + Send {
    let mut ranges =
        ranges.into_iter().map(move |range| range.start.max(from)..range.end).filter(|range| !range.is_empty());
    let mut rest = 0..0;
    iter::from_fn(move || {
        if rest.is_empty() {
            rest = ranges.next()?;
        }
        let piece = rest.start..rest.end.min(rest.start.saturating_add(length().max(1)));
        rest.start = piece.end;
        Some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use towpath_proto::checksum::Algorithm;

    use super::*;

    fn extent(range: &Range<u64>) -> Extent {
        let data = vec![0; (range.end - range.start) as usize];
        Extent::of([Algorithm::Crc32c].into_iter().collect(), range.start, &data).unwrap()
    }

    /// Disjoint, non-adjacent extents in order.
    fn extents() -> impl Strategy<Value = Vec<Range<u64>>> {
        prop::collection::vec((1..50_u64, 1..50_u64), 0..10).prop_map(|steps| {
            let mut next = 0;
            let each = |(gap, length)| {
                let start = next + gap;
                next = start + length;
                start..next
            };
            steps.into_iter().map(each).collect()
        })
    }

    proptest! {
        #[test]
        fn each_byte_is_present_or_in_one_piece(present in extents(), size in 0..600_u64, from in 0..100_u64, length in 1..40_u64) {
            let from = from.min(size);
            let all: Vec<_> = present.iter().map(extent).collect();
            let pieces: Vec<_> = pieces(missing(size, &all), from, || length).collect();
            prop_assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.end - piece.start <= length));
            prop_assert!(pieces.is_sorted_by(|a, b| a.end <= b.start));
            for byte in from..size {
                let is_present = present.iter().any(|extent| extent.contains(&byte));
                let copies = pieces.iter().filter(|piece| piece.contains(&byte)).count();
                prop_assert_eq!(copies, usize::from(!is_present));
            }
            prop_assert!(pieces.iter().all(|piece| piece.start >= from && piece.end <= size));
        }
    }
}
