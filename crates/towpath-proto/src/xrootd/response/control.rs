//! Responses that are not results: errors, redirects, waits and unsolicited responses.

use bytes::{BufMut, Bytes, BytesMut};

use super::ResponseHeader;
use crate::fault::Fault;
use crate::xrootd::wire::{Reader, until_nul};
use crate::xrootd::{ActionCode, DecodeError, ErrorCode, RedirectFlags};

/// Converts text for people from a peer whose encoding is unknown.
fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Body of [`Status::error`](crate::xrootd::Status::error).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorReply {
    /// Error code.
    pub code: ErrorCode,
    /// Description for people.
    pub message: String,
    /// The fault that a towpath server names after the end of the message if the code means another fault: the protocol
    /// has fewer codes. Other clients read the message up to its NUL.
    pub named: Option<Fault>,
}

impl ErrorReply {
    /// Returns the fault named by the server, or that of its code.
    pub fn fault(&self) -> Fault {
        self.named.unwrap_or_else(|| Fault::from_xrootd(self.code.0))
    }

    pub(super) fn write(code: ErrorCode, message: &str, fault: Option<Fault>, out: &mut BytesMut) {
        out.put_u32(code.0);
        out.put_slice(message.split('\0').next().unwrap_or_default().as_bytes());
        out.put_u8(0);
        if let Some(fault) = fault.filter(|fault| Fault::from_xrootd(code.0) != *fault) {
            out.put_slice(fault.name().as_bytes());
            out.put_u8(0);
        }
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        Self::write(self.code, &self.message, self.named, out);
    }

    pub(super) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let code = ErrorCode(reader.u32("error code")?);
        let text = reader.rest();
        let mut parts = text.split(|byte| *byte == 0);
        let message = lossy(parts.next().unwrap_or_default());
        let named = parts.next().and_then(|name| Fault::from_name(str::from_utf8(name).ok()?));
        Ok(Self { code, message, named })
    }
}

/// Body of [`Status::redirect`](crate::xrootd::Status::redirect): where to repeat the request.
#[derive(Clone, PartialEq, Eq)]
pub enum Redirect {
    /// Another server.
    Host {
        /// Host name or address.
        host: String,
        /// TCP port, 1 to `i32::MAX`.
        port: u32,
        /// Appended to the opaque information of the path; may be empty.
        cgi: Bytes,
        /// Appended to the information in the next `login`; may be empty.
        login_cgi: Bytes,
    },
    /// A URL, only for clients that announced [`fullurl`](crate::xrootd::LoginAbility::fullurl).
    Url {
        /// The whole URL, with its opaque information.
        url: String,
        /// Permitted uses of the redirect.
        flags: RedirectFlags,
    },
}

impl std::fmt::Debug for Redirect {
    /// Omits opaque information, because it may contain tokens.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host { host, port, .. } => write!(f, "Redirect({host}:{port})"),
            Self::Url { url, flags } => {
                write!(f, "Redirect({}, {:#x})", url.split('?').next().unwrap_or_default(), flags.0)
            }
        }
    }
}

impl Redirect {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::Host { host, port, cgi, login_cgi } => {
                out.put_u32(*port);
                out.put_slice(host.as_bytes());
                if !cgi.is_empty() || !login_cgi.is_empty() {
                    out.put_u8(b'?');
                    out.put_slice(cgi);
                }
                if !login_cgi.is_empty() {
                    out.put_u8(b'?');
                    out.put_slice(login_cgi);
                }
            }
            Self::Url { url, flags } => {
                out.put_u32(!flags.0);
                out.put_slice(url.as_bytes());
            }
        }
    }

    pub(super) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let port = reader.u32("redirect port")?;
        let target = until_nul(reader.rest());
        let utf8 = |bytes: &[u8]| match std::str::from_utf8(bytes) {
            Ok("") => Err(DecodeError::Missing { what: "redirect target" }),
            Ok(text) => Ok(text.to_owned()),
            Err(_) => Err(DecodeError::Invalid { what: "redirect target" }),
        };
        if port > i32::MAX as u32 {
            return Ok(Self::Url { url: utf8(&target)?, flags: RedirectFlags(!port) });
        }
        if port == 0 {
            return Err(DecodeError::Invalid { what: "redirect port" });
        }
        let mut parts = target.splitn(3, |&byte| byte == b'?');
        let host = utf8(parts.next().unwrap_or_default())?;
        let mut cgi = || parts.next().map_or_else(Bytes::new, |part| target.slice_ref(part));
        Ok(Self::Host { host, port, cgi: cgi(), login_cgi: cgi() })
    }
}

/// Body of [`Status::wait`](crate::xrootd::Status::wait): repeat the request after a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// Delay in seconds.
    pub seconds: u32,
    /// Reason for people.
    pub message: String,
}

impl Wait {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.seconds);
        out.put_slice(self.message.as_bytes());
    }

    pub(super) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let seconds = reader.length("wait time")?;
        Ok(Self { seconds, message: lossy(&until_nul(reader.rest())) })
    }
}

/// Body of [`Status::waitresp`](crate::xrootd::Status::waitresp): the response will arrive as [`Attn::AsynResp`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WaitResp {
    /// Timeout in seconds.
    pub seconds: u32,
    /// Reason for people; may be empty.
    pub message: String,
}

impl WaitResp {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_u32(self.seconds);
        out.put_slice(self.message.as_bytes());
    }

    pub(super) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        let seconds = reader.length("wait time")?;
        Ok(Self { seconds, message: lossy(&until_nul(reader.rest())) })
    }
}

/// Body of [`Status::attn`](crate::xrootd::Status::attn): an unsolicited message of the server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Attn {
    /// A message for the user.
    AsyncMs(String),
    /// The response announced by a `waitresp`: pass it to [`Response::decode`](super::Response::decode).
    AsynResp {
        /// Header of the actual response, with the stream id of the request. Its `dlen` is that of `body`.
        header: ResponseHeader,
        /// Body of the response.
        body: Bytes,
    },
    /// Any other message; ignore it.
    Other {
        /// Its subject.
        action: ActionCode,
        /// The remaining bytes.
        body: Bytes,
    },
}

impl Attn {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        match self {
            Self::AsyncMs(message) => {
                out.put_u32(ActionCode::asyncms.0);
                out.put_slice(message.as_bytes());
            }
            Self::AsynResp { header, body } => {
                out.put_u32(ActionCode::asynresp.0);
                out.put_u32(0);
                out.put_slice(&header.to_bytes());
                out.put_slice(body);
            }
            Self::Other { action, body } => {
                out.put_u32(action.0);
                out.put_slice(body);
            }
        }
    }

    pub(super) fn decode(body: Bytes) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(body);
        Ok(match ActionCode(reader.u32("action code")?) {
            ActionCode::asyncms => Self::AsyncMs(lossy(&until_nul(reader.rest()))),
            ActionCode::asynresp => {
                reader.u32("reserved")?;
                let header = ResponseHeader::decode(&reader.array("asynresp header")?)?;
                let body = reader.take(header.dlen as usize, "asynresp body")?;
                Self::AsynResp { header, body }
            }
            action => Self::Other { action, body: reader.rest() },
        })
    }
}
