use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;
use crate::cached::Lb;
use crate::sharing::refusals::Refusals;
use crate::sharing::refusals::tests::pause;
use crate::sharing::service::tests::{lb, service, slice};
use crate::sharing::snapshot::tests::record;
use crate::sharing::snapshot::{Party, Snapshot};
use harvester_lb_object::Key;

const SEEDS: u64 = 500;

/// A group, the first of which is the primary, if it has one of the name `web`; and an API server with a policy.
struct World {
    /// Names and ports, by age.
    lbs: Vec<(String, Vec<u16>)>,
    /// Owners and ports of the Service.
    service: Option<(Vec<String>, Vec<u16>)>,
    /// Ports that no Service may have.
    denied: Vec<u16>,
    /// No Service may be written.
    is_closed: bool,
    refusals: Refusals,
    now: Duration,
    writes: usize,
}

impl World {
    fn new(lbs: &[(&str, &[u16])], present: Option<(&[&str], &[u16])>, denied: &[u16]) -> Self {
        let lb = |(name, ports): &(&str, &[u16])| ((*name).to_owned(), ports.to_vec());
        Self {
            lbs: lbs.iter().map(lb).collect(),
            service: present.map(|(owners, ports)| {
                let owners = owners.iter().map(|it| (*it).to_owned());
                (owners.collect(), ports.to_vec())
            }),
            denied: denied.to_vec(),
            is_closed: false,
            refusals: Refusals::default(),
            now: Duration::ZERO,
            writes: 0,
        }
    }

    fn present(&self) -> Option<Service> {
        let (owners, ports) = self.service.as_ref()?;
        let owners: Vec<&str> = owners.iter().map(|it| &**it).collect();
        let names: Vec<String> = ports.iter().map(|port| format!("{port}-tcp")).collect();
        let ports: Vec<(u16, &str)> = ports
            .iter()
            .zip(&names)
            .map(|(port, name)| (*port, &**name))
            .collect();
        Some(service(&owners, &ports))
    }

    /// Calls with the primary's part and a snapshot of the group.
    fn with<T>(
        &self,
        then: impl FnOnce(ServedPrimary<'_>, &Snapshot<'_>, Option<&Service>) -> T,
    ) -> T {
        let primary = |name: &str| (name != "web").then_some("web");
        let objects = self.lbs.iter().zip(1..).map(|((name, ports), second)| {
            let names: Vec<String> = ports.iter().map(|port| format!("{port}-tcp")).collect();
            let names: Vec<&str> = names.iter().map(|it| &**it).collect();
            let mut slice = slice("web", &names);
            slice.metadata.name = Some(name.clone());
            (lb(name, primary(name), second, ports), slice)
        });
        let objects: Vec<(Lb, EndpointSlice)> = objects.collect();
        let parties = objects.iter().map(|(lb, slice)| Party {
            lb,
            slice: Some(slice),
            secondary: None,
            is_left_alone: false,
            names_others: false,
        });
        let key = Key::new("ns", "web");
        let holder = &*self.lbs[0].0;
        let records = [record(
            "10.0.0.2",
            holder,
            Some("web").filter(|it| *it != holder),
        )];
        let present = self.present();
        let mut snapshot = Snapshot::of(&key, parties.collect(), present.as_ref(), &records);
        snapshot.refusals = Some(Arc::new((self.refusals.clone(), self.now)));
        let own = self.lbs.iter().find(|(name, _)| name == "web");
        let own = own.map(|(name, ports)| {
            let port = |port: &u16| DesiredPort {
                name: format!("{port}-tcp"),
                protocol: "TCP",
                port: *port,
                target: IntOrString::Int(8080),
            };
            let part = Part {
                name: name.clone(),
                uid: format!("u-{name}"),
                ..Part::default()
            };
            (part, ports.iter().map(port).collect::<Vec<_>>())
        });
        let own = own.as_ref().map(|(part, ports)| (part, &**ports));
        then(own, &snapshot, present.as_ref())
    }

    /// One write, if there is one to do. Returns whether there was.
    fn step(&mut self) -> bool {
        let before = self.service.clone();
        let write = |owners: &[(String, String)], ports: &[DesiredPort]| {
            let owners: Vec<String> = owners.iter().map(|(name, _)| name.clone()).collect();
            let ports: Vec<u16> = ports.iter().map(|port| port.port).collect();
            let sorted = |(mut owners, ports): (Vec<String>, Vec<u16>)| {
                owners.sort();
                (owners, ports)
            };
            let wanted = sorted((owners, ports));
            (before.clone().map(sorted) != Some(wanted.clone())).then_some(wanted)
        };
        let next = self.with(|primary, snapshot, present| {
            next_write(primary, &Others::of(snapshot, false), present, write)
        });
        match next {
            NextWrite::Some(wanted, added) => {
                self.writes += 1;
                let is_denied = wanted.1.iter().any(|port| self.denied.contains(port));
                if self.is_closed || is_denied {
                    self.refusals.refused(&added, "no", self.now, pause);
                } else {
                    self.service = Some(wanted);
                    self.refusals.written(&added);
                }
                true
            }
            NextWrite::Settled => {
                self.refusals.rest_is_written();
                false
            }
            NextWrite::Wait => false,
        }
    }

    /// Writes until there is nothing to do now. Returns the number of writes.
    fn run(&mut self) -> usize {
        let before = self.writes;
        while self.step() {
            assert!(self.writes < before + 100, "does not come to rest");
        }
        self.writes - before
    }

    /// Until something is due again.
    fn wait(&mut self) -> bool {
        let wait = self.refusals.retry_in(self.now);
        self.now += wait.unwrap_or_default();
        wait.is_some()
    }

    /// Who is told that something is refused.
    fn told(&self) -> String {
        self.with(|_, snapshot, _| {
            let names = self.lbs.iter().map(|(name, _)| &**name);
            let told = names.filter(|name| snapshot.refusal(name).is_some());
            told.collect::<Vec<_>>().join(" ")
        })
    }

    fn ports(&self) -> Vec<u16> {
        let mut ports = self.service.clone().unwrap_or_default().1;
        ports.sort_unstable();
        ports
    }
}

#[test]
fn shr_3_an_older_one_that_is_refused_keeps_no_younger_one_waiting() {
    let lbs: [(&str, &[u16]); 4] = [
        ("web", &[80]),
        ("a", &[7777]),
        ("b", &[81]),
        ("c", &[82, 7778]),
    ];
    let mut world = World::new(&lbs, Some((&["web"], &[80])), &[7777, 7778]);
    // All, then one by one.
    assert_eq!(world.run(), 4);
    assert_eq!((world.ports(), &*world.told()), ([80, 81].to_vec(), "a c"));
    world.lbs.push(("d".to_owned(), vec![83]));
    assert_eq!(world.run(), 1);
    // Who leaves does so at once.
    world.lbs.retain(|(name, _)| name != "b");
    assert_eq!(world.run(), 1);
    assert_eq!(world.ports(), [80, 83]);
    // Each is tried by itself when it is due.
    for _ in 0..20 {
        assert!(world.wait());
        assert!((1..=2).contains(&world.run()));
        assert_eq!((world.ports(), &*world.told()), ([80, 83].to_vec(), "a c"));
    }
    world.denied = vec![7778];
    world.now += Duration::from_mins(1);
    world.run();
    assert_eq!(
        (world.ports(), &*world.told()),
        ([80, 83, 7777].to_vec(), "c")
    );
}

#[test]
fn shr_3_a_port_of_the_primary_that_is_refused_concerns_the_primary_alone() {
    let lbs: [(&str, &[u16]); 3] = [("web", &[80, 22]), ("a", &[81]), ("b", &[82])];
    let mut world = World::new(&lbs, Some((&["web", "a"], &[80, 81])), &[22]);
    world.run();
    assert_eq!(
        (world.ports(), &*world.told()),
        ([80, 81, 82].to_vec(), "web")
    );
    world.lbs[0].1 = vec![80];
    world.run();
    assert_eq!((world.ports(), &*world.told()), ([80, 81, 82].to_vec(), ""));
    // Its first ones, as those of all, when there is no Service.
    let mut world = World::new(&lbs, None, &[22]);
    world.run();
    assert_eq!((world.ports(), &*world.told()), ([81, 82].to_vec(), "web"));
}

#[test]
fn shr_3_a_service_that_cannot_be_written_is_tried_with_a_back_off_and_told_to_those_it_concerns() {
    let lbs: [(&str, &[u16]); 3] = [("web", &[80]), ("b", &[81]), ("c", &[82])];
    // One has left, c joins.
    let mut world = World::new(&lbs, Some((&["web", "b", "gone"], &[80, 81, 90])), &[]);
    world.is_closed = true;
    assert_eq!(world.run(), 2);
    assert_eq!(world.told(), "c");
    for _ in 0..20 {
        assert!(world.wait());
        assert_eq!(world.run(), 1);
        assert_eq!(world.told(), "c");
    }
    world.is_closed = false;
    assert!(world.wait());
    world.run();
    assert_eq!((world.ports(), &*world.told()), ([80, 81, 82].to_vec(), ""));
    assert!(world.refusals.is_empty());
}

#[test]
fn shr_3_what_is_refused_of_the_primary_besides_new_ports_is_told_to_it() {
    let lbs: [(&str, &[u16]); 2] = [("web", &[80]), ("b", &[81])];
    let mut world = World::new(&lbs, Some((&["web", "b", "gone"], &[80, 81, 90])), &[]);
    world.is_closed = true;
    world.run();
    let told = |world: &World, differs: bool| {
        let compared = RefCell::new(String::new());
        let why = world.with(|primary, snapshot, present| {
            let others = Others::of(snapshot, false);
            refused_of_primary(primary, &others, present, |owners, ports| {
                let owners: Vec<&str> = owners.iter().map(|(name, _)| &**name).collect();
                let ports: Vec<String> = ports.iter().map(|it| it.port.to_string()).collect();
                *compared.borrow_mut() = format!("{} {}", owners.join(" "), ports.join(" "));
                differs.then_some(())
            })
        });
        (why, compared.into_inner())
    };
    // What becomes of the others does not count.
    let as_present = "web b gone 80 81 90".to_owned();
    assert_eq!(
        told(&world, true),
        (Some("no".to_owned()), as_present.clone())
    );
    assert_eq!(told(&world, false), (None, as_present));
    world.is_closed = false;
    world.wait();
    world.run();
    assert_eq!(told(&world, true), (None, String::new()));
}

#[test]
fn shr_3_whoever_is_allowed_is_served_whatever_else_is_refused() {
    for seed in 0..SEEDS {
        let random = &mut fastrand::Rng::with_seed(seed);
        let mut free: Vec<u16> = (80..120).collect();
        random.shuffle(&mut free);
        let mut take = |random: &mut fastrand::Rng| -> Vec<u16> {
            let count = random.usize(1..=3);
            free.split_off(free.len() - count)
        };
        let mut names = vec!["a", "b", "c", "d", "e", "f"];
        names.truncate(random.usize(1..=6));
        if random.u8(..3) > 0 {
            names.insert(0, "web");
        }
        let lbs: Vec<(&str, Vec<u16>)> = names.iter().map(|it| (*it, take(random))).collect();
        let all = lbs.iter().flat_map(|(_, ports)| ports.clone());
        let denied: Vec<u16> = all.filter(|_| random.u8(..4) == 0).collect();
        let is_denied = |ports: &[u16]| ports.iter().any(|port| denied.contains(port));
        // Some are served already, and one that has left has a port of its own.
        let served = lbs.iter().filter(|(_, ports)| !is_denied(ports));
        let served: Vec<_> = served.filter(|_| random.bool()).collect();
        let gone = take(random);
        let mut owners: Vec<&str> = served.iter().map(|(name, _)| *name).collect();
        owners.push("gone");
        let ports: Vec<u16> = served
            .iter()
            .flat_map(|(_, ports)| ports.clone())
            .chain(gone.clone())
            .collect();
        let present = random.bool().then_some((&*owners, &*ports));
        let of: Vec<(&str, &[u16])> = lbs.iter().map(|(name, ports)| (*name, &**ports)).collect();
        let mut world = World::new(&of, present, &denied);
        let writes = world.run();
        let allowed = |world: &World| {
            let mut all: Vec<u16> = world
                .lbs
                .iter()
                .filter(|(_, ports)| !is_denied(ports))
                .flat_map(|(_, ports)| ports.clone())
                .collect();
            // It must have one.
            if all.is_empty() && present.is_some() {
                all.clone_from(&gone);
            }
            all.sort_unstable();
            all
        };
        let refused = |world: &World| {
            let all = world.lbs.iter().filter(|(_, ports)| is_denied(ports));
            all.map(|(name, _)| &**name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(world.ports(), allowed(&world), "seed {seed}");
        assert_eq!(world.told(), refused(&world), "seed {seed}");
        assert!(writes <= lbs.len() + 2, "seed {seed}: {writes} writes");
        // Nothing changes while they are tried again.
        for _ in 0..random.u8(..20) {
            world.wait();
            let writes = world.run();
            assert!(writes <= lbs.len(), "seed {seed}: {writes} writes");
            assert_eq!(world.ports(), allowed(&world), "seed {seed}");
            assert_eq!(world.told(), refused(&world), "seed {seed}");
        }
        // What is allowed at last is served within a minute.
        world.denied.clear();
        world.now += Duration::from_mins(1);
        world.run();
        let mut all: Vec<u16> = lbs.iter().flat_map(|(_, ports)| ports.clone()).collect();
        all.sort_unstable();
        assert_eq!((world.ports(), &*world.told()), (all, ""), "seed {seed}");
        assert!(world.refusals.is_empty(), "seed {seed}");
    }
}
