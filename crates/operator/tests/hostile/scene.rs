//! The bystanders: a pool and valid load balancers that hold, have reserved and wait for an address, and the ledger's
//! decisions about them.

use std::net::IpAddr;

use harvester_lb_api::{IPPool, LoadBalancer, keys};
use harvester_lb_core::cached::{self, Pool};
use harvester_lb_core::spec;
use harvester_lb_fixtures::{
    self as fixtures, load_balancer, stored, subnet as range, vm_spec, with,
};
use harvester_lb_hostile::Targets;
use harvester_lb_ipam::{
    Decision, Explanation, Ledger, Micros, Owner, Phase, PoolName, Record, RecordSpec, Request,
    Settings, WaitReason,
};
use harvester_lb_object::Key;
use harvester_lb_object::Version;
use harvester_load_balancer::index::leader_state::LeaderState;
use serde_json::{Value, json};

/// Namespace of the bystanders.
pub(crate) const CALM: &str = "calm";
/// Namespace of the hostile objects.
pub(crate) const LOUD: &str = "loud";
/// The bystander's address.
pub(crate) const HELD: &str = "10.200.0.9";
const UID: &str = "0a1b2c3d-0000-4000-8000-00000000000f";
const NOW: Micros = Micros(1_770_000_000_000_000);

/// What the pool of the hostile load balancers excludes.
const EXCLUDED: [&str; 2] = ["10.66.0.12", "10.66.0.13"];

/// Values of the bystanders that the hostile objects use.
pub(crate) fn targets() -> Targets {
    let text = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    Targets {
        namespaces: text(&[CALM, LOUD]),
        names: text(&["holds", "promised", "waits", "a", "b", "lb1", "lb2"]),
        uids: text(&[UID, "u-promised"]),
        addresses: text(&[
            HELD,
            "10.200.0.10",
            "10.200.0.1",
            "10.201.0.2",
            "10.66.0.9",
            "10.66.0.12",
        ]),
        pools: text(&["calm", "calm-full", "loud", "a"]),
        subnets: text(&[
            "10.200.0.0/24",
            "10.66.0.0/24",
            "10.66.0.0/28",
            "fd66::/120",
        ]),
    }
}

/// A decoded object.
pub(crate) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A load balancer of the bystander's.
pub(crate) fn calm_lb(name: &str, uid: &str, pool: &str) -> LoadBalancer {
    let spec = with(vm_spec("web"), json!({"ipPool": pool}));
    object(stored(load_balancer(CALM, name, uid, &spec), uid, 5))
}

/// A cached pool that excludes addresses.
fn pool(name: &str, subnet: &str, excluded: &[&str]) -> Pool {
    let mut pool = fixtures::pool(name, &[range(subnet)]);
    pool["metadata"]["annotations"] = json!({keys::ANNOTATION_EXCLUDE: excluded.join(",")});
    Pool::valid(object::<IPPool>(stored(pool, "u-pool", 5)))
}

/// The leader state with the bystanders.
pub(crate) struct Scene {
    pub(crate) leader: LeaderState,
    bystanders: Vec<Request>,
    answers: Vec<String>,
}

impl Scene {
    pub(crate) fn new() -> Self {
        let mut leader = LeaderState::new(Ledger::new(Settings::default()));
        for (name, subnet, excluded) in [
            ("calm", "10.200.0.0/24", &[][..]),
            ("calm-full", "10.201.0.2/32", &[]),
            ("loud", "10.66.0.0/28", &EXCLUDED),
        ] {
            leader.set_pool(&Key::new("", name), &pool(name, subnet, excluded));
        }
        leader.observe(bound(HELD, "calm", CALM, "holds", UID));
        leader.observe(bound("10.201.0.2", "calm-full", CALM, "other", "u-other"));
        let request = |name, uid, pool| spec::request(&calm_lb(name, uid, pool));
        let mut holds = calm_lb("holds", UID, "calm");
        holds.status = Some(object(json!({
            "allocatedAddress": {"ip": HELD, "ipPool": "calm"},
        })));
        let bystanders = vec![
            spec::request(&holds),
            request("promised", "u-promised", "calm"),
            request("waits", "u-waits", "calm-full"),
        ];
        let mut scene = Self {
            leader,
            bystanders,
            answers: Vec::new(),
        };
        scene.answers = scene.ask();
        assert!(scene.answers[0].contains(HELD) && scene.answers[1].contains("10.200.0.10"));
        scene
    }

    /// The decisions for the bystanders: the address and its pool, or the reason without one.
    fn ask(&mut self) -> Vec<String> {
        let ledger = &mut self.leader.ledger;
        self.bystanders
            .iter()
            .map(|request| match ledger.decide(request, NOW) {
                Decision::Held { grant, .. } => {
                    let at = (grant.mask, grant.gateway);
                    format!("holds {} of {} {at:?}", grant.addr, grant.pool)
                }
                Decision::Take { grant, .. } => {
                    let at = (grant.mask, grant.gateway);
                    format!("takes {} of {} {at:?}", grant.addr, grant.pool)
                }
                Decision::Adopt { grant, .. } => format!("adopts {}", grant.addr),
                Decision::Wait { reason, .. } => format!("waits, {}", reason.as_str()),
            })
            .collect()
    }

    /// Checks that the decisions for the bystanders are unchanged.
    pub(crate) fn nobody_is_harmed(&mut self) {
        assert_eq!(self.ask(), self.answers);
    }

    /// Allocates an address and stores its record as the API server would. An address is none that its pool excludes, and the one that
    /// is requested, unless the load balancer has it already (EXC-2, REQ-3).
    ///
    /// # Errors
    /// Reason and explanation of a load balancer that waits.
    pub(crate) fn allocate(
        &mut self,
        request: &Request,
        version: u64,
    ) -> Result<IpAddr, (WaitReason, Explanation)> {
        let decision = self.leader.ledger.decide(request, NOW);
        let spec = match decision {
            Decision::Held { grant, .. } => return Ok(grant.addr),
            Decision::Take { spec, .. } => spec,
            Decision::Adopt { record, .. } => record.spec,
            Decision::Wait {
                reason,
                explanation,
                ..
            } => return Err((reason, explanation)),
        };
        let addr = spec.addr;
        if !request.names(addr) {
            assert!(
                request.requested.is_none_or(|requested| requested == addr),
                "{request:?} gets {addr}"
            );
            let is_excluded = &*spec.pool == "loud" && EXCLUDED.contains(&&*addr.to_string());
            assert!(!is_excluded, "{request:?} gets {addr}, which is excluded");
        }
        let version = Version(version);
        self.leader.observe(Record { spec, version });
        Ok(addr)
    }

    /// Deletes a load balancer and releases all its addresses.
    pub(crate) fn delete(&mut self, request: &Request, version: u64) {
        let ledger = &mut self.leader.ledger;
        ledger.withdraw(&request.owner.id);
        for record in ledger.records_of(&request.owner.id) {
            let (addr, uid) = (record.spec.addr, &record.spec.owner.uid);
            if let Ok(released) = self.leader.ledger.may_release(addr, uid, NOW) {
                let version = Version(version);
                self.leader.observe(Record {
                    spec: released.spec,
                    version,
                });
            }
        }
    }

    /// Whether this address can be allocated to a load balancer.
    pub(crate) fn is_free(&mut self, address: IpAddr) -> bool {
        let prefix = if address.is_ipv4() { 32 } else { 128 };
        let name = PoolName::from("only-this");
        self.leader.set_pool(
            &Key::new("", &name),
            &pool(&name, &format!("{address}/{prefix}"), &[]),
        );
        let mut request = spec::request(&calm_lb("asks", "u-asks", &name));
        // Of cluster type: the address may be one of IPv6 (BE-7).
        request.workload = harvester_lb_ipam::Workload::Cluster;
        let free = matches!(
            self.leader.ledger.decide(&request, NOW),
            Decision::Take { .. }
        );
        self.leader.ledger.withdraw(&request.owner.id);
        self.leader.remove_pool(&name);
        free
    }
}

/// A Bound record.
pub(crate) fn bound(address: &str, pool: &str, namespace: &str, name: &str, uid: &str) -> Record {
    let spec = RecordSpec {
        addr: address.parse().unwrap(),
        pool: pool.into(),
        owner: Owner::new(namespace, name, uid),
        phase: Phase::Bound,
        bound_at: Micros(1),
        released_at: None,
        group: None,
    };
    Record {
        spec,
        version: Version(5),
    }
}

/// The id of an object in the ledger.
pub(crate) fn id(namespace: &str, name: &str) -> harvester_lb_ipam::OwnerId {
    cached::id(&Key::new(namespace, name))
}
