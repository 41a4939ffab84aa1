//! Access control: one policy for both faces.
//!
//! A caller is anonymous, presents a bearer token (HTTP's `Authorization`, XRootD's `ztn`, or `authz=` in a request's
//! opaque part), or logs in over HTTP with a password. Each becomes an [`Identity`]: a [`Caller`] with [`Grant`]s.
//! Credentials add to the rights of anonymous callers; a caller whose token is refused keeps those, and the refusal is
//! reported when they do not suffice. [`Identity::check`] is called before each store operation. Paths are compared by
//! whole components.

pub mod bearer;
mod denial;
mod rules;
pub mod tokens;

use std::{
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use towpath_store::{Caller, Error, Fault, Result, Secret, StorePath};

pub(crate) use self::{
    denial::{Denial, DenialLog, DenialReason},
    rules::{Callers, Rule, rules},
};
use crate::{
    ServeConfig, StartError,
    config::{IssuerConfig, Right},
    exports::Exports,
    metrics::Face,
    passwords::Passwords,
};

/// Maximum number of grants that a message lists.
const MAX_DESCRIBED_GRANTS: usize = 8;

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
    /// All activities.
    pub const ALL: [Self; 8] = [
        Self::Stat,
        Self::List,
        Self::Read,
        Self::Stage,
        Self::Create,
        Self::CreateDirectory,
        Self::Rename,
        Self::Modify,
    ];

    /// Returns the activity in words.
    pub fn name(self) -> &'static str {
        match self {
            Activity::CreateDirectory => "create a directory",
            other => other.verb(),
        }
    }

    fn verb(self) -> &'static str {
        match self {
            Activity::Stat => "stat",
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

/// How a request arrived.
#[derive(Debug, Clone, Copy)]
pub struct Channel {
    /// The protocol.
    pub face: Face,
    /// Address of the client.
    pub address: IpAddr,
    /// Whether the connection uses TLS.
    pub is_encrypted: bool,
}

/// An authenticated or anonymous caller with its grants.
#[derive(Debug, Clone, Default)]
pub struct Identity {
    /// The caller, as passed to stores.
    pub caller: Caller,
    /// Grants of the caller's credentials.
    pub grants: Arc<[Grant]>,
    /// Expiry of these grants, in seconds since the Unix epoch.
    pub expires_s: Option<i64>,
    /// Grants of all callers, with or without credentials.
    pub(crate) public: Arc<[Grant]>,
    /// Error of the credentials if they were refused; the caller is then anonymous.
    pub(crate) refused: Option<Error>,
    /// What an anonymous caller can do to get more rights.
    pub(crate) advice: &'static str,
    /// The exports of the server.
    pub(crate) exports: Arc<Exports>,
}

impl Identity {
    /// Checks that `activity` on `path` is allowed.
    ///
    /// # Errors
    /// `ReadOnly` if the export is read-only; `NotFound` outside of the exports; the error of refused credentials;
    /// `AuthenticationFailed` for an anonymous caller (a token or a password may help) or an expired token;
    /// `PermissionDenied` otherwise. All but those outside of the exports have a [reason](Error::reason), a
    /// [`DenialReason`].
    pub fn check(&self, activity: Activity, path: &StorePath) -> Result<()> {
        if self.may(activity, path) { Ok(()) } else { Err(self.denial(activity, path)) }
    }

    /// Checks the right to stat `path`, whose metadata decide which right is needed for `activity`, which includes the
    /// right to stat. The error is about `activity`, the purpose of the request, and does not reveal whether the path
    /// exists.
    ///
    /// # Errors
    /// See [`Self::check`].
    pub(crate) fn check_stat_before(&self, activity: Activity, path: &StorePath) -> Result<()> {
        if self.may(Activity::Stat, path) { Ok(()) } else { Err(self.denial(activity, path)) }
    }

    /// Like [`Self::check`], without an error message. Used for the stat text of each listing entry, which shows the
    /// reader's rights.
    pub fn may(&self, activity: Activity, path: &StorePath) -> bool {
        let allows = |required| self.valid_grants().any(|grant| grant.allows(required, path));
        self.exports.check(activity, path).is_ok() && self.exports.required(activity, path).is_some_and(allows)
    }

    /// Returns the grant that allows `activity` on `path`, and whether all callers have it.
    ///
    /// # Errors
    /// See [`Self::check`]; `NotFound` outside of the exports.
    pub fn explain(&self, activity: Activity, path: &StorePath) -> Result<(&Grant, bool)> {
        self.exports.check(activity, path)?;
        let required = self.exports.required(activity, path).ok_or_else(|| self.denial(activity, path))?;
        let allows = |grant: &&Grant| grant.allows(required, path);
        let public = self.public.iter().find(allows).map(|grant| (grant, true));
        let own = self.valid_grants().find(allows).map(|grant| (grant, false));
        public.or(own).ok_or_else(|| self.denial(activity, path))
    }

    /// Whether the caller may read all exports.
    pub(crate) fn may_read_all(&self) -> bool {
        self.exports.prefixes().all(|prefix| self.may(Activity::Read, prefix))
    }

    /// Returns the error of the credentials if they were refused; the caller is then anonymous.
    pub fn refusal(&self) -> Option<&Error> {
        self.refused.as_ref()
    }

    /// Whether the caller has any unexpired grant.
    pub(crate) fn has_rights(&self) -> bool {
        self.valid_grants().next().is_some()
    }

    /// Whether the request has a bearer token, valid or not.
    pub(crate) fn has_token(&self) -> bool {
        self.caller.token.is_some() || self.refused.is_some()
    }

    fn valid_grants(&self) -> impl Iterator<Item = &Grant> {
        let own: &[Grant] = if self.has_expired() { &[] } else { &self.grants };
        self.public.iter().chain(own)
    }

    fn has_expired(&self) -> bool {
        self.expires_s.is_some_and(|end| towpath_store::sys::clock::unix_s() >= end)
    }

    fn denial(&self, activity: Activity, path: &StorePath) -> Error {
        if let Err(error) = self.exports.check(activity, path) {
            return error;
        }
        if self.exports.required(activity, path).is_none() {
            return Error::new(Fault::NotFound, "no export contains this path").at(path);
        }
        let verb = activity.verb();
        // A SciToken may lack a subject; the issuer is named instead.
        let subject = self.caller.subject.as_ref().or(self.caller.issuer.as_ref());
        let error = match subject {
            Some(subject) if !self.has_expired() => {
                let (reason, message) = if self.caller.token.is_some() {
                    let rights = describe(&self.grants);
                    let message = format!("the token of {subject} does not let it {verb} this; it may {rights}");
                    (DenialReason::MissingScope, message)
                } else {
                    (DenialReason::MissingRight, format!("{subject} may not {verb} this"))
                };
                Error::new(Fault::PermissionDenied, message).with_reason(reason.name())
            }
            _ => self.unauthenticated(&format!("{verb} this")),
        };
        error.at(path)
    }

    /// Returns the error of a caller without valid credentials for an `action`: "read this".
    pub(crate) fn unauthenticated(&self, action: &str) -> Error {
        if let Some(refused) = &self.refused {
            let message = format!("{}; anonymous callers may not {action}", refused.message());
            return refused.clone().with_message(message);
        }
        let (reason, message) = if self.has_expired() {
            (DenialReason::TokenExpired, "the token has expired: get a new one".to_owned())
        } else {
            (DenialReason::Anonymous, format!("anonymous callers may not {action}: {}", self.advice))
        };
        Error::new(Fault::AuthenticationFailed, message).with_reason(reason.name())
    }
}

/// Describes grants in words: `read /a, create /b`.
pub fn describe(grants: &[Grant]) -> String {
    let shown = grants.iter().take(MAX_DESCRIBED_GRANTS);
    let mut words: Vec<String> = shown.map(|grant| format!("{} {}", grant.right.name(), grant.path)).collect();
    match grants.len().saturating_sub(MAX_DESCRIBED_GRANTS) {
        _ if grants.is_empty() => words.push("do nothing".into()),
        0 => {}
        more => words.push(format!("and {more} more")),
    }
    words.join(", ")
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
    passwords: Option<Arc<Passwords>>,
    users: Vec<UserGrants>,
    exports: Arc<Exports>,
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
    /// [`StartError::Export`] for invalid exports; [`StartError::Access`] for an invalid path, or for keys or passwords
    /// that cannot be read.
    pub fn new(config: &ServeConfig) -> Result<Self, StartError> {
        Self::load(config, None)
    }

    /// Like [`Self::new`], but keeps the state of `previous`: the fetched keys of issuers, and the failed attempts to
    /// log in.
    ///
    /// # Errors
    /// See [`Self::new`].
    pub(crate) fn load(config: &ServeConfig, previous: Option<&Self>) -> Result<Self, StartError> {
        let exports = Exports::new(config)?;
        let (mut anonymous, mut users) = (Vec::new(), Vec::new());
        for rule in rules(config, &exports)? {
            match rule.callers {
                Callers::Everyone => anonymous.extend(rule.grants()),
                Callers::Users(names) => {
                    users.push(UserGrants { names: names.map(<[_]>::to_vec), grants: rule.grants().collect() });
                }
            }
        }
        let config = &config.access;
        for IssuerConfig { issuer, base_path, .. } in &config.issuers {
            if StorePath::parse(base_path.as_bytes()).is_ok_and(|base| !exports.meet(&base)) {
                return Err(StartError::Access(format!("issuer `{issuer}`: no export contains {base_path}")));
            }
        }
        let tokens = if config.issuers.is_empty() { None } else { Some(tokens::Verifier::new(config)?) };
        if let Some((tokens, previous)) = tokens.as_ref().zip(previous.and_then(|previous| previous.tokens.as_ref())) {
            tokens.adopt_keys(previous);
        }
        let kept = previous.and_then(|previous| previous.passwords.clone());
        let passwords =
            config.passwords.as_deref().map(|path| match kept.filter(|kept| kept.is_for(path, &config.realm)) {
                Some(kept) => Ok(kept),
                None => Passwords::new(path, &config.realm).map(Arc::new),
            });
        let passwords = passwords.transpose()?;
        Ok(Self { anonymous: anonymous.into(), tokens, passwords, users, exports: Arc::new(exports) })
    }

    /// Returns the password authenticator, if configured.
    pub(crate) fn passwords(&self) -> Option<&Passwords> {
        self.passwords.as_deref()
    }

    /// Fetches the keys of all issuers. Returns the number of usable keys of each issuer, or the reason why there are
    /// none.
    pub(crate) async fn check_issuers(&self) -> Vec<(String, std::result::Result<usize, String>)> {
        match &self.tokens {
            Some(tokens) => tokens.check_issuers().await,
            None => Vec::new(),
        }
    }

    /// Returns each token issuer, and whether its keys could be fetched the last time.
    pub(crate) fn issuers(&self) -> impl Iterator<Item = (Arc<str>, bool)> {
        self.tokens.iter().flat_map(tokens::Verifier::issuers)
    }

    /// Fetches the keys of all issuers in the background; failures are logged.
    pub(crate) fn fetch_keys(&self) {
        self.tokens.iter().for_each(tokens::Verifier::fetch_keys);
    }

    /// Returns the identity of the password user `name` at `address`.
    pub fn user(&self, name: Arc<str>, address: IpAddr) -> Identity {
        let is_for = |names: &Vec<String>| names.iter().any(|known| **known == *name);
        let rules = self.users.iter().filter(|rule| rule.names.as_ref().is_none_or(is_for));
        let grants = rules.flat_map(|rule| rule.grants.iter().cloned()).collect();
        // Token issuers are web URLs, so no issuer can have this name.
        let issuer = self.passwords.as_ref().map(|passwords| format!("realm:{}", passwords.realm()).into());
        let caller = Caller { subject: Some(name), issuer, address: Some(address), ..Caller::default() };
        Identity { grants, ..self.identity(caller) }
    }

    /// Returns an identity with the rights of all callers.
    fn identity(&self, caller: Caller) -> Identity {
        let (public, exports) = (Arc::clone(&self.anonymous), Arc::clone(&self.exports));
        Identity { caller, public, exports, ..Identity::default() }
    }

    /// Whether the server accepts tokens.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.tokens.is_some()
    }

    /// Whether anonymous callers have any right.
    pub(crate) fn has_public_grants(&self) -> bool {
        !self.anonymous.is_empty()
    }

    /// Returns the identity of a caller without a token or a password.
    pub fn anonymous(&self, channel: &Channel) -> Identity {
        let caller = Caller { address: Some(channel.address), ..Caller::default() };
        Identity { advice: self.advice(channel), ..self.identity(caller) }
    }

    /// Returns what an anonymous caller can do to get more rights.
    fn advice(&self, channel: &Channel) -> &'static str {
        match (channel.face, self.takes_tokens(), self.passwords.is_some()) {
            (Face::Xrootd, true, _) if channel.is_encrypted => "send a token",
            (Face::Xrootd, true, _) => "send a token, which needs encryption: use roots://",
            (Face::Xrootd, false, true) => "log in with a password over https://",
            (Face::Http, true, true) => "send a token, or log in with a password",
            (Face::Http, true, false) => "send a token",
            (Face::Http, false, true) => "log in with a password",
            (_, false, false) => "this server accepts neither tokens nor passwords, so nobody may",
        }
    }

    /// Returns the identity of a caller, using the bearer token if the request has one. A caller whose token is refused
    /// is anonymous, and [`Identity::check`] returns the refusal where the rights of anonymous callers do not suffice.
    /// A server without issuers ignores tokens, because clients send theirs to every server.
    pub async fn identify(&self, token: Option<&Secret>, channel: &Channel) -> Identity {
        match token.filter(|_| self.takes_tokens()) {
            None => self.anonymous(channel),
            Some(token) => match self.bearer(token.expose(), channel).await {
                Ok(identity) => identity,
                Err(refused) => Identity { refused: Some(refused), ..self.anonymous(channel) },
            },
        }
    }

    /// Authenticates a caller by its bearer token.
    ///
    /// # Errors
    /// `AuthenticationFailed` if the token is malformed, forged, expired, for another audience, or of an untrusted
    /// issuer; `Unavailable` if the issuer's keys are currently unavailable.
    pub async fn bearer(&self, token: &str, channel: &Channel) -> Result<Identity> {
        let Some(verifier) = &self.tokens else {
            let message = "this server does not accept tokens: no issuer is configured";
            return Err(Error::new(Fault::AuthenticationFailed, message).with_reason(DenialReason::TokenIssuer.name()));
        };
        let verified = verifier.identify(token, channel.address).await?;
        let Identity { caller, grants, expires_s, .. } = verified;
        Ok(Identity { grants, expires_s, ..self.identity(caller) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{AccessConfig, UserRule};

    fn access(config: AccessConfig) -> Result<Access, StartError> {
        Access::new(&ServeConfig { access: config, ..ServeConfig::default() })
    }

    fn path(text: &str) -> StorePath {
        StorePath::parse(text.as_bytes()).unwrap()
    }

    fn holder(right: Right, at: &str) -> Identity {
        let caller = Caller { subject: Some("alice".into()), ..Caller::default() };
        let grants = [Grant { right, path: path(at), directory: at.ends_with('/') }].into();
        Identity { caller, grants, ..Identity::default() }
    }

    fn channel(face: Face, is_encrypted: bool) -> Channel {
        Channel { face, address: IpAddr::from([127, 0, 0, 1]), is_encrypted }
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
        let access = Access::new(&ServeConfig::default()).unwrap();
        let anybody = access.anonymous(&channel(Face::Http, false));
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
        let access = access(AccessConfig { users, anonymous: Vec::new(), ..AccessConfig::default() }).unwrap();
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

    #[tokio::test]
    async fn a_refused_token_leaves_the_rights_of_anonymous_callers() {
        let issuer = crate::config::IssuerConfig {
            issuer: "https://issuer.example".into(),
            base_path: "/".into(),
            keys: None,
            ca: None,
        };
        let access = access(AccessConfig { issuers: vec![issuer], ..AccessConfig::default() }).unwrap();
        let refused = access.identify(Some(&Secret::new("no.token.")), &channel(Face::Http, true)).await;
        assert!(refused.check(Activity::Read, &path("/x")).is_ok());
        let error = refused.check(Activity::Create, &path("/x")).unwrap_err();
        assert_eq!((error.fault(), error.reason()), (Fault::AuthenticationFailed, Some("token_malformed")));
        assert!(error.message().ends_with("; anonymous callers may not create this"), "{error}");
    }

    #[test]
    fn the_advice_to_anonymous_callers_fits_their_protocol() {
        let issuer = crate::config::IssuerConfig {
            issuer: "https://issuer.example".into(),
            base_path: "/".into(),
            keys: None,
            ca: None,
        };
        let nothing = Access::new(&ServeConfig::default()).unwrap();
        let tokens = access(AccessConfig { issuers: vec![issuer], ..AccessConfig::default() }).unwrap();
        for (access, face, is_encrypted, part) in [
            (&nothing, Face::Http, true, "neither tokens nor passwords"),
            (&tokens, Face::Http, false, "send a token"),
            (&tokens, Face::Xrootd, true, "send a token"),
            (&tokens, Face::Xrootd, false, "roots://"),
        ] {
            let error =
                access.anonymous(&channel(face, is_encrypted)).check(Activity::Create, &path("/x")).unwrap_err();
            assert!(error.message().contains(part), "{error}");
        }
    }

    #[test]
    fn expired_is_refused() {
        let mut alice = holder(Right::Read, "/");
        alice.expires_s = Some(1);
        assert_eq!(alice.check(Activity::Read, &path("/x")).unwrap_err().fault(), Fault::AuthenticationFailed);
    }
}
