//! Servers that answer 202: they promise to carry a request out, and may do so later or never. It counts as done when
//! it can be seen.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use towpath_store::{Blame, Caller, Changes, CreateOptions, Fault, Overwrite, Result, Store};

use crate::web::{ReceivedRequest, Reply, Web, error, path, reply, serve_file};

/// What a server has: contents of files, none for directories.
type Tree = BTreeMap<String, Option<Bytes>>;

/// A WebDAV server with the file `/f`, the file `/old` and the directory `/d`, which answers 202 to every change and
/// makes it at once if it `keeps_promises`.
fn promising(keeps_promises: bool) -> Web {
    let content = |text: &'static str| Some(Bytes::from(text));
    let files = [("/", None), ("/d", None), ("/f", content("file")), ("/old", content("old content"))];
    let tree: Mutex<Tree> = Mutex::new(files.into_iter().map(|(path, content)| (path.to_owned(), content)).collect());
    Web::start(move |asked, _| {
        let mut tree = tree.lock().unwrap();
        let name = asked.target.trim_end_matches('/').to_owned();
        let known = tree.get(if name.is_empty() { "/" } else { &name }).cloned();
        match (asked.method.as_str(), known) {
            ("PROPFIND", Some(found)) => described(&name, found.as_ref()),
            ("GET" | "HEAD", Some(Some(content))) => serve_file(asked, &content, &format!("\"{}\"", content.len())),
            ("PROPFIND" | "GET" | "HEAD", _) => reply(404),
            _ => {
                if keeps_promises {
                    change(&mut tree, asked, name);
                }
                reply(202)
            }
        }
    })
}

fn described(name: &str, content: Option<&Bytes>) -> Reply {
    let (href, properties) = match content {
        None => (format!("{name}/"), "<resourcetype><collection/></resourcetype>".to_owned()),
        Some(content) => {
            let properties =
                format!("<getcontentlength>{0}</getcontentlength><getetag>\"{0}\"</getetag>", content.len());
            (name.to_owned(), properties)
        }
    };
    reply(207).with("content-type", "application/xml").body(format!(
        "<multistatus xmlns='DAV:'><response><href>{href}</href><propstat><prop>{properties}</prop></propstat></response>\
         </multistatus>"
    ))
}

/// Carries out the request.
fn change(tree: &mut Tree, asked: &ReceivedRequest, name: String) {
    let destination = || {
        let field = asked.field("destination");
        let (_, path) = field.split_once("//").and_then(|(_, rest)| rest.split_once('/')).unwrap();
        format!("/{}", path.trim_end_matches('/'))
    };
    match asked.method.as_str() {
        "PUT" => drop(tree.insert(name, Some(asked.body.clone()))),
        "MKCOL" => drop(tree.insert(name, None)),
        "DELETE" => drop(tree.remove(&name)),
        "COPY" => drop(tree.insert(destination(), tree[&name].clone())),
        "MOVE" => {
            let moved = tree.remove(&name).unwrap();
            tree.insert(destination(), moved);
        }
        method => panic!("{method}"),
    }
}

async fn put(store: &Arc<dyn Store>, name: &str, content: &'static str) -> Result<()> {
    let options = CreateOptions { overwrite: Overwrite::Replace, ..CreateOptions::default() };
    let file = store.create(&Caller::local(), &path(name), options).await?;
    file.write(0, content.into()).await?;
    file.commit(Default::default()).await.map(drop)
}

/// Everything that changes a name, on a server of its own each.
async fn outcomes(keeps_promises: bool) -> Vec<(&'static str, Web, Result<()>)> {
    let mut outcomes = Vec::new();
    let names = [
        "MKCOL",
        "DELETE file",
        "DELETE directory",
        "DELETE tree",
        "MOVE",
        "MOVE over",
        "COPY",
        "COPY over",
        "PUT",
        "PUT over",
    ];
    for name in names {
        let server = promising(keeps_promises);
        let (store, caller, replace) = (server.store(), Caller::local(), Overwrite::Replace);
        let outcome = match name {
            "MKCOL" => store.make_directory(&caller, &path("/new"), false, None).await,
            "DELETE file" => store.remove_file(&caller, &path("/f")).await,
            "DELETE directory" => store.remove_directory(&caller, &path("/d")).await,
            "DELETE tree" => store.remove_tree(&caller, &path("/d")).await,
            "MOVE" => store.rename(&caller, &path("/f"), &path("/new"), Overwrite::Refuse).await,
            "MOVE over" => store.rename(&caller, &path("/f"), &path("/old"), replace).await,
            "COPY" => store.copy(&caller, &path("/f"), &path("/new"), Overwrite::Refuse).await,
            "COPY over" => store.copy(&caller, &path("/f"), &path("/old"), replace).await,
            "PUT" => put(&store, "/new", "content").await,
            _ => put(&store, "/old", "content").await,
        };
        outcomes.push((name, server, outcome));
    }
    outcomes
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_accepted_and_can_be_seen_is_done() {
    for (name, _, outcome) in outcomes(true).await {
        outcome.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_only_accepted_is_not_done() {
    for (name, server, outcome) in outcomes(false).await {
        let error = error(outcome);
        assert_eq!((error.fault(), error.blame()), (Fault::Unsupported, Blame::Storage), "{name}: {error}");
        assert!(
            error.message().contains("accepted") && error.message().contains("not complete yet"),
            "{name}: {error}"
        );
        // Neither a retry nor a removal, which could hit the previous file.
        let changes =
            server.methods().into_iter().filter(|method| !["PROPFIND", "GET", "HEAD"].contains(&method.as_str()));
        assert_eq!(changes.count(), 1, "{name}: {:?}", server.methods());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accepted_file_like_the_one_before_is_not_known_to_be_new() {
    let server = promising(false);
    let error = error(put(&server.store(), "/old", "new content").await);
    assert!(error.message().contains("cannot be verified"), "{error}");
    assert!(!server.methods().contains(&"DELETE".to_owned()), "{:?}", server.methods());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_being_fetched_is_not_described() {
    let server = Web::start(|asked, _| match asked.method.as_str() {
        "HEAD" | "GET" => reply(202).body("come back later"),
        _ => reply(405),
    });
    let refused = error(server.store().stat(&Caller::local(), &path("/f")).await);
    assert_eq!(refused.fault(), Fault::Unavailable, "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_is_set_only_if_every_status_says_so() {
    for (statuses, is_set) in [(&[200][..], true), (&[202], false), (&[200, 403], false), (&[], false)] {
        let propstat = |status: &u16| format!("<propstat><prop/><status>HTTP/1.1 {status} x</status></propstat>");
        let propstats: String = statuses.iter().map(propstat).collect();
        let server = Web::start(move |asked, _| match asked.method.as_str() {
            "PROPPATCH" => reply(207).body(format!(
                "<multistatus xmlns='DAV:'><response><href>/f</href>{propstats}</response></multistatus>"
            )),
            _ => reply(405),
        });
        let changes = Changes { mtime_ns: Some(0), ..Changes::default() };
        let outcome = server.store().change(&Caller::local(), &path("/f"), changes).await;
        assert_eq!(outcome.is_ok(), is_set, "{statuses:?}");
    }
}
