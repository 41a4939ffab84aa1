//! The XRootD ("xroot") protocol: encoding and decoding, without I/O and without a clock.
//!
//! | module | content |
//! | --- | --- |
//! | [`codes`], [`flags`], [`ids`], [`path`] | the basic types of the protocol, with its spelling |
//! | [`handshake`] | the first 20 bytes of a connection |
//! | [`request`] | the 24-byte header and one type for each request |
//! | [`response`] | the 8-byte header, the statuses and one type for each body |
//! | [`page`] | pages with CRC32C, as in `pgread` and `pgwrite` |
//! | [`auth`] | the list of security protocols and simple credentials |
//! | [`frame`] | splitting a stream of bytes into requests or responses |
//!
//! The life of a request in a server: [`RequestFramer::next`] returns a [`Request`], whose data, if any, are the next
//! bytes of the stream; the response is written with [`response::ok`] or [`response::error`]. In a client:
//! [`Request::encode`], and later [`ResponseFramer::next`] with the same [`StreamId`].
//!
//! Both directions tolerate deviations of deployed peers (trailing NULs, missing optional fields, unknown codes) and
//! bound every length before any allocation. Session state, such as open files and permissions, is kept by the caller.

pub mod auth;
pub mod codes;
mod error;
pub mod flags;
pub mod frame;
pub mod handshake;
pub mod ids;
pub mod page;
pub mod path;
pub mod request;
pub mod response;
mod wire;

pub use codes::{ActionCode, CheckpointCode, ErrorCode, Expect, PROTOCOL_VERSION, QueryCode, RequestCode, Status};
pub use error::DecodeError;
pub use flags::{
    DirlistOptions, LocateOptions, LoginAbility, LoginAbility2, MkdirOptions, Mode, OpenOptions, OpenOptions2,
    PageFlags, PrepareOptions, PrepareOptionsX, ProtocolRequestFlags, RedirectFlags, ServerFlags, SigverFlags,
    StatFlags, StatOptions, WritevOptions,
};
pub use frame::{IncomingRequest, RequestFramer, ResponseFramer, ResponseHead};
pub use ids::{FileHandle, PathId, SessionId, StreamId};
pub use path::{PathAndCgi, Target};
pub use request::{FattrOperation, Limits, Request, RequestHeader, VectorElement};
pub use response::{Body, Response, ResponseHeader};
pub use wire::Parameters;
