//! The format of `.netrc` (<https://www.gnu.org/software/inetutils/manual/html_node/The-_002enetrc-file.html>): words
//! separated by white space. A word in quotation marks may contain white space, and escapes by a backslash, as in curl.

use std::{
    fmt,
    iter::{self, Peekable},
    str::Chars,
};

/// The entries of a file.
#[derive(Debug, Default)]
pub(super) struct Netrc(Vec<Entry>);

/// The login at a machine.
#[derive(Default)]
struct Entry {
    /// `None` for all machines (`default`).
    machine: Option<String>,
    login: Option<String>,
    password: Option<String>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("machine", &self.machine).finish_non_exhaustive()
    }
}

impl Netrc {
    /// Parses a file.
    ///
    /// # Errors
    /// The problem and its line, without words of the file, which may be secret.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut words = Words { rest: text.chars().peekable(), line: 1, begins: true };
        let mut entries: Vec<Entry> = Vec::new();
        while let Some(word) = words.next() {
            let line = words.line;
            let wrong = |what: &str| format!("line {line}: {what}");
            let mut value = || words.next().ok_or_else(|| wrong("the last value is missing"));
            match word.as_str() {
                "machine" => entries.push(Entry { machine: Some(value()?), ..Entry::default() }),
                "default" => entries.push(Entry::default()),
                "macdef" => words.skip_macro(),
                key @ ("login" | "password" | "account") => {
                    let value = value()?;
                    let entry = entries.last_mut().ok_or_else(|| wrong("a value precedes the first machine"))?;
                    match key {
                        "login" => entry.login = Some(value),
                        "password" => entry.password = Some(value),
                        _ => {}
                    }
                }
                _ => return Err(wrong("expected machine, default, login, password, account or macdef")),
            }
        }
        Ok(Self(entries))
    }

    /// Returns user and password of the first entry for `host`, else of `default`; with `user`, of the first entry that
    /// has this login or none.
    pub(super) fn login<'a>(&'a self, host: &str, user: Option<&'a str>) -> Option<(&'a str, &'a str)> {
        let of = |entry: &'a Entry| {
            let login = entry.login.as_deref();
            let is_meant = user.is_none() || login.is_none() || login == user;
            Some((login.or(user)?, entry.password.as_deref()?)).filter(|_| is_meant)
        };
        let is_host = |entry: &&Entry| entry.machine.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(host));
        let named = self.0.iter().filter(is_host).find_map(of);
        named.or_else(|| self.0.iter().filter(|entry| entry.machine.is_none()).find_map(of))
    }
}

/// The words of a file.
struct Words<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
    /// Whether no word of the line has been read.
    begins: bool,
}

impl Words<'_> {
    /// Returns the next word. A line that begins with `#` is a comment.
    fn next(&mut self) -> Option<String> {
        loop {
            match *self.rest.peek()? {
                c if c.is_whitespace() => {
                    self.rest.next();
                    self.begins |= c == '\n';
                    self.line += usize::from(c == '\n');
                }
                '#' if self.begins => self.skip_line(),
                _ => break,
            }
        }
        self.begins = false;
        if self.rest.peek() == Some(&'"') {
            return Some(self.quoted());
        }
        Some(iter::from_fn(|| self.rest.next_if(|c| !c.is_whitespace())).collect())
    }

    fn quoted(&mut self) -> String {
        let mut word = String::new();
        self.rest.next();
        while let Some(c) = self.rest.next().filter(|c| *c != '"') {
            self.line += usize::from(c == '\n');
            match c {
                '\\' => word.extend(self.rest.next().map(|c| match c {
                    'n' => '\n',
                    'r' => '\r',
                    't' => '\t',
                    other => other,
                })),
                _ => word.push(c),
            }
        }
        word
    }

    fn skip_line(&mut self) {
        while self.rest.next_if(|c| *c != '\n').is_some() {}
    }

    /// Skips a macro, which ends with an empty line.
    fn skip_macro(&mut self) {
        loop {
            self.skip_line();
            self.line += usize::from(self.rest.next().is_some());
            if self.rest.peek().is_none_or(|c| *c == '\n') {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_machine_and_login() {
        let text = "# comment login x\nmachine a.example login alice password p4ss account ignored\n\
                    machine A.example\n\tlogin bob password two\n\
                    macdef init\ncd /pub\nmachine macro password three\n\n\
                    machine quoted login \"with space\" password \"a\\\"b \\\\ #c\"\n\
                    machine half login alice\n\
                    machine any password #four\n\
                    default login anonymous password me@\n";
        let netrc = Netrc::parse(text).unwrap();
        for (host, user, found) in [
            ("a.example", None, Some(("alice", "p4ss"))),
            ("A.EXAMPLE", Some("bob"), Some(("bob", "two"))),
            ("a.example", Some("carol"), None),
            ("macro", None, Some(("anonymous", "me@"))),
            ("quoted", None, Some(("with space", "a\"b \\ #c"))),
            ("half", Some("alice"), None),
            ("any", Some("dave"), Some(("dave", "#four"))),
            ("other", None, Some(("anonymous", "me@"))),
            ("other", Some("dave"), None),
        ] {
            assert_eq!(netrc.login(host, user), found, "{host} {user:?}");
        }
        assert!(!format!("{netrc:?}").contains("p4ss"));
        assert!(Netrc::parse("").unwrap().login("a", None).is_none());
    }

    #[test]
    fn errors_name_the_line() {
        assert_eq!(Netrc::parse("machine a\n\nlogin").unwrap_err(), "line 3: the last value is missing");
        assert!(Netrc::parse("\nhush").unwrap_err().starts_with("line 2: expected machine"));
        assert!(Netrc::parse("login a").unwrap_err().contains("precedes the first machine"));
    }
}
