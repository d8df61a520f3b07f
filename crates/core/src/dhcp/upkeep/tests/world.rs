//! A small world around [`decide`]: a load balancer that users change, the operator that serves what the record says, a DHCP
//! server, and a process that is killed between any two of its actions and that sees the load balancer late, and after a kill the
//! record too. All its states are visited, in every order of what may happen.
//!
//! What must hold in each of them:
//! - a lease that was recorded is in the record until the server has it back, or has ended it;
//! - a lease is given up only for what the load balancer asks for now, and given back only by the record of now;
//! - RELEASE is sent only while no Service has the address, and, if the load balancer was taken for gone, it is;
//! - kube-vip's client and ours never run at once for the load balancer;
//! - from everywhere, once users rest, the world comes to rest in the state that is asked for.

use std::sync::{Arc, LazyLock};

use rustc_hash::FxHashSet;

use super::*;
use crate::dhcp::serving::{Serving, serving};

/// The Service of the load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Served {
    None,
    KubeVip,
    Address(Ipv4Addr),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Wanted {
    Lease,
    OtherInterface,
    Nothing,
    /// Its spec is refused: what it has stays.
    Refused,
    Gone,
}

impl Wanted {
    const ALL: [Self; 5] = [
        Self::Lease,
        Self::OtherInterface,
        Self::Nothing,
        Self::Refused,
        Self::Gone,
    ];

    fn lb(self) -> Option<LbView> {
        Some(lb(match self {
            Self::Lease => claims(None),
            Self::OtherInterface => claims(Some("eth1")),
            Self::Nothing => Claim::None,
            Self::Refused => Claim::Unchanged,
            Self::Gone => return None,
        }))
    }
}

/// The record after a RELEASE.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct After(Option<Arc<LeaseSpec>>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct World {
    mode: Mode,
    wanted: Wanted,
    /// What the process believes that is wanted.
    seen: Wanted,
    record: Option<Arc<LeaseSpec>>,
    /// The record before its last change.
    earlier: Option<Arc<LeaseSpec>>,
    /// The process believes that the record is the earlier one.
    is_behind: bool,
    client: Option<ClientView>,
    served: Served,
    /// The lease that the server has for us, and the interface of its network.
    leased: Option<(Ipv4Addr, String)>,
    /// What the process writes next, after it has removed the client and sent a RELEASE.
    after_release: Option<After>,
}

impl World {
    fn new(mode: Mode, wanted: Wanted) -> Self {
        Self {
            mode,
            wanted,
            seen: wanted,
            record: None,
            earlier: None,
            is_behind: false,
            client: None,
            served: Served::None,
            leased: None,
            after_release: None,
        }
    }

    /// Everything that may happen next, without the doings of users.
    fn next(&self) -> Vec<(&'static str, Self)> {
        let mut all = Vec::new();
        if let Some((name, next)) = self.process() {
            all.push((name, next));
        }
        if let Some(next) = self.operator() {
            all.push(("operator", next));
        }
        if self.seen != self.wanted {
            let seen = self.wanted;
            all.push((
                "sees",
                Self {
                    seen,
                    ..self.clone()
                },
            ));
        }
        if self.is_behind {
            all.push(("sees the record", self.up_to_date()));
        }
        all.extend(self.server());
        all
    }

    fn up_to_date(&self) -> Self {
        Self {
            is_behind: false,
            ..self.clone()
        }
    }

    fn set_record(&mut self, record: Option<Arc<LeaseSpec>>) {
        if record != self.record {
            self.earlier = std::mem::replace(&mut self.record, record);
        }
    }

    /// What users and accidents may do next.
    fn disturbances(&self) -> Vec<(&'static str, Self)> {
        let mut all = Vec::new();
        for wanted in Wanted::ALL {
            // A uid that is gone does not come back.
            if wanted != self.wanted && self.wanted != Wanted::Gone {
                all.push((
                    "user",
                    Self {
                        wanted,
                        ..self.clone()
                    },
                ));
            }
        }
        for mode in [Mode::Builtin, Mode::KubeVip] {
            let killed = Self {
                mode,
                client: None,
                after_release: None,
                ..self.clone()
            };
            // The first list of the next process may be older than the load balancer, or than its last change; so may that of records.
            let is_behind = [false, self.earlier != self.record];
            for is_behind in is_behind {
                all.extend(Wanted::ALL.map(|seen| {
                    let killed = killed.clone();
                    (
                        "killed",
                        Self {
                            seen,
                            is_behind,
                            ..killed
                        },
                    )
                }));
            }
        }
        // A NAK, or the expiry: the client and the server know.
        if let Some(client) = &self.client
            && client.lease.is_some()
        {
            for loss in [Loss::Nak, Loss::Conflict] {
                let client = ClientView {
                    lease: None,
                    loss: Some(loss),
                    ..client.clone()
                };
                all.push((
                    "lost",
                    Self {
                        client: Some(client),
                        leased: None,
                        ..self.clone()
                    },
                ));
            }
        }
        all
    }

    fn server(&self) -> Vec<(&'static str, Self)> {
        let mut all = Vec::new();
        let Some(client) = &self.client else {
            return all;
        };
        if client.lease.is_some() {
            return all;
        }
        let told = |lease, is_asking| {
            Some(ClientView {
                lease,
                is_asking,
                ..client.clone()
            })
        };
        let (is_asking, interface) = (client.is_asking, client.interface.clone());
        if !is_asking {
            let client = told(None, true);
            all.push((
                "asks",
                Self {
                    client,
                    ..self.clone()
                },
            ));
        } else if let Some((address, _)) = self.leased {
            let client = told(Some(lease(address)), false);
            all.push((
                "hears",
                Self {
                    client,
                    ..self.clone()
                },
            ));
        } else {
            all.extend([A, B].map(|address| {
                let leased = Some((address, interface.clone()));
                (
                    "leases",
                    Self {
                        leased,
                        ..self.clone()
                    },
                )
            }));
        }
        all
    }

    /// The operator's part.
    fn operator(&self) -> Option<Self> {
        let wants = matches!(self.wanted, Wanted::Lease | Wanted::OtherInterface);
        let is_kube_vips = self.served == Served::KubeVip;
        if self.wanted == Wanted::Refused {
            return self.ends_lost();
        }
        let served = match serving(self.mode, self.record.as_deref(), is_kube_vips, NOW) {
            _ if !wants => Served::None,
            Serving::Leased(address, _) => Served::Address(address),
            Serving::KubeVip(_) => Served::KubeVip,
            Serving::Waiting(..) => Served::None,
        };
        (served != self.served).then(|| Self {
            served,
            ..self.clone()
        })
    }

    /// What is served stays, unless its lease is lost.
    fn ends_lost(&self) -> Option<Self> {
        let Served::Address(address) = self.served else {
            return None;
        };
        let phase = self.record.as_ref().map(|record| record.phase);
        let is_held = matches!(phase, Some(LeasePhase::Bound(lease)) if lease.address == address);
        (!is_held).then(|| Self {
            served: Served::None,
            ..self.clone()
        })
    }

    fn is_confirmed(&self, guard: Guard) -> bool {
        let is_unserved = |address| self.served != Served::Address(address);
        match guard {
            Guard::None | Guard::NotOfPool(_) => true,
            Guard::Gone => self.wanted == Wanted::Gone,
            Guard::AsSeen => self.seen == self.wanted,
            Guard::NotKubeVips => self.served != Served::KubeVip,
            Guard::AsSeenAndNotKubeVips => {
                self.seen == self.wanted && self.served != Served::KubeVip
            }
            Guard::NotServed(address) => is_unserved(address),
            Guard::GoneAndNotServed(address) => self.wanted == Wanted::Gone && is_unserved(address),
            Guard::Held(_) => false,
            // The operator writes the annotation with the Service.
            Guard::NamedForKubeVip => self.served == Served::KubeVip,
        }
    }

    /// One action of the process. A step with RELEASE is two actions.
    fn process(&self) -> Option<(&'static str, Self)> {
        let mut next = self.clone();
        if let Some(After(record)) = next.after_release.take() {
            next.set_record(record);
            return Some(("process", next));
        }
        let lb = self.seen.lb();
        let copy = if self.is_behind {
            self.earlier.as_deref()
        } else {
            self.record.as_deref()
        };
        let recorded = copy.and_then(|record| record.phase.lease());
        let situation = Situation {
            mode: self.mode,
            interfaces: &interfaces(),
            lb: lb.as_ref(),
            record: copy,
            client: self.client.as_ref(),
            is_kube_vips: self.served == Served::KubeVip,
            is_served: recorded.is_some_and(|lease| self.served == Served::Address(lease.address)),
            holder: None,
            ending_twin: None,
        };
        let step = decide(&situation, NOW);
        let guard = match &step {
            Step::Rest | Step::AwaitTwin | Step::Decline(..) => return None,
            Step::Stop => Guard::None,
            Step::Create(guard)
            | Step::Run(guard)
            | Step::Write(guard, _)
            | Step::Delete(guard)
            | Step::Release(guard, _) => *guard,
        };
        if !self.is_confirmed(guard) {
            return None;
        }
        // A read before it, or the API server's refusal: then it is known.
        if self.is_behind && step != Step::Stop {
            return Some(("process", self.up_to_date()));
        }
        match step {
            Step::Rest | Step::AwaitTwin | Step::Decline(..) => return None,
            Step::Create(_) => {
                let record = first(lb.as_ref().unwrap(), &interfaces(), None);
                next.set_record(record.map(Arc::new));
            }
            Step::Stop => next.client = None,
            Step::Run(_) => {
                assert_eq!(self.client, None, "two clients");
                let record = self.record.as_ref().unwrap();
                next.client = Some(ClientView {
                    interface: record.interface.clone(),
                    hardware: record.hardware,
                    ..client(record.phase.lease().copied())
                });
            }
            Step::Write(_, spec) => {
                let is_releasing =
                    |record: &LeaseSpec| matches!(record.phase, LeasePhase::Releasing(_));
                if is_releasing(&spec) && !is_releasing(self.record.as_ref().unwrap()) {
                    assert_eq!(self.seen, self.wanted, "given up by an older copy");
                }
                next.set_record(Some(Arc::new(spec)));
            }
            Step::Delete(_) => {
                assert_eq!(self.client, None, "a client without a record");
                next.set_record(None);
            }
            Step::Release(_, spec) => {
                next.give_back();
                next.after_release = Some(After(spec.map(Arc::new)));
                return Some(("RELEASE", next));
            }
        }
        Some(("process", next))
    }

    fn give_back(&mut self) {
        let client = self.client.take();
        if client.as_ref().is_some_and(|client| client.lease.is_none()) {
            // It has nothing to give back.
            return;
        }
        let record = self.record.as_ref().unwrap();
        assert!(
            matches!(record.phase, LeasePhase::Releasing(_)),
            "RELEASE of a lease that is held"
        );
        let held = client.as_ref().and_then(|client| client.lease);
        let lease = held.or_else(|| record.phase.lease().copied()).unwrap();
        let address = lease.address;
        assert_ne!(
            self.served,
            Served::Address(address),
            "RELEASE while it is served"
        );
        if self.seen == Wanted::Gone {
            assert_eq!(self.wanted, Wanted::Gone, "RELEASE of one that is there");
        }
        if self.leased.as_ref() == Some(&(address, record.interface.clone())) {
            self.leased = None;
        }
    }

    fn check(&self) {
        if self.client.is_some() {
            assert_ne!(self.served, Served::KubeVip, "kube-vip's client and ours");
            let phase = self.record.as_ref().map(|record| record.phase);
            let has_lease = matches!(phase, Some(LeasePhase::Bound(_) | LeasePhase::Releasing(_)));
            assert!(
                self.mode == Mode::Builtin || has_lease,
                "a client in mode kube-vip"
            );
        }
        // What the record says is leased, and the server leases it still: no lease is forgotten.
        if let Some((address, _)) = &self.leased {
            let recorded = self.record.as_ref().and_then(|record| record.phase.lease());
            let is_recorded = recorded.is_some_and(|lease| lease.address == *address);
            let held = self.client.as_ref().and_then(|client| client.lease);
            let is_held = held.is_some_and(|lease| lease.address == *address);
            let is_asking = self.client.as_ref().is_some_and(|client| client.is_asking);
            assert!(is_recorded || is_held || is_asking, "a lease is forgotten");
        }
    }

    fn is_as_wanted(&self) -> bool {
        let wants = matches!(self.wanted, Wanted::Lease | Wanted::OtherInterface);
        let phase = self.record.as_ref().map(|record| &record.phase);
        if self.wanted == Wanted::Refused {
            let held = self.client.as_ref().and_then(|client| client.lease);
            return match (phase, self.served) {
                (Some(LeasePhase::Bound(lease)), Served::None | Served::Address(_)) => {
                    held == Some(*lease)
                }
                (_, Served::Address(_)) => false,
                _ => true,
            };
        }
        match (wants, self.mode) {
            (false, _) => phase.is_none() && self.client.is_none() && self.leased.is_none(),
            (true, Mode::KubeVip) => phase.is_none() && self.served == Served::KubeVip,
            (true, Mode::Builtin) => match phase {
                Some(LeasePhase::Bound(lease)) => self.served == Served::Address(lease.address),
                _ => false,
            },
        }
    }
}

/// A process that is killed before it has recorded a fresh lease forgets it: nobody else knows of it. The same client gets the
/// same address when it asks again, and the server ends the lease otherwise.
fn forget_unrecorded(before: &World, after: &mut World) {
    let recorded = before
        .record
        .as_ref()
        .and_then(|record| record.phase.lease());
    let is_recorded = |address| recorded.is_some_and(|lease| lease.address == address);
    if before
        .leased
        .as_ref()
        .is_some_and(|(address, _)| !is_recorded(*address))
    {
        after.leased = None;
    }
}

/// A state, and the event that first led to it, from the state of this number.
struct Visit {
    world: Arc<World>,
    after: Option<(usize, &'static str)>,
}

/// All states, each checked. Those that take fewer events come first.
static VISITS: LazyLock<Vec<Visit>> = LazyLock::new(visit_all);

fn visit_all() -> Vec<Visit> {
    let begin = [Mode::Builtin, Mode::KubeVip]
        .into_iter()
        .flat_map(|mode| Wanted::ALL.map(|wanted| World::new(mode, wanted)));
    let begin = begin.map(|world| Visit {
        world: Arc::new(world),
        after: None,
    });
    let mut visits: Vec<Visit> = begin.collect();
    let mut known: FxHashSet<Arc<World>> = visits.iter().map(|it| Arc::clone(&it.world)).collect();
    let mut number = 0;
    while number < visits.len() {
        let world = Arc::clone(&visits[number].world);
        for (name, next) in events(&world) {
            if known.contains(&next) {
                continue;
            }
            let checked = std::panic::catch_unwind(|| next.check());
            let after = Some((number, name));
            assert!(
                checked.is_ok(),
                "after {:?}\nfrom {world:?}\nto {next:?}",
                path(&visits, after)
            );
            let world = Arc::new(next);
            known.insert(Arc::clone(&world));
            visits.push(Visit { world, after });
        }
        number += 1;
    }
    visits
}

/// Everything that may happen next, by whomever.
fn events(world: &World) -> Vec<(&'static str, World)> {
    let mut all = world.next();
    for (name, mut next) in world.disturbances() {
        if name == "killed" {
            forget_unrecorded(world, &mut next);
        }
        all.push((name, next));
    }
    all
}

/// The events that have led to a state.
fn path(visits: &[Visit], mut after: Option<(usize, &'static str)>) -> Vec<&'static str> {
    let mut path = Vec::new();
    while let Some((number, name)) = after {
        path.push(name);
        after = visits[number].after;
    }
    path.reverse();
    path
}

#[test]
fn dhc_4_whenever_it_is_killed_no_lease_is_forgotten() {
    assert!(VISITS.len() > 1_000, "{} states", VISITS.len());
    let longest = VISITS.iter().map(|it| path(&VISITS, it.after).len()).max();
    assert!(longest > Some(8), "{longest:?} events");
}

#[test]
fn dhc_1_at_rest_the_world_is_as_wanted() {
    for Visit { world, .. } in VISITS.iter() {
        // One fixed order: whatever can happen, in turn. A handful of events is enough from anywhere.
        let mut now = World::clone(world);
        let mut turn = 0;
        for _ in 0..60 {
            let mut all = now.next();
            if all.is_empty() {
                break;
            }
            turn += 1;
            now = all.swap_remove(turn % all.len()).1;
        }
        assert!(now.next().is_empty(), "no rest from {world:?}: {now:?}");
        assert!(now.is_as_wanted(), "from {world:?} to {now:?}");
    }
}
