//! The crates depend on each other only along the arrows of the design, read off their manifests.

use std::{collections::BTreeMap, path::Path};

use towpath_store::sys::disk;

/// What each crate may depend on; along an arrow of another crate too (sched → mover → store). `wan` stands alone.
const ARROWS: &[(&str, &[&str])] = &[
    ("proto", &[]),
    ("wan", &[]),
    ("store", &["proto"]),
    ("alto", &["proto"]),
    ("client", &["store"]),
    ("alto-client", &["alto", "client"]),
    ("alto-sources", &["alto-client"]),
    ("alto-server", &["alto-sources", "server"]),
    ("rootfile", &["proto"]),
    ("cache", &["store", "rootfile"]),
    ("mount", &["store"]),
    ("server", &["store"]),
    ("mover", &["store", "client"]),
    ("sched", &["mover", "alto-client"]),
    (
        "cli",
        &[
            "proto",
            "store",
            "client",
            "mover",
            "server",
            "cache",
            "mount",
            "alto",
            "alto-client",
            "alto-sources",
            "alto-server",
            "sched",
            "rootfile",
            "wan",
        ],
    ),
    ("py", &["client", "cache", "mover", "alto-client", "sched"]),
    ("testkit", &["proto", "store"]),
];

const MANIFEST_BYTES: u64 = 1 << 20;

type Arrows = BTreeMap<&'static str, &'static [&'static str]>;

/// Whether `to` can be reached from `from` along the arrows.
fn is_allowed(arrows: &Arrows, from: &str, to: &str) -> bool {
    let next = arrows.get(from).copied().unwrap_or_default();
    next.iter().any(|next| *next == to || is_allowed(arrows, next, to))
}

/// The towpath crates in one table of a manifest, without their prefix.
fn dependencies(manifest: &toml::Table, table: &str) -> Vec<String> {
    let names = manifest.get(table).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
    names.filter_map(|name| name.strip_prefix("towpath-")).map(str::to_owned).collect()
}

/// Returns the forbidden dependencies of the crate `name`.
fn offences(arrows: &Arrows, name: &str, manifest: &toml::Table) -> Vec<String> {
    let mut found = Vec::new();
    if !arrows.contains_key(name) {
        found.push(format!("{name} is not in the table of arrows"));
    }
    for table in ["dependencies", "build-dependencies"] {
        for to in dependencies(manifest, table) {
            if !is_allowed(arrows, name, &to) {
                found.push(format!("{name} → {to} is no arrow"));
            }
        }
    }
    // Tests may use sibling crates (a server tested through the client) and the test kit, but not the command line or
    // the Python module.
    for to in dependencies(manifest, "dev-dependencies") {
        if !arrows.contains_key(to.as_str()) || ["cli", "py"].contains(&to.as_str()) {
            found.push(format!("the tests of {name} may not depend on {to}"));
        }
    }
    found
}

fn table() -> Arrows {
    ARROWS.iter().copied().collect()
}

#[test]
fn the_crates_follow_the_arrows() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate lies in a directory of crates");
    let mut seen = 0;
    for entry in crates.read_dir().expect("the crates can be listed") {
        let path = entry.expect("the crates can be listed").path();
        let Ok(text) = disk::read(&path.join("Cargo.toml"), MANIFEST_BYTES) else { continue };
        let manifest: toml::Table = toml::from_slice(&text).expect("a manifest that cargo accepts");
        let name = path.file_name().and_then(|name| name.to_str()).and_then(|name| name.strip_prefix("towpath-"));
        let name = name.unwrap_or_else(|| panic!("{} is no name of a crate", path.display()));
        assert_eq!(offences(&table(), name, &manifest), [""; 0], "see the arrows in ARCHITECTURE");
        seen += 1;
    }
    assert!(seen >= 4, "only {seen} crates were found");
}

#[test]
fn wrong_arrows_are_found() {
    for (name, manifest, offence) in [
        ("store", "[dependencies]\ntowpath-client.workspace = true", "store → client is no arrow"),
        ("server", "[dependencies]\ntowpath-testkit.workspace = true", "server → testkit is no arrow"),
        ("server", "[build-dependencies]\ntowpath-cli = '1'", "server → cli is no arrow"),
        ("mover", "[dev-dependencies]\ntowpath-cli = '1'", "the tests of mover may not depend on cli"),
        ("wan", "[dependencies]\ntowpath-store.workspace = true", "wan → store is no arrow"),
        ("other", "", "other is not in the table of arrows"),
    ] {
        assert_eq!(offences(&table(), name, &manifest.parse().expect("valid TOML")), [offence]);
    }
    for (name, manifest) in [
        (
            "server",
            "[dependencies]\ntowpath-proto.workspace = true\n[dev-dependencies]\ntowpath-testkit.workspace = true",
        ),
        ("sched", "[dependencies]\ntowpath-store.workspace = true\ntokio = '1'"),
    ] {
        assert_eq!(offences(&table(), name, &manifest.parse().expect("valid TOML")), [""; 0]);
    }
}

#[test]
fn the_arrows_have_no_circle() {
    for (name, _) in ARROWS {
        assert!(!is_allowed(&table(), name, name), "{name} depends on itself");
    }
}
