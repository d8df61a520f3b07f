//! The next step of the DHCP process for one load balancer, from its record, the load balancer and the client (DHC-1 to
//! DHC-6). Pure. Owns the order of the phases of a record:
//!
//! | phase | load balancer asks for a lease here | it does not, or is gone | mode `kube-vip` |
//! |---|---|---|---|
//! | none | created Pending | | |
//! | Pending | a client runs; Bound with its lease | deleted | deleted |
//! | Bound | the client renews; Pending when the lease is lost | Releasing | Releasing; of one that stays as it is the client renews, Releasing when the lease is lost |
//! | Releasing, not served | RELEASE, then Pending | RELEASE, then deleted | RELEASE, then Released |
//! | Releasing, served | the client renews | the client renews | the client renews |
//! | Released | Pending | deleted | deleted once kube-vip's Service names an address |
//!
//! What a client has leased is in the record before it is given back, so that a process that is killed in between forgets
//! no recorded lease: a Pending record that is not wanted any more becomes Releasing if its client has a lease.
//!
//! Of two clients with the same hardware address, which only annotations give, the next one starts when the lease of one that is gone, or
//! asks for another lease, has been given back: to a server with a reservation for it they are one.
//!
//! Not covered: a lease that a server has acknowledged and that is not recorded, because the process was killed in between or no
//! ACK arrived, stays on the server until it expires if its load balancer is deleted then. And nobody renews while the API server
//! is away, since no process leads (decision 0024).
//!
//! A step that gives an address back, or removes the last trace of a lease, has a [`Guard`]: it is taken only if a live read
//! confirms it, because the stored copies may be behind. Every write carries the resource version of the record that it was
//! decided from (IPA-5). So the process may be killed between any two steps, and two of them may not disagree.

mod situation;
mod wish;

use std::net::Ipv4Addr;

use harvester_lb_ipam::Micros;
use harvester_lb_ipam::dhcp::{Identity, Lease, Loss};

pub use self::situation::{ClientView, Guard, Holder, Situation, Step};
use self::wish::Wish;
use super::Mode;
use super::claim::{Claim, Interfaces, LbView, ServiceView};
use super::record::{LeasePhase, LeaseSpec};

/// The next step. `now` is when a lease that is new to the record was bound.
pub fn decide(situation: &Situation<'_>, now: Micros) -> Step {
    let wish = Wish::of(situation.lb, situation.interfaces);
    let Some(record) = situation.record else {
        return without_record(situation);
    };
    match &record.phase {
        LeasePhase::Pending => pending(situation, record, &wish, now),
        LeasePhase::Bound(lease) => bound(situation, record, lease, &wish, now),
        LeasePhase::Releasing(lease) => releasing(situation, record, lease, &wish, now),
        LeasePhase::Released(address) => released(situation, record, *address, &wish),
    }
}

/// A client without a record: somebody deleted the record.
fn without_record(situation: &Situation<'_>) -> Step {
    let claim = situation.lb.map(|lb| &lb.claim);
    let is_wanted = matches!(
        claim,
        Some(Claim::Lease {
            hardware: Ok(_),
            ..
        })
    );
    if is_wanted && situation.mode == Mode::Builtin {
        Step::Create(Guard::AsSeen)
    } else if situation.client.is_some() {
        Step::Stop
    } else {
        Step::Rest
    }
}

/// DHC-1, DHC-6: the record of a load balancer that has none, from its live Service. What kube-vip's client had is asked for
/// again. `None`: the load balancer does not ask for a lease, or its annotation is invalid.
pub fn first(
    lb: &LbView,
    interfaces: &Interfaces,
    service: Option<&ServiceView>,
) -> Option<LeaseSpec> {
    let Claim::Lease {
        interface,
        hardware: Ok(hardware),
    } = &lb.claim
    else {
        return None;
    };
    let (interface, is_chosen) = interfaces.choose(interface.as_deref());
    let hardware = hardware.or_else(|| service.and_then(|service| service.kube_vip_hardware));
    Some(LeaseSpec {
        owner: lb.owner.clone(),
        phase: LeasePhase::Pending,
        interface: interface.to_owned(),
        is_chosen,
        hardware: Identity::new(lb.uid(), hardware).hardware,
        wanted: service.and_then(|service| service.kube_vip_address),
        bound_at: None,
    })
}

/// What a step needs that is taken because of this wish.
const fn guard(wish: &Wish<'_>) -> Guard {
    match wish {
        Wish::Gone => Guard::Gone,
        _ => Guard::AsSeen,
    }
}

fn with_phase(record: &LeaseSpec, phase: LeasePhase) -> LeaseSpec {
    LeaseSpec {
        phase,
        ..record.clone()
    }
}

fn with_lease(record: &LeaseSpec, lease: Lease, wish: &Wish<'_>, now: Micros) -> LeaseSpec {
    let is_same = |before: &&Lease| before.address == lease.address;
    let before = record.phase.lease().filter(is_same);
    LeaseSpec {
        phase: LeasePhase::Bound(lease),
        is_chosen: wish.is_chosen(record),
        wanted: None,
        bound_at: before.and(record.bound_at).or(Some(now)),
        ..record.clone()
    }
}

/// What the client has leased is recorded, and so served from then on. Who else has an address that is new to the record is read first,
/// as that may have come after the stored copies (DHC-5).
fn bind(record: &LeaseSpec, lease: Lease, wish: &Wish<'_>, now: Micros) -> Step {
    let before = record.phase.lease().map(|before| before.address);
    let guard = if before == Some(lease.address) {
        Guard::None
    } else {
        Guard::NotOfPool(lease.address)
    };
    Step::Write(guard, with_lease(record, lease, wish, now))
}

/// DHC-5: the address may be served, and the copies of a new leader may be behind.
const fn decline(lease: &Lease, holder: &Holder) -> Step {
    Step::Decline(Guard::Held(lease.address), lease.address, holder.conflict())
}

fn pending(situation: &Situation<'_>, record: &LeaseSpec, wish: &Wish<'_>, now: Micros) -> Step {
    let is_over = matches!(wish, Wish::Gone | Wish::Nothing)
        || (situation.mode == Mode::KubeVip && matches!(wish, Wish::Lease { .. }));
    let may_have = |client: &ClientView| client.lease.is_some() || client.is_asking;
    let is_other = wish.is_other_than(record, situation.client.is_some_and(may_have));
    let Some(client) = situation.client else {
        return if is_over {
            Step::Delete(guard(wish))
        } else if is_other {
            Step::Write(guard(wish), wish.asking(record, record.wanted, false))
        } else if matches!(wish, Wish::Unchanged) {
            Step::Rest
        } else if situation.ending_twin.is_some() {
            // A server with a reservation for the hardware address would lease another address now, and keep to it.
            Step::AwaitTwin
        } else {
            Step::Run(Guard::AsSeenAndNotKubeVips)
        };
    };
    if !client.is_of(record) {
        return Step::Stop;
    }
    match client.lease {
        Some(lease) if is_over || is_other => Step::Write(
            guard(wish),
            with_phase(record, LeasePhase::Releasing(lease)),
        ),
        Some(lease) => match situation.holder {
            Some(holder) => decline(&lease, holder),
            None => bind(record, lease, wish, now),
        },
        // An address that a server may just have leased: in a moment it is known.
        None if (is_over || is_other) && client.is_asking => Step::Rest,
        None if is_over || is_other => Step::Stop,
        // The operator has another mode already, or somebody has edited the Service: kube-vip goes first (DHC-6).
        None if situation.is_kube_vips && !client.is_asking => Step::Stop,
        // It is not asked for again after a restart either.
        None if record.wanted.is_some() && record.wanted == client.declined => {
            let wanted = None;
            let spec = LeaseSpec {
                wanted,
                ..record.clone()
            };
            Step::Write(Guard::None, spec)
        }
        None => Step::Rest,
    }
}

fn bound(
    situation: &Situation<'_>,
    record: &LeaseSpec,
    lease: &Lease,
    wish: &Wish<'_>,
    now: Micros,
) -> Step {
    let is_over = situation.mode == Mode::KubeVip && !matches!(wish, Wish::Unchanged);
    // What the client has is newer than the record while the API server refuses the write of it.
    let is_own = |client: &&ClientView| client.is_of(record);
    let held = situation.client.filter(is_own).and_then(|it| it.lease);
    let has_lease = !held.unwrap_or(*lease).is_expired(now);
    if is_over || wish.is_other_than(record, has_lease) {
        let spec = with_phase(record, LeasePhase::Releasing(*lease));
        return Step::Write(guard(wish), spec);
    }
    let Some(client) = situation.client else {
        // What stays as it is keeps its lease in both modes (ALC-10, BE-6).
        return Step::Run(Guard::NotKubeVips);
    };
    if !client.is_of(record) {
        return Step::Stop;
    }
    if let (Some(held), Some(holder)) = (client.lease, situation.holder) {
        return decline(&held, holder);
    }
    match (client.lease, client.loss) {
        (Some(held), _) if held.is_same(lease) => {
            if wish.is_chosen(record) == record.is_chosen {
                return Step::Rest;
            }
            Step::Write(guard(wish), with_lease(record, held, wish, now))
        }
        (Some(held), _) => bind(record, held, wish, now),
        // Another one is for kube-vip to ask for. A server may just have leased one: in a moment it is known.
        (None, _) if situation.mode == Mode::KubeVip && client.is_asking => Step::Rest,
        (None, _) if situation.mode == Mode::KubeVip => {
            let ended = with_phase(record, LeasePhase::Releasing(lease.ended(now)));
            Step::Release(Guard::None, Some(ended))
        }
        (None, loss) => {
            let is_ours = loss != Some(Loss::Conflict) && situation.holder.is_none();
            let wanted = is_ours.then_some(lease.address);
            Step::Write(
                Guard::None,
                LeaseSpec {
                    phase: LeasePhase::Pending,
                    wanted,
                    bound_at: None,
                    ..record.clone()
                },
            )
        }
    }
}

/// DHC-4, DHC-6: the lease is given back when nothing serves its address any more. Until then a client renews it, in both modes
/// and after a restart too, or the server might lease the address to somebody else. The record names what the client has.
fn releasing(
    situation: &Situation<'_>,
    record: &LeaseSpec,
    lease: &Lease,
    wish: &Wish<'_>,
    now: Micros,
) -> Step {
    if let Some(client) = situation.client {
        match client.lease {
            _ if !client.is_of(record) => return Step::Stop,
            Some(held) if !held.is_same(lease) => {
                let is_other = held.address != lease.address;
                let spec = LeaseSpec {
                    bound_at: if is_other { Some(now) } else { record.bound_at },
                    ..with_phase(record, LeasePhase::Releasing(held))
                };
                return Step::Write(Guard::None, spec);
            }
            Some(_) => {}
            None if client.is_asking => return Step::Rest,
            // The lease is lost; another one is not wanted. It is not asked for again either, while it is served.
            None if !lease.is_expired(now) => {
                let ended = with_phase(record, LeasePhase::Releasing(lease.ended(now)));
                return Step::Release(Guard::None, Some(ended));
            }
            None => return Step::Stop,
        }
    }
    let address = lease.address;
    if situation.holder.is_some() {
        return left_to_holder(situation, record, lease, wish, now);
    }
    let is_renewed = situation.client.is_some() || lease.is_expired(now);
    if situation.is_served && !is_renewed {
        return Step::Run(Guard::NotKubeVips);
    }
    let next = match (wish, situation.mode) {
        (Wish::Unchanged, _) => return Step::Rest,
        (Wish::Gone, _) => return Step::Release(Guard::GoneAndNotServed(address), None),
        (Wish::Nothing, _) => None,
        (Wish::Lease { .. }, Mode::Builtin) => {
            let has_lease = !lease.is_expired(now);
            Some(wish.asking(record, Some(address), has_lease))
        }
        (Wish::Lease { .. }, Mode::KubeVip) => {
            let next = LeaseSpec {
                phase: LeasePhase::Released(address),
                wanted: None,
                ..record.clone()
            };
            // The operator waits for nothing more, and kube-vip may have leased the same address meanwhile.
            if situation.client.is_none() && lease.is_expired(now) {
                return Step::Write(Guard::None, next);
            }
            Some(next)
        }
    };
    Step::Release(Guard::NotServed(address), next)
}

/// DHC-5: an address that somebody else has is not given back, since the server might lease it to a third one, or take the two for one
/// client. Nor is it asked for again, here or by kube-vip.
fn left_to_holder(
    situation: &Situation<'_>,
    record: &LeaseSpec,
    lease: &Lease,
    wish: &Wish<'_>,
    now: Micros,
) -> Step {
    if situation.client.is_some() {
        return Step::Stop;
    }
    let guard = Guard::Held(lease.address);
    match (wish, situation.mode) {
        (Wish::Unchanged, _) => Step::Rest,
        (Wish::Lease { .. }, Mode::Builtin) => {
            Step::Write(guard, wish.asking(record, None, !lease.is_expired(now)))
        }
        _ => Step::Delete(guard),
    }
}

/// DHC-6.
fn released(
    situation: &Situation<'_>,
    record: &LeaseSpec,
    address: Ipv4Addr,
    wish: &Wish<'_>,
) -> Step {
    if situation.client.is_some() {
        return Step::Stop;
    }
    match (wish, situation.mode) {
        (Wish::Unchanged, _) => Step::Rest,
        (Wish::Gone | Wish::Nothing, _) => Step::Delete(guard(wish)),
        (Wish::Lease { .. }, Mode::KubeVip) => Step::Delete(Guard::NamedForKubeVip),
        (Wish::Lease { .. }, Mode::Builtin) => {
            Step::Write(Guard::None, wish.asking(record, Some(address), false))
        }
    }
}

#[cfg(test)]
mod tests;
