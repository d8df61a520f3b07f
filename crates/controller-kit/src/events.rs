//! Kubernetes Events, never in the way of work.
//!
//! A controller hands an Event to a bounded queue and goes on; one task writes them. When the queue is full, the Event
//! is dropped and counted: the object's condition says the same and is not dropped. So is one whose fence has closed by the
//! time of its turn: the leader that left it does not lead any more. Whoever gives its right up waits for what it has left
//! ([`Events::written`]).
//!
//! kube-runtime's recorder is not used because it names an Event after the object without regard to the length of
//! the name, and object names may use up all the 253 characters that a name may have.

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

/// Events that wait to be written. A change of one pool can concern every load balancer at once; beyond a thousand
/// the conditions have to do.
const QUEUE: usize = 1024;
/// Longest note that the API takes, in bytes.
const NOTE_LIMIT: usize = 1024;
/// Longest object name.
const NAME_LIMIT: usize = 253;

/// Whether an Event speaks of trouble.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    /// Things went as they should.
    Normal,
    /// Somebody should look.
    Warning,
}

/// An Event that waits to be written.
pub struct Note {
    /// The object that it is about.
    pub regarding: ObjectReference,
    /// Whether it speaks of trouble.
    pub severity: Severity,
    /// Why, in a word that programs compare.
    pub reason: String,
    /// What was done.
    pub action: String,
    /// What there is to say, for people.
    pub text: String,
    fence: Option<Arc<dyn Fence>>,
}

impl fmt::Debug for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Note")
            .field("regarding", &self.regarding)
            .field("reason", &self.reason)
            .field("text", &self.text)
            .finish_non_exhaustive()
    }
}

enum Item {
    Note(Box<Note>),
    /// All before it is done.
    Mark(oneshot::Sender<()>),
}

/// Where controllers leave their Events.
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
    /// The queue, and the task that writes it out: to be spawned, ends with the last [`Events`].
    pub fn new(
        client: Client,
        controller: &'static str,
        instance: String,
    ) -> (Self, impl Future<Output = ()> + Send) {
        let (events, notes) = Self::queue();
        (events, notes.write(client, controller, instance))
    }

    /// The queue, and its end where Events come out.
    pub fn queue() -> (Self, Notes) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let notes = Notes {
            receiver,
            dropped: Arc::clone(&dropped),
        };
        let events = Self {
            sender,
            dropped,
            fence: None,
        };
        (events, notes)
    }

    /// The same queue, for what is written only while this fence is open.
    #[must_use]
    pub fn under(&self, fence: Arc<dyn Fence>) -> Self {
        Self {
            fence: Some(fence),
            ..self.clone()
        }
    }

    /// Leaves an Event about an object.
    pub fn publish(
        &self,
        regarding: ObjectReference,
        severity: Severity,
        reason: &str,
        action: &str,
        text: &str,
    ) {
        let note = Note {
            regarding,
            severity,
            reason: reason.to_owned(),
            action: action.to_owned(),
            text: text.to_owned(),
            fence: self.fence.clone(),
        };
        if self.sender.try_send(Item::Note(Box::new(note))).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all that was left before is written, or dropped. How long that may take is the caller's to bound.
    pub async fn written(&self) {
        let (done, all) = oneshot::channel();
        if self.sender.send(Item::Mark(done)).await.is_ok() {
            // An error: nobody writes any more.
            let _ = all.await;
        }
    }

    /// Events that were not written.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The end of the queue where Events come out. Those whose fence has closed meanwhile do not.
pub struct Notes {
    receiver: mpsc::Receiver<Item>,
    dropped: Arc<AtomicU64>,
}

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").finish_non_exhaustive()
    }
}

impl Notes {
    /// The next Event, if one waits.
    pub fn try_next(&mut self) -> Option<Note> {
        loop {
            let item = self.receiver.try_recv().ok()?;
            if let Some(note) = self.due(item) {
                return Some(note);
            }
        }
    }

    /// Writes one after another until the last [`Events`] is gone.
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
                debug!(%error, "an Event was not written");
            }
        }
    }

    /// What is to be written now. What may not be any more is counted as dropped, and whoever waits for this place in the
    /// queue is told.
    fn due(&self, item: Item) -> Option<Note> {
        match item {
            Item::Note(note) if note.fence.as_ref().is_none_or(|fence| fence.is_open()) => {
                Some(*note)
            }
            Item::Note(_) => {
                self.dropped.fetch_add(1, Ordering::Relaxed);
                None
            }
            Item::Mark(done) => {
                // Whoever asked may not wait any more.
                let _ = done.send(());
                None
            }
        }
    }
}

fn event(note: Note, controller: &str, instance: &str, now: Timestamp) -> Event {
    let suffix = format!(".{:x}", now.as_nanosecond());
    let object = note.regarding.name.as_deref().unwrap_or(controller);
    // A cut name may end in a character that a name must not end in; the suffix follows, so it need not be looked at.
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
        note: Some(note.text[..note.text.floor_char_boundary(NOTE_LIMIT)].to_owned()),
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
        let note = Note {
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
        assert!(event.note.unwrap().len() <= NOTE_LIMIT);
        assert_eq!(event.metadata.namespace.unwrap(), "ns");
    }

    struct Gate(AtomicBool);

    impl Fence for Gate {
        fn is_open(&self) -> bool {
            self.0.load(Ordering::Relaxed)
        }
    }

    /// A client, and how many requests it has sent.
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
        // Where nobody writes any more, nobody waits.
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
