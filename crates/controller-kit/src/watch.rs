//! The task that keeps a store current: one watch for one kind.
//!
//! The watch of kube-runtime lists, watches, resumes and relists. This module turns its stream into changes of a
//! [`Store`] and calls a handler for each, synchronously and in order. A deletion carries how it was learned (IPA-3):
//! seen in the watch or by a live read, or only inferred from absence in a list.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::{StreamExt, pin_mut, stream};
use harvester_lb_api::meta::{self, Decoded};
use harvester_lb_object::{Key, Version};
use kube::api::ListParams;
use kube::runtime::watcher::{self, Event};
use kube::runtime::{WatchStreamExt, watcher as watch};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio::time::Instant;
use tracing::{debug, warn};

use crate::backoff::Backoff;
use crate::decode_guard::DecodeGuard;
use crate::stamp::{Restored, Stamp};
use crate::store::{Change, Store};
use crate::watch_health::WatchHealth;
use crate::writer::{bounded, with_causes};

/// The watches of a process have different timeouts, so that they do not all end at once: each has one second less than
/// the previous, modulo this number.
const SPREAD: u32 = 10;

/// Settings of the `nth` watch of a process: all objects of the kind, or those that a label selector matches (RUN-2).
///
/// `limit` is the longest watch timeout, in whole seconds, that is requested from the API server. Before it ends a
/// watch, the API server sends a bookmark, so the next one resumes from there without a list. A watch that is silent
/// for 5 s longer has lost its connection.
pub fn config(nth: u32, limit: Duration, label_selector: Option<&str>) -> watcher::Config {
    let seconds = u32::try_from(limit.as_secs()).unwrap_or(u32::MAX);
    let config = watcher::Config::default().timeout(seconds.saturating_sub(nth % SPREAD).max(1));
    match label_selector {
        Some(selector) => config.labels(selector),
        None => config,
    }
}

/// Concurrent live reads after a list during which objects were written.
const LOOK_UPS_AT_A_TIME: usize = 16;

/// Runs a watch over all namespaces until the future is dropped. It does not fail: an error is logged, reported to
/// `health`, and retried after a back-off of at most five seconds. It returns only when a list and a live read prove
/// that the API server was restored from a backup (RUN-3): the store then holds objects that no longer exist.
///
/// `convert` makes the copy that is cached; an object for which it returns `None` is treated as absent.
pub fn run<K, V>(
    client: Client,
    config: watcher::Config,
    store: Arc<Store<V>>,
    convert: impl Fn(Decoded<K>) -> Option<V> + Send + 'static,
    handler: impl Fn(&Key, Change<V>) + Send + 'static,
    health: WatchHealth,
) -> impl Future<Output = Restored> + Send
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    run_api(client, Api::all, config, store, convert, handler, health)
}

/// As [`run`], over the objects of an API of the client: those of one namespace, for instance. A field selector of `config` may
/// name one object.
pub async fn run_api<K, V>(
    client: Client,
    api: impl FnOnce(Client) -> Api<DecodeGuard<K>>,
    config: watcher::Config,
    store: Arc<Store<V>>,
    convert: impl Fn(Decoded<K>) -> Option<V> + Send + 'static,
    handler: impl Fn(&Key, Change<V>) + Send + 'static,
    health: WatchHealth,
) -> Restored
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    V: Send + Sync + 'static,
{
    let kind = K::kind(&()).into_owned();
    let guarded = api(health.observing(client));
    let labels = config.label_selector.clone();
    let watching = watch(guarded.clone(), config).backoff(WatchBackoff::default());
    pin_mut!(watching);
    loop {
        let event = match watching.next().await {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                let was_accepted = matches!(
                    error,
                    watcher::Error::WatchError(_) | watcher::Error::WatchFailed(_)
                );
                let error = with_causes(&error);
                warn!(kind, error, "watch interrupted, will retry");
                health.failed(&error, was_accepted);
                continue;
            }
            // The stream does not end.
            None => std::future::pending().await,
        };
        if establishes(&event) {
            health.established();
        }
        let pending = deliver(event, &store, &convert, &handler);
        for (key, was) in pending.older {
            let found = look_up(&guarded, &key, labels.as_deref(), &health).await;
            let now = found.as_ref().map(|object| Stamp::of(object.meta()));
            if let Some(restored) = now.and_then(|n| Restored::proven(&kind, &key, was, n)) {
                return restored;
            }
        }
        let is_all = labels.is_none();
        let mut found = stream::iter(pending.unconfirmed)
            .map(|(key, known)| {
                let (api, labels, health) = (&guarded, labels.as_deref(), &health);
                async move {
                    let found = look_up(api, &key, labels, health).await;
                    (key, known, found)
                }
            })
            .buffer_unordered(LOOK_UPS_AT_A_TIME);
        while let Some((key, known, found)) = found.next().await {
            apply_live_read(&key, known, found, is_all, &store, &convert, &handler);
        }
    }
}

/// Whether an event shows that the watch works. The first pages of a list do not: those after them may fail for ever.
const fn establishes<K>(event: &Event<K>) -> bool {
    matches!(event, Event::InitDone | Event::Apply(_) | Event::Delete(_))
}

/// Reads an object live; retries until there is an answer. Uses a list, since the scope of the kind is not known here.
async fn look_up<K>(
    api: &Api<DecodeGuard<K>>,
    key: &Key,
    labels: Option<&str>,
    health: &WatchHealth,
) -> Option<DecodeGuard<K>>
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
                warn!(kind = %K::kind(&()), object = %key, %error, "live read failed, will retry");
                health.failed(&error.to_string(), false);
                tokio::time::sleep(pauses.next().unwrap_or(BACKOFF.cap)).await;
            }
        }
    }
}

/// Back-off of a watch. The cap is short: a controller must be current within seconds after the API server returns, and
/// a handful of watches is no load.
const BACKOFF: Backoff = Backoff {
    base: Duration::from_millis(200),
    cap: Duration::from_secs(5),
};

/// How long a watch has to go without a failure before the next one counts as the first.
const CALM: Duration = Duration::from_secs(30);

#[derive(Default)]
struct WatchBackoff {
    failures: u32,
    /// When the last pause ends.
    until: Option<Instant>,
}

impl Iterator for WatchBackoff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let now = Instant::now();
        if self.until.is_some_and(|until| now > until + CALM) {
            self.failures = 0;
        }
        self.failures = self.failures.saturating_add(1);
        let pause = BACKOFF.delay(self.failures, fastrand::f64());
        self.until = Some(now + pause);
        Some(pause)
    }
}

impl kube::runtime::utils::Backoff for WatchBackoff {
    /// Called with each event. One of them says that a list begins, which comes between the failures of a list too: only time tells
    /// that it works again.
    fn reset(&mut self) {}
}

/// Applies one event of a watch to a store and calls the handler with the change. Never waits: the caller decides when
/// the event is delivered, whether it comes from a connection or a simulation.
///
/// Returns what needs a live read after a list.
pub fn deliver<K, V>(
    event: Event<DecodeGuard<K>>,
    store: &Store<V>,
    convert: &impl Fn(Decoded<K>) -> Option<V>,
    handler: &impl Fn(&Key, Change<V>),
) -> NeedsLiveRead
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
            let key = meta::key(object.meta());
            if let Some(change) = store.deleted(&key, Stamp::of(object.meta())) {
                handler(&key, change);
            }
        }
        Event::InitDone => {
            let listed = store.list_ends();
            for (key, old) in listed.gone {
                let change = Change::Deleted {
                    old,
                    final_state_unknown: true,
                };
                handler(&key, change);
            }
            debug!(%kind, objects = store.len(), "listed");
            return NeedsLiveRead {
                unconfirmed: listed.unconfirmed,
                older: listed.older,
            };
        }
    }
    NeedsLiveRead::default()
}

/// Objects that need a live read after a list.
#[must_use]
#[derive(Debug, Default)]
pub struct NeedsLiveRead {
    /// Objects that were written while the list was in progress and are missing from it, with their known versions:
    /// read them live and pass the result to [`apply_live_read`].
    pub unconfirmed: Vec<(Key, Version)>,
    /// Objects that the list has in an older copy than was known, with the known stamp: if a live read returns an older
    /// copy too, the API server was restored from a backup ([`Restored::proven`]).
    pub older: Vec<(Key, Stamp)>,
}

/// Applies the result of a live read of an unconfirmed object. `is_all`: it finds each object of the name. By a selector it also misses one
/// that is there and has lost its label, and may have it again.
pub fn apply_live_read<K, V>(
    key: &Key,
    known: Version,
    found: Option<DecodeGuard<K>>,
    is_all: bool,
    store: &Store<V>,
    convert: &impl Fn(Decoded<K>) -> Option<V>,
    handler: &impl Fn(&Key, Change<V>),
) where
    K: Resource<DynamicType = ()>,
{
    let change = match found {
        // Not as an event of the watch, which has not come that far: the events it still has to deliver are not stale.
        Some(object) => {
            let stamp = Stamp::of(object.meta());
            convert(object.0).and_then(|value| store.written(key, stamp, value))
        }
        None if is_all => store.absent(key, known),
        None => store.forget(key, known),
    };
    if let Some(change) = change {
        handler(key, change);
    }
}

fn apply<K, V>(
    object: DecodeGuard<K>,
    store: &Store<V>,
    convert: &impl Fn(Decoded<K>) -> Option<V>,
    handler: &impl Fn(&Key, Change<V>),
) where
    K: Resource<DynamicType = ()>,
{
    let key = meta::key(object.meta());
    let stamp = Stamp::of(object.meta());
    let change = match convert(object.0) {
        Some(value) => store.watched(&key, stamp, value),
        None => store.deleted(&key, stamp),
    };
    if let Some(change) = change {
        handler(&key, change);
    }
}

#[cfg(test)]
mod tests;
