//! Shared by several targets: a decoder, a bystander that no input may affect, and short constructors of requests.

use std::net::IpAddr;

use harvester_lb_api::meta::Decoded;
use harvester_lb_controller_kit::decode_guard::decode;
use harvester_lb_ipam::{
    Decision, Ledger, Micros, Owner, Phase, PoolRanges, PoolSpec, RangeSpec, Record, RecordSpec,
    Request, Requirement, Settings, Workload,
};
use harvester_lb_object::{Key, Version};
use harvester_load_balancer::index::leader_state::LeaderState;
use serde::de::DeserializeOwned;

/// The time of every decision.
pub(crate) const NOW: Micros = Micros(1_770_000_000_000_000);

/// Decodes an object as a watch does; `None` for input that no API server would send.
pub(crate) fn object<K: DeserializeOwned>(data: &[u8]) -> Option<Decoded<K>> {
    decode(std::str::from_utf8(data).ok()?).ok()
}

/// A range.
pub(crate) fn range(subnet: &str) -> RangeSpec {
    RangeSpec {
        subnet: subnet.to_owned(),
        ..RangeSpec::default()
    }
}

/// A pool that serves LoadBalancers that name it.
pub(crate) fn pool(name: &str, ranges: &[RangeSpec]) -> PoolSpec {
    PoolSpec {
        name: name.into(),
        created: Micros(0),
        ranges: PoolRanges::parse(ranges),
        selector: harvester_lb_ipam::Selector::default(),
        withheld: None,
        last_allocated: None,
    }
}

/// A LoadBalancer that requests an address.
pub(crate) fn request(name: &str, uid: &str, pool: Option<&str>) -> Request {
    Request {
        owner: Owner::new("calm", name, uid),
        created: Micros(0),
        pool: pool.map(Into::into),
        requirement: Requirement::default(),
        workload: Workload::Vm,
        status: None,
        requested: None,
    }
}

/// The address of a decision, if there is one.
pub(crate) fn address(decision: &Decision) -> Option<IpAddr> {
    match decision {
        Decision::Held { grant, .. }
        | Decision::Adopt { grant, .. }
        | Decision::Take { grant, .. } => Some(grant.addr),
        Decision::Wait { .. } => None,
    }
}

/// A leader's state with a pool and a bystander that holds an address of it and must not be affected.
pub(crate) struct Bystander {
    /// The state.
    pub(crate) leader: LeaderState,
    holds: Request,
}

/// The address that the bystander holds.
pub(crate) const HELD: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 200, 0, 9));

impl Default for Bystander {
    fn default() -> Self {
        let mut ledger = Ledger::new(Settings::default());
        ledger.set_pool(pool("calm", &[range("10.200.0.0/24")]));
        let holds = Request {
            status: Some(harvester_lb_ipam::StatusAddress {
                pool: Some("calm".into()),
                addr: HELD,
            }),
            ..request("holds", "u", Some("calm"))
        };
        ledger.observe(Record {
            spec: RecordSpec {
                addr: HELD,
                pool: "calm".into(),
                owner: holds.owner.clone(),
                phase: Phase::Bound,
                bound_at: Micros(1),
                released_at: None,
                group: None,
            },
            version: Version(1),
        });
        Self {
            leader: LeaderState::new(ledger),
            holds,
        }
    }
}

impl Bystander {
    /// Asserts that the bystander still holds its address.
    pub(crate) fn check(&mut self) {
        let decision = self.leader.ledger.decide(&self.holds, NOW);
        let Decision::Held { grant, .. } = decision else {
            panic!("{decision:?}")
        };
        assert_eq!((grant.addr, &*grant.pool), (HELD, "calm"));
    }

    /// Requests an address and stores the IPAllocation.
    pub(crate) fn allocate(&mut self, request: &Request, version: u64) -> Decision {
        let decision = self.leader.ledger.decide(request, NOW);
        let again = self.leader.ledger.decide(request, NOW);
        assert_eq!(decision, again, "the same question, another answer");
        let spec = match &decision {
            Decision::Take { spec, .. } => spec.clone(),
            Decision::Adopt { record, .. } => record.spec.clone(),
            Decision::Held { .. } | Decision::Wait { .. } => return decision,
        };
        assert_ne!(spec.addr, HELD);
        let version = Version(version);
        self.leader.observe(Record { spec, version });
        decision
    }
}

/// A cluster-scoped name.
pub(crate) fn key(name: &str) -> Key {
    Key::new("", name)
}
