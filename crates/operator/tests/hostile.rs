//! Fuzzing with mutated objects of each kind, from the watch through all pure code: no panic, bounded time and memory, errors
//! that name the object and field, and no effect on other load balancers.
//!
//! `HLB_SEED` selects other objects than the default run, `HLB_OBJECTS` their number for each kind. `HLB_SOAK=1` runs the
//! number of the soak with a random seed.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "a test")]

#[path = "hostile/scene.rs"]
mod scene;

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_api::meta::Decoded;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, meta};
use harvester_lb_controller_kit::decode_guard::decode;
use harvester_lb_core::backends::{Backend, DiscoveredBackends, MAX_BACKENDS};
use harvester_lb_core::cached::{self, Allocation, Lb, Pool, Vm, Vmi};
use harvester_lb_core::desired::DesiredPort;
use harvester_lb_core::details::{self, BackendHealth};
use harvester_lb_core::dhcp::record::LeaseRecord;
use harvester_lb_core::merge_patch::difference;
use harvester_lb_core::pool_spec::pool_spec;
use harvester_lb_core::readiness::{self, ReadinessInput};
use harvester_lb_core::sharing::naming::{self, Observed, SETTLE};
use harvester_lb_core::sharing::service::{Others, Part};
use harvester_lb_core::sharing::snapshot::served;
use harvester_lb_core::spec::{self, VmSpec};
use harvester_lb_core::status::{self, FieldUpdate, Readiness, StatusUpdate, StatusWrite};
use harvester_lb_core::{backend_addresses, desired, pool_status, sharing};
use harvester_lb_hostile::{Generator, Kind, Mutant, Source, amount, seed};
use harvester_lb_ipam::{Micros, PoolName, Standing, addr, import, manual_release};
use harvester_lb_object::{Key, Version};
use harvester_load_balancer::controllers::invalid_object;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use scene::{CALM, HELD, LOUD, Scene, calm_lb, id, targets};
use serde::de::DeserializeOwned;

/// Objects of each kind in a test run.
const OBJECTS: usize = 300;
/// The same in the soak.
const SOAK: usize = 400_000;
/// Number of objects after which the bystanders' state is reset, so that one object's effect does not hide another's.
const WORLD: usize = 250;
/// Time limit of one object. Generous, because it detects endless loops on a busy machine.
const LONG: Duration = Duration::from_secs(20);
/// Limit of the peak memory of all kinds together.
const MEMORY_MIB: u64 = 1_024;

const NOW: &str = "2026-06-01T00:00:00Z";

/// Results of a kind's objects.
#[derive(Default)]
struct Tally {
    decoded: usize,
    refused: usize,
    rejected_by_decoder: usize,
    bytes: usize,
    longest: Duration,
}

/// Prints the object if the test panics while it is processed.
struct Culprit<'a>(&'a Mutant, u64, usize);

impl Drop for Culprit<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let Self(mutant, seed, number) = self;
            let text: String = mutant.text.chars().take(3_000).collect();
            eprintln!(
                "HLB_SEED={seed}: {:?} {number}, {:?}: {text}",
                mutant.kind, mutant.what
            );
        }
    }
}

/// Decodes mutated objects of a kind as a watch does, and passes each to `work`.
fn flood<K: DeserializeOwned>(
    kind: Kind,
    name: impl Fn(usize) -> String,
    mut work: impl FnMut(&mut Scene, &Key, u64, Decoded<K>),
) {
    let seed = seed();
    let count = amount(OBJECTS, SOAK);
    let mut targets = targets();
    if kind == Kind::IpAllocation {
        // A writer of an IPAllocation decides on its owner's address, like the operator itself.
        targets.names.retain(|name| name == "holds" || name == "a");
    }
    let mut generator = Generator::new(seed, kind, Source::FromWatch, targets);
    let mut tally = Tally::default();
    let mut scene = Scene::new();
    let namespace = if kind.is_cluster_scoped() { "" } else { LOUD };
    for number in 0..count {
        if number % WORLD == 0 {
            scene = Scene::new();
        }
        let key = Key::new(namespace, name(number));
        let mutant = generator.mutant(&key.namespace, &key.name);
        let culprit = Culprit(&mutant, seed, number);
        tally.bytes += mutant.text.len();
        let started = Instant::now();
        match decode::<K>(&mutant.text) {
            // No API server sends this.
            Err(error) => {
                assert!(mutant.rejected_by_decoder, "{error}");
                tally.rejected_by_decoder += 1;
                continue;
            }
            Ok(decoded) => {
                match &decoded {
                    Ok(_) => tally.decoded += 1,
                    Err(invalid) => {
                        tally.refused += 1;
                        assert!(invalid.error.len() <= 514, "{}", invalid.error);
                        assert_eq!(invalid.metadata.name.as_deref(), Some(&*key.name));
                    }
                }
                work(&mut scene, &key, 10 + number as u64, decoded);
            }
        }
        scene.nobody_is_harmed();
        let took = started.elapsed();
        assert!(took < LONG, "it took {took:?}");
        tally.longest = tally.longest.max(took);
        drop(culprit);
    }
    let memory = peak_mib();
    eprintln!(
        "HLB_SEED={seed}: {kind:?}: {count} objects, {} MiB: {} decoded, {} not, {} that no API server sends; longest {:?}; peak of all kinds {memory} MiB",
        tally.bytes >> 20,
        tally.decoded,
        tally.refused,
        tally.rejected_by_decoder,
        tally.longest,
    );
    assert!(tally.decoded > count / 10);
    assert!(memory < MEMORY_MIB);
}

/// The peak memory of this process.
fn peak_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|l| l.starts_with("VmHWM:")).unwrap();
    let kib: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib / 1_024
}

/// Checks the message about an undecodable object: it names the object, the field and the error.
fn is_named(kind: &str, key: &Key, error: &str) {
    let message = invalid_object::message(kind, key, error);
    assert!(message.contains(&key.to_string()) && message.contains(kind));
    let (field, problem) = error.split_once(": ").unwrap_or((error, ""));
    let known = ["spec", "status", "metadata", "."];
    let of_spec = known.iter().any(|k| field.starts_with(k)) && !problem.is_empty();
    // At the top level only a missing or duplicate field can be named.
    let itself = ["missing field", "duplicate field"];
    assert!(
        of_spec || itself.iter().any(|e| error.contains(e)),
        "{message}"
    );
}

/// Computes everything that follows from a load balancer with an address; nothing may fail.
fn build_all(
    lb: &LoadBalancer,
    vm: &VmSpec,
    found: &DiscoveredBackends,
    service: Option<&Service>,
    slice: Option<&EndpointSlice>,
) -> StatusUpdate {
    let key = &meta::key(&lb.metadata);
    let known = desired::known_readiness(slice);
    let backends: Vec<(Backend, bool)> = found
        .backends
        .iter()
        .map(|b| {
            (
                b.clone(),
                known.get(&(b.uid.clone(), b.address)) == Some(&true),
            )
        })
        .collect();
    let wanted = desired::endpoint_slice(lb, slice, &vm.ports, &backends);
    let ready = backends.iter().filter(|(_, ready)| *ready).count();
    assert_eq!(
        wanted.endpoints.len(),
        backends.len() + usize::from(ready == 0)
    );
    assert_eq!(desired::real_endpoints(&wanted).count(), backends.len());
    assert!(wanted.endpoints.len() <= MAX_BACKENDS + 1);
    let again = desired::endpoint_slice(lb, Some(&wanted), &vm.ports, &backends);
    assert_eq!(difference(&wanted, &again), None, "never at rest");
    let wanted = desired::service(lb, service, &vm.ports, HELD);
    let again = desired::service(lb, Some(&wanted), &vm.ports, HELD);
    assert_eq!(difference(&wanted, &again), None, "never at rest");
    build_shared(lb, vm, service, slice);
    let external = service.and_then(readiness::external_ip);
    let readiness = readiness::readiness(&ReadinessInput {
        key,
        vm,
        found,
        wanted: HELD,
        external: external.as_deref(),
        healthy: ready,
        probed: backends.len(),
        before: status::conditions(lb),
    });
    let servers = backends
        .iter()
        .map(|(b, _)| b.address.to_string())
        .collect();
    let health: Vec<BackendHealth<'_>> = backends
        .iter()
        .map(|(backend, ready)| BackendHealth::new(backend, *ready, None))
        .collect();
    let healthy = details::backends_healthy(&health, vm.check.is_some(), status::conditions(lb));
    let present = readiness::Present {
        address: HELD,
        standing: Standing::OutOfPool,
        unserved: None,
        shared: None,
    };
    StatusUpdate {
        readiness,
        allocated: FieldUpdate::Unchanged,
        address: FieldUpdate::Set(external.clone()),
        backend_servers: FieldUpdate::Set(Some(servers)),
        extras: readiness::extras(None, Some(present), found),
        details: vec![
            details::allocated_from_pool(HELD, "p"),
            details::announced(external.as_deref(), HELD, false),
            healthy,
        ],
        verdicts_changed: true,
    }
}

/// Computes the Service of a primary with these objects, which another load balancer has joined: before and after kube-proxy has seen
/// the names of its ports.
fn build_shared(
    lb: &LoadBalancer,
    vm: &VmSpec,
    service: Option<&Service>,
    slice: Option<&EndpointSlice>,
) {
    let key = &meta::key(&lb.metadata);
    let stored = sharing::service::stored_names(&key.name, &vm.ports, service, slice);
    let observed = Observed::after(None, stored, Duration::ZERO);
    let wanted = sharing::service::wanted_names(&vm.ports, true);
    let joined = DesiredPort {
        name: "9-sctp".to_owned(),
        protocol: "SCTP",
        port: 9,
        target: IntOrString::Int(9),
    };
    let others = Others {
        secondaries: vec![Part {
            name: "joined".to_owned(),
            uid: "u-joined".to_owned(),
            is_owner: true,
            carried: vec![joined.clone()],
            added: Vec::new(),
        }],
        ..Others::default()
    };
    for now in [Duration::ZERO, SETTLE] {
        let names = naming::next(&wanted, &observed, now);
        let ports = vm.ports.iter().filter_map(|port| {
            let name = names.service.get(&served(port))?;
            Some(DesiredPort::named(port, name.clone()))
        });
        let primary = Part {
            name: key.name.to_string(),
            ..Part::default()
        };
        let (owners, ports) =
            sharing::service::assemble(Some((primary, ports.collect())), &others, service);
        assert_eq!((owners.len(), ports.len()), (2, vm.ports.len() + 1));
        assert!(ports.contains(&joined));
        let wanted = desired::shared_service(key, service, &owners, &ports, HELD);
        let again = desired::shared_service(key, Some(&wanted), &owners, &ports, HELD);
        assert_eq!(difference(&wanted, &again), None, "never at rest");
        let mut owners = wanted.metadata.owner_references.iter().flatten();
        assert!(owners.any(|owner| owner.uid == "u-joined"));
    }
}

/// Checks the status after an update: it is short, and the same update changes nothing.
fn is_told(lb: &LoadBalancer, report: &StatusUpdate) {
    let after = status::apply(lb, report, NOW);
    let conditions = after
        .status
        .as_ref()
        .unwrap()
        .conditions
        .as_deref()
        .unwrap();
    let ready = conditions.iter().find(|c| c.type_ == "Ready").unwrap();
    assert!(ready.message.as_deref().unwrap_or_default().len() <= 1_024);
    assert_eq!(ready.reason.as_deref(), Some(report.readiness.reason));
    let again = status::apply(&after, report, "2026-06-02T00:00:00Z");
    assert_eq!(difference(&after, &again), None, "never at rest");
    let written = match status::decide(lb, report, NOW) {
        StatusWrite::Now(lb) | StatusWrite::Paced(lb) => *lb,
        StatusWrite::None => lb.clone(),
    };
    for condition in status::conditions(&written) {
        let message = condition.message.as_deref().unwrap_or_default();
        let is_ours = details::is_detail(&condition.type_);
        assert!(!is_ours || message.len() <= 1_024, "{condition:?}");
    }
    let again = status::decide(&written, report, "2026-06-02T00:00:00Z");
    assert_eq!(again, StatusWrite::None, "never at rest");
    let before = lb.status.as_ref().and_then(|s| s.conditions.as_deref());
    status::event_drafts(before, conditions);
}

fn vmi(name: &str) -> (Key, Vmi) {
    let object: VirtualMachineInstance = scene::object(serde_json::json!({
        "metadata": {"namespace": LOUD, "name": name, "uid": name, "labels": {"app": "web"}},
        "spec": {}, "status": {"interfaces": [{"name": "a", "ipAddress": "10.244.0.7"}]},
    }));
    (Key::new(LOUD, name), Vmi::from_watch(Ok(object)))
}

fn import_claims_nothing_of_others(
    scene: &Scene,
    maps: &[import::PoolMaps],
    existing: &[import::ExistingLb],
) {
    let plan = import::plan(&scene.leader.ledger, maps, existing, Micros(7));
    let held: IpAddr = HELD.parse().unwrap();
    assert!(plan.claims.iter().all(|c| c.addr != held));
    assert!(plan.released.iter().all(|r| r.addr != held));
    let entries: usize = maps
        .iter()
        .map(|m| m.allocated.len() + m.history.len())
        .sum();
    assert!(plan.claims.len() <= existing.len() && plan.released.len() <= entries);
}

#[test]
fn input_mutated_load_balancers() {
    let machines: Vec<_> = (0..3).map(|n| vmi(&format!("vm{n}"))).collect();
    let name = |number: usize| format!("lb{}", number % 40);
    flood::<LoadBalancer>(Kind::LoadBalancer, name, |scene, key, version, decoded| {
        let lb = Lb::from_watch(decoded);
        assert_eq!(lb.meta().managed_fields, None);
        let lb = match &lb {
            Lb::Invalid(meta, error) => {
                is_named("LoadBalancer", key, error);
                let owner = spec::owner(meta);
                scene.leader.ledger.dequeue(&owner);
                let existing = import::ExistingLb {
                    owner,
                    created: Micros(0),
                    status: None,
                    wants: true,
                };
                import_claims_nothing_of_others(scene, &[], &[existing]);
                return;
            }
            Lb::Valid(lb) => lb,
        };
        let request = spec::request(lb);
        let existing = import::ExistingLb {
            owner: request.owner.clone(),
            created: request.created,
            status: request.status.clone(),
            wants: true,
        };
        import_claims_nothing_of_others(scene, &[], &[existing]);
        match spec::check(lb) {
            Err(error) => {
                let message = format!("LoadBalancer {key}: {error}");
                assert!(message.contains("spec."), "{message}");
                is_told(
                    lb,
                    &StatusUpdate::only(Readiness::not(error.reason(), message)),
                );
            }
            Ok(checked) => {
                let message = scene.allocate(&request, version);
                let mut report = StatusUpdate::only(Readiness::not("NoAvailableIP", message));
                if let Some(vm) = &checked.vm {
                    let mut found = DiscoveredBackends::default();
                    for (key, vmi) in &machines {
                        found.add_if_selected(&vm.selector, key, vmi);
                    }
                    report = build_all(lb, vm, &found, None, None);
                }
                is_told(lb, &report);
            }
        }
        // The next of this name is another object.
        scene.delete(&request, version);
    });
}

#[test]
fn input_mutated_pools() {
    let name = |number: usize| format!("mutant{}", number % 4);
    flood::<IPPool>(Kind::IpPool, name, |scene, key, _, decoded| {
        let pool = Pool::from_watch(decoded);
        if let Err(error) = &pool.spec {
            is_named("IPPool", key, error);
        }
        let name = PoolName::from(&*key.name);
        scene.leader.set_pool(key, &pool);
        let dirty = scene.leader.take_dirty();
        assert!(dirty.iter().any(|(pool, _)| *pool == name));
        let ledger = &scene.leader.ledger;
        for limit in [1_000_000, 100] {
            let projection = pool_status::project(ledger, &name, limit).unwrap();
            assert!(projection.total >= 0 && projection.available >= 0);
            assert!(projection.available <= projection.total);
            let all = pool_status::conditions(ledger, &name, &pool, &projection, NOW);
            let said = all.iter().find(|c| c.type_ == "Ready").unwrap();
            let sound = pool_spec(&name, &pool, Micros(0)).ranges.is_ok();
            assert_eq!(said.status == "True", sound);
            assert!(
                all.iter().all(|c| c.type_ != "Ready"
                    || c.message.as_deref().unwrap_or_default().len() < 1_024)
            );
        }
        let wish = meta::annotation(
            &pool.meta,
            harvester_lb_api::keys::ANNOTATION_MANUALLY_RELEASE_IP,
        );
        if let Some(wish) = wish {
            let verdict = manual_release::verdict(ledger, &name, wish, |_| false, Micros(9));
            assert!(!matches!(verdict, manual_release::Verdict::Release(_)));
        }
        let maps = pool.foreign_maps.as_ref().map(|maps| import::PoolMaps {
            name: name.clone(),
            created: Micros(0),
            allocated: maps.allocated.clone().into_iter().collect(),
            history: maps.history.clone().into_iter().collect(),
        });
        let existing = spec::request(&calm_lb("holds", "u-holds", "calm"));
        let existing = import::ExistingLb {
            owner: existing.owner,
            created: existing.created,
            status: None,
            wants: true,
        };
        import_claims_nothing_of_others(scene, maps.as_slice(), &[existing]);
        // A load balancer that names the pool gets an address or a reason; then it is deleted.
        let request = spec::request(&calm_lb("guest", "u-guest", &key.name));
        assert!(!scene.allocate(&request, 7).is_empty());
        scene.delete(&request, 8);
    });
}

#[test]
fn input_mutated_records() {
    // Names of valid IPAllocations, of none, names that are no address, and those of leases.
    let name = |number: usize| match number % 11 {
        6 => "fd66-0000-0000-0000-0000-0000-0000-0007".to_owned(),
        7 => "not-an-address".to_owned(),
        8..=10 => format!("dhcp-6f1c6f0a-3f0e-4b57-9d4e-00000000000{}", number % 5),
        n => format!("10.66.{}.{}", n / 4, 9 + number % 5),
    };
    let mut newest: HashMap<IpAddr, u64> = HashMap::new();
    let (mut leases, mut unreadable_leases) = (0, 0);
    flood::<IPAllocation>(Kind::IpAllocation, name, |scene, key, _, decoded| {
        let undecodable = decoded.as_ref().err().map(|e| e.error.clone());
        let allocation = Allocation::from_watch(decoded);
        let addr = addr::parse_record_name(&key.name);
        scene.leader.observe_allocation(&key.name, &allocation);
        let version = match &allocation {
            Allocation::Valid { record, .. } => {
                assert_eq!(addr, Some(record.spec.addr), "it speaks of another address");
                cached::allocation_spec(&record.spec);
                record.version
            }
            Allocation::Lease(record) => {
                assert_eq!(addr, None, "it has the name of an address");
                leases += 1;
                is_lease_of_its_name(scene, key, record);
                return scene.nobody_is_harmed();
            }
            Allocation::UnreadableLease(why) => {
                assert_eq!(addr, None, "it has the name of an address");
                unreadable_leases += 1;
                match undecodable {
                    Some(error) => is_named("IPAllocation", key, &error),
                    None => assert!(why.starts_with("spec."), "{why}"),
                }
                return scene.nobody_is_harmed();
            }
            Allocation::Reserved => {
                assert_eq!(addr, None, "it has the name of an address");
                return scene.nobody_is_harmed();
            }
            Allocation::Unreadable { why, version } => {
                match undecodable {
                    Some(error) => is_named("IPAllocation", key, &error),
                    None => assert!(why.contains("spec.address"), "{why}"),
                }
                // A version older than the known one is ignored; an unparsable version may count or not.
                let is_news = |addr| newest.get(&addr).is_none_or(|n| *n < version.0);
                if let Some(addr) = addr.filter(|a| version.0 == 0 || is_news(*a)) {
                    assert!(!scene.is_free(addr), "its name is not blocked");
                }
                *version
            }
        };
        if let Some(addr) = addr {
            let known = newest.entry(addr).or_default();
            *known = version.0.max(*known);
        }
        scene.leader.take_dirty();
        scene.leader.ledger.take_wakes();
        scene.leader.ledger.history_excess(64);
        scene.nobody_is_harmed();
        // After its deletion the address is available once its owner is deleted or has another.
        scene.leader.forget(&key.name, version);
        if let Allocation::Valid { record, .. } = &allocation
            && record.spec.owner.id != id(CALM, "holds")
        {
            scene.leader.ledger.withdraw(&record.spec.owner.id);
        }
        scene.nobody_is_harmed();
        if let Some(addr) = addr {
            assert!(scene.is_free(addr), "{addr} is lost");
        }
    });
    let least = amount(OBJECTS, SOAK) / 50;
    assert!(
        leases >= least && unreadable_leases >= least,
        "{leases} leases, {unreadable_leases} unreadable"
    );
}

/// Checks a lease that could be read: it is that of the uid in its name, what would be written is read as the same, and its address
/// counts as leased as long as the record is there.
fn is_lease_of_its_name(scene: &mut Scene, key: &Key, record: &LeaseRecord) {
    let spec = &record.spec;
    assert_eq!(spec.name(), *key.name);
    let mut again = IPAllocation {
        spec: spec.to_api(),
        ..IPAllocation::default()
    };
    again.metadata.name = Some(spec.name());
    let again = Allocation::decoded(&again);
    assert!(
        matches!(&again, Allocation::Lease(again) if again.spec == *spec),
        "{again:?} from {spec:?}"
    );
    let address = spec.phase.lease().map(|lease| lease.address.into());
    scene.leader.set_lease(spec, true);
    assert!(address.is_none_or(|address| scene.leader.is_leased(address)));
    scene.leader.set_lease(spec, false);
    assert!(!address.is_some_and(|address| scene.leader.is_leased(address)));
}

#[test]
fn input_mutated_instances() {
    let lb: LoadBalancer = calm_lb("loud", "u-loud", "calm");
    let vm = spec::check(&lb).unwrap().vm.unwrap();
    let name = |number: usize| format!("vm{}", number % 100);
    flood(Kind::Vmi, name, |_, key, _, decoded| {
        let was_decoded = Decoded::<VirtualMachineInstance>::is_ok(&decoded);
        let machine = Vmi::from_watch(decoded);
        assert!(was_decoded || machine.address.is_none());
        if let Some(ip) = machine.address {
            let bad = ip.is_unspecified() || ip.is_loopback() || ip.is_link_local();
            assert!(!bad && !ip.is_multicast(), "{ip} is no backend");
        }
        let mut found = DiscoveredBackends::default();
        found.add_if_selected(&vm.selector, key, &machine);
        let (other, sound) = vmi("sound");
        found.add_if_selected(&vm.selector, &other, &sound);
        assert!(found.backends.iter().any(|b| b.uid == "sound"));
        is_told(&lb, &build_all(&lb, &vm, &found, None, None));
    });
}

#[test]
fn input_mutated_machines() {
    let name = |number: usize| format!("vm{}", number % 100);
    flood::<VirtualMachine>(Kind::Vm, name, |_, _, _, decoded| {
        let machine = Vm::from_watch(decoded);
        assert_ne!(machine.guest_cluster.as_deref(), Some(""));
    });
}

#[test]
fn input_mutated_services() {
    let mut lb: LoadBalancer = calm_lb("web", "u-web", "calm");
    lb.metadata.namespace = Some(LOUD.to_owned());
    let vm = spec::check(&lb).unwrap().vm.unwrap();
    let name = |number: usize| format!("web{}", number % 10);
    flood(Kind::Service, name, |scene, key, _, decoded| {
        let Some(present) = cached::service(decoded) else {
            return;
        };
        backend_addresses::ServiceAddresses::of(&present);
        let shown = cached::shown_addresses(&present);
        scene.leader.ledger.set_shown(&id(LOUD, &key.name), &shown);
        scene.leader.ledger.take_wakes();
        desired::ownership(&present.metadata, "web");
        let report = build_all(
            &lb,
            &vm,
            &DiscoveredBackends::default(),
            Some(&present),
            None,
        );
        is_told(&lb, &report);
        assert!(meta::version(&present.metadata) >= Version(0));
    });
}

#[test]
fn input_mutated_slices() {
    let lb: LoadBalancer = calm_lb("web", "u-web", "calm");
    let vm = spec::check(&lb).unwrap().vm.unwrap();
    let (key, machine) = vmi("vm7");
    assert_ne!(&*key.namespace, CALM);
    let name = |number: usize| format!("web{}", number % 10);
    flood(Kind::EndpointSlice, name, |_, _, _, decoded| {
        let Some(present) = cached::slice(decoded) else {
            return;
        };
        let mut found = DiscoveredBackends::default();
        found.add_if_selected(&vm.selector, &key, &machine);
        let report = build_all(&lb, &vm, &found, None, Some(&present));
        is_told(&lb, &report);
        let named = desired::backends(&present);
        let as_it_is: Vec<_> = named.into_iter().map(|b| (b, true)).collect();
        let as_it_is = desired::with_backends(&lb.metadata, &present, &as_it_is);
        assert!(as_it_is.endpoints.len() <= present.endpoints.len() + 1);
    });
}
