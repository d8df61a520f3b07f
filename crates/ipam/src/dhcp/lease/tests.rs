use super::*;
use crate::dhcp::message::ReplyKind;

const SOURCE: HardwareAddress = HardwareAddress([2, 0, 0, 0, 0, 9]);
const NOW: Now = Now {
    mono: Duration::from_secs(100),
    wall: Micros(1_770_000_000_000_000),
};

fn ack(lease: u32, t1: Option<u32>, t2: Option<u32>) -> Reply {
    Reply {
        kind: ReplyKind::Ack,
        xid: 1,
        hardware: HardwareAddress::ZERO,
        address: [192, 168, 100, 210].into(),
        server: Some([192, 168, 100, 1].into()),
        lease: Some(lease),
        t1,
        t2,
        mask: Some([255, 255, 255, 0].into()),
        router: Some([192, 168, 100, 1].into()),
        client_id: None,
        text: None,
    }
}

fn read(reply: &Reply) -> Result<Grant, Ignored> {
    // The REQUEST was sent two seconds ago.
    let asked = Duration::from_secs(98);
    Grant::read(
        reply,
        SOURCE,
        SHORTEST_LEASE,
        asked,
        NOW,
        &mut Random::new(3),
    )
}

#[test]
fn dhc_1_t1_and_t2_are_those_of_the_server_if_they_make_sense() {
    let table = [
        // lease, T1, T2, taken
        (120, Some(60), Some(105), true),
        (120, Some(4), Some(5), true),
        (120, Some(118), Some(119), true),
        (120, Some(60), None, true),
        (120, None, Some(100), true),
        (120, None, None, false),
        (120, Some(0), Some(105), false),
        (120, Some(3), Some(105), false),
        (120, Some(60), Some(60), false),
        (120, Some(60), Some(120), false),
        (120, Some(105), Some(60), false),
        (120, Some(u32::MAX), Some(u32::MAX), false),
        (86_400, Some(43_200), Some(75_600), true),
        (u32::MAX - 1, None, None, false),
        (10, Some(5), Some(8), true),
    ];
    for (lease, t1, t2, taken) in table {
        let grant = read(&ack(lease, t1, t2)).unwrap();
        let deadlines = grant.deadlines.unwrap();
        let asked = Duration::from_secs(98);
        let whole = Duration::from_secs(lease.into());
        assert_eq!(deadlines.expire, asked + whole);
        let (renew, rebind) = (
            deadlines.renew.saturating_sub(asked),
            deadlines.rebind.saturating_sub(asked),
        );
        let is = |value: Duration, sent: Option<u32>| {
            sent.is_some_and(|sent| value == Duration::from_secs(sent.into()))
        };
        assert_eq!(
            is(renew, t1) || is(rebind, t2),
            taken,
            "{lease} {t1:?} {t2:?}"
        );
        let near = |value: Duration, part: u32| {
            let middle = whole / 8 * part;
            value.abs_diff(middle) <= whole / 32
        };
        assert!(is(renew, t1) || near(renew, 4), "{lease}: T1 {renew:?}");
        assert!(is(rebind, t2) || near(rebind, 7), "{lease}: T2 {rebind:?}");
        assert!(renew < rebind && deadlines.rebind < deadlines.expire);
        let times = grant.lease.times.unwrap();
        assert_eq!(
            times.expires_at.0,
            NOW.wall.0 + (i64::from(lease) - 2) * 1_000_000
        );
        assert!(!grant.lease.is_expired(Micros(times.expires_at.0 - 1)));
        assert!(grant.lease.is_expired(times.expires_at));
    }
}

#[test]
fn dhc_1_default_times_differ_from_lease_to_lease() {
    let mut random = Random::new(5);
    let mut renewals: Vec<Duration> = (0..100)
        .map(|_| {
            let ack = ack(3600, None, None);
            let grant =
                Grant::read(&ack, SOURCE, SHORTEST_LEASE, NOW.mono, NOW, &mut random).unwrap();
            grant.deadlines.unwrap().renew
        })
        .collect();
    renewals.sort_unstable();
    renewals.dedup();
    assert_eq!(renewals.len(), 100);
    assert!(renewals[99].abs_diff(renewals[0]) > Duration::from_secs(150));
}

#[test]
fn dhc_1_an_infinite_lease_has_no_times() {
    let grant = read(&ack(u32::MAX, Some(60), Some(105))).unwrap();
    assert_eq!((grant.deadlines, grant.lease.times), (None, None));
    assert!(!grant.lease.is_expired(Micros(i64::MAX)));
}

#[test]
fn dhc_1_leases_that_cannot_be_used_are_ignored() {
    let good = ack(120, None, None);
    assert!(read(&good).is_ok());
    for lease in [0, 1, 9] {
        assert_eq!(read(&ack(lease, None, None)), Err(Ignored::ShortLease));
    }
    let lease = None;
    assert_eq!(
        read(&Reply {
            lease,
            ..good.clone()
        }),
        Err(Ignored::NoLeaseTime)
    );
    let odd: [[u8; 4]; 7] = [
        [0, 0, 0, 0],
        [0, 1, 2, 3],
        [127, 0, 0, 1],
        [224, 0, 0, 1],
        [239, 255, 255, 255],
        [240, 0, 0, 1],
        [255, 255, 255, 255],
    ];
    for odd in odd.map(Ipv4Addr::from) {
        let address = Reply {
            address: odd,
            ..good.clone()
        };
        assert_eq!(read(&address), Err(Ignored::UnusableAddress), "{odd}");
        let server = Reply {
            server: Some(odd),
            ..good.clone()
        };
        assert_eq!(read(&server), Err(Ignored::NoServer), "{odd}");
        let router = Reply {
            router: Some(odd),
            ..good.clone()
        };
        assert_eq!(read(&router).unwrap().lease.router, None);
    }
    assert_eq!(
        read(&Reply {
            server: None,
            ..good.clone()
        }),
        Err(Ignored::NoServer)
    );
    let mask = Some([255, 0, 255, 0].into());
    assert_eq!(read(&Reply { mask, ..good }).unwrap().lease.mask, None);
}

/// What is recorded must be readable again.
#[test]
fn dhc_4_the_source_of_an_ack_is_recorded_if_a_host_can_have_it() {
    let heard = |source| {
        let random = &mut Random::new(3);
        let grant = Grant::read(
            &ack(120, None, None),
            source,
            SHORTEST_LEASE,
            NOW.mono,
            NOW,
            random,
        )
        .unwrap();
        grant.lease.server_hardware
    };
    assert_eq!(heard(SOURCE), Some(SOURCE));
    for source in [
        HardwareAddress::ZERO,
        HardwareAddress::BROADCAST,
        HardwareAddress([1, 0, 94, 0, 0, 1]),
    ] {
        assert_eq!(heard(source), None);
        assert!(HardwareAddress::parse(&source.to_string()).is_err());
    }
}

#[test]
fn dhc_1_a_host_has_neither_the_address_of_the_subnet_nor_its_broadcast_address() {
    let at = |last: u8, mask: Option<[u8; 4]>| {
        let reply = Reply {
            address: [192, 168, 100, last].into(),
            mask: mask.map(Into::into),
            ..ack(120, None, None)
        };
        read(&reply).unwrap().lease.is_of_a_host()
    };
    let table = [
        (0, Some([255, 255, 255, 0]), false),
        (1, Some([255, 255, 255, 0]), true),
        (254, Some([255, 255, 255, 0]), true),
        (255, Some([255, 255, 255, 0]), false),
        (255, Some([255, 255, 0, 0]), true),
        (127, Some([255, 255, 255, 128]), false),
        (128, Some([255, 255, 255, 128]), false),
        // RFC 3021, a host of its own, and masks that say nothing.
        (6, Some([255, 255, 255, 254]), true),
        (7, Some([255, 255, 255, 254]), true),
        (7, Some([255, 255, 255, 255]), true),
        (0, Some([0, 0, 0, 0]), true),
        (0, Some([255, 0, 255, 0]), true),
        (0, None, true),
    ];
    for (last, mask, expected) in table {
        assert_eq!(at(last, mask), expected, "{last} {mask:?}");
    }
}
