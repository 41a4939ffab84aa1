//! Networks: resources with capacities, and the resources that each pipe uses.

/// Index of a resource: a direction of a link, the input or output of a storage, or a rule.
pub type ResourceIndex = u32;

/// What a resource limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResourceKind {
    /// The bytes per second of a direction of a link, or of the input or output of a storage. The known capacity may be
    /// wrong.
    Network,
    /// Bytes per second, by a rule: they are not exceeded, although more would be possible.
    Rate,
    /// A number of connections, by a rule.
    Connections,
}

/// The resources of a network.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Resources {
    names: Vec<String>,
    kinds: Vec<ResourceKind>,
    capacities: Vec<f64>,
}

impl Resources {
    /// Adds a resource with a capacity in bytes per second, or in connections.
    ///
    /// # Panics
    /// If the capacity is negative or not finite, or there are 2³² resources.
    pub fn add(&mut self, name: String, kind: ResourceKind, capacity: f64) -> ResourceIndex {
        assert!(capacity.is_finite() && capacity >= 0.0, "the capacity of {name} is {capacity}");
        self.names.push(name);
        self.kinds.push(kind);
        self.capacities.push(capacity);
        ResourceIndex::try_from(self.names.len() - 1).expect("there are fewer than 2^32 resources")
    }

    /// Returns the number of resources.
    pub fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns whether there is none.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Returns the name of a resource.
    pub fn name(&self, resource: ResourceIndex) -> &str {
        &self.names[resource as usize]
    }

    /// Returns what a resource limits.
    pub fn kind(&self, resource: ResourceIndex) -> ResourceKind {
        self.kinds[resource as usize]
    }

    /// Returns the capacities by index, in bytes per second, or in connections.
    pub fn capacities(&self) -> &[f64] {
        &self.capacities
    }

    /// Returns the first resource with this name.
    pub fn find(&self, name: &str) -> Option<ResourceIndex> {
        self.names.iter().position(|own| own == name).map(|resource| resource as ResourceIndex)
    }
}

/// A sparse matrix of zeros and ones, by row: for each row the columns with ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Incidences {
    /// For each row the index of its first column, followed by the number of columns of all rows.
    starts: Vec<u32>,
    columns: Vec<u32>,
}

impl Default for Incidences {
    fn default() -> Self {
        Self { starts: vec![0], columns: Vec::new() }
    }
}

impl Incidences {
    /// Adds a row. Repeated columns count once.
    ///
    /// # Panics
    /// If all rows together have 2³² columns.
    pub fn push(&mut self, row: &[u32]) {
        let start = self.columns.len();
        for column in row {
            if !self.columns[start..].contains(column) {
                self.columns.push(*column);
            }
        }
        self.starts.push(u32::try_from(self.columns.len()).expect("there are fewer than 2^32 incidences"));
    }

    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// Returns the columns of a row.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.columns[self.starts[row] as usize..self.starts[row + 1] as usize]
    }

    /// Returns the matrix by column, which has `columns`: for each of them the rows, in order.
    pub fn transposed(&self, columns: usize) -> Self {
        let mut starts = vec![0_u32; columns + 1];
        for column in &self.columns {
            starts[*column as usize + 1] += 1;
        }
        for column in 0..columns {
            starts[column + 1] += starts[column];
        }
        let mut next = starts.clone();
        let mut rows = vec![0; self.columns.len()];
        for row in 0..self.rows() {
            for column in self.row(row) {
                let place = &mut next[*column as usize];
                rows[*place as usize] = u32::try_from(row).expect("there are fewer rows than incidences");
                *place += 1;
            }
        }
        Self { starts, columns: rows }
    }
}

/// The paths of pipes: the resources of each pipe, and the pipes of each resource.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Paths {
    of_pipes: Incidences,
    of_resources: Incidences,
}

impl Paths {
    /// Creates the paths from the resources of each pipe, in a network with `resources`.
    ///
    /// # Panics
    /// If a path has a resource that the network lacks.
    pub fn new(of_pipes: Incidences, resources: usize) -> Self {
        let of_resources = of_pipes.transposed(resources);
        Self { of_pipes, of_resources }
    }

    /// Creates the paths of pipes without a known resource.
    pub fn unknown(pipes: usize) -> Self {
        let of_pipes = Incidences { starts: vec![0; pipes + 1], columns: Vec::new() };
        Self { of_pipes, of_resources: Incidences::default() }
    }

    /// Returns the number of pipes.
    pub fn pipes(&self) -> usize {
        self.of_pipes.rows()
    }

    /// Returns the resources of a pipe.
    pub fn resources_of(&self, pipe: usize) -> &[ResourceIndex] {
        self.of_pipes.row(pipe)
    }

    /// Returns the pipes of a resource, in order.
    pub fn pipes_of(&self, resource: ResourceIndex) -> &[u32] {
        self.of_resources.row(resource as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pipes_of_a_resource_are_found_from_the_paths() {
        let mut of_pipes = Incidences::default();
        for path in [&[0, 2, 0][..], &[], &[2, 1]] {
            of_pipes.push(path);
        }
        let paths = Paths::new(of_pipes, 4);
        assert_eq!((paths.pipes(), paths.resources_of(0), paths.resources_of(1)), (3, &[0, 2][..], &[][..]));
        let pipes: Vec<_> = (0..4).map(|resource| paths.pipes_of(resource).to_vec()).collect();
        assert_eq!(pipes, [vec![0], vec![2], vec![0, 2], vec![]]);
    }
}
