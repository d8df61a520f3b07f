//! What the next start of the operator does with the addresses of the Go operator: the plan of the takeover, played on
//! copies of the objects (IPA-1, IPA-2, ALC-7). Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use harvester_lb_api::Ipam;
use harvester_lb_api::meta::Decoded;
use harvester_lb_audit::{Finding, ObjectRef, kinds};
use harvester_lb_controller_kit::Stamp;
use harvester_lb_controller_kit::store::Store;
use harvester_lb_core::cached::{self, Allocation, Lb, Pool};
use harvester_lb_core::spec;
use harvester_lb_ipam::allocation::{self, Step};
use harvester_lb_ipam::import::{MapField, SkipReason, Skipped};
use harvester_lb_ipam::{Phase, Record, RecordSpec, Request, addr};
use harvester_lb_object::{Key, Version};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;

use super::read::Read;
use crate::clock;
use crate::controllers::takeover;
use crate::index::leader_state::LeaderState;
use crate::index::stores::Stores;

/// Number of entries that a finding names.
const SHOWN: usize = 5;
/// Resource version of the first record that the preview writes: newer than any of the API server.
const WRITTEN: u64 = 1 << 63;

/// What the import would do.
#[derive(Clone, Debug, Default)]
pub(super) struct Preview {
    /// Number of addresses of existing load balancers that get an IPAllocation.
    pub(super) bound: usize,
    /// Number of addresses that are remembered.
    pub(super) released: usize,
    /// What the load balancers lose, and what is skipped.
    pub(super) findings: Vec<Finding>,
}

/// Plays the takeover.
pub(super) fn preview(read: &Read) -> Preview {
    let stores = stores(read);
    release_orphans(&stores);
    let (mut leader, plan) = takeover::plan(&stores);
    let mut preview = Preview {
        bound: plan.claims.len(),
        released: plan.released.len(),
        findings: skipped(&plan.skipped),
    };
    let mut version = WRITTEN;
    for spec in takeover::records_to_create(&stores, &plan) {
        version += 1;
        leader.observe(record(spec, version));
    }
    let mut losers = BTreeSet::new();
    for loser in &plan.losers {
        let key = cached::key(&loser.owner.id);
        let text = format!(
            "claims {}, which LoadBalancer {} keeps; at the import it gets another address",
            loser.addr, loser.keeper
        );
        let object = ObjectRef::namespaced("LoadBalancer", &key);
        let finding = Finding::new(&kinds::DUPLICATE_CLAIM, "IPA-2", object, text);
        preview.findings.push(finding);
        losers.insert((key, loser.addr));
    }
    let mut lbs = stores.lbs.all();
    lbs.sort_by(|(a, _), (b, _)| a.cmp(b));
    for (key, lb) in lbs {
        let Lb::Valid(lb) = &*lb else { continue };
        let request = spec::request(lb);
        let Some(named) = request.status.as_ref().map(|status| status.addr) else {
            continue;
        };
        let is_pooled = lb.spec.address_source() == Ipam::Pool;
        let aside =
            stores.unsupported(&lb.metadata).is_some() || lb.metadata.deletion_timestamp.is_some();
        if !is_pooled || aside || losers.contains(&(key.clone(), named)) {
            continue;
        }
        let is_valid = spec::check(lb).is_ok();
        if let Err(why) = keeps(&mut leader, &request, named, is_valid, &mut version) {
            let text = format!("does not keep {named}, which its status names: {why}");
            let object = ObjectRef::namespaced("LoadBalancer", &key);
            let finding = Finding::new(&kinds::ADDRESS_NOT_KEPT, "ALC-7", object, text);
            preview.findings.push(finding);
        }
    }
    preview
}

/// The stores as the takeover finds them.
fn stores(read: &Read) -> Stores {
    let stores = Stores::default();
    let snapshot = &read.snapshot;
    for lb in &snapshot.load_balancers {
        put(&stores.lbs, &lb.metadata, Lb::valid(lb.clone()));
    }
    for pool in &snapshot.pools {
        put(&stores.pools, &pool.metadata, Pool::valid(pool.clone()));
    }
    for record in &snapshot.records {
        let meta = record.meta();
        put(&stores.allocations, meta, Allocation::decoded(record));
    }
    for service in &snapshot.services {
        if let Some(cached) = cached::service(Ok(service.clone())) {
            put(&stores.services, &service.metadata, cached);
        }
    }
    for (kind, invalid) in &read.undecodable {
        let meta = &invalid.metadata;
        match *kind {
            "LoadBalancer" => put(&stores.lbs, meta, Lb::from_watch(Err(invalid.clone()))),
            "IPPool" => put(&stores.pools, meta, Pool::from_watch(Err(invalid.clone()))),
            "IPAllocation" => {
                let decoded: Decoded<_> = Err(invalid.clone());
                put(&stores.allocations, meta, Allocation::from_watch(decoded));
            }
            _ => {}
        }
    }
    stores
}

fn put<V>(store: &Store<V>, meta: &ObjectMeta, value: V) {
    store.written(&harvester_lb_api::meta::key(meta), Stamp::of(meta), value);
}

/// IPAllocations of deleted owners whose address an existing load balancer names are released first, unless a Service
/// shows the address (IPA-3).
fn release_orphans(stores: &Stores) {
    let named = takeover::addresses_of_existing_lbs(stores);
    let sharing = stores.sharing();
    for (key, allocation) in stores.allocations.all() {
        let Allocation::Valid {
            record: old, uid, ..
        } = &*allocation
        else {
            continue;
        };
        let owner = cached::key(&old.spec.address_of());
        let holder = cached::key(&old.spec.owner.id);
        let service = stores.services.get(&owner);
        let shown = service.map(|service| cached::shown_addresses(&service));
        if old.spec.phase == Phase::Bound
            && named.contains(&old.spec.addr)
            && stores.lbs.get(&owner).is_none()
            && stores.lbs.get(&holder).is_none()
            && !sharing.shares_record(old)
            && !shown.is_some_and(|shown| shown.contains(&old.spec.addr))
        {
            let spec = RecordSpec {
                phase: Phase::Released,
                released_at: Some(clock::now()),
                group: None,
                ..old.spec.clone()
            };
            let released = Allocation::Valid {
                record: record(spec, WRITTEN),
                uid: uid.clone(),
                is_marked: false,
            };
            stores.allocations.written(&key, Version(WRITTEN), released);
        }
    }
}

fn record(spec: RecordSpec, version: u64) -> Record {
    Record {
        spec,
        version: Version(version),
    }
}

/// Whether a load balancer keeps the address that its status names; else why not.
fn keeps(
    leader: &mut LeaderState,
    request: &Request,
    named: IpAddr,
    is_valid: bool,
    version: &mut u64,
) -> Result<(), String> {
    let mut allocation = if is_valid {
        allocation::Allocation::acquire(request)
    } else {
        allocation::Allocation::keep(request)
    };
    loop {
        match allocation.next(&mut leader.ledger, clock::now()) {
            // The copies are what the API server holds.
            Step::ReadRecord(_) | Step::VerifyOwner | Step::VerifyStatus(_) => {}
            Step::Delete(stale) => {
                leader.forget(&addr::record_name(stale.spec.addr), stale.version);
            }
            Step::Write { spec, .. } => {
                *version += 1;
                leader.observe(record(spec, *version));
                allocation.accepted();
            }
            Step::Done { grant, .. } if grant.addr == named => return Ok(()),
            Step::Done { grant, .. } => {
                return Err(format!(
                    "no IPPool that serves it has that address; it gets another one of IPPool {}",
                    grant.pool
                ));
            }
            Step::Wait { keep_service, .. } if keep_service => return Ok(()),
            Step::Wait { explanation, .. } => return Err(explanation.to_string()),
            // An invalid spec: nothing changes.
            Step::Nothing { .. } | Step::GiveUp(_) => return Ok(()),
        }
    }
}

/// One finding for each pool, map and reason.
fn skipped(all: &[Skipped]) -> Vec<Finding> {
    let mut groups: BTreeMap<(&str, &str, &str), Vec<&Skipped>> = BTreeMap::new();
    for entry in all {
        let field = match entry.field {
            MapField::Allocated => "status.allocated",
            MapField::History => "status.allocatedHistory",
        };
        let why = match entry.reason {
            SkipReason::NotAnAddress => "is not an IP address",
            SkipReason::NotAnOwner => "does not name a LoadBalancer",
            SkipReason::OutOfRange => {
                "the pool cannot allocate: outside of its ranges, a gateway, or excluded"
            }
            SkipReason::HistoryFull => "is more than the history may have",
        };
        let group = groups.entry((&entry.pool, field, why)).or_default();
        group.push(entry);
    }
    let groups = groups.into_iter().map(|((pool, field, why), entries)| {
        let shown = entries.iter().take(SHOWN);
        let shown: Vec<String> = shown
            .map(|entry| format!("{}: {}", entry.key, entry.value))
            .collect();
        let more = match entries.len().saturating_sub(SHOWN) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        let text = format!("{field} has {}{more}, which {why}", shown.join(", "));
        let object = ObjectRef::namespaced("IPPool", &Key::new("", pool));
        Finding::new(&kinds::MAP_ENTRY_SKIPPED, "IPA-1", object, text)
    });
    groups.collect()
}
