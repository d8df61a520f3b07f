//! Live reads of the few objects that a store may lack although they exist: a Namespace or a network that was created just
//! before the request that names it; and of the load balancers of a namespace, which no store has (SHR-1, SHR-9). Bounded in
//! number, size and time, because a request of a tenant causes them.

use std::time::Duration;

use harvester_lb_api::LoadBalancer;
use harvester_lb_api::cni::NetworkAttachmentDefinition;
use harvester_lb_controller_kit::decode_guard::{DecodeGuard, decode};
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_core::admission::{Fact, Lookup, Neighbours};
use harvester_lb_object::{is_dns_label, is_dns_subdomain};
use http_body_util::{BodyExt, Limited};
use hyper::StatusCode;
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::ListParams;
use kube::client::Body;
use kube::core::Request;
use kube::{Api, Client};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tracing::debug;

use crate::webhook::facts::{Live, project, vlan_id};

/// Concurrent reads of one object.
const AT_A_TIME: usize = 8;
/// Concurrent lists of load balancers.
const LISTS_AT_A_TIME: usize = 2;
/// Load balancers in a list. What is beyond is not known, and not warned about.
const LIST_ITEMS: u32 = 500;
/// Largest list, in bytes: several times what so many ordinary load balancers take.
const LIST_BYTES: usize = 4 * 1024 * 1024;
/// Time limit of a read, the wait for its turn included: well below the time in which the API server expects the answer.
const LIMIT: Duration = Duration::from_secs(2);

/// The reader.
pub struct LiveReads {
    client: Client,
    turns: Semaphore,
    list_turns: Semaphore,
}

impl LiveReads {
    /// A reader that uses this client.
    pub const fn new(client: Client) -> Self {
        Self {
            client,
            turns: Semaphore::const_new(AT_A_TIME),
            list_turns: Semaphore::const_new(LISTS_AT_A_TIME),
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
            Fact::LoadBalancers(namespace) if !live.neighbours.contains_key(namespace) => {
                let found = self.neighbours(namespace).await;
                live.neighbours.insert(namespace.clone(), found);
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
        let found = in_turn(&self.turns, bounded(api.get_opt(name))).await;
        lookup(found.map(|found| found.map(|guard| project(guard.0))))
    }

    async fn network(&self, namespace: &str, name: &str) -> Lookup<Result<i64, String>> {
        if !is_dns_label(namespace) || !is_dns_subdomain(name) {
            return Lookup::NotFound;
        }
        let client = self.client.clone();
        let api: Api<DecodeGuard<NetworkAttachmentDefinition>> = Api::namespaced(client, namespace);
        let found = in_turn(&self.turns, bounded(api.get_opt(name))).await;
        lookup(found.map(|found| found.map(|guard| vlan_id(guard.0))))
    }

    async fn neighbours(&self, namespace: &str) -> Lookup<Neighbours> {
        if !is_dns_label(namespace) {
            return Lookup::NotFound;
        }
        let api: Api<LoadBalancer> = Api::namespaced(self.client.clone(), namespace);
        let read = list(&self.client, api.resource_url());
        match in_turn(&self.list_turns, read).await {
            Ok(neighbours) => Lookup::Found(neighbours),
            Err(error) => {
                let error = error.to_string();
                debug!(
                    namespace,
                    error, "load balancers not read, nothing is warned about"
                );
                Lookup::Failed(error)
            }
        }
    }
}

/// A read, once it is its turn, within [`LIMIT`].
async fn in_turn<T>(
    turns: &Semaphore,
    read: impl Future<Output = Result<T, WriteError>>,
) -> Result<T, WriteError> {
    let read = async {
        // The semaphore is never closed.
        let _turn = turns.acquire().await;
        read.await
    };
    timeout(LIMIT, read).await.unwrap_or_else(|_| {
        let text = format!("no answer within {} s", LIMIT.as_secs());
        Err(WriteError::Unavailable(text))
    })
}

/// The first load balancers at this path. The answer is read up to [`LIST_BYTES`], which the client's own list would not be.
async fn list(client: &Client, path: &str) -> Result<Neighbours, WriteError> {
    let unusable = |error: &dyn std::fmt::Display| WriteError::Unavailable(error.to_string());
    let params = ListParams::default().limit(LIST_ITEMS);
    let request = Request::new(path).list(&params);
    let request = request.map_err(|error| unusable(&error))?;
    let answer = client.send(request.map(Body::from)).await;
    let answer = answer.map_err(|error| unusable(&error))?;
    match answer.status() {
        StatusCode::OK => {}
        status => return Err(WriteError::Refused(status.to_string())),
    }
    let body = Limited::new(answer.into_body(), LIST_BYTES).collect().await;
    let body = body.map_err(|error| unusable(&error))?.to_bytes();
    let list: List<'_> = serde_json::from_slice(&body).map_err(|error| unusable(&error))?;
    let is_complete = list.metadata.continue_.is_none_or(|token| token.is_empty());
    // The API server rules out that metadata cannot be read.
    let items = list.items.iter().filter_map(|text| decode(text.get()).ok());
    Ok(Neighbours::new(items, is_complete))
}

/// A list whose items are decoded one by one, so that not all of them are in memory as a whole.
#[derive(Deserialize)]
struct List<'a> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(borrow)]
    items: Vec<&'a RawValue>,
}

fn lookup<T>(found: Result<Option<T>, WriteError>) -> Lookup<T> {
    match found {
        Ok(Some(value)) => Lookup::Found(value),
        // The kind itself may be missing, which is the same.
        Ok(None) | Err(WriteError::NotFound(_)) => Lookup::NotFound,
        Err(error) => Lookup::Failed(error.to_string()),
    }
}

#[cfg(test)]
mod tests;
