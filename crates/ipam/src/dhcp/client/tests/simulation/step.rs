//! What can happen.

use proptest::prelude::*;

use super::super::*;
use super::server::POOL;

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Time passes, in milliseconds.
    Pass(u32),
    /// Percentage of packets that are lost, and of those that arrive twice; longest delay in milliseconds.
    Network(u8, u8, u16),
    /// A server stops, or starts with the leases that it had.
    Server(bool, bool),
    /// A server loses its leases.
    Forget(bool),
    /// The lease time that a server grants, in seconds.
    LeaseTime(bool, u32),
    /// The wall clock is set, in seconds; whether the client is told.
    SetClock(i32, bool),
    /// The process dies, and another one starts after that many seconds.
    Restart(u16),
    /// A host with a fixed address appears or leaves; whether it has the hardware address of the client.
    Host(u8, Option<bool>),
    /// The interface goes down or up.
    Link(bool),
    /// Somebody else has the address of the client, if it has one.
    Held(Conflict),
    Release,
    /// An old reply arrives again.
    Replay(prop::sample::Index),
    /// A reply from somebody who guesses the transaction id.
    Forged(ReplyKind, u8, Option<u32>),
}

pub(super) fn step() -> impl Strategy<Value = Step> {
    let kind = prop_oneof![
        Just(ReplyKind::Offer),
        Just(ReplyKind::Ack),
        Just(ReplyKind::Nak)
    ];
    prop_oneof![
        8 => (0u32..100_000).prop_map(Step::Pass),
        4 => (0u32..3_000).prop_map(Step::Pass),
        2 => (0u8..100, 0u8..100, 0u16..6_000).prop_map(|(l, d, m)| Step::Network(l, d, m)),
        2 => any::<(bool, bool)>().prop_map(|(which, up)| Step::Server(which, up)),
        1 => any::<bool>().prop_map(Step::Forget),
        2 => (any::<bool>(), prop_oneof![8u32..200, 1_000u32..90_000, Just(u32::MAX)])
            .prop_map(|(which, time)| Step::LeaseTime(which, time)),
        1 => (-4_000i32..4_000, any::<bool>()).prop_map(|(by, told)| Step::SetClock(by, told)),
        2 => (0u16..300).prop_map(Step::Restart),
        1 => (0u8..POOL, any::<Option<bool>>()).prop_map(|(host, there)| Step::Host(host, there)),
        1 => any::<bool>().prop_map(Step::Link),
        1 => prop_oneof![Just(Conflict::Pool), Just(Conflict::Lease), Just(Conflict::Twin)]
            .prop_map(Step::Held),
        1 => Just(Step::Release),
        1 => any::<prop::sample::Index>().prop_map(Step::Replay),
        1 => (kind, 0u8..POOL, any::<Option<u32>>()).prop_map(|(k, a, l)| Step::Forged(k, a, l)),
    ]
}
