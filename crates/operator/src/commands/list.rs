//! Lists all objects of a kind, for commands that read everything once.

use std::fmt::Debug;

use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// Objects per request: what kube-runtime asks for too. A page of load balancers takes about a megabyte.
const PAGE: u32 = 500;
/// Requests at a time of a command that writes many objects: 60,000 one after the other would outlast a hook of Helm.
pub(super) const WRITERS: usize = 16;
/// How often a list is begun. A list that takes longer than the API server keeps its version (5 min) must begin again, and
/// one request in thousands may fail.
const ATTEMPTS: usize = 3;

/// Lists a kind, and keeps the objects that are wanted, without the fields that are not used. Each is decoded separately, so one that is
/// invalid does not fail the list.
pub(super) async fn list<K>(
    client: &Client,
    mut is_wanted: impl FnMut(&DecodeGuard<K>) -> bool,
) -> Result<Vec<DecodeGuard<K>>, WriteError>
where
    K: Resource<DynamicType = ()> + Clone + Debug + DeserializeOwned,
{
    let keep = |mut object: DecodeGuard<K>| {
        is_wanted(&object).then(|| {
            prune(object.meta_mut());
            object
        })
    };
    pages(&Api::all(client.clone()), keep).await
}

/// Lists a kind page by page, and returns what is kept of its objects.
pub(super) async fn pages<T>(
    api: &Api<T>,
    mut keep: impl FnMut(T) -> Option<T>,
) -> Result<Vec<T>, WriteError>
where
    T: Clone + Debug + DeserializeOwned,
{
    let mut attempt = 1;
    'again: loop {
        let mut all = Vec::new();
        let mut params = ListParams::default().limit(PAGE);
        loop {
            let page = match bounded(api.list(&params)).await {
                Ok(page) => page,
                Err(WriteError::Unavailable(_)) if attempt < ATTEMPTS => {
                    attempt += 1;
                    continue 'again;
                }
                Err(error) => return Err(error),
            };
            all.extend(page.items.into_iter().filter_map(&mut keep));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => params = params.continue_token(&token),
                None => return Ok(all),
            }
        }
    }
}

/// Drops what is large and not read: managed fields, and the last configuration that kubectl applied.
fn prune(meta: &mut ObjectMeta) {
    meta.managed_fields = None;
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
}
