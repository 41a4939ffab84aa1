//! The 207 response: many resources, each with its properties or its status.

use std::fmt::Write as _;

use super::{
    property::{ActiveLock, Property},
    request::Propfind,
    xml::{DECLARATIONS, Name, WRITING, empty_tag, escape_text},
};

const XML_HEAD: &str = "<?xml version=\"1.0\" encoding=\"utf-8\"?>\n";

/// Writes the body of a 207 response piece by piece.
///
/// [`Multistatus::take`] returns the text written so far, so that a long listing can be streamed.
#[derive(Debug)]
pub struct Multistatus {
    output: String,
}

impl Default for Multistatus {
    fn default() -> Self {
        Self::new()
    }
}

impl Multistatus {
    /// Creates a response without resources.
    pub fn new() -> Self {
        Self { output: format!("{XML_HEAD}<D:multistatus {DECLARATIONS}>\n") }
    }

    /// Returns the text written since the last call.
    pub fn take(&mut self) -> String {
        std::mem::take(&mut self.output)
    }

    /// Returns the length of the text written since the last [`Multistatus::take`], in bytes.
    pub fn pending_bytes(&self) -> usize {
        self.output.len()
    }

    /// Returns the rest of the body.
    pub fn finish(mut self) -> String {
        self.output.push_str("</D:multistatus>\n");
        self.output
    }

    /// Writes a resource with those of its `properties` that `request` selects.
    ///
    /// `href` is its path, encoded ([`crate::url::encode_path`]), with a final slash if it is a directory.
    pub fn properties(&mut self, href: &str, request: &Propfind, properties: &[Property]) {
        self.open_response(href);
        match request {
            Propfind::AllProp { include } => {
                let asked = |property: &&Property| property.is_usual() || include.contains(&property.name());
                self.propstat(200, |output| {
                    properties.iter().filter(asked).for_each(|property| property.write(output));
                });
            }
            Propfind::PropName => self.propstat(200, |output| {
                properties.iter().for_each(|property| empty_tag(output, &property.name()));
            }),
            Propfind::Prop(names) => self.chosen(names, properties),
        }
        self.output.push_str("</D:response>\n");
    }

    /// Writes the requested `properties`, and the names of the missing ones with status 404.
    fn chosen(&mut self, names: &[Name], properties: &[Property]) {
        let find = |name: &Name| properties.iter().find(|property| property.name() == *name);
        let missing: Vec<_> = names.iter().filter(|name| find(name).is_none()).collect();
        if missing.len() < names.len() || names.is_empty() {
            self.propstat(200, |output| {
                names.iter().filter_map(find).for_each(|property| property.write(output));
            });
        }
        if !missing.is_empty() {
            self.propstat(404, |output| missing.iter().for_each(|name| empty_tag(output, name)));
        }
    }

    /// Writes a resource and the result of each property change of a PROPPATCH.
    pub fn outcomes(&mut self, href: &str, outcomes: &[(Name, u16)]) {
        self.open_response(href);
        let mut statuses: Vec<u16> = outcomes.iter().map(|(_, status)| *status).collect();
        statuses.sort_unstable();
        statuses.dedup();
        for status in statuses {
            self.propstat(status, |output| {
                let names = outcomes.iter().filter(|(_, other)| *other == status);
                names.for_each(|(name, _)| empty_tag(output, name));
            });
        }
        self.output.push_str("</D:response>\n");
    }

    /// Writes a resource for which the request as a whole had this status.
    pub fn status(&mut self, href: &str, status: u16) {
        self.open_response(href);
        writeln!(self.output, "<D:status>{}</D:status></D:response>", status_line(status)).expect(WRITING);
    }

    fn open_response(&mut self, href: &str) {
        write!(self.output, "<D:response><D:href>{}</D:href>", escape_text(href)).expect(WRITING);
    }

    fn propstat(&mut self, status: u16, write_properties: impl FnOnce(&mut String)) {
        self.output.push_str("<D:propstat><D:prop>");
        write_properties(&mut self.output);
        write!(self.output, "</D:prop><D:status>{}</D:status></D:propstat>", status_line(status)).expect(WRITING);
    }
}

/// Returns the status line for a `status` element.
fn status_line(status: u16) -> String {
    let reason = match status {
        200 => "OK",
        201 => "Created",
        204 => "No Content",
        403 => "Forbidden",
        404 => "Not Found",
        409 => "Conflict",
        412 => "Precondition Failed",
        423 => "Locked",
        424 => "Failed Dependency",
        500 => "Internal Server Error",
        507 => "Insufficient Storage",
        // The phrase may be empty (RFC 9112 §4).
        _ => "",
    };
    format!("HTTP/1.1 {status} {reason}")
}

/// Returns the body of an error response with the precondition that failed (RFC 4918 §16), such as
/// `propfind-finite-depth`, `no-conflicting-lock`, `lock-token-submitted` or `cannot-modify-protected-property`.
///
/// `href` is the offending resource, if the precondition requires one.
pub fn error_body(precondition: &'static str, href: Option<&str>) -> String {
    let name = Name::dav(precondition);
    let content = href.map(|href| format!("<D:href>{}</D:href>", escape_text(href))).unwrap_or_default();
    let local = &name.local;
    format!("{XML_HEAD}<D:error {DECLARATIONS}><D:{local}>{content}</D:{local}></D:error>\n")
}

/// Returns the body of the response to a LOCK: the new or refreshed lock.
pub fn lock_body(lock: &ActiveLock) -> String {
    let mut output = format!("{XML_HEAD}<D:prop {DECLARATIONS}>");
    Property::LockDiscovery(vec![lock.clone()]).write(&mut output);
    output.push_str("</D:prop>\n");
    output
}
