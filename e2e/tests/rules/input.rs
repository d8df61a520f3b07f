//! Invalid and extreme input: it is reported on the object, with the value and the remedy, and affects no other object.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::Phase;
use harvester_lb_e2e::read::{allocated, ready};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::eventually;
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use serde_json::{Value, json};

use super::pools::pool_condition;
use super::support::{Accounts, RuleHelpers, cluster, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        input_the_schema_refuses,
        input_a_large_description,
        input_garbage_in_a_pools_maps,
        input_long_names,
        input_managed_fields_of_any_depth,
    ]
}

pub(crate) async fn input_listeners_that_cannot_be(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("listeners", "listeners");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.70.0.0/24")]).await?;
    let port = |port: i64, backend: i64| json!([{"name": "a", "port": port, "protocol": "TCP", "backendPort": backend}]);
    let two = |second: Value| json!([{"name": "a", "port": 80, "protocol": "TCP", "backendPort": 8080}, second]);
    let cases: [(Value, &[&str]); 11] = [
        (json!([]), &["spec.listeners", "at least one"]),
        (
            port(0, 80),
            &["spec.listeners[0].port", " 0:", "1 to 65535"],
        ),
        (port(-1, 80), &["spec.listeners[0].port", " -1:"]),
        (port(65_536, 80), &["spec.listeners[0].port", " 65536:"]),
        (port(80, 0), &["spec.listeners[0].backendPort", " 0:"]),
        (port(80, -7), &["spec.listeners[0].backendPort", " -7:"]),
        (
            port(80, 2_147_483_647),
            &["spec.listeners[0].backendPort", " 2147483647:"],
        ),
        (
            json!([{"name": "a", "port": 80, "protocol": "HTTP", "backendPort": 80}]),
            &["spec.listeners[0].protocol", "\"HTTP\"", "TCP, UDP or SCTP"],
        ),
        (
            two(json!({"name": "a", "port": 81, "protocol": "TCP", "backendPort": 8081})),
            &["spec.listeners[1].name", "\"a\""],
        ),
        (
            two(json!({"name": "b", "port": 80, "protocol": "TCP", "backendPort": 8081})),
            &["spec.listeners[1]", "TCP 80"],
        ),
        (
            json!([{"port": 80, "protocol": "TCP", "backendPort": 80}, {"port": 81, "protocol": "TCP", "backendPort": 81}]),
            &["spec.listeners[1].name", "\"\""],
        ),
    ];
    for (index, (listeners, texts)) in cases.into_iter().enumerate() {
        let name = format!("bad{index}");
        let mut spec = vm(pool, "web");
        spec["listeners"] = listeners;
        world.lb(ns, &name, spec).await?;
        let lb = world.lb_reason(ns, &name, "InvalidListener").await?;
        let (status, _, message) = ready(&lb).unwrap();
        assert_eq!(status, "False");
        assert!(message.contains(&format!("listeners/{name}")), "{message}");
        for text in texts {
            assert!(message.contains(text), "{text:?} in {message}");
        }
        assert_eq!(allocated(&lb), None);
        world.event(ns, "LoadBalancer", &name, &message).await?;
        assert!(world.services(ns).get_opt(&name).await?.is_none());
    }
    // The same port for two protocols is valid, and no other object was affected.
    let mut spec = vm(pool, "web");
    spec["listeners"] =
        two(json!({"name": "b", "port": 80, "protocol": "UDP", "backendPort": 8080}));
    assert_eq!(world.announced(ns, "good", spec).await?, "10.70.0.2");
    // A working LoadBalancer keeps its address, and is restored as soon as it is corrected.
    let bad = json!({"spec": {"listeners": port(0, 80)}});
    world.merge(&world.lbs(ns), "good", bad).await?;
    let lb = world.lb_reason(ns, "good", "InvalidListener").await?;
    assert_eq!(allocated(&lb).as_deref(), Some("10.70.0.2"));
    assert_eq!(
        world.phase("10.70.0.2", Phase::Bound).await?,
        "listeners/good"
    );
    let service = world.services(ns).get("good").await?;
    assert_eq!(service.spec.unwrap().ports.unwrap().len(), 2);
    let good = json!({"spec": {"listeners": port(88, 80)}});
    world.merge(&world.lbs(ns), "good", good).await?;
    world
        .service_until(ns, "good", "port 88", |s| {
            s.spec.as_ref().unwrap().ports.as_ref().unwrap()[0].port == 88
        })
        .await?;
    Ok(())
}

pub(crate) async fn input_health_checks_that_cannot_be(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("checks", "checks");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.71.0.0/24")]).await?;
    let mut spec = vm(pool, "web");
    spec["healthCheck"] = json!({"port": 65_536});
    world.lb(ns, "bad", spec).await?;
    let lb = world.lb_reason(ns, "bad", "InvalidHealthCheck").await?;
    let (_, _, message) = ready(&lb).unwrap();
    assert!(
        message.contains("spec.healthCheck.port is 65536"),
        "{message}"
    );
    world.event(ns, "LoadBalancer", "bad", &message).await?;
    // Enormous numbers are lowered, not rejected.
    let huge = i64::MAX;
    let mut spec = vm(pool, "web");
    spec["healthCheck"] = json!({
        "port": 8080, "successThreshold": huge, "failureThreshold": huge, "periodSeconds": huge,
        "timeoutSeconds": huge,
    });
    world.announced(ns, "huge", spec).await?;
    world.lb_reason(ns, "huge", "NoBackend").await?;
    Ok(())
}

async fn input_the_schema_refuses(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "schema";
    world.namespace(ns).await?;
    let lb = |spec: Value| {
        json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
            "metadata": {"namespace": ns, "name": "x"}, "spec": spec,
        })
    };
    for (spec, text) in [
        (json!({"ipam": "static"}), "spec.ipam"),
        (json!({"workloadType": "pod"}), "spec.workloadType"),
        (
            json!({"healthCheck": {"port": -1}}),
            "spec.healthCheck.port",
        ),
        (
            json!({"healthCheck": {"periodSeconds": -5}}),
            "spec.healthCheck.periodSeconds",
        ),
        (
            json!({"listeners": [{"port": "http", "backendPort": 1}]}),
            "spec.listeners[0].port",
        ),
        (
            json!({"listeners": [{"name": "a", "backendPort": 1}]}),
            "spec.listeners[0].port",
        ),
        (
            json!({"backendServerSelector": {"app": "web"}}),
            "spec.backendServerSelector.app",
        ),
    ] {
        let error = world.cluster.apply(&lb(spec.clone())).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(text), "{spec}: {error}");
    }
    let pool = |spec: Value| {
        json!({
            "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
            "metadata": {"name": "schema-x"}, "spec": spec,
        })
    };
    for (spec, text) in [
        (json!({}), "spec.ranges"),
        (json!({"ranges": [{}]}), "spec.ranges[0].subnet"),
        (
            json!({"ranges": [{"subnet": "10.0.0.0/8"}], "selector": {"priority": -1}}),
            "spec.selector.priority",
        ),
    ] {
        let error = world.cluster.apply(&pool(spec.clone())).await.unwrap_err();
        let error = format!("{error:#}");
        assert!(error.contains(text), "{spec}: {error}");
    }
    Ok(())
}

pub(crate) async fn input_ten_thousand_ranges(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("many-ranges", "many-ranges");
    world.namespace(ns).await?;
    let ranges: Vec<Value> = (0..10_000_u32)
        .map(|n| subnet(&format!("12.{}.{}.{}/32", n >> 16, (n >> 8) & 255, n & 255)))
        .collect();
    world.ranges(pool, &ranges).await?;
    let what = "10,000 addresses";
    world
        .pool_until(pool, what, |p| {
            p.status.as_ref().is_some_and(|s| s.total == 10_000)
        })
        .await?;
    assert_eq!(world.served(ns, "a", pool).await?, "12.0.0.0");
    assert_eq!(world.served(ns, "b", pool).await?, "12.0.0.1");
    // The very last one is wrong: the message says which, and stays short.
    let mut wrong = ranges.clone();
    wrong[9_999] = subnet("12.0.0.0.0/32");
    world
        .merge(&world.pools(), pool, json!({"spec": {"ranges": wrong}}))
        .await?;
    // A slow write of the status is followed by a long pause (POOL-3).
    let pool_now = eventually("the ranges are refused", 3 * SOON, || async {
        let pool = world.pools().get(pool).await?;
        let refused = pool_condition(&pool, "Ready").is_some_and(|(s, ..)| s == "False");
        Ok(refused.then_some(pool))
    })
    .await?;
    let (_, _, message) = pool_condition(&pool_now, "Ready").unwrap();
    assert!(
        message.contains("spec.ranges[9999].subnet \"12.0.0.0.0/32\""),
        "{message}"
    );
    world
        .merge(&world.pools(), pool, json!({"spec": {"ranges": ranges}}))
        .await?;
    assert_eq!(world.served(ns, "c", pool).await?, "12.0.0.2");
    Ok(())
}

async fn input_a_large_description(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("large", "large");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.72.0.0/24")]).await?;
    let text = "ü".repeat(500_000);
    let mut spec = vm(pool, "web");
    spec["description"] = json!(text);
    world
        .fake_vmi(ns, "v", json!({"app": "web"}), Some("10.172.0.1"))
        .await?;
    world.announced(ns, "web", spec).await?;
    let lb = world.lb_reason(ns, "web", "Ready").await?;
    assert_eq!(lb.spec.description, Some(text));
    world.at_rest(ns, &[pool], Duration::from_secs(1)).await?;
    // A large pool, a large annotation.
    let large = json!({
        "metadata": {"annotations": {"large": "x".repeat(200_000)}},
        "spec": {"description": "y".repeat(800_000)},
    });
    world.merge(&world.pools(), pool, large).await?;
    assert_eq!(world.served(ns, "next", pool).await?, "10.72.0.3");
    let what = "its status";
    world
        .pool_until(pool, what, |p| {
            p.status.as_ref().is_some_and(|s| s.available == 251)
        })
        .await?;
    Ok(())
}

async fn input_garbage_in_a_pools_maps(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("garbage", "garbage");
    world.namespace(ns).await?;
    let object = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "IPPool",
        "metadata": {"name": pool},
        "spec": {"ranges": [{"subnet": "10.73.0.0/24"}]},
        "status": {
            "total": -5, "available": 99, "lastAllocated": "nowhere",
            "allocated": {"": "", "no address": "a/b", "10.73.0.2": "no-slash", "10.73.0.3": "/", "::": "garbage/x"},
            "allocatedHistory": {"10.73.0.999": "a/b", "192.0.2.1": "a/b", "10.73.0.1": "garbage/gw"},
        },
    });
    world.cluster.apply(&object).await?;
    assert_eq!(world.served(ns, "a", pool).await?, "10.73.0.2");
    let wanted = Accounts {
        total: 253,
        available: 252,
        last: "10.73.0.2",
        allocated: &[("10.73.0.2", "garbage/a")],
        history: &[],
    };
    world.accounts(pool, &wanted).await?;
    let again =
        json!({"status": {"allocated": {"x": "y"}, "allocatedHistory": {"10.73.0.2": "thief/x"}}});
    world.merge(&world.pools(), pool, again).await?;
    world.accounts(pool, &wanted).await?;
    world
        .pool_until(pool, "Ready", |p| {
            pool_condition(p, "Ready").is_some_and(|(s, ..)| s == "True")
        })
        .await?;
    // Foreign annotations, and invalid ones.
    let odd = json!({"metadata": {"annotations": {
        "loadbalancer.harvesterhci.io/projection": "nonsense",
        "loadbalancer.harvesterhci.io/manuallyReleaseIP": "\u{0}\u{1f4a9}: /",
    }}});
    world.merge(&world.pools(), pool, odd).await?;
    world.accounts(pool, &wanted).await?;
    Ok(())
}

async fn input_long_names(world: Arc<World>) -> anyhow::Result<()> {
    let ns = "n".repeat(63);
    let pool = "p".repeat(253);
    let name = "l".repeat(253);
    world.namespace(&ns).await?;
    world.ranges(&pool, &[subnet("10.74.0.0/30")]).await?;
    assert_eq!(world.served(&ns, &name, &pool).await?, "10.74.0.2");
    let id = format!("{ns}/{name}");
    let held = [("10.74.0.2", &*id)];
    let wanted = Accounts {
        total: 1,
        available: 0,
        last: "10.74.0.2",
        allocated: &held,
        history: &[],
    };
    world.accounts(&pool, &wanted).await?;
    // Full: the message names the pool, and is not too long; so does the Event.
    world.lb(&ns, "second", cluster(&pool)).await?;
    world.lb_reason(&ns, "second", "NoAvailableIP").await?;
    world.event(&ns, "LoadBalancer", "second", &pool).await?;
    // An invalid pool name.
    let odd = format!("{}\n\u{1f4a9}", "q".repeat(5_000));
    world.lb(&ns, "third", cluster(&odd)).await?;
    let lb = world.lb_reason(&ns, "third", "PoolNotFound").await?;
    assert!(ready(&lb).unwrap().2.len() <= 1024);
    world.delete_lb(&ns, &name).await?;
    assert_eq!(world.lb_address(&ns, "second").await?, "10.74.0.2");
    Ok(())
}

/// Any client that may write an object may write this field, and the API server accepts it far deeper than JSON
/// decoders do. The objects are read and written as text here: the tests' own client has such a decoder.
async fn input_managed_fields_of_any_depth(world: Arc<World>) -> anyhow::Result<()> {
    const LEVELS: usize = 400;
    let (ns, pool) = ("fathoms", "fathoms");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.176.0.0/24")]).await?;
    let deep = |api_version: &str| {
        let fields = (0..LEVELS).fold(json!({}), |inner, _| json!({"f:a": inner}));
        json!([{
            "manager": "m", "operation": "Update", "apiVersion": api_version,
            "time": "2026-01-01T00:00:00Z", "fieldsType": "FieldsV1", "fieldsV1": fields,
        }])
    };
    let is_deep = |text: &str| text.replace(' ', "").contains(&"{\"f:a\":".repeat(LEVELS));
    let client = world.client();
    let lbs = Request::new(world.lbs(ns).resource_url());
    let services = Request::new(world.services(ns).resource_url());
    let shows = async |requests: &Request, name: &str, wanted: &str| {
        eventually(&format!("{name} says {wanted}"), SOON, || async {
            let request = requests.get(name, &GetParams::default())?;
            let text = client.request_text(request).await?;
            ensure!(text.contains(wanted), "{text}");
            Ok(Some(text))
        })
        .await
    };
    let change = async |requests: &Request, name: &str, patch: Value| {
        let params = PatchParams::default();
        let request = requests.patch(name, &params, &Patch::Merge(patch))?;
        anyhow::Ok(client.request_text(request).await?)
    };

    let lb = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"name": "web", "managedFields": deep("loadbalancer.harvesterhci.io/v1beta1")},
        "spec": vm(pool, "web"),
    });
    let request = lbs.create(&PostParams::default(), lb.to_string().into_bytes())?;
    let made = client.request_text(request).await?;
    ensure!(is_deep(&made), "{made}");
    shows(&lbs, "web", "WaitingForExternalIP").await?;
    shows(&services, "web", "10.176.0.2").await?;
    let service = json!({"metadata": {"managedFields": deep("v1")}});
    let made = change(&services, "web", service).await?;
    ensure!(is_deep(&made), "{made}");

    // Writes to both continue, with such an answer to each.
    let mut spec = vm(pool, "web");
    spec["listeners"][0]["port"] = json!(4_711);
    change(&lbs, "web", json!({"spec": spec})).await?;
    let service = shows(&services, "web", "4711").await?;
    ensure!(is_deep(&service), "{service}");
    let ingress = json!({"status": {"loadBalancer": {"ingress": [{"ip": "10.176.0.2"}]}}});
    let params = PatchParams::default();
    let request = services.patch_subresource("status", "web", &params, &Patch::Merge(ingress))?;
    client.request_text(request).await?;
    let lb = shows(&lbs, "web", "NoBackend").await?;
    ensure!(is_deep(&lb), "{lb}");
    let request = lbs.delete("web", &DeleteParams::default())?;
    client.request_text(request).await?;
    world.phase("10.176.0.2", Phase::Released).await?;

    let log = std::fs::read_to_string(world.operator_log("node1"))?;
    let of_it = log.lines().filter(|line| line.contains("fathoms/web"));
    let of_it: Vec<Value> = of_it.filter_map(|l| serde_json::from_str(l).ok()).collect();
    let at = |level: &str| of_it.iter().filter(|line| line["level"] == level).count();
    // A failed reconcile is a warning. That its address was allocated is logged too, so its lines are found.
    ensure!(at("INFO") > 0, "no line of fathoms/web in the log");
    ensure!(at("WARN") + at("ERROR") == 0, "{of_it:#?}");
    Ok(())
}
