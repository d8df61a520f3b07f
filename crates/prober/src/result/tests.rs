use std::collections::BTreeSet;

use super::*;

fn of(from: fn(io::Error) -> ConnectError, code: Errno) -> ProbeResult {
    ProbeResult::of_connect(&Err(from(io::Error::from_raw_os_error(code as i32))))
}

#[test]
fn hc_6_what_the_socket_holds_as_its_error_is_a_failure_of_the_target() {
    for (code, result) in [
        (Errno::ECONNREFUSED, ProbeResult::Refused),
        (Errno::ETIMEDOUT, ProbeResult::Timeout),
        (Errno::EHOSTUNREACH, ProbeResult::Unreachable),
        (Errno::EHOSTDOWN, ProbeResult::Unreachable),
        (Errno::ENETUNREACH, ProbeResult::Unreachable),
        (Errno::ENETDOWN, ProbeResult::Unreachable),
        (Errno::ECONNRESET, ProbeResult::Error),
        (Errno::ECONNABORTED, ProbeResult::Error),
        (Errno::EPROTO, ProbeResult::Error),
        (Errno::EACCES, ProbeResult::Error),
        (Errno::EINVAL, ProbeResult::Error),
        (Errno::EADDRNOTAVAIL, ProbeResult::Error),
        (Errno::ENOBUFS, ProbeResult::Error),
    ] {
        assert_eq!(of(ConnectError::Remote, code), result, "{code}");
        assert_eq!(result.verdict(), Some(false));
    }
    assert_eq!(ProbeResult::of_connect(&Ok(())).verdict(), Some(true));
}

#[test]
fn hc_6_what_connect_itself_answers_says_nothing_about_the_target() {
    for (code, fault) in [
        (Errno::EMFILE, OwnFault::FileLimit),
        (Errno::ENFILE, OwnFault::FileLimit),
        (Errno::EADDRNOTAVAIL, OwnFault::LocalAddress),
        (Errno::EADDRINUSE, OwnFault::LocalAddress),
        (Errno::EAGAIN, OwnFault::LocalAddress),
        (Errno::ENETUNREACH, OwnFault::Network),
        (Errno::EHOSTUNREACH, OwnFault::Network),
        (Errno::ENETDOWN, OwnFault::Network),
        (Errno::EAFNOSUPPORT, OwnFault::Network),
        (Errno::EPERM, OwnFault::Permission),
        (Errno::EACCES, OwnFault::Permission),
        (Errno::ENOBUFS, OwnFault::Memory),
        (Errno::ENOMEM, OwnFault::Memory),
        (Errno::EINVAL, OwnFault::Other),
    ] {
        let result = of(ConnectError::Local, code);
        assert_eq!(result, ProbeResult::OwnFault(fault), "{code}");
        assert_eq!(result.verdict(), None);
    }
    // A reset that a packet filter of this host sent in place of the target.
    let refused = of(ConnectError::Local, Errno::ECONNREFUSED);
    assert_eq!(refused, ProbeResult::Refused);
}

#[test]
fn errors_without_a_number_are_read_by_their_kind() {
    let remote =
        |kind: io::ErrorKind| ProbeResult::of_connect(&Err(ConnectError::Remote(kind.into())));
    assert_eq!(
        remote(io::ErrorKind::ConnectionRefused),
        ProbeResult::Refused
    );
    assert_eq!(remote(io::ErrorKind::TimedOut), ProbeResult::Timeout);
    assert_eq!(
        remote(io::ErrorKind::HostUnreachable),
        ProbeResult::Unreachable
    );
    assert_eq!(remote(io::ErrorKind::ConnectionReset), ProbeResult::Error);
    assert_eq!(
        ProbeResult::of_connect(&Err(ConnectError::Local(io::ErrorKind::Other.into()))),
        ProbeResult::OwnFault(OwnFault::Other)
    );
}

#[test]
fn labels_are_distinct_and_plain() {
    let labels: BTreeSet<_> = ProbeResult::ALL
        .iter()
        .map(|result| result.as_label())
        .collect();
    assert_eq!(labels.len(), ProbeResult::ALL.len());
    let plain = |label: &&str| label.bytes().all(|b| b.is_ascii_lowercase() || b == b'_');
    assert!(labels.iter().all(plain));
}
