//! The task that keeps a store true: one watch for one kind.
//!
//! The watch of kube-runtime lists, watches, resumes and lists again. This module turns its stream into changes of a
//! [`Store`] and tells a handler of each, synchronously and in order. A deletion is told apart by how it was learned
//! (IPA-3): seen in the watch or by a live read, or only inferred from absence in a list.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut, stream};
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tracing::{debug, warn};

use crate::backoff::Backoff;
use crate::guarded::Guarded;
use crate::key::{Key, Version};
use crate::store::{Change, Store};
use crate::writer::bounded;

pub use crate::guarded::Decoded;

/// Idle limit of a watch, in seconds. Below the 240 s after which some load balancers drop an idle connection, so
/// that a dead connection is noticed here first.
const WATCH_SECONDS: u32 = 180;

/// Settings of a watch: everything of the kind, or what a label selector takes.
pub fn config(label_selector: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    match label_selector {
        Some(selector) => config.labels(selector),
        None => config,
    }
}

/// Objects that are looked up at a time after a list during which they were written.
const LOOK_UPS_AT_A_TIME: usize = 16;

/// Runs a watch over all namespaces until the future is dropped. Never ends by itself and never fails: an error is logged,
/// reported to `on_error`, and followed by another try after a back-off of at most five seconds.
///
/// `convert` makes the copy that is kept; an object that it answers `None` for is treated as absent.
pub fn run<K, V>(
    client: Client,
    config: watcher::Config,
    store: Arc<Store<V>>,
    convert: impl Fn(Decoded<K>) -> Option<V> + Send + 'static,
    handler: impl Fn(&Key, Change<V>) + Send + 'static,
    on_error: impl Fn() + Send + Sync + 'static,
) -> impl Future<Output = ()> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let guarded: Api<Guarded<K>> = Api::all(client);
    async move {
        let kind = K::kind(&()).into_owned();
        let labels = config.label_selector.clone();
        let watching = watch(guarded.clone(), config).backoff(WatchBackoff::default());
        pin_mut!(watching);
        while let Some(event) = watching.next().await {
            let event = match event {
                Ok(event) => event,
                Err(error) => {
                    warn!(kind, %error, "watch interrupted, trying again");
                    on_error();
                    continue;
                }
            };
            let in_doubt = deliver(event, &store, &convert, &handler);
            let mut found = stream::iter(in_doubt)
                .map(|(key, known)| {
                    let (api, labels, on_error) = (&guarded, labels.as_deref(), &on_error);
                    async move {
                        let found = look_up(api, &key, labels, on_error).await;
                        (key, known, found)
                    }
                })
                .buffer_unordered(LOOK_UPS_AT_A_TIME);
            while let Some((key, known, found)) = found.next().await {
                settle(&key, known, found, &store, &convert, &handler);
            }
        }
    }
}

/// Looks an object up live; tries until there is an answer. By a list, since the kind's scope is not known here.
async fn look_up<K>(
    api: &Api<Guarded<K>>,
    key: &Key,
    labels: Option<&str>,
    on_error: &(impl Fn() + Sync),
) -> Option<Guarded<K>>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug,
{
    let mut fields = format!("metadata.name={}", key.name);
    if !key.namespace.is_empty() {
        fields.push_str(&format!(",metadata.namespace={}", key.namespace));
    }
    let mut params = ListParams::default().fields(&fields);
    params.label_selector = labels.map(ToOwned::to_owned);
    let mut pauses = WatchBackoff::default();
    loop {
        match bounded(api.list(&params)).await {
            Ok(found) => return found.items.into_iter().next(),
            Err(error) => {
                warn!(kind = %K::kind(&()), object = %key, %error, "not found out yet");
                on_error();
                tokio::time::sleep(pauses.next().unwrap_or(BACKOFF.cap)).await;
            }
        }
    }
}

/// Waits between two tries of a watch. The cap is short: a controller must see the world again within seconds of the
/// API server's return, and a handful of watches is no load.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(200),
    cap: Duration::from_secs(5),
};

#[derive(Default)]
struct WatchBackoff {
    failures: u32,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        self.failures = self.failures.saturating_add(1);
        Some(BACKOFF.delay(self.failures, fastrand::f64()))
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    fn reset(&mut self) {
        self.failures = 0;
    }
}

/// Takes one event of a watch into a store and tells a handler what has changed. Never waits: whoever plays the watch
/// decides the moment, be it a connection or a simulation.
///
/// Answers which objects were written while a list was under way that does not name them, and the versions known of them:
/// they are to be read live, and the answer given to [`settle`].
#[must_use]
pub fn deliver<K, V>(
    event: Event<Guarded<K>>,
    store: &Store<V>,
    convert: &impl Fn(Decoded<K>) -> Option<V>,
    handler: &impl Fn(&Key, Change<V>),
) -> Vec<(Key, Version)>
where
    K: Resource<DynamicType = ()>,
{
    let kind = K::kind(&());
    match event {
        Event::Init => {
            debug!(%kind, "listing");
            store.list_begins();
        }
        Event::Apply(object) | Event::InitApply(object) => {
            apply(object, store, convert, handler);
        }
        Event::Delete(object) => {
            let key = Key::of(object.meta());
            if let Some(change) = store.deleted(&key, Version::of(object.meta())) {
                handler(&key, change);
            }
        }
        Event::InitDone => {
            let listed = store.list_ends();
            for (key, old) in listed.gone {
                let certain = false;
                handler(&key, Change::Deleted { old, certain });
            }
            debug!(%kind, objects = store.len(), "listed");
            return listed.in_doubt;
        }
    }
    Vec::new()
}

/// Takes in what a live read found of an object that was in doubt.
pub fn settle<K, V>(
    key: &Key,
    known: Version,
    found: Option<Guarded<K>>,
    store: &Store<V>,
    convert: &impl Fn(Decoded<K>) -> Option<V>,
    handler: &impl Fn(&Key, Change<V>),
) where
    K: Resource<DynamicType = ()>,
{
    let change = match found {
        // Not as from the watch, which is not as far yet: what it is still to bring is not old.
        Some(object) => {
            let version = Version::of(object.meta());
            convert(object.0).and_then(|value| store.written(key, version, value))
        }
        None => store.forget(key, known),
    };
    if let Some(change) = change {
        handler(key, change);
    }
}

fn apply<K, V>(
    object: Guarded<K>,
    store: &Store<V>,
    convert: &impl Fn(Decoded<K>) -> Option<V>,
    handler: &impl Fn(&Key, Change<V>),
) where
    K: Resource<DynamicType = ()>,
{
    let key = Key::of(object.meta());
    let version = Version::of(object.meta());
    let change = match convert(object.0) {
        Some(value) => store.watched(&key, version, value),
        None => store.deleted(&key, version),
    };
    if let Some(change) = change {
        handler(&key, change);
    }
}
