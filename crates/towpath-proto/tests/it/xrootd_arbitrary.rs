//! Any request and any response that can be expressed on the wire.

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use towpath_proto::checksum::{Algorithm, Algorithms, Digest, Extent};
use towpath_proto::xrootd::page::Page;
use towpath_proto::xrootd::request::*;
use towpath_proto::xrootd::response::*;
use towpath_proto::xrootd::*;

pub(super) fn stream_id() -> impl Strategy<Value = StreamId> {
    any::<[u8; 2]>().prop_map(StreamId)
}

fn handle() -> impl Strategy<Value = FileHandle> {
    any::<[u8; 4]>().prop_map(FileHandle)
}

/// Offsets and sizes, often near the limits of int64.
pub(super) fn offset() -> impl Strategy<Value = u64> {
    prop_oneof![0..10_000u64, 0..=i64::MAX as u64, Just(i64::MAX as u64)]
}

fn promise() -> impl Strategy<Value = FileExpectation> {
    let digests = vec((prop::sample::select(&[Algorithm::Crc32c, Algorithm::Adler32]), any::<u32>()), 0..3);
    (offset(), any::<Option<i64>>(), digests).prop_map(|(size, mtime_ns, digests)| {
        let digest = |(algorithm, value): (Algorithm, u32)| Digest::new(algorithm, &value.to_be_bytes()).unwrap();
        FileExpectation { size, mtime_ns, digests: digests.into_iter().map(digest).collect() }
    })
}

fn ending() -> impl Strategy<Value = CloseAction> {
    prop_oneof![promise().prop_map(CloseAction::Commit), Just(CloseAction::Keep), Just(CloseAction::Abandon)]
}

/// Any extents; whether they make sense is for who gets them to say.
pub(super) fn extents() -> impl Strategy<Value = Vec<Extent>> {
    let extent = (0..=i64::MAX as u64, vec(any::<u8>(), 0..20));
    vec(extent.prop_map(|(offset, data)| Extent::of(Algorithms::DEFAULT, offset, &data).unwrap()), 0..5)
}

fn length() -> impl Strategy<Value = u32> {
    prop_oneof![0..10_000u32, 0..=i32::MAX as u32]
}

fn any_bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..60).prop_map(Bytes::from)
}

/// Bytes without NUL that do not end a text early.
fn text() -> impl Strategy<Value = Bytes> {
    vec(1..=255u8, 0..40).prop_map(Bytes::from)
}

/// Bytes of a path, without separators.
fn component(shortest: usize) -> impl Strategy<Value = Bytes> {
    let byte = any::<u8>().prop_filter("separators", |byte| !b"\0? \n\t\r&,*".contains(byte));
    vec(byte, shortest..30).prop_map(Bytes::from)
}

fn path() -> impl Strategy<Value = PathAndCgi> {
    (component(1), component(0)).prop_map(|(path, cgi)| PathAndCgi { path, cgi })
}

fn target() -> impl Strategy<Value = Target> {
    prop_oneof![path().prop_map(Target::Path), handle().prop_map(Target::Handle)]
}

fn element() -> impl Strategy<Value = VectorElement> {
    (handle(), length(), offset()).prop_map(|(handle, length, offset)| VectorElement { handle, length, offset })
}

/// A request of any kind.
pub(super) fn request() -> impl Strategy<Value = Request> {
    prop_oneof![session_request(), file_request(), bulk_request(), path_request(), query(), fattr(), extension()]
}

fn session_request() -> impl Strategy<Value = Request> {
    let protocol = (any::<u32>(), any::<u8>(), any::<u8>()).prop_map(|(client_version, flags, expect)| {
        let (flags, expect) = (ProtocolRequestFlags(flags), Expect(expect));
        Protocol { client_version, flags, expect }.into()
    });
    let login =
        (any::<u32>(), any::<[u8; 8]>(), any::<[u8; 3]>(), text()).prop_map(|(pid, user, [a, b, capver], cgi)| {
            let (ability, ability2) = (LoginAbility(a), LoginAbility2(b));
            Login { pid, user, ability2, ability, capver, cgi }.into()
        });
    let auth = (any::<[u8; 4]>(), any_bytes())
        .prop_map(|(credential_type, credentials)| Auth { credential_type, credentials }.into());
    let bind = any::<[u8; 16]>().prop_map(|id| Bind { session_id: SessionId(id) }.into());
    let endsess = any::<[u8; 16]>().prop_map(|id| Endsess { session_id: SessionId(id) }.into());
    let set = (any::<u8>(), text()).prop_map(|(modifier, text)| Set { modifier, text }.into());
    let sigver = (any::<u16>(), any::<[u8; 3]>(), any::<u64>(), any_bytes()).prop_map(
        |(expected, [version, flags, crypto], seqno, signature)| {
            let (expected, flags) = (RequestCode(expected), SigverFlags(flags));
            Sigver { expected, version, flags, seqno, crypto, signature }.into()
        },
    );
    prop_oneof![protocol, login, auth, bind, endsess, Just(Ping.into()), set, sigver]
}

fn file_request() -> impl Strategy<Value = Request> {
    let open = (any::<([u16; 3], bool)>(), handle(), path()).prop_map(|(flags, template, path)| {
        let ([mode, options, options2], wants_checksum) = flags;
        let (mode, options, options2) = (Mode(mode), OpenOptions(options), OpenOptions2(options2));
        Open { mode, options, options2, template, wants_checksum, path }.into()
    });
    let close = (handle(), prop::option::of(ending())).prop_map(|(handle, ending)| Close { handle, ending }.into());
    let sync = handle().prop_map(|handle| Sync { handle }.into());
    let truncate = (target(), offset()).prop_map(|(target, size)| Truncate { target, size }.into());
    prop_oneof![open, close, sync, truncate]
}

/// A short length, so that tests can make up the data.
fn data_len() -> impl Strategy<Value = u32> {
    0..5000u32
}

fn bulk_request() -> impl Strategy<Value = Request> {
    let path_id = || any::<u8>().prop_map(PathId);
    let flags = || any::<u8>().prop_map(PageFlags);
    let read = (handle(), offset(), length(), path_id())
        .prop_map(|(handle, offset, length, path_id)| Read { handle, offset, length, path_id }.into());
    let pgread = (handle(), offset(), 1..=i32::MAX as u32, path_id(), flags())
        .prop_map(|(handle, offset, length, path_id, flags)| PgRead { handle, offset, length, path_id, flags }.into());
    let write = (handle(), offset(), path_id(), data_len())
        .prop_map(|(handle, offset, path_id, length)| Write { handle, offset, path_id, length }.into());
    let pgwrite = (handle(), offset(), path_id(), flags(), data_len())
        .prop_map(|(handle, offset, path_id, flags, length)| PgWrite { handle, offset, path_id, flags, length }.into());
    let readv = (path_id(), vec(element(), 1..20)).prop_map(|(path_id, elements)| Readv { path_id, elements }.into());
    let short =
        (handle(), 0..300u32, offset()).prop_map(|(handle, length, offset)| VectorElement { handle, length, offset });
    let writev = (any::<u8>(), vec(short, 1..20))
        .prop_map(|(options, elements)| Writev { options: WritevOptions(options), elements }.into());
    prop_oneof![read, pgread, write, pgwrite, readv, writev]
}

fn path_request() -> impl Strategy<Value = Request> {
    let stat = (any::<u8>(), any::<u32>(), any::<bool>(), target()).prop_map(|(options, wants, wants_node, target)| {
        Stat { options: StatOptions(options), wants, wants_node, target }.into()
    });
    let dirlist = (any::<u8>(), any::<bool>(), path())
        .prop_map(|(options, wants_node, path)| Dirlist { options: DirlistOptions(options), wants_node, path }.into());
    let locate =
        (any::<u16>(), path()).prop_map(|(options, path)| Locate { options: LocateOptions(options), path }.into());
    let mkdir = (any::<u8>(), any::<u16>(), path())
        .prop_map(|(options, mode, path)| Mkdir { options: MkdirOptions(options), mode: Mode(mode), path }.into());
    let chmod = (any::<u16>(), path()).prop_map(|(mode, path)| Chmod { mode: Mode(mode), path }.into());
    let rm = path().prop_map(|path| Rm { path }.into());
    let rmdir = path().prop_map(|path| Rmdir { path }.into());
    let mv = (path(), path()).prop_map(|(from, to)| Mv { from, to }.into());
    let statx = vec(path(), 0..5).prop_map(|paths| Statx::new(paths).into());
    let prepare = (any::<[u8; 2]>(), any::<[u16; 2]>(), vec(path(), 0..5)).prop_map(
        |([options, priority], [port, options_x], paths)| {
            let (options, options_x) = (PrepareOptions(options), PrepareOptionsX(options_x));
            let prepare = Prepare { options, priority, port, options_x, list: Bytes::new() };
            prepare.with_paths(paths).into()
        },
    );
    prop_oneof![stat, dirlist, locate, mkdir, chmod, rm, rmdir, mv, statx, prepare]
}

fn query() -> impl Strategy<Value = Request> {
    let of_text = (text(), 0..4usize)
        .prop_map(|(text, kind)| [Query::Stats, Query::Prepare, Query::Config, Query::FsInfo][kind](text));
    let of_path = (path(), 0..5usize).prop_map(|(path, kind)| {
        [Query::Checksum, Query::ChecksumCancel, Query::Xattr, Query::Space, Query::OpaqueFile][kind](path)
    });
    let of_handle = (handle(), any_bytes(), 0..3).prop_map(|(handle, argument, kind)| match kind {
        0 => Query::Visa(handle),
        1 => Query::FileInfo { handle, argument },
        _ => Query::OpaqueHandle { handle, argument },
    });
    let other = (1000..2000u16, handle(), any_bytes()).prop_map(|(kind, handle, argument)| Query::Other {
        kind: QueryCode(kind),
        handle,
        argument,
    });
    let opaque = any_bytes().prop_map(Query::Opaque);
    prop_oneof![of_text, of_path, of_handle, opaque, other].prop_map(Request::from)
}

fn fattr() -> impl Strategy<Value = Request> {
    let names = || vec(component(1), 1..=16);
    let attribute = (component(1), any_bytes());
    let operation = prop_oneof![
        names().prop_map(FattrOperation::Del),
        names().prop_map(FattrOperation::Get),
        any::<bool>().prop_map(|values| FattrOperation::List { values }),
        (any::<bool>(), vec(attribute, 1..=16)).prop_map(|(new, attributes)| FattrOperation::Set { new, attributes }),
    ];
    (target(), operation).prop_map(|(target, operation)| Fattr { target, operation }.into())
}

fn extension() -> impl Strategy<Value = Request> {
    let control = (0..4u8).prop_map(|code| Checkpoint::Control(CheckpointCode(code)));
    let nested = (stream_id(), any::<[u8; 16]>(), 0..5000u32).prop_map(|(stream_id, parameters, dlen)| {
        let code = RequestCode::write;
        Checkpoint::Execute(RequestHeader { stream_id, code, parameters: Parameters(parameters), dlen })
    });
    let chkpoint =
        (handle(), prop_oneof![control, nested]).prop_map(|(handle, operation)| Chkpoint { handle, operation }.into());
    let element = (handle(), offset(), offset(), offset()).prop_map(|(source, source_offset, length, to)| {
        CloneElement { source, source_offset, length, destination_offset: to }
    });
    let clone = (handle(), vec(element, 0..10))
        .prop_map(|(destination, elements)| CloneRanges { destination, elements }.into());
    let gpfile = (any::<[u8; 16]>(), any_bytes())
        .prop_map(|(parameters, payload)| Gpfile { parameters: Parameters(parameters), payload }.into());
    prop_oneof![chkpoint, clone, gpfile]
}

/// A word without blanks, NUL and the separators of any text of the protocol.
fn word() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9_.-]{1,12}"
}

/// Metadata with or without the extended fields.
pub(super) fn stat_info() -> impl Strategy<Value = StatInfo> {
    let extended =
        (any::<[i64; 2]>(), 0..0o7777u16, word(), word()).prop_map(|([ctime, atime], mode, owner, group)| {
            StatExtended { ctime, atime, mode: Mode(mode), owner: owner.into(), group: group.into() }
        });
    let flags = any::<u32>().prop_map(StatFlags);
    let node = (any::<bool>(), proptest::option::of(1..=u64::MAX))
        .prop_map(|(is_link, directory_id)| NodeInfo { is_link, directory_id });
    let extended = proptest::option::of((extended, proptest::option::of(node)));
    (any::<u64>(), any::<u64>(), flags, any::<i64>(), extended).prop_map(|(id, size, flags, mtime, extended)| {
        let (extended, node) = extended.map_or((None, None), |(extended, node)| (Some(extended), node));
        StatInfo { id, size, flags, mtime, extended, node }
    })
}

/// The answer to a `protocol` request.
pub(super) fn protocol_reply() -> impl Strategy<Value = ProtocolReply> {
    let security =
        (any::<[u8; 3]>(), vec(any::<[u8; 2]>(), 0..10)).prop_map(|([version, options, level], overrides)| {
            SecurityRequirements { version, options, level: SecurityLevel(level), overrides }
        });
    (any::<[u32; 2]>(), proptest::option::of(text()), proptest::option::of(security)).prop_map(
        |([version, flags], bind_interfaces, security)| {
            let flags = ServerFlags(flags);
            ProtocolReply { version, flags, bind_interfaces, security }
        },
    )
}

/// The answer to a `locate` request.
pub(super) fn locations() -> impl Strategy<Value = Locations> {
    let location = (any::<[bool; 3]>(), word()).prop_map(|([manager, pending, writable], address)| LocationInfo {
        manager,
        pending,
        writable,
        address,
    });
    vec(location, 0..5).prop_map(Locations)
}

/// A checksum behind a stat text.
pub(super) fn checksum() -> impl Strategy<Value = EntryChecksum> {
    let checksum = (word(), word()).prop_filter("absent", |(_, value)| value != "none");
    checksum.prop_map(|(algorithm, value)| EntryChecksum { algorithm, value })
}

/// An entry of a directory; what the options of a request leave out is absent.
pub(super) fn entry(options: DirlistOptions) -> impl Strategy<Value = DirlistEntry> {
    let name = word().prop_filter("not a component", |name| name != "." && name != "..");
    (name, stat_info(), proptest::option::of(checksum())).prop_map(move |(name, stat, checksum)| DirlistEntry {
        name: name.into(),
        stat: options.with_stat().then_some(stat),
        checksum: checksum.filter(|_| options.contains(DirlistOptions::dcksm)),
    })
}

/// Attributes as the answer to `get` holds them.
pub(super) fn fattr_results() -> impl Strategy<Value = FattrResults> {
    let outcome = prop_oneof![any_bytes().prop_map(Ok), (1..=u32::from(u16::MAX)).prop_map(|c| Err(ErrorCode(c)))];
    let result = (component(1), outcome).prop_map(|(name, outcome)| FattrResult { name, outcome });
    vec(result, 0..16).prop_map(FattrResults)
}

/// Attributes as the answer to `list` holds them.
pub(super) fn fattr_list() -> impl Strategy<Value = (FattrList, bool)> {
    (vec((component(1), any_bytes()), 0..16), any::<bool>()).prop_map(|(entries, values)| {
        let entries = entries.into_iter();
        let entries = entries.map(|(name, value)| FattrEntry { name, value: values.then_some(value) });
        (FattrList(entries.collect()), values)
    })
}

/// Bad pages as a damaged write may leave them: ascending, only the first and the last short.
pub(super) fn bad_pages() -> impl Strategy<Value = Vec<Page>> {
    let inner = proptest::collection::btree_set(1..1_000_000u64, 0..20);
    (inner, 1..4096usize, 1..4096usize).prop_map(|(numbers, first, last)| {
        let mut pages: Vec<_> = numbers.into_iter().map(|n| Page { offset: n * 4096, length: 4096 }).collect();
        if let Some(page) = pages.last_mut() {
            page.length = last;
        }
        if let Some(page) = pages.first_mut() {
            *page = Page { offset: page.offset + (4096 - first) as u64, length: first };
        }
        pages
    })
}

/// A response of any status.
pub(super) fn response() -> impl Strategy<Value = Response> {
    let seconds = || 0..=i32::MAX as u32;
    let redirect =
        prop_oneof![
            (word(), 1..=65535u32, component(0), component(0))
                .prop_map(|(host, port, cgi, login_cgi)| Redirect::Host { host, port, cgi, login_cgi }),
            (word(), 0..0x8000u32).prop_map(|(url, flags)| Redirect::Url { url, flags: RedirectFlags(flags) }),
        ];
    let asynresp = (stream_id(), any_bytes()).prop_map(|(stream_id, body)| {
        let header = ResponseHeader { stream_id, status: Status::ok, dlen: body.len() as u32 };
        Attn::AsynResp { header, body }
    });
    let attn = prop_oneof![
        word().prop_map(Attn::AsyncMs),
        asynresp,
        any_bytes().prop_map(|body| Attn::Other { action: ActionCode(5003), body }),
    ];
    let kind = prop_oneof![Just(StatusKind::Final), Just(StatusKind::Partial), Just(StatusKind::Progress)];
    let status = (3000..3256u16, kind, length(), any_bytes()).prop_map(|(request, kind, data_len, info)| StatusBody {
        request: RequestCode(request),
        kind,
        data_len,
        info,
    });
    prop_oneof![
        any_bytes().prop_map(Response::Ok),
        any_bytes().prop_map(Response::OkSoFar),
        any_bytes().prop_map(Response::AuthMore),
        attn.prop_map(Response::Attn),
        (any::<u32>(), word()).prop_map(|(code, message)| {
            Response::Error(ErrorReply { code: ErrorCode(code), message, named: None })
        }),
        redirect.prop_map(Response::Redirect),
        (seconds(), word()).prop_map(|(seconds, message)| Response::Wait(Wait { seconds, message })),
        (seconds(), word()).prop_map(|(seconds, message)| Response::WaitResp(WaitResp { seconds, message })),
        status.prop_map(Response::Status),
    ]
}
