//! Before the objects of the Go operator are imported.

use super::api_server::served;
use super::*;

const OURS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1";

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
