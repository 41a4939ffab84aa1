//! The local store compared with the memory store as its model: the same calls must have the same outcome and leave the
//! same tree.

use std::{collections::BTreeMap, sync::Arc};

use bytes::Bytes;
use futures::TryStreamExt as _;
use proptest::prelude::*;
use towpath_proto::checksum::Algorithm;
use towpath_store::{
    Caller, Changes, CreateOptions, Expectation, Fault, FileKind, ListOptions, OpenOptions, Overwrite, Result, Store,
    StorePath, memory::MemoryStore,
};

use crate::directory::{Directory, path};

/// A call with one or two of [`PATHS`] by index.
#[derive(Debug, Clone)]
enum Call {
    Put { at: usize, overwrite: Overwrite, parents: bool, content: Vec<u8> },
    Update { at: usize, offset: u64, content: Vec<u8> },
    MakeDirectory { at: usize, parents: bool },
    RemoveFile(usize),
    RemoveDirectory(usize),
    Rename { from: usize, to: usize, overwrite: Overwrite },
    Copy { from: usize, to: usize, overwrite: Overwrite },
    SetSize { at: usize, size: u64 },
    SetAttribute { at: usize, name: u8, value: Option<u8>, create: bool },
    Digest(usize),
    List(usize),
}

const PATHS: [&str; 9] = ["/", "/a", "/b", "/d", "/d/a", "/d/b", "/d/e", "/d/e/a", "/d/e/f/a"];

fn any_call() -> impl Strategy<Value = Call> {
    let at = 0..PATHS.len();
    let overwrite = || prop_oneof![Just(Overwrite::Refuse), Just(Overwrite::Replace)];
    let content = || prop::collection::vec(any::<u8>(), 0..20);
    prop_oneof![
        3 => (at.clone(), overwrite(), any::<bool>(), content())
            .prop_map(|(at, overwrite, parents, content)| Call::Put { at, overwrite, parents, content }),
        1 => (at.clone(), 0..30_u64, content()).prop_map(|(at, offset, content)| Call::Update { at, offset, content }),
        2 => (at.clone(), any::<bool>()).prop_map(|(at, parents)| Call::MakeDirectory { at, parents }),
        1 => at.clone().prop_map(Call::RemoveFile),
        1 => at.clone().prop_map(Call::RemoveDirectory),
        2 => (at.clone(), at.clone(), overwrite()).prop_map(|(from, to, overwrite)| Call::Rename { from, to, overwrite }),
        1 => (at.clone(), at.clone(), overwrite()).prop_map(|(from, to, overwrite)| Call::Copy { from, to, overwrite }),
        1 => (at.clone(), 0..30_u64).prop_map(|(at, size)| Call::SetSize { at, size }),
        1 => (at.clone(), 0..2_u8, any::<Option<u8>>(), any::<bool>())
            .prop_map(|(at, name, value, create)| Call::SetAttribute { at, name, value, create }),
        1 => at.clone().prop_map(Call::Digest),
        1 => at.prop_map(Call::List),
    ]
}

/// Runs a call and returns what both stores must agree on: a short description, or the fault.
async fn run(store: &dyn Store, call: &Call) -> Result<String, Fault> {
    let me = &Caller::local();
    let at = |index: &usize| path(PATHS[*index]);
    let outcome = match call {
        Call::Put { at: index, overwrite, parents, content } => {
            put(store, &at(index), *overwrite, *parents, content.clone()).await
        }
        Call::Update { at: index, offset, content } => {
            async {
                let file = store.update(me, &at(index)).await?;
                file.write(*offset, content.clone().into()).await?;
                Ok(file.commit(Expectation::default()).await?.size.to_string())
            }
            .await
        }
        Call::MakeDirectory { at: index, parents } => {
            store.make_directory(me, &at(index), *parents, None).await.map(|()| String::new())
        }
        Call::RemoveFile(index) => store.remove_file(me, &at(index)).await.map(|()| String::new()),
        Call::RemoveDirectory(index) => store.remove_directory(me, &at(index)).await.map(|()| String::new()),
        Call::Rename { from, to, overwrite } => {
            store.rename(me, &at(from), &at(to), *overwrite).await.map(|()| String::new())
        }
        Call::Copy { from, to, overwrite } => {
            store.copy(me, &at(from), &at(to), *overwrite).await.map(|()| String::new())
        }
        Call::SetSize { at: index, size } => {
            let changes = Changes { size: Some(*size), ..Changes::default() };
            store.change(me, &at(index), changes).await.map(|()| String::new())
        }
        Call::SetAttribute { at: index, name, value, create } => {
            let value = value.map(|value| [value]);
            let value = value.as_ref().map(|value| value.as_slice());
            store.set_attribute(me, &at(index), &[b'a' + name], value, *create).await.map(|()| String::new())
        }
        Call::Digest(index) => {
            store.digest(me, &at(index), Algorithm::Crc32, &|_| {}).await.map(|digest| digest.to_string())
        }
        Call::List(index) => names(store, &at(index)).await.map(|names| format!("{names:?}")),
    };
    outcome.map_err(|error| error.fault())
}

async fn put(
    store: &dyn Store,
    at: &StorePath,
    overwrite: Overwrite,
    parents: bool,
    content: Vec<u8>,
) -> Result<String> {
    let options = CreateOptions { overwrite, parents, ..CreateOptions::default() };
    let file = store.create(&Caller::local(), at, options).await?;
    file.write(0, content.into()).await?;
    Ok(file.commit(Expectation::default()).await?.size.to_string())
}

async fn names(store: &dyn Store, at: &StorePath) -> Result<Vec<Bytes>> {
    let entries = store.list(&Caller::local(), at, ListOptions::default()).try_concat().await?;
    let mut names: Vec<_> = entries.into_iter().map(|entry| entry.name).collect();
    names.sort();
    Ok(names)
}

/// Returns the visible state of one path: kind, content, attributes. Known digests must be correct, but the stores may
/// know different ones.
async fn look(store: &dyn Store, at: &StorePath) -> Result<String> {
    let me = &Caller::local();
    let metadata = store.stat(me, at).await?;
    let mut attributes = store.attributes(me, at).await?;
    attributes.sort();
    let content = match metadata.kind {
        FileKind::File => {
            let file = store.open(me, at, OpenOptions::default()).await?;
            let content = file.read(0, 1000).await?;
            let right = towpath_proto::checksum::Hasher::digest(metadata.digests.algorithms(), &content);
            assert_eq!(metadata.digests, right, "{at}");
            content
        }
        FileKind::Directory | FileKind::Other => Bytes::new(),
    };
    Ok(format!("{:?} {} {content:?} {attributes:?}", metadata.kind, metadata.size))
}

/// Returns the state of everything in the store.
async fn tree(store: &dyn Store) -> BTreeMap<StorePath, String> {
    let mut found = BTreeMap::new();
    let mut to_see = vec![StorePath::root()];
    while let Some(at) = to_see.pop() {
        found.insert(at.clone(), look(store, &at).await.unwrap());
        if store.stat(&Caller::local(), &at).await.unwrap().is_directory() {
            to_see.extend(names(store, &at).await.unwrap().iter().map(|name| at.join(name).unwrap()));
        }
    }
    found
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_directory_does_what_memory_does(calls in prop::collection::vec(any_call(), 1..40)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let directory = Directory::new();
            let model: Arc<dyn Store> = Arc::new(MemoryStore::new(1 << 20));
            for (number, call) in calls.iter().enumerate() {
                let (real, expected) = (run(&directory.store, call).await, run(&*model, call).await);
                prop_assert_eq!(real, expected, "call {}: {:?}", number, call);
            }
            prop_assert_eq!(tree(&directory.store).await, tree(&*model).await);
            prop_assert_eq!(directory.staged(), Vec::<String>::new());
            Ok(())
        })?;
    }
}
