use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::*;
use crate::cached::Lb;
use crate::sharing::refusals::Refusals;
use crate::sharing::refusals::tests::pause;
use crate::sharing::service::tests::{lb_to, service, slice};
use crate::sharing::snapshot::tests::record;
use crate::sharing::snapshot::{Party, Snapshot};
use harvester_lb_object::Key;

const SEEDS: u64 = 500;
/// The port of the backends unless a test chooses another one.
const TARGET: u16 = 8080;

/// A Service as the API server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stored {
    owners: Vec<String>,
    /// Each with its target.
    ports: Vec<(u16, u16)>,
    address: &'static str,
}

/// The world of these tests: a group, the first of which is the primary, if it has one of the name `web`; and an API server with a policy.
#[derive(Clone)]
struct World {
    /// Names and ports, by age.
    lbs: Vec<(String, Vec<u16>)>,
    /// The ports of the backends of those that have others.
    targets: BTreeMap<String, u16>,
    /// The address that the Service is to ask for.
    address: &'static str,
    service: Option<Stored>,
    /// Ports and targets that no Service may have.
    denied: Vec<u16>,
    /// Addresses that no Service may ask for.
    denied_addresses: Vec<&'static str>,
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
            targets: BTreeMap::new(),
            address: "10.0.0.2",
            service: present.map(|(owners, ports)| Stored {
                owners: owners.iter().map(|it| (*it).to_owned()).collect(),
                ports: ports.iter().map(|port| (*port, TARGET)).collect(),
                address: "10.0.0.2",
            }),
            denied: denied.to_vec(),
            denied_addresses: Vec::new(),
            is_closed: false,
            refusals: Refusals::default(),
            now: Duration::ZERO,
            writes: 0,
        }
    }

    fn present(&self) -> Option<Service> {
        let stored = self.service.as_ref()?;
        let owners: Vec<&str> = stored.owners.iter().map(|it| &**it).collect();
        let ports = stored.ports.iter();
        let names: Vec<String> = ports.map(|(port, _)| format!("{port}-tcp")).collect();
        let named = stored.ports.iter().zip(&names);
        let named: Vec<(u16, &str)> = named.map(|((port, _), name)| (*port, &**name)).collect();
        let mut service = service(&owners, &named);
        let ports = service.spec.as_mut().and_then(|spec| spec.ports.as_mut());
        for (port, (_, target)) in ports.into_iter().flatten().zip(&stored.ports) {
            port.target_port = Some(IntOrString::Int(i32::from(*target)));
        }
        Some(service)
    }

    fn target(&self, name: &str) -> u16 {
        self.targets.get(name).copied().unwrap_or(TARGET)
    }

    /// Calls with what the Service is to be, and a snapshot of the group.
    fn with<T>(&self, then: impl FnOnce(&Wanted<'_>, &Snapshot<'_>) -> T) -> T {
        let primary = |name: &str| (name != "web").then_some("web");
        let objects = self.lbs.iter().zip(1..).map(|((name, ports), second)| {
            let names: Vec<String> = ports.iter().map(|port| format!("{port}-tcp")).collect();
            let names: Vec<&str> = names.iter().map(|it| &**it).collect();
            let mut slice = slice("web", &names);
            slice.metadata.name = Some(name.clone());
            let lb = lb_to(name, primary(name), second, ports, self.target(name));
            (lb, slice)
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
                target: IntOrString::Int(i32::from(self.target(name))),
            };
            let part = Part {
                name: name.clone(),
                uid: format!("u-{name}"),
                ..Part::default()
            };
            (part, ports.iter().map(port).collect::<Vec<_>>())
        });
        let asked = self.service.as_ref().map(|it| it.address);
        let wanted = Wanted {
            primary: own.as_ref().map(|(part, ports)| (part, &**ports)),
            others: &Others::of(&snapshot, false),
            present: present.as_ref(),
            fields: Some(self.address).filter(|it| asked.is_some_and(|asked| asked != *it)),
        };
        then(&wanted, &snapshot)
    }

    /// One write, if there is one to do. Returns whether there was.
    fn step(&mut self) -> bool {
        let before = self.service.clone();
        let write = |owners: &[(String, String)], ports: &[DesiredPort], fields| {
            let kept = before.as_ref().filter(|_| fields == Fields::Present);
            let target = |port: &DesiredPort| match port.target {
                IntOrString::Int(target) => u16::try_from(target).unwrap(),
                IntOrString::String(_) => unreachable!(),
            };
            let mut wanted = Stored {
                owners: owners.iter().map(|(name, _)| name.clone()).collect(),
                ports: ports.iter().map(|port| (port.port, target(port))).collect(),
                address: kept.map_or(self.address, |it| it.address),
            };
            wanted.owners.sort();
            let mut before = before.clone();
            if let Some(before) = &mut before {
                before.owners.sort();
            }
            (before.as_ref() != Some(&wanted)).then_some(wanted)
        };
        let next = self.with(|wanted, _| wanted.next_write(write));
        match next {
            NextWrite::Some(wanted, changes) => {
                self.writes += 1;
                let is_denied = self.denied_addresses.contains(&wanted.address)
                    || wanted.ports.iter().any(|(port, target)| {
                        self.denied.contains(port) || self.denied.contains(target)
                    });
                if self.is_closed || is_denied {
                    self.refusals.refused(&changes, "no", self.now, pause);
                } else {
                    self.service = Some(wanted);
                    self.refusals.written(&changes);
                }
                true
            }
            NextWrite::Settled(pending) => {
                self.refusals.settled(&pending);
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
        self.with(|wanted, snapshot| {
            let is_told = |name: &str| match name {
                "web" => wanted.refused_of_primary(&[]).is_some(),
                _ => snapshot.refusal(name).is_some(),
            };
            let names = self.lbs.iter().map(|(name, _)| &**name);
            let told = names.filter(|name| is_told(name));
            told.collect::<Vec<_>>().join(" ")
        })
    }

    fn ports(&self) -> Vec<u16> {
        let ports = self.service.iter().flat_map(|it| &it.ports);
        let mut ports: Vec<u16> = ports.map(|(port, _)| *port).collect();
        ports.sort_unstable();
        ports
    }

    /// The target of a port of the Service.
    fn target_of(&self, port: u16) -> Option<u16> {
        let mut ports = self.service.iter().flat_map(|it| &it.ports);
        ports.find_map(|(it, target)| (*it == port).then_some(*target))
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
fn shr_3_a_target_that_is_refused_keeps_nobody_from_joining_and_leaving() {
    let lbs: [(&str, &[u16]); 3] = [("web", &[80]), ("b", &[81]), ("c", &[82])];
    for of in ["web", "b"] {
        let mut world = World::new(&lbs, Some((&["web", "b", "gone"], &[80, 81, 90])), &[22]);
        world.targets.insert(of.to_owned(), 22);
        world.run();
        // The Service has no selector: the EndpointSlice alone says where the traffic goes.
        assert_eq!((world.ports(), &*world.told()), ([80, 81, 82].to_vec(), of));
        assert_eq!(
            (world.target_of(80), world.target_of(81)),
            (Some(8080), Some(8080))
        );
        // It has another one by now, or may have that.
        let mut edited = World {
            targets: [(of.to_owned(), 23)].into(),
            ..world.clone()
        };
        edited.run();
        world.denied.clear();
        assert!(world.wait());
        world.run();
        let port = if of == "web" { 80 } else { 81 };
        for (world, target) in [(&edited, 23), (&world, 22)] {
            assert_eq!((world.target_of(port), &*world.told()), (Some(target), ""));
            assert!(world.refusals.is_empty());
        }
    }
}

#[test]
fn shr_3_an_address_that_is_refused_keeps_nobody_from_joining_and_leaving() {
    let lbs: [(&str, &[u16]); 3] = [("web", &[80]), ("b", &[81]), ("c", &[82])];
    let present: (&[&str], &[u16]) = (&["web", "b", "gone"], &[80, 81, 90]);
    let mut world = World::new(&lbs, Some(present), &[]);
    (world.address, world.denied_addresses) = ("10.0.1.3", vec!["10.0.1.3"]);
    let address = |world: &World| world.service.as_ref().map(|it| it.address);
    world.run();
    for _ in 0..5 {
        assert_eq!(
            (world.ports(), &*world.told()),
            ([80, 81, 82].to_vec(), "web")
        );
        assert_eq!(address(&world), Some("10.0.0.2"));
        assert!(world.wait());
        assert_eq!(world.run(), 1);
    }
    // Back to the one that it has.
    let mut back = world.clone();
    back.address = "10.0.0.2";
    assert_eq!((back.run(), &*back.told()), (0, ""));
    assert!(back.refusals.is_empty());
    // A third one has not been refused.
    world.address = "10.0.2.4";
    world.run();
    assert_eq!((address(&world), &*world.told()), (Some("10.0.2.4"), ""));
    // Of a group without its primary the holder is told.
    let lbs: [(&str, &[u16]); 2] = [("b", &[81]), ("c", &[82])];
    let mut world = World::new(&lbs, Some((&["b"], &[81])), &[]);
    (world.address, world.denied_addresses) = ("10.0.1.3", vec!["10.0.1.3"]);
    world.run();
    assert_eq!((world.ports(), &*world.told()), ([81, 82].to_vec(), "b"));
    assert_eq!(address(&world), Some("10.0.0.2"));
}

#[test]
fn shr_3_a_port_that_is_refused_does_not_hold_up_the_address() {
    let lbs: [(&str, &[u16]); 2] = [("web", &[80, 22]), ("b", &[81])];
    let mut world = World::new(&lbs, Some((&["web", "b"], &[80, 81])), &[22]);
    world.run();
    // It moves, or somebody has edited the address of the Service.
    world.address = "10.0.1.3";
    assert_eq!(world.run(), 1);
    assert_eq!(
        world.service.as_ref().map(|it| it.address),
        Some("10.0.1.3")
    );
    assert_eq!((world.ports(), &*world.told()), ([80, 81].to_vec(), "web"));
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
        // Targets that are denied, and others.
        for (name, _) in &lbs {
            if let Some(target) = [22, 8081].get(random.usize(..12)) {
                world.targets.insert((*name).to_owned(), *target);
            }
        }
        world.denied.push(22);
        // The address of a primary moves to one that is denied.
        let moves = lbs[0].0 == "web" && present.is_some() && random.u8(..4) == 0;
        if moves {
            (world.address, world.denied_addresses) = ("10.0.1.3", vec!["10.0.1.3"]);
        }
        let is_refused =
            |world: &World, name: &str, ports: &[u16]| is_denied(ports) || world.target(name) == 22;
        let is_served = |name: &str| present.is_some() && owners.contains(&name);
        let writes = world.run();
        let allowed = |world: &World| {
            let mut all: Vec<u16> = world
                .lbs
                .iter()
                .filter(|(name, ports)| is_served(name) || !is_refused(world, name, ports))
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
            let all = world.lbs.iter();
            let all = all
                .filter(|(name, ports)| is_refused(world, name, ports) || (moves && name == "web"));
            all.map(|(name, _)| &**name).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(world.ports(), allowed(&world), "seed {seed}");
        assert_eq!(world.told(), refused(&world), "seed {seed}");
        assert!(writes <= lbs.len() + 3, "seed {seed}: {writes} writes");
        // Nothing changes while they are tried again.
        for _ in 0..random.u8(..20) {
            world.wait();
            let writes = world.run();
            assert!(writes <= lbs.len() + 1, "seed {seed}: {writes} writes");
            assert_eq!(world.ports(), allowed(&world), "seed {seed}");
            assert_eq!(world.told(), refused(&world), "seed {seed}");
        }
        // What is allowed at last is served within a minute.
        world.denied.clear();
        world.denied_addresses.clear();
        world.now += Duration::from_mins(1);
        world.run();
        let mut all: Vec<u16> = lbs.iter().flat_map(|(_, ports)| ports.clone()).collect();
        all.sort_unstable();
        assert_eq!((world.ports(), &*world.told()), (all, ""), "seed {seed}");
        assert!(world.refusals.is_empty(), "seed {seed}");
    }
}
