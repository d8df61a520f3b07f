//! Service and EndpointSlice when other clients change, delete or own them (REC-4, REC-5, SVC-1, section 8.2).

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_e2e::read::ready;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::{consistently, eventually};
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::support::{RuleHelpers, vm};
use super::vm::own_metadata;

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        rec_4_what_others_alter_is_restored,
        rec_5_no_writes_at_rest,
        svc_1_a_foreign_service,
        svc_1_a_foreign_endpointslice,
        svc_1_children_of_an_earlier_load_balancer,
        section_8_2_what_others_add_stays,
    ]
}

async fn rec_4_what_others_alter_is_restored(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("rec4", "rec4");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.23.0.0/24")]).await?;
    world
        .fake_vmi(ns, "v", json!({"app": "web"}), Some("10.123.0.7"))
        .await?;
    let address = world.announced(ns, "web", vm(pool, "web")).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    let restored = async |what: &str, service: &Value, slice: &Value| {
        eventually(what, harvester_lb_e2e::world::SOON, || async {
            let now = own_metadata(json!(world.services(ns).get("web").await?));
            anyhow::ensure!(now["metadata"] == service["metadata"], "{now}");
            for field in ["type", "ports", "loadBalancerIP", "selector"] {
                anyhow::ensure!(
                    now["spec"][field] == service["spec"][field],
                    "{field}: {now}"
                );
            }
            let now = own_metadata(json!(world.slices(ns).get("web").await?));
            anyhow::ensure!(now == *slice, "{now}");
            Ok(Some(()))
        })
        .await
    };
    let service = own_metadata(json!(world.services(ns).get("web").await?));
    let slice = own_metadata(json!(world.slices(ns).get("web").await?));
    let label = "loadbalancer.harvesterhci.io/servicelb";
    for patch in [
        json!({"spec": {"loadBalancerIP": "192.0.2.1"}}),
        json!({"spec": {"ports": [{"name": "x", "port": 81, "protocol": "TCP", "targetPort": 9}]}}),
        json!({"spec": {"selector": {"app": "pods"}}}),
        json!({"spec": {"type": "ClusterIP", "loadBalancerIP": null, "allocateLoadBalancerNodePorts": null}}),
        json!({"metadata": {"labels": {label: null}}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        world
            .merge(&world.services(ns), "web", patch.clone())
            .await?;
        restored(&patch.to_string(), &service, &slice).await?;
    }
    let endpoint = &slice["endpoints"][0];
    let mut nameless = endpoint.clone();
    nameless["targetRef"] = Value::Null;
    let mut two = endpoint.clone();
    two["addresses"] = json!(["10.123.0.7", "10.123.0.8"]);
    for patch in [
        json!({"endpoints": []}),
        json!({"endpoints": null}),
        json!({"endpoints": [nameless]}),
        json!({"endpoints": [two]}),
        json!({"ports": [{"name": "y", "port": 99, "protocol": "UDP"}]}),
        json!({"metadata": {"labels": {"kubernetes.io/service-name": "other"}}}),
        json!({"metadata": {"labels": {"endpointslice.kubernetes.io/managed-by": null}}}),
        json!({"metadata": {"labels": {label: null}}}),
        json!({"metadata": {"ownerReferences": null}}),
    ] {
        world.merge(&world.slices(ns), "web", patch.clone()).await?;
        restored(&patch.to_string(), &service, &slice).await?;
    }
    // Deleted: recreated with the same address, which is not allocated to another meanwhile.
    world
        .slices(ns)
        .delete("web", &DeleteParams::default())
        .await?;
    restored("the slice was deleted", &service, &slice).await?;
    world
        .services(ns)
        .delete("web", &DeleteParams::default())
        .await?;
    restored("the Service was deleted", &service, &slice).await?;
    world.lb_reason(ns, "web", "WaitingForExternalIP").await?;
    world.ingress(ns, "web", json!([{"ip": address}])).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    // An address type is immutable, so the EndpointSlice is replaced.
    world
        .slices(ns)
        .delete("web", &DeleteParams::default())
        .await?;
    let v6 = json!({
        "metadata": {"name": "web", "labels": slice["metadata"]["labels"], "ownerReferences": slice["metadata"]["ownerReferences"]},
        "addressType": "IPv6", "endpoints": [],
    });
    let made = world
        .slices(ns)
        .create(&PostParams::default(), &serde_json::from_value(v6)?)
        .await;
    // If the operator was faster there is nothing to restore.
    if made.is_ok() {
        restored("an IPv6 slice", &service, &slice).await?;
    }
    Ok(())
}

async fn rec_5_no_writes_at_rest(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("rec5", "rec5");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.24.0.0/24")]).await?;
    for (name, ip) in [
        ("v3", "10.124.0.3"),
        ("v1", "10.124.0.1"),
        ("v2", "10.124.0.2"),
    ] {
        world
            .fake_vmi(ns, name, json!({"app": "web"}), Some(ip))
            .await?;
    }
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    world.served(ns, "guest", pool).await?;
    world.lb(ns, "none", vm(pool, "nobody")).await?;
    world.lb_reason(ns, "none", "WaitingForExternalIP").await?;
    world.lb(ns, "lost", vm("no-such-pool", "web")).await?;
    world.lb_reason(ns, "lost", "PoolNotFound").await?;
    world.at_rest(ns, &[pool], Duration::from_secs(3)).await?;
    let before = world.versions(ns, &[pool]).await?;
    for round in 0..10 {
        let patch = json!({"metadata": {"annotations": {"round": round.to_string()}}});
        world.merge(&world.vmis(ns), "v2", patch).await?;
    }
    let patch = json!({"status": {"guestOSInfo": {"name": "some"}}});
    world.merge(&world.vmis(ns), "v1", patch).await?;
    world
        .unchanged(ns, &[pool], &before, Duration::from_secs(2))
        .await
}

async fn svc_1_a_foreign_service(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("svc1", "svc1");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.25.0.0/24")]).await?;
    let foreign = json!({
        "metadata": {"name": "web", "labels": {"app": "mine"}},
        "spec": {"ports": [{"name": "a", "port": 9}]},
    });
    let services = world.services(ns);
    let before = services
        .create(&PostParams::default(), &serde_json::from_value(foreign)?)
        .await?;
    world.lb(ns, "web", vm(pool, "web")).await?;
    let lb = world.lb_reason(ns, "web", "NameConflict").await?;
    let (status, _, message) = ready(&lb).unwrap();
    assert_eq!(status, "False");
    assert!(message.contains("Service svc1/web"), "{message}");
    world
        .event(ns, "LoadBalancer", "web", "NameConflict: Service svc1/web")
        .await?;
    consistently("it is left alone", Duration::from_secs(2), || async {
        ensure!(services.get("web").await? == before, "it was written");
        let slice = world.slices(ns).get_opt("web").await?;
        ensure!(slice.is_none(), "there is an EndpointSlice");
        Ok(())
    })
    .await?;
    services.delete("web", &DeleteParams::default()).await?;
    world
        .service_until(ns, "web", "is ours", |s| {
            s.metadata.owner_references.is_some()
        })
        .await?;
    world
        .ingress(ns, "web", json!([{"ip": "10.25.0.2"}]))
        .await?;
    world.lb_reason(ns, "web", "NoBackend").await?;
    Ok(())
}

async fn svc_1_a_foreign_endpointslice(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("svc1-slice", "svc1-slice");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.26.0.0/24")]).await?;
    let foreign = json!({
        "metadata": {"name": "web"}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["192.0.2.1"]}],
    });
    let slices = world.slices(ns);
    let before = slices
        .create(&PostParams::default(), &serde_json::from_value(foreign)?)
        .await?;
    world.lb(ns, "web", vm(pool, "web")).await?;
    let lb = world.lb_reason(ns, "web", "NameConflict").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(
        message.contains("EndpointSlice svc1-slice/web"),
        "{message}"
    );
    consistently("it is left alone", Duration::from_secs(1), || async {
        ensure!(slices.get("web").await? == before, "it was written");
        let service = world.services(ns).get_opt("web").await?;
        ensure!(service.is_none(), "there is a Service");
        Ok(())
    })
    .await?;
    slices.delete("web", &DeleteParams::default()).await?;
    world.lb_reason(ns, "web", "WaitingForExternalIP").await?;
    Ok(())
}

async fn svc_1_children_of_an_earlier_load_balancer(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("svc1-old", "svc1-old");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.27.0.0/24")]).await?;
    // The LoadBalancer itself is deleted without the garbage collector, as in a restored backup.
    let address = world.announced(ns, "web", vm(pool, "web")).await?;
    let orphan = DeleteParams {
        propagation_policy: Some(kube::api::PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    world.lbs(ns).delete("web", &orphan).await?;
    world.gone(&world.lbs(ns), "web").await?;
    let lb = world.lb(ns, "web", vm(pool, "web")).await?;
    let service = world
        .service_until(ns, "web", "belongs to the new one", |s| {
            let mut owners = s.metadata.owner_references.iter().flatten();
            owners.any(|o| Some(&o.uid) == lb.metadata.uid.as_ref())
        })
        .await?;
    assert_eq!(service.metadata.owner_references.unwrap().len(), 1);
    assert_eq!(world.lb_address(ns, "web").await?, address);
    Ok(())
}

async fn section_8_2_what_others_add_stays(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("others-add", "others-add");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.28.0.0/24")]).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    let added = json!({
        "metadata": {
            "annotations": {
                "kube-vip.io/vipHost": "node1", "kube-vip.io/loadbalancerIPs": "192.0.2.7", "mine": "x",
            },
            "labels": {"team": "net"},
        },
        "spec": {
            "externalTrafficPolicy": "Local", "sessionAffinity": "ClientIP",
            "allocateLoadBalancerNodePorts": true,
        },
    });
    world.merge(&world.services(ns), "web", added).await?;
    let assigned = world
        .service_until(ns, "web", "a node port", |s| {
            let ports = s.spec.as_ref().and_then(|s| s.ports.as_ref());
            ports.is_some_and(|p| p[0].node_port.is_some())
        })
        .await;
    let node_port = match assigned {
        Ok(service) => service.spec.unwrap().ports.unwrap()[0].node_port,
        // The API server allocates one only on request.
        Err(_) => None,
    };
    let listeners = json!([
        {"name": "http", "port": 80, "protocol": "TCP", "backendPort": 8081},
        {"name": "dns", "port": 53, "protocol": "UDP", "backendPort": 5353},
    ]);
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"listeners": listeners}}),
        )
        .await?;
    let service = world
        .service_until(ns, "web", "two ports", |s| {
            let ports = s.spec.as_ref().and_then(|s| s.ports.as_ref());
            ports.is_some_and(|p| p.len() == 2)
        })
        .await?;
    let spec = service.spec.unwrap();
    assert_eq!(spec.external_traffic_policy.as_deref(), Some("Local"));
    assert_eq!(spec.session_affinity.as_deref(), Some("ClientIP"));
    assert!(node_port.is_some());
    assert_eq!(spec.ports.unwrap()[0].node_port, node_port);
    let annotations = service.metadata.annotations.unwrap();
    assert_eq!(annotations["kube-vip.io/vipHost"], "node1");
    assert_eq!(annotations["kube-vip.io/loadbalancerIPs"], "192.0.2.7");
    assert_eq!(annotations["mine"], "x");
    assert_eq!(service.metadata.labels.unwrap()["team"], "net");
    let slice = world.slices(ns).get("web").await?;
    assert_eq!(slice.ports.unwrap().len(), 2);
    Ok(())
}
