use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use harvester_lb_api::{keys, projection};
use harvester_lb_fixtures::{self as fixtures, cluster_spec, part, stored, with};
use http::Method;
use k8s_openapi::jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::*;
use crate::fake::{self, Answer, ReceivedRequest, failure};

const OURS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1";
const LBS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/loadbalancers";
const POOLS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ippools";
const RECORDS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations";
const SERVICES: &str = "/api/v1/services";
const LEASE: &str =
    "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/harvester-load-balancer";

/// An API server for reading, page by page.
#[derive(Default)]
struct ApiServer {
    /// The objects of a list, or the one object, by path.
    objects: Mutex<BTreeMap<String, Vec<Value>>>,
    /// Failures by path and a part of the query.
    failures: Mutex<Vec<(String, &'static str, Answer)>>,
    /// Paths and queries so far.
    requests: Mutex<Vec<String>>,
    /// The changes of objects before the second read and later ones.
    later: Mutex<Vec<(&'static str, Vec<Value>)>>,
}

impl ApiServer {
    fn set(&self, path: &str, objects: Vec<Value>) {
        self.objects.lock().insert(path.to_owned(), objects);
    }

    fn add(&self, path: &str, object: Value) {
        let mut objects = self.objects.lock();
        objects.entry(path.to_owned()).or_default().push(object);
    }

    /// From the next read of everything on.
    fn then(&self, path: &'static str, objects: Vec<Value>) {
        self.later.lock().push((path, objects));
    }

    fn fail(&self, path: &str, query: &'static str, answer: Answer) {
        let failures = &mut self.failures.lock();
        failures.push((path.to_owned(), query, answer));
    }

    fn answer(&self, request: &ReceivedRequest) -> Answer {
        let ReceivedRequest {
            method,
            path,
            query,
            ..
        } = request;
        if path.ends_with("/selfsubjectaccessreviews") {
            return (
                201,
                with(request.body.clone(), json!({"status": {"allowed": true}})),
            );
        }
        assert_eq!(*method, Method::GET, "nothing is written");
        self.requests.lock().push(format!("{path}?{query}"));
        let mut failures = self.failures.lock();
        let failing = failures
            .iter()
            .position(|(at, part, _)| at == path && query.contains(part));
        if let Some(at) = failing {
            // A failure in the middle of a list happens once.
            let (_, part, answer) = failures[at].clone();
            if !part.is_empty() {
                failures.remove(at);
            }
            return answer;
        }
        if let Some(group_version) = path
            .strip_prefix("/apis/")
            .or_else(|| path.strip_prefix("/api/"))
            && group_version.split('/').count() <= 2
            && !group_version.ends_with('s')
        {
            return (200, served(group_version));
        }
        let objects = self.objects.lock();
        if path == LEASE || path.contains("/deployments/") {
            let object = objects.get(path).and_then(|all| all.first().cloned());
            return object.map_or_else(|| failure(404, "NotFound"), |object| (200, object));
        }
        let none = Vec::new();
        (200, page(objects.get(path).unwrap_or(&none), query))
    }
}

/// The resources of an API group version that the operator needs.
fn served(group_version: &str) -> Value {
    let version = group_version.rsplit('/').next().unwrap_or_default();
    let group = group_version
        .strip_suffix(&format!("/{version}"))
        .unwrap_or_default();
    let needed = crate::permissions::REQUIRED
        .iter()
        .filter(|it| it.group == group);
    let resources: Vec<Value> = needed
        .map(|it| json!({"name": it.resource, "kind": "K", "namespaced": true, "singularName": "", "verbs": []}))
        .collect();
    json!({"kind": "APIResourceList", "groupVersion": group_version, "resources": resources})
}

/// A page of a list.
fn page(objects: &[Value], query: &str) -> Value {
    let field = |name: &str| {
        let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
        pairs
            .find(|(key, _)| *key == name)
            .and_then(|(_, value)| value.parse::<usize>().ok())
    };
    let (from, limit) = (
        field("continue").unwrap_or(0),
        field("limit").unwrap_or(usize::MAX),
    );
    let items: Vec<&Value> = objects.iter().skip(from).take(limit).collect();
    let next = from + items.len();
    let more = if next < objects.len() {
        next.to_string()
    } else {
        String::new()
    };
    json!({"metadata": {"resourceVersion": "7", "continue": more}, "items": items})
}

/// A cluster with one load balancer of a pool of three addresses, as this operator leaves it.
fn well() -> Arc<ApiServer> {
    let server = Arc::new(ApiServer::default());
    server.set(POOLS, vec![pool(&[("10.0.0.2", "n/a")])]);
    server.set(LBS, vec![served_lb("a", "10.0.0.2")]);
    server.set(RECORDS, vec![record("10.0.0.2", "a")]);
    server.set(LEASE, vec![lease("harvester-load-balancer-7d9_u1")]);
    server
}

fn lease(holder: &str) -> Value {
    let now = Timestamp::now().to_string();
    json!({
        "metadata": {"namespace": "kube-system", "name": "harvester-load-balancer"},
        "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": now},
    })
}

fn pool(allocated: &[(&str, &str)]) -> Value {
    let allocated: BTreeMap<String, String> = allocated
        .iter()
        .map(|(ip, id)| ((*ip).to_owned(), (*id).to_owned()))
        .collect();
    let digest = projection::digest(Some(&allocated), None);
    let pool = fixtures::pool("p", &[part("10.0.0.0/24", "10.0.0.2", "10.0.0.4")]);
    let mut pool = stored(pool, "u-pool", 3);
    pool["metadata"]["annotations"] = json!({keys::ANNOTATION_PROJECTION: digest});
    let status = json!({
        "total": 3, "available": 3 - allocated.len(), "lastAllocated": "10.0.0.2", "allocated": allocated,
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    });
    with(pool, json!({"status": status}))
}

fn served_lb(name: &str, ip: &str) -> Value {
    let spec = with(cluster_spec(), json!({"ipPool": "p"}));
    let lb = fixtures::load_balancer("n", name, "", &spec);
    let status = json!({
        "address": ip, "allocatedAddress": {"ip": ip, "ipPool": "p"},
        "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
    });
    with(
        stored(lb, &format!("u-{name}"), 4),
        json!({"status": status}),
    )
}

fn record(ip: &str, owner: &str) -> Value {
    let uid = format!("u-{owner}");
    let record = fixtures::record(ip, "p", "Bound", ("n", owner, &uid));
    stored(record, "u-record", 5)
}

/// Checks; whenever everything was read, the next of the later changes happens.
async fn checked(server: &Arc<ApiServer>) -> Outcome {
    let behind = Arc::clone(server);
    let client = fake::client(move |request| {
        if request.path == LBS && request.query == "limit=500" {
            let seen = behind.requests.lock().iter().any(|it| it.starts_with(LBS));
            let mut later = behind.later.lock();
            if seen && !later.is_empty() {
                let (path, objects) = later.remove(0);
                behind.set(path, objects);
            }
        }
        std::future::ready(behind.answer(&request))
    });
    check(&client, &[], Duration::from_secs(10)).await
}

fn reasons(outcome: &Outcome) -> Vec<&'static str> {
    let findings = outcome.findings.iter();
    findings.map(|(_, finding)| finding.kind.reason).collect()
}

#[tokio::test(start_paused = true)]
async fn ops_2_nothing_found_is_exit_code_0() {
    let outcome = checked(&well()).await;
    assert_eq!(reasons(&outcome), [""; 0], "{outcome:#?}");
    assert_eq!((outcome.code(), outcome.state), (0, State::Imported));
    let text = report::text(&outcome);
    for line in [
        "IPPools: 1\n",
        "LoadBalancers: 1\n",
        "IPAllocations: 1 Bound, 0 Released\n",
        "Leader: harvester-load-balancer-7d9_u1, a process of this operator\n",
        "\n0 errors, 0 warnings, 0 infos\n",
    ] {
        assert!(text.contains(line), "{line:?} is not in {text}");
    }
    let json: Value = serde_json::from_str(&report::json(&outcome).unwrap()).unwrap();
    assert_eq!(
        (&json["imported"], &json["checked"]),
        (&json!(true), &json!(true))
    );
    assert_eq!(json["findings"], json!([]));
}

#[tokio::test(start_paused = true)]
async fn ops_2_an_error_is_exit_code_1_with_meaning_and_action() {
    let server = well();
    server.add(LBS, served_lb("b", "10.0.0.2"));
    let outcome = checked(&server).await;
    assert_eq!(outcome.code(), 1);
    let text = report::text(&outcome);
    for part in [
        "\nERROR LoadBalancer n/b\n",
        "  DuplicateAddress (ALC-8): has address 10.0.0.2, as has LoadBalancer n/a\n",
        "    meaning:  two LoadBalancers have one address",
        "    action:   delete one of the two LoadBalancers",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let json: Value = serde_json::from_str(&report::json(&outcome).unwrap()).unwrap();
    let findings = json["findings"].as_array().unwrap();
    let found = findings
        .iter()
        .find(|it| it["reason"] == "DuplicateAddress")
        .unwrap();
    let object = json!({"kind": "LoadBalancer", "namespace": "n", "name": "b"});
    assert_eq!(
        (&found["object"], &found["severity"]),
        (&object, &json!("error"))
    );
}

#[tokio::test(start_paused = true)]
async fn ops_2_what_cannot_be_read_is_exit_code_2() {
    for path in [LBS, POOLS, RECORDS, SERVICES] {
        let server = well();
        server.add(LBS, served_lb("b", "10.0.0.2"));
        server.fail(path, "", failure(403, "Forbidden: User \"u\" cannot list"));
        let outcome = checked(&server).await;
        assert_eq!((outcome.code(), outcome.is_read), (2, false), "{path}");
        assert_eq!(
            reasons(&outcome),
            [""; 0],
            "half of the objects tell nothing"
        );
        let text = report::text(&outcome);
        assert!(text.contains("cannot list"), "{text}");
        assert!(text.ends_with("nothing was checked: some objects could not be read\n"));
    }
    // What is around the objects: the rest is checked.
    let webhooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    for path in [webhooks, LEASE] {
        let server = well();
        server.fail(path, "", failure(403, "Forbidden"));
        let outcome = checked(&server).await;
        assert_eq!((outcome.code(), outcome.is_read), (2, true), "{path}");
        assert!(report::text(&outcome).contains("\nNOT READ "));
        server.add(LBS, served_lb("b", "10.0.0.2"));
        assert_eq!(checked(&server).await.code(), 1, "{path}");
    }
}

#[tokio::test(start_paused = true)]
async fn ops_2_what_is_gone_in_the_next_read_is_no_error() {
    let server = well();
    server.set(RECORDS, Vec::new());
    server.then(RECORDS, vec![record("10.0.0.2", "a")]);
    let outcome = checked(&server).await;
    assert_eq!((outcome.code(), reasons(&outcome)), (0, vec![]));
    assert!(outcome.passing > 0);
    assert!(report::text(&outcome).contains("changes in progress"));
    // Another one each time.
    let server = well();
    server.add(RECORDS, record("10.0.0.3", "gone"));
    server.then(
        RECORDS,
        vec![record("10.0.0.2", "a"), record("10.0.0.4", "other")],
    );
    let outcome = checked(&server).await;
    let lasting: Vec<&str> = reasons(&outcome);
    assert!(!lasting.contains(&"IPAllocationOrphaned"), "{lasting:?}");
}

/// The operator has started just now, and reconciles one load balancer after the other.
#[tokio::test(start_paused = true)]
async fn ops_2_the_operator_is_waited_for_while_it_repairs() {
    let server = well();
    let ips = ["10.0.0.2", "10.0.0.3", "10.0.0.4"];
    let names = ["a", "b", "c"];
    let lbs = names.iter().zip(ips).map(|(name, ip)| served_lb(name, ip));
    server.set(LBS, lbs.collect());
    let ids = ["n/a", "n/b", "n/c"];
    let held: Vec<_> = ips.into_iter().zip(ids).collect();
    server.set(POOLS, vec![pool(&held)]);
    let all: Vec<Value> = names
        .iter()
        .zip(ips)
        .map(|(name, ip)| record(ip, name))
        .collect();
    server.set(RECORDS, Vec::new());
    for number in 1..=3 {
        server.then(RECORDS, all[..number].to_vec());
    }
    let outcome = checked(&server).await;
    assert_eq!((outcome.code(), reasons(&outcome)), (0, vec![]));
    // It does not get on.
    let server = well();
    server.set(RECORDS, Vec::new());
    let began = Instant::now();
    assert_eq!(checked(&server).await.code(), 1);
    assert_eq!(began.elapsed(), Duration::from_secs(10));
}

#[tokio::test(start_paused = true)]
async fn pool_3_the_status_of_a_pool_may_be_late() {
    let behind = || {
        let mut pool = pool(&[("10.0.0.2", "n/a")]);
        pool["status"]["available"] = 3.into();
        pool
    };
    let server = well();
    server.set(POOLS, vec![behind()]);
    for _ in 0..3 {
        server.then(POOLS, vec![behind()]);
    }
    server.then(POOLS, vec![pool(&[("10.0.0.2", "n/a")])]);
    let began = Instant::now();
    assert_eq!(checked(&server).await.code(), 0);
    assert_eq!(began.elapsed(), Duration::from_secs(40));

    let server = well();
    server.set(POOLS, vec![behind()]);
    let began = Instant::now();
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.code(), reasons(&outcome)),
        (1, vec!["PoolStatusOutdated"])
    );
    assert!(began.elapsed() > POOL_STATUS_LIMIT);

    // Without a leader nobody is about to write it.
    server.set(LEASE, Vec::new());
    let outcome = checked(&server).await;
    assert_eq!(outcome.code(), 0, "a warning");
    let found: BTreeSet<&str> = reasons(&outcome).into_iter().collect();
    assert_eq!(found, BTreeSet::from(["NoLeader", "PoolStatusOutdated"]));
}

#[tokio::test(start_paused = true)]
async fn ops_2_objects_that_cannot_be_decoded_are_named() {
    let server = well();
    let mut odd = served_lb("odd", "10.0.0.9");
    odd["spec"]["listeners"] = json!([{"name": "a", "port": "x"}]);
    server.add(LBS, odd);
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.code(), reasons(&outcome)),
        (1, vec!["ObjectUndecodable"])
    );
    let text = report::text(&outcome);
    assert!(text.contains("ERROR LoadBalancer n/odd"), "{text}");
    assert!(text.contains("spec.listeners[0].port"), "{text}");
    // A Service of another owner is of no concern.
    let server = well();
    server.add(
        SERVICES,
        json!({"metadata": {"namespace": "n", "name": "x"}, "spec": 7}),
    );
    assert_eq!(checked(&server).await.code(), 0);
}

/// A list of several pages; one that the API server has forgotten in the middle begins again.
#[tokio::test(start_paused = true)]
async fn ops_2_lists_are_read_page_by_page() {
    let server = well();
    let (mut lbs, mut records) = (Vec::new(), Vec::new());
    for n in 0..1_200 {
        let (name, ip) = (format!("l{n}"), format!("10.1.{}.{}", n / 250, n % 250));
        lbs.push(served_lb(&name, &ip));
        records.push(record(&ip, &name));
    }
    server.set(LBS, lbs);
    server.set(RECORDS, records);
    server.fail(LBS, "continue=500", failure(410, "Expired"));
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.report.load_balancers, outcome.report.bound),
        (1_200, 1_200)
    );
    let requests = server.requests.lock();
    let of_lbs: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.strip_prefix(LBS)?.strip_prefix("?limit=500"))
        .take(5)
        .collect();
    let pages = ["", "&continue=500", "", "&continue=500", "&continue=1000"];
    assert_eq!(of_lbs, pages);
}

/// 10,000 load balancers in 1,000 pools: the number of requests grows with the pages alone, and everything is judged.
#[tokio::test(start_paused = true)]
async fn ops_2_requests_for_10_000_load_balancers() {
    let server = well();
    let (mut lbs, mut pools, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..1_000 {
        let (name, net) = (
            format!("p{number}"),
            format!("10.{}.{}", number / 250, number % 250),
        );
        let mut allocated = BTreeMap::new();
        for host in 2..12 {
            let (ip, lb) = (format!("{net}.{host}"), format!("l{number}-{host}"));
            let mut object = served_lb(&lb, &ip);
            object["spec"]["ipPool"] = name.clone().into();
            object["status"]["allocatedAddress"]["ipPool"] = name.clone().into();
            lbs.push(object);
            let mut object = record(&ip, &lb);
            object["spec"]["pool"] = name.clone().into();
            records.push(object);
            allocated.insert(ip, format!("n/{lb}"));
        }
        let digest = projection::digest(Some(&allocated), None);
        let range = part(
            &format!("{net}.0/24"),
            &format!("{net}.2"),
            &format!("{net}.11"),
        );
        let mut object = stored(fixtures::pool(&name, &[range]), &format!("u-{name}"), 3);
        object["metadata"]["annotations"] = json!({keys::ANNOTATION_PROJECTION: digest});
        object["status"] = json!({
            "total": 10, "available": 0, "lastAllocated": "", "allocated": allocated,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
        });
        pools.push(object);
    }
    server.set(LBS, lbs);
    server.set(POOLS, pools);
    server.set(RECORDS, records);
    let outcome = checked(&server).await;
    assert_eq!(
        reasons(&outcome),
        [""; 0],
        "{:#?}",
        outcome.findings.first()
    );
    assert_eq!(
        (
            outcome.report.load_balancers,
            outcome.report.bound,
            outcome.pools
        ),
        (10_000, 10_000, 1_000)
    );
    let requests = server.requests.lock();
    let of = |path: &str| {
        requests
            .iter()
            .filter(|it| it.split('?').next() == Some(path))
            .count()
    };
    assert_eq!((of(LBS), of(RECORDS), of(POOLS)), (20, 20, 2));
    // A page of each other kind, the Lease, the Deployment, and the API groups.
    let others = requests.len() - 42;
    assert!(others < 30, "{others}");
}

/// Objects as the Go operator leaves them: no reasons, no digest, no records.
fn left_by_go(lbs: &[(&str, &str)], allocated: &[(&str, &str)]) -> Arc<ApiServer> {
    let server = Arc::new(ApiServer::default());
    let lbs = lbs.iter().map(|(name, ip)| {
        let mut lb = served_lb(name, ip);
        lb["status"]["conditions"] = json!([{"type": "Ready", "status": "True"}]);
        lb
    });
    server.set(LBS, lbs.collect());
    let mut pool = pool(allocated);
    pool["metadata"]["annotations"] = json!(null);
    server.set(POOLS, vec![pool]);
    server.set(LEASE, vec![lease("harvester-load-balancer-7d9")]);
    server
}

#[tokio::test(start_paused = true)]
async fn ipa_1_what_is_not_imported_yet_is_no_error() {
    let server = left_by_go(
        &[("a", "10.0.0.2"), ("b", "10.0.0.3")],
        &[
            ("10.0.0.2", "n/a"),
            ("10.0.0.3", "n/b"),
            ("10.0.0.4", "n/gone"),
        ],
    );
    // The definition of IPAllocation does not exist yet.
    server.fail(RECORDS, "", failure(404, "NotFound"));
    let mut resources = served("loadbalancer.harvesterhci.io/v1beta1");
    let all = resources["resources"].as_array_mut().unwrap();
    all.retain(|it| it["name"] != "ipallocations");
    server.fail(OURS, "", (200, resources));
    let outcome = checked(&server).await;
    assert_eq!((outcome.code(), outcome.state), (0, State::NotImported));
    assert_eq!(reasons(&outcome), ["CRDToCreate", "GoOperatorLeads"]);
    let preview = outcome.preview.as_ref().unwrap();
    assert_eq!((preview.bound, preview.released), (2, 1));
    let text = report::text(&outcome);
    assert!(
        text.contains("creates IPAllocations for 2 addresses in use, and for 1 that it remembers"),
        "{text}"
    );
    let json: Value = serde_json::from_str(&report::json(&outcome).unwrap()).unwrap();
    assert_eq!(json["import"], json!({"bound": 2, "released": 1}));
}

#[tokio::test(start_paused = true)]
async fn ipa_2_the_preview_says_who_loses_an_address() {
    let server = left_by_go(
        &[
            ("a", "10.0.0.2"),
            ("b", "10.0.0.2"),
            ("outside", "10.9.9.9"),
            ("fine", "10.0.0.3"),
        ],
        &[
            ("10.0.0.2", "n/b"),
            ("nonsense", "n/x"),
            ("10.0.0.4", "nobody"),
        ],
    );
    let outcome = checked(&server).await;
    assert_eq!(outcome.code(), 1);
    let of = |reason: &str| -> Vec<String> {
        let findings = outcome.findings.iter();
        let those = findings.filter(|(_, finding)| finding.kind.reason == reason);
        those.map(|(_, finding)| finding.to_string()).collect()
    };
    assert_eq!(
        of("DuplicateClaim"),
        [
            "LoadBalancer n/a (IPA-2): claims 10.0.0.2, which LoadBalancer n/b keeps; at the import it gets another address"
        ]
    );
    assert_eq!(
        of("AddressNotKept"),
        [
            "LoadBalancer n/outside (ALC-7): does not keep 10.9.9.9, which its status names: no IPPool that serves it has that address; it gets another one of IPPool p"
        ]
    );
    assert_eq!(
        of("MapEntrySkipped"),
        [
            "IPPool p (IPA-1): status.allocated has 10.0.0.4: nobody, which does not name a LoadBalancer",
            "IPPool p (IPA-1): status.allocated has nonsense: n/x, which is not an IP address",
        ]
    );
}

/// After a swap back and forth there are records of load balancers that the Go operator has deleted.
#[tokio::test(start_paused = true)]
async fn ipa_1_the_preview_releases_the_records_of_deleted_owners_first() {
    let server = left_by_go(&[("heir", "10.0.0.2")], &[("10.0.0.2", "n/heir")]);
    server.set(RECORDS, vec![record("10.0.0.2", "gone")]);
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.code(), reasons(&outcome)),
        (0, vec!["GoOperatorLeads"])
    );
    // Its owner lives: the heir loses it.
    server.add(LBS, served_lb("gone", "10.0.0.3"));
    let outcome = checked(&server).await;
    assert!(
        reasons(&outcome).contains(&"DuplicateClaim"),
        "{outcome:#?}"
    );
}
