//! Any order of events, with replicas and API servers whose views lag.

use std::collections::HashMap;

use super::*;

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
    play(0, false);
}

/// The same after the Go operator's webhook, whose authority and certificate are in the cluster.
#[test]
fn section_1_no_order_of_events_after_theirs_serves_a_certificate_that_a_bundle_refuses() {
    play(3, true);
}

fn play(seed: u64, is_after_theirs: bool) {
    let lag = x509::seconds(LIFETIMES.settle) / 2 - 5;
    let mut accepted = HashMap::new();
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut now, mut cluster) = (NOW, Cluster::default());
    if is_after_theirs {
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
