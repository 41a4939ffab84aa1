use proptest::{collection::vec, prelude::*};

use super::*;
use crate::checksum::{Hasher, tests::any_digest};

fn of(algorithms: &[Algorithm]) -> Digests {
    Hasher::digest(Algorithms::of(algorithms), b"123456789")
}

#[test]
fn what_xrootd_answers_is_read() {
    // XRootD 5.5.3, for a file of `123456789`.
    for (value, algorithm) in [
        ("adler32=091e01de", Algorithm::Adler32),
        ("crc32c=4waSgw==", Algorithm::Crc32c),
        ("crc32c=e3069283", Algorithm::Crc32c),
        ("md5=JfnnlDI7RTiF9RgfG2JNCw==", Algorithm::Md5),
        ("sha=98O8HYCOBHMq32eZZczDTKeuNEE=", Algorithm::Sha1),
        ("UNIXcksum=930766865", Algorithm::Cksum),
        ("unixcksum=930766865 9 name", Algorithm::Cksum),
    ] {
        assert_eq!(parse_digest(value), Ok(of(&[algorithm])), "{value}");
    }
    let two = parse_digest("ADLER32 = 91e01de , sha-512=abc, md5=JfnnlDI7RTiF9RgfG2JNCw==");
    assert_eq!(two, Ok(of(&[Algorithm::Adler32, Algorithm::Md5])));
    // The same bytes under a name that 5.5.3 also uses, but which is another checksum elsewhere.
    assert_eq!(parse_digest("crc32=4waSgw=="), Ok(Digests::new()));
}

#[test]
fn fields_are_written_in_their_own_forms() {
    let digests = of(&[Algorithm::Adler32, Algorithm::Crc32c, Algorithm::Cksum, Algorithm::Crc64, Algorithm::Md5]);
    assert_eq!(
        write_digest(&digests).unwrap(),
        "adler32=091e01de,crc32c=4waSgw==,UNIXcksum=930766865,md5=JfnnlDI7RTiF9RgfG2JNCw=="
    );
    assert_eq!(
        write_repr_digest(&digests).unwrap(),
        "adler=:CR4B3g==:, crc32c=:4waSgw==:, unixcksum=:N3pgEQ==:, md5=:JfnnlDI7RTiF9RgfG2JNCw==:"
    );
    assert_eq!(write_owncloud(&digests).unwrap(), "ADLER32:091e01de MD5:25f9e794323b453885f5181f1b624d0b");
    let sha = of(&[Algorithm::Sha1]);
    assert_eq!(write_digest(&sha).unwrap(), "sha=98O8HYCOBHMq32eZZczDTKeuNEE=");
    assert_eq!(write_repr_digest(&sha).unwrap(), "sha=:98O8HYCOBHMq32eZZczDTKeuNEE=:");
    assert_eq!(write_owncloud(&sha).unwrap(), "SHA1:f7c3bc1d808e04732adf679965ccc34ca7ae3441");
    assert_eq!(write_digest(&of(&[Algorithm::Crc64])), None);
    assert_eq!(write_repr_digest(&Digests::new()), None);
    assert_eq!(write_owncloud(&of(&[Algorithm::Crc32c])), None);
}

#[test]
fn a_value_that_cannot_be_read_is_not_the_same_as_none() {
    let adler = Err(InvalidField { algorithm: Algorithm::Adler32 });
    assert_eq!(parse_digest("adler32=xyz"), adler);
    assert_eq!(parse_digest("sha-512=x, adler32="), adler);
    assert_eq!(parse_repr_digest("adler=CR4B3g=="), adler);
    assert_eq!(parse_repr_digest("adler=:CR4B:"), adler);
    assert_eq!(parse_owncloud("ADLER32:0x1"), adler);
    assert_eq!(parse_digest("UNIXcksum=-1"), Err(InvalidField { algorithm: Algorithm::Cksum }));
    assert_eq!(parse_content_md5("AAAA"), Err(InvalidField { algorithm: Algorithm::Md5 }));
    for empty in ["", ",", "adler32", "=", "x=y", "ADLER=:x:"] {
        assert_eq!(parse_digest(empty).and_then(|_| parse_repr_digest(empty)), Ok(Digests::new()), "{empty}");
    }
}

#[test]
fn wishes_are_ordered_by_preference() {
    let digest = |value| DigestPreferences::parse_want_digest(value).iter().collect::<Vec<_>>();
    assert_eq!(digest("adler32"), [Algorithm::Adler32]);
    assert_eq!(digest("md5;q=0.3, adler32;q=1, SHA;q=1, x;q=1"), [Algorithm::Adler32, Algorithm::Sha1, Algorithm::Md5]);
    assert_eq!(digest("MD5, Adler32"), [Algorithm::Md5, Algorithm::Adler32]);
    assert_eq!(digest("md5;q=0, adler32;q=0.001"), [Algorithm::Adler32]);
    assert_eq!(digest("md5;q=2, md5;q=1.0000, md5;q=.5, md5;q=-1, md5;q=1.001"), []);

    let repr = |value| DigestPreferences::parse_want_repr_digest(value).iter().collect::<Vec<_>>();
    assert_eq!(repr("sha-256=9, adler=1"), [Algorithm::Sha256, Algorithm::Adler32]);
    assert_eq!(repr("adler=1,sha-256=9, md5=0, crc32c=11"), [Algorithm::Sha256, Algorithm::Adler32]);
    assert_eq!(repr("adler32=5, ADLER=5, adler, adler=x"), []);

    let wanted = DigestPreferences::parse_want_digest("md5, adler32;q=0.5");
    assert_eq!(wanted.best(Algorithms::DEFAULT), Some(Algorithm::Adler32));
    assert_eq!(wanted.best(Algorithms::of(&[Algorithm::Crc32c])), None);
    assert!(!wanted.is_empty());
    assert!(DigestPreferences::parse_want_digest("sha-512").is_empty());
}

#[test]
fn wishes_are_written_best_first() {
    let list = [Algorithm::Sha256, Algorithm::Crc64, Algorithm::Adler32, Algorithm::Md5];
    assert_eq!(write_want_digest(&list), "sha-256, adler32;q=0.9, md5;q=0.8");
    assert_eq!(write_want_repr_digest(&list), "sha-256=10, adler=9, md5=8");
    assert_eq!(write_want_digest(&[]), "");
}

/// Generates digests that have a name in HTTP.
fn named() -> impl Strategy<Value = Digests> {
    vec(any_digest(), 0..6).prop_map(|list| {
        list.into_iter().filter(|digest| find(|name| name.algorithm == digest.algorithm()).is_some()).collect()
    })
}

proptest! {
    #[test]
    fn fields_round_trip(digests in named()) {
        prop_assert_eq!(parse_digest(&write_digest(&digests).unwrap_or_default()), Ok(digests.clone()));
        prop_assert_eq!(parse_repr_digest(&write_repr_digest(&digests).unwrap_or_default()), Ok(digests.clone()));
        let owncloud = parse_owncloud(&write_owncloud(&digests).unwrap_or_default()).unwrap();
        prop_assert!(owncloud.iter().all(|digest| digests.get(digest.algorithm()) == Some(*digest)));
        if let Some(md5) = digests.get(Algorithm::Md5) {
            prop_assert_eq!(parse_content_md5(&md5.to_base64()), Ok(md5));
        }
    }

    #[test]
    fn wishes_round_trip(list in Just(NAMES.map(|name| name.algorithm).to_vec()).prop_shuffle(), keep in 0..=5_usize) {
        let list = &list[..keep];
        prop_assert_eq!(&DigestPreferences::parse_want_digest(&write_want_digest(list)).iter().collect::<Vec<_>>(), list);
        prop_assert_eq!(&DigestPreferences::parse_want_repr_digest(&write_want_repr_digest(list)).iter().collect::<Vec<_>>(), list);
    }

    #[test]
    fn damage_never_panics(digests in named(), at: prop::sample::Index, character: char) {
        for text in [write_digest(&digests), write_repr_digest(&digests), write_owncloud(&digests)].into_iter().flatten() {
            let mut text: Vec<char> = text.chars().collect();
            let at = at.index(text.len());
            text[at] = character;
            let text: String = text.into_iter().collect();
            let _ = (parse_digest(&text), parse_repr_digest(&text), parse_owncloud(&text));
        }
    }

    #[test]
    fn no_text_panics(text in "(md5|adler|adler32)?[=:;]?\\PC{0,40}") {
        let _ = (parse_digest(&text), parse_repr_digest(&text), parse_owncloud(&text), parse_content_md5(&text));
        let _ = (DigestPreferences::parse_want_digest(&text), DigestPreferences::parse_want_repr_digest(&text));
    }
}
