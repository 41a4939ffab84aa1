//! Every request, response and body decodes to the encoded value.

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use towpath_proto::xrootd::auth::*;
use towpath_proto::xrootd::page;
use towpath_proto::xrootd::request::*;
use towpath_proto::xrootd::response::*;
use towpath_proto::xrootd::*;

use super::xrootd_arbitrary as arbitrary;

/// The body of a single response in `wire`.
fn only_body(wire: &[u8], status: Status) -> Bytes {
    let (head, body) = wire.split_first_chunk().unwrap();
    let header = ResponseHeader::decode(head).unwrap();
    assert_eq!((header.status, header.dlen as usize), (status, body.len()));
    Bytes::copy_from_slice(body)
}

fn body_round_trip<B: Body + PartialEq + std::fmt::Debug>(body: &B) {
    let mut out = BytesMut::new();
    ok(StreamId::ZERO, body, &mut out);
    assert_eq!(&B::decode(only_body(&out, Status::ok)).unwrap(), body);
}

proptest! {
    #[test]
    fn requests(stream_id in arbitrary::stream_id(), request in arbitrary::request()) {
        let mut out = BytesMut::from(&b"before"[..]);
        request.encode(stream_id, &mut out);
        let (head, payload) = out[6..].split_first_chunk().unwrap();
        let header = RequestHeader::decode(head).unwrap();
        prop_assert_eq!(header.stream_id, stream_id);
        prop_assert_eq!(header.code, request.code());
        prop_assert_eq!(header.argument_len(&Limits::default()), Ok(payload.len()));
        prop_assert_eq!(Request::decode(&header, Bytes::copy_from_slice(payload)), Ok(request));
    }

    #[test]
    fn responses(stream_id in arbitrary::stream_id(), response in arbitrary::response()) {
        let mut out = BytesMut::from(&b"before"[..]);
        response.encode(stream_id, &mut out);
        let (head, body) = out[6..].split_first_chunk().unwrap();
        let header = ResponseHeader::decode(head).unwrap();
        prop_assert_eq!(header.dlen as usize, body.len());
        prop_assert_eq!(header.stream_id == stream_id, header.status != Status::attn || stream_id == StreamId::ZERO);
        prop_assert_eq!(Response::decode(&header, Bytes::copy_from_slice(body)), Ok(response));
    }

    #[test]
    fn bodies(
        protocol in arbitrary::protocol_reply(),
        session_id in any::<[u8; 16]>(),
        stat in arbitrary::stat_info(),
        checksum in proptest::option::of(arbitrary::checksum()),
        present in proptest::option::of(arbitrary::extents()),
        handle in any::<[u8; 4]>(),
        locations in arbitrary::locations(),
        text in "[a-z =&:\n]{0,40}",
        flags in vec(0..256u32, 0..10),
    ) {
        body_round_trip(&protocol);
        body_round_trip(&LoginReply { session_id: SessionId(session_id), security: text.clone().into() });
        let handle = FileHandle(handle);
        body_round_trip(&OpenReply { handle, stat: Some(stat.clone()), checksum, present: present.clone() });
        body_round_trip(&OpenReply { handle, present, ..OpenReply::default() });
        body_round_trip(&stat);
        body_round_trip(&locations);
        body_round_trip(&Text::from(text));
        body_round_trip(&StatxReply(flags.into_iter().map(StatFlags).collect()));
        body_round_trip(&PathId(handle.0[0]));
    }

    #[test]
    fn attributes(results in arbitrary::fattr_results(), (list, values) in arbitrary::fattr_list()) {
        let operation = FattrOperation::Get(results.0.iter().map(|result| result.name.clone()).collect());
        prop_assert_eq!(FattrResults::from_body(results.to_body(&operation)), Ok(results));
        prop_assert_eq!(FattrList::from_body(list.to_body(), values), Ok(list));
    }

    /// Entries come out as they went in, wherever the bodies are cut.
    #[test]
    fn listings(
        (options, entries) in (0..16u8).prop_map(DirlistOptions)
            .prop_flat_map(|options| (Just(options), vec(arbitrary::entry(options), 0..20))),
        repeat in prop_oneof![Just(1usize), Just(100)],
        cut in 1..100usize,
        wants_node in any::<bool>(),
    ) {
        let request = Dirlist { options, wants_node, ..Dirlist::default() };
        let entries: Vec<_> = std::iter::repeat_n(entries, repeat).flatten().collect();
        let mut wire = BytesMut::new();
        let mut writer = DirlistWriter::new(StreamId::ZERO, &request, "adler32");
        for entry in &entries {
            prop_assert!(writer.entry(entry, &mut wire));
        }
        writer.finish(&mut wire);

        let mut parser = DirlistParser::new(options);
        let mut parsed = Vec::new();
        let mut framer = ResponseFramer::new(0);
        framer.buffer().extend_from_slice(&wire);
        while let Some(head) = framer.next().unwrap() {
            while framer.remaining() > 0 {
                parser.push(&framer.take(cut));
                while let Some(entry) = parser.pop().unwrap() {
                    parsed.push(entry);
                }
            }
            if head.header.status == Status::ok {
                parser.finish();
            }
        }
        while let Some(entry) = parser.pop().unwrap() {
            parsed.push(entry);
        }
        prop_assert_eq!(parsed, entries);
    }

    /// Elements come out as they went in, wherever the bodies are cut.
    #[test]
    fn vectors(lengths in vec(0..300u32, 0..20), cut in 1..400usize) {
        let elements: Vec<_> = lengths.iter().enumerate().map(|(index, &length)| VectorElement {
            handle: FileHandle::from_number(index as u32),
            length,
            offset: 1000 * index as u64,
        }).collect();
        let mut wire = BytesMut::new();
        for element in &elements {
            element.encode(&mut wire);
            wire.extend((0..element.length).map(|at| at as u8));
        }
        let mut parser = ReadvParser::default();
        let mut parsed: Vec<VectorElement> = Vec::new();
        for piece in wire.chunks(cut) {
            parser.push(Bytes::copy_from_slice(piece));
            while let Some(piece) = parser.pop().unwrap() {
                for (index, byte) in piece.data.iter().enumerate() {
                    prop_assert_eq!(*byte, (piece.position as usize + index) as u8);
                }
                if piece.completes_element() {
                    parsed.push(piece.element);
                }
            }
        }
        prop_assert!(parser.is_between_elements());
        prop_assert_eq!(parsed, elements);
    }

    #[test]
    fn page_status(
        stream_id in arbitrary::stream_id(),
        offset in arbitrary::offset(),
        data_len in 0..=i32::MAX as u32,
        bad_pages in arbitrary::bad_pages(),
    ) {
        let read = PgReadStatus { kind: StatusKind::Partial, offset, data_len };
        let (head, body) = (read.to_bytes(stream_id), only_body(&read.to_bytes(stream_id), Status::status));
        let header = ResponseHeader::decode(head.first_chunk().unwrap()).unwrap();
        let Response::Status(body) = Response::decode(&header, body).unwrap() else { panic!() };
        prop_assert_eq!(PgReadStatus::from_body(&body), Ok(read));
        prop_assert!(PgWriteStatus::from_body(&body, Bytes::new()).is_err());

        let write = PgWriteStatus { offset, bad_pages };
        let mut framer = ResponseFramer::new(1 << 20);
        write.encode(stream_id, framer.buffer());
        let status = framer.next().unwrap().unwrap().status.unwrap();
        let data = framer.body().unwrap().unwrap();
        prop_assert!(framer.buffer().is_empty());
        prop_assert_eq!(PgWriteStatus::from_body(&status, data), Ok(write));
    }

    /// Whatever the range: the pages cover it, the lengths agree, a flipped bit is found in its page and nowhere else.
    #[test]
    fn pages(offset in arbitrary::offset(), data in vec(any::<u8>(), 0..20_000), flip in any::<proptest::sample::Index>()) {
        let length = data.len() as u64;
        let offset = offset.min(u64::MAX - length);
        let mut encoded = BytesMut::new();
        page::encode(offset, &data, &mut encoded);
        prop_assert_eq!(encoded.len() as u64, page::encoded_len(offset, length));
        prop_assert_eq!(page::decoded_len(offset, encoded.len() as u64), Ok(length));
        prop_assert_eq!(page::pages(offset, length).count() as u64, page::page_count(offset, length));

        let mut sealed = vec![0; encoded.len()];
        let mut rest = &data[..];
        for (_, slot) in page::slots_mut(offset, &mut sealed) {
            let (now, later) = rest.split_at(slot.len());
            slot.copy_from_slice(now);
            rest = later;
        }
        page::seal(offset, &mut sealed);
        prop_assert_eq!(&sealed, &encoded);

        let mut decoded = BytesMut::new();
        prop_assert_eq!(page::decode(offset, &encoded, &mut decoded), Ok(vec![]));
        prop_assert_eq!(&decoded, &data);
        if !encoded.is_empty() {
            let at = flip.index(encoded.len());
            encoded[at] ^= 0x10;
            let bad = page::verify(offset, &encoded).unwrap();
            prop_assert_eq!(bad.len(), 1);
            let start = page::encoded_len(offset, bad[0].offset - offset) as usize;
            prop_assert!((start..start + bad[0].length + page::CRC_BYTES).contains(&at));
        }
    }

    /// Runs of whole pages can be decoded one by one.
    #[test]
    fn whole_pages(offset in 0..10_000u64, data in vec(any::<u8>(), 1..20_000), segment in 1..9000usize) {
        let mut encoded = BytesMut::new();
        page::encode(offset, &data, &mut encoded);
        let (mut decoded, mut received) = (BytesMut::new(), 0);
        while !encoded.is_empty() {
            received = encoded.len().min(received + segment);
            let at = offset + decoded.len() as u64;
            let run = if received == encoded.len() { received } else { page::whole_pages(at, received) };
            prop_assert_eq!(page::decode(at, &encoded.split_to(run), &mut decoded), Ok(vec![]));
            received -= run;
        }
        prop_assert_eq!(decoded, data);
    }

    #[test]
    fn security(offers in vec(("[a-z]{1,4}", "[a-z0-9:.+]{0,12}"), 0..5), token in "[!-~]{1,100}", group in "[a-z]{0,8}") {
        let offers: Vec<_> = offers.into_iter().map(|(name, arguments)| SecurityProtocol { name, arguments }).collect();
        prop_assert_eq!(parse_security_protocols(&write_security_protocols(&offers)), Ok(offers));
        let ztn = ZtnCredentials { token: token.clone().into() };
        let wire = ztn.encode().unwrap();
        prop_assert_eq!(ZtnCredentials::decode(wire.clone(), token.len()), Ok(ztn));
        prop_assert!(ZtnCredentials::decode(wire, token.len() - 1).is_err());
        let unix = UnixCredentials { user: "anna".into(), group };
        prop_assert_eq!(UnixCredentials::decode(unix.encode()), Ok(unix));
    }

    /// A normalized path is absolute, clean and stable.
    #[test]
    fn normalized_paths(path in "/[a./]{0,12}") {
        let path = PathAndCgi::from(&*path);
        let Ok(clean) = path.normalized() else {
            prop_assert!(path.path.split(|&byte| byte == b'/').any(|part| part == b".."));
            return Ok(());
        };
        prop_assert!(clean.starts_with(b"/"));
        prop_assert!(clean.len() == 1 || clean[1..].split(|&byte| byte == b'/').all(|part| !part.is_empty() && part != b"."));
        prop_assert_eq!(PathAndCgi::new(clean.clone()).normalized(), Ok(clean));
    }
}
