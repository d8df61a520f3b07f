//! Lives of LoadBalancers: created, annotated, deleted and recreated, many concurrently, derived from a seed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_fixtures::{cluster_spec, vm_spec};
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::world::World;

/// Concurrent creates: more than the operator has workers, so that it cannot keep up.
const AT_A_TIME: usize = 48;

/// A step in the life of one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Created, if it is not there.
    Create,
    /// Deleted, if it is there.
    Delete,
    /// Names the group whose address it shares, or none, if it is there (SHR-7).
    Share(Option<String>),
    /// A pause.
    Wait(Duration),
}

/// One name and its steps, in order.
#[derive(Clone, Debug)]
pub struct Life {
    /// The LoadBalancer's name.
    pub name: String,
    /// Its spec.
    pub spec: Value,
    /// Its annotations when it is created.
    pub annotations: Value,
    /// The steps.
    pub steps: Vec<Step>,
}

/// A member of a group, without steps. The first one has its name and the others name it; each has a port of its own.
pub fn member(group: &str, number: u8, is_vm: bool) -> Life {
    let (name, annotations) = match number {
        0 => (group.to_owned(), json!({})),
        _ => (format!("{group}-{number}"), sharing(group)),
    };
    let mut spec = cluster_spec();
    if is_vm {
        spec = vm_spec("web");
        spec["listeners"][0]["port"] = json!(80 + u16::from(number));
    }
    Life {
        name,
        spec,
        annotations,
        steps: Vec::new(),
    }
}

/// The annotations of one that shares the address of a group.
pub fn sharing(group: &str) -> Value {
    json!({keys::ANNOTATION_PRIMARY: group})
}

/// Runs all lives concurrently in a namespace. Returns the number of created LoadBalancers.
pub async fn live(world: &World, namespace: &str, lives: Vec<Life>) -> anyhow::Result<usize> {
    let (made, turns) = (AtomicUsize::new(0), Semaphore::new(AT_A_TIME));
    let all = lives.len().max(1);
    stream::iter(lives)
        .map(|life| {
            let (api, made, turns) = (world.lbs(namespace), &made, &turns);
            async move {
                let life = &life;
                for step in &life.steps {
                    match step {
                        Step::Wait(time) => tokio::time::sleep(*time).await,
                        Step::Create => {
                            let _turn = turns.acquire().await?;
                            let new = create(&api, life).await?;
                            made.fetch_add(usize::from(new), Ordering::Relaxed);
                        }
                        // Without a retry: the point is how soon it comes after the create.
                        Step::Delete => _ = delete(&api, &life.name).await?,
                        Step::Share(group) => share(&api, &life.name, group.as_deref()).await?,
                    }
                }
                anyhow::Ok(())
            }
        })
        .buffer_unordered(all)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(made.into_inner())
}

/// Creates the LoadBalancer of a life, if it is not there. Returns whether it was created.
pub async fn create(api: &Api<LoadBalancer>, life: &Life) -> anyhow::Result<bool> {
    let metadata = json!({"name": life.name, "annotations": life.annotations});
    let lb = json!({"metadata": metadata, "spec": life.spec});
    let lb: LoadBalancer = serde_json::from_value(lb).context("no load balancer")?;
    match api.create(&PostParams::default(), &lb).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(error).context("create"),
    }
}

/// Writes the group whose address a LoadBalancer shares, if it exists.
async fn share(api: &Api<LoadBalancer>, name: &str, group: Option<&str>) -> anyhow::Result<()> {
    let patch = json!({"metadata": {"annotations": {keys::ANNOTATION_PRIMARY: group}}});
    let params = PatchParams::default();
    match api
        .patch_metadata(name, &params, &Patch::Merge(patch))
        .await
    {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(()),
        Err(error) => Err(error).context("share"),
    }
}

/// Deletes a LoadBalancer, if it exists. Returns whether it did.
pub async fn delete(api: &Api<LoadBalancer>, name: &str) -> anyhow::Result<bool> {
    match api.delete(name, &DeleteParams::default()).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_not_found() => Ok(false),
        Err(error) => Err(error).context("delete"),
    }
}

/// A random number of milliseconds below a limit.
pub fn below(rng: &mut fastrand::Rng, limit: u64) -> Duration {
    Duration::from_millis(rng.u64(0..limit.max(1)))
}
