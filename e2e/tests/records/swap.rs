//! The swap from the Go operator, with all objects in place (IPA-1, IPA-2, OPS-2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, Phase, keys, projection};
use harvester_lb_e2e::World;
use harvester_lb_e2e::check::{check, passes};
use harvester_lb_e2e::fake_kube_vip::announce;
use harvester_lb_e2e::go::{self, pool_status};
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::policies;
use harvester_lb_e2e::quiet::{audited, quiet};
use harvester_lb_e2e::read::{allocated, condition};
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures as fixtures;
use harvester_lb_fixtures::part;
use harvester_lb_testkit::eventually;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::stage::{cluster, forge, holds, record, record_is, set, start, uid};

/// All objects of a kind in a namespace by name, without the fields that every write changes.
async fn stored<K>(api: &Api<K>) -> anyhow::Result<BTreeMap<String, Value>>
where
    K: Clone + DeserializeOwned + Serialize + std::fmt::Debug,
{
    let all = api.list(&ListParams::default()).await?;
    let mut stored = BTreeMap::new();
    for object in all {
        let mut object = serde_json::to_value(&object)?;
        for field in ["managedFields", "resourceVersion", "generation"] {
            object["metadata"][field].take();
        }
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        stored.insert(name.to_owned(), object);
    }
    Ok(stored)
}

/// What our operator adds to an EndpointSlice: the managed-by label, and the kind of an endpoint's target.
fn slice_with_additions(slice: &mut Value) {
    slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"] =
        json!("harvester-load-balancer");
    for endpoint in slice["endpoints"].as_array_mut().into_iter().flatten() {
        if endpoint["targetRef"]["uid"] != json!(keys::DUMMY_ENDPOINT_UID) {
            endpoint["targetRef"]["kind"] = json!("VirtualMachineInstance");
        }
    }
}

/// A LoadBalancer without what our operator removes (finalizers) or adds (reasons and times of conditions, and conditions that
/// say which part of it works).
fn lb_without_additions(lb: &mut Value) {
    lb["metadata"]["finalizers"].take();
    if let Some(conditions) = lb["status"]["conditions"].as_array_mut() {
        let added = ["AddressAllocated", "Announced", "BackendsHealthy"];
        conditions.retain(|c| added.iter().all(|type_| c["type"] != *type_));
    }
    for condition in lb["status"]["conditions"]
        .as_array_mut()
        .into_iter()
        .flatten()
    {
        for field in ["reason", "lastTransitionTime", "lastUpdateTime"] {
            condition[field].take();
        }
    }
}

pub async fn ops_2_ipa_1_swap_from_the_go_operator(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "swap";
    set(&world, ns).await?;
    let status = pool_status(
        &[
            ("10.70.0.10", "swap/web"),
            ("10.70.0.11", "swap/c1"),
            ("10.70.0.12", "swap/c2"),
            ("10.70.0.13", "swap/dead"),
            ("10.70.0.14", "nonsense"),
            ("not-an-address", "swap/c9"),
            ("10.70.0.15", "swap/idle"),
        ],
        &[
            ("10.70.0.20", "swap/back"),
            ("10.70.0.21", "elsewhere/old"),
            ("10.70.0.11", "swap/before-c1"),
            ("10.99.0.1", "swap/out-of-range"),
            ("::bad::", "swap/c8"),
        ],
        "10.70.0.15",
    );
    go::pool(&world, ns, "10.70.0.0/24", status).await?;
    let backends = [("vm1", "10.82.0.1", true), ("vm2", "10.82.0.2", false)];
    go::vm(&world, ns, "web", "10.70.0.10", &backends).await?;
    let sick = [("vm3", "10.82.0.3", false)];
    go::vm(&world, ns, "idle", "10.70.0.15", &sick).await?;
    let vmi = json!({"metadata": {"finalizers": [go::VMI_FINALIZER, "kubevirt.io/virtualMachineControllerFinalize"]}});
    world.merge(&world.vmis(ns), "vm1", vmi).await?;
    go::cluster(&world, ns, "c1", Some("10.70.0.11")).await?;
    // The Go operator died between its two writes: the map has the address, the status has not.
    go::cluster(&world, ns, "c2", None).await?;
    let (services, mut slices, mut lbs) = (
        stored(&world.services(ns)).await?,
        stored(&world.slices(ns)).await?,
        stored(&world.lbs(ns)).await?,
    );

    let checked = passes(&world).await?;
    let import = json!({"bound": 4, "released": 3});
    ensure!(checked.json["import"] == import, "{:#}", checked.json);
    ensure!(
        services == stored(&world.services(ns)).await?,
        "check has written"
    );
    let operator = start(&world).await?;
    for (name, ip) in [
        ("web", ".10"),
        ("c1", ".11"),
        ("c2", ".12"),
        ("idle", ".15"),
    ] {
        holds(&world, ns, name, &format!("10.70.0{ip}")).await?;
    }
    record_is(&world, "10.70.0.13", Phase::Released, "swap/dead").await?;
    record_is(&world, "10.70.0.20", Phase::Released, "swap/back").await?;
    record_is(&world, "10.70.0.21", Phase::Released, "elsewhere/old").await?;
    for garbage in ["10.70.0.14", "10.99.0.1"] {
        ensure!(
            record(&world, garbage).await?.is_none(),
            "{garbage} is recorded"
        );
    }
    audited(&world, "node1", &[ns]).await?;
    let checked = passes(&world).await?;
    ensure!(checked.json["imported"] == true, "{:#}", checked.json);

    // OPS-2: nothing else has changed.
    ensure!(
        services == stored(&world.services(ns)).await?,
        "{services:#?}"
    );
    slices.values_mut().for_each(slice_with_additions);
    let now = stored(&world.slices(ns)).await?;
    ensure!(slices == now, "{slices:#?}\n{now:#?}");
    let mut now = stored(&world.lbs(ns)).await?;
    for (name, lb) in &now {
        ensure!(
            lb["metadata"]["finalizers"].is_null(),
            "{name} has finalizers"
        );
    }
    now.values_mut().for_each(lb_without_additions);
    lbs.values_mut().for_each(lb_without_additions);
    // This one got its missing address.
    let (_, c2) = (lbs.remove("c2"), now.remove("c2"));
    let c2 = c2.context("c2 is gone")?;
    ensure!(c2["status"]["address"] == json!("10.70.0.12"), "{c2}");
    for (name, lb) in &lbs {
        let now = &now[name];
        // All its backends were unhealthy already, which the Go operator reported differently.
        if name == "idle" {
            ensure!(lb["spec"] == now["spec"], "{lb:#} {now:#}");
            continue;
        }
        ensure!(lb == now, "{lb:#} {now:#}");
    }
    let vmi = world.vmis(ns).get("vm1").await?;
    let kept = ["kubevirt.io/virtualMachineControllerFinalize"];
    ensure!(vmi.finalizers() == kept, "{:?}", vmi.finalizers());
    let pool = world.pools().get(ns).await?;
    ensure!(pool.finalizers().is_empty(), "{:?}", pool.finalizers());

    // Round robin continues after the last address, past held ones; a previous owner gets its own again.
    cluster(&world, ns, "back").await?;
    holds(&world, ns, "back", "10.70.0.20").await?;
    cluster(&world, ns, "new").await?;
    holds(&world, ns, "new", "10.70.0.21").await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;
    passes(&world).await?;
    Ok(())
}

pub async fn ipa_2_one_address_two_load_balancers(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "doubled";
    set(&world, ns).await?;
    // The order of the names is never the right order.
    let status = pool_status(
        &[
            ("10.70.0.10", "doubled/b-in-map"),
            ("10.70.0.31", "doubled/status-wins"),
            ("10.70.0.40", "doubled/elsewhere"),
            ("10.70.0.50", "doubled/z-only-in-map"),
            ("10.70.0.60", "doubled/w2"),
        ],
        &[],
        "10.70.0.100",
    );
    go::pool(&world, ns, "10.70.0.0/24", status).await?;
    go::cluster(&world, ns, "z-older", Some("10.70.0.20")).await?;
    let older = go::cluster(&world, ns, "y-older", Some("10.70.0.10")).await?;
    later_than(&world, ns, &older).await?;
    go::cluster(&world, ns, "a-younger", Some("10.70.0.20")).await?;
    go::cluster(&world, ns, "b-in-map", Some("10.70.0.10")).await?;
    go::cluster(&world, ns, "status-wins", Some("10.70.0.30")).await?;
    go::cluster(&world, ns, "names-it", Some("10.70.0.40")).await?;
    go::cluster(&world, ns, "elsewhere", Some("10.70.0.41")).await?;
    go::cluster(&world, ns, "a-names-it", Some("10.70.0.50")).await?;
    go::cluster(&world, ns, "z-only-in-map", None).await?;
    let recorded = go::cluster(&world, ns, "z-recorded", Some("10.70.0.70")).await?;
    go::cluster(&world, ns, "a-unrecorded", Some("10.70.0.70")).await?;
    forge(
        &world,
        "10.70.0.70",
        ns,
        "Bound",
        (ns, "z-recorded", &uid(&recorded)),
    )
    .await?;
    let backend = [("vm1", "10.82.0.1", true)];
    go::vm(&world, ns, "w1", "10.70.0.60", &backend).await?;
    go::vm(
        &world,
        ns,
        "w2",
        "10.70.0.60",
        &[("vm2", "10.82.0.2", true)],
    )
    .await?;

    let losers = ["y-older", "a-younger", "a-names-it", "w1", "a-unrecorded"];
    let losers: BTreeSet<String> = losers.iter().map(|name| format!("{ns}/{name}")).collect();
    let checked = check(&world).await?;
    let foretold = checked.objects("DuplicateClaim");
    ensure!(
        checked.code == 1 && foretold == losers && checked.objects("AddressNotKept").is_empty(),
        "{:#}",
        checked.json
    );
    let operator = start(&world).await?;
    for (name, ip) in [
        ("b-in-map", "10.70.0.10"),
        ("z-older", "10.70.0.20"),
        ("status-wins", "10.70.0.30"),
        ("names-it", "10.70.0.40"),
        ("elsewhere", "10.70.0.41"),
        ("z-only-in-map", "10.70.0.50"),
        ("w2", "10.70.0.60"),
        ("z-recorded", "10.70.0.70"),
    ] {
        holds(&world, ns, name, ip).await?;
    }
    record_is(&world, "10.70.0.31", Phase::Released, "doubled/status-wins").await?;
    for (name, lost) in [
        ("y-older", "10.70.0.10"),
        ("a-younger", "10.70.0.20"),
        ("a-names-it", "10.70.0.50"),
        ("w1", "10.70.0.60"),
        ("a-unrecorded", "10.70.0.70"),
    ] {
        let lb = world
            .lb_until(ns, name, "another address", |lb| {
                allocated(lb).is_some_and(|ip| ip != lost) && condition(lb, "AddressLost").is_some()
            })
            .await?;
        let text = condition(&lb, "AddressLost").unwrap_or_default();
        ensure!(text.contains(lost), "{name}: {text}");
        world.event(ns, "LoadBalancer", name, lost).await?;
    }
    let service = world.services(ns).get("w1").await?;
    let lb = world.lbs(ns).get("w1").await?;
    let asked = service.spec.as_ref();
    let asked = asked.and_then(|s| s.load_balancer_ip.as_deref());
    ensure!(
        asked == allocated(&lb).as_deref(),
        "the Service asks for {asked:?}"
    );
    // There is no kube-vip; the Go operator's address would stay announced.
    announce(&world.client(), &service).await?;
    audited(&world, "node1", &[ns]).await?;
    passes(&world).await?;
    operator.end().await
}

pub async fn ipa_1_maps_of_our_own_are_not_read(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "maps";
    set(&world, ns).await?;
    // The same maps, once with the hash that marks them as ours, once with another.
    let entries = [("10.70.0.10", "maps/a")];
    let digest = projection::digest(Some(&go::map(&entries)), None);
    let status = pool_status(&entries, &[], "10.70.0.10");
    go::pool(&world, ns, "10.70.0.0/24", status).await?;
    let ours = json!({"metadata": {"annotations": {keys::ANNOTATION_PROJECTION: digest}}});
    world.merge(&world.pools(), ns, ours).await?;
    go::cluster(&world, ns, "a", None).await?;
    let operator = start(&world).await?;
    // Nothing was imported; the search continues after the last address.
    holds(&world, ns, "a", "10.70.0.11").await?;
    ensure!(record(&world, "10.70.0.10").await?.is_none(), "it was read");
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;

    // Another client writes them, and keeps the hash.
    go::cluster(&world, ns, "b", None).await?;
    let theirs = json!({"status": {
        "allocated": {"10.70.0.11": "maps/a", "10.70.0.77": "maps/b"},
        "allocatedHistory": {"10.70.0.78": "maps/c"}, "lastAllocated": "10.70.0.77", "available": 251,
    }});
    world.merge(&world.pools(), ns, theirs).await?;
    let operator = start(&world).await?;
    holds(&world, ns, "a", "10.70.0.11").await?;
    holds(&world, ns, "b", "10.70.0.77").await?;
    record_is(&world, "10.70.0.78", Phase::Released, "maps/c").await?;
    audited(&world, "node1", &[ns]).await?;
    operator.end().await?;

    // Our own, unchanged: no import.
    let before = world.pools().get(ns).await?;
    let operator = start(&world).await?;
    quiet(&world, "node1").await?;
    let after = world.pools().get(ns).await?;
    ensure!(
        before.resource_version() == after.resource_version(),
        "{after:?}"
    );
    operator.end().await
}

pub async fn ipa_1_holders_come_before_those_that_wait(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "holders";
    set(&world, ns).await?;
    // Three addresses: one that only a status names, one that only a map names, one that is free.
    let status = json!({
        "total": 3, "available": 2, "lastAllocated": "10.70.9.13",
        "allocated": {"10.70.9.11": "holders/z-in-map"},
    });
    let range = part("10.70.9.0/24", "10.70.9.10", "10.70.9.12");
    world.pool_for(ns, ns, &[range]).await?;
    let status = json!({ "status": status });
    world.merge(&world.pools(), ns, status).await?;
    // The waiting ones are older and first by name.
    let oldest = cluster(&world, ns, "m-oldest").await?;
    later_than(&world, ns, &oldest).await?;
    cluster(&world, ns, "a-waits").await?;
    cluster(&world, ns, "b-waits").await?;
    go::cluster(&world, ns, "z-in-status", Some("10.70.9.10")).await?;
    go::cluster(&world, ns, "z-in-map", None).await?;
    let history = HistoryChecker::start(&world.client());
    let operator = start(&world).await?;
    holds(&world, ns, "z-in-status", "10.70.9.10").await?;
    holds(&world, ns, "z-in-map", "10.70.9.11").await?;
    holds(&world, ns, "m-oldest", "10.70.9.12").await?;
    for name in ["a-waits", "b-waits"] {
        world.lb_reason(ns, name, "NoAvailableIP").await?;
    }
    let findings = history.findings(&world).await?;
    ensure!(findings.is_empty(), "{findings:#?}");
    // The next free address goes to the older one; with equal times, to the first by name.
    world.delete_lb(ns, "z-in-map").await?;
    holds(&world, ns, "a-waits", "10.70.9.11").await?;
    operator.end().await
}

/// Waits until an object that is created now is younger by a whole second, the resolution of the API server's times.
async fn later_than(world: &World, ns: &str, older: &LoadBalancer) -> anyhow::Result<()> {
    eventually("a second later", Duration::from_secs(5), || async {
        let name = format!("m{}", fastrand::u64(..));
        let marker = cluster(world, ns, &name).await?;
        world.delete_lb(ns, &name).await?;
        let later = marker.metadata.creation_timestamp > older.metadata.creation_timestamp;
        Ok(later.then_some(()))
    })
    .await
}

/// Makes the API server reject the IPAllocation of an address, as long as the policy exists.
async fn deny(world: &World, name: &str, ip: &str) -> anyhow::Result<()> {
    let rule = json!({
        "apiGroups": ["loadbalancer.harvesterhci.io"], "apiVersions": ["*"],
        "operations": ["CREATE"], "resources": ["ipallocations"],
    });
    let expression = format!("object.metadata.name != '{ip}'");
    let record = fixtures::record(ip, name, "Released", (name, "probe", ""));
    let record = serde_json::from_value(record)?;
    let why = "not this address";
    let records = world.records();
    policies::deny(world, name, rule, (&expression, why), (&records, &record)).await
}

pub async fn run_1_an_address_that_is_refused_delays_itself_alone(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let ns = "run1";
    set(&world, ns).await?;
    let status = pool_status(
        &[
            ("10.79.0.10", "run1/a"),
            ("10.79.0.11", "run1/b"),
            ("10.79.0.12", "run1/c"),
        ],
        &[],
        "10.79.0.10",
    );
    let before = go::pool(&world, ns, "10.79.0.0/24", status).await?;
    // Only the map has the second and the third.
    go::cluster(&world, ns, "a", Some("10.79.0.10")).await?;
    go::cluster(&world, ns, "b", None).await?;
    go::cluster(&world, ns, "c", None).await?;
    deny(&world, ns, "10.79.0.11").await?;
    let operator = start(&world).await?;
    holds(&world, ns, "a", "10.79.0.10").await?;
    holds(&world, ns, "c", "10.79.0.12").await?;
    // The address is in use, although only the map says so; new LoadBalancers are served.
    cluster(&world, ns, "new").await?;
    holds(&world, ns, "new", "10.79.0.13").await?;
    let figure = r#"harvester_lb_refused_objects{kind="IPAllocation"}"#;
    eventually("it is named, and all is ready", SOON, || async {
        let (code, body) = world.get("node1", "/readyz").await?;
        ensure!(code == 200, "{code} {body}");
        ensure!(body.contains("IPAllocation 10.79.0.11"), "{body}");
        ensure!(!body.contains("10.79.0.12"), "{body}");
        let refused = world.metric("node1", figure).await?;
        ensure!(refused == Some(1.0), "{refused:?}");
        Ok(Some(()))
    })
    .await?;
    let pool = world.pools().get(ns).await?;
    ensure!(
        pool.metadata.resource_version == before.metadata.resource_version,
        "the map is the only proof, and was written over: {:?}",
        pool.status
    );
    policies::allow(&world, ns).await?;
    // By now the back-off has grown to half a minute at most.
    eventually("the second is taken over", 3 * SOON, || async {
        let found = record(&world, "10.79.0.11").await?;
        let owner = found.context("no record")?.spec.owner.name;
        Ok((owner == "b").then_some(()))
    })
    .await?;
    holds(&world, ns, "b", "10.79.0.11").await?;
    world
        .pool_until(ns, "its status is written", |pool| {
            let held = pool.status.as_ref().and_then(|s| s.allocated.as_ref());
            held.is_some_and(|held| held.len() == 4)
        })
        .await?;
    eventually("nothing is refused any more", SOON, || async {
        let (_, body) = world.get("node1", "/readyz").await?;
        ensure!(!body.contains("10.79.0.11"), "{body}");
        Ok(Some(()))
    })
    .await?;
    operator.end().await
}
