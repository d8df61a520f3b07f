//! Load balancers for virtual machines: Service and EndpointSlice (sections 8.1 to 8.3).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::world::{endpoints, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_testkit::eventually;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use super::support::{More, subnet, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        rec_1_cluster_type_is_an_address_only,
        section_8_3_the_example,
        rec_2_the_address_is_what_the_service_reports,
        rec_4_what_others_alter_is_restored,
        rec_5_no_writes_at_rest,
        svc_1_a_foreign_service,
        svc_1_a_foreign_endpointslice,
        svc_1_children_of_an_earlier_load_balancer,
        section_8_2_what_others_add_stays,
    ]
}

const DUMMY: &str = "10.52.0.255";

async fn rec_1_cluster_type_is_an_address_only(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("rec1", "rec1");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.20.0.0/24")]).await?;
    world
        .fake_vmi(ns, "v1", json!({"app": "web"}), Some("10.120.0.7"))
        .await?;
    let mut spec = vm(pool, "web");
    spec["workloadType"] = json!("cluster");
    spec["healthCheck"] = json!({"port": 8080});
    world.lb(ns, "guest", spec).await?;
    let lb = world.lb_reason(ns, "guest", "Ready").await?;
    let mut status = json!(lb.status);
    let conditions = status["conditions"].take();
    assert_eq!(
        status,
        json!({
            "allocatedAddress": {
                "ipPool": pool, "ip": "10.20.0.2", "mask": "255.255.255.0", "gateway": "10.20.0.1"
            },
            "address": "10.20.0.2",
            "conditions": null,
        })
    );
    assert_eq!(conditions.as_array().unwrap().len(), 1);
    // What the guest has written is not touched.
    let own = json!({"status": {"address": "192.0.2.9"}});
    world.merge(&world.lbs(ns), "guest", own).await?;
    world.at_rest(ns, &[pool], Duration::from_secs(2)).await?;
    let lb = world.read(ns, "guest").await?;
    assert_eq!(lb.status.unwrap().address.as_deref(), Some("192.0.2.9"));
    assert!(world.services(ns).get_opt("guest").await?.is_none());
    assert!(world.slices(ns).get_opt("guest").await?.is_none());
    assert_eq!(world.events(ns, "LoadBalancer", "guest").await?, [""; 0]);
    Ok(())
}

/// Metadata as the contract prints it.
fn own_metadata(mut object: Value) -> Value {
    let meta = object["metadata"].take();
    object["metadata"] = json!({
        "name": meta["name"], "namespace": meta["namespace"], "labels": meta["labels"],
        "ownerReferences": meta["ownerReferences"], "annotations": meta["annotations"],
    });
    object
}

async fn section_8_3_the_example(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("shop-example", "p-example");
    world.namespace(ns).await?;
    world
        .ranges(
            pool,
            &[json!({"subnet": "172.20.3.0/29", "rangeStart": "172.20.3.4", "gateway": "172.20.3.1"})],
        )
        .await?;
    // Made against the order of their names.
    let label = json!({"app": "web"});
    let vm8 = world
        .fake_vmi(ns, "vm8", label.clone(), Some("10.10.1.8"))
        .await?;
    let vm7 = world
        .fake_vmi(ns, "vm7", label.clone(), Some("10.10.1.7"))
        .await?;
    world.fake_vmi(ns, "vm9", label, None).await?;
    world
        .fake_vmi(ns, "db", json!({"app": "db"}), Some("10.10.1.9"))
        .await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;

    let owner = json!([{
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "name": "web",
        "uid": lb.metadata.uid,
    }]);
    let mut service = own_metadata(json!(world.services(ns).get("web").await?));
    for field in [
        "clusterIP",
        "clusterIPs",
        "externalTrafficPolicy",
        "internalTrafficPolicy",
        "ipFamilies",
        "ipFamilyPolicy",
        "sessionAffinity",
    ] {
        assert!(
            service["spec"]
                .as_object_mut()
                .unwrap()
                .remove(field)
                .is_some()
        );
    }
    let wanted = json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {
            "name": "web", "namespace": ns, "annotations": null,
            "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"}, "ownerReferences": owner,
        },
        "spec": {
            "type": "LoadBalancer", "loadBalancerIP": "172.20.3.4",
            "allocateLoadBalancerNodePorts": false,
            "ports": [{"name": "http", "protocol": "TCP", "port": 80, "targetPort": 8080}],
        },
        "status": {"loadBalancer": {"ingress": [{"ip": "172.20.3.4", "ipMode": "VIP"}]}},
    });
    assert_eq!(service, wanted);

    let slice = own_metadata(json!(world.slices(ns).get("web").await?));
    let endpoint = |ip: &str, name: &str, uid: &Option<String>| {
        json!({
            "addresses": [ip], "conditions": {"ready": true},
            "targetRef": {
                "kind": "VirtualMachineInstance", "namespace": ns, "name": name, "uid": uid
            },
        })
    };
    let wanted = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
        "metadata": {
            "name": "web", "namespace": ns, "annotations": null,
            "labels": {
                "loadbalancer.harvesterhci.io/servicelb": "true",
                "kubernetes.io/service-name": "web",
                "endpointslice.kubernetes.io/managed-by": "harvester-load-balancer",
            },
            "ownerReferences": owner,
        },
        "addressType": "IPv4",
        "ports": [{"name": "http", "protocol": "TCP", "port": 8080}],
        "endpoints": [
            endpoint("10.10.1.7", "vm7", &vm7.metadata.uid),
            endpoint("10.10.1.8", "vm8", &vm8.metadata.uid),
        ],
    });
    assert_eq!(slice, wanted);

    let mut status = json!(lb.status);
    let condition = status["conditions"].take();
    let wanted = json!({
        "address": "172.20.3.4",
        "allocatedAddress": {
            "ipPool": pool, "ip": "172.20.3.4", "mask": "255.255.255.248", "gateway": "172.20.3.1"
        },
        "backendServers": ["10.10.1.7", "10.10.1.8"],
        "conditions": null,
    });
    assert_eq!(status, wanted);
    assert_eq!(condition[0]["type"], "Ready");
    assert_eq!(condition[0]["status"], "True");
    assert_eq!(world.events(ns, "LoadBalancer", "web").await?, [""; 0]);

    // With a health check that nobody answers: both false, and the stand-in.
    let check = json!({"spec": {"healthCheck": {"port": 8080, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 1}}});
    world.merge(&world.lbs(ns), "web", check).await?;
    let slice = world.ready_endpoints(ns, "web", &[DUMMY]).await?;
    assert_eq!(endpoints(&slice, false), ["10.10.1.7", "10.10.1.8"]);
    assert_eq!(
        json!(slice.endpoints[2]),
        json!({
            "addresses": [DUMMY], "conditions": {"ready": true},
            "targetRef": {
                "namespace": ns, "name": "web", "uid": "dummy347-546a-4642-9da6-5608endpoint"
            },
        })
    );
    let lb = world.lb_reason(ns, "web", "BackendsUnhealthy").await?;
    let status = lb.status.unwrap();
    assert_eq!(
        status.backend_servers,
        Some(vec!["10.10.1.7".into(), "10.10.1.8".into()])
    );
    Ok(())
}

async fn rec_2_the_address_is_what_the_service_reports(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("rec2", "rec2");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.22.0.0/24")]).await?;
    world
        .fake_vmi(ns, "v", json!({"app": "web"}), Some("10.122.0.7"))
        .await?;
    world.lb(ns, "web", vm(pool, "web")).await?;
    let waiting = async |what: &str| {
        let lb = world
            .lb_until(ns, "web", what, |lb| {
                let address = lb.status.as_ref().and_then(|s| s.address.clone());
                address.unwrap_or_default().is_empty()
                    && ready(lb).is_some_and(|(_, r, _)| r == "WaitingForExternalIP")
            })
            .await?;
        let (status, _, message) = ready(&lb).unwrap();
        assert_eq!(status, "False");
        assert!(
            message.contains("Service rec2/web") && message.contains("10.22.0.2"),
            "{message}"
        );
        anyhow::Ok(())
    };
    waiting("no ingress").await?;
    // Service and endpoints are there already (REC-3).
    world.ready_endpoints(ns, "web", &["10.122.0.7"]).await?;
    world.service_until(ns, "web", "exists", |_| true).await?;
    world
        .ingress(ns, "web", json!([{"hostname": "no.address"}]))
        .await?;
    world.at_rest(ns, &[pool], Duration::from_secs(1)).await?;
    waiting("an ingress without ip").await?;
    // Another address than the allocated one is taken as it is.
    for ip in ["10.22.0.2", "192.0.2.44"] {
        world
            .ingress(ns, "web", json!([{"ip": ip}, {"ip": "192.0.2.45"}]))
            .await?;
        let lb = world
            .lb_until(ns, "web", ip, |lb| {
                lb.status.as_ref().and_then(|s| s.address.as_deref()) == Some(ip)
            })
            .await?;
        assert_eq!(ready(&lb).unwrap().1, "Ready");
    }
    world.ingress(ns, "web", json!([])).await?;
    waiting("the ingress is gone").await?;
    Ok(())
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
    // Deleted: made again with the same address, which nobody else gets meanwhile.
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
    // An address type cannot be changed, so the slice is replaced.
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
    // Where the operator was faster there is nothing to restore.
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
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(before, world.versions(ns, &[pool]).await?);
    Ok(())
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
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(services.get("web").await?, before);
    assert!(world.slices(ns).get_opt("web").await?.is_none());
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
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(slices.get("web").await?, before);
    assert!(world.services(ns).get_opt("web").await?.is_none());
    slices.delete("web", &DeleteParams::default()).await?;
    world.lb_reason(ns, "web", "WaitingForExternalIP").await?;
    Ok(())
}

async fn svc_1_children_of_an_earlier_load_balancer(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("svc1-old", "svc1-old");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.27.0.0/24")]).await?;
    // The load balancer itself is deleted without the garbage collector, as in a restored backup.
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
        // The API server gives one only when it is asked for.
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
