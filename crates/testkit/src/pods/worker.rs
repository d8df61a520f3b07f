//! Owns the life of one Pod on its node: network and volumes, its containers, the reports of its status, its end.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::future::join_all;
use k8s_openapi::api::core::v1::{Pod, PodStatus};
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{OnceCell, watch};
use tokio::time::sleep;

use super::container::{Life, Prepared};
use super::context::{PodContext, Seen};
use super::etc;
use super::fields::Addresses;
use super::host::{Host, LivePod, Machine};
use super::network::PodNetwork;
use super::sources::Sources;
use super::state::PodState;
use super::status::status;
use super::supported;
use super::volumes::Volumes;

/// Pause after a failed request, and while something is missing that the Pod needs.
const RETRY: Duration = Duration::from_millis(500);

/// The task of one Pod.
struct Worker {
    context: PodContext,
    /// Made once, and kept while the node has no power.
    prepared: OnceCell<Prepared>,
    /// The status that the API server has.
    reported: Mutex<Option<PodStatus>>,
}

/// Runs a Pod on a node until its object is gone.
pub(crate) async fn run(
    host: Arc<Host>,
    machine: Arc<Machine>,
    pod: Arc<Pod>,
    seen: watch::Receiver<Seen>,
) {
    let spec = pod.spec.clone().unwrap_or_default();
    let init = spec.init_containers.iter().flatten().count();
    let state = PodState::new(init, spec.containers.len(), Timestamp::now());
    let uid = pod.uid().unwrap_or_default();
    let worker = Worker {
        context: PodContext {
            key: (pod.namespace().unwrap_or_default(), pod.name_any()),
            scratch: host.scratch.join(&uid),
            host,
            machine,
            pod,
            spec,
            uid,
            seen,
            state: watch::Sender::new(state),
        },
        prepared: OnceCell::new(),
        reported: Mutex::default(),
    };
    worker.live().await;
}

impl Worker {
    /// A node without power does nothing, not even report; with power again it starts its Pods again.
    async fn live(&self) {
        let context = &self.context;
        let mut power = context.machine.power.subscribe();
        loop {
            tokio::select! {
                _ = power.wait_for(|on| *on) => {}
                () = context.gone() => return,
            }
            tokio::select! {
                () = self.powered() => return,
                _ = power.wait_for(|on| !on) => {
                    let now = Timestamp::now();
                    let again = context.spec.restart_policy.as_deref() != Some("Never");
                    context.state.send_modify(|state| state.power_lost(again, now));
                    self.forget();
                }
            }
        }
    }

    async fn powered(&self) {
        let life = async {
            self.run_containers().await;
            // A Job's Pod remains until it is deleted.
            self.context.end_asked().await;
            self.forget();
            self.delete().await;
        };
        tokio::select! {
            () = life => {}
            () = self.report_changes() => {}
        }
    }

    /// Runs all containers until they have ended for good.
    async fn run_containers(&self) {
        let context = &self.context;
        if let Some(problem) = supported::problem(&context.spec) {
            let message = format!("the Pod runner does not support: {problem}");
            context.state.send_modify(|state| state.blocked(&message));
            // Not failed: a controller would make another Pod at once, and so on.
            context.end_asked().await;
            return;
        }
        let prepared = loop {
            // Not before the first look: the runner may have been started after the Pod was deleted.
            if context.pause(Duration::ZERO).await {
                return;
            }
            match self.prepared().await {
                Ok(prepared) => break prepared,
                Err(error) => {
                    let message = format!("{error:#}");
                    context.state.send_modify(|state| state.blocked(&message));
                    if context.pause(RETRY).await {
                        return;
                    }
                }
            }
        };
        let Prepared {
            addresses,
            volumes,
            sources,
            ..
        } = prepared;
        tokio::select! {
            () = self.run_in_order(prepared) => {}
            () = volumes.follow(&context.pod, *addresses, sources) => {}
        }
    }

    /// Init containers one after another, then all others at once.
    async fn run_in_order(&self, prepared: &Prepared) {
        let pod = &self.context;
        let init = pod.spec.init_containers.as_deref().unwrap_or_default();
        let life = |(index, container), init| Life {
            pod,
            prepared,
            container,
            index,
            init,
        };
        for place in init.iter().enumerate() {
            if !life(place, true).run().await {
                return;
            }
        }
        pod.state.send_modify(|state| state.initialized = true);
        let containers = pod.spec.containers.iter().enumerate();
        let containers = containers.map(|(index, container)| (init.len() + index, container));
        let lives: Vec<Life<'_>> = containers.map(|place| life(place, false)).collect();
        join_all(lives.iter().map(Life::run)).await;
    }

    /// Network, volumes and files of the Pod; volumes are brought up to date each time.
    async fn prepared(&self) -> anyhow::Result<&Prepared> {
        let context = &self.context;
        let prepared = self.prepared.get_or_try_init(|| self.prepare()).await?;
        let Prepared {
            network,
            addresses,
            volumes,
            sources,
            ..
        } = prepared;
        volumes.write(&context.pod, *addresses, sources).await?;
        let live = LivePod {
            uid: context.uid.clone(),
            machine: Arc::clone(&context.machine),
            netns: network.netns.clone(),
            address: network.address,
            running: std::collections::BTreeMap::new(),
        };
        context.host.live.lock().insert(context.key.clone(), live);
        let address = Some(network.address);
        context.state.send_modify(|state| state.address = address);
        Ok(prepared)
    }

    async fn prepare(&self) -> anyhow::Result<Prepared> {
        let context = &self.context;
        let volumes = Volumes::of(&context.pod, context.scratch.join("volumes"))?;
        let machine = Arc::clone(&context.machine);
        let network = if context.spec.host_network == Some(true) {
            PodNetwork::of_node(&machine)
        } else {
            let made = tokio::task::spawn_blocking(move || PodNetwork::create(&machine));
            made.await?.context("network of the Pod")?
        };
        let folder = context.scratch.join("etc");
        std::fs::create_dir_all(&folder)?;
        let (host_name, namespace) = (context.host_name(), &context.key.0);
        let server = context.host.name_server;
        let files = etc::files(
            &context.spec,
            namespace,
            &host_name,
            network.address,
            server,
        );
        Ok(Prepared {
            addresses: Addresses {
                pod: network.address,
                host: context.machine.address,
            },
            etc: etc::write(&files, &folder)?,
            network,
            volumes,
            sources: Sources::new(context.host.client.clone(), &context.pod),
        })
    }

    /// Reports the status whenever it has changed; never returns.
    async fn report_changes(&self) {
        let mut state = self.context.state.subscribe();
        let mut seen = self.context.seen.clone();
        loop {
            if self.report().await.is_err() {
                sleep(RETRY).await;
                continue;
            }
            tokio::select! {
                _ = state.changed() => {}
                Ok(()) = seen.changed() => {}
            }
        }
    }

    async fn report(&self) -> kube::Result<()> {
        let context = &self.context;
        let Some(pod) = context.current() else {
            return Ok(());
        };
        let previous = self.reported.lock().clone();
        let status = {
            let state = context.state.borrow();
            let address = context.machine.address;
            status(&pod, &state, address, previous.as_ref(), Timestamp::now())
        };
        if previous.as_ref() == Some(&status) {
            return Ok(());
        }
        // The uid keeps it from a Pod of the same name that came later.
        let mut patch = json!({"metadata": {"uid": context.uid}, "status": status});
        for addresses in ["podIPs", "hostIPs"] {
            // Else it would add to those that an earlier runner has reported.
            if let Some(list) = patch["status"][addresses].as_array_mut() {
                list.push(json!({"$patch": "replace"}));
            }
        }
        let patch = Patch::Strategic(patch);
        let api = context.api();
        match api
            .patch_status(&context.key.1, &PatchParams::default(), &patch)
            .await
        {
            Err(error) if !is_over(&error) => Err(error),
            _ => {
                *self.reported.lock() = Some(status);
                Ok(())
            }
        }
    }

    /// Removes the object, after its last status.
    async fn delete(&self) {
        let context = &self.context;
        let api: Api<Pod> = context.api();
        let params = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions {
                uid: Some(context.uid.clone()),
                ..Preconditions::default()
            }),
            ..DeleteParams::default()
        };
        loop {
            let done = async {
                self.report().await?;
                match api.delete(&context.key.1, &params).await {
                    Err(error) if !is_over(&error) => Err(error),
                    _ => Ok(()),
                }
            };
            match done.await {
                Ok(()) => return,
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    /// The Pod does not run any more, as far as tests can see.
    fn forget(&self) {
        let mut live = self.context.host.live.lock();
        let known = live.get(&self.context.key);
        if known.is_some_and(|pod| pod.uid == self.context.uid) {
            live.remove(&self.context.key);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.forget();
        // An error leaves files in memory until the process ends.
        let _ = std::fs::remove_dir_all(&self.context.scratch);
    }
}

/// True if the object is gone, or another one has its name.
fn is_over(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}
