//! Owns the Pods as a whole: watches them and the Nodes, binds Pods to nodes, and has one task for each Pod of a node.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{Binding, Node, ObjectReference, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::{Api, Patch, PatchParams, PostParams};
use kube::core::Status;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{Config, Error, Event, watcher};
use kube::{Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::context::Seen;
use super::host::{Host, PodKey};
use super::schedule::choose;
use super::worker;

/// Pause after a failed binding.
const RETRY: Duration = Duration::from_millis(500);

/// Objects of one kind as a watch shows them.
struct Objects<K> {
    all: BTreeMap<PodKey, Arc<K>>,
    /// What the running list has shown so far.
    listed: BTreeSet<PodKey>,
    complete: bool,
}

/// What changed.
enum Change<K> {
    Present(Arc<K>),
    Gone(PodKey),
}

/// The task of one Pod.
struct Task {
    uid: String,
    seen: watch::Sender<Seen>,
}

/// The main task of a runner.
pub(crate) struct Manager {
    host: Arc<Host>,
    /// The client for watches.
    watches: Client,
    /// Empty: all.
    namespaces: BTreeSet<String>,
    pods: Objects<Pod>,
    nodes: Objects<Node>,
    tasks: HashMap<PodKey, Task>,
    running: JoinSet<()>,
    /// Last message about a Pod that fits nowhere, by its uid.
    unschedulable: HashMap<String, String>,
}

impl<K: Resource> Objects<K> {
    fn handle(&mut self, event: Event<K>) -> Vec<Change<K>> {
        match event {
            Event::Apply(object) => vec![self.apply(object)],
            Event::Delete(object) => {
                let key = key_of(&object);
                self.all.remove(&key);
                vec![Change::Gone(key)]
            }
            Event::Init => {
                self.listed.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                self.listed.insert(key_of(&object));
                vec![self.apply(object)]
            }
            Event::InitDone => {
                self.complete = true;
                let gone = self.all.keys().filter(|key| !self.listed.contains(*key));
                let gone: Vec<PodKey> = gone.cloned().collect();
                self.all.retain(|key, _| !gone.contains(key));
                gone.into_iter().map(Change::Gone).collect()
            }
        }
    }

    fn apply(&mut self, object: K) -> Change<K> {
        let key = key_of(&object);
        let object = Arc::new(object);
        self.all.insert(key, Arc::clone(&object));
        Change::Present(object)
    }
}

impl<K> Default for Objects<K> {
    fn default() -> Self {
        Self {
            all: BTreeMap::new(),
            listed: BTreeSet::new(),
            complete: false,
        }
    }
}

fn key_of<K: Resource>(object: &K) -> PodKey {
    let meta = object.meta();
    (
        meta.namespace.clone().unwrap_or_default(),
        meta.name.clone().unwrap_or_default(),
    )
}

impl Manager {
    pub(crate) fn new(host: Arc<Host>, watches: Client, namespaces: BTreeSet<String>) -> Self {
        Self {
            host,
            watches,
            namespaces,
            pods: Objects::default(),
            nodes: Objects::default(),
            tasks: HashMap::new(),
            running: JoinSet::new(),
            unschedulable: HashMap::new(),
        }
    }

    /// Runs Pods until the other end of `stop` is used or dropped; then all are killed, without a word to the API
    /// server.
    pub(crate) async fn run(mut self, stop: oneshot::Receiver<()>) {
        tokio::select! {
            () = self.work() => {}
            _ = stop => {}
        }
        self.running.shutdown().await;
    }

    async fn work(&mut self) {
        let mut pods = events::<Pod>(&self.watches);
        let mut nodes = events::<Node>(&self.watches);
        let mut again = false;
        loop {
            tokio::select! {
                Some(event) = pods.next() => {
                    for change in self.pods.handle(event) {
                        self.pod_changed(change);
                    }
                }
                Some(event) = nodes.next() => {
                    self.nodes.handle(event);
                }
                () = sleep(RETRY), if again => {}
                Some(_) = self.running.join_next() => continue,
            }
            again = !self.schedule().await;
        }
    }

    fn pod_changed(&mut self, change: Change<Pod>) {
        match change {
            Change::Gone(key) => {
                if let Some(task) = self.tasks.remove(&key) {
                    task.seen.send_replace(Seen::Gone);
                    self.unschedulable.remove(&task.uid);
                }
            }
            Change::Present(pod) => self.pod_seen(&pod),
        }
    }

    fn pod_seen(&mut self, pod: &Arc<Pod>) {
        let (key, uid) = (key_of(&**pod), pod.uid().unwrap_or_default());
        if let Some(task) = self.tasks.get(&key) {
            if task.uid == uid {
                task.seen.send_replace(Seen::Present(Arc::clone(pod)));
                return;
            }
            // The deletion of the previous one was not seen.
            task.seen.send_replace(Seen::Gone);
            self.tasks.remove(&key);
        }
        let node = pod.spec.as_ref().and_then(|s| s.node_name.as_ref());
        let machine = node.and_then(|node| self.host.machines.get(node));
        if let Some(machine) = machine
            && self.is_ours(pod)
            && !is_over(pod)
        {
            let (seen, receiver) = watch::channel(Seen::Present(Arc::clone(pod)));
            let (host, machine) = (Arc::clone(&self.host), Arc::clone(machine));
            self.running
                .spawn(worker::run(host, machine, Arc::clone(pod), receiver));
            self.tasks.insert(key, Task { uid, seen });
        }
    }

    fn is_ours(&self, pod: &Pod) -> bool {
        let namespace = pod.namespace().unwrap_or_default();
        self.namespaces.is_empty() || self.namespaces.contains(&namespace)
    }

    /// Binds the Pods that wait for a node; false if one of the bindings failed.
    async fn schedule(&mut self) -> bool {
        if !self.pods.complete || !self.nodes.complete {
            return true;
        }
        let mut done = true;
        let waiting = self.pods.all.values().filter(|pod| self.waits(pod));
        let waiting: Vec<Arc<Pod>> = waiting.cloned().collect();
        for pod in waiting {
            done &= self.place(&pod).await.is_ok();
        }
        done
    }

    fn waits(&self, pod: &Pod) -> bool {
        let spec = pod.spec.as_ref();
        self.is_ours(pod)
            && pod.metadata.deletion_timestamp.is_none()
            && spec.is_some_and(|spec| {
                let scheduler = spec.scheduler_name.as_deref();
                spec.node_name.is_none()
                    && scheduler.is_none_or(|name| name == "default-scheduler")
                    && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
            })
    }

    async fn place(&mut self, pod: &Arc<Pod>) -> kube::Result<()> {
        let nodes = self.nodes.all.values();
        let nodes: Vec<Node> = nodes
            .filter(|node| self.host.machines.contains_key(&node.name_any()))
            .map(|node| Node::clone(node))
            .collect();
        let placed: Vec<&Pod> = self
            .pods
            .all
            .values()
            .map(|pod| &**pod)
            .filter(|pod| !is_over(pod))
            .collect();
        match choose(pod, &nodes, &placed) {
            Ok(node) => self.bind(pod, &node).await,
            Err(message) => self.report_unschedulable(pod, message).await,
        }
    }

    async fn bind(&mut self, pod: &Arc<Pod>, node: &str) -> kube::Result<()> {
        let (namespace, name) = key_of(&**pod);
        let binding = Binding {
            metadata: ObjectMeta {
                name: Some(name.clone()),
                namespace: Some(namespace.clone()),
                uid: pod.uid(),
                ..ObjectMeta::default()
            },
            target: ObjectReference {
                kind: Some("Node".into()),
                name: Some(node.to_owned()),
                ..ObjectReference::default()
            },
        };
        let api: Api<Pod> = Api::namespaced(self.host.client.clone(), &namespace);
        let bound: kube::Result<Status> = api
            .create_subresource("binding", &name, &PostParams::default(), &binding)
            .await;
        if let Err(error) = bound {
            // Gone, or bound meanwhile; the watch will say so.
            return if is_stale(&error) { Ok(()) } else { Err(error) };
        }
        // So that the next Pod is placed with this one in mind, before the watch shows it.
        let mut placed = Pod::clone(pod);
        if let Some(spec) = &mut placed.spec {
            spec.node_name = Some(node.to_owned());
        }
        self.pods.all.insert((namespace, name), Arc::new(placed));
        Ok(())
    }

    async fn report_unschedulable(&mut self, pod: &Pod, message: String) -> kube::Result<()> {
        let uid = pod.uid().unwrap_or_default();
        if self.unschedulable.get(&uid) == Some(&message) {
            return Ok(());
        }
        let (namespace, name) = key_of(pod);
        let patch = json!({"metadata": {"uid": uid}, "status": {"conditions": [{
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
        }]}});
        let api: Api<Pod> = Api::namespaced(self.host.client.clone(), &namespace);
        let patch = Patch::Strategic(patch);
        match api
            .patch_status(&name, &PatchParams::default(), &patch)
            .await
        {
            Err(error) if !is_stale(&error) => Err(error),
            _ => {
                self.unschedulable.insert(uid, message);
                Ok(())
            }
        }
    }
}

/// Events of all objects of a kind; the watch is resumed whatever happens.
fn events<K>(client: &Client) -> impl Stream<Item = Event<K>> + Unpin + use<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug + Send + 'static,
{
    let stream = watcher(Api::<K>::all(client.clone()), Config::default()).default_backoff();
    stream
        .map_err(|_: Error| ())
        .filter_map(|event| std::future::ready(event.ok()))
        .boxed()
}

/// True if the object is gone or has changed meanwhile.
fn is_stale(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if matches!(status.code, 404 | 409))
}

/// True for a Pod whose containers have all ended for good.
fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
