//! As [`super::resume`], for load balancers that share an address: each of them is continued, and all of them come to the same objects.

use harvester_lb_fixtures as fixtures;

use super::group::{Group, ITS_NAMESAKE, LISTENERS, MISNAMED, UNNAMED, service_of, spec_with};
use super::resume::make_odd;
use super::world::{ADDRESS, World, machine, object};
use crate::cached::{self, VmiState};
use crate::status;
use harvester_lb_api::condition;

const SEEDS: u64 = 1_000;

/// What is left to write for one load balancer of a group while nothing else changes, with time for kube-proxy in between.
fn run_part(group: &mut Group, at: usize) -> Vec<String> {
    let (mut all, mut quiet) = (Vec::new(), 0);
    for _ in 0..12 {
        let written = group.walk(at, usize::MAX).map(|(written, _)| written);
        let written = written.unwrap_or_default();
        quiet = if written.is_empty() { quiet + 1 } else { 0 };
        if quiet == 2 {
            return all;
        }
        all.extend(written);
        group.settle();
    }
    panic!("does not come to rest: {all:?}");
}

/// Writes for all of them in turn until nothing is left, at most `budget` times. Returns how often.
fn run_all(group: &mut Group, budget: usize) -> usize {
    let (mut all, mut quiet) = (0, 0);
    for _ in 0..20 {
        let before = all;
        for at in 0..group.parts.len() {
            all += group.walk(at, budget - all).map_or(0, |(it, _)| it.len());
            if all == budget {
                return all;
            }
        }
        quiet = if all == before { quiet + 1 } else { 0 };
        if quiet == 2 {
            return all;
        }
        group.settle();
    }
    panic!("does not come to rest after {all} writes");
}

/// The status that names the address says already what the one that joins waits for, so that no other is written until it is served.
#[test]
fn shr_4_a_join_writes_its_status_once_before_the_service_has_its_ports() {
    let mut group = Group::new(&[("a", spec_with([0])), ("b", spec_with([1]))]);
    for part in &mut group.parts {
        part.machines
            .extend([machine("vm1", "10.10.0.1", VmiState::Running)]);
    }
    group.walk(0, usize::MAX);
    let (written, _) = group.walk(1, usize::MAX).unwrap();
    assert_eq!(written, ["commit the address", "create EndpointSlice"]);
    let conditions = status::conditions(&group.parts[1].lb);
    let ready = condition::find(conditions, condition::READY).unwrap();
    assert_eq!(ready.reason.as_deref(), Some(status::WAITING_FOR_PRIMARY));
}

/// What is said of a secondary with the address of its group, before anything else is written: it waits for kube-vip if the Service has
/// its ports, as when the group moves (REL-4), and else for them.
#[test]
fn shr_3_what_a_secondary_waits_for_when_its_group_has_another_address() {
    const MOVED: &str = "10.0.0.3";
    let mut group = Group::new(&[("a", spec_with([0])), ("b", spec_with([1]))]);
    for part in &mut group.parts {
        part.machines
            .extend([machine("vm1", "10.10.0.1", VmiState::Running)]);
    }
    let mut fresh = group.clone();
    fresh.walk(0, usize::MAX);
    // It had a Service of its own.
    fresh.parts[1].lb.status.get_or_insert_default().address = Some("10.0.0.7".to_owned());
    run_all(&mut group, usize::MAX);
    let mut announced = group.clone();
    let status = announced.parts[1].lb.status.as_mut().unwrap();
    status.address = Some(ADDRESS.to_owned());
    for (group, refused, reason, shown) in [
        (&fresh, None, status::WAITING_FOR_PRIMARY, None),
        (&fresh, Some("exceeded quota"), status::API_ERROR, None),
        (&group, None, status::WAITING_FOR_EXTERNAL_IP, None),
        (
            &announced,
            None,
            status::WAITING_FOR_EXTERNAL_IP,
            Some(ADDRESS),
        ),
        (
            &announced,
            Some("exceeded quota"),
            status::API_ERROR,
            Some(ADDRESS),
        ),
    ] {
        let mut group = group.clone();
        assert_eq!(group.commit(1, MOVED, refused), ["commit the address"]);
        let lb = &group.parts[1].lb;
        let ready = condition::find(status::conditions(lb), condition::READY).unwrap();
        assert_eq!(ready.reason.as_deref(), Some(reason), "{ready:?}");
        let status = lb.status.as_ref().unwrap();
        assert_eq!(status.address.as_deref(), shown, "{reason}");
        assert_eq!(status::allocated(lb), Some(MOVED));
    }
}

/// A primary and those that name it, in any state that they can be in, also after somebody has edited what they have. `edits`: how many
/// kinds of edits there may be.
fn any_group(random: &mut fastrand::Rng, edits: u8) -> Group {
    let names = ["a", "b", "c", "d"];
    let count = random.usize(2..=names.len());
    let spec = |random: &mut fastrand::Rng, name: &str| {
        let mut chosen: Vec<_> = (0..LISTENERS).collect();
        random.shuffle(&mut chosen);
        chosen.truncate(random.usize(1..=3));
        // Of several ports of a Service each has a name.
        if chosen.contains(&UNNAMED) {
            chosen = vec![UNNAMED];
        }
        // As long as the primary is alone it keeps this name, and keeps the other one out.
        if name == "a" && chosen.contains(&MISNAMED) && !chosen.contains(&ITS_NAMESAKE) {
            chosen.push(ITS_NAMESAKE);
        }
        let mut spec = spec_with(chosen);
        if random.u8(..4) == 0 {
            spec["healthCheck"] = fixtures::quick_check();
        }
        spec
    };
    let specs: Vec<_> = names[..count]
        .iter()
        .map(|name| (*name, spec(random, name)))
        .collect();
    let mut group = Group::new(&specs);
    for part in &mut group.parts {
        for (name, address) in [("vm1", "10.10.0.1"), ("vm2", "10.10.0.2")] {
            if random.bool() {
                let state = *random
                    .choice(&[VmiState::Running, VmiState::Failed])
                    .unwrap();
                part.machines.extend([machine(name, address, state)]);
            }
        }
        if part.key().name.as_ref() != "a" && random.u8(..8) == 0 {
            let own = object(service_of(&part.key().name));
            part.service = cached::service(Ok(own));
        }
    }
    for _ in 0..random.usize(..12) {
        let (at, budget) = (random.usize(..count), random.usize(..4));
        group.walk(at, budget);
        if random.bool() {
            group.settle();
        }
    }
    // One that gets another spec may want a port that the Service carries for somebody else: then even the primary has none.
    if random.bool() {
        let at = random.usize(..count) * random.usize(..2);
        group.parts[at].lb.spec = object(spec(random, names[at]));
    }
    for _ in 0..random.usize(..3) {
        let at = random.usize(..count);
        edit(random.u8(..edits), &mut group.parts[at]);
    }
    for _ in 0..random.usize(..2) {
        let at = random.usize(..count);
        make_odd(random, &mut group.parts[at]);
    }
    group
}

/// Kinds of edits.
const EDITS: u8 = 9;

/// What somebody else may do to the objects of a load balancer.
fn edit(edited: u8, part: &mut World) {
    if let Some(service) = part
        .service
        .as_deref()
        .filter(|_| ![4, 5, 6, 7].contains(&edited))
    {
        let mut service = service.clone();
        let ports = service.spec.as_mut().unwrap().ports.as_mut().unwrap();
        match edited {
            // The API server demands one.
            0 => ports.truncate(ports.len().max(2) - 1),
            1 => ports[0].port = 8_000,
            2 => service.metadata.owner_references = None,
            3 => return part.service = None,
            _ => ports[0].name = Some("edited".to_owned()),
        }
        part.service = cached::service(Ok(service));
    }
    let is_checked = part.lb.spec.health_check.is_some();
    if let Some(slice) = &mut part.slice {
        match edited {
            4 => slice.metadata.owner_references = None,
            5 => slice.ports = None,
            6 if !is_checked => "IPv6".clone_into(&mut slice.address_type),
            7 if !is_checked => part.slice = None,
            _ => {}
        }
    }
}

/// The writes without the last one of each plan: a status says what its plan has found, and a plan that is interrupted says nothing.
fn without_status(written: &[String]) -> Vec<&str> {
    let all = written.iter().map(String::as_str);
    all.filter(|it| *it != "write status").collect()
}

#[test]
fn a_plan_of_one_that_shares_an_address_is_continued_too() {
    let (mut longest, mut secondaries) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        // Without the last kind, a name that nobody has given: a process that starts does not know it, and removes it at once.
        let start = any_group(&mut random, EDITS - 1);
        let at = random.usize(..start.parts.len());
        let mut whole = start.clone();
        whole.restart();
        let all = run_part(&mut whole, at);
        longest = longest.max(all.len());
        secondaries += usize::from(at > 0 && !all.is_empty());
        for cut in 0..all.len() {
            let mut group = start.clone();
            group.restart();
            let mut written = Vec::new();
            // One plan does not reach each place.
            while written.len() < cut {
                let left = cut - written.len();
                written.extend(group.walk(at, left).unwrap().0);
                group.settle();
            }
            group.restart();
            written.extend(run_part(&mut group, at));
            assert_eq!(
                without_status(&written),
                without_status(&all),
                "seed {seed}, cut after {cut} of {at}"
            );
            // A secondary that waits until the Service has its ports does not say everything yet.
            let is_compared = |kind: &str| at == 0 || kind != "lb";
            let differ = group.differences(&whole, is_compared);
            assert_eq!(differ, Vec::<String>::new(), "seed {seed}, {cut}");
        }
    }
    assert!(longest >= 5 && secondaries > 100, "{longest} {secondaries}");
}

#[test]
fn a_group_that_is_interrupted_anywhere_comes_to_the_same_objects() {
    let (mut longest, mut contested) = (0, 0);
    for seed in 0..SEEDS {
        let mut random = fastrand::Rng::with_seed(seed);
        let start = any_group(&mut random, EDITS);
        let mut whole = start.clone();
        let count = run_all(&mut whole, usize::MAX);
        longest = longest.max(count);
        contested += usize::from(whole.is_primary_contested());
        let mut group = start;
        run_all(&mut group, random.usize(..=count));
        group.restart();
        run_all(&mut group, usize::MAX);
        let differ = group.differences(&whole, |_| true);
        assert_eq!(differ, Vec::<String>::new(), "seed {seed}");
        // At rest nothing is written.
        group.restart();
        assert_eq!(run_all(&mut group, usize::MAX), 0, "seed {seed}");
    }
    assert!(longest >= 12 && contested >= 5, "{longest} {contested}");
}
