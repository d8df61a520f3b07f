//! Guest clusters: their removal, their use of this API, and what the Go operator has left on objects (GC-1, section
//! 12, FIN-1, FIN-2, WV-8, WV-9).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::{LoadBalancer, Phase, keys};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::waits::next_second;
use harvester_lb_e2e::webhook::network;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{of_guest, removed_node, subnet, with};
use harvester_lb_testkit::{consistently, eventually};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::support::{RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        gc_1_a_guest_cluster_is_removed,
        gc_2_what_is_made_later_stays,
        fin_1_finalizers_of_machines,
        section_12_a_guest_of_v1beta1,
        wv_8_and_wv_9_fixed_fields,
    ]
}

/// Whether a LoadBalancer has the mark of a removed guest cluster.
fn is_marked(lb: &LoadBalancer) -> bool {
    let annotations = lb.metadata.annotations.as_ref();
    let mark = annotations.and_then(|all| all.get("loadbalancer.harvesterhci.io/guest-removed"));
    mark.is_some_and(|value| value == "true")
}

/// A field, its new value, and whether that is allowed.
type Edit = (&'static str, &'static str, bool);

const CREATOR: &str = keys::CREATOR_NODE_DRIVER;

/// A node of a guest cluster that is not being removed, or a machine that is none.
fn node(ns: &str, name: &str, cluster: Option<&str>, creator: &str) -> Value {
    let mut node = removed_node(ns, name);
    let mut labels = json!({keys::LABEL_CREATOR: creator});
    if let Some(cluster) = cluster {
        labels[keys::LABEL_GUEST_CLUSTER] = json!(cluster);
    }
    node["metadata"] = json!({"namespace": ns, "name": name, "labels": labels});
    node
}

async fn gc_1_a_guest_cluster_is_removed(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("gc1", "gc1");
    world.namespace(ns).await?;
    world.namespace("gc1-other").await?;
    world.ranges(pool, &[subnet("10.65.0.0/24")]).await?;
    let of = |ns: &str, name: &str, cluster: &str| {
        let labels = json!({keys::LABEL_CLOUDPROVIDER_CLUSTER: cluster});
        with(of_guest(ns, name), json!({"labels": labels}))
    };
    for name in ["a1", "a2", "a3"] {
        world.lb_with(of(ns, name, "a"), cluster(pool)).await?;
    }
    world.lb_with(of(ns, "b1", "b"), cluster(pool)).await?;
    world
        .lb_with(of(ns, "vm-type", "a"), vm(pool, "web"))
        .await?;
    world
        .lb_with(of("gc1-other", "a1", "a"), cluster(pool))
        .await?;
    world.lb(ns, "plain", cluster(pool)).await?;
    for name in ["a1", "a2", "a3", "b1", "plain"] {
        world.lb_reason(ns, name, "Ready").await?;
    }
    let address = world.lb_address(ns, "a1").await?;

    for vm in [
        node(ns, "a-1", Some("a"), CREATOR),
        node(ns, "a-2", Some("a"), CREATOR),
        node(ns, "b-1", Some("b"), CREATOR),
        node(ns, "by-hand", Some("a"), "harvester"),
        node(ns, "nameless", None, CREATOR),
    ] {
        world.cluster.apply(&vm).await?;
    }
    let vms = world
        .cluster
        .api("kubevirt.io/v1", "VirtualMachine", Some(ns))
        .await?;
    let marked = async |name: &str, wanted: bool| {
        let what = format!("marked: {wanted}");
        world
            .lb_until(ns, name, &what, |lb| is_marked(lb) == wanted)
            .await
    };
    // A node deleted without the annotation is a scale-down, and one without a cluster's name belongs to no guest
    // cluster.
    vms.delete("a-2", &DeleteParams::default()).await?;
    let removed = json!({"metadata": {"annotations": {"harvesterhci.io/removeAllPersistentVolumeClaims": "true"}}});
    world.merge(&vms, "nameless", removed.clone()).await?;
    world.merge(&vms, "by-hand", removed.clone()).await?;
    vms.delete("nameless", &DeleteParams::default()).await?;
    vms.delete("by-hand", &DeleteParams::default()).await?;
    consistently("none is marked", Duration::from_secs(1), || async {
        for name in ["a1", "a2", "a3", "b1"] {
            let lb = world.read(ns, name).await?;
            ensure!(!is_marked(&lb), "{name} is");
        }
        Ok(())
    })
    .await?;
    world.merge(&vms, "a-1", removed).await?;
    for name in ["a1", "a2", "a3"] {
        marked(name, true).await?;
    }
    // One of them is held by a finalizer; that does not affect the others.
    let held = json!({"metadata": {"finalizers": ["example.org/held"]}});
    world.merge(&world.lbs(ns), "a1", held).await?;
    vms.delete("a-1", &DeleteParams::default()).await?;
    for name in ["a2", "a3"] {
        world.gone(&world.lbs(ns), name).await?;
    }
    world
        .lb_until(ns, "a1", "being deleted", |lb| {
            lb.metadata.deletion_timestamp.is_some()
        })
        .await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "gc1/a1");
    world
        .merge(
            &world.lbs(ns),
            "a1",
            json!({"metadata": {"finalizers": null}}),
        )
        .await?;
    world.phase(&address, Phase::Released).await?;
    for name in ["b1", "vm-type", "plain"] {
        let lb = marked(name, false).await?;
        assert_eq!(lb.metadata.deletion_timestamp, None, "{name}");
    }
    let lb = world.read("gc1-other", "a1").await?;
    assert!(lb.metadata.deletion_timestamp.is_none() && !is_marked(&lb));
    Ok(())
}

async fn gc_2_what_is_made_later_stays(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("gc2", "gc2");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.118.0.0/24")]).await?;
    let of = |name: &str| of_guest(ns, name);
    world.lb_with(of("old"), cluster(pool)).await?;
    world.lb_reason(ns, "old", "Ready").await?;
    world
        .cluster
        .apply(&node(ns, "gc-1", Some("gc"), CREATOR))
        .await?;
    let vms = world
        .cluster
        .api("kubevirt.io/v1", "VirtualMachine", Some(ns))
        .await?;
    let removed = json!({"metadata": {"annotations": {"harvesterhci.io/removeAllPersistentVolumeClaims": "true"}}});
    world.merge(&vms, "gc-1", removed.clone()).await?;
    let old = world
        .lb_until(ns, "old", "the mark of this object", |lb| {
            let all = lb.metadata.annotations.as_ref();
            let value =
                |key: &str| all.and_then(|a| a.get(&format!("loadbalancer.harvesterhci.io/{key}")));
            value("guest-removed").is_some_and(|mark| mark == "true")
                && value("guest-removed-uid") == lb.metadata.uid.as_ref()
        })
        .await?;
    vms.delete("gc-1", &DeleteParams::default()).await?;
    world.gone(&world.lbs(ns), "old").await?;
    // A copy of it, from a backup: the mark is not its own. And one created later.
    next_second().await;
    let mut copy = of("old");
    copy["annotations"] = json!(old.metadata.annotations);
    world.lb_with(copy, cluster(pool)).await?;
    world.lb_with(of("new"), cluster(pool)).await?;
    // A mark of a version that wrote no uid still counts, as no node is left.
    let mut earlier = of("earlier");
    earlier["annotations"] = json!({"loadbalancer.harvesterhci.io/guest-removed": "true"});
    world.lb_with(earlier, cluster(pool)).await?;
    world.gone(&world.lbs(ns), "earlier").await?;
    // The cluster is recreated and loses a node, as in a scale-down.
    world
        .cluster
        .apply(&node(ns, "gc-1", Some("gc"), CREATOR))
        .await?;
    vms.delete("gc-1", &DeleteParams::default()).await?;
    for name in ["old", "new"] {
        let lb = world.lb_reason(ns, name, "Ready").await?;
        assert_eq!(lb.metadata.deletion_timestamp, None, "{name}");
    }
    // It is removed as well.
    world
        .cluster
        .apply(&node(ns, "gc-2", Some("gc"), CREATOR))
        .await?;
    world.merge(&vms, "gc-2", removed).await?;
    world
        .lb_until(ns, "old", "a mark of its own", |lb| {
            let all = lb.metadata.annotations.as_ref();
            all.and_then(|a| a.get("loadbalancer.harvesterhci.io/guest-removed-uid"))
                == lb.metadata.uid.as_ref()
        })
        .await?;
    vms.delete("gc-2", &DeleteParams::default()).await?;
    for name in ["old", "new"] {
        world.gone(&world.lbs(ns), name).await?;
    }
    Ok(())
}

async fn fin_1_finalizers_of_machines(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "fin1";
    world.namespace(ns).await?;
    let legacy = [
        "wrangler.cattle.io/harvester-lb-vmi-controller",
        "wrangler.cattle.io/harvester-lb-vm-controller",
    ];
    for kind in ["VirtualMachine", "VirtualMachineInstance"] {
        let api = world.cluster.api("kubevirt.io/v1", kind, Some(ns)).await?;
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {
                "namespace": ns, "name": "a",
                "finalizers": ["kubevirt.io/first", legacy[0], "kubevirt.io/mid", legacy[1]],
            },
            "spec": {"any": {"content": [1, 2]}},
        });
        world.cluster.apply(&object).await?;
        let others = ["kubevirt.io/first".to_owned(), "kubevirt.io/mid".to_owned()];
        eventually(&format!("{kind}: the others' finalizers"), SOON, || async {
            let object = api.get("a").await?;
            let finalizers = object.metadata.finalizers.clone().unwrap_or_default();
            anyhow::ensure!(finalizers == others, "{finalizers:?}");
            assert_eq!(object.data["spec"], json!({"any": {"content": [1, 2]}}));
            Ok(Some(()))
        })
        .await?;
        // One that is terminating, held only by our legacy finalizers.
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {"namespace": ns, "name": "b", "finalizers": [legacy[0]]}, "spec": {},
        });
        world.cluster.apply(&object).await?;
        api.delete("b", &DeleteParams::default()).await?;
        world.gone(&api, "b").await?;
        // None of ours: unchanged.
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": kind,
            "metadata": {"namespace": ns, "name": "c", "finalizers": ["kubevirt.io/x"]}, "spec": {},
        });
        let made = world.cluster.apply(&object).await?;
        consistently("it is not written", Duration::from_millis(500), || async {
            let now = api.get("c").await?.metadata.resource_version;
            ensure!(now == made.metadata.resource_version, "{now:?}");
            Ok(())
        })
        .await?;
    }
    Ok(())
}

pub(crate) async fn fin_2_finalizers_of_load_balancers_and_pools(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("fin2", "fin2");
    world.namespace(ns).await?;
    let legacy = [
        "wrangler.cattle.io/harvester-lb-controller",
        "wrangler.cattle.io/harvester-ipam-controller",
    ];
    let spec = json!({"ranges": [{"subnet": "10.66.0.0/24"}]});
    let object = json!({
        "metadata": {"name": pool, "finalizers": [legacy[1], "example.org/x"]}, "spec": spec,
    });
    world
        .pools()
        .create(&PostParams::default(), &serde_json::from_value(object)?)
        .await?;
    let others = Some(vec!["example.org/x".to_owned()]);
    world
        .pool_until(pool, "the other's finalizer", |p| {
            p.metadata.finalizers == others
        })
        .await?;
    // An existing LoadBalancer, one without a pool, one that is terminating.
    for (name, spec) in [
        ("lives", cluster(pool)),
        ("waits", cluster("fin2-none")),
        ("goes", vm(pool, "web")),
        ("refused", json!({"ipPool": pool, "listeners": []})),
    ] {
        let metadata = json!({
            "namespace": ns, "name": name, "finalizers": [legacy[0], "example.org/x"],
        });
        world.lb_with(metadata, spec).await?;
        world
            .lb_until(ns, name, "the other's finalizer", |lb| {
                lb.metadata.finalizers == others
            })
            .await?;
    }
    let address = world.lb_address(ns, "goes").await?;
    world.delete_lb(ns, "goes").await?;
    let put_back = json!({"metadata": {"finalizers": ["example.org/x"]}});
    world.merge(&world.lbs(ns), "goes", put_back).await?;
    assert_eq!(world.phase(&address, Phase::Bound).await?, "fin2/goes");
    world
        .merge(
            &world.lbs(ns),
            "goes",
            json!({"metadata": {"finalizers": null}}),
        )
        .await?;
    world.gone(&world.lbs(ns), "goes").await?;
    world.phase(&address, Phase::Released).await?;
    // Deleted with only our legacy finalizers: gone at once.
    let metadata = json!({"namespace": ns, "name": "quick", "finalizers": [legacy[0]]});
    world.lb_with(metadata, cluster(pool)).await?;
    world.delete_lb(ns, "quick").await?;
    world.gone(&world.lbs(ns), "quick").await?;
    for name in ["lives", "waits", "refused"] {
        let free = json!({"metadata": {"finalizers": null}});
        world.merge(&world.lbs(ns), name, free).await?;
        world.delete_lb(ns, name).await?;
    }
    world.delete_pool(pool).await?;
    let free = json!({"metadata": {"finalizers": null}});
    world.merge(&world.pools(), pool, free).await?;
    world.gone(&world.pools(), pool).await?;
    Ok(())
}

async fn section_12_a_guest_of_v1beta1(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("guest12", "guest12");
    world.namespace(ns).await?;
    let net = network(&world, ns, "v67").await?;
    world
        .pool(
            pool,
            json!({
                "ranges": [{"subnet": "10.67.0.0/24"}],
                "selector": {"network": net, "scope": [
                    {"project": "", "namespace": ns, "guestCluster": "gc67"}
                ]},
            }),
        )
        .await?;
    let make = async || {
        let metadata = json!({
            "namespace": ns, "name": "gc67-default-web-1234",
            "annotations": {
                "loadbalancer.harvesterhci.io/network": net,
                "loadbalancer.harvesterhci.io/project": "",
                "loadbalancer.harvesterhci.io/namespace": "",
                "loadbalancer.harvesterhci.io/cluster": "gc67",
            },
            "labels": {
                "cloudprovider.harvesterhci.io/cluster": "gc67",
                "cloudprovider.harvesterhci.io/serviceNamespace": "default",
                "cloudprovider.harvesterhci.io/serviceName": "web",
            },
        });
        let spec = json!({"workloadType": "cluster", "ipam": "pool", "description": "from gc67"});
        world.lb_with(metadata, spec).await
    };
    let name = "gc67-default-web-1234";
    let started = std::time::Instant::now();
    make().await?;
    let address = world.lb_address(ns, name).await?;
    assert!(started.elapsed() < Duration::from_secs(10));
    // A plain PUT of the whole object, as the guest cluster does it; on a conflict it reads again.
    eventually("the guest's write", SOON, || async {
        let mut lb = world.read(ns, name).await?;
        lb.status.get_or_insert_default().address = Some("192.0.2.67".to_owned());
        let lbs = world.lbs(ns);
        lbs.replace(name, &PostParams::default(), &lb).await?;
        Ok(Some(()))
    })
    .await?;
    world.at_rest(ns, &[pool], Duration::from_secs(2)).await?;
    let lb = world.read(ns, name).await?;
    assert_eq!(allocated(&lb).as_ref(), Some(&address));
    assert_eq!(lb.status.unwrap().address.as_deref(), Some("192.0.2.67"));
    // It times out and retries; others are created meanwhile.
    for round in 0..3 {
        world.delete_lb(ns, name).await?;
        world
            .lb(ns, &format!("other{round}"), cluster(pool))
            .await?;
        make().await?;
        assert_eq!(world.lb_address(ns, name).await?, address);
    }
    Ok(())
}

async fn wv_8_and_wv_9_fixed_fields(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("wv8", "wv8");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.68.0.0/24")]).await?;
    let lbs = world.lbs(ns);
    let cases: [(&str, Value, &[Edit]); 4] = [
        (
            "bare",
            json!({}),
            &[
                ("ipam", "dhcp", false),
                ("workloadType", "cluster", false),
                ("ipam", "pool", true),
                ("workloadType", "vm", true),
            ],
        ),
        (
            "full",
            json!({"ipam": "pool", "workloadType": "vm"}),
            &[
                ("ipam", "dhcp", false),
                ("workloadType", "cluster", false),
                ("ipam", "", true),
                ("workloadType", "", true),
            ],
        ),
        (
            "guest",
            json!({"workloadType": "cluster"}),
            &[("workloadType", "vm", false), ("workloadType", "", false)],
        ),
        (
            "leased",
            json!({"ipam": "dhcp"}),
            &[("ipam", "pool", false), ("ipam", "", false)],
        ),
    ];
    for (name, more, edits) in cases {
        let mut spec = vm(pool, "web");
        for (key, value) in more.as_object().unwrap() {
            spec[key] = value.clone();
        }
        world.lb(ns, name, spec).await?;
        for (field, value, allowed) in edits {
            let value = if value.is_empty() {
                Value::Null
            } else {
                json!(value)
            };
            let patch = json!({"spec": { *field: value }});
            let outcome = world.merge(&lbs, name, patch).await;
            match outcome {
                Ok(_) => assert!(allowed, "{name}: {field} {value}"),
                Err(error) => {
                    assert!(!allowed, "{name}: {field} {value}: {error}");
                    let text = format!("spec.{field} cannot be changed");
                    assert!(error.to_string().contains(&text), "{error}");
                }
            }
        }
    }
    // The schema rejects an explicit "".
    for field in ["ipam", "workloadType"] {
        let object = json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "metadata": {"namespace": ns, "name": "empty"}, "spec": { field: "" },
        });
        assert!(world.cluster.apply(&object).await.is_err());
    }
    Ok(())
}
