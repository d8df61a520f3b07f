mod contents;
mod orders;

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
