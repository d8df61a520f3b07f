use harvester_lb_api::keys;
use serde_json::json;

use super::*;
use crate::cached::tests::object;

#[test]
fn gc_1_of_the_labels_of_a_load_balancer_its_guest_cluster_is_kept() {
    for (cluster, kept) in [(Some("gc"), Some("gc")), (Some(""), None), (None, None)] {
        let mut labels = json!({"app": "x"});
        if let Some(cluster) = cluster {
            labels[keys::LABEL_CLOUDPROVIDER_CLUSTER] = json!(cluster);
        }
        let meta = json!({"name": "web", "labels": labels});
        let lb = Lb::from_watch(Ok(object(json!({"metadata": meta, "spec": {}}))));
        let Lb::Valid(lb) = lb else {
            panic!("not decoded")
        };
        assert_eq!(lb.guest_cluster.as_deref(), kept);
        assert_eq!(lb.metadata.labels, None);
    }
}
