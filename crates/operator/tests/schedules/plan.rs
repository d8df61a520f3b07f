//! The plan of a schedule: the acts of users in their order, and the rates of faults. Drawn from a seed alone.

use fastrand::Rng;

use super::acts::Act;
use super::leases::LeaseAct;
use super::specs::{ADDRESSES, LbSpec, Ranges};

/// Weights of the next steps, and fault probabilities per thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) watch: [u32; 8],
    pub(crate) take: u32,
    pub(crate) progress: u32,
    pub(crate) user: u32,
    pub(crate) cluster: u32,
    pub(crate) time: u32,
    pub(crate) relist: u32,
    pub(crate) crash: u32,
    pub(crate) lose: u32,
    pub(crate) standby: u32,
    pub(crate) fence: u32,
    pub(crate) recheck: u32,
    pub(crate) late: u32,
    pub(crate) lost_answers: u32,
    pub(crate) refusals: u32,
    pub(crate) stuck_moves: u32,
    pub(crate) service_finalizers: bool,
    pub(crate) workers: usize,
    /// The operator expects leases of the DHCP process.
    pub(crate) builtin_dhcp: bool,
}

/// A schedule without the order of its steps.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) acts: Vec<Act>,
    pub(crate) style: Style,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let style = Style::draw(&mut rng);
        let mut other = Rng::with_seed(!seed);
        if other.u8(..6) == 0 {
            return Self::of_group(&mut other, style);
        }
        let lbs = rng.usize(2..=5);
        let pools = rng.usize(1..=2) + usize::from(rng.u8(..8) == 0);
        // Half of the plans use features of later versions.
        let later = rng.bool();
        let by_hand = rng.bool();
        let leases = later && rng.bool();
        let style = Style {
            // After a manual edit of an IPAllocation the operator cannot know that kube-vip must leave the address.
            stuck_moves: if by_hand { 0 } else { style.stuck_moves },
            // A lease may be there in either mode: the two processes change it one after the other.
            builtin_dhcp: leases && rng.u8(..4) > 0,
            ..style
        };
        let mut acts: Vec<Act> = Vec::new();
        for pool in 0..pools {
            acts.push(Act::CreatePool(
                pool,
                Ranges::draw(&mut rng, pool),
                rng.u8(..),
                rng.u8(..3),
            ));
        }
        for vmi in 0..rng.usize(0..=2) {
            acts.push(Act::CreateVmi(vmi, rng.u8(..ADDRESSES), rng.u8(..3)));
        }
        for lb in 0..lbs {
            let spec = LbSpec::draw(&mut rng, pools, later);
            let spec = if leases && rng.bool() {
                spec.leased()
            } else {
                spec
            };
            acts.push(Act::CreateLb(lb, spec));
        }
        rng.shuffle(&mut acts);
        if other.u8(..4) == 0 {
            acts.push(Act::Wait);
        }
        for _ in 0..rng.usize(4..=12) {
            acts.push(Act::draw(&mut rng, lbs, pools, by_hand, later));
            if leases && rng.bool() {
                let lease = LeaseAct::draw(&mut rng);
                acts.push(Act::Lease(rng.usize(..lbs), lease));
            }
        }
        Self { acts, style }
    }
}

impl Style {
    fn draw(rng: &mut Rng) -> Self {
        // Half of the plans have no faults: their failures are the easiest to understand.
        let faults = rng.bool();
        let mut rare = |most: u32| {
            if faults && rng.bool() {
                rng.u32(1..=most)
            } else {
                0
            }
        };
        let (lost_answers, refusals) = (rare(200), rare(150));
        let (crash, standby, fence, late) = (rare(12), rare(12), rare(8), rare(40));
        let relist = rare(15);
        let lose = rare(12);
        let mut watch = [0; 8];
        for weight in &mut watch {
            // Some watches lag far behind the others.
            *weight = [2, 10, 40][rng.usize(..3)];
        }
        Self {
            watch,
            take: rng.u32(5..60),
            progress: rng.u32(10..90),
            user: rng.u32(2..20),
            cluster: rng.u32(2..25),
            time: rng.u32(0..6),
            relist,
            crash,
            lose,
            standby,
            fence,
            recheck: u32::from(rng.u8(..4) == 0),
            late: late.max(5),
            lost_answers,
            refusals,
            // One that follows and sometimes misses a change, and one that ignores each.
            stuck_moves: [0, 0, 400, 1_000][rng.usize(..4)],
            service_finalizers: rng.u8(..3) == 0,
            workers: rng.usize(1..=5),
            builtin_dhcp: false,
        }
    }
}
