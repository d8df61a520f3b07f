use std::collections::BTreeSet;

use super::*;

fn of(code: Errno) -> ProbeResult {
    ProbeResult::of_connect(&Err(io::Error::from_raw_os_error(code as i32)))
}

#[test]
fn hc_errors_of_the_target_are_failures() {
    for (code, result) in [
        (Errno::ECONNREFUSED, ProbeResult::Refused),
        (Errno::ETIMEDOUT, ProbeResult::Timeout),
        (Errno::EHOSTUNREACH, ProbeResult::Unreachable),
        (Errno::EHOSTDOWN, ProbeResult::Unreachable),
        (Errno::ECONNRESET, ProbeResult::Error),
        (Errno::EPROTO, ProbeResult::Error),
    ] {
        assert_eq!(of(code), result, "{code}");
        assert_eq!(result.says(), Some(false));
    }
    assert_eq!(ProbeResult::of_connect(&Ok(())).says(), Some(true));
}

#[test]
fn hc_own_faults_say_nothing_about_the_target() {
    for (code, fault) in [
        (Errno::EMFILE, OwnFault::FileLimit),
        (Errno::ENFILE, OwnFault::FileLimit),
        (Errno::EADDRNOTAVAIL, OwnFault::LocalAddress),
        (Errno::EADDRINUSE, OwnFault::LocalAddress),
        (Errno::EAGAIN, OwnFault::LocalAddress),
        (Errno::ENETUNREACH, OwnFault::Network),
        (Errno::ENETDOWN, OwnFault::Network),
        (Errno::EAFNOSUPPORT, OwnFault::Network),
        (Errno::EPERM, OwnFault::Permission),
        (Errno::EACCES, OwnFault::Permission),
        (Errno::ENOBUFS, OwnFault::Memory),
        (Errno::ENOMEM, OwnFault::Memory),
    ] {
        assert_eq!(of(code), ProbeResult::OwnFault(fault), "{code}");
        assert_eq!(of(code).says(), None);
    }
}

#[test]
fn errors_without_a_number_are_read_by_their_kind() {
    let of = |kind: io::ErrorKind| ProbeResult::of_connect(&Err(kind.into()));
    assert_eq!(of(io::ErrorKind::ConnectionRefused), ProbeResult::Refused);
    assert_eq!(of(io::ErrorKind::TimedOut), ProbeResult::Timeout);
    assert_eq!(of(io::ErrorKind::HostUnreachable), ProbeResult::Unreachable);
    assert_eq!(of(io::ErrorKind::ConnectionReset), ProbeResult::Error);
    assert_eq!(
        of(io::ErrorKind::Other),
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
