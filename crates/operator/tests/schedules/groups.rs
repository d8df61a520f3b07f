//! Plans about load balancers that share an address: most of their acts are about who does (section 15.3). Few of the other plans come
//! to that.

use fastrand::Rng;

use super::acts::{Act, port_of};
use super::plan::{Plan, Style};
use super::policy::Denied;
use super::specs::{Asked, LBS, LbSpec, Ranges};

/// Load balancers of the same namespace.
const MEMBERS: [usize; 4] = [0, 1, 2, 4];

impl Plan {
    pub(super) fn of_group(rng: &mut Rng, style: Style) -> Self {
        let is_vm = rng.u8(..5) > 0;
        let by_hand = rng.u8(..6) == 0;
        let pools = rng.usize(1..=2);
        let members = &MEMBERS[..rng.usize(2..=MEMBERS.len())];
        let primary = members[rng.usize(..members.len())];
        let spec = |rng: &mut Rng| LbSpec {
            vm: is_vm,
            dhcp: false,
            pool: rng.u8(..8).eq(&0).then(|| rng.usize(..pools)),
            project: false,
            held_up: rng.u8(..8) == 0,
            asks: false,
        };
        let mut acts: Vec<Act> = (0..pools)
            .map(|pool| Act::CreatePool(pool, Ranges::draw(rng, pool), 0, rng.u8(..3)))
            .collect();
        acts.push(Act::CreateVmi(0, rng.u8(1..4), 1));
        for lb in members {
            acts.push(Act::CreateLb(*lb, spec(rng)));
        }
        rng.shuffle(&mut acts);
        let others = members.iter().filter(|lb| **lb != primary);
        acts.extend(others.map(|lb| Act::Ask(*lb, Asked::Primary(primary))));
        // In some of the plans the group is served before anything else happens to it.
        let settles = rng.bool();
        if settles {
            acts.push(Act::Wait);
        }
        // In some a policy denies the port of one of them, or an address to move to, from the beginning or at any time.
        let is_denied = rng.u8(..4) == 0;
        let deny = |rng: &mut Rng| {
            let denied = if rng.u8(..3) > 0 {
                Denied::Port(port_of(members[rng.usize(..members.len())]))
            } else {
                Denied::Addresses(rng.bool())
            };
            Act::Deny((rng.u8(..3) > 0).then_some(denied))
        };
        if is_denied {
            acts.insert(rng.usize(..=acts.len()), deny(rng));
        }
        for _ in 0..rng.usize(4..=12) {
            let lb = members[rng.usize(..members.len())];
            acts.push(match rng.u8(..16) {
                0..3 if is_denied && rng.bool() => deny(rng),
                0..5 => Act::Ask(lb, Asked::Primary(primary)),
                5..7 => Act::Ask(lb, Asked::Nothing),
                7..9 => Act::DeleteLb(lb),
                9 => Act::DeleteLb(primary),
                10 => Act::CreateLb(lb, spec(rng)),
                11 => Act::RecreateLb(lb, spec(rng)),
                // With it moves the address of all.
                12 if is_denied || settles => Act::NamePool(primary, Some(rng.usize(..pools))),
                13 if is_denied || settles => Act::Ask(primary, Asked::Address),
                14 if settles => Act::BreakLb(lb, rng.bool()),
                15 if settles => Act::Wait,
                _ => Act::draw(rng, LBS.len(), pools, by_hand, true),
            });
        }
        let style = Style {
            // As in other plans.
            stuck_moves: if by_hand { 0 } else { style.stuck_moves },
            ..style
        };
        Self { acts, style }
    }
}
