//! The WebDAV properties of a file, and their XML.

use std::fmt::Write as _;

use super::{
    Depth, LCGDM, OWNCLOUD, TOWPATH,
    xml::{Element, Name, WRITING, close_tag, empty_tag, escape_text, open_tag},
};
use crate::{
    checksum::Digests,
    http::{condition::EntityTag, date, digest},
};

/// A property of a file with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Property {
    /// `resourcetype`.
    ResourceType(ResourceType),
    /// `getcontentlength`: the size in bytes.
    ContentLength(u64),
    /// `getcontenttype`.
    ContentType(String),
    /// `getlastmodified`, in Unix seconds.
    LastModified(i64),
    /// `creationdate`, in Unix seconds.
    CreationDate(i64),
    /// `getetag`.
    ETag(EntityTag),
    /// `displayname`: the last component of the path.
    DisplayName(String),
    /// `quota-available-bytes` (RFC 4331 §3).
    QuotaAvailableBytes(u64),
    /// `quota-used-bytes` (RFC 4331 §4).
    QuotaUsedBytes(u64),
    /// `supportedlock`: write locks, exclusive and shared.
    SupportedLock,
    /// `lockdiscovery`: the active locks.
    LockDiscovery(Vec<ActiveLock>),
    /// ownCloud's `checksums`; digests without a name there are omitted.
    Checksums(Digests),
    /// Type and permissions as in `st_mode`, in the property that grid clients read.
    Mode(u32),
    /// `node` in [`TOWPATH`]: whether an entry is a link, and the identity of a directory.
    Node {
        /// True for symbolic links.
        is_link: bool,
        /// Identifies a directory across servers; never 0.
        directory_id: Option<u64>,
    },
    /// A property set by a client, stored unchanged.
    Other(Element),
}

/// The kind of a resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResourceType {
    /// A file: the element `resourcetype` is empty.
    File,
    /// A directory: `collection`.
    Collection,
    /// A device, pipe, socket, or broken link, which GET rejects: `special` in the namespace [`TOWPATH`]. Clients that
    /// do not know the element see a resource without a length.
    Special,
}

/// Whether other clients may hold a lock on the same file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum LockScope {
    /// Other locks are excluded.
    Exclusive,
    /// Other shared locks are allowed.
    Shared,
}

impl LockScope {
    /// Returns the element's name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exclusive => "exclusive",
            Self::Shared => "shared",
        }
    }
}

/// An active write lock (RFC 4918 §14.1).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActiveLock {
    /// Whether other clients may hold a lock too.
    pub scope: LockScope,
    /// [`Depth::Zero`] or [`Depth::Infinity`].
    pub depth: Depth,
    /// The element `owner` as sent by the holder.
    pub owner: Option<Element>,
    /// Remaining time in seconds; `None` if it does not expire.
    pub timeout_s: Option<u32>,
    /// The token: a URI such as `urn:uuid:...`.
    pub token: String,
    /// Percent-encoded path of the locked resource ([`crate::url::encode_path`]).
    pub root_href: String,
}

impl Property {
    /// Returns the name of the property.
    pub fn name(&self) -> Name {
        match self {
            Self::ResourceType(_) => Name::dav("resourcetype"),
            Self::ContentLength(_) => Name::dav("getcontentlength"),
            Self::ContentType(_) => Name::dav("getcontenttype"),
            Self::LastModified(_) => Name::dav("getlastmodified"),
            Self::CreationDate(_) => Name::dav("creationdate"),
            Self::ETag(_) => Name::dav("getetag"),
            Self::DisplayName(_) => Name::dav("displayname"),
            Self::QuotaAvailableBytes(_) => Name::dav("quota-available-bytes"),
            Self::QuotaUsedBytes(_) => Name::dav("quota-used-bytes"),
            Self::SupportedLock => Name::dav("supportedlock"),
            Self::LockDiscovery(_) => Name::dav("lockdiscovery"),
            Self::Checksums(_) => Name::new(OWNCLOUD, "checksums"),
            Self::Mode(_) => Name::new(LCGDM, "mode"),
            Self::Node { .. } => Name::new(TOWPATH, "node"),
            Self::Other(element) => element.name.clone(),
        }
    }

    /// Returns whether `allprop` includes the property. Quotas are expensive and returned only on request (RFC 4331
    /// §3); nodes are only for towpath.
    pub(crate) fn is_usual(&self) -> bool {
        !matches!(self, Self::QuotaAvailableBytes(_) | Self::QuotaUsedBytes(_) | Self::Node { .. })
    }

    /// Writes the element.
    pub(super) fn write(&self, output: &mut String) {
        let name = self.name();
        let value = match self {
            Self::Other(element) => return element.write(output),
            Self::ResourceType(ResourceType::Collection) => "<D:collection/>".to_owned(),
            Self::ResourceType(ResourceType::Special) => format!("<special xmlns=\"{TOWPATH}\"/>"),
            Self::ResourceType(ResourceType::File) => String::new(),
            Self::ContentLength(bytes) | Self::QuotaAvailableBytes(bytes) | Self::QuotaUsedBytes(bytes) => {
                bytes.to_string()
            }
            Self::ContentType(text) | Self::DisplayName(text) => escape_text(text),
            Self::LastModified(unix_s) => date::format(*unix_s),
            Self::CreationDate(unix_s) => date::format_rfc3339(*unix_s),
            Self::ETag(tag) => escape_text(&tag.to_string()),
            Self::SupportedLock => [LockScope::Exclusive, LockScope::Shared].map(lock_entry).concat(),
            Self::LockDiscovery(locks) => locks.iter().map(ActiveLock::to_xml).collect(),
            Self::Checksums(digests) => match digest::write_owncloud(digests) {
                Some(text) => format!("<oc:checksum>{text}</oc:checksum>"),
                None => String::new(),
            },
            Self::Mode(mode) => format!("0{mode:o}"),
            Self::Node { is_link, directory_id } => {
                let words = [is_link.then(|| "link".to_owned()), directory_id.map(|id| format!("{id:x}"))];
                words.into_iter().flatten().collect::<Vec<_>>().join(" ")
            }
        };
        if value.is_empty() {
            return empty_tag(output, &name);
        }
        open_tag(output, &name);
        output.push_str(&value);
        close_tag(output, &name);
    }
}

fn lock_entry(scope: LockScope) -> String {
    let scope = scope.as_str();
    format!(
        "<D:lockentry><D:lockscope><D:{scope}/></D:lockscope>\
         <D:locktype><D:write/></D:locktype></D:lockentry>"
    )
}

impl ActiveLock {
    fn to_xml(&self) -> String {
        let mut xml = String::new();
        let timeout = self.timeout_s.map_or("Infinite".to_owned(), |seconds| format!("Second-{seconds}"));
        write!(
            xml,
            "<D:activelock><D:locktype><D:write/></D:locktype><D:lockscope><D:{}/></D:lockscope>\
             <D:depth>{}</D:depth>",
            self.scope.as_str(),
            self.depth.as_str(),
        )
        .expect(WRITING);
        if let Some(owner) = &self.owner {
            owner.write(&mut xml);
        }
        write!(
            xml,
            "<D:timeout>{timeout}</D:timeout><D:locktoken><D:href>{}</D:href></D:locktoken>\
             <D:lockroot><D:href>{}</D:href></D:lockroot></D:activelock>",
            escape_text(&self.token),
            escape_text(&self.root_href),
        )
        .expect(WRITING);
        xml
    }
}
