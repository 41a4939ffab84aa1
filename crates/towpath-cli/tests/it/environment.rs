//! Environment variables.

use super::program::{Directory, Outcome};

/// Variables that are errors if their empty value is used.
const REFUSED_IF_EMPTY: [&str; 8] = [
    "TOWPATH_CA_FILE",
    "TOWPATH_S3_ENDPOINT",
    "TOWPATH_S3_ADDRESSING",
    "TOWPATH_ALTO_CONFIG",
    "TOWPATH_WAN",
    "TOWPATH_SERVE_LIMITS_IDLE",
    "BEARER_TOKEN",
    "BEARER_TOKEN_FILE",
];

#[test]
fn an_empty_variable_counts_as_unset() {
    let directory = Directory::new();
    directory.put("f", "content");
    let run = |line: &str, value: Option<&str>| {
        let mut command = directory.command(line.split(' '));
        command.envs(value.into_iter().flat_map(|value| REFUSED_IF_EMPTY.map(|name| (name, value))));
        Outcome::from(command.output().unwrap())
    };
    for line in ["cat f", "config show serve", "order --help", "wan up --help"] {
        let (unset, empty) = (run(line, None).expect(0), run(line, Some("")).expect(0));
        let is_same = empty.stderr == unset.stderr && (line.ends_with("--help") || empty.stdout == unset.stdout);
        assert!(is_same, "{line}: {empty:?} {unset:?}");
    }
    let refused = run("cat f", Some("unknown")).expect(2);
    assert!(refused.stderr.contains("--s3-addressing"), "{refused:?}");
}
