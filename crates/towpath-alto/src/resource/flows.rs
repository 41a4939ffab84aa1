//! Flows: pairs that are no full mesh, told as blocks of which each is one (`endpoint-flows`, `pid-flows`). No RFC has them: they are there if the world has a profile of
//! [`crate::compatibility`].

use std::{collections::BTreeSet, fmt::Display};

use serde_json::Value;

use super::{MOST_PAIRS, too_many_pairs};
use crate::{fields::Fields, problem::Problem};

/// The pairs of all blocks of a request.
#[derive(Debug)]
pub(super) struct Flows<T> {
    /// All sources, ascending, each once.
    pub(super) sources: Vec<T>,
    /// All destinations, ascending, each once.
    pub(super) destinations: Vec<T>,
    /// The positions of a source and a destination: ascending, each once.
    pub(super) pairs: Vec<(usize, usize)>,
}

impl<T: Ord + Copy> Flows<T> {
    /// Reads the list `field`, if it is there; then `mesh`, the field of a full mesh, must not be. What `read` finds to be nothing is left out.
    ///
    /// # Errors
    /// `E_INVALID_FIELD_VALUE` of `field` if `mesh` is there too, if a block names no source or no destination, or if there are more than [`MOST_PAIRS`] pairs in all blocks together,
    /// whatever they share.
    pub(super) fn read<E: Display>(
        fields: Fields<'_>,
        field: &str,
        mesh: &'static str,
        read: impl Fn(&str) -> Result<Option<T>, E>,
    ) -> Result<Option<Self>, Problem> {
        let Some(blocks) = fields.list(field, |element| Block::read(element, &read))? else { return Ok(None) };
        if fields.object(mesh)?.is_some() {
            return Err(fields.refuse_present(field, &format!("only one of this and {mesh} can be asked for")));
        }
        if blocks.is_empty() {
            return Err(fields.refuse(field, "[]", "this must not be empty"));
        }
        let pairs = blocks.iter().map(|block| block.sources.len().saturating_mul(block.destinations.len()));
        let pairs = pairs.fold(0, usize::saturating_add);
        if pairs > MOST_PAIRS {
            return Err(too_many_pairs(fields, field, pairs));
        }
        Ok(Some(Self::of(&blocks)))
    }

    fn of(blocks: &[Block<T>]) -> Self {
        let sources = in_order(blocks.iter().flat_map(|block| &block.sources));
        let destinations = in_order(blocks.iter().flat_map(|block| &block.destinations));
        let position = |all: &[T], one: &T| all.binary_search(one).expect("all have those of each block");
        let mut pairs = Vec::new();
        for block in blocks {
            let to: Vec<usize> = block.destinations.iter().map(|one| position(&destinations, one)).collect();
            for source in &block.sources {
                let from = position(&sources, source);
                pairs.extend(to.iter().map(|to| (from, *to)));
            }
        }
        pairs.sort_unstable();
        pairs.dedup();
        Self { sources, destinations, pairs }
    }
}

/// Each once, ascending.
fn in_order<'a, T: Ord + Copy + 'a>(all: impl Iterator<Item = &'a T>) -> Vec<T> {
    let once: BTreeSet<T> = all.copied().collect();
    once.into_iter().collect()
}

/// Sources and destinations of which each pair is asked for.
#[derive(Debug)]
struct Block<T> {
    sources: Vec<T>,
    destinations: Vec<T>,
}

impl<T> Block<T> {
    fn read<E: Display>(element: &Value, read: impl Fn(&str) -> Result<Option<T>, E>) -> Result<Self, String> {
        let fields = Fields::of(element).map_err(|_| "this must be an object with srcs and dsts".to_owned())?;
        let side = |field: &str| match fields.texts(field, &read) {
            Ok(Some(named)) if !named.is_empty() => Ok(named.into_iter().flatten().collect()),
            Ok(_) => Err(format!("{field} must name one at least")),
            Err(problem) => Err(problem.to_string()),
        };
        Ok(Self { sources: side("srcs")?, destinations: side("dsts")? })
    }
}
