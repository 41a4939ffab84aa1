//! ROOT files.

use std::{future::Future, ops::Range};

use bytes::Bytes;
use futures::FutureExt as _;
use towpath_rootfile::{Error, Plan, ReadAt, RootFile, TreeIndex};

/// A file in memory.
struct Memory(Bytes);

impl ReadAt for Memory {
    fn read(
        &self,
        ranges: Vec<Range<u64>>,
    ) -> impl Future<Output = Result<Vec<Bytes>, Box<dyn std::error::Error + Send + Sync>>> + Send {
        let parts = ranges.into_iter().map(|range| self.0.slice(range.start as usize..range.end as usize));
        std::future::ready(Ok(parts.collect()))
    }

    fn run<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, Box<dyn std::error::Error + Send + Sync>>> + Send {
        std::future::ready(Ok(job()))
    }
}

/// All blocks lie within the file, and a plan of all columns reads each of them.
pub fn file(input: &[u8]) {
    let memory = Memory(Bytes::copy_from_slice(input));
    let _ = read(&memory).now_or_never();
}

async fn read(memory: &Memory) -> Result<(), Error> {
    let size = memory.0.len() as u64;
    let file = RootFile::open(memory, size, 16 << 20).await?;
    for key in file.trees() {
        if let Ok(tree) = file.read(memory, key).await {
            check(&tree, size);
        }
    }
    Ok(())
}

fn check(tree: &TreeIndex, size: u64) {
    let plan = Plan::new(tree, &["*".to_owned()], &(0..u64::MAX), 0).expect("a star is a pattern");
    assert!(plan.ranges.iter().all(|range| range.start < range.end && range.end <= size));
    assert_eq!(plan.columns.len(), tree.columns().len());
    for column in tree.columns() {
        for block in column.blocks.iter().filter(|block| block.length > 0) {
            assert!(tree.beginning_in(&block.range()).any(|found| tree.block(found) == Some(*block)));
        }
    }
}
