//! The body of a request to the webhook: an AdmissionReview, with the facts of a small cluster.

use std::sync::LazyLock;

use harvester_lb_api::IPPool;
use harvester_lb_core::admission::{
    AddressHolders, AllocatedAddresses, Denial, GuestNetworks, Incomplete, Lookup, MutationFacts,
    Neighbours, Operation, Patch, RemovedClusters, Request, Response, Subject, ValidationFacts,
    Warning, mutate, validate,
};
use harvester_lb_core::cached::{Allocation, Pool};
use harvester_lb_core::kube_vip_annotations::Interfaces;
use harvester_lb_core::validation::pool_index::PoolIndex;
use harvester_lb_core::validation::pools::ParsedPool;
use harvester_lb_object::Version;

/// The pool that exists.
const POOL: &str = r#"{"metadata":{"name":"calm"},"spec":{"ranges":[{"subnet":"10.200.0.0/24"}]}}"#;

/// The load balancers of each namespace: one that has an address, and one that shares it.
const LBS: [&str; 2] = [
    r#"{"metadata":{"name":"a"},"spec":{"listeners":[{"port":80,"backendPort":1,"protocol":"TCP"}]}}"#,
    r#"{"metadata":{"name":"b","annotations":{"loadbalancer.harvesterhci.io/primary-load-balancer":"a"}},"spec":{"listeners":[]},"status":{"conditions":[{"type":"AddressShared","status":"True","reason":"Secondary"}]}}"#,
];

/// The address of a group that has outlived its primary.
const OF_GROUP: &str = r#"{"metadata":{"name":"10.200.0.10","annotations":{"loadbalancer.harvesterhci.io/primary-load-balancer":"gone"}},"spec":{"address":"10.200.0.10","pool":"calm","owner":{"namespace":"shop","name":"b","uid":"u-b"},"phase":"Bound"}}"#;

/// The facts.
struct Cluster {
    pools: PoolIndex,
    allocated: AllocatedAddresses,
    guests: GuestNetworks,
    removed: RemovedClusters,
    holders: AddressHolders,
    interfaces: Interfaces,
    neighbours: Neighbours,
}

static CLUSTER: LazyLock<Cluster> = LazyLock::new(|| {
    let mut cluster = Cluster {
        pools: PoolIndex::default(),
        allocated: AllocatedAddresses::default(),
        guests: GuestNetworks::default(),
        removed: RemovedClusters::default(),
        holders: AddressHolders::default(),
        interfaces: "mgmt-br".parse().unwrap(),
        neighbours: Neighbours::new(
            LBS.map(|lb| serde_json::from_str(lb).unwrap()).map(Ok),
            true,
        ),
    };
    let pool: IPPool = serde_json::from_str(POOL).unwrap();
    cluster.pools.set("calm", &pool.metadata, &pool.spec);
    cluster.allocated.set_pool("calm", &Pool::valid(pool));
    // Its address is allocated, whatever else cannot be read.
    let unreadable = Allocation::Unreadable {
        version: Version(1),
        why: String::new(),
    };
    cluster.allocated.set_record("10.200.0.9", &unreadable);
    let of_group = Allocation::decoded(&serde_json::from_str(OF_GROUP).unwrap());
    cluster.allocated.set_record("10.200.0.10", &of_group);
    let node = vec!["10.66.0.9".parse().unwrap()];
    cluster.holders.set("node", node);
    cluster
});

impl MutationFacts for Cluster {
    fn project_id(&self, namespace: &str) -> Lookup<String> {
        match namespace {
            "" => Lookup::NotFound,
            _ => Lookup::Found("c:p".to_owned()),
        }
    }

    fn vlan_id(&self, namespace: &str, _: &str) -> Lookup<Result<i64, String>> {
        match namespace {
            "net" => Lookup::Found(Ok(20)),
            _ => Lookup::NotFound,
        }
    }

    fn guest_networks(&self) -> Result<&GuestNetworks, Incomplete> {
        Ok(&self.guests)
    }
}

impl ValidationFacts for Cluster {
    fn removed_clusters(&self) -> Result<&RemovedClusters, Incomplete> {
        Ok(&self.removed)
    }

    fn pools(&self) -> Result<&PoolIndex, Incomplete> {
        Ok(&self.pools)
    }

    fn allocated(&self) -> Result<&AllocatedAddresses, Incomplete> {
        Ok(&self.allocated)
    }

    fn nodes(&self) -> Option<&AddressHolders> {
        Some(&self.holders)
    }

    fn services(&self) -> Option<&AddressHolders> {
        Some(&self.holders)
    }

    fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    fn neighbours(&self, _: &str) -> Lookup<&Neighbours> {
        Lookup::Found(&self.neighbours)
    }
}

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Ok(request) = Request::parse(data) else {
        return false;
    };
    let cluster = &*CLUSTER;
    let patched = mutate(&request, cluster);
    let patch = patched
        .as_ref()
        .cloned()
        .unwrap_or_else(|_| Patch::default());
    assert!(patch.additions().len() <= 8);
    response(&request, Response::Patched(&patch));
    match validate(&request, cluster) {
        Ok(warnings) => {
            assert!(warnings.len() <= Warning::MOST);
            assert!(warnings.iter().all(|w| w.as_str().len() <= Warning::LIMIT));
            response(&request, Response::Allowed(&warnings));
            admitted(&request, cluster);
        }
        Err(Denial::Refused(refusal)) => {
            assert!(refusal.message().len() <= 1024);
            response(&request, Response::Refused(&refusal));
        }
        Err(missing @ Denial::NotReady(_)) => panic!("{missing}"),
    }
    true
}

/// Asserts that a response can be read.
fn response(request: &Request, response: Response<'_>) {
    let body = response.to_bytes(request);
    let read: serde_json::Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(read["response"]["uid"], *request.uid);
}

/// Asserts what holds for every pool that is admitted.
fn admitted(request: &Request, cluster: &Cluster) {
    let Subject::IPPool(change) = &request.subject else {
        return;
    };
    let is_deleting = change.old.as_ref().is_some_and(|old| match old {
        Ok(pool) => pool.metadata.deletion_timestamp.is_some(),
        Err(invalid) => invalid.metadata.deletion_timestamp.is_some(),
    });
    match request.operation {
        Operation::Create => {
            let object = change.object.as_ref().unwrap();
            let pool = ParsedPool::of(&object.as_ref().unwrap().spec);
            assert!(pool.ranges().unwrap().own_overlaps().is_empty());
            assert!(cluster.pools.validate(&request.name, &pool).is_empty());
        }
        Operation::Update if !is_deleting && !change.is_same_text => {
            assert!(change.object.as_ref().unwrap().is_ok());
        }
        Operation::Update | Operation::Delete | Operation::Connect => {}
    }
}
