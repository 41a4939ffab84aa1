//! Text after `?` in a URL may be a secret, and is not printed.

use super::program::Directory;

#[test]
fn what_is_told_of_a_url_has_nothing_behind_its_question_mark() {
    let directory = Directory::new();
    directory.put("d/file", "content");
    let served = directory.serve();
    let [root, _] = served.urls();
    for (command, path) in
        [("stat", "d/file"), ("sum", "d/file"), ("ls", "d/file"), ("df", "d"), ("ping -c 1", "d/file")]
    {
        let url = format!("{root}/{path}");
        for flag in ["", " --json"] {
            let told = directory.run(&format!("{command}{flag} {url}?key=hush")).expect(0).stdout;
            assert!(told.contains(&url) && !told.contains("hush"), "{command}: {told}");
        }
    }
}

#[test]
fn a_url_that_cannot_be_read_is_not_told_with_its_secrets() {
    let directory = Directory::new();
    for (line, told) in [
        ("cp root://host:99999//f?authz=hush .", "towpath: cp: root://host:99999//f: the port"),
        ("probe root://host:99999//f?authz=hush", "towpath: probe: root://host:99999//f: the port"),
        ("stat root://alice:hush@host//f", "towpath: stat: root://***@host//f: the user"),
    ] {
        let outcome = directory.run(line).expect(2);
        assert!(outcome.stderr.contains(told) && !outcome.stderr.contains("hush"), "{outcome:?}");
    }
}
