//! The objects of a LoadBalancer: only an address, or Service and EndpointSlice (sections 8.1 to 8.3).

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::read::{allocated, endpoints, ready};
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::{record, subnet, with};
use kube::api::DeleteParams;
use serde_json::{Value, json};

use super::sharing::{name_primary, naming};
use super::support::{RuleHelpers, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        rec_1_cluster_type_is_an_address_only,
        section_8_3_the_example,
        section_8_2_endpoints_follow_while_a_name_is_refused,
        rec_2_the_address_is_what_the_service_reports,
        be_7_no_ipv6_address_for_virtual_machines,
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
    let conditions = conditions.as_array().unwrap();
    let types: Vec<&str> = conditions
        .iter()
        .filter_map(|c| c["type"].as_str())
        .collect();
    assert_eq!(types, ["Ready", "AddressAllocated"]);
    // What the guest cluster has written is not changed.
    let own = json!({"status": {"address": "192.0.2.9"}});
    world.merge(&world.lbs(ns), "guest", own).await?;
    world.at_rest(ns, &[pool], Duration::from_secs(2)).await?;
    let lb = world.read(ns, "guest").await?;
    assert_eq!(lb.status.unwrap().address.as_deref(), Some("192.0.2.9"));
    assert!(world.services(ns).get_opt("guest").await?.is_none());
    assert!(world.slices(ns).get_opt("guest").await?.is_none());
    let allocated = format!("AddressAllocated: 10.20.0.2 of pool {pool}");
    let events = world.events(ns, "LoadBalancer", "guest").await?;
    assert_eq!(events, [allocated]);
    Ok(())
}

/// Metadata as printed in the rules.
pub(crate) fn own_metadata(mut object: Value) -> Value {
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
    // Created in the opposite order of their names.
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
    let told = condition.as_array().unwrap().iter();
    let told: Vec<_> = told
        .map(|c| [&c["type"], &c["status"], &c["message"]])
        .collect();
    let details = [
        ["Ready", "True", ""],
        [
            "AddressAllocated",
            "True",
            &format!("172.20.3.4 of pool {pool}"),
        ],
        ["Announced", "True", "172.20.3.4"],
        [
            "BackendsHealthy",
            "True",
            "2 of 2; there is no health check",
        ],
    ];
    for (told, expected) in told.iter().zip(details) {
        assert_eq!(told.map(|text| text.as_str().unwrap_or_default()), expected);
    }
    assert_eq!(told.len(), details.len());
    let allocated = format!("AddressAllocated: 172.20.3.4 of pool {pool}");
    world.event(ns, "LoadBalancer", "web", &allocated).await?;
    let events = world.events(ns, "LoadBalancer", "web").await?;
    assert_eq!(events, [allocated]);

    // With a health check that fails: both false, and the dummy endpoint.
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
    let lb = world
        .lb_until(ns, "web", "all backends fail", |lb| {
            ready(lb).is_some_and(|(_, reason, message)| {
                reason == "BackendsUnhealthy"
                    && message == "none of 2 backends passes the health check on port 8080"
            })
        })
        .await?;
    let status = lb.status.unwrap();
    assert_eq!(
        status.backend_servers,
        Some(vec!["10.10.1.7".into(), "10.10.1.8".into()])
    );
    Ok(())
}

/// The API server refuses the Service, and would refuse each change of the EndpointSlice.
async fn section_8_2_endpoints_follow_while_a_name_is_refused(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let (ns, pool) = ("names", "names");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.150.0.0/24")]).await?;
    let machine = json!({"app": "web"});
    let [one, two] = ["10.151.0.7", "10.151.0.8"];
    world.fake_vmi(ns, "v", machine.clone(), Some(one)).await?;
    world.fake_vmi(ns, "w", machine, Some(two)).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    let named = |name: &str| {
        let listener = json!({"name": name, "port": 80, "protocol": "TCP", "backendPort": 8080});
        json!({"spec": {"listeners": [listener]}})
    };
    world.merge(&world.lbs(ns), "web", named("HTTP")).await?;
    world.lb_reason(ns, "web", "ApiError").await?;
    world.ready_endpoints(ns, "web", &[one, two]).await?;
    world.vmis(ns).delete("v", &DeleteParams::default()).await?;
    world.ready_endpoints(ns, "web", &[two]).await?;
    world.merge(&world.lbs(ns), "web", named("https")).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    // Who shares an address has other names in the Service (SHR-3).
    let mut other = vm(pool, "web");
    other["listeners"] = named("WEB_1")["spec"]["listeners"].clone();
    other["listeners"][0]["port"] = json!(81);
    world.lb_with(naming(ns, "other", "web"), other).await?;
    world.lb_reason(ns, "other", "Ready").await?;
    world.merge(&world.lbs(ns), "web", named("HTTP")).await?;
    let names = |wanted: &'static [&'static str]| {
        world.service_until(ns, "web", "the names of its ports", move |service| {
            let ports = service.spec.iter().flat_map(|s| s.ports.iter().flatten());
            let names = ports.map(|port| port.name.as_deref().unwrap_or_default());
            names.eq(wanted.iter().copied())
        })
    };
    names(&["80-tcp", "81-tcp"]).await?;
    // The last one that shares it leaves: neither can have its own names.
    world
        .merge(&world.lbs(ns), "other", name_primary(None))
        .await?;
    world.lb_reason(ns, "other", "ApiError").await?;
    world.gone(&world.slices(ns), "other").await?;
    names(&["80-tcp"]).await?;
    world.lb_reason(ns, "web", "Ready").await?;
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
        assert_eq!(message, "waiting for kube-vip to announce 10.22.0.2");
        anyhow::Ok(())
    };
    waiting("no ingress").await?;
    // Service and endpoints exist already (REC-3).
    world.ready_endpoints(ns, "web", &["10.122.0.7"]).await?;
    world.service_until(ns, "web", "exists", |_| true).await?;
    world
        .ingress(ns, "web", json!([{"hostname": "no.address"}]))
        .await?;
    world.at_rest(ns, &[pool], Duration::from_secs(1)).await?;
    waiting("an ingress without ip").await?;
    // An address other than the allocated one is accepted.
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

async fn be_7_no_ipv6_address_for_virtual_machines(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "be7";
    world.namespace(ns).await?;
    world.ranges("be7-v6", &[subnet("fd10:86::/64")]).await?;
    let both = [subnet("fd10:87::/64"), subnet("10.86.0.0/24")];
    world.ranges("be7-both", &both).await?;
    world
        .fake_vmi(ns, "v1", json!({"app": "web"}), Some("10.186.0.1"))
        .await?;
    world.lb(ns, "none", vm("be7-v6", "web")).await?;
    let lb = world.lb_reason(ns, "none", "AddressFamilyMismatch").await?;
    let (status, _, message) = ready(&lb).unwrap();
    assert!(status == "False" && message.contains("be7-v6"), "{message}");
    assert_eq!(lb.status.unwrap().allocated_address, None);
    assert_eq!(
        world.announced(ns, "web", vm("be7-both", "web")).await?,
        "10.86.0.2"
    );
    world.lb_reason(ns, "web", "Ready").await?;
    // One that already has an IPv6 address, from before the rule: here by an IPAllocation created by hand.
    let kept = world.lb(ns, "kept", vm("be7-v6", "web")).await?;
    world.lb_reason(ns, "kept", "AddressFamilyMismatch").await?;
    let owner = (ns, "kept", &*kept.metadata.uid.unwrap());
    let record = with(
        record("fd10:86::2", "be7-v6", "Bound", owner),
        json!({
            "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPAllocation",
            "metadata": {"name": "fd10-0086-0000-0000-0000-0000-0000-0002"},
        }),
    );
    world.cluster.apply(&record).await?;
    let holds = |lb: &_| allocated(lb).is_some_and(|ip| ip == "fd10:86::2");
    world.lb_until(ns, "kept", "its address", holds).await?;
    let lb = world.lb_reason(ns, "kept", "AddressFamilyMismatch").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(message.contains("fd10:86::2 of pool be7-v6"), "{message}");
    assert_eq!(
        lb.status.unwrap().allocated_address.unwrap().ip.as_deref(),
        Some("fd10:86::2")
    );
    world.at_rest(ns, &[], Duration::from_secs(1)).await?;
    for name in ["none", "kept"] {
        assert_eq!(world.services(ns).get_opt(name).await?, None, "{name}");
        assert_eq!(world.slices(ns).get_opt(name).await?, None, "{name}");
    }
    // With another pool it is served.
    for name in ["none", "kept"] {
        let patch = json!({"spec": {"ipPool": "be7-v4"}});
        world.merge(&world.lbs(ns), name, patch).await?;
    }
    world.ranges("be7-v4", &[subnet("10.87.0.0/24")]).await?;
    for name in ["none", "kept"] {
        let what = "an IPv4 address";
        let is_v4 = |lb: &_| allocated(lb).is_some_and(|ip| ip.starts_with("10.87.0."));
        world.lb_until(ns, name, what, is_v4).await?;
        world.service_until(ns, name, "exists", |_| true).await?;
    }
    Ok(())
}
