//! Flows: pairs that do not form a full mesh, listed as blocks that do (`endpoint-flows`, `pid-flows`). A non-standard
//! extension, enabled if the network state has a profile of [`crate::compatibility`].

use std::{collections::BTreeSet, fmt::Display};

use serde_json::Value;

use super::{MAX_PAIRS, too_many_pairs};
use crate::{fields::Fields, problem::Problem};

/// The pairs of all blocks of a request.
#[derive(Debug)]
pub(super) struct Flows<T> {
    /// Distinct sources, ascending.
    pub(super) sources: Vec<T>,
    /// Distinct destinations, ascending.
    pub(super) destinations: Vec<T>,
    /// Distinct pairs as indices of source and destination, ascending.
    pub(super) pairs: Vec<(usize, usize)>,
}

impl<T: Ord + Copy> Flows<T> {
    /// Reads the list `field` if present; then `mesh`, the field of a full mesh, must be absent. Items for which `read`
    /// returns `None` are skipped.
    ///
    /// # Errors
    /// Returns `E_INVALID_FIELD_VALUE` for `field` if `mesh` is also present, if a block has no source or no
    /// destination, or if all blocks together have more than [`MAX_PAIRS`] pairs, shared ones counted repeatedly.
    pub(super) fn read<E: Display>(
        fields: Fields<'_>,
        field: &str,
        mesh: &'static str,
        read: impl Fn(&str) -> Result<Option<T>, E>,
    ) -> Result<Option<Self>, Problem> {
        let Some(blocks) = fields.list(field, |element| Block::read(element, &read))? else { return Ok(None) };
        if fields.object(mesh)?.is_some() {
            return Err(fields.refuse_present(field, &format!("cannot be combined with {mesh}")));
        }
        if blocks.is_empty() {
            return Err(fields.refuse(field, "[]", "this must not be empty"));
        }
        let pairs = blocks.iter().map(|block| block.sources.len().saturating_mul(block.destinations.len()));
        let pairs = pairs.fold(0, usize::saturating_add);
        if pairs > MAX_PAIRS {
            return Err(too_many_pairs(fields, field, pairs));
        }
        Ok(Some(Self::of(&blocks)))
    }

    fn of(blocks: &[Block<T>]) -> Self {
        let sources = in_order(blocks.iter().flat_map(|block| &block.sources));
        let destinations = in_order(blocks.iter().flat_map(|block| &block.destinations));
        let position = |all: &[T], one: &T| all.binary_search(one).expect("the union contains the items of each block");
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

/// Returns the distinct items in ascending order.
fn in_order<'a, T: Ord + Copy + 'a>(all: impl Iterator<Item = &'a T>) -> Vec<T> {
    let once: BTreeSet<T> = all.copied().collect();
    once.into_iter().collect()
}

/// Sources and destinations that form a full mesh.
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
            Ok(_) => Err(format!("{field} must not be empty")),
            Err(problem) => Err(problem.to_string()),
        };
        Ok(Self { sources: side("srcs")?, destinations: side("dsts")? })
    }
}
