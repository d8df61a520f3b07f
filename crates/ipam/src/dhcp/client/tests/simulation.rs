//! A client, two servers, a network that loses, doubles and delays, clocks that are set, and processes that die. After
//! each event the promises of the module are checked against what the servers and the record know.

mod server;
mod step;
mod world;

use proptest::prelude::*;

use self::server::POOL;
use self::step::{Step, step};
use self::world::World;
use super::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn dhc_3_never_two_addresses_never_after_the_expiry_never_silent(
        seed in any::<u64>(), steps in proptest::collection::vec(step(), 1..60),
    ) {
        let mut world = World::new(seed);
        for step in steps {
            world.step(&step);
        }
        // When all is well again, the client gets a lease.
        world.network = (0, 0, 5);
        world.step(&Step::Link(true));
        world.hosts = [None; POOL as usize];
        world.servers[0].is_up = true;
        world.servers[0].lease_time = 120;
        world.servers[1].is_up = false;
        world.step(&Step::Forget(true));
        if world.client.next_wakeup().is_some() {
            world.pass(secs(100_000));
            prop_assert!(world.client.lease().is_some(), "{:?}", world.client);
        }
    }

    /// DHC-2: while the server keeps the lease and answers within its time, no loss, restart or delay costs the address.
    #[test]
    fn dhc_2_the_address_stays_while_the_server_keeps_it(
        seed in any::<u64>(),
        steps in proptest::collection::vec(
            prop_oneof![
                3 => (0u32..100_000).prop_map(Step::Pass),
                1 => (0u8..40, 0u8..100, 0u16..2_000).prop_map(|(l, d, m)| Step::Network(l, d, m)),
                2 => (0u16..100).prop_map(Step::Restart),
                1 => any::<prop::sample::Index>().prop_map(Step::Replay),
                1 => (-20i32..20, Just(true)).prop_map(|(by, told)| Step::SetClock(by, told)),
            ],
            1..60,
        ),
    ) {
        let mut world = World::leased(seed);
        for step in steps {
            world.step(&step);
        }
        world.network = (0, 0, 5);
        world.pass(secs(4_000));
        prop_assert_eq!(world.client.lease().map(|lease| lease.address), world.keeps);
    }

    /// DHC-2: nor does a second server that is authoritative and leases other addresses, or confirms the leases of the first one.
    #[test]
    fn dhc_2_no_other_server_ends_a_lease_that_its_server_keeps(
        seed in any::<u64>(),
        confirms in any::<bool>(),
        steps in proptest::collection::vec(
            prop_oneof![
                3 => (0u32..100_000).prop_map(Step::Pass),
                1 => (0u8..100, 0u16..2_000).prop_map(|(d, m)| Step::Network(0, d, m)),
                3 => (0u16..100).prop_map(Step::Restart),
                2 => any::<bool>().prop_map(|up| Step::Server(true, up)),
                1 => any::<prop::sample::Index>().prop_map(Step::Replay),
            ],
            1..60,
        ),
    ) {
        let mut world = World::leased(seed);
        world.servers[1].is_authoritative = true;
        world.servers[1].is_up = true;
        if confirms {
            world.servers[1].knows_all();
        }
        for step in steps {
            world.step(&step);
        }
        world.pass(secs(4_000));
        prop_assert_eq!(world.client.lease().map(|lease| lease.address), world.keeps);
        let server = world.client.lease().map(|lease| lease.server);
        prop_assert_eq!(server, Some(SERVER));
    }
}
