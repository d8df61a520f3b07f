//! The metrics (OPS-1).

use std::process::Stdio;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::prometheus::{documented_alerts, promtool, rules};
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World};
use harvester_lb_fixtures::subnet;
use harvester_lb_testkit::eventually;
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::support::{RuleHelpers, vm};

pub(crate) fn tests() -> Vec<Test> {
    harvester_lb_e2e::tests![
        ops_1_promtool_is_content,
        ops_1_documented_alerts_fire_when_they_are_to,
    ]
}

async fn ops_1_promtool_is_content(world: Arc<World>) -> anyhow::Result<()> {
    let (code, text) = world.get("node1", "/metrics").await?;
    ensure!(code == 200, "{code}");
    let mut promtool = tokio::process::Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .context("promtool")?;
    let mut input = promtool.stdin.take().context("no input")?;
    input.write_all(text.as_bytes()).await?;
    drop(input);
    let output = promtool.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success() && said.is_empty(), "{said}");
    for line in text.lines().filter(|l| l.starts_with("# TYPE ")) {
        let mut words = line.split(' ').skip(2);
        let (name, type_) = (words.next().context(line.to_owned())?, words.next());
        let is_ours = name.starts_with("harvester_lb_") || name.starts_with("process_");
        ensure!(is_ours, "{name}");
        ensure!(
            type_ != Some("gauge") || !name.ends_with("_total"),
            "{line}"
        );
    }
    Ok(())
}

/// The scraped samples, test by test.
type Scrapes = Vec<Vec<Value>>;

/// One series of a test: a sample each minute for twelve minutes, starting with `from`, increasing by `step`.
fn series(name: &str, from: f64, step: f64) -> Value {
    json!({"series": name, "values": format!("{from}{step:+}x12")})
}

const DAY: f64 = 86_400.0;
const EXPIRY: &str = "webhook_certificate_expiry_timestamp_seconds{certificate=\"serving\"}";
const CONTESTED: &str =
    "webhook_registration_writes_total{object=\"validating\",reason=\"changed_by_others\"}";

/// [`CONTESTED`] of one replica.
fn contested_by(pod: &str) -> String {
    CONTESTED.replace('{', &format!("{{pod=\"{pod}\","))
}

/// A test of promtool: whether an alert fires after a time.
fn test_of(name: &str, fires: bool, at: &str, input: &[Value]) -> Value {
    let alerts = format!("ALERTS{{alertname=\"{name}\",alertstate=\"firing\"}}");
    json!({
        "name": name, "interval": "1m", "input_series": input,
        "promql_expr_test": [{
            "expr": format!("sum({alerts} > bool 0) > bool 0 or vector(0)"),
            "eval_time": at, "exp_samples": [{"labels": "{}", "value": u8::from(fires)}],
        }],
    })
}

/// How a pool fills up: whether the alert is called for, after how many minutes, and its addresses, as each leader exports them.
fn trends() -> Vec<(bool, u32, Vec<Value>)> {
    let series = |instance: &str, state: &str, values: &str| {
        let labels = format!("pool=\"p\",state=\"{state}\",instance=\"{instance}\"");
        let series = format!("harvester_lb_ippool_addresses{{{labels}}}");
        json!({"series": series, "values": values})
    };
    let leader = |instance: &str, allocated: &str, total: &str| {
        vec![
            series(instance, "allocated", allocated),
            series(instance, "total", total),
        ]
    };
    let steady = || leader("a", "50+0.2x400", "250x400");
    let over_two_leaders = [
        leader("a", "50+0.2x200 stale", "250x200 stale"),
        leader("b", "_x201 90.2+0.2x200", "_x201 250x200"),
    ];
    // A few load balancers that are created after a failover are no trend.
    let after_failover = [
        leader("a", "230x380 stale", "250x380 stale"),
        leader("b", "_x381 230+0.25x19", "_x381 250x19"),
    ];
    // A pool that was deleted a quarter of an hour ago.
    let deleted = || leader("a", "50+0.2x383 stale", "250x383 stale");
    vec![
        (true, 390, steady()),
        (true, 390, over_two_leaders.concat()),
        (false, 170, steady()),
        (false, 399, after_failover.concat()),
        (false, 390, leader("a", "50x400", "250x400")),
        (false, 390, leader("a", "150-0.2x400", "250x400")),
        // It is full, which another alert says.
        (false, 390, leader("a", "250x400", "250x400")),
        // A day is not enough for the rest.
        (false, 390, leader("a", "50+0.2x400", "2000x400")),
        // A range was removed, or addresses were excluded.
        (false, 390, leader("a", "50x400", "250x200 160x200")),
        (false, 399, deleted()),
        (true, 383, deleted()),
        // A new pool.
        (false, 60, leader("a", "0+1x60", "100x60")),
    ]
}

async fn ops_1_documented_alerts_fire_when_they_are_to(world: Arc<World>) -> anyhow::Result<()> {
    let alerts = documented_alerts()?;
    let leader = |pod: u8, is_leader: f64| {
        let name = format!("harvester_lb_leader{{pod=\"{pod}\"}}");
        series(&name, is_leader, 0.0)
    };
    let at = |name: &str, value: f64| series(&format!("harvester_lb_{name}"), value, 0.0);
    let rising = |name: &str, step: f64| series(&format!("harvester_lb_{name}"), 0.0, step);
    let pool = |available: f64, total: f64| {
        let of = |state: &str, value| {
            at(
                &format!("ippool_addresses{{pool=\"p\",state=\"{state}\"}}"),
                value,
            )
        };
        vec![of("available", available), of("total", total)]
    };
    let ready = |name: &str, value: f64| {
        at(
            &format!("load_balancer_ready{{namespace=\"n\",loadbalancer=\"{name}\"}}"),
            value,
        )
    };
    let lag = |slow: f64| {
        let bucket =
            |le: &str, step| rising(&format!("probe_lag_seconds_bucket{{le=\"{le}\"}}"), step);
        vec![
            bucket("1", 60.0),
            bucket("5", 60.0 + slow),
            bucket("+Inf", 60.0 + slow),
        ]
    };
    // Samples that fire each alert, and samples that do not.
    let cases: Vec<(&str, Scrapes, Scrapes)> = vec![
        (
            "HarvesterLoadBalancerNoLeader",
            vec![
                vec![],
                vec![leader(1, 0.0), leader(2, 0.0)],
                vec![leader(1, 1.0), leader(2, 1.0)],
            ],
            vec![vec![leader(1, 1.0), leader(2, 0.0)]],
        ),
        (
            "HarvesterLoadBalancerPoolAlmostFull",
            vec![pool(0.0, 10.0), pool(9.0, 100.0)],
            vec![pool(1.0, 10.0), pool(10.0, 100.0), pool(0.0, 0.0), vec![]],
        ),
        (
            "HarvesterLoadBalancerPoolFillsUp",
            // Hours, below.
            vec![],
            vec![],
        ),
        (
            "HarvesterLoadBalancerWaitingForAddress",
            vec![vec![at("load_balancers_waiting", 1.0)]],
            vec![vec![at("load_balancers_waiting", 0.0)]],
        ),
        (
            "HarvesterLoadBalancerLeaseNotRenewed",
            ["rebinding", "expired"]
                .map(|state| vec![at(&format!("dhcp_leases{{state=\"{state}\"}}"), 1.0)])
                .to_vec(),
            vec![
                vec![
                    at("dhcp_leases{state=\"rebinding\"}", 0.0),
                    at("dhcp_leases{state=\"bound\"}", 9.0),
                ],
                vec![],
            ],
        ),
        (
            "HarvesterLoadBalancerNotReady",
            vec![vec![ready("a", 1.0), ready("b", 0.0)]],
            vec![vec![ready("a", 1.0), ready("b", 1.0)], vec![]],
        ),
        (
            "HarvesterLoadBalancerBackendNotReady",
            vec![vec![at("backends{state=\"not_ready\"}", 1.0)]],
            vec![vec![at("backends{state=\"not_ready\"}", 0.0)]],
        ),
        (
            "HarvesterLoadBalancerNoReadyBackend",
            vec![vec![at("backends{state=\"ready\"}", 0.0)]],
            vec![vec![at("backends{state=\"ready\"}", 1.0)]],
        ),
        (
            "HarvesterLoadBalancerHostFaults",
            vec![vec![rising("probes_total{result=\"own_file_limit\"}", 1.0)]],
            vec![vec![
                rising("probes_total{result=\"own_file_limit\"}", 0.0),
                rising("probes_total{result=\"refused\"}", 9.0),
            ]],
        ),
        (
            "HarvesterLoadBalancerVerdictsStale",
            vec![vec![at("probe_targets_unknown", 1.0)]],
            vec![vec![at("probe_targets_unknown", 0.0)]],
        ),
        (
            "HarvesterLoadBalancerHealthChecksLate",
            vec![lag(10.0)],
            vec![lag(0.0)],
        ),
        (
            "HarvesterLoadBalancerWritesRefused",
            vec![vec![at("refused_objects{kind=\"LoadBalancer\"}", 1.0)]],
            vec![
                vec![at("refused_objects{kind=\"LoadBalancer\"}", 0.0)],
                vec![],
            ],
        ),
        (
            "HarvesterLoadBalancerWatchFailing",
            vec![vec![at("watches_failing{kind=\"Node\"}", 1.0)]],
            vec![
                vec![at("watches_failing{kind=\"Node\"}", 0.0)],
                // One that worked in between.
                vec![json!({
                    "series": "harvester_lb_watches_failing{kind=\"Node\"}",
                    "values": "1x5 0 1x6",
                })],
                vec![],
            ],
        ),
        (
            "HarvesterLoadBalancerReconcileFailing",
            vec![vec![at("failing{kind=\"IPPool\"}", 1.0)]],
            vec![vec![at("failing{kind=\"IPPool\"}", 0.0)]],
        ),
        (
            "HarvesterLoadBalancerQueueGrowing",
            vec![vec![at("queue_depth{kind=\"LoadBalancer\"}", 101.0)]],
            vec![vec![at("queue_depth{kind=\"LoadBalancer\"}", 100.0)]],
        ),
        (
            "HarvesterLoadBalancerApiServerErrors",
            vec![
                vec![rising("api_requests_total{code=\"503\"}", 9.0)],
                vec![rising("api_requests_total{code=\"0\"}", 9.0)],
            ],
            vec![vec![
                rising("api_requests_total{code=\"503\"}", 0.0),
                rising("api_requests_total{code=\"409\"}", 99.0),
            ]],
        ),
        (
            "HarvesterLoadBalancerWebhookAbsent",
            vec![vec![], vec![leader(1, 1.0)]],
            vec![vec![at("webhook_connections{pod=\"1\"}", 0.0)]],
        ),
        (
            "HarvesterLoadBalancerWebhookCertificateExpires",
            vec![vec![at(EXPIRY, 20.0 * DAY)]],
            vec![vec![at(EXPIRY, 30.0 * DAY)], vec![]],
        ),
        (
            "HarvesterLoadBalancerWebhookNotRegistered",
            vec![vec![at("webhook_registered{object=\"validating\"}", 0.0)]],
            vec![
                vec![at("webhook_registered{object=\"validating\"}", 1.0)],
                vec![],
            ],
        ),
        (
            "HarvesterLoadBalancerWebhookContested",
            vec![
                vec![rising(CONTESTED, 1.0)],
                // Replicas restore it in turns.
                ["1", "2"]
                    .map(|pod| rising(&contested_by(pod), 0.25))
                    .to_vec(),
            ],
            vec![
                vec![rising(CONTESTED, 0.0)],
                vec![rising(&contested_by("1"), 0.25)],
                vec![],
            ],
        ),
        (
            "HarvesterLoadBalancerWebhookNotReady",
            vec![
                vec![rising(
                    "conversion_requests_total{result=\"not_ready\"}",
                    9.0,
                )],
                vec![rising(
                    "admission_requests_total{kind=\"LoadBalancer\",result=\"not_ready\"}",
                    0.25,
                )],
            ],
            vec![
                vec![rising(
                    "admission_requests_total{kind=\"LoadBalancer\",result=\"refused\"}",
                    9.0,
                )],
                vec![rising(
                    "conversion_requests_total{result=\"not_ready\"}",
                    0.0,
                )],
                vec![rising("conversion_requests_total{result=\"allowed\"}", 9.0)],
            ],
        ),
    ];
    let documented: Vec<&str> = alerts.iter().map(|alert| &*alert.name).collect();
    let tested: Vec<&str> = cases.iter().map(|(name, ..)| *name).collect();
    ensure!(
        documented == tested,
        "{documented:?}, tested are {tested:?}"
    );
    let mut tests = Vec::new();
    for (name, called_for, not) in cases {
        for (fires, cases) in [(true, called_for), (false, not)] {
            tests.extend(cases.into_iter().map(|c| test_of(name, fires, "11m", &c)));
        }
    }
    promtool(&world, "alerts", &rules(&alerts, false), &tests).await?;
    // These last for hours: with their own alert alone.
    let name = "HarvesterLoadBalancerPoolFillsUp";
    let fills_up: Vec<_> = alerts.into_iter().filter(|it| it.name == name).collect();
    let test = |(fires, minutes, input): (bool, u32, Vec<Value>)| {
        test_of(name, fires, &format!("{minutes}m"), &input)
    };
    let tests: Vec<Value> = trends().into_iter().map(test).collect();
    promtool(&world, "trends", &rules(&fills_up, false), &tests).await
}

pub(crate) async fn ops_1_values_match_and_series_go(world: Arc<World>) -> anyhow::Result<()> {
    let (ns, pool) = ("figures", "figures");
    world.namespace(ns).await?;
    world.ranges(pool, &[subnet("10.75.0.0/24")]).await?;
    let label = json!({"app": "web"});
    world
        .fake_vmi(ns, "a", label.clone(), Some("10.175.0.1"))
        .await?;
    world.fake_vmi(ns, "b", label, Some("10.175.0.2")).await?;
    world.announced(ns, "web", vm(pool, "web")).await?;
    world.lb_reason(ns, "web", "Ready").await?;
    world.served(ns, "guest", pool).await?;
    let is = async |series: &str, wanted: Option<f64>| {
        eventually(&format!("{series} is {wanted:?}"), SOON, || async {
            let now = world.metric("node1", series).await?;
            ensure!(now == wanted, "it is {now:?}");
            Ok(Some(()))
        })
        .await
    };
    let addresses =
        |state: &str| format!("harvester_lb_ippool_addresses{{pool=\"{pool}\",state=\"{state}\"}}");
    is(&addresses("total"), Some(253.0)).await?;
    is(&addresses("available"), Some(251.0)).await?;
    is(&addresses("allocated"), Some(2.0)).await?;
    let of = |name: &str, key: &str, value: &str| {
        let mut labels = [("namespace", ns), ("loadbalancer", "web"), (key, value)];
        labels.sort_unstable();
        let labels: Vec<String> = labels.iter().map(|(k, v)| format!("{k}=\"{v}\"")).collect();
        format!("harvester_lb_{name}{{{}}}", labels.join(","))
    };
    is(&of("backends", "state", "ready"), Some(2.0)).await?;
    is(&of("backends", "state", "not_ready"), Some(0.0)).await?;
    is(&of("backend_up", "backend", "a"), Some(1.0)).await?;
    let served =
        format!("harvester_lb_load_balancer_ready{{loadbalancer=\"web\",namespace=\"{ns}\"}}");
    is(&served, Some(1.0)).await?;
    is("harvester_lb_leader", Some(1.0)).await?;
    for name in ["open_fds", "resident_memory_bytes", "cpu_seconds_total"] {
        let value = world.metric("node1", &format!("process_{name}")).await?;
        ensure!(value.is_some_and(|value| value > 0.0), "{name}: {value:?}");
    }
    // All down: the dummy endpoint is not a backend.
    let check =
        json!({"port": 8080, "failureThreshold": 1, "periodSeconds": 1, "timeoutSeconds": 1});
    world
        .merge(
            &world.lbs(ns),
            "web",
            json!({"spec": {"healthCheck": check}}),
        )
        .await?;
    is(&of("backends", "state", "ready"), Some(0.0)).await?;
    is(&of("backends", "state", "not_ready"), Some(2.0)).await?;
    is(&served, Some(0.0)).await?;
    is(&of("backend_up", "backend", "a"), Some(0.0)).await?;
    world.vmis(ns).delete("a", &DeleteParams::default()).await?;
    is(&of("backend_up", "backend", "a"), None).await?;
    is(&of("backends", "state", "not_ready"), Some(1.0)).await?;
    world.delete_lb(ns, "web").await?;
    for gone in ["ready", "not_ready"] {
        is(&of("backends", "state", gone), None).await?;
    }
    is(&of("backend_up", "backend", "b"), None).await?;
    is(&served, None).await?;
    is(&addresses("allocated"), Some(1.0)).await?;
    world.delete_pool(pool).await?;
    is(&addresses("total"), None).await?;
    is(&addresses("available"), None).await?;
    Ok(())
}
