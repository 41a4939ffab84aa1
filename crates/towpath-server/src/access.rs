//! Access control: one policy for both faces.
//!
//! A caller is anonymous, presents a bearer token (HTTP's `Authorization`, XRootD's `ztn`, or `authz=` in a request's
//! opaque part), or logs in over HTTP with a password. Each becomes an [`Identity`]: a [`Caller`] with [`Grant`]s.
//! [`Identity::check`] is called before each store operation. Paths are compared by whole components.

pub mod bearer;
pub mod tokens;

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use towpath_store::{Caller, Error, Fault, Result, Secret, StorePath};

use crate::{
    StartError,
    config::{AccessConfig, Right},
    passwords::Passwords,
};

/// The operation that a request performs on a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activity {
    /// Query size, times and checksum.
    Stat,
    /// Bring a file online.
    Stage,
    /// Read a file.
    Read,
    /// List a directory.
    List,
    /// Create a file that does not exist.
    Create,
    /// Create a directory that does not exist.
    CreateDirectory,
    /// Remove the old name of a file in a rename; the new name needs `Create`, or `Modify` if it replaces a file.
    /// Renaming a directory is `Modify`.
    Rename,
    /// Overwrite, change or delete.
    Modify,
}

impl Activity {
    fn verb(self) -> &'static str {
        match self {
            Activity::Stat => "ask about",
            Activity::Stage => "stage",
            Activity::Read => "read",
            Activity::List => "list",
            Activity::Create | Activity::CreateDirectory => "create",
            Activity::Rename => "rename",
            Activity::Modify => "change or delete",
        }
    }
}

/// A right below a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grant {
    /// The right.
    pub right: Right,
    /// Path at and below which it applies.
    pub path: StorePath,
    /// Whether `path` must be a directory: the right then does not apply to a file of that name.
    pub directory: bool,
}

impl Grant {
    /// Any right below a path allows its holder to query the path and the directories that lead to it; a right to
    /// create allows creating those directories. A grant on `/` also covers the root's own mode, properties and
    /// locks; faces and stores prevent the removal and renaming of the root.
    fn allows(&self, activity: Activity, path: &StorePath) -> bool {
        let below = path.is_within(&self.path);
        let on_the_way = self.path.is_within(path);
        let file = below && !(self.directory && on_the_way && !path.is_root());
        let creates = matches!(self.right, Right::Create | Right::Modify);
        match activity {
            Activity::Stat => below || on_the_way,
            Activity::Stage => file && matches!(self.right, Right::Stage | Right::Read),
            Activity::Read => file && self.right == Right::Read,
            Activity::List => below && self.right == Right::Read,
            Activity::Create | Activity::Rename => file && creates,
            Activity::CreateDirectory => (below || on_the_way) && creates,
            Activity::Modify => file && self.right == Right::Modify,
        }
    }
}

/// An authenticated or anonymous caller with its grants.
#[derive(Debug, Clone)]
pub struct Identity {
    /// The caller, as passed to stores.
    pub caller: Caller,
    /// The caller's grants.
    pub grants: Arc<[Grant]>,
    /// Expiry of the grants, in seconds since the Unix epoch.
    pub expires_s: Option<i64>,
}

impl Identity {
    /// Checks that `activity` on `path` is allowed.
    ///
    /// # Errors
    /// `AuthenticationFailed` for an anonymous caller (a token or a password may help) or an expired identity;
    /// `PermissionDenied` otherwise.
    pub fn check(&self, activity: Activity, path: &StorePath) -> Result<()> {
        if self.may(activity, path) { Ok(()) } else { Err(self.refusal(activity, path)) }
    }

    /// Like [`Self::check`], without an error message. Used for the stat text of each listing entry, which shows the
    /// reader's rights.
    pub fn may(&self, activity: Activity, path: &StorePath) -> bool {
        !self.has_expired() && self.grants.iter().any(|grant| grant.allows(activity, path))
    }

    /// Whether the caller has any unexpired grant.
    pub(crate) fn has_rights(&self) -> bool {
        !self.has_expired() && !self.grants.is_empty()
    }

    fn has_expired(&self) -> bool {
        self.expires_s.is_some_and(|end| towpath_store::sys::clock::unix_s() >= end)
    }

    fn refusal(&self, activity: Activity, path: &StorePath) -> Error {
        if self.has_expired() {
            return Error::new(Fault::AuthenticationFailed, "the token has expired: get a new one").at(path);
        }
        let verb = activity.verb();
        // A SciToken may lack a subject; the issuer is named instead.
        let (fault, message) = match self.caller.subject.as_ref().or(self.caller.issuer.as_ref()) {
            None => (
                Fault::AuthenticationFailed,
                format!("anonymous callers may not {verb} this: send a token, or log in if the server has passwords"),
            ),
            Some(subject) if self.caller.token.is_some() => {
                (Fault::PermissionDenied, format!("the token of {subject} does not let it {verb} this"))
            }
            Some(subject) => (Fault::PermissionDenied, format!("{subject} may not {verb} this")),
        };
        Error::new(fault, message).at(path)
    }
}

/// A person, as far as callers can be identified: by the issuer and subject of a token, or by name and password. All
/// anonymous callers are the same person.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Person {
    issuer: Option<Arc<str>>,
    subject: Option<Arc<str>>,
}

impl Person {
    /// Returns the person behind a caller.
    pub fn of(caller: &Caller) -> Self {
        Self { issuer: caller.issuer.clone(), subject: caller.subject.clone() }
    }

    /// Whether the caller is unauthenticated.
    pub fn is_anonymous(&self) -> bool {
        self.issuer.is_none()
    }
}

/// Returns the network of an address, by which password failures and shares are counted. IPv6 users are assigned
/// networks with 64-bit interface identifiers (RFC 4291 §2.5.4).
pub(crate) fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

/// The access policy of a server.
#[derive(Debug)]
pub struct Access {
    anonymous: Arc<[Grant]>,
    tokens: Option<tokens::Verifier>,
    passwords: Option<Passwords>,
    users: Vec<UserGrants>,
}

/// Rights of users with a password.
#[derive(Debug)]
struct UserGrants {
    /// User names; `None` means all users.
    names: Option<Vec<String>>,
    grants: Vec<Grant>,
}

impl Access {
    /// Builds the policy from `config`.
    ///
    /// # Errors
    /// [`StartError::Access`] for an invalid path, or for keys or passwords that cannot be read.
    pub fn new(config: &AccessConfig) -> Result<Self, StartError> {
        let mut anonymous = Vec::new();
        for rule in &config.anonymous {
            anonymous.extend(grants("anonymous", &rule.path, &rule.allow)?);
        }
        let mut users = Vec::new();
        for rule in &config.users {
            let grants = grants("users", &rule.path, &rule.allow)?;
            users.push(UserGrants { names: rule.names.clone(), grants });
        }
        let tokens = if config.issuers.is_empty() { None } else { Some(tokens::Verifier::new(config)?) };
        let passwords = config.passwords.as_deref().map(|path| Passwords::new(path, &config.realm)).transpose()?;
        Ok(Self { anonymous: anonymous.into(), tokens, passwords, users })
    }

    /// Returns the password authenticator, if configured.
    pub(crate) fn passwords(&self) -> Option<&Passwords> {
        self.passwords.as_ref()
    }

    /// Returns the identity of the password user `name` at `address`.
    pub(crate) fn user(&self, name: Arc<str>, address: IpAddr) -> Identity {
        let is_for = |names: &Vec<String>| names.iter().any(|known| **known == *name);
        let rules = self.users.iter().filter(|rule| rule.names.as_ref().is_none_or(is_for));
        let grants = rules.flat_map(|rule| rule.grants.iter().cloned()).collect();
        // Token issuers are web URLs, so no issuer can have this name.
        let issuer = self.passwords.as_ref().map(|passwords| format!("realm:{}", passwords.realm()).into());
        let caller = Caller { subject: Some(name), issuer, address: Some(address), ..Caller::default() };
        Identity { caller, grants, expires_s: None }
    }

    /// Whether the server accepts tokens.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Returns the identity of a caller at `address` without a token or a password.
    pub fn anonymous(&self, address: IpAddr) -> Identity {
        let caller = Caller { address: Some(address), ..Caller::default() };
        Identity { caller, grants: Arc::clone(&self.anonymous), expires_s: None }
    }

    /// Returns the identity of a caller at `address`, using the bearer token if the request has one. A server without
    /// issuers ignores tokens, because clients send theirs to every server.
    ///
    /// # Errors
    /// See [`Self::bearer`].
    pub(crate) async fn identify(&self, token: Option<&Secret>, address: IpAddr) -> Result<Identity> {
        match token.filter(|_| self.takes_tokens()) {
            Some(token) => self.bearer(token.expose(), address).await,
            None => Ok(self.anonymous(address)),
        }
    }

    /// Authenticates a caller at `address` by its bearer token.
    ///
    /// # Errors
    /// `AuthenticationFailed` if the token is malformed, forged, expired, for another audience, or of an untrusted
    /// issuer; `Unavailable` if the issuer's keys are currently unavailable.
    pub async fn bearer(&self, token: &str, address: IpAddr) -> Result<Identity> {
        match &self.tokens {
            Some(verifier) => verifier.identify(token, address).await,
            None => Err(Error::new(
                Fault::AuthenticationFailed,
                "this server does not accept tokens: no issuer is configured",
            )),
        }
    }
}

/// Converts a rule into grants.
fn grants(kind: &str, path: &str, allow: &[Right]) -> Result<Vec<Grant>, StartError> {
    let at = StorePath::parse(path.as_bytes())
        .map_err(|error| StartError::Access(format!("{kind} path `{path}`: {error}")))?;
    let directory = path.ends_with('/');
    Ok(allow.iter().map(|right| Grant { right: *right, path: at.clone(), directory }).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UserRule;

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    fn holder(right: Right, at: &str) -> Identity {
        let caller = Caller { subject: Some("alice".into()), ..Caller::default() };
        Identity {
            caller,
            grants: [Grant { right, path: path(at), directory: at.ends_with('/') }].into(),
            expires_s: None,
        }
    }

    #[test]
    fn scopes_end_at_components() {
        let alice = holder(Right::Read, "/foo/bar");
        assert!(alice.check(Activity::Read, &path("/foo/bar/x")).is_ok());
        assert!(alice.check(Activity::Stat, &path("/foo")).is_ok(), "the way there may be asked about");
        let refused = alice.check(Activity::Read, &path("/foo/bargain")).unwrap_err();
        assert_eq!(refused.fault(), Fault::PermissionDenied);
        assert!(alice.check(Activity::Read, &path("/foo")).is_err());
    }

    #[test]
    fn create_does_not_overwrite() {
        let alice = holder(Right::Create, "/");
        assert!(alice.check(Activity::Create, &path("/new")).is_ok());
        assert!(alice.check(Activity::Modify, &path("/old")).is_err());
        assert!(alice.check(Activity::Read, &path("/old")).is_err());
    }

    #[test]
    fn create_makes_the_way_there_and_renames_its_own() {
        let alice = holder(Right::Create, "/foo/bar");
        for (activity, at, allowed) in [
            (Activity::CreateDirectory, "/foo", true),
            (Activity::CreateDirectory, "/foo/bar/qux", true),
            (Activity::CreateDirectory, "/other", false),
            (Activity::Create, "/foo/bar", true),
            (Activity::Create, "/foo", false),
            (Activity::Create, "/foo/bargain", false),
            (Activity::Rename, "/foo/bar/x.part", true),
            (Activity::Rename, "/foo/other", false),
        ] {
            assert_eq!(alice.check(activity, &path(at)).is_ok(), allowed, "{activity:?} {at}");
        }
        assert!(holder(Right::Read, "/foo/bar").check(Activity::CreateDirectory, &path("/foo")).is_err());
    }

    #[test]
    fn a_trailing_slash_is_a_directory() {
        for (right, activity, allowed) in [
            (Right::Create, Activity::Create, false),
            (Right::Create, Activity::CreateDirectory, true),
            (Right::Read, Activity::Read, false),
            (Right::Read, Activity::List, true),
            (Right::Modify, Activity::Modify, false),
            (Right::Modify, Activity::Stat, true),
        ] {
            let alice = holder(right, "/foo/bar/");
            assert_eq!(alice.check(activity, &path("/foo/bar")).is_ok(), allowed, "{right:?} {activity:?}");
            assert!(alice.check(activity, &path("/foo/bar/x")).is_ok(), "{right:?} {activity:?}");
        }
    }

    #[test]
    fn a_grant_on_the_root_covers_the_root() {
        for (right, at, activity, allowed) in [
            (Right::Modify, "/", Activity::Modify, true),
            (Right::Modify, "/", Activity::Create, true),
            (Right::Create, "/", Activity::Modify, false),
            (Right::Read, "/", Activity::Modify, false),
            (Right::Read, "/", Activity::List, true),
            (Right::Stat, "/", Activity::Stat, true),
            (Right::Modify, "/foo", Activity::Modify, false),
            (Right::Modify, "/foo/", Activity::Modify, false),
            (Right::Modify, "/foo/", Activity::Stat, true),
        ] {
            let alice = holder(right, at);
            assert_eq!(alice.check(activity, &path("/")).is_ok(), allowed, "{right:?} on {at}: {activity:?} of /");
        }
    }

    #[test]
    fn asking_is_the_least_right() {
        let alice = holder(Right::Stat, "/foo");
        assert!(alice.check(Activity::Stat, &path("/foo/x")).is_ok());
        assert!(alice.check(Activity::Read, &path("/foo/x")).is_err());
        assert!(alice.check(Activity::List, &path("/foo")).is_err());
    }

    #[test]
    fn anonymous_reads_by_default_and_is_told_to_bring_a_token() {
        let access = Access::new(&AccessConfig::default()).unwrap();
        let anybody = access.anonymous(IpAddr::from([127, 0, 0, 1]));
        assert!(anybody.check(Activity::Read, &path("/x")).is_ok());
        assert_eq!(anybody.check(Activity::Create, &path("/x")).unwrap_err().fault(), Fault::AuthenticationFailed);
    }

    #[test]
    fn users_have_the_rights_of_the_rules_that_name_them() {
        let rule = |names: Option<&[&str]>, path: &str, right| UserRule {
            names: names.map(|names| names.iter().map(ToString::to_string).collect()),
            path: path.into(),
            allow: vec![right],
        };
        let users = vec![
            rule(None, "/public", Right::Read),
            rule(Some(&["alice", "bob"]), "/group", Right::Modify),
            rule(Some(&["bob"]), "/own", Right::Create),
            rule(Some(&[]), "/", Right::Read),
        ];
        let access = Access::new(&AccessConfig { users, ..AccessConfig::default() }).unwrap();
        for (name, activity, at, allowed) in [
            ("alice", Activity::Read, "/public/x", true),
            ("carol", Activity::Read, "/public/x", true),
            ("alice", Activity::Read, "/x", false),
            ("alice", Activity::Modify, "/group/x", true),
            ("carol", Activity::Modify, "/group/x", false),
            ("bob", Activity::Create, "/own/x", true),
            ("alice", Activity::Create, "/own/x", false),
            ("Alice", Activity::Modify, "/group/x", false),
        ] {
            let outcome = access.user(name.into(), [127, 0, 0, 1].into()).check(activity, &path(at));
            let expected = if allowed { Ok(()) } else { Err(Fault::PermissionDenied) };
            assert_eq!(outcome.map_err(|error| error.fault()), expected, "{name} {activity:?} {at}");
        }
    }

    #[test]
    fn expired_is_refused() {
        let mut alice = holder(Right::Read, "/");
        alice.expires_s = Some(1);
        assert_eq!(alice.check(Activity::Read, &path("/x")).unwrap_err().fault(), Fault::AuthenticationFailed);
    }
}
