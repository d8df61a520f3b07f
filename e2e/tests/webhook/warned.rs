//! Annotations that are legal and have no effect, or none yet: the client gets a warning.

use std::sync::Arc;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::webhook::INTERFACE;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, subnet};
use harvester_lb_testkit::eventually;
use serde_json::{Value, json};

use crate::admission::{NS, listeners, namespace};
use crate::stage::{finish, one};
use crate::table::{api, creation, warnings};

/// Exclusions outside of the ranges, a requested address that no pool allocates, an interface that load balancers may not name, and
/// other annotations of kube-vip.
pub async fn exc_1_req_3_kva_1_kva_2_annotations_without_effect_are_warned_about(
    world: Arc<World>,
) -> anyhow::Result<()> {
    const EXCLUDE: &str = keys::ANNOTATION_EXCLUDE;
    const REQUESTED: &str = keys::ANNOTATION_REQUESTED_ADDRESS;
    const NAMED: &str = keys::ANNOTATION_KUBE_VIP_INTERFACE;
    let replica = one(&world).await?;
    namespace(&world, NS, "").await?;
    let withheld = json!({
        "apiVersion": harvester_lb_api::API_VERSION, "kind": "IPPool",
        "metadata": {"name": "withheld", "annotations": {EXCLUDE: "10.24.9.66"}},
        "spec": {"ranges": [subnet("10.24.9.0/24")]},
    });
    world.cluster.apply(&withheld).await?;
    let lbs = api(&world, "LoadBalancer", NS).await?;
    let pools = api(&world, "IPPool", "").await?;
    let ranges = json!({"ranges": [subnet("10.24.10.0/24")]});
    let on_hosts = listeners(&[("a", "TCP", 5432, 8080)]);
    let guest = cluster_spec();
    let rows: Vec<(&str, &Value, Value, Option<&str>)> = vec![
        ("IPPool", &ranges, json!({EXCLUDE: "10.24.10.5"}), None),
        (
            "IPPool",
            &ranges,
            json!({EXCLUDE: "10.24.10.5, 10.24.11.5"}),
            Some("10.24.11.5 is not, or not wholly, in spec.ranges: what lies outside"),
        ),
        (
            "IPPool",
            &ranges,
            json!({EXCLUDE: "10.24.10.250-10.24.11.5"}),
            Some("10.24.10.250-10.24.11.5 is not, or not wholly, in spec.ranges"),
        ),
        (
            "LoadBalancer",
            &guest,
            json!({REQUESTED: "10.24.9.7"}),
            None,
        ),
        (
            "LoadBalancer",
            &guest,
            json!({REQUESTED: "10.24.9.66"}),
            Some(
                "pool withheld: 10.24.9.66 is excluded by its annotation exclude: the load balancer gets no other address",
            ),
        ),
        (
            "LoadBalancer",
            &guest,
            json!({REQUESTED: "10.24.9.1"}),
            Some(
                "pool withheld: 10.24.9.1 is a gateway of its ranges: the load balancer gets no other address",
            ),
        ),
        (
            "LoadBalancer",
            &guest,
            json!({REQUESTED: "10.24.12.7"}),
            Some("no IPPool has 10.24.12.7"),
        ),
        ("LoadBalancer", &on_hosts, json!({NAMED: INTERFACE}), None),
        ("LoadBalancer", &on_hosts, json!({NAMED: ""}), None),
        (
            "LoadBalancer",
            &on_hosts,
            json!({NAMED: "eth0"}),
            Some("is not an interface that load balancers may name; allowed are vlan20"),
        ),
        (
            "LoadBalancer",
            &on_hosts,
            json!({"kube-vip.io/forcePerServiceElection": "true"}),
            None,
        ),
        (
            "LoadBalancer",
            &on_hosts,
            json!({"kube-vip.io/egress": "true"}),
            Some("annotation kube-vip.io/egress: ignored on a LoadBalancer"),
        ),
        // Of cluster type the hosts announce nothing.
        ("LoadBalancer", &guest, json!({NAMED: "eth0"}), None),
    ];
    for (kind, spec, annotations, wanted) in rows {
        let api = if kind == "IPPool" { &pools } else { &lbs };
        let metadata = json!({"name": "row", "annotations": annotations});
        // The webhook learns of the pool by its watch.
        eventually(&format!("{metadata}: {wanted:?}"), SOON, || async {
            let request = creation(api, kind, &metadata, spec)?;
            let found = warnings(&world, request).await?;
            let is_right = match wanted {
                None => found.is_empty(),
                Some(text) => matches!(&found[..], [only] if only.contains(text)),
            };
            ensure!(is_right, "{found:?}");
            Ok(Some(()))
        })
        .await?;
    }
    finish(&world, &[&replica]).await
}
