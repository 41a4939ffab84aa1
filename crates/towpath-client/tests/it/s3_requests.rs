//! Requests of the S3 client, and its handling of responses that real servers rarely send.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

use bytes::Bytes;
use futures::{FutureExt as _, TryStreamExt as _};
use towpath_client::{Client, ClientOptions, s3::S3Keys};
use towpath_proto::checksum::{Algorithm, Hasher};
use towpath_store::{
    Blame, Caller, CreateOptions, Expectation, Fault, FileKind, ListOptions, OpenOptions, Overwrite, Secret, Store,
    WriteHandle,
};

use crate::{
    peer::content,
    web::{ReceivedRequest, Reply, Web, error, options, path, reply, serve_file},
};

const PART: usize = 8 << 20;

/// More than two parts.
const LARGE: usize = 2 * PART + 1000;

fn client(web: &Web) -> Client {
    let mut options: ClientOptions = options();
    options.s3.endpoint = Some(format!("http://{}", web.address));
    options.s3.region = Some("here".into());
    options.s3.keys =
        Some(S3Keys { id: "KEY".into(), secret: Secret::new("hush"), token: Some(Secret::new("hush-hush")) });
    Client::new(Arc::new(options))
}

fn store_of(client: &Client) -> Arc<dyn Store> {
    client.connect(&"s3://bucket/".parse().unwrap()).unwrap().0
}

fn empty_page() -> Reply {
    reply(200).body("<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>")
}

/// An empty bucket that accepts uploads; method and query determine the response.
fn empty_bucket(asked: &ReceivedRequest) -> Reply {
    let query = asked.target.split_once('?').map_or("", |(_, query)| query);
    match asked.method.as_str() {
        "HEAD" => reply(404),
        "GET" => empty_page(),
        "POST" if query.starts_with("uploads") => {
            reply(200).body("<InitiateMultipartUploadResult><UploadId>id/1</UploadId></InitiateMultipartUploadResult>")
        }
        "PUT" => {
            let crc32c = asked.field("x-amz-checksum-crc32c").to_owned();
            reply(200).with("etag", "\"part\"").with("x-amz-checksum-crc32c", &crc32c)
        }
        "POST" => {
            reply(200).body("<CompleteMultipartUploadResult><ETag>\"whole-3\"</ETag></CompleteMultipartUploadResult>")
        }
        "DELETE" => reply(204),
        other => panic!("nobody should ask {other}"),
    }
}

/// Begins an upload and writes all of `data`.
async fn begin(store: &dyn Store, data: &Bytes, overwrite: Overwrite) -> towpath_store::Result<Arc<dyn WriteHandle>> {
    let options =
        CreateOptions { overwrite, parents: true, size_hint: Some(data.len() as u64), ..CreateOptions::default() };
    let file = store.create(&Caller::local(), &path("/d/a b"), options).await?;
    for at in (0..data.len()).step_by(1 << 20) {
        file.write(at as u64, data.slice(at..data.len().min(at + (1 << 20)))).await?;
    }
    Ok(file)
}

#[tokio::test]
async fn an_upload_in_parts_asks_for_all_that_a_server_can_check() {
    let (data, digest) = (Bytes::from(content(LARGE)), Hasher::digest_of(Algorithm::Crc32c, &content(LARGE)));
    let told = digest.to_base64();
    let web = Web::start(move |asked, before| match asked.method.as_str() {
        "HEAD" if before > 2 => {
            let checksum = reply(200).with("x-amz-checksum-crc32c", &told).with("x-amz-checksum-type", "FULL_OBJECT");
            checksum.with("etag", "\"whole-3\"").body(Bytes::from(vec![0; LARGE]))
        }
        _ => empty_bucket(asked),
    });
    let client = client(&web);
    let file = begin(&*store_of(&client), &data, Overwrite::Refuse).await.unwrap();
    let metadata = file.commit(Expectation { size: Some(LARGE as u64), ..Expectation::default() }).await.unwrap();
    assert_eq!(metadata.digests, Hasher::digest(metadata.digests.algorithms(), &data));
    assert!(metadata.digests.get(Algorithm::Adler32).is_some(), "the same bytes went into both");
    let asked = web.asked();
    let parts: Vec<_> = asked.iter().filter(|asked| asked.method == "PUT").collect();
    let mut sizes: Vec<_> = parts.iter().map(|part| (part.target.clone(), part.body.len())).collect();
    sizes.sort();
    let target = |number| format!("/bucket/d/a%20b?partNumber={number}&uploadId=id%2F1");
    assert_eq!(sizes, [(target(1), PART), (target(2), PART), (target(3), 1000)]);
    for part in parts {
        assert_eq!(part.field("x-amz-checksum-crc32c"), Hasher::digest_of(Algorithm::Crc32c, &part.body).to_base64());
        assert_eq!(part.field("x-amz-content-sha256"), Hasher::digest_of(Algorithm::Sha256, &part.body).to_string());
    }
    let [begun, completed] = [0, 1].map(|n| asked.iter().filter(|asked| asked.method == "POST").nth(n).unwrap());
    assert_eq!(
        (begun.field("x-amz-checksum-algorithm"), begun.field("x-amz-checksum-type")),
        ("CRC32C", "FULL_OBJECT")
    );
    assert_eq!(
        (completed.field("if-none-match"), completed.field("x-amz-checksum-crc32c")),
        ("*", digest.to_base64().as_str())
    );
    for asked in &asked {
        let signature = asked.field("authorization");
        assert!(
            signature.starts_with("AWS4-HMAC-SHA256 Credential=KEY/") && signature.contains("/here/s3/aws4_request")
        );
        assert_eq!(asked.field("x-amz-security-token"), "hush-hush");
    }
    assert!(!format!("{:?}", store_of(&client)).contains("hush"));
}

/// Whether removal of the parts was requested.
fn is_given_up(web: &Web) -> bool {
    web.asked().iter().any(|asked| asked.method == "DELETE" && asked.target == "/bucket/d/a%20b?uploadId=id%2F1")
}

#[tokio::test]
async fn parts_of_an_upload_that_is_given_up_are_removed() {
    let data = Bytes::from(content(LARGE));
    for how in ["dropped", "aborted", "too short"] {
        let web = Web::start(|asked, _| empty_bucket(asked));
        let client = client(&web);
        let file = begin(&*store_of(&client), &data, Overwrite::Replace).await.unwrap();
        match how {
            "dropped" => drop(file),
            "aborted" => file.abort().await.unwrap(),
            _ => {
                let expected = Expectation { size: Some(LARGE as u64 + 1), ..Expectation::default() };
                assert_eq!(error(file.commit(expected).await).fault(), Fault::Truncated);
            }
        }
        client.cleaned_up().await;
        assert!(is_given_up(&web), "{how}");
        assert!(!web.asked().iter().any(|asked| asked.method == "POST" && asked.target.contains("uploadId")), "{how}");
    }
}

#[tokio::test]
async fn parts_are_removed_also_if_nobody_waits_for_that() {
    let data = Bytes::from(content(LARGE));
    for how in ["aborted", "too short"] {
        let web = Web::start(|asked, _| empty_bucket(asked));
        let client = client(&web);
        let file = begin(&*store_of(&client), &data, Overwrite::Replace).await.unwrap();
        let expected = Expectation { size: Some(LARGE as u64 + 1), ..Expectation::default() };
        let is_waiting = match how {
            "aborted" => file.abort().now_or_never().is_none(),
            _ => file.commit(expected).now_or_never().is_none(),
        };
        assert!(is_waiting, "{how}: nobody has been asked yet");
        client.cleaned_up().await;
        assert!(is_given_up(&web), "{how}");
    }
}

#[tokio::test]
async fn a_part_that_does_not_arrive_ends_the_upload() {
    let data = Bytes::from(content(LARGE));
    let refusal = "<Error><Code>QuotaExceeded</Code><Message>no more</Message></Error>";
    let web = Web::start(move |asked, _| match asked.method.as_str() {
        "PUT" => reply(403).body(refusal),
        _ => empty_bucket(asked),
    });
    let client = client(&web);
    let file = begin(&*store_of(&client), &data, Overwrite::Replace).await;
    let refused = match file {
        Ok(file) => error(file.commit(Expectation::default()).await),
        Err(refused) => refused,
    };
    assert_eq!(refused.fault(), Fault::QuotaExceeded, "{refused:?}");
    client.cleaned_up().await;
    assert!(is_given_up(&web));
}

#[tokio::test]
async fn a_refusal_may_come_with_the_status_200() {
    let data = Bytes::from(content(LARGE));
    let web = Web::start(|asked, _| match asked.method.as_str() {
        "POST" if asked.target.contains("uploadId") => {
            reply(200).body("   <Error><Code>PreconditionFailed</Code><Message>exists</Message></Error>")
        }
        _ => empty_bucket(asked),
    });
    let client = client(&web);
    let file = begin(&*store_of(&client), &data, Overwrite::Refuse).await.unwrap();
    let refused = error(file.commit(Expectation::default()).await);
    assert!(refused.message().contains("PreconditionFailed"), "{refused:?}");
    assert!(is_given_up(&web));
}

#[tokio::test]
async fn an_object_that_is_not_what_was_sent_is_removed() {
    let wrong = Hasher::digest_of(Algorithm::Crc32c, b"other").to_base64();
    let web = Web::start(move |asked, before| match asked.method.as_str() {
        "HEAD" if before > 2 => {
            reply(200).with("etag", "\"part\"").with("x-amz-checksum-crc32c", &wrong).body("content")
        }
        _ => empty_bucket(asked),
    });
    let client = client(&web);
    let file = begin(&*store_of(&client), &Bytes::from_static(b"content"), Overwrite::Replace).await.unwrap();
    assert_eq!(error(file.commit(Expectation::default()).await).fault(), Fault::ChecksumMismatch);
    assert_eq!(web.methods().last().map(String::as_str), Some("DELETE"));
}

#[tokio::test]
async fn a_bucket_is_no_file() {
    let web = Web::start(|_, _| reply(200).body("<ListBucketResult/>"));
    let opened = store_of(&client(&web)).open(&Caller::local(), &path("/"), OpenOptions::default()).await;
    assert_eq!(opened.err().unwrap().fault(), Fault::IsDirectory);
}

#[tokio::test]
async fn what_another_put_there_meanwhile_stays() {
    for (size, fault) in [(7, None), (8, Some(Fault::Changed))] {
        let web = Web::start(move |asked, before| match asked.method.as_str() {
            "HEAD" if before > 2 => reply(200).with("etag", "\"other\"").body(Bytes::from(vec![0; size])),
            _ => empty_bucket(asked),
        });
        let client = client(&web);
        let file = begin(&*store_of(&client), &Bytes::from_static(b"content"), Overwrite::Replace).await.unwrap();
        assert_eq!(file.commit(Expectation::default()).await.err().map(|error| error.fault()), fault);
        assert!(!web.methods().contains(&"DELETE".to_owned()));
    }
}

#[tokio::test]
async fn an_object_of_which_no_version_was_told_may_be_anothers_and_stays() {
    let web = Web::start(|asked, before| match asked.method.as_str() {
        "PUT" => reply(200),
        "HEAD" if before > 2 => reply(200).with("etag", "\"other\"").body("another content"),
        _ => empty_bucket(asked),
    });
    let client = client(&web);
    let file = begin(&*store_of(&client), &Bytes::from_static(b"content"), Overwrite::Replace).await.unwrap();
    assert_eq!(error(file.commit(Expectation::default()).await).fault(), Fault::Changed);
    assert!(!web.methods().contains(&"DELETE".to_owned()));
}

/// The keys of a bucket, and the entity tags of their objects.
type Objects = BTreeMap<String, String>;

/// A server that keeps conditions.
fn serve_objects(objects: &mut Objects, asked: &ReceivedRequest) -> Reply {
    let (path, query) = asked.target.split_once('?').unwrap_or((asked.target.as_str(), ""));
    let key = path.strip_prefix("/bucket/").unwrap_or_default();
    match asked.method.as_str() {
        "GET" => {
            let prefix = query.rsplit_once("prefix=").unwrap().1.replace("%2F", "/");
            let listed = objects.iter().filter(|(key, _)| key.starts_with(&prefix));
            let listed: String = listed
                .map(|(key, tag)| format!("<Contents><Key>{key}</Key><Size>1</Size><ETag>{tag}</ETag></Contents>"))
                .collect();
            reply(200).body(format!("<ListBucketResult>{listed}</ListBucketResult>"))
        }
        "PUT" => {
            let from = asked.field("x-amz-copy-source").strip_prefix("/bucket/").unwrap();
            let tag = objects[from].clone();
            if tag != asked.field("x-amz-copy-source-if-match") {
                return reply(412);
            }
            objects.insert(key.to_owned(), tag);
            reply(200).body("<CopyObjectResult><ETag>\"copy\"</ETag></CopyObjectResult>")
        }
        "DELETE" if objects[key] != asked.field("if-match") => reply(412),
        "DELETE" => {
            objects.remove(key);
            reply(204)
        }
        _ => reply(404),
    }
}

/// Renames `d` to `e` in a bucket with `d/a` and `d/b`, with `meanwhile` applied to it after each request; returns the
/// final keys and the result.
async fn moved(
    meanwhile: impl Fn(&mut Objects, &ReceivedRequest) + Send + Sync + 'static,
) -> (Objects, towpath_store::Result<()>) {
    let one = "\"one\"".to_owned();
    let objects = Arc::new(Mutex::new(Objects::from([("d/a".into(), one.clone()), ("d/b".into(), one)])));
    let served = Arc::clone(&objects);
    let web = Web::start(move |asked, _| {
        let mut objects = served.lock().unwrap();
        let answer = serve_objects(&mut objects, asked);
        meanwhile(&mut objects, asked);
        answer
    });
    let renamed = store_of(&client(&web)).rename(&Caller::local(), &path("/d"), &path("/e"), Overwrite::Refuse).await;
    let left = objects.lock().unwrap().clone();
    (left, renamed)
}

fn tags(objects: &Objects) -> Vec<(&str, &str)> {
    objects.iter().map(|(key, tag)| (key.as_str(), tag.trim_matches('"'))).collect()
}

#[tokio::test]
async fn what_comes_to_a_directory_while_it_is_moved_stays() {
    let (left, renamed) = moved(|objects, asked| {
        if asked.method == "PUT" && objects.contains_key("e/a") && objects.contains_key("e/b") {
            objects.insert("d/b".into(), "\"two\"".into());
            objects.insert("d/new".into(), "\"one\"".into());
        }
    })
    .await;
    renamed.unwrap();
    assert_eq!(tags(&left), [("d/b", "two"), ("d/new", "one"), ("e/a", "one"), ("e/b", "one")]);
    // At the last moment.
    let (left, renamed) = moved(|objects, asked| {
        let is_moved = objects.contains_key("e/a") && objects.contains_key("e/b");
        if asked.method == "GET" && is_moved && objects.contains_key("d/b") {
            objects.insert("d/b".into(), "\"two\"".into());
        }
    })
    .await;
    renamed.unwrap();
    assert_eq!(tags(&left), [("d/b", "two"), ("e/a", "one"), ("e/b", "one")]);
}

#[tokio::test]
async fn an_object_that_is_replaced_before_its_copy_ends_the_move_of_its_directory() {
    let (left, renamed) = moved(|objects, asked| {
        if asked.target.contains("max-keys=1000") {
            objects.insert("d/b".into(), "\"two\"".into());
        }
    })
    .await;
    assert_eq!(error(renamed).fault(), Fault::Changed);
    assert_eq!((left["d/a"].as_str(), left["d/b"].as_str()), ("\"one\"", "\"two\""));
}

#[tokio::test]
async fn nobody_signs_nothing() {
    let web = Web::start(|asked, _| serve_file(asked, &Bytes::from_static(b"content"), "\"v\""));
    let store = store_of(&client(&web));
    store.stat(&Caller::nobody(), &path("/a")).await.unwrap();
    store.stat(&Caller::local(), &path("/a")).await.unwrap();
    let unsigned: Vec<_> = web.asked().iter().map(|asked| asked.field("authorization").is_empty()).collect();
    assert_eq!(unsigned, [true, false]);
}

#[tokio::test]
async fn a_server_that_has_too_much_to_do_is_asked_again() {
    let web = Web::start(|asked, before| match before {
        0 => reply(503).body("<Error><Code>SlowDown</Code></Error>"),
        1 => reply(500).body("<Error><Code>InternalError</Code></Error>"),
        _ => serve_file(asked, &Bytes::from_static(b"content"), "\"v\""),
    });
    let store = store_of(&client(&web));
    let metadata = store.stat(&Caller::local(), &path("/a")).await.unwrap();
    assert_eq!((metadata.size, web.asked().len()), (7, 3));
    assert_eq!(web.asked()[0].field("x-amz-checksum-mode"), "ENABLED");
}

#[tokio::test]
async fn an_object_that_is_replaced_is_never_mixed() {
    let web = Web::start(|asked, before| {
        let etag = if before < 1 { "\"one\"" } else { "\"two\"" };
        // A server that knows no conditions.
        let asked = ReceivedRequest {
            headers: asked
                .headers
                .iter()
                .filter(|(name, _)| *name == "range")
                .map(|(name, value)| (name.clone(), value.clone()))
                .collect(),
            ..asked.clone()
        };
        serve_file(&asked, &Bytes::from(content(1000)), etag)
    });
    let file = store_of(&client(&web)).open(&Caller::local(), &path("/a"), OpenOptions::default()).await.unwrap();
    file.read(0, 10).await.unwrap();
    assert_eq!(error(file.read(10, 10).await).fault(), Fault::Changed);
    assert_eq!(web.asked()[1].field("if-match"), "\"one\"");
}

#[tokio::test]
async fn whoever_asks_the_wrong_region_hears_the_right_one() {
    let web = Web::start(|_, _| reply(301).with("x-amz-bucket-region", "elsewhere"));
    let store = store_of(&client(&web));
    let refused = error(store.stat(&Caller::local(), &path("/a")).await);
    assert_eq!(refused.fault(), Fault::InvalidArgument, "{refused:?}");
    assert!(refused.message().contains("AWS_REGION=elsewhere"), "{refused:?}");
}

#[tokio::test]
async fn listings_go_on_page_by_page() {
    let web = Web::start(|asked, before| {
        let object =
            format!("<Contents><Key>d%2F{before}</Key><Size>1</Size></Contents><EncodingType>url</EncodingType>");
        let next = format!("<IsTruncated>true</IsTruncated><NextContinuationToken>a {before}</NextContinuationToken>");
        let token = before.checked_sub(1).map(|last| format!("continuation-token=a%20{last}&"));
        assert!(token.is_none_or(|token| asked.target.contains(&token)), "{}", asked.target);
        let next = if before < 2 { next } else { String::new() };
        reply(200).body(format!("<ListBucketResult>{object}{next}</ListBucketResult>"))
    });
    let store = store_of(&client(&web));
    let batches: Vec<_> =
        store.list(&Caller::local(), &path("/d"), ListOptions::default()).try_collect().await.unwrap();
    let names: Vec<_> = batches.concat().into_iter().map(|entry| entry.name).collect();
    assert_eq!(names, ["0", "1", "2"]);
}

/// Lists `/d` of a bucket: names, kinds and sizes.
async fn listed(web: &Web) -> towpath_store::Result<Vec<(String, FileKind, u64)>> {
    let listing = store_of(&client(web)).list(&Caller::local(), &path("/d"), ListOptions::default());
    let entries: Vec<towpath_store::Entry> = listing.try_concat().await?;
    let told = entries.into_iter().map(|entry| {
        let name = String::from_utf8_lossy(&entry.name).into_owned();
        (name, entry.metadata.kind, entry.metadata.size)
    });
    Ok(told.collect())
}

fn contents(key: &str, size: u64) -> String {
    format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>")
}

#[tokio::test]
async fn a_marker_among_the_objects_is_a_directory_once() {
    // As s3proxy and gofakes3 list it; the marker of `e` is the last of one page, and its prefix the first of the next.
    let web = Web::start(|asked, _| {
        let is_second = asked.target.contains("continuation-token");
        let next = "<IsTruncated>true</IsTruncated><NextContinuationToken>2</NextContinuationToken>";
        let first = [contents("d/", 0), contents("d/a/", 0), contents("d/b", 1), contents("d/e/", 0)].concat();
        let prefix = |key: &str| format!("<CommonPrefixes><Prefix>{key}</Prefix></CommonPrefixes>");
        let body = if is_second { prefix("d/e/") + &prefix("d/g/") } else { first + next };
        reply(200).body(format!("<ListBucketResult>{body}</ListBucketResult>"))
    });
    let told = listed(&web).await.unwrap();
    let file = |name: &str| (name.to_owned(), FileKind::File, 1);
    let directory = |name: &str| (name.to_owned(), FileKind::Directory, 0);
    assert_eq!(told, [file("b"), directory("a"), directory("e"), directory("g")]);
}

#[tokio::test]
async fn a_key_that_ends_in_a_slash_and_has_content_is_listed() {
    let web = Web::start(|_, _| reply(200).body(format!("<ListBucketResult>{}</ListBucketResult>", contents("d/", 8))));
    assert_eq!(listed(&web).await.unwrap(), [(String::new(), FileKind::File, 8)]);
}

#[tokio::test]
async fn keys_that_were_not_asked_for_are_neither_listed_nor_removed() {
    let web = Web::start(|asked, _| match asked.method.as_str() {
        "GET" => {
            reply(200).body(format!("<ListBucketResult>{}{}</ListBucketResult>", contents("d/a", 1), contents("e", 1)))
        }
        _ => reply(204),
    });
    assert_eq!(error(listed(&web).await).fault(), Fault::Protocol);
    let removed = store_of(&client(&web)).remove_tree(&Caller::local(), &path("/d")).await;
    let removed = error(removed);
    assert_eq!((removed.fault(), removed.blame()), (Fault::Protocol, Blame::Storage), "{removed}");
    assert!(!web.methods().contains(&"DELETE".to_owned()));
}

#[tokio::test]
async fn a_listing_whose_page_is_followed_by_itself_ends() {
    let web = Web::start(|_, _| {
        let next = "<IsTruncated>true</IsTruncated><NextContinuationToken>same</NextContinuationToken>";
        reply(200).body(format!("<ListBucketResult>{}{next}</ListBucketResult>", contents("d/a", 1)))
    });
    assert_eq!(error(listed(&web).await).fault(), Fault::Protocol);
    assert_eq!(web.methods().len(), 2);
}

#[tokio::test]
async fn a_listing_that_goes_in_a_circle_ends() {
    let token = |web: &str| if web.contains("continuation-token=a") { "b" } else { "a" };
    // Two pages that name each other, without and with keys; always the same key; and tokens that are new each time.
    let pages: [fn(&str, &str) -> String; 3] =
        [|_, _| String::new(), |_, token| contents(&format!("d/{token}"), 1), |_, _| contents("d/x", 1)];
    for (number, page) in pages.into_iter().enumerate() {
        let count = std::sync::atomic::AtomicU64::new(0);
        let web = Web::start(move |asked, _| {
            let fresh = count.fetch_add(1, std::sync::atomic::Ordering::Relaxed).to_string();
            let token = if number == 2 { &fresh } else { token(&asked.target) };
            let next = format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{token}</NextContinuationToken>");
            reply(200).body(format!("<ListBucketResult>{}{next}</ListBucketResult>", page(&asked.target, token)))
        });
        assert_eq!(error(listed(&web).await).fault(), Fault::Protocol, "{number}");
        assert!(web.methods().len() <= 4, "{number}: {:?}", web.methods());
    }
}

#[tokio::test]
async fn a_page_with_a_token_for_the_next_one_is_not_the_last() {
    let web = Web::start(|asked, _| {
        let is_second = asked.target.contains("continuation-token=");
        let next = if is_second { "" } else { "<NextContinuationToken>second</NextContinuationToken>" };
        let key = if is_second { "d/b" } else { "d/a" };
        reply(200).body(format!("<ListBucketResult>{}{next}</ListBucketResult>", contents(key, 1)))
    });
    assert_eq!(listed(&web).await.unwrap().len(), 2);
}

#[tokio::test]
async fn a_url_with_a_slash_at_its_end_names_the_directory_and_not_the_object() {
    let web = Web::start(|asked, _| match asked.method.as_str() {
        "HEAD" => reply(200).with("etag", "\"object\"").body("content"),
        _ => reply(200).body(format!("<ListBucketResult>{}</ListBucketResult>", contents("fd/x", 1))),
    });
    let client = client(&web);
    for (url, kind) in [("s3://bucket/fd", FileKind::File), ("s3://bucket/fd/", FileKind::Directory)] {
        let (store, path) = client.connect(&url.parse().unwrap()).unwrap();
        assert_eq!(store.stat(&Caller::local(), &path).await.unwrap().kind, kind, "{url}");
    }
}
