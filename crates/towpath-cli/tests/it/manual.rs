//! `completions` and `man`: the output works in the programs that read it.

use std::process::Command;

use super::program::Directory;

/// Returns whether the program `name` is installed.
fn is_installed(name: &str) -> bool {
    Command::new(name).arg("--version").output().is_ok()
}

#[test]
fn bash_completes_commands_and_flags() {
    let directory = Directory::new();
    let script = directory.run("completions bash").expect(0).stdout;
    directory.put("towpath.bash", &script);
    let complete = |words: &str, index: usize| {
        let line = format!(
            "source towpath.bash; COMP_WORDS=({words}); COMP_CWORD={index}; \
             $(complete -p towpath | sed 's/.*-F \\([^ ]*\\).*/\\1/') towpath \"${{COMP_WORDS[{index}]}}\" \
             \"${{COMP_WORDS[{index}-1]}}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\""
        );
        let output = Command::new("bash").args(["-c", &line]).current_dir(directory.host("")).output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(complete("towpath c", 1), ["cp", "cat", "cache", "config", "completions"]);
    assert_eq!(complete("towpath cp --skip", 2), ["--skip-existing"]);
    for shell in ["fish", "zsh", "elvish", "powershell"] {
        assert!(directory.run(&format!("completions {shell}")).expect(0).stdout.contains("skip-existing"), "{shell}");
    }
    directory.run("completions csh").expect(2);
}

#[test]
fn manual_pages_of_all_commands_are_rendered_without_warnings() {
    let directory = Directory::new();
    directory.run("man pages/man1").expect(0);
    let pages = directory.names("pages/man1");
    for page in ["towpath.1", "towpath-cp.1", "towpath-config-show.1", "towpath-wan-up.1"] {
        assert!(pages.iter().any(|name| name == page), "{page}: {pages:?}");
    }
    if !is_installed("groff") {
        return;
    }
    for page in &pages {
        let mut groff = Command::new("groff");
        groff.args(["-man", "-ww", "-Tutf8", "-P-cbou", page]).current_dir(directory.host("pages/man1"));
        let output = groff.output().unwrap();
        assert!(output.status.success() && output.stderr.is_empty(), "{page}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("SYNOPSIS"), "{page}");
    }
}

#[test]
fn a_directory_that_cannot_be_created_is_an_error() {
    let directory = Directory::new();
    directory.put("file", "content");
    let outcome = directory.run("man file/pages").expect(5);
    assert!(outcome.stderr.contains("cannot write manual pages to file/pages: "), "{outcome:?}");
}
