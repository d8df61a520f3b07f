use std::sync::atomic::{AtomicU32, Ordering};

use harvester_lb_fixtures::{self as fixtures, stored, subnet as range, with};
use serde_json::json;

use super::*;
use crate::commands::lease_holder::tests::{PATH, lease};
use crate::fake::FakeApiServer;

fn pool(name: &str, subnet: &str, status: &Value) -> (Key, Pool) {
    let pool = stored(fixtures::pool(name, &[range(subnet)]), "u-pool", 7);
    let pool = with(pool, json!({"status": status}));
    let pool = Pool::valid(serde_json::from_value(pool).unwrap());
    (Key::new("", name), pool)
}

fn record(address: &str, pool: &str, owner: &str, phase: &str) -> (String, Allocation) {
    let mut record = fixtures::record(address, pool, phase, ("shop", owner, "u"));
    record["spec"]["boundAt"] = "2026-01-01T00:00:00.000001Z".into();
    record["spec"]["releasedAt"] = "2026-01-01T00:00:00.000002Z".into();
    let object: IPAllocation = serde_json::from_value(stored(record, "u-record", 8)).unwrap();
    (address.to_owned(), Allocation::decoded(&object))
}

fn unreadable(name: &str) -> (String, Allocation) {
    let why = "spec.phase: unknown variant".to_owned();
    let version = harvester_lb_object::Version(9);
    (name.to_owned(), Allocation::Unreadable { version, why })
}

/// The written pools with their status, and the messages about missing objects.
fn planned(read: &Read) -> (Vec<(String, Value)>, Vec<String>) {
    let (exports, lacking) = plan(read, Micros(0));
    let status = |export: Export| {
        let mut patch = export.patch.into_iter().flatten();
        let status = patch.find(|operation| operation["path"] == "/status");
        let status = status.map(|mut operation| operation["value"].take());
        (export.pool, status.unwrap_or_default())
    };
    (exports.into_iter().map(status).collect(), lacking)
}

#[test]
fn pool_5_counters_and_maps_are_computed_from_the_records() {
    let stale = json!({"total": 1, "available": 1, "lastAllocated": "", "allocated": {}});
    let read = Read {
        pools: vec![pool("p", "172.20.1.0/29", &stale)],
        records: vec![
            record("172.20.1.2", "p", "a", "Bound"),
            record("172.20.1.3", "p", "b", "Released"),
        ],
        ..Read::default()
    };
    let (written, lacking) = planned(&read);
    assert!(lacking.is_empty(), "{lacking:?}");
    let [(name, status)] = &written[..] else {
        panic!("{written:?}")
    };
    assert_eq!(name, "p");
    assert_eq!(
        (&status["total"], &status["available"]),
        (&json!(5), &json!(4))
    );
    assert_eq!(status["lastAllocated"], "172.20.1.2");
    assert_eq!(status["allocated"], json!({"172.20.1.2": "shop/a"}));
    assert_eq!(status["allocatedHistory"], json!({"172.20.1.3": "shop/b"}));
}

#[test]
fn pool_5_what_cannot_be_read_is_listed_and_keeps_no_other_away() {
    let none = Value::Null;
    let broken = Pool {
        spec: Err("spec.ranges: missing".to_owned()),
        ..pool("broken", "172.20.3.0/29", &none).1
    };
    let read = Read {
        pools: vec![
            (Key::new("", "broken"), broken),
            pool("p", "172.20.1.0/29", &none),
        ],
        records: vec![
            record("172.20.1.2", "p", "a", "Bound"),
            unreadable("172.20.1.4"),
            // Reserved for later kinds of record, and no address.
            unreadable("later-7"),
            record("172.20.9.2", "gone", "c", "Bound"),
        ],
        ..Read::default()
    };
    let (written, lacking) = planned(&read);
    let names: Vec<&str> = written.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["p"]);
    assert_eq!(written[0].1["allocated"], json!({"172.20.1.2": "shop/a"}));
    let named = |what: &str| lacking.iter().filter(|text| text.contains(what)).count();
    assert_eq!(lacking.len(), 3, "{lacking:?}");
    assert_eq!(named("IPAllocation 172.20.1.4"), 1);
    assert_eq!(named("there is no IPPool gone"), 1);
    assert_eq!(named("IPPool broken"), 1);
}

#[test]
fn ipa_1_a_map_of_somebody_else_that_is_not_recorded_is_left_as_it_is() {
    let theirs = |held: &str| {
        let allocated = json!({held: "shop/a"});
        json!({"total": 5, "available": 4, "lastAllocated": held, "allocated": allocated})
    };
    for (held, is_written) in [("172.20.1.2", true), ("172.20.1.3", false)] {
        let read = Read {
            pools: vec![pool("p", "172.20.1.0/29", &theirs(held))],
            records: vec![record("172.20.1.2", "p", "a", "Bound")],
            ..Read::default()
        };
        let (written, lacking) = planned(&read);
        assert_eq!(written.len() == 1, is_written, "{held}");
        assert_eq!(lacking.is_empty(), is_written, "{held}: {lacking:?}");
    }
}

#[test]
fn pool_5_a_service_that_cannot_be_decoded_is_listed() {
    let error = "spec.ports: not a list".to_owned();
    let invalid = meta::Undecodable {
        error,
        ..meta::Undecodable::default()
    };
    let service = cached::service(Err(invalid)).unwrap();
    let read = Read {
        services: vec![(Key::new("shop", "web"), service)],
        ..Read::default()
    };
    let (_, lacking) = planned(&read);
    assert!(
        matches!(&lacking[..], [one] if one.contains("Service shop/web cannot be decoded") && one.contains("not a list")),
        "{lacking:?}"
    );
}

#[test]
fn shr_9_what_the_go_operator_does_not_know_is_listed() {
    let mut excluding = pool("p", "172.20.1.0/29", &Value::Null);
    let exclude =
        |list: &str| Some([(keys::ANNOTATION_EXCLUDE.to_owned(), list.to_owned())].into());
    excluding.1.meta.annotations = exclude("172.20.1.3");
    let mut plain = pool("q", "172.20.2.0/29", &Value::Null);
    plain.1.meta.annotations = exclude(" , ");
    let lb = |name: &str, annotations: Value| {
        let lb = fixtures::load_balancer("shop", name, "u", &fixtures::vm_spec("web"));
        let mut meta = lb["metadata"].clone();
        meta["annotations"] = annotations;
        serde_json::from_value(meta).unwrap()
    };
    let owners: Vec<Value> = ["web", "api"]
        .map(|name| {
            json!({"apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer", "name": name, "uid": name})
        })
        .into();
    let service =
        json!({"metadata": {"namespace": "shop", "name": "web", "ownerReferences": owners}});
    let service = cached::service(Ok(serde_json::from_value(service).unwrap())).unwrap();
    let read = Read {
        pools: vec![excluding, plain],
        records: vec![
            record("172.20.1.2", "p", "web", "Bound"),
            (
                "dhcp-u".to_owned(),
                Allocation::UnreadableLease("spec.lease is missing".to_owned()),
            ),
        ],
        services: vec![(Key::new("shop", "web"), service)],
        lbs: vec![
            lb("web", json!({})),
            lb("api", json!({keys::ANNOTATION_PRIMARY: "web"})),
            lb("kube-vip", json!({"kube-vip.io/serviceInterface": "eth0"})),
        ],
    };
    let (written, lacking) = planned(&read);
    // The maps are written nevertheless.
    assert_eq!(written.len(), 2);
    for (at, what) in [
        "LoadBalancer shop/api shares an address",
        "Service shop/web has the ports of several load balancers",
        "IPPool p has the annotation loadbalancer.harvesterhci.io/exclude",
        "IPAllocation dhcp-u is a lease",
    ]
    .iter()
    .enumerate()
    {
        assert!(lacking[at].starts_with(what), "{lacking:#?}");
    }
    assert_eq!(lacking.len(), 4, "{lacking:#?}");
}

#[tokio::test]
async fn ops_2_with_allow_incomplete_a_held_lease_is_an_obstacle_and_no_error() {
    let server = FakeApiServer::default();
    let client = server.client();
    assert_eq!(
        may_clear(&client, true, true).await.unwrap(),
        (true, None),
        "no Lease"
    );
    let held = lease("go", &jiff::Timestamp::now().to_string());
    server.put(PATH, serde_json::to_value(held).unwrap());
    let (clears, running) = may_clear(&client, true, true).await.unwrap();
    assert!(!clears);
    assert!(running.unwrap().contains("is held by go"));
    may_clear(&client, false, true).await.unwrap_err();
    assert_eq!(
        may_clear(&client, false, false).await.unwrap(),
        (false, None)
    );
}

#[tokio::test]
async fn ops_2_a_kind_that_does_not_exist_is_an_error_or_named_and_empty() {
    const GROUP: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1";
    let kinds = ["ippools", "ipallocations", "loadbalancers"];
    let stored_pool = stored(fixtures::pool("p", &[range("172.20.1.0/29")]), "u-pool", 7);
    for gone in [
        &kinds[..0],
        &kinds[..1],
        &kinds[1..2],
        &kinds[2..],
        &kinds[..],
    ] {
        let server = FakeApiServer::default();
        server.put("/api/v1/services", json!({"metadata": {}, "items": []}));
        for kind in kinds.iter().filter(|kind| !gone.contains(kind)) {
            let pools = [&stored_pool][..usize::from(*kind == "ippools")].to_vec();
            let list = json!({"metadata": {}, "items": pools});
            server.put(&format!("{GROUP}/{kind}"), list);
        }
        let client = server.client();
        let (found, missing) = read(&client, true).await.unwrap();
        assert_eq!(missing.len(), gone.len(), "{gone:?}: {missing:?}");
        for (kind, said) in gone.iter().zip(&missing) {
            let wanted = format!("kind {} of", kind.trim_end_matches('s'));
            assert!(said.to_lowercase().contains(&wanted), "{kind}: {said}");
        }
        // Without the records its map is left as it is.
        let is_read = !gone.contains(&"ippools") && !gone.contains(&"ipallocations");
        assert_eq!(found.pools.len(), usize::from(is_read), "{gone:?}");
        match read(&client, false).await {
            Ok(_) => assert!(gone.is_empty(), "{gone:?}"),
            Err(error) => {
                let said = error.to_string();
                let does_help = said.contains("`harvester-load-balancer crd`")
                    && said.contains("--allow-incomplete");
                assert!(does_help && !gone.is_empty(), "{gone:?}: {said}");
            }
        }
    }
}

#[tokio::test]
async fn ops_2_a_list_that_fails_otherwise_is_an_error_in_every_case() {
    let client =
        crate::fake::client(|_| std::future::ready(crate::fake::failure(403, "Forbidden")));
    for allow_incomplete in [false, true] {
        let error = read(&client, allow_incomplete).await.err().unwrap();
        let said = format!("{error:#}");
        assert!(said.contains("kind IPPool cannot be listed"), "{said}");
    }
}

#[tokio::test(start_paused = true)]
async fn pool_5_a_pool_that_was_written_meanwhile_is_computed_again() {
    for conflicts in [1, ATTEMPTS] {
        let stored_pool = stored(fixtures::pool("p", &[range("172.20.1.0/29")]), "u-pool", 7);
        let patches = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&patches);
        let client = crate::fake::client(move |request| {
            let items = match request.path.rsplit('/').next() {
                Some("ippools") => vec![stored_pool.clone()],
                _ => Vec::new(),
            };
            let is_patch = request.method == http::Method::PATCH;
            std::future::ready(
                if is_patch && seen.fetch_add(1, Ordering::Relaxed) < conflicts {
                    crate::fake::failure(409, "Conflict")
                } else if is_patch {
                    (200, stored_pool.clone())
                } else {
                    (200, json!({"metadata": {}, "items": items}))
                },
            )
        });
        let lacking = maps(&client, false).await.unwrap();
        let is_written = conflicts < ATTEMPTS;
        assert_eq!(lacking.is_empty(), is_written, "{lacking:?}");
        let wanted = if is_written { conflicts + 1 } else { ATTEMPTS };
        assert_eq!(patches.load(Ordering::Relaxed), wanted);
    }
}
