//! The rows of the error table, and the foreign codes in them.

use self::{errno::*, kxr::*};
use super::{Exit, Fault, Kind, Retry};

/// The codes of one fault in every protocol: `x` is the code to send, `x_in` lists the codes that decode to this fault.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// What happened.
    pub fault: Fault,
    /// Name for logs, metrics and programs.
    pub name: &'static str,
    /// The caller's options.
    pub kind: Kind,
    /// Whether sending the request again can help.
    pub retry: Retry,
    /// XRootD error code to send.
    pub xrootd: u32,
    /// XRootD error codes that mean this fault.
    pub xrootd_in: &'static [u32],
    /// HTTP status to send.
    pub http: u16,
    /// HTTP statuses that mean this fault.
    pub http_in: &'static [u16],
    /// Linux error number to report.
    pub errno: i32,
    /// Linux error numbers that mean this fault.
    pub errno_in: &'static [i32],
    /// Process exit code.
    pub exit: Exit,
    /// Short description for people.
    pub phrase: &'static str,
}

/// Short names for XRootD error codes.
mod kxr {
    use crate::xrootd::ErrorCode;

    pub(super) const ARG_INVALID: u32 = ErrorCode::ArgInvalid.0;
    pub(super) const ARG_MISSING: u32 = ErrorCode::ArgMissing.0;
    pub(super) const ARG_TOO_LONG: u32 = ErrorCode::ArgTooLong.0;
    pub(super) const FILE_LOCKED: u32 = ErrorCode::FileLocked.0;
    pub(super) const FILE_NOT_OPEN: u32 = ErrorCode::FileNotOpen.0;
    pub(super) const FS_ERROR: u32 = ErrorCode::FSError.0;
    pub(super) const INVALID_REQUEST: u32 = ErrorCode::InvalidRequest.0;
    pub(super) const IO_ERROR: u32 = ErrorCode::IOError.0;
    pub(super) const NO_MEMORY: u32 = ErrorCode::NoMemory.0;
    pub(super) const NO_SPACE: u32 = ErrorCode::NoSpace.0;
    pub(super) const NOT_AUTHORIZED: u32 = ErrorCode::NotAuthorized.0;
    pub(super) const NOT_FOUND: u32 = ErrorCode::NotFound.0;
    pub(super) const SERVER_ERROR: u32 = ErrorCode::ServerError.0;
    pub(super) const UNSUPPORTED: u32 = ErrorCode::Unsupported.0;
    pub(super) const NO_SERVER: u32 = ErrorCode::noserver.0;
    pub(super) const NOT_FILE: u32 = ErrorCode::NotFile.0;
    pub(super) const IS_DIRECTORY: u32 = ErrorCode::isDirectory.0;
    pub(super) const CANCELLED: u32 = ErrorCode::Cancelled.0;
    pub(super) const IT_EXISTS: u32 = ErrorCode::ItExists.0;
    pub(super) const CHK_SUM_ERR: u32 = ErrorCode::ChkSumErr.0;
    pub(super) const IN_PROGRESS: u32 = ErrorCode::inProgress.0;
    pub(super) const OVER_QUOTA: u32 = ErrorCode::overQuota.0;
    pub(super) const SIG_VER_ERR: u32 = ErrorCode::SigVerErr.0;
    pub(super) const DECRYPT_ERR: u32 = ErrorCode::DecryptErr.0;
    pub(super) const OVERLOADED: u32 = ErrorCode::Overloaded.0;
    pub(super) const FS_READ_ONLY: u32 = ErrorCode::fsReadOnly.0;
    pub(super) const BAD_PAYLOAD: u32 = ErrorCode::BadPayload.0;
    pub(super) const ATTR_NOT_FOUND: u32 = ErrorCode::AttrNotFound.0;
    pub(super) const TLS_REQUIRED: u32 = ErrorCode::TLSRequired.0;
    pub(super) const NO_REPLICAS: u32 = ErrorCode::noReplicas.0;
    pub(super) const AUTH_FAILED: u32 = ErrorCode::AuthFailed.0;
    pub(super) const IMPOSSIBLE: u32 = ErrorCode::Impossible.0;
    pub(super) const CONFLICT: u32 = ErrorCode::Conflict.0;
    pub(super) const TOO_MANY_ERRS: u32 = ErrorCode::TooManyErrs.0;
    pub(super) const REQ_TIMED_OUT: u32 = ErrorCode::ReqTimedOut.0;
    pub(super) const TIMER_EXPIRED: u32 = ErrorCode::TimerExpired.0;
}

/// Linux error numbers (asm-generic/errno.h), defined here because this crate builds for targets without libc.
mod errno {
    pub(super) const EPERM: i32 = 1;
    pub(super) const ENOENT: i32 = 2;
    pub(super) const EINTR: i32 = 4;
    pub(super) const EIO: i32 = 5;
    pub(super) const ENXIO: i32 = 6;
    pub(super) const E2BIG: i32 = 7;
    pub(super) const EBADF: i32 = 9;
    pub(super) const EAGAIN: i32 = 11;
    pub(super) const ENOMEM: i32 = 12;
    pub(super) const EACCES: i32 = 13;
    pub(super) const EFAULT: i32 = 14;
    pub(super) const ENOTBLK: i32 = 15;
    pub(super) const EBUSY: i32 = 16;
    pub(super) const EEXIST: i32 = 17;
    pub(super) const EXDEV: i32 = 18;
    pub(super) const ENODEV: i32 = 19;
    pub(super) const ENOTDIR: i32 = 20;
    pub(super) const EISDIR: i32 = 21;
    pub(super) const EINVAL: i32 = 22;
    pub(super) const ENFILE: i32 = 23;
    pub(super) const EMFILE: i32 = 24;
    pub(super) const ETXTBSY: i32 = 26;
    pub(super) const EFBIG: i32 = 27;
    pub(super) const ENOSPC: i32 = 28;
    pub(super) const ESPIPE: i32 = 29;
    pub(super) const EROFS: i32 = 30;
    pub(super) const EPIPE: i32 = 32;
    pub(super) const EDOM: i32 = 33;
    pub(super) const ERANGE: i32 = 34;
    pub(super) const EDEADLK: i32 = 35;
    pub(super) const ENAMETOOLONG: i32 = 36;
    pub(super) const ENOLCK: i32 = 37;
    pub(super) const ENOSYS: i32 = 38;
    pub(super) const ENOTEMPTY: i32 = 39;
    pub(super) const ELOOP: i32 = 40;
    pub(super) const EBADE: i32 = 52;
    pub(super) const EBADRQC: i32 = 56;
    pub(super) const ENODATA: i32 = 61;
    pub(super) const ETIME: i32 = 62;
    pub(super) const EPROTO: i32 = 71;
    pub(super) const EBADMSG: i32 = 74;
    pub(super) const EOVERFLOW: i32 = 75;
    pub(super) const EILSEQ: i32 = 84;
    pub(super) const EUSERS: i32 = 87;
    pub(super) const EMSGSIZE: i32 = 90;
    pub(super) const EPROTOTYPE: i32 = 91;
    pub(super) const EPROTONOSUPPORT: i32 = 93;
    pub(super) const EOPNOTSUPP: i32 = 95;
    pub(super) const EAFNOSUPPORT: i32 = 97;
    pub(super) const EADDRNOTAVAIL: i32 = 99;
    pub(super) const ENETDOWN: i32 = 100;
    pub(super) const ENETUNREACH: i32 = 101;
    pub(super) const ENETRESET: i32 = 102;
    pub(super) const ECONNABORTED: i32 = 103;
    pub(super) const ECONNRESET: i32 = 104;
    pub(super) const ENOBUFS: i32 = 105;
    pub(super) const ENOTCONN: i32 = 107;
    pub(super) const ESHUTDOWN: i32 = 108;
    pub(super) const ETIMEDOUT: i32 = 110;
    pub(super) const ECONNREFUSED: i32 = 111;
    pub(super) const EHOSTDOWN: i32 = 112;
    pub(super) const EHOSTUNREACH: i32 = 113;
    pub(super) const ESTALE: i32 = 116;
    pub(super) const EDQUOT: i32 = 122;
    pub(super) const ENOMEDIUM: i32 = 123;
    pub(super) const ECANCELED: i32 = 125;
    pub(super) const ENOKEY: i32 = 126;
    pub(super) const EKEYEXPIRED: i32 = 127;
    pub(super) const EKEYREVOKED: i32 = 128;
    pub(super) const EKEYREJECTED: i32 = 129;
}

/// The error table, in the order of [`Fault`]. Each value is in at most one `_in` list of its column.
#[rustfmt::skip] // one fault, four lines
pub const TABLE: &[Row] = &[
    Row { fault: Fault::NotFound, name: "NotFound", phrase: "no such file or directory",
          kind: Kind::NotFound, retry: Retry::No, exit: Exit::NotFound,
          xrootd: NOT_FOUND, xrootd_in: &[NOT_FOUND], http: 404, http_in: &[404, 410],
          errno: ENOENT, errno_in: &[ENOENT] },
    Row { fault: Fault::AttributeNotFound, name: "AttributeNotFound", phrase: "no such extended attribute",
          kind: Kind::NotFound, retry: Retry::No, exit: Exit::NotFound,
          xrootd: ATTR_NOT_FOUND, xrootd_in: &[ATTR_NOT_FOUND], http: 404, http_in: &[],
          errno: ENODATA, errno_in: &[ENODATA] },
    Row { fault: Fault::PermissionDenied, name: "PermissionDenied", phrase: "permission denied",
          kind: Kind::Denied, retry: Retry::No, exit: Exit::Denied,
          xrootd: NOT_AUTHORIZED, xrootd_in: &[NOT_AUTHORIZED], http: 403, http_in: &[402, 403, 451],
          errno: EACCES, errno_in: &[EACCES, EPERM] },
    Row { fault: Fault::AuthenticationFailed, name: "AuthenticationFailed", phrase: "valid credentials are required",
          kind: Kind::Denied, retry: Retry::No, exit: Exit::Denied,
          xrootd: AUTH_FAILED, xrootd_in: &[AUTH_FAILED, SIG_VER_ERR, DECRYPT_ERR], http: 401, http_in: &[401, 407,
                511],
          errno: EBADE, errno_in: &[EBADE, ENOKEY, EKEYEXPIRED, EKEYREVOKED] },
    Row { fault: Fault::ServerUntrusted, name: "ServerUntrusted", phrase: "the server is not trusted",
          kind: Kind::Denied, retry: Retry::No, exit: Exit::Denied,
          xrootd: AUTH_FAILED, xrootd_in: &[], http: 502, http_in: &[],
          errno: EKEYREJECTED, errno_in: &[EKEYREJECTED] },
    Row { fault: Fault::TlsRequired, name: "TlsRequired", phrase: "an encrypted connection is required",
          kind: Kind::Denied, retry: Retry::No, exit: Exit::Denied,
          xrootd: TLS_REQUIRED, xrootd_in: &[TLS_REQUIRED], http: 426, http_in: &[426],
          errno: EPROTOTYPE, errno_in: &[EPROTOTYPE] },
    Row { fault: Fault::ReadOnly, name: "ReadOnly", phrase: "the file system is read-only",
          kind: Kind::Denied, retry: Retry::No, exit: Exit::Denied,
          xrootd: FS_READ_ONLY, xrootd_in: &[FS_READ_ONLY], http: 403, http_in: &[],
          errno: EROFS, errno_in: &[EROFS] },
    Row { fault: Fault::InvalidArgument, name: "InvalidArgument", phrase: "an argument is not valid",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: ARG_INVALID, xrootd_in: &[ARG_INVALID, ARG_MISSING], http: 400, http_in: &[400, 416],
          errno: EINVAL, errno_in: &[EINVAL, ESPIPE, EDOM, ERANGE, EXDEV, ELOOP] },
    Row { fault: Fault::NameTooLong, name: "NameTooLong", phrase: "a name or list is too long",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: ARG_TOO_LONG, xrootd_in: &[ARG_TOO_LONG], http: 414, http_in: &[414, 431],
          errno: ENAMETOOLONG, errno_in: &[ENAMETOOLONG, E2BIG] },
    Row { fault: Fault::TooLarge, name: "TooLarge", phrase: "larger than the other side accepts",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: NO_MEMORY, xrootd_in: &[NO_MEMORY], http: 413, http_in: &[413],
          errno: EFBIG, errno_in: &[EFBIG, EOVERFLOW, EMSGSIZE] },
    Row { fault: Fault::Unsupported, name: "Unsupported", phrase: "not supported",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: UNSUPPORTED, xrootd_in: &[UNSUPPORTED], http: 501, http_in: &[405, 406, 415, 501, 505],
          errno: EOPNOTSUPP, errno_in: &[EOPNOTSUPP, ENOSYS, EPROTONOSUPPORT, EAFNOSUPPORT] },
    Row { fault: Fault::MalformedRequest, name: "MalformedRequest", phrase: "the request is malformed",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: INVALID_REQUEST, xrootd_in: &[INVALID_REQUEST, BAD_PAYLOAD], http: 400, http_in: &[],
          errno: EBADRQC, errno_in: &[EBADRQC] },
    Row { fault: Fault::IsDirectory, name: "IsDirectory", phrase: "is a directory",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: IS_DIRECTORY, xrootd_in: &[IS_DIRECTORY], http: 409, http_in: &[],
          errno: EISDIR, errno_in: &[EISDIR] },
    Row { fault: Fault::NotDirectory, name: "NotDirectory", phrase: "is not a directory",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: FS_ERROR, xrootd_in: &[], http: 409, http_in: &[],
          errno: ENOTDIR, errno_in: &[ENOTDIR] },
    Row { fault: Fault::NotRegular, name: "NotRegular", phrase: "is not a regular file",
          kind: Kind::Invalid, retry: Retry::No, exit: Exit::Invalid,
          xrootd: NOT_FILE, xrootd_in: &[NOT_FILE], http: 409, http_in: &[],
          errno: ENOTBLK, errno_in: &[ENOTBLK] },
    Row { fault: Fault::AlreadyExists, name: "AlreadyExists", phrase: "exists already",
          kind: Kind::Conflict, retry: Retry::No, exit: Exit::Conflict,
          xrootd: IT_EXISTS, xrootd_in: &[IT_EXISTS], http: 409, http_in: &[409],
          errno: EEXIST, errno_in: &[EEXIST] },
    Row { fault: Fault::NotEmpty, name: "NotEmpty", phrase: "the directory is not empty",
          kind: Kind::Conflict, retry: Retry::No, exit: Exit::Conflict,
          xrootd: IT_EXISTS, xrootd_in: &[], http: 409, http_in: &[],
          errno: ENOTEMPTY, errno_in: &[ENOTEMPTY] },
    Row { fault: Fault::Locked, name: "Locked", phrase: "locked or in use",
          kind: Kind::Conflict, retry: Retry::Yes, exit: Exit::Conflict,
          xrootd: FILE_LOCKED, xrootd_in: &[FILE_LOCKED, IN_PROGRESS], http: 423, http_in: &[423],
          errno: ETXTBSY, errno_in: &[ETXTBSY, EBUSY, EDEADLK, ENOLCK] },
    Row { fault: Fault::NoSpace, name: "NoSpace", phrase: "no space left",
          kind: Kind::Conflict, retry: Retry::No, exit: Exit::NoSpace,
          xrootd: NO_SPACE, xrootd_in: &[NO_SPACE], http: 507, http_in: &[507],
          errno: ENOSPC, errno_in: &[ENOSPC] },
    Row { fault: Fault::QuotaExceeded, name: "QuotaExceeded", phrase: "quota exceeded",
          kind: Kind::Conflict, retry: Retry::No, exit: Exit::NoSpace,
          xrootd: OVER_QUOTA, xrootd_in: &[OVER_QUOTA], http: 507, http_in: &[],
          errno: EDQUOT, errno_in: &[EDQUOT] },
    Row { fault: Fault::Changed, name: "Changed", phrase: "no longer the requested version",
          kind: Kind::Conflict, retry: Retry::AfterReopen, exit: Exit::Conflict,
          xrootd: CONFLICT, xrootd_in: &[CONFLICT], http: 412, http_in: &[412, 428],
          errno: ESTALE, errno_in: &[ESTALE] },
    Row { fault: Fault::ChecksumMismatch, name: "ChecksumMismatch", phrase: "the data do not match their checksum",
          kind: Kind::Corrupt, retry: Retry::Yes, exit: Exit::Corrupt,
          xrootd: CHK_SUM_ERR, xrootd_in: &[CHK_SUM_ERR, TOO_MANY_ERRS], http: 422, http_in: &[422],
          errno: EILSEQ, errno_in: &[EILSEQ, EBADMSG] },
    Row { fault: Fault::Truncated, name: "Truncated", phrase: "fewer bytes than promised",
          kind: Kind::Corrupt, retry: Retry::AfterReopen, exit: Exit::Corrupt,
          xrootd: IO_ERROR, xrootd_in: &[], http: 502, http_in: &[],
          errno: EIO, errno_in: &[] },
    Row { fault: Fault::Protocol, name: "Protocol", phrase: "the response is malformed",
          kind: Kind::Corrupt, retry: Retry::AfterReopen, exit: Exit::Corrupt,
          xrootd: SERVER_ERROR, xrootd_in: &[], http: 502, http_in: &[],
          errno: EPROTO, errno_in: &[EPROTO] },
    Row { fault: Fault::HandleNotOpen, name: "HandleNotOpen", phrase: "the file handle is not open",
          kind: Kind::Unavailable, retry: Retry::AfterReopen, exit: Exit::Unavailable,
          xrootd: FILE_NOT_OPEN, xrootd_in: &[FILE_NOT_OPEN], http: 503, http_in: &[],
          errno: EBADF, errno_in: &[EBADF] },
    Row { fault: Fault::Io, name: "Io", phrase: "the storage failed",
          kind: Kind::Unavailable, retry: Retry::AfterReopen, exit: Exit::Unavailable,
          xrootd: IO_ERROR, xrootd_in: &[IO_ERROR, FS_ERROR], http: 500, http_in: &[],
          errno: EIO, errno_in: &[EIO] },
    Row { fault: Fault::TimedOut, name: "TimedOut", phrase: "no response in time",
          kind: Kind::Unavailable, retry: Retry::Yes, exit: Exit::Unavailable,
          xrootd: REQ_TIMED_OUT, xrootd_in: &[REQ_TIMED_OUT, TIMER_EXPIRED], http: 504, http_in: &[408, 504],
          errno: ETIMEDOUT, errno_in: &[ETIMEDOUT, ETIME] },
    Row { fault: Fault::Overloaded, name: "Overloaded", phrase: "too busy",
          kind: Kind::Unavailable, retry: Retry::Yes, exit: Exit::Unavailable,
          xrootd: OVERLOADED, xrootd_in: &[OVERLOADED], http: 429, http_in: &[429],
          errno: EUSERS, errno_in: &[EUSERS, EAGAIN, ENOMEM, ENOBUFS, EMFILE, ENFILE] },
    Row { fault: Fault::Unavailable, name: "Unavailable", phrase: "the service cannot be reached",
          kind: Kind::Unavailable, retry: Retry::AfterReopen, exit: Exit::Unavailable,
          xrootd: NO_SERVER, xrootd_in: &[NO_SERVER, NO_REPLICAS], http: 503, http_in: &[421, 424, 425, 502, 503],
          errno: EHOSTUNREACH, errno_in: &[EHOSTUNREACH, ECONNREFUSED, ECONNRESET, ECONNABORTED, EPIPE, ENETUNREACH,
                ENETDOWN, ENETRESET, EHOSTDOWN, ENOTCONN, ESHUTDOWN, EADDRNOTAVAIL, ENODEV, ENXIO, ENOMEDIUM] },
    Row { fault: Fault::Cancelled, name: "Cancelled", phrase: "cancelled",
          kind: Kind::Unavailable, retry: Retry::No, exit: Exit::Cancelled,
          xrootd: CANCELLED, xrootd_in: &[CANCELLED], http: 499, http_in: &[499],
          errno: ECANCELED, errno_in: &[ECANCELED, EINTR] },
    Row { fault: Fault::Internal, name: "Internal", phrase: "internal error",
          kind: Kind::Internal, retry: Retry::No, exit: Exit::Internal,
          xrootd: SERVER_ERROR, xrootd_in: &[SERVER_ERROR, IMPOSSIBLE], http: 500, http_in: &[500],
          errno: EFAULT, errno_in: &[EFAULT] },
];
