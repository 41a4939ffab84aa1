use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

/// Returns the position of a fault, by a match that stops compiling when a fault is added.
fn position(fault: Fault) -> usize {
    use Fault::*;
    match fault {
        NotFound => 0,
        AttributeNotFound => 1,
        PermissionDenied => 2,
        AuthenticationFailed => 3,
        ServerUntrusted => 4,
        TlsRequired => 5,
        ReadOnly => 6,
        InvalidArgument => 7,
        NameTooLong => 8,
        TooLarge => 9,
        Unsupported => 10,
        MalformedRequest => 11,
        IsDirectory => 12,
        NotDirectory => 13,
        NotRegular => 14,
        AlreadyExists => 15,
        NotEmpty => 16,
        Locked => 17,
        NoSpace => 18,
        QuotaExceeded => 19,
        Changed => 20,
        ChecksumMismatch => 21,
        Truncated => 22,
        Protocol => 23,
        HandleNotOpen => 24,
        Io => 25,
        TimedOut => 26,
        Overloaded => 27,
        Unavailable => 28,
        Cancelled => 29,
        Internal => 30,
    }
}

#[test]
fn every_fault_has_exactly_one_row_at_its_place() {
    assert_eq!(TABLE.len(), position(Fault::Internal) + 1);
    for (index, row) in TABLE.iter().enumerate() {
        assert_eq!(position(row.fault), index, "{:?}", row.fault);
        assert_eq!(row.fault as usize, index, "{:?}", row.fault);
        assert_eq!(row.fault.row().fault, row.fault);
        assert_eq!(row.name, format!("{:?}", row.fault));
        assert_eq!(Fault::from_name(row.name), Some(row.fault));
    }
}

#[test]
fn an_unknown_name_is_no_fault() {
    assert_eq!(Fault::from_name("notfound").or(Fault::from_name("")), None);
}

/// Asserts that no value has two faults, and returns the fault of each.
fn meanings<T: Ord + Copy + std::fmt::Debug + 'static>(column: impl Fn(&Row) -> &'static [T]) -> BTreeMap<T, Fault> {
    let mut seen = BTreeMap::new();
    for row in TABLE {
        for value in column(row) {
            let before = seen.insert(*value, row.fault);
            assert_eq!(before, None, "{value:?} means {before:?} and {:?}", row.fault);
        }
    }
    seen
}

#[test]
fn no_foreign_value_means_two_faults() {
    meanings(|row| row.xrootd_in);
    meanings(|row| row.http_in);
    meanings(|row| row.errno_in);
}

#[test]
fn every_xrootd_code_has_a_meaning() {
    let known = meanings(|row| row.xrootd_in);
    assert_eq!(known.keys().copied().collect::<Vec<_>>(), (3000..=3035).collect::<Vec<_>>());
    for code in 3000..=3035 {
        assert_eq!(Fault::from_xrootd(code), known[&code]);
    }
    assert_eq!(Fault::from_xrootd(3036), Fault::Internal);
}

/// Every code that is sent decodes to the same fault, except where the protocol has no separate code for it.
#[test]
fn losses_on_the_way_out_and_back_are_these_and_no_others() {
    let loss = |back: fn(Fault) -> Fault| -> Vec<(Fault, Fault)> {
        TABLE.iter().map(|row| (row.fault, back(row.fault))).filter(|(out, back)| out != back).collect()
    };
    use Fault::*;
    assert_eq!(
        loss(|fault| Fault::from_xrootd(fault.xrootd_code())),
        [
            (ServerUntrusted, AuthenticationFailed),
            (NotDirectory, Io),
            (NotEmpty, AlreadyExists),
            (Truncated, Io),
            (Protocol, Internal)
        ]
    );
    assert_eq!(
        loss(|fault| Fault::from_http(fault.http_status())),
        [
            (AttributeNotFound, NotFound),
            (ServerUntrusted, Unavailable),
            (ReadOnly, PermissionDenied),
            (MalformedRequest, InvalidArgument),
            (IsDirectory, AlreadyExists),
            (NotDirectory, AlreadyExists),
            (NotRegular, AlreadyExists),
            (NotEmpty, AlreadyExists),
            (QuotaExceeded, NoSpace),
            (Truncated, Unavailable),
            (Protocol, Unavailable),
            (HandleNotOpen, Unavailable),
            (Io, Internal),
        ]
    );
    assert_eq!(loss(|fault| Fault::from_errno(fault.errno())), [(Truncated, Io)]);
}

#[test]
fn the_exit_code_follows_the_kind_with_two_exceptions() {
    for row in TABLE {
        let expected = match (row.fault, row.kind) {
            (Fault::Cancelled, _) => Exit::Cancelled,
            (Fault::NoSpace | Fault::QuotaExceeded, _) => Exit::NoSpace,
            (_, Kind::NotFound) => Exit::NotFound,
            (_, Kind::Denied) => Exit::Denied,
            (_, Kind::Invalid) => Exit::Invalid,
            (_, Kind::Conflict) => Exit::Conflict,
            (_, Kind::Corrupt) => Exit::Corrupt,
            (_, Kind::Unavailable) => Exit::Unavailable,
            (_, Kind::Internal) => Exit::Internal,
        };
        assert_eq!(row.exit, expected, "{:?}", row.fault);
        assert_ne!(row.exit, Exit::Success);
        assert_ne!(row.exit, Exit::Usage, "2 is for the command line");
    }
}

#[test]
fn a_fault_that_can_never_work_is_not_retried() {
    for row in TABLE {
        if matches!(row.kind, Kind::NotFound | Kind::Denied | Kind::Invalid | Kind::Internal) {
            assert_eq!(row.retry, Retry::No, "{:?}", row.fault);
        }
    }
}

#[test]
fn statuses_are_errors_and_phrases_are_distinct() {
    let mut phrases = std::collections::BTreeSet::new();
    for row in TABLE {
        assert!((400..600).contains(&row.http), "{:?}", row.fault);
        assert!(row.http_in.iter().all(|status| (400..600).contains(status)), "{:?}", row.fault);
        assert!(phrases.insert(row.phrase), "{:?}", row.phrase);
        assert_eq!(row.fault.to_string(), row.phrase);
    }
}

#[test]
fn unknown_values_have_a_stated_default() {
    assert_eq!(Fault::from_http(418), Fault::InvalidArgument);
    assert_eq!(Fault::from_http(599), Fault::Internal);
    assert_eq!(Fault::from_http(200), Fault::Protocol);
    assert_eq!(Fault::from_http(302), Fault::Protocol);
    assert_eq!(Fault::from_errno(-2), Fault::Io);
    assert_eq!(Fault::from_errno(2), Fault::NotFound);
}

proptest! {
    #[test]
    fn every_number_means_something(code in any::<u32>(), status in any::<u16>(), errno in any::<i32>()) {
        for fault in [Fault::from_xrootd(code), Fault::from_http(status), Fault::from_errno(errno)] {
            prop_assert!(!fault.phrase().is_empty());
        }
    }
}
