//! Lives of LoadBalancers: created, deleted and recreated, many concurrently, derived from a seed.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context;
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_api::LoadBalancer;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::world::World;

/// Concurrent creates: more than the operator has workers, so that it cannot keep up.
const AT_A_TIME: usize = 48;

/// A step in the life of one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Created, if it is not there.
    Create,
    /// Deleted, if it is there.
    Delete,
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
    /// The steps.
    pub steps: Vec<Step>,
}

/// Runs all lives concurrently in a namespace. Returns the number of created LoadBalancers.
pub async fn live(world: &World, namespace: &str, lives: Vec<Life>) -> anyhow::Result<usize> {
    let (made, turns) = (AtomicUsize::new(0), Semaphore::new(AT_A_TIME));
    let all = lives.len().max(1);
    stream::iter(lives)
        .map(|life| {
            let (api, made, turns) = (world.lbs(namespace), &made, &turns);
            async move {
                for step in &life.steps {
                    match step {
                        Step::Wait(time) => tokio::time::sleep(*time).await,
                        Step::Create => {
                            let _turn = turns.acquire().await?;
                            let new = create(&api, &life.name, &life.spec).await?;
                            made.fetch_add(usize::from(new), Ordering::Relaxed);
                        }
                        // Without a retry: the point is how soon it comes after the create.
                        Step::Delete => _ = delete(&api, &life.name).await?,
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

/// Creates a load balancer, if it is not there. Whether it was.
pub async fn create(api: &Api<LoadBalancer>, name: &str, spec: &Value) -> anyhow::Result<bool> {
    let lb = json!({"metadata": {"name": name}, "spec": spec});
    let lb: LoadBalancer = serde_json::from_value(lb).context("no load balancer")?;
    match api.create(&PostParams::default(), &lb).await {
        Ok(_) => Ok(true),
        Err(kube::Error::Api(status)) if status.is_already_exists() => Ok(false),
        Err(error) => Err(error).context("create"),
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
