use fastrand::Rng;

use super::*;

fn tcp(ports: &[u16]) -> BTreeSet<Served> {
    let protocol = "TCP";
    let all = ports.iter();
    all.map(|port| Served {
        port: *port,
        protocol,
    })
    .collect()
}

/// A load balancer: name, age (a smaller number is older), ports, those that the Service carries.
fn lb(name: &str, created: i64, ports: &[u16], carried: &[u16]) -> Claimant {
    Claimant {
        name: name.to_owned(),
        is_primary: name == "primary",
        created: Micros(created),
        ports: tcp(ports),
        carried: tcp(carried),
        offered: BTreeSet::new(),
    }
}

/// The same of one whose EndpointSlice has these ports.
fn offering(lb: Claimant, ports: &[u16]) -> Claimant {
    Claimant {
        offered: tcp(ports),
        ..lb
    }
}

fn say(claimants: &[Claimant]) -> Vec<String> {
    let lost = settle(claimants).into_iter();
    lost.map(|lost| {
        lost.map_or_else(
            || "serves".to_owned(),
            |it| format!("{} is {}'s", it.port.port, it.holder),
        )
    })
    .collect()
}

#[test]
fn shr_2_a_contested_port_is_of_who_has_it_else_the_primary_s_then_the_older_one_s() {
    for (what, claimants, expected) in [
        (
            "no conflict",
            vec![lb("primary", 5, &[80], &[]), lb("b", 1, &[443], &[])],
            vec!["serves", "serves"],
        ),
        (
            "the primary's, though it is younger",
            vec![lb("b", 1, &[80, 443], &[]), lb("primary", 5, &[80], &[])],
            vec!["80 is primary's", "serves"],
        ),
        (
            "the older one's",
            vec![lb("b", 2, &[80], &[]), lb("c", 1, &[80], &[])],
            vec!["80 is c's", "serves"],
        ),
        (
            "of one age by name",
            vec![lb("c", 1, &[80], &[]), lb("b", 1, &[80], &[])],
            vec!["80 is b's", "serves"],
        ),
        (
            "who has it keeps it, also against the primary",
            vec![
                lb("primary", 1, &[80, 443], &[443]),
                lb("b", 9, &[80], &[80]),
            ],
            vec!["80 is b's", "serves"],
        ),
        (
            "who loses one serves none, and others get the rest",
            vec![
                lb("primary", 1, &[80, 443], &[]),
                lb("b", 9, &[80], &[80]),
                lb("c", 10, &[443], &[]),
            ],
            vec!["80 is b's", "serves", "serves"],
        ),
        (
            "the first port that is another one's",
            vec![
                lb("primary", 1, &[443], &[443]),
                lb("b", 2, &[80], &[80]),
                lb("c", 0, &[22, 80, 443], &[]),
            ],
            vec!["serves", "serves", "80 is b's"],
        ),
        (
            "the Service is about to carry it for who offers it",
            vec![
                lb("a", 1, &[80], &[]),
                offering(lb("b", 9, &[80], &[]), &[80]),
            ],
            vec!["80 is b's", "serves"],
        ),
        (
            "a primary that serves does not stop for one that is about to",
            vec![
                lb("primary", 1, &[80, 443], &[80]),
                offering(lb("b", 9, &[443], &[]), &[443]),
            ],
            vec!["serves", "443 is primary's"],
        ),
        (
            "both offer it",
            vec![
                offering(lb("c", 2, &[80], &[]), &[80]),
                offering(lb("b", 9, &[80], &[]), &[80]),
            ],
            vec!["serves", "80 is c's"],
        ),
        (
            "who has it and lost its EndpointSlice keeps it",
            vec![
                lb("b", 9, &[80], &[80]),
                offering(lb("c", 2, &[80], &[]), &[80]),
            ],
            vec!["serves", "80 is b's"],
        ),
        (
            "each has what the other one wants",
            vec![
                lb("b", 1, &[80, 443], &[443]),
                lb("primary", 2, &[80, 443], &[80]),
            ],
            vec!["80 is primary's", "serves"],
        ),
    ] {
        assert_eq!(say(&claimants), expected, "{what}");
    }
}

#[test]
fn shr_2_a_port_counts_with_its_protocol() {
    let mut dns = lb("b", 1, &[53], &[]);
    dns.ports = [Served {
        port: 53,
        protocol: "UDP",
    }]
    .into();
    assert_eq!(
        say(&[lb("primary", 1, &[53], &[]), dns]),
        ["serves", "serves"]
    );
}

/// A random set of up to three of six ports.
fn some(rng: &mut Rng, least: usize) -> BTreeSet<u16> {
    (0..rng.usize(least..4)).map(|_| rng.u16(1..7)).collect()
}

/// A random group, in which the Service carries a port for one load balancer at most.
fn random(rng: &mut Rng) -> Vec<Claimant> {
    let has_primary = rng.bool();
    let mut carried = BTreeSet::new();
    let all = 0..rng.usize(1..7);
    all.map(|at| {
        let name = match at {
            0 if has_primary => "primary".to_owned(),
            _ => format!("lb{at}"),
        };
        let ports = some(rng, 1);
        let has = some(rng, 0).into_iter();
        let has: Vec<u16> = has
            .filter(|port| ports.contains(port) && carried.insert(*port))
            .collect();
        let offers = some(rng, 0).into_iter();
        let offers: Vec<u16> = offers.filter(|port| ports.contains(port)).collect();
        let ports: Vec<u16> = ports.into_iter().collect();
        offering(lb(&name, rng.i64(0..4), &ports, &has), &offers)
    })
    .collect()
}

fn for_random_groups(mut check: impl FnMut(&mut Rng, Vec<Claimant>)) {
    for seed in 0..20_000 {
        let mut rng = Rng::with_seed(seed);
        let group = random(&mut rng);
        check(&mut rng, group);
    }
}

#[test]
fn shr_2_each_port_is_served_by_one_and_each_loser_is_told_by_whom() {
    let (mut losers, mut stand_ins) = (0, 0);
    for_random_groups(|_, group| {
        let lost = settle(&group);
        let mut served = BTreeMap::new();
        for (claimant, _) in group.iter().zip(&lost).filter(|(_, lost)| lost.is_none()) {
            for port in &claimant.ports {
                let other = served.insert(*port, &claimant.name);
                assert!(other.is_none(), "{port:?} twice: {group:?}");
            }
        }
        for (claimant, lost) in group.iter().zip(&lost) {
            let Some(lost) = lost else { continue };
            losers += 1;
            assert!(claimant.ports.contains(&lost.port));
            assert_eq!(served.get(&lost.port), Some(&&lost.holder), "{group:?}");
            stand_ins += usize::from(claimant.carried.contains(&lost.port));
        }
    });
    assert!(losers > 10_000 && stand_ins > 0, "{losers}, {stand_ins}");
}

#[test]
fn shr_2_the_order_does_not_matter() {
    for_random_groups(|rng, group| {
        let turn = rng.usize(..group.len());
        let mut turned = group.clone();
        turned.rotate_left(turn);
        let mut found = settle(&turned);
        found.rotate_right(turn);
        assert_eq!(found, settle(&group), "{group:?}");
    });
}

#[test]
fn shr_2_what_is_served_stays_whoever_joins() {
    for_random_groups(|rng, mut group| {
        let before = settle(&group);
        let mut is_written = true;
        for (claimant, lost) in group.iter_mut().zip(&before) {
            let has = match lost {
                None => claimant.ports.clone(),
                Some(_) => BTreeSet::new(),
            };
            claimant.offered.clone_from(&has);
            // First the EndpointSlices, then the Service.
            if rng.bool() {
                claimant.carried = has;
            } else {
                claimant.carried.retain(|port| has.contains(port));
                is_written &= claimant.carried == has;
            }
        }
        assert_eq!(settle(&group), before, "{group:?}");
        let has_primary = group.iter().any(|it| it.is_primary);
        // A primary waits for no write of the Service: that is its own.
        let may_be_primary = is_written && !has_primary;
        let name = if may_be_primary { "primary" } else { "new" };
        let ports: Vec<u16> = some(rng, 1).into_iter().collect();
        group.push(lb(name, -1, &ports, &[]));
        let after = settle(&group);
        for (before, after) in before.iter().zip(&after) {
            assert!(before.is_some() || after.is_none(), "{group:?}");
        }
    });
}
