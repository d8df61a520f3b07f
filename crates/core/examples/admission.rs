//! Benchmark of admission: reviews per second on one core, from the bytes of a request to those of its response, without
//! HTTP.
//!
//! `cargo run --release -p harvester-lb-core --example admission -- [pools] [rounds]`
//!
//! Default: 1,000 pools with 10 allocated addresses each, 5 rounds. The last line of the output is JSON. Every kind of
//! review is timed separately; the bodies are created before the clock starts.
#![allow(clippy::print_stdout, reason = "what the program is for")]
#![allow(
    clippy::disallowed_methods,
    reason = "the crate is pure; this program is outside of it and measures time"
)]

use std::collections::BTreeMap;
use std::error::Error;
use std::time::Instant;

use harvester_lb_api::{IPAllocation, IPPool};
use harvester_lb_core::admission::{
    AddressHolders, AllocatedAddresses, Denial, GuestNetworks, Incomplete, Lookup, MutationFacts,
    Neighbours, RemovedClusters, Request, Response, ValidationFacts, mutate, validate,
};
use harvester_lb_core::cached::{Allocation, Pool};
use harvester_lb_core::kube_vip_annotations::Interfaces;
use harvester_lb_core::validation::pool_index::PoolIndex;
use harvester_lb_fixtures::{load_balancer, record, vm_spec, with};
use serde_json::{Value, json};

/// Reviews that are timed in a round, of each kind.
const TIMED: usize = 5_000;
/// Different bodies of each kind.
const BODIES: usize = 100;
/// Allocated addresses of each pool.
const RECORDS: usize = 10;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let mut args = std::env::args().skip(1);
    let mut number = |default| args.next().map_or(Ok(default), |arg| arg.parse::<usize>());
    let (pools, rounds) = (number(1_000)?.max(BODIES), number(5)?.max(1));
    let world = World::new(pools)?;
    let kinds = kinds(pools);
    let mut rates: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for _ in 0..rounds {
        for kind in &kinds {
            let rate = kind.timed(&world)?;
            rates.entry(kind.name).or_default().push(rate);
        }
        rates
            .entry("change of a pool in the index")
            .or_default()
            .push(changes(pools)?);
    }
    for (kind, rates) in &rates {
        println!("{kind}: {rates:?} per second");
    }
    println!("{}", json!({"pools": pools, "per_second": rates}));
    Ok(())
}

/// What the webhook knows.
struct World {
    pools: PoolIndex,
    allocated: AllocatedAddresses,
    guests: GuestNetworks,
    removed: RemovedClusters,
    nodes: AddressHolders,
    services: AddressHolders,
    interfaces: Interfaces,
    neighbours: Neighbours,
}

impl World {
    fn new(pools: usize) -> Result<Self, Failure> {
        let mut world = Self {
            pools: PoolIndex::default(),
            allocated: AllocatedAddresses::default(),
            guests: GuestNetworks::default(),
            removed: RemovedClusters::default(),
            nodes: AddressHolders::default(),
            services: AddressHolders::default(),
            interfaces: Interfaces::default(),
            neighbours: Neighbours::default(),
        };
        for number in 0..pools {
            let object: IPPool = serde_json::from_value(pool(number))?;
            let name = pool_name(number);
            world.pools.set(&name, &object.metadata, &object.spec);
            world.allocated.set_pool(&name, &Pool::valid(object));
            for host in 0..RECORDS {
                let address = format!("{}.{}", network(number), 10 + host);
                let object = record(
                    &address,
                    &name,
                    "Bound",
                    ("shop", &format!("lb-{number}-{host}"), "u"),
                );
                let object: IPAllocation = serde_json::from_value(object)?;
                let allocation = Allocation::decoded(&object);
                world.allocated.set_record(&address, &allocation);
            }
        }
        for number in 0..100u8 {
            let address = [192, 168, 0, number].into();
            world.nodes.set(&format!("node{number}"), vec![address]);
        }
        Ok(world)
    }
}

impl MutationFacts for World {
    fn project_id(&self, _: &str) -> Lookup<String> {
        Lookup::Found("c-1:p-2".to_owned())
    }

    fn vlan_id(&self, _: &str, _: &str) -> Lookup<Result<i64, String>> {
        Lookup::Found(Ok(20))
    }

    fn guest_networks(&self) -> Result<&GuestNetworks, Incomplete> {
        Ok(&self.guests)
    }
}

impl ValidationFacts for World {
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
        Some(&self.nodes)
    }

    fn services(&self) -> Option<&AddressHolders> {
        Some(&self.services)
    }

    fn interfaces(&self) -> &Interfaces {
        &self.interfaces
    }

    fn neighbours(&self, _: &str) -> Lookup<&Neighbours> {
        Lookup::Found(&self.neighbours)
    }
}

fn pool_name(number: usize) -> String {
    format!("pool-{number:04}")
}

/// The first three octets of a pool's addresses.
fn network(number: usize) -> String {
    format!("10.{}.{}", number / 256, number % 256)
}

/// A pool with two ranges and two tuples, and the maps of its status.
fn pool(number: usize) -> Value {
    let network = network(number);
    let tuple = |half: &str| json!({"project": format!("c-1/p-{}", number % 50), "namespace": format!("ns-{number}-{half}"), "guestCluster": "*"});
    let allocated: BTreeMap<String, String> = (0..200)
        .map(|host| {
            (
                format!("{network}.{}", 10 + host),
                format!("shop/lb-{number}-{host}"),
            )
        })
        .collect();
    let digest = harvester_lb_api::projection::digest(Some(&allocated), None);
    json!({
        "metadata": {
            "name": pool_name(number), "uid": format!("u-{number}"),
            "annotations": {"loadbalancer.harvesterhci.io/projection": digest},
        },
        "spec": {
            "ranges": [
                {"subnet": format!("{network}.0/24"), "rangeStart": format!("{network}.10"), "rangeEnd": format!("{network}.99")},
                {"subnet": format!("{network}.0/24"), "rangeStart": format!("{network}.100"), "rangeEnd": format!("{network}.220")},
            ],
            "selector": {"network": format!("net/v{}", number % 10), "scope": [tuple("a"), tuple("b")]},
        },
        "status": {"total": 211, "available": 11, "lastAllocated": "", "allocated": allocated},
    })
}

/// A review.
fn body(operation: &str, kind: &str, object: &Value, old: &Value) -> Vec<u8> {
    let metadata = &object["metadata"];
    let review = json!({
        "apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": operation,
            "name": metadata["name"], "namespace": metadata["namespace"],
            "kind": {"group": "loadbalancer.harvesterhci.io", "version": "v1beta1", "kind": kind},
            "userInfo": {"username": "admin", "groups": ["system:authenticated"]},
            "object": object, "oldObject": old, "dryRun": false,
        },
    });
    review.to_string().into_bytes()
}

/// One kind of review.
struct Kind {
    name: &'static str,
    /// Whether the request is to the mutating webhook.
    is_mutation: bool,
    /// Whether it is allowed.
    allowed: bool,
    bodies: Vec<Vec<u8>>,
}

fn kinds(pools: usize) -> Vec<Kind> {
    let bodies = |make: &dyn Fn(usize) -> Vec<u8>| (0..BODIES).map(make).collect::<Vec<_>>();
    let edited = |number| {
        let mut object = pool(number);
        object["spec"]["ranges"][1]["rangeEnd"] = format!("{}.250", network(number)).into();
        object
    };
    let update = bodies(&|number| body("UPDATE", "IPPool", &edited(number), &pool(number)));
    let create = bodies(&|number| body("CREATE", "IPPool", &pool(pools + number), &Value::Null));
    let overlap = bodies(&|number| {
        let mut object = pool(pools);
        object["spec"]["ranges"] = pool(number)["spec"]["ranges"].clone();
        body("CREATE", "IPPool", &object, &Value::Null)
    });
    let status = bodies(&|number| body("UPDATE", "IPPool", &pool(number), &pool(number)));
    let vm = bodies(&|number| {
        let check = json!({"healthCheck": {"port": 8080}});
        let spec = with(vm_spec("web"), check);
        body(
            "CREATE",
            "LoadBalancer",
            &load_balancer("shop", &format!("lb{number}"), "u", &spec),
            &Value::Null,
        )
    });
    let checked = bodies(&|number| {
        let spec = vm_spec("web");
        body(
            "CREATE",
            "LoadBalancer",
            &load_balancer("shop", &format!("lb{number}"), "u", &spec),
            &Value::Null,
        )
    });
    let kind = |name, is_mutation, allowed, bodies| Kind {
        name,
        is_mutation,
        allowed,
        bodies,
    };
    vec![
        kind("IPPool update, validated", false, true, update.clone()),
        kind("IPPool creation, validated", false, true, create),
        kind(
            "IPPool creation with an overlap, refused",
            false,
            false,
            overlap,
        ),
        kind("IPPool status, validated", false, true, status),
        kind("IPPool update, mutated", true, true, update),
        kind("LoadBalancer creation, mutated", true, true, vm),
        kind("LoadBalancer creation, validated", false, true, checked),
    ]
}

impl Kind {
    /// Reviews per second.
    fn timed(&self, world: &World) -> Result<u64, Failure> {
        let start = Instant::now();
        for body in self.bodies.iter().cycle().take(TIMED) {
            let request = Request::parse(body)?;
            let (allowed, response) = self.answer(&request, world)?;
            if allowed != self.allowed || response.is_empty() {
                let response = String::from_utf8_lossy(&response).into_owned();
                return Err(format!("{}: {response}", self.name).into());
            }
        }
        Ok(per_second(start))
    }

    /// Whether a request is allowed, and the response.
    fn answer(&self, request: &Request, world: &World) -> Result<(bool, Vec<u8>), Failure> {
        let refused = |denial| match denial {
            Denial::Refused(refusal) => {
                let response = Response::Refused(&refusal).to_bytes(request);
                Ok((false, response))
            }
            missing @ Denial::NotReady(_) => Err(missing.into()),
        };
        if self.is_mutation {
            match mutate(request, world) {
                Ok(patch) => Ok((true, Response::Patched(&patch).to_bytes(request))),
                Err(denial) => refused(denial),
            }
        } else {
            match validate(request, world) {
                Ok(warnings) => Ok((true, Response::Allowed(&warnings).to_bytes(request))),
                Err(denial) => refused(denial),
            }
        }
    }
}

/// Changes of pools per second in an index of that many.
fn changes(pools: usize) -> Result<u64, Failure> {
    let mut index = PoolIndex::default();
    let mut specs = Vec::new();
    for number in 0..pools {
        let object: IPPool = serde_json::from_value(pool(number))?;
        index.set(&pool_name(number), &object.metadata, &object.spec);
        let mut edited = object.spec.clone();
        edited.ranges.truncate(1);
        specs.push((pool_name(number), object.metadata, [edited, object.spec]));
    }
    let start = Instant::now();
    for round in 0..TIMED.div_ceil(pools) {
        for (name, meta, specs) in &specs {
            index.set(name, meta, &specs[round % 2]);
        }
    }
    let done = TIMED.div_ceil(pools) * pools;
    Ok(u64::try_from(done * 1_000_000_000 / elapsed(start))?)
}

/// [`TIMED`] operations since `start`, as operations per second.
fn per_second(start: Instant) -> u64 {
    u64::try_from(TIMED * 1_000_000_000 / elapsed(start)).unwrap_or(u64::MAX)
}

/// Nanoseconds since `start`, at least one.
fn elapsed(start: Instant) -> usize {
    usize::try_from(start.elapsed().as_nanos())
        .unwrap_or(usize::MAX)
        .max(1)
}
