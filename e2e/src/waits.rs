//! What is waited for in a [`World`]: objects as they should be, objects that are gone, Events; and the next second.

use std::time::Duration;

use anyhow::{Context, bail};
use harvester_lb_api::{IPPool, LoadBalancer, keys};
use harvester_lb_testkit::eventually;
use jiff::Timestamp;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::Api;
use kube::api::ListParams;
use serde_json::Value;

use crate::read::{allocated, endpoints, ready};
use crate::world::{SOON, World};

/// Waits until the clock shows another second. Creation times and times of conditions have a resolution of a second, so
/// whatever is created or changed now is younger than what was there before.
pub async fn next_second() {
    let before = Timestamp::now().as_second();
    loop {
        let now = Timestamp::now();
        if now.as_second() > before {
            return;
        }
        let passed = u32::try_from(now.subsec_nanosecond()).unwrap_or_default();
        let left = Duration::from_secs(1).saturating_sub(Duration::from_nanos(passed.into()));
        tokio::time::sleep(left).await;
    }
}

impl World {
    /// Waits until a load balancer is as wanted, and answers it.
    pub async fn lb_until(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&LoadBalancer) -> bool,
    ) -> anyhow::Result<LoadBalancer> {
        let api = self.lbs(namespace);
        until(
            &api,
            &format!("LoadBalancer {namespace}/{name}: {what}"),
            name,
            wanted,
        )
        .await
    }

    /// Waits until a load balancer's condition Ready has this reason.
    pub async fn lb_reason(
        &self,
        namespace: &str,
        name: &str,
        reason: &str,
    ) -> anyhow::Result<LoadBalancer> {
        self.lb_until(namespace, name, reason, |lb| {
            ready(lb).is_some_and(|(_, r, _)| r == reason)
        })
        .await
    }

    /// Waits until a load balancer has an allocated address, and answers that.
    pub async fn lb_address(&self, namespace: &str, name: &str) -> anyhow::Result<String> {
        let lb = self
            .lb_until(namespace, name, "an address", |lb| allocated(lb).is_some())
            .await?;
        allocated(&lb).context("the address is gone")
    }

    /// Waits until a pool is as wanted, and answers it.
    pub async fn pool_until(
        &self,
        name: &str,
        what: &str,
        wanted: impl Fn(&IPPool) -> bool,
    ) -> anyhow::Result<IPPool> {
        until(
            &self.pools(),
            &format!("IPPool {name}: {what}"),
            name,
            wanted,
        )
        .await
    }

    /// Waits until the annotation that asks for a manual release is taken off a pool.
    pub async fn manual_release_done(&self, pool: &str) -> anyhow::Result<()> {
        let key = keys::ANNOTATION_MANUALLY_RELEASE_IP;
        self.pool_until(pool, "the manual release is dealt with", |pool| {
            let all = pool.metadata.annotations.as_ref();
            all.is_none_or(|a| !a.contains_key(key))
        })
        .await
        .map(|_| ())
    }

    /// Waits until the ready addresses of an EndpointSlice are these, the stand-in included.
    pub async fn ready_endpoints(
        &self,
        namespace: &str,
        name: &str,
        wanted: &[&str],
    ) -> anyhow::Result<EndpointSlice> {
        let what = format!("EndpointSlice {namespace}/{name}: ready {wanted:?}");
        until(&self.slices(namespace), &what, name, |slice| {
            endpoints(slice, true) == wanted
        })
        .await
    }

    /// Waits until there is no object of the name.
    pub async fn gone<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        eventually(&format!("{name} is gone"), SOON, || async {
            Ok(api.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until the garbage collector has deleted the object of the name. It learns of a kind that is new to the API server,
    /// as ours are at the beginning, within half a minute.
    pub async fn collected<K>(&self, api: &Api<K>, name: &str) -> anyhow::Result<()>
    where
        K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
    {
        eventually(&format!("{name} is collected"), 2 * SOON, || async {
            Ok(api.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Messages of the Events about an object, as `reason: note`.
    pub async fn events(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
    ) -> anyhow::Result<Vec<String>> {
        let api: Api<k8s_openapi::api::events::v1::Event> =
            Api::namespaced(self.client(), namespace);
        let all = api.list(&ListParams::default()).await?;
        Ok(all
            .into_iter()
            .filter(|e| {
                e.regarding.as_ref().is_some_and(|r| {
                    r.kind.as_deref() == Some(kind) && r.name.as_deref() == Some(name)
                })
            })
            .map(|e| {
                format!(
                    "{}: {}",
                    e.reason.unwrap_or_default(),
                    e.note.unwrap_or_default()
                )
            })
            .collect())
    }

    /// Waits for an Event about an object that holds the text.
    pub async fn event(
        &self,
        namespace: &str,
        kind: &str,
        name: &str,
        text: &str,
    ) -> anyhow::Result<()> {
        eventually(
            &format!("an Event about {kind} {name} with {text:?}"),
            SOON,
            || async {
                let all = self.events(namespace, kind, name).await?;
                if all.iter().any(|e| e.contains(text)) {
                    return Ok(Some(()));
                }
                bail!("there are {all:?}")
            },
        )
        .await
    }
}

async fn until<K>(
    api: &Api<K>,
    what: &str,
    name: &str,
    wanted: impl Fn(&K) -> bool,
) -> anyhow::Result<K>
where
    K: Clone + serde::de::DeserializeOwned + serde::Serialize + std::fmt::Debug,
{
    eventually(what, SOON, || async {
        let object = api.get(name).await?;
        if wanted(&object) {
            return Ok(Some(object));
        }
        let mut seen = serde_json::to_value(&object)?;
        seen["metadata"]["managedFields"] = Value::Null;
        bail!("it is {seen}")
    })
    .await
}
