use std::collections::HashMap;

use super::x509::new_authority;
use super::*;

const NOW: i64 = 1_800_000_000;
const NAME: &str = "webhook.harvester-system.svc";
const LIFETIMES: Lifetimes = Lifetimes {
    authority: Duration::from_mins(500),
    leaf: Duration::from_mins(100),
    settle: Duration::from_secs(100),
    retain: Duration::from_secs(500),
};

fn machine() -> Machine {
    Machine::new(LIFETIMES, NAME.to_owned())
}

/// The two Secrets and the bundles, with the writes of one replica.
#[derive(Clone, Default)]
struct Cluster {
    authority: Option<AuthoritySecret>,
    leaf: Option<Pair>,
    bundles: Vec<String>,
}

impl Cluster {
    fn known(&self) -> Known<'_> {
        Known {
            authority: self.authority.as_ref(),
            leaf: self.leaf.as_ref(),
            bundles: &self.bundles,
        }
    }

    fn apply(&mut self, action: &Action, now: i64) {
        let text =
            |previous: &[Certificate]| -> String { previous.iter().map(|c| &*c.pem).collect() };
        match action {
            Action::NewAuthority { previous, .. } => {
                self.authority = Some(AuthoritySecret {
                    present: new_authority(now, LIFETIMES.authority).unwrap(),
                    previous: text(previous),
                });
            }
            Action::SetPrevious {
                present, previous, ..
            } => {
                let secret = self.authority.as_mut().unwrap();
                secret.present.certificate.clone_from(&present.pem);
                secret.previous = text(previous);
            }
            Action::NewLeaf { .. } => {
                let authority = self.authority.as_ref().unwrap();
                let authority = Authority::parse(&authority.present).unwrap();
                self.leaf = Some(authority.sign(NAME, now, LIFETIMES.leaf).unwrap());
            }
        }
    }

    /// Acts until there is nothing to do, and publishes the bundle; the last plan.
    fn converge(&mut self, machine: &mut Machine, now: i64) -> Plan {
        for _ in 0..5 {
            let plan = machine.plan(now, self.known());
            if let Some(action) = &plan.action {
                self.apply(action, now);
            } else {
                self.publish(&plan.bundle);
                return machine.plan(now, self.known());
            }
        }
        panic!("it does not come to rest");
    }

    fn publish(&mut self, bundle: &str) {
        self.bundles = vec![bundle.to_owned(); 3];
    }

    fn leaf_certificate(&self) -> Certificate {
        server_key(self.leaf.as_ref().unwrap()).unwrap().0
    }

    fn present(&self) -> Certificate {
        let secret = self.authority.as_ref().unwrap();
        Authority::parse(&secret.present).unwrap().certificate
    }

    /// Whether a client that knows this bundle accepts the serving certificate.
    fn is_accepted(&self, bundle: &str, now: i64) -> bool {
        accepts(bundle, &self.leaf_certificate(), now)
    }
}

fn accepts(bundle: &str, leaf: &Certificate, now: i64) -> bool {
    let authorities = Certificate::parse_all(bundle);
    leaf.is_valid_at(now)
        && leaf.names.iter().any(|name| name == NAME)
        && authorities
            .iter()
            .any(|a| a.is_valid_at(now) && leaf.is_signed_by(a))
}

#[test]
fn section_1_an_empty_cluster_gets_both_at_once() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    let plan = machine.plan(NOW, cluster.known());
    assert!(matches!(plan.action, Some(Action::NewAuthority { .. })));
    assert!(plan.serve.is_none() && plan.bundle.is_empty());
    let plan = cluster.converge(&mut machine, NOW);
    assert!(plan.action.is_none() && plan.serve.is_some());
    assert!(cluster.is_accepted(&plan.bundle, NOW));
    assert_eq!(
        plan.expiry,
        [Some(NOW + 30_000), Some(NOW + 6_000)],
        "for the metric"
    );
    // The next moment of interest is the renewal of the serving certificate.
    assert_eq!(plan.again_at, NOW + 4_001);
    let before = cluster.clone();
    let plan = cluster.converge(&mut machine, plan.again_at - 1);
    assert!(plan.action.is_none() && cluster.leaf == before.leaf);
    cluster.converge(&mut machine, plan.again_at);
    assert!(cluster.leaf != before.leaf && cluster.authority == before.authority);
}

#[test]
fn section_1_a_new_authority_is_in_every_bundle_before_it_signs() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    cluster.converge(&mut machine, NOW);
    let old = cluster.present();
    let mut now = NOW;
    // Serving certificates are renewed meanwhile.
    loop {
        let plan = cluster.converge(&mut machine, now);
        if cluster.present() != old {
            break;
        }
        now = plan.again_at;
    }
    assert_eq!(now, NOW + 20_001);
    assert!(cluster.leaf_certificate().is_signed_by(&old));
    let both = cluster.bundles[0].clone();
    assert_eq!(Certificate::parse_all(&both).len(), 2);

    // One of the bundles lacks the new authority: it does not sign, however long that lasts.
    for second in [0, 99, 100, 500, 1_000] {
        cluster.bundles[1].clone_from(&old.pem);
        let plan = machine.plan(now + second, cluster.known());
        assert_eq!(plan.action, None, "{second}");
    }
    now += 1_000;
    cluster.publish(&both);
    let plan = machine.plan(now, cluster.known());
    assert_eq!((plan.action, plan.again_at), (None, now + 100));
    let plan = machine.plan(now + 99, cluster.known());
    assert_eq!(plan.action, None);
    let plan = cluster.converge(&mut machine, now + 100);
    assert!(cluster.leaf_certificate().is_signed_by(&cluster.present()));
    // The previous authority stays for those that have not seen the new certificate yet.
    assert_eq!(plan.bundle, both);
    assert_eq!(plan.again_at, now + 600);
    let plan = cluster.converge(&mut machine, now + 600);
    assert_eq!(Certificate::parse_all(&plan.bundle), [cluster.present()]);
}

#[test]
fn section_1_a_bundle_that_was_reset_counts_again_from_the_beginning() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    cluster.converge(&mut machine, NOW);
    let now = NOW + 20_001;
    let old = cluster.present();
    // The serving certificate is signed by the old one and lives on.
    let signed = Authority::parse(&cluster.authority.as_ref().unwrap().present).unwrap();
    cluster.leaf = Some(signed.sign(NAME, now, LIFETIMES.leaf).unwrap());
    cluster.converge(&mut machine, now);
    let both = cluster.bundles[0].clone();
    assert_eq!(machine.plan(now + 90, cluster.known()).action, None);
    cluster.publish(&old.pem);
    machine.plan(now + 95, cluster.known());
    cluster.publish(&both);
    for second in [96, 100, 150, 195] {
        assert_eq!(machine.plan(now + second, cluster.known()).action, None);
    }
    let plan = machine.plan(now + 196, cluster.known());
    assert!(matches!(plan.action, Some(Action::NewLeaf { .. })));
}

/// An authority and a serving certificate as another program makes them.
fn foreign(now: i64) -> (Pair, Pair) {
    let ours = new_authority(now, LIFETIMES.authority).unwrap();
    let key = rcgen::KeyPair::from_pem(&ours.key).unwrap();
    let mut params = rcgen::CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params
        .distinguished_name
        .push(rcgen::DnType::CommonName, "dynamiclistener-ca@1700000000");
    let authority = rcgen::CertifiedIssuer::self_signed(params, key).unwrap();
    let leaf_key = rcgen::KeyPair::generate().unwrap();
    let leaf = rcgen::CertificateParams::new(vec![NAME.to_owned()]).unwrap();
    let leaf = leaf.signed_by(&leaf_key, &authority).unwrap();
    (
        Pair {
            certificate: authority.pem(),
            key: ours.key,
        },
        Pair {
            certificate: leaf.pem(),
            key: leaf_key.serialize_pem(),
        },
    )
}

#[test]
fn section_1_the_authority_of_another_program_is_replaced_without_a_gap() {
    let (theirs, leaf) = foreign(NOW);
    let mut cluster = Cluster {
        authority: Some(AuthoritySecret {
            present: theirs.clone(),
            previous: String::new(),
        }),
        leaf: Some(leaf.clone()),
        bundles: vec![theirs.certificate.clone(); 3],
    };
    let mut machine = machine();
    let plan = machine.plan(NOW, cluster.known());
    assert!(plan.serve.is_some(), "its certificate serves meanwhile");
    assert!(matches!(plan.action, Some(Action::NewAuthority { .. })));
    let plan = cluster.converge(&mut machine, NOW);
    assert_eq!(cluster.leaf.as_ref(), Some(&leaf));
    let bundle = Certificate::parse_all(&plan.bundle);
    assert_eq!(bundle.len(), 2);
    assert_eq!(bundle[0], cluster.present());
    assert_eq!(bundle[1], Certificate::parse(&theirs.certificate).unwrap());
    cluster.converge(&mut machine, NOW + 100);
    assert!(cluster.leaf_certificate().is_signed_by(&cluster.present()));
    let plan = cluster.converge(&mut machine, NOW + 600);
    assert_eq!(Certificate::parse_all(&plan.bundle), [cluster.present()]);
}

#[test]
fn section_1_a_lost_or_broken_secret_refuses_no_request() {
    let (mut original, mut first) = (Cluster::default(), machine());
    original.converge(&mut first, NOW);
    let broken: [fn(&mut Cluster); 4] = [
        |c| c.authority = None,
        |c| c.authority.as_mut().unwrap().present.key = String::new(),
        |c| c.authority.as_mut().unwrap().present.certificate = "x".to_owned(),
        |c| {
            let secret = c.authority.as_mut().unwrap();
            secret.present.key = new_authority(NOW, LIFETIMES.authority).unwrap().key;
        },
    ];
    for (n, break_it) in broken.into_iter().enumerate() {
        let mut cluster = original.clone();
        break_it(&mut cluster);
        let mut machine = machine();
        let plan = cluster.converge(&mut machine, NOW + 10);
        assert_eq!(cluster.leaf, original.leaf, "{n}: it serves meanwhile");
        // Both the bundle before and the one after accept it.
        assert!(cluster.is_accepted(&original.bundles[0], NOW + 10), "{n}");
        assert!(cluster.is_accepted(&plan.bundle, NOW + 10), "{n}");
        cluster.converge(&mut machine, NOW + 110);
        assert!(cluster.leaf_certificate().is_signed_by(&cluster.present()));
    }
    // A serving certificate that is lost or of another name is made at once.
    for leaf in [
        None,
        Some(Pair {
            certificate: "x".to_owned(),
            key: "y".to_owned(),
        }),
        Some(foreign(NOW).1),
        {
            let secret = original.authority.as_ref().unwrap();
            let authority = Authority::parse(&secret.present).unwrap();
            Some(authority.sign("other.svc", NOW, LIFETIMES.leaf).unwrap())
        },
    ] {
        let mut cluster = Cluster {
            leaf,
            ..original.clone()
        };
        let plan = cluster.converge(&mut machine(), NOW + 10);
        assert!(plan.serve.is_some());
        assert!(cluster.is_accepted(&original.bundles[0], NOW + 10));
    }
}

#[test]
fn section_1_both_secrets_lost_refuse_no_request_while_a_replica_serves() {
    let (theirs, foreign_leaf) = foreign(NOW);
    let broken: [&dyn Fn(&mut Cluster); 4] = [
        &|c| (c.authority, c.leaf) = (None, None),
        &|c| {
            c.authority.as_mut().unwrap().present.key = String::new();
            c.leaf = None;
        },
        &|c| {
            c.authority = None;
            c.leaf.as_mut().unwrap().key = String::new();
        },
        // Another program has written both, and no bundle knows its authority.
        &|c| {
            c.leaf = Some(foreign_leaf.clone());
            c.authority.as_mut().unwrap().present = theirs.clone();
        },
    ];
    for (n, break_it) in broken.into_iter().enumerate() {
        let (mut cluster, mut machine) = (Cluster::default(), machine());
        cluster.converge(&mut machine, NOW);
        let (bundle, served) = (cluster.bundles[0].clone(), cluster.leaf_certificate());
        break_it(&mut cluster);
        let now = NOW + 10;
        let (secret, mut writes) = (cluster.leaf.clone(), 0);
        // Whatever is written meanwhile, it serves what the API server accepts.
        loop {
            let plan = machine.plan(now, cluster.known());
            assert_eq!(plan.serve.as_ref().unwrap().cert[0], served.der, "{n}");
            let Some(action) = plan.action else {
                cluster.publish(&plan.bundle);
                break;
            };
            cluster.apply(&action, now);
            writes += 1;
            assert!(writes < 5, "{n}: it does not come to rest");
        }
        let both = cluster.bundles[0].clone();
        assert!(
            accepts(&bundle, &served, now) && accepts(&both, &served, now),
            "{n}"
        );
        assert_eq!(cluster.leaf, secret, "{n}: nobody accepts a new one yet");
        // The Secret gets another certificate once every bundle has had the new authority for a while.
        assert_eq!(
            machine.plan(now, cluster.known()).again_at,
            now + 100,
            "{n}"
        );
        cluster.converge(&mut machine, now + 100);
        assert!(cluster.is_accepted(&both, now + 100), "{n}");
    }
}

#[test]
fn section_1_a_certificate_that_no_bundle_knows_is_not_served_while_there_is_another() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    let bundle = cluster.converge(&mut machine, NOW).bundle;
    let served = cluster.leaf_certificate();
    cluster.leaf = Some(foreign(NOW).1);
    let plan = machine.plan(NOW + 1, cluster.known());
    assert_eq!(plan.serve.unwrap().cert[0], served.der);
    assert!(matches!(plan.action, Some(Action::NewLeaf { .. })));
    cluster.converge(&mut machine, NOW + 1);
    assert!(cluster.is_accepted(&bundle, NOW + 1) && cluster.leaf_certificate() != served);
    // A process that has served nothing yet has no other.
    let mut fresh = self::machine();
    cluster.leaf = Some(foreign(NOW).1);
    assert!(fresh.plan(NOW + 2, cluster.known()).serve.is_some());
}

#[test]
fn section_1_the_authority_of_what_serves_is_adopted_from_the_bundles() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    let first = cluster.converge(&mut machine, NOW).bundle;
    let served = cluster.leaf_certificate();
    // Somebody writes an authority that does not know the one before it, and the serving certificate is lost.
    cluster.authority = Some(AuthoritySecret {
        present: new_authority(NOW, LIFETIMES.authority).unwrap(),
        previous: String::new(),
    });
    cluster.leaf = None;
    let plan = machine.plan(NOW + 1, cluster.known());
    assert!(
        matches!(plan.action, Some(Action::SetPrevious { .. })),
        "{plan:?}"
    );
    let plan = cluster.converge(&mut machine, NOW + 1);
    assert_eq!(plan.serve.unwrap().cert[0], served.der);
    let all = Certificate::parse_all(&plan.bundle);
    let before = Certificate::parse_all(&first);
    assert!(all.len() == 2 && all.contains(&before[0]), "{all:?}");
    // The new authority signs once it is known everywhere.
    let later = NOW + 1 + x509::seconds(LIFETIMES.settle);
    cluster.converge(&mut machine, later);
    assert!(cluster.leaf_certificate().is_signed_by(&all[0]));
}

/// An authority of this program, as if another replica had made it, and a serving certificate that it has signed.
fn another(now: i64) -> (Pair, Pair) {
    let authority = new_authority(now, LIFETIMES.authority).unwrap();
    let signed = Authority::parse(&authority).unwrap();
    let leaf = signed.sign(NAME, now, LIFETIMES.leaf).unwrap();
    (authority, leaf)
}

#[test]
fn section_1_each_write_has_its_reason() {
    let (mut original, mut first) = (Cluster::default(), machine());
    original.converge(&mut first, NOW);
    let ours = original.authority.clone().unwrap();
    let (other, other_leaf) = another(NOW);
    let (expired, _) = another(NOW - 40_000);
    let with_previous = |authority: &Pair, previous: &str| Cluster {
        authority: Some(AuthoritySecret {
            present: authority.clone(),
            previous: previous.to_owned(),
        }),
        ..original.clone()
    };
    let with_leaf = |leaf: Option<&Pair>, bundle: &str| Cluster {
        leaf: leaf.cloned(),
        bundles: vec![bundle.to_owned(); 3],
        ..original.clone()
    };
    let bundle = &*ours.present.certificate;
    let renewed = Cluster {
        bundles: vec![format!("{}{bundle}", other.certificate); 3],
        ..with_previous(&other, bundle)
    };
    let without_authority = Cluster {
        authority: None,
        ..original.clone()
    };
    let nothing = "nothing";
    for (cluster, after, wanted) in [
        (original.clone(), 10, nothing),
        (original.clone(), 4_000, nothing),
        (original.clone(), 4_001, "the serving certificate expires"),
        (original.clone(), 20_001, "the authority expires"),
        (
            without_authority,
            10,
            "there is no usable authority of this program",
        ),
        (
            with_previous(&expired, ""),
            10,
            "there is no usable authority of this program",
        ),
        (
            with_leaf(None, bundle),
            10,
            "there is no usable serving certificate",
        ),
        (
            with_leaf(Some(&other_leaf), bundle),
            10,
            "the authority of the serving certificate is unknown",
        ),
        // The authority's Secret alone was replaced: what serves is accepted, and must be.
        (
            with_leaf(Some(&other_leaf), &other.certificate),
            10,
            "the authority of the certificate that serves is missing",
        ),
        (renewed, 10, "the authority is new"),
        (
            with_previous(&ours.present, &other.certificate),
            499,
            nothing,
        ),
        (
            with_previous(&ours.present, &other.certificate),
            500,
            "the previous authorities have signed nothing that serves",
        ),
        (
            with_previous(&ours.present, &expired.certificate),
            10,
            "a previous authority has expired or cannot be used",
        ),
    ] {
        let (mut machine, now) = (self::machine(), NOW + after);
        // It has known all this for the time that a new authority waits.
        machine.plan(now - x509::seconds(LIFETIMES.settle), cluster.known());
        let reason = match machine.plan(now, cluster.known()).action {
            None => nothing,
            Some(
                Action::NewAuthority { reason, .. }
                | Action::NewLeaf { reason }
                | Action::SetPrevious { reason, .. },
            ) => reason,
        };
        assert_eq!(reason, wanted, "after {after} s");
    }
}

#[test]
fn section_1_whatever_the_secrets_and_bundles_hold_comes_to_rest_with_one_authority() {
    let (mut original, mut first) = (Cluster::default(), machine());
    original.converge(&mut first, NOW);
    let ours = original.authority.clone().unwrap();
    let leaf = original.leaf.clone().unwrap();
    let (theirs, their_leaf) = foreign(NOW);
    let (other, other_leaf) = another(NOW);
    let (expired, expired_leaf) = another(NOW - 40_000);
    let many: String = (0..5).map(|n| another(NOW + n).0.certificate).collect();
    let half = |text: &str| text[..text.len() / 2].to_owned();
    let pair = |certificate: &str, key: &str| Pair {
        certificate: certificate.to_owned(),
        key: key.to_owned(),
    };
    let (c, k) = (&*ours.present.certificate, &*ours.present.key);
    let junk = format!(
        "x{}{c}{}{}",
        expired.certificate,
        half(c),
        other.certificate
    );
    let authorities = [
        None,
        Some((pair(c, k), "")),
        Some((pair(c, ""), "")),
        Some((pair(&half(c), k), "")),
        Some((pair(c, &half(k)), "")),
        Some((pair(c, &other.key), "")),
        Some((pair(c, k), &*junk)),
        // More than the authority beside its key.
        Some((pair(&format!("{c}{}", other.certificate), k), "")),
        Some((pair(&format!("{c}{many}"), k), &*many)),
        Some((
            pair(&format!("{}{many}", other.certificate), &other.key),
            "",
        )),
        Some((theirs.clone(), c)),
        Some((expired, c)),
        Some((other.clone(), "")),
    ];
    let leaves = [
        None,
        Some(leaf.clone()),
        Some(pair(&half(&leaf.certificate), &leaf.key)),
        Some(pair(&leaf.certificate, &other.key)),
        Some(their_leaf),
        Some(other_leaf),
        Some(expired_leaf),
    ];
    let bundles = [
        vec![],
        vec![c.to_owned(); 3],
        vec![theirs.certificate.clone(); 3],
        vec![other.certificate.clone(); 3],
        vec![c.to_owned(), theirs.certificate, half(c)],
    ];
    let mut all = bundles.iter().cycle();
    for (n, authority) in authorities.iter().enumerate() {
        for (m, leaf) in leaves.iter().enumerate() {
            for has_served in [false, true] {
                let bundles = all.next().unwrap().clone();
                let case = format!("authority {n}, leaf {m}, {has_served}, {bundles:?}");
                let mut machine = machine();
                if has_served {
                    machine.plan(NOW, original.known());
                }
                let authority = authority.clone();
                let mut cluster = Cluster {
                    authority: authority.map(|(present, previous)| AuthoritySecret {
                        present,
                        previous: previous.to_owned(),
                    }),
                    leaf: leaf.clone(),
                    bundles,
                };
                for after in [10, 110] {
                    cluster.converge(&mut machine, NOW + after);
                }
                let plan = cluster.converge(&mut machine, NOW + 710);
                assert_eq!(plan.action, None, "{case}");
                let last = Certificate::parse_all(&plan.bundle);
                assert_eq!(last, [cluster.present()], "{case}");
                assert!(cluster.is_accepted(&plan.bundle, NOW + 710), "{case}");
                let secret = cluster.authority.as_ref().unwrap();
                assert!(secret.previous.is_empty(), "{case}: {}", secret.previous);
            }
        }
    }
}

#[test]
fn section_1_what_has_expired_is_renewed_after_a_long_pause() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    cluster.converge(&mut machine, NOW);
    for pause in [5_999, 6_000, 29_999, 30_000, 1_000_000] {
        let mut cluster = cluster.clone();
        let now = NOW + pause;
        let plan = cluster.converge(&mut machine, now);
        assert!(plan.serve.is_some(), "{pause}");
        assert!(cluster.is_accepted(&plan.bundle, now), "{pause}");
        let all = Certificate::parse_all(&plan.bundle);
        assert!(all.iter().all(|c| c.is_valid_at(now)), "{pause}");
    }
}

#[test]
fn section_1_a_bundle_does_not_grow_without_end() {
    let (mut cluster, mut machine) = (Cluster::default(), machine());
    cluster.converge(&mut machine, NOW);
    // Somebody breaks the Secret again and again.
    for n in 0..20 {
        cluster.authority.as_mut().unwrap().present.key = String::new();
        cluster.converge(&mut machine, NOW + n);
    }
    assert!(Certificate::parse_all(&cluster.bundles[0]).len() <= MOST_PREVIOUS + 1);
}

/// A replica, with a view that may lag.
struct Replica {
    machine: Machine,
    seen: Cluster,
    seen_at: i64,
    serves: Option<Certificate>,
}

/// Any order of views, writes and time: an API server never meets a certificate that its bundle does not accept, as long
/// as nobody's view is older than half of the time that a new authority waits.
#[test]
fn section_1_no_order_of_events_serves_a_certificate_that_a_bundle_refuses() {
    let lag = x509::seconds(LIFETIMES.settle) / 2 - 5;
    let mut accepted = HashMap::new();
    for seed in 0..4 {
        let mut random = fastrand::Rng::with_seed(seed);
        let (mut now, mut cluster) = (NOW, Cluster::default());
        if seed % 4 == 3 {
            let (theirs, leaf) = foreign(NOW);
            cluster.bundles = vec![theirs.certificate.clone(); 3];
            cluster.leaf = Some(leaf);
            cluster.authority = Some(AuthoritySecret {
                present: theirs,
                previous: String::new(),
            });
        }
        let mut replicas = Vec::new();
        for _ in 0..3 {
            let mut machine = machine();
            cluster.converge(&mut machine, now);
            replicas.push(Replica {
                machine,
                seen: cluster.clone(),
                seen_at: now,
                serves: Some(cluster.leaf_certificate()),
            });
        }
        // Each API server knows an older or newer state of the bundles.
        let mut api_servers = vec![(cluster.bundles.clone(), now); 2];
        let (mut authorities, mut leaves) = (0, 0);
        while now < NOW + 50_000 {
            now += random.i64(1..40);
            for (known, at) in &mut api_servers {
                if random.bool() || now - *at > lag {
                    (*known, *at) = (cluster.bundles.clone(), now);
                }
            }
            for replica in &mut replicas {
                if random.bool() || now - replica.seen_at > lag {
                    (replica.seen, replica.seen_at) = (cluster.clone(), now);
                }
            }
            let at = random.usize(..replicas.len());
            let replica = &mut replicas[at];
            let mut plan = replica.machine.plan(now, replica.seen.known());
            if plan.action.is_some() || plan.bundle != replica.seen.bundles[0] {
                // Before any write the Secrets are read again, the bundles are not.
                replica.seen.authority.clone_from(&cluster.authority);
                replica.seen.leaf.clone_from(&cluster.leaf);
                plan = replica.machine.plan(now, replica.seen.known());
            }
            match &plan.action {
                Some(action) => {
                    authorities += usize::from(matches!(action, Action::NewAuthority { .. }));
                    leaves += usize::from(matches!(action, Action::NewLeaf { .. }));
                    cluster.apply(action, now);
                }
                None => cluster.bundles[random.usize(..3)].clone_from(&plan.bundle),
            }
            for replica in &mut replicas {
                replica.serves = Some(server_key(replica.seen.leaf.as_ref().unwrap()).unwrap().0);
            }
            for (known, _) in &api_servers {
                for (replica, bundle) in replicas
                    .iter()
                    .flat_map(|r| known.iter().map(move |bundle| (r, bundle)))
                {
                    let leaf = replica.serves.as_ref().unwrap();
                    let first = (bundle.clone(), leaf.pem.clone());
                    // Verified once for each pair; what expires is checked each time.
                    let signed = *accepted
                        .entry(first)
                        .or_insert_with(|| accepts(bundle, leaf, now));
                    assert!(
                        signed && leaf.is_valid_at(now),
                        "seed {seed}, {} s: {leaf:?}",
                        now - NOW
                    );
                }
            }
        }
        assert!(authorities >= 2 && leaves >= 8, "{authorities}, {leaves}");
    }
}
