//! When a client sends again (RFC 2131, 4.1 and 4.4.5). Owns every duration of the machine that no server decides.

use core::time::Duration;

use super::random::Random;

/// The first pause of the back-off; each is twice as long as the one before.
const FIRST_PAUSE: Duration = Duration::from_secs(4);
/// The longest pause is 2^4 times the first one: 64 s.
const DOUBLINGS: u32 = 4;
/// Each pause is longer or shorter by at most that.
const JITTER: Duration = Duration::from_secs(1);

/// REQUESTs of one exchange, in REQUESTING and in REBOOTING: with the pauses of the back-off that is a minute (RFC 2131,
/// 3.1.5). Then the client starts over, or continues with the lease that it has.
pub(super) const REQUESTS: u32 = 4;

/// DISCOVERs without any offer after which the client says so: 28 s, in which a server that checks its offers (dnsmasq
/// pings for 3 s) has had ample time.
pub(super) const SILENT_DISCOVERS: u32 = 3;

/// How long a client that asked for an address waits for the offer of it, once it has the offer of another address: two
/// servers on one network answer within milliseconds of each other. Without such a wish the first offer is taken at once.
pub(super) const OFFER_WINDOW: Duration = Duration::from_secs(1);

/// How long a host has to answer the ARP probe of an address. Hosts answer within milliseconds; RFC 5227 has up to 2 s
/// between probes because it also waits for hosts that start at the same moment.
pub(super) const PROBE_WAIT: Duration = Duration::from_secs(1);

/// DHC-5: ARP probes in a row that could not be sent, after which the client starts over: the interface may be gone for good.
pub(super) const UNSENT_PROBES: u32 = 10;

/// DHC-5: least pause between a DECLINE and the next DISCOVER (RFC 2131, 3.1.5), so that no server runs out of addresses; also if an
/// address that somebody has was left without a message.
pub(super) const DECLINE_WAIT: Duration = Duration::from_secs(10);

/// Longest random delay before the first REQUEST in REBOOTING (RFC 2131, 4.4.1, has 1 to 10 s before a DISCOVER): after a
/// start a thousand clients ask within these, and so they do after the wall clock was set forward. They serve meanwhile. At most a
/// quarter of the time that the lease has left. A first DISCOVER is sent at once: users create load balancers one at a time.
pub(super) const REBOOT_SPREAD: Duration = Duration::from_secs(10);

/// By how much the recorded expiry and the real one may differ, in microseconds: 10 s, more than a clock drifts within a lease of a day. By
/// more they do only if the wall clock was set: back, then the record is corrected; or forward, then messages are spread.
pub(super) const CLOCK_TOLERANCE: i64 = 10_000_000;

/// RFC 2131, 4.4.5: shortest pause in RENEWING and REBINDING.
const RENEWAL_PAUSE: Duration = Duration::from_mins(1);

/// The pause after message number `sent`, from 0: 4, 8, 16, 32, then 64 s, each up to a second longer or shorter (RFC
/// 2131, 4.1). It stays there for ever: the client never gives up.
pub(super) fn back_off(sent: u32, random: &mut Random) -> Duration {
    let pause = FIRST_PAUSE * (1 << sent.min(DOUBLINGS));
    random.around(pause, JITTER)
}

/// The pause after a REQUEST in RENEWING or REBINDING: half of the time until the state ends, at least 60 s (RFC 2131,
/// 4.4.5).
///
/// With leases of less than 16 minutes, 60 s would leave no second try before T2 or before the expiry. There the shortest
/// pause is an eighth of the time from T1 to the expiry (`tail`), at least the 4 s of the back-off: with a lease of 120 s
/// it is 7.5 s.
pub(super) fn renewal_pause(remaining: Duration, tail: Duration) -> Duration {
    let floor = (tail / 8).clamp(FIRST_PAUSE, RENEWAL_PAUSE);
    (remaining / 2).max(floor)
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn dhc_1_back_off_is_4_8_16_32_64_s_give_or_take_one_for_ever() {
        let mut random = Random::new(1);
        for sent in (0..20).chain([u32::MAX]) {
            let middle = s(4 << sent.min(4));
            let pauses: Vec<Duration> = (0..200).map(|_| back_off(sent, &mut random)).collect();
            let near = |pause: &Duration| pause.abs_diff(middle) <= s(1);
            assert!(pauses.iter().all(near), "{sent}: {pauses:?}");
            assert!(pauses.iter().any(|pause| *pause != pauses[0]));
        }
    }

    #[test]
    fn dhc_2_renewals_halve_the_remaining_time_down_to_a_floor() {
        let table = [
            // remaining, from T1 to the expiry, pause
            (s(16_200), s(21_600), s(8_100)),
            (s(100), s(21_600), s(60)),
            (s(1), s(21_600), s(60)),
            (s(480), s(480), s(240)),
            (s(60), s(480), s(60)),
            (s(45), s(60), Duration::from_millis(22_500)),
            (s(10), s(60), Duration::from_millis(7_500)),
            (s(0), s(60), Duration::from_millis(7_500)),
            (s(3), s(5), s(4)),
            (s(0), s(0), s(4)),
        ];
        for (remaining, tail, pause) in table {
            assert_eq!(
                renewal_pause(remaining, tail),
                pause,
                "{remaining:?} {tail:?}"
            );
        }
    }
}
