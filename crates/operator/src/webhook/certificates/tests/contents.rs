//! Whatever the Secrets and the bundles hold: lost, broken, written by another program.

use super::*;

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
