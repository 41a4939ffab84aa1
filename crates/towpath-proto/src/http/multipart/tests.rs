use proptest::{collection::vec, prelude::*};

use super::*;

/// Offsets, size of the file, data.
type Part = (Range<u64>, Option<u64>, Vec<u8>);

/// Returns all items that a reader finds in a body that arrives in pieces of `step` bytes, with data joined.
fn read(boundary: &Boundary, body: &[u8], step: usize) -> Result<Vec<Part>, InvalidMultipart> {
    let mut reader = PartReader::new(boundary);
    let mut parts = Vec::new();
    for piece in body.chunks(step) {
        reader.push(Bytes::copy_from_slice(piece));
        while let Some(item) = reader.next_item()? {
            match item {
                Item::Part { offsets, size } => parts.push((offsets, size, Vec::new())),
                Item::Data(data) => parts.last_mut().unwrap().2.extend_from_slice(&data),
                Item::End => {}
            }
        }
    }
    reader.finish().map(|()| parts)
}

fn boundary(text: &str) -> Boundary {
    Boundary::of_content_type(&format!("multipart/byteranges; boundary={text}")).unwrap()
}

/// The response of an XRootD 5.5.3 server to `Range: bytes=0-1,3-4` for a file of `123456789`.
const FROM_XROOTD: &str = "\r\n--123456\r\nContent-type: text/plain; charset=UTF-8\r\nContent-range: bytes 0-1/9\r\n\r\n12\
    \r\n--123456\r\nContent-type: text/plain; charset=UTF-8\r\nContent-range: bytes 3-4/9\r\n\r\n45\r\n--123456--\r\n";

#[test]
fn an_answer_of_xrootd_is_read_however_it_is_cut() {
    for step in 1..FROM_XROOTD.len() {
        let parts = read(&boundary("123456"), FROM_XROOTD.as_bytes(), step).unwrap();
        assert_eq!(parts, [(0..2, Some(9), b"12".to_vec()), (3..5, Some(9), b"45".to_vec())]);
    }
}

#[test]
fn input_may_be_given_ahead_of_need() {
    let mut reader = PartReader::new(&boundary("123456"));
    FROM_XROOTD.as_bytes().chunks(50).for_each(|piece| reader.push(Bytes::from_static(piece)));
    let items: Vec<_> = std::iter::from_fn(|| reader.next_item().unwrap()).collect();
    assert_eq!(items.len(), 5);
    assert_eq!((&items[3], &items[4]), (&Item::Data("45".into()), &Item::End));
}

#[test]
fn the_boundary_is_found_in_the_content_type() {
    let of = |value| Boundary::of_content_type(value).map(|boundary| boundary.0);
    assert_eq!(of("multipart/byteranges; boundary=THIS_STRING_SEPARATES"), Some("THIS_STRING_SEPARATES".into()));
    assert_eq!(of("Multipart/ByteRanges;charset=x; BOUNDARY=\"a b\""), Some("a b".into()));
    let too_long = format!("multipart/byteranges; boundary={}", "a".repeat(71));
    for value in ["", "text/plain", "multipart/byteranges", "multipart/mixed; boundary=a", &too_long] {
        assert_eq!(of(value), None, "{value}");
    }
    assert_eq!(of("multipart/byteranges; boundary="), None);
    assert_eq!(of("multipart/byteranges; boundary=\"a"), None);
}

#[test]
fn preamble_epilogue_and_bare_newlines_are_tolerated() {
    let body = b"to be ignored\n--b\nContent-Range: bytes 0-0/*\n\nx\n--b-- \nmore\nand more";
    assert_eq!(read(&boundary("b"), body, 7).unwrap(), [(0..1, None, b"x".to_vec())]);
}

#[test]
fn data_may_look_like_a_boundary() {
    let data = b"\r\n--b--\r\n";
    let body = [&b"--b\r\ncontent-range: bytes 0-8/9\r\n\r\n"[..], data, b"\r\n--b--"].concat();
    // The last line has no terminator: only more input could show that it is complete.
    assert_eq!(read(&boundary("b"), &body, 3), Err(InvalidMultipart::Incomplete));
    let body = [&body[..], b"\r\n"].concat();
    assert_eq!(read(&boundary("b"), &body, 3).unwrap(), [(0..9, Some(9), data.to_vec())]);
}

#[test]
fn answers_that_contradict_themselves_are_refused() {
    let check = |body: &str| read(&boundary("b"), body.as_bytes(), 5);
    assert_eq!(check("--b\r\n\r\nx\r\n--b--\r\n"), Err(InvalidMultipart::ContentRange));
    assert_eq!(check("--b\r\nContent-Range: bytes 5-1/9\r\n\r\nx"), Err(InvalidMultipart::ContentRange));
    assert_eq!(check("--b\r\nContent-Range: bytes */9\r\n\r\nx"), Err(InvalidMultipart::ContentRange));
    assert_eq!(check("--b\r\n--b\r\n"), Err(InvalidMultipart::ContentRange));
    assert_eq!(check("--b\r\nContent-Range: bytes 0-0/9\r\n\r\nxy\r\n--b--\r\n"), Err(InvalidMultipart::Length));
    assert_eq!(check("--b\r\nContent-Range: bytes 0-9/99\r\n\r\nxy"), Err(InvalidMultipart::Incomplete));
    assert_eq!(check(""), Err(InvalidMultipart::Incomplete));
    assert_eq!(check(&"a".repeat(MAX_LINE_BYTES + 1)), Err(InvalidMultipart::TooLong));
    assert_eq!(check(&"a\n".repeat(MAX_BETWEEN_BYTES)), Err(InvalidMultipart::TooLong));
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        parts in vec((0..1000_u64, vec(any::<u8>(), 1..50)), 1..6), random: u128, step in 1..200_usize,
    ) {
        let boundary = Boundary::from_random(random);
        let expected: Vec<_> =
            parts.into_iter().map(|(start, data)| (start..start + data.len() as u64, Some(2000), data)).collect();
        let mut body = Vec::new();
        for (offsets, size, data) in &expected {
            let header = boundary.part_header("text/plain", &ContentRange::part(offsets, *size).unwrap());
            body.extend_from_slice(header.as_bytes());
            body.extend_from_slice(data);
        }
        body.extend_from_slice(boundary.closing().as_bytes());
        let ranges: Vec<_> = expected.iter().map(|(offsets, ..)| offsets.clone()).collect();
        prop_assert_eq!(boundary.body_bytes("text/plain", &ranges, 2000), Some(body.len() as u64));
        let again = Boundary::of_content_type(&boundary.content_type()).unwrap();
        prop_assert_eq!(read(&again, &body, step), Ok(expected));
    }

    #[test]
    fn damage_never_panics(at in 0..FROM_XROOTD.len(), byte: u8, step in 1..50_usize) {
        let mut body = FROM_XROOTD.as_bytes().to_vec();
        body[at] = byte;
        let _ = read(&boundary("123456"), &body, step);
    }

    #[test]
    fn no_bytes_panic(body in vec(any::<u8>(), 0..200), step in 1..50_usize, start: bool) {
        let body = if start { [b"--b\nContent-Range: bytes 0-3/9\n\n".to_vec(), body].concat() } else { body };
        let _ = read(&boundary("b"), &body, step);
        let _ = Boundary::of_content_type(&String::from_utf8_lossy(&body));
    }
}
