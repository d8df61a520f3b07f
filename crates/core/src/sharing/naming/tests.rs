use fastrand::Rng;

use super::*;

const MS: Duration = Duration::from_millis(1);

fn tcp(port: u16) -> Served {
    Served {
        port,
        protocol: "TCP",
    }
}

fn own(ports: &[u16]) -> BTreeMap<Served, String> {
    let all = ports.iter();
    all.map(|port| (tcp(*port), format!("own{port}"))).collect()
}

fn shared(ports: &[u16]) -> BTreeMap<Served, String> {
    let all = ports.iter();
    all.map(|port| (tcp(*port), shared_name(tcp(*port))))
        .collect()
}

/// The names in an EndpointSlice, and in the Service, of one port.
fn of(names: &Names, port: u16) -> (Vec<&str>, &str) {
    let slice = names.slice[&tcp(port)].iter();
    (slice.map(|it| &**it).collect(), &names.service[&tcp(port)])
}

/// The API server, and what this process has observed.
#[derive(Default)]
struct Scene {
    stored: Stored,
    observed: Option<Observed>,
    now: Duration,
}

impl Scene {
    fn next(&mut self, wanted: &BTreeMap<Served, String>) -> Names {
        let observed = Observed::after(self.observed.as_ref(), self.stored.clone(), self.now);
        let names = next(wanted, &observed, self.now);
        self.observed = Some(observed);
        names
    }

    fn write(&mut self, names: &Names) {
        self.stored.slice.clone_from(&names.slice);
        self.stored.service.clone_from(&names.service);
    }
}

#[test]
fn shr_3_the_name_is_port_and_protocol() {
    assert_eq!(shared_name(tcp(80)), "80-tcp");
    let dns = Served {
        port: 53,
        protocol: "UDP",
    };
    assert_eq!(shared_name(dns), "53-udp");
}

#[test]
fn shr_4_slice_with_both_names_then_service_then_slice_with_the_new_one() {
    let mut scene = Scene::default();
    let names = scene.next(&own(&[80]));
    assert_eq!(of(&names, 80), (vec!["own80"], "own80"), "a new Service");
    assert_eq!(names.again_in, None);
    scene.write(&names);
    scene.now += 60 * 1_000 * MS;
    assert_eq!(scene.next(&own(&[80])), names, "at rest");

    let names = scene.next(&shared(&[80]));
    assert_eq!(of(&names, 80), (vec!["80-tcp", "own80"], "own80"));
    assert_eq!(names.again_in, Some(SETTLE));
    scene.write(&names);
    let waits = scene.next(&shared(&[80]));
    assert_eq!(of(&waits, 80), of(&names, 80));
    scene.now += 2_999 * MS;
    let waits = scene.next(&shared(&[80]));
    assert_eq!((of(&waits, 80), waits.again_in), (of(&names, 80), Some(MS)));

    scene.now += MS;
    let names = scene.next(&shared(&[80]));
    assert_eq!(of(&names, 80), (vec!["80-tcp", "own80"], "80-tcp"));
    assert_eq!(names.again_in, Some(SETTLE));
    scene.write(&names);
    let waits = scene.next(&shared(&[80]));
    assert_eq!(of(&waits, 80), of(&names, 80));

    scene.now += SETTLE;
    let names = scene.next(&shared(&[80]));
    assert_eq!(of(&names, 80), (vec!["80-tcp"], "80-tcp"));
    assert_eq!(names.again_in, None);
    scene.write(&names);
    // Back likewise.
    let names = scene.next(&own(&[80]));
    assert_eq!(of(&names, 80), (vec!["80-tcp", "own80"], "80-tcp"));
}

#[test]
fn shr_4_a_port_that_is_added_has_its_name_at_once() {
    let mut scene = Scene::default();
    let names = scene.next(&shared(&[80]));
    scene.write(&names);
    scene.now += 2 * SETTLE;
    let names = scene.next(&shared(&[80, 443]));
    assert_eq!(of(&names, 443), (vec!["443-tcp"], "443-tcp"));
    assert_eq!(of(&names, 80), (vec!["80-tcp"], "80-tcp"));
    assert_eq!(names.again_in, None);
}

#[test]
fn shr_4_another_process_waits_anew() {
    let mut scene = Scene::default();
    let names = scene.next(&own(&[80]));
    scene.write(&names);
    scene.now += 2 * SETTLE;
    let names = scene.next(&shared(&[80]));
    scene.write(&names);
    scene.next(&shared(&[80]));
    scene.now += SETTLE;
    scene.observed = None;
    let waits = scene.next(&shared(&[80]));
    assert_eq!(
        (of(&waits, 80), waits.again_in),
        (of(&names, 80), Some(SETTLE))
    );
}

/// kube-proxy, which learns of each change of the Service and of the EndpointSlice within [`SETTLE`], of each in its order.
#[derive(Default)]
struct Proxy {
    known: Stored,
    services: Vec<(Duration, BTreeMap<Served, String>)>,
    slices: Vec<(Duration, BTreeMap<Served, BTreeSet<String>>)>,
}

impl Proxy {
    fn told(&mut self, rng: &mut Rng, stored: &Stored, now: Duration) {
        let mut at = || now + MS * rng.u32(0..3_000);
        if self.services.last().map_or(&self.known.service, |it| &it.1) != &stored.service {
            let after = self.services.last().map_or(Duration::ZERO, |it| it.0);
            self.services
                .push((at().max(after), stored.service.clone()));
        }
        if self.slices.last().map_or(&self.known.slice, |it| &it.1) != &stored.slice {
            let after = self.slices.last().map_or(Duration::ZERO, |it| it.0);
            self.slices.push((at().max(after), stored.slice.clone()));
        }
    }

    fn sees(&mut self, now: Duration) {
        while self.services.first().is_some_and(|(at, _)| *at <= now) {
            self.known.service = self.services.remove(0).1;
        }
        while self.slices.first().is_some_and(|(at, _)| *at <= now) {
            self.known.slice = self.slices.remove(0).1;
        }
    }

    /// The ports of its Service for which it has no endpoints.
    fn refused(&self) -> Vec<Served> {
        let has = |port: &Served, name: &String| {
            let slice = self.known.slice.get(port);
            slice.is_some_and(|names| names.contains(name))
        };
        let all = self.known.service.iter();
        all.filter(|(port, name)| !has(port, name))
            .map(|(port, _)| *port)
            .collect()
    }
}

/// Members join and leave at any time, the process restarts, and is slow: no port is without endpoints.
#[test]
fn shr_4_kube_proxy_has_endpoints_for_each_port_all_the_time() {
    let mut changes = 0;
    for seed in 0..400 {
        let mut rng = Rng::with_seed(seed);
        let (mut scene, mut proxy) = (Scene::default(), Proxy::default());
        let mut is_shared = false;
        let names = scene.next(&own(&[80, 443]));
        scene.write(&names);
        proxy.known = scene.stored.clone();
        for _ in 0..400 {
            scene.now += MS * rng.u32(1..200);
            proxy.sees(scene.now);
            assert_eq!(proxy.refused(), [], "seed {seed} at {:?}", scene.now);
            match rng.u8(..60) {
                0..3 => is_shared = !is_shared,
                3 => scene.observed = None,
                _ => {}
            }
            if rng.u8(..4) == 0 {
                let wanted = if is_shared {
                    shared(&[80, 443])
                } else {
                    own(&[80, 443])
                };
                let names = scene.next(&wanted);
                changes += usize::from(names.service != scene.stored.service);
                // Killed between the two writes, or before both.
                match rng.u8(..10) {
                    0 => {}
                    1 => scene.stored.slice.clone_from(&names.slice),
                    _ => scene.write(&names),
                }
                proxy.told(&mut rng, &scene.stored.clone(), scene.now);
            }
        }
    }
    assert!(changes > 400, "only {changes} changes of names");
}

/// Whatever was interrupted: undisturbed, all have the wanted names after three waits at most.
#[test]
fn shr_4_the_names_are_reached() {
    for seed in 0..200 {
        let mut rng = Rng::with_seed(seed);
        let mut scene = Scene::default();
        for _ in 0..10 {
            let wanted = if rng.bool() {
                shared(&[80])
            } else {
                own(&[80])
            };
            let names = scene.next(&wanted);
            if rng.bool() {
                scene.write(&names);
            }
            scene.now += MS * rng.u32(0..4_000);
        }
        let wanted = shared(&[80]);
        for _ in 0..4 {
            let names = scene.next(&wanted);
            scene.write(&names);
            let Some(wait) = names.again_in else { break };
            // The next look observes what was written, and waits from then on.
            scene.next(&wanted);
            scene.now += wait;
        }
        let names = scene.next(&wanted);
        assert_eq!(
            (of(&names, 80), names.again_in),
            ((vec!["80-tcp"], "80-tcp"), None),
            "seed {seed}"
        );
    }
}

#[test]
fn shr_3_the_name_in_a_group_tells_the_port() {
    for protocol in ["TCP", "UDP", "SCTP"] {
        for port in [1, 80, 65_535] {
            let port = Served { port, protocol };
            assert_eq!(port_of(&shared_name(port)), Some(port));
        }
    }
    for name in [
        "http",
        "80",
        "80-TCP",
        "080-tcp",
        "80-http",
        "65536-tcp",
        "-tcp",
        "",
    ] {
        assert_eq!(port_of(name), None, "{name}");
    }
}
