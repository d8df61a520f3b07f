//! Live reads of the few objects that a store may lack although they exist: a Namespace or a network that was created just
//! before the request that names it. Bounded in number and time, because a request of a tenant causes them.

use std::time::Duration;

use harvester_lb_api::cni::NetworkAttachmentDefinition;
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_core::admission::{Fact, Lookup};
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::args::webhook::is_dns_label;
use crate::webhook::facts::{Live, project, vlan_id};

/// Concurrent reads.
const AT_A_TIME: usize = 8;
/// Time limit of a read, the wait for its turn included: well below the time in which the API server expects the answer.
const LIMIT: Duration = Duration::from_secs(2);
/// Longest name of an object.
const NAME_LIMIT: usize = 253;

/// The reader.
pub struct LiveReads {
    client: Client,
    turns: Semaphore,
}

impl LiveReads {
    /// A reader that uses this client.
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            turns: Semaphore::const_new(AT_A_TIME),
        }
    }

    /// Reads what a decision lacks. Returns whether it was read now: not if no live read can supply the fact, or if it was
    /// read before.
    pub async fn read(&self, fact: &Fact, live: &mut Live) -> bool {
        match fact {
            Fact::Namespace(name) if !live.namespaces.contains_key(name) => {
                let found = self.namespace(name).await;
                live.namespaces.insert(name.clone(), found);
                true
            }
            Fact::NetworkAttachmentDefinition(namespace, name) => {
                let id = (namespace.clone(), name.clone());
                if live.networks.contains_key(&id) {
                    return false;
                }
                let found = self.network(namespace, name).await;
                live.networks.insert(id, found);
                true
            }
            _ => false,
        }
    }

    async fn namespace(&self, name: &str) -> Lookup<String> {
        // It becomes part of a path: anything else is no name of an object.
        if !is_dns_label(name) {
            return Lookup::NotFound;
        }
        let api: Api<DecodeGuard<Namespace>> = Api::all(self.client.clone());
        let found = self.bounded(api.get_opt(name)).await;
        lookup(found.map(|found| found.map(|guard| project(guard.0))))
    }

    async fn network(&self, namespace: &str, name: &str) -> Lookup<Result<i64, String>> {
        if !is_dns_label(namespace) || !is_object_name(name) {
            return Lookup::NotFound;
        }
        let client = self.client.clone();
        let api: Api<DecodeGuard<NetworkAttachmentDefinition>> = Api::namespaced(client, namespace);
        let found = self.bounded(api.get_opt(name)).await;
        lookup(found.map(|found| found.map(|guard| vlan_id(guard.0))))
    }

    async fn bounded<T>(
        &self,
        request: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, WriteError> {
        let read = async {
            // The semaphore is never closed.
            let _turn = self.turns.acquire().await;
            bounded(request).await
        };
        timeout(LIMIT, read).await.unwrap_or_else(|_| {
            let text = format!("no answer within {} s", LIMIT.as_secs());
            Err(WriteError::Unavailable(text))
        })
    }
}

fn lookup<T>(found: Result<Option<T>, WriteError>) -> Lookup<T> {
    match found {
        Ok(Some(value)) => Lookup::Found(value),
        // The kind itself may be missing, which is the same.
        Ok(None) | Err(WriteError::NotFound(_)) => Lookup::NotFound,
        Err(error) => Lookup::Failed(error.to_string()),
    }
}

/// Whether a text is a DNS subdomain (RFC 1123), as names of most objects are.
fn is_object_name(text: &str) -> bool {
    text.len() <= NAME_LIMIT && text.split('.').all(is_dns_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wm_5_only_names_of_objects_become_part_of_a_path() {
        for name in ["v20", "a.b-c.d9"] {
            assert!(is_object_name(name), "{name}");
        }
        for name in ["", ".", "a/b", "a..b", "..", "A", "a?x=y", "a%2fb", "a\nb"] {
            assert!(!is_object_name(name), "{name}");
        }
        assert!(!is_object_name(&["a"; 127].join(".").repeat(2)));
    }
}
