//! Notices a restore of etcd from a backup (RUN-3) in a process to which nothing else tells it. Watches do not: they resume from
//! versions that the restored etcd has yet to reach, and are silent until then. A Lease does, but the webhook has none, and the
//! backup may be older than that of another process.
//!
//! The version of a consistent list is that of the storage, which only a restore sets back. So one kind that is watched is
//! listed now and then, and the version of the list compared with what was known of that kind before.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_api::IPAllocation;
use harvester_lb_controller_kit::Restored;
use harvester_lb_controller_kit::store::Store;
use harvester_lb_controller_kit::writer::bounded;
use harvester_lb_object::Version;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use tracing::debug;

/// Lists IPAllocations each `interval`, until the answer proves that etcd was restored. They are the kind that operator, webhook
/// and DHCP process all watch, into `store`, and one of them is small. A second list has to confirm it. A request that fails, or is not
/// answered in time, proves nothing.
///
/// A restore is missed if the restored etcd reaches the version of before within an interval: if the backup is as recent as
/// that. Its watches then go on from there, and may have missed what came in between.
pub(super) async fn run<V>(client: Client, store: Arc<Store<V>>, interval: Duration) -> Restored {
    let all: Api<IPAllocation> = Api::all(client);
    // One object: its version is that of the list. Without a resourceVersion the list is consistent.
    let params = ListParams::default().limit(1);
    let kind = IPAllocation::kind(&());
    // The version of the last list is that of objects of all kinds, and newer than the last change of a quiet one.
    let mut listed = Version::default();
    let mut is_suspected = false;
    loop {
        if !is_suspected {
            tokio::time::sleep(interval).await;
        }
        let known = store.newest_watched().max(listed);
        match bounded(all.list_metadata(&params)).await {
            Ok(list) => {
                let version = list.metadata.resource_version;
                let proof = Restored::proven_by_list(&kind, known, version.as_deref());
                match proof {
                    Some(proof) if is_suspected => return proof,
                    proof => is_suspected = proof.is_some(),
                }
                listed = listed.max(Version::parse(version.as_deref()));
            }
            Err(error) => {
                is_suspected = false;
                debug!(%error, "not checked whether etcd was restored");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use harvester_lb_controller_kit::decode_guard::DecodeGuard;
    use harvester_lb_controller_kit::watch;
    use kube::runtime::watcher::Event;
    use parking_lot::Mutex;
    use serde_json::json;
    use tokio::time::Instant;

    use super::*;
    use crate::fake::{self, failure};

    const INTERVAL: Duration = Duration::from_mins(1);

    /// A list, as the API server answers to it.
    enum List {
        At(&'static str),
        Refused,
        Unanswered,
        /// At this version; meanwhile the watch delivers an object at another one.
        While(&'static str, u64),
    }

    /// The watch delivers an object at this version.
    fn deliver(store: &Store<()>, version: u64) {
        let object: IPAllocation = serde_json::from_value(json!({
            "metadata": {"name": "10.0.0.1", "resourceVersion": version.to_string()},
            "spec": {
                "address": "10.0.0.1", "pool": "p", "phase": "Released",
                "owner": {"namespace": "n", "name": "a", "uid": "u"},
            },
        }))
        .unwrap();
        let event = Event::Apply(DecodeGuard(Ok(object)));
        let _ = watch::deliver(event, store, &|_| Some(()), &|_, _| {});
    }

    /// The proof after these lists, of a process whose watch has delivered an object at the version 50, and the time until then. No
    /// list after them may be requested.
    async fn proof(lists: Vec<List>) -> (Restored, Duration) {
        let store = Arc::new(Store::default());
        deliver(&store, 50);
        let (lists, watching) = (Mutex::new(lists.into_iter()), Arc::clone(&store));
        let client = fake::client(move |request| {
            assert_eq!(request.query, "limit=1", "consistent, and one object");
            assert!(request.of_metadata && request.path.ends_with("/ipallocations"));
            let list = lists.lock().next().unwrap();
            let watching = Arc::clone(&watching);
            async move {
                let version = match list {
                    List::At(version) => version,
                    List::Refused => return failure(403, "Forbidden"),
                    List::Unanswered => std::future::pending().await,
                    List::While(version, delivered) => {
                        deliver(&watching, delivered);
                        version
                    }
                };
                (
                    200,
                    json!({"metadata": {"resourceVersion": version}, "items": []}),
                )
            }
        });
        let began = Instant::now();
        let proof = run(client, store, INTERVAL).await;
        (proof, began.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn run_3_a_list_older_than_what_the_watch_has_delivered_ends_the_process() {
        let (proof, after) = proof(vec![List::At("40"), List::At("40")]).await;
        assert_eq!((proof.was, proof.now), (Version(50), Version(40)));
        assert_eq!(after, INTERVAL);
    }

    #[tokio::test(start_paused = true)]
    async fn run_3_a_list_older_than_the_one_before_ends_the_process() {
        let lists = vec![
            List::At("50"),
            List::Refused,
            List::At("a version that is no number"),
            // What is delivered while it is on its way may be newer.
            List::While("80", 90),
            List::Unanswered,
            List::At("100"),
            List::At("95"),
            List::At("95"),
        ];
        // The last confirms the one before at once.
        let count = u32::try_from(lists.len() - 1).unwrap();
        let (proof, after) = proof(lists).await;
        assert_eq!((proof.was, proof.now), (Version(100), Version(95)));
        let limit = Duration::from_secs(15);
        assert_eq!(after, INTERVAL * count + limit, "the time limit of one");
    }
}
