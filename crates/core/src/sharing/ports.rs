//! Which load balancers of a group serve their ports (SHR-2).
//!
//! Protocol and port are unique over the group. A contested port stays with the load balancer for which the Service carries it; else it
//! is the primary's, then that of one for which the Service is about to carry it, since its EndpointSlice has it, then the older one's.
//! Who does not get one of its ports serves none of them, so that what it would have had is free for others.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_ipam::Micros;

/// The protocols that a Service can have.
pub const PROTOCOLS: [&str; 3] = ["TCP", "UDP", "SCTP"];

/// Protocol and port of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Served {
    /// 1 to 65535.
    pub port: u16,
    /// One of [`PROTOCOLS`].
    pub protocol: &'static str,
}

/// A load balancer that wants to serve ports on the address of a group.
#[derive(Clone, Debug)]
pub struct Claimant {
    /// Its name.
    pub name: String,
    /// Whether it is the primary.
    pub is_primary: bool,
    /// When it was created.
    pub created: Micros,
    /// Its ports.
    pub ports: BTreeSet<Served>,
    /// Those ports that the Service carries for it.
    pub carried: BTreeSet<Served>,
    /// Those ports that are in its EndpointSlice, whether the Service carries them yet or not. That is written first: until the write
    /// of the Service is answered, nobody else may count on the port, but for the primary, whose reconcile writes the Service.
    pub offered: BTreeSet<Served>,
}

/// Why a load balancer serves none of its ports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Contested {
    /// The first of its ports that is another one's.
    pub port: Served,
    /// The name of the load balancer that has it.
    pub holder: String,
}

impl Claimant {
    /// Who is first, as far as neither the Service nor the EndpointSlices tell.
    fn rank(&self) -> (Reverse<bool>, Micros, &str) {
        (Reverse(self.is_primary), self.created, &self.name)
    }
}

/// Decides for each load balancer, in the order given: `None` if it serves its ports. The result does not depend on that order, and
/// stays the same once the Service carries what was decided, whoever joins.
///
/// Costs O(n log n) for n ports in all without a conflict, and as much again for each load balancer that is part of one.
pub fn settle(claimants: &[Claimant]) -> Vec<Option<Contested>> {
    let mut wanted: BTreeMap<Served, BTreeSet<usize>> = BTreeMap::new();
    for (at, claimant) in claimants.iter().enumerate() {
        for port in &claimant.ports {
            wanted.entry(*port).or_default().insert(at);
        }
    }
    wanted.retain(|_, all| all.len() > 1);
    let mut open: Vec<usize> = wanted.values().flatten().copied().collect();
    open.sort_by(|a, b| claimants[*a].rank().cmp(&claimants[*b].rank()));
    open.dedup();
    let mut lost: BTreeSet<usize> = BTreeSet::new();
    while !open.is_empty() {
        let place = open.iter().position(|at| wins_all(claimants, &wanted, *at));
        // Each of two may carry what the other one wants.
        let winner = open.remove(place.unwrap_or(0));
        for port in &claimants[winner].ports {
            let all = wanted.remove(port).unwrap_or_default();
            lost.extend(all.into_iter().filter(|at| *at != winner));
        }
        open.retain(|at| !lost.contains(at));
        for all in wanted.values_mut() {
            all.retain(|at| !lost.contains(at));
        }
    }
    let winners = (0..claimants.len()).filter(|at| !lost.contains(at));
    let winners = winners.map(|at| &claimants[at]);
    let holders: BTreeMap<Served, &str> = winners
        .flat_map(|it| it.ports.iter().map(|port| (*port, &*it.name)))
        .collect();
    let contested = |at: usize| {
        let mut ports = claimants[at].ports.iter();
        ports.find_map(|port| {
            let holder = holders.get(port)?;
            Some(Contested {
                port: *port,
                holder: (*holder).to_owned(),
            })
        })
    };
    let all = 0..claimants.len();
    all.map(|at| contested(at).filter(|_| lost.contains(&at)))
        .collect()
}

/// As [`settle`], beside load balancers that keep these ports whether they are served there or not; with their names. Who serves nothing
/// yet does not begin to with one of these ports.
pub fn settle_beside(
    claimants: Vec<Claimant>,
    kept: &BTreeMap<Served, &str>,
) -> Vec<Option<Contested>> {
    let taken = |it: &Claimant| taken(it, kept).filter(|_| it.carried.is_empty());
    let taken: Vec<Option<Contested>> = claimants.iter().map(taken).collect();
    let open = claimants.into_iter().zip(&taken);
    let open = open.filter_map(|(claimant, taken)| taken.is_none().then_some(claimant));
    let mut settled = settle(&open.collect::<Vec<_>>()).into_iter();
    let lost = |taken: Option<Contested>| match taken {
        Some(why) => Some(why),
        None => settled.next().flatten(),
    };
    taken.into_iter().map(lost).collect()
}

fn taken(claimant: &Claimant, kept: &BTreeMap<Served, &str>) -> Option<Contested> {
    claimant.ports.iter().find_map(|port| {
        let holder = kept.get(port).filter(|name| **name != claimant.name)?;
        Some(Contested {
            port: *port,
            holder: (*holder).to_owned(),
        })
    })
}

/// Whether a load balancer gets each of its ports that others want too.
fn wins_all(claimants: &[Claimant], wanted: &BTreeMap<Served, BTreeSet<usize>>, at: usize) -> bool {
    claimants[at].ports.iter().all(|port| {
        let rivals = wanted.get(port).into_iter().flatten();
        let key = |at: &usize| {
            let claimant = &claimants[*at];
            let (is_carried, is_offered) = (
                claimant.carried.contains(port),
                claimant.offered.contains(port),
            );
            (
                !is_carried,
                !claimant.is_primary,
                !is_offered,
                claimant.rank(),
            )
        };
        let winner = rivals.min_by(|a, b| key(a).cmp(&key(b)));
        winner.is_none_or(|winner| *winner == at)
    })
}

#[cfg(test)]
mod tests;
