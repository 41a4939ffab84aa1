//! Where each announced byte is in the order of an announcement. No I/O, no clock.

use std::ops::Range;

/// The positions of announced bytes. A byte that was announced twice has one of its positions.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// Parts of the announced ranges without overlap, sorted, with the position of their first byte.
    parts: Vec<(Range<u64>, u64)>,
}

impl Positions {
    /// Sorts the announced ranges; `positions` has the position of the first byte of each.
    pub(crate) fn new(ranges: &[Range<u64>], positions: &[u64]) -> Self {
        let mut sorted: Vec<_> = ranges.iter().zip(positions).filter(|(range, _)| !range.is_empty()).collect();
        sorted.sort_unstable_by_key(|(range, position)| (range.start, **position));
        let mut parts = Vec::with_capacity(sorted.len());
        let mut covered = 0;
        for (range, position) in sorted {
            let start = range.start.max(covered);
            if start < range.end {
                parts.push((start..range.end, position + (start - range.start)));
                covered = range.end;
            }
        }
        Self { parts }
    }

    /// Returns the position of the byte at `offset` of the file, if it was announced. Takes logarithmic time: a vector
    /// asks for each of its ranges.
    pub(crate) fn of(&self, offset: u64) -> Option<u64> {
        let before = self.parts.partition_point(|(part, _)| part.start <= offset).checked_sub(1)?;
        let (part, position) = self.parts.get(before).filter(|(part, _)| part.contains(&offset))?;
        Some(position + (offset - part.start))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn each_announced_byte_has_one_of_its_positions(
            ranges in proptest::collection::vec((0..300_u64, 0..40_u64), 0..30),
        ) {
            let ranges: Vec<_> = ranges.into_iter().map(|(start, length)| start..start + length).collect();
            let order: Vec<u64> = ranges.iter().cloned().flatten().collect();
            let positions = ranges.iter().scan(0, |next, range| {
                *next += range.end - range.start;
                Some(*next - (range.end - range.start))
            });
            let found = Positions::new(&ranges, &positions.collect::<Vec<_>>());
            for offset in 0..350 {
                match found.of(offset) {
                    Some(position) => prop_assert_eq!(order[position as usize], offset),
                    None => prop_assert!(!order.contains(&offset)),
                }
            }
        }
    }
}
