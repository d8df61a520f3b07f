//! Kubernetes Events, written without blocking a reconcile.
//!
//! A controller puts an Event into a bounded queue; one task writes them. When the queue is full, the Event is dropped
//! and counted: the object's condition says the same and is not dropped. An Event is also dropped if its fence has
//! closed before its turn, because its sender is no longer leader. A leader that releases the Lease first waits for its
//! queued Events ([`Events::written`]).
//!
//! kube-runtime's recorder is not used because it derives the Event's name from the object's name without limiting the
//! length, and object names may use all of the 253 characters that a name may have.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::{Api, Client};
use tokio::sync::{mpsc, oneshot};
use tracing::debug;

use crate::writer::{Fence, bounded};

/// Capacity of the queue. A change of one pool can concern every LoadBalancer at once; beyond a thousand the conditions
/// have to do.
const QUEUE: usize = 1024;
/// Longest note that the API accepts, in bytes.
const MAX_NOTE_BYTES: usize = 1024;
/// Longest object name.
const NAME_LIMIT: usize = 253;

/// The Event's `type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// `Normal`.
    Normal,
    /// `Warning`: a user or an administrator should look.
    Warning,
}

/// A queued Event.
pub struct QueuedEvent {
    /// The object that the Event is about.
    pub regarding: ObjectReference,
    /// The Event's `type`.
    pub severity: Severity,
    /// The Event's `reason`: one CamelCase word, for programs.
    pub reason: String,
    /// The Event's `action`: what the controller did.
    pub action: String,
    /// The Event's `note`: the text for people.
    pub text: String,
    fence: Option<Arc<dyn Fence>>,
}

impl fmt::Debug for QueuedEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueuedEvent")
            .field("regarding", &self.regarding)
            .field("reason", &self.reason)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

enum Item {
    Event(Box<QueuedEvent>),
    /// Signals that all items before it are done.
    Mark(oneshot::Sender<()>),
}

/// The sending side of the queue: controllers publish their Events here.
#[derive(Clone)]
pub struct Events {
    sender: mpsc::Sender<Item>,
    dropped: Arc<AtomicU64>,
    fence: Option<Arc<dyn Fence>>,
}

impl fmt::Debug for Events {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Events").finish_non_exhaustive()
    }
}

impl Events {
    /// The queue, and the task that writes its Events: to be spawned, ends when the last [`Events`] is dropped.
    pub fn new(
        client: Client,
        controller: &'static str,
        instance: String,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (events, receiver) = Self::queue();
        (events, receiver.write(client, controller, instance))
    }

    /// The queue, and its receiving side.
    pub fn queue() -> (Self, EventReceiver) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let receiver = EventReceiver {
            receiver,
            dropped: Arc::clone(&dropped),
        };
        let events = Self {
            sender,
            dropped,
            fence: None,
        };
        (events, receiver)
    }

    /// The same queue, for Events that may be written only while this fence is open.
    #[must_use]
    pub fn under(&self, fence: Arc<dyn Fence>) -> Self {
        Self {
            fence: Some(fence),
            ..self.clone()
        }
    }

    /// Queues an Event about an object.
    pub fn publish(
        &self,
        regarding: ObjectReference,
        severity: Severity,
        reason: &str,
        action: &str,
        text: &str,
    ) {
        let note = QueuedEvent {
            regarding,
            severity,
            reason: reason.to_owned(),
            action: action.to_owned(),
            text: text.to_owned(),
            fence: self.fence.clone(),
        };
        if self.sender.try_send(Item::Event(Box::new(note))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all Events queued before are written or dropped. The caller sets the timeout.
    pub async fn written(&self) {
        let (done, all) = oneshot::channel();
        if self.sender.send(Item::Mark(done)).await.is_ok() {
            // An error means that the writing task has ended.
            let _ = all.await;
        }
    }

    /// Number of dropped Events.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The receiving side of the queue. It leaves out Events whose fence has closed meanwhile.
pub struct EventReceiver {
    receiver: mpsc::Receiver<Item>,
    dropped: Arc<AtomicU64>,
}

impl fmt::Debug for EventReceiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventReceiver").finish_non_exhaustive()
    }
}

impl EventReceiver {
    /// The next Event, if one is queued.
    pub fn try_next(&mut self) -> Option<QueuedEvent> {
        loop {
            let item = self.receiver.try_recv().ok()?;
            if let Some(note) = self.due(item) {
                return Some(note);
            }
        }
    }

    /// Writes Events one by one until the last [`Events`] is dropped.
    async fn write(mut self, client: Client, controller: &'static str, instance: String) {
        while let Some(item) = self.receiver.recv().await {
            let Some(note) = self.due(item) else {
                continue;
            };
            let event = event(note, controller, &instance, Timestamp::now());
            let namespace = event.metadata.namespace.clone().unwrap_or_default();
            let api: Api<Event> = Api::namespaced(client.clone(), &namespace);
            if let Err(error) = bounded(api.create(&kube::api::PostParams::default(), &event)).await
            {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                debug!(%error, "Event not written");
            }
        }
    }

    /// The Event to write now. One whose fence has closed is counted as dropped; a mark is signalled to its waiter.
    fn due(&self, item: Item) -> Option<QueuedEvent> {
        match item {
            Item::Event(note) if note.fence.as_ref().is_none_or(|fence| fence.is_open()) => {
                Some(*note)
            }
            Item::Event(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                None
            }
            Item::Mark(done) => {
                // The waiter may have timed out.
                let _ = done.send(());
                None
            }
        }
    }
}

fn event(note: QueuedEvent, controller: &str, instance: &str, now: Timestamp) -> Event {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let object = note.regarding.name.as_deref().unwrap_or(controller);
    // A truncated name may end in a character that a name must not end in; the suffix follows, so that is harmless.
    let name = format!(
        "{}{suffix}",
        object[..object.floor_char_boundary(NAME_LIMIT - suffix.len())]
            .trim_end_matches(['.', '-'])
    );
    Event {
        metadata: ObjectMeta {
            name: Some(name),
            // Events about cluster-scoped objects live in the namespace `default`, as the API demands.
            namespace: Some(
                note.regarding
                    .namespace
                    .clone()
                    .unwrap_or_else(|| "default".into()),
            ),
            ..ObjectMeta::default()
        },
        event_time: Some(MicroTime(now)),
        type_: Some(match note.severity {
            Severity::Normal => "Normal".to_owned(),
            Severity::Warning => "Warning".to_owned(),
        }),
        reason: Some(note.reason),
        action: Some(note.action),
        note: Some(note.text[..note.text.floor_char_boundary(MAX_NOTE_BYTES)].to_owned()),
        reporting_controller: Some(controller.to_owned()),
        reporting_instance: Some(instance[..instance.floor_char_boundary(128)].to_owned()),
        regarding: Some(note.regarding),
        ..Event::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    #[test]
    fn long_names_and_notes_fit() {
        let note = QueuedEvent {
            regarding: ObjectReference {
                name: Some(format!("{}.b", "a".repeat(251))),
                namespace: Some("ns".into()),
                ..ObjectReference::default()
            },
            severity: Severity::Warning,
            reason: "R".into(),
            action: "A".into(),
            text: "ü".repeat(2000),
            fence: None,
        };
        let event = event(note, "c", "i", Timestamp::UNIX_EPOCH);
        assert!(event.metadata.name.unwrap().len() <= NAME_LIMIT);
        assert!(event.note.unwrap().len() <= MAX_NOTE_BYTES);
        assert_eq!(event.metadata.namespace.unwrap(), "ns");
    }

    struct Gate(AtomicBool);

    impl Fence for Gate {
        fn is_open(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A client, and the number of requests that it has sent.
    fn client() -> (Client, Arc<AtomicU64>) {
        let sent = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&sent);
        let service = tower::service_fn(move |_: axum::http::Request<kube::client::Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let answer = axum::http::Response::new(kube::client::Body::from(b"{}".to_vec()));
            std::future::ready(Ok::<_, std::io::Error>(answer))
        });
        (Client::new(service, "default"), sent)
    }

    #[tokio::test]
    async fn whoever_ends_can_wait_for_what_was_left() {
        let (client, sent) = client();
        let (events, task) = Events::new(client, "c", "i".to_owned());
        let task = tokio::spawn(task);
        for _ in 0..QUEUE {
            events.publish(ObjectReference::default(), Severity::Normal, "R", "A", "t");
        }
        events.written().await;
        assert_eq!(sent.load(Ordering::Relaxed), QUEUE as u64);
        assert_eq!(events.dropped(), 0);
        // Without a writing task, `written` does not block.
        task.abort();
        assert!(task.await.is_err());
        events.written().await;
    }

    #[tokio::test]
    async fn run_5_what_is_left_of_a_term_that_is_over_is_not_written() {
        let (client, sent) = client();
        let (events, task) = Events::new(client, "c", "i".to_owned());
        let [over, present] = [true, false].map(|_| Arc::new(Gate(AtomicBool::new(true))));
        for gate in [&over, &present] {
            let of_term = events.under(Arc::clone(gate) as _);
            of_term.publish(ObjectReference::default(), Severity::Normal, "R", "A", "t");
        }
        over.0.store(false, Ordering::Relaxed);
        let dropped = Arc::clone(&events.dropped);
        drop(events);
        task.await;
        assert_eq!(sent.load(Ordering::Relaxed), 1);
        assert_eq!(dropped.load(Ordering::Relaxed), 1);
    }
}
