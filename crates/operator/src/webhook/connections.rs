//! The connections of the webhook's port: how many there are, what each is doing, and which one has to go.
//!
//! The API server keeps idle connections and sends requests on them at any time: closing one at the wrong moment refuses a
//! request. So an idle connection is closed only after the API server itself would have done that, or to make room. A
//! connection that has never carried a request goes first: it is the kind that anyone in the cluster can open. One that is
//! slow to send a body goes too; one whose request is being answered, or whose answer is being sent, never does.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};

use crate::webhook::body::Held;

/// Most concurrent connections. An API server keeps 25 idle ones for each webhook at most; 512 are enough for a dozen of
/// them, and cost 30 MiB if all are in a handshake.
pub const MOST: usize = 512;
/// Time limit of a TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time limit of the head of a request, from its first byte.
const HEAD: Duration = Duration::from_secs(10);
/// Time without a request after which a connection is closed. Twice the 90 s after which the API server closes its own, so
/// that it is never this side that ends a connection that may be used.
const IDLE: Duration = Duration::from_mins(3);
/// Time limit of one request: above the sum of the limits that apply to its parts.
const BUSY: Duration = Duration::from_mins(1);
/// Time in which a client must have taken a response. An API server reads at once, and a response takes memory.
const RESPONSE: Duration = Duration::from_secs(10);
/// Time after which a body that is not complete no longer protects its connection. An API server sends it with the head.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The TLS handshake.
    Handshake,
    /// It waits for a request.
    Idle,
    /// It receives the head of a request.
    Head,
    /// It receives the body of a request.
    Body,
    /// A request is being answered.
    Busy,
    /// The response is being sent.
    Response,
}

impl Phase {
    const fn limit(self) -> Duration {
        match self {
            Self::Handshake => HANDSHAKE,
            Self::Head => HEAD,
            Self::Idle => IDLE,
            Self::Body | Self::Busy => BUSY,
            Self::Response => RESPONSE,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct State {
    phase: Phase,
    since: Instant,
    /// Whether a request was answered.
    has_served: bool,
    /// It is to be closed to make room, unless a request begins first.
    is_victim: bool,
}

/// One connection.
#[derive(Debug)]
pub struct Connection {
    state: Mutex<State>,
    /// What its response takes of the memory for bodies.
    held: Mutex<Option<Held>>,
    /// Its phase has changed, or it is to be closed.
    changed: Notify,
    ended: Arc<Notify>,
}

impl Connection {
    fn enter(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.has_served |= phase == Phase::Response;
        state.is_victim &= matches!(phase, Phase::Idle | Phase::Head);
        (state.phase, state.since) = (phase, Instant::now());
        drop(state);
        self.changed.notify_one();
        if phase == Phase::Idle {
            self.ended.notify_waiters();
        }
    }

    /// The handshake is complete.
    pub fn is_ready(&self) {
        self.enter(Phase::Idle);
    }

    /// Bytes were received: the head of a request has begun, if none is in progress.
    pub fn has_received(&self) {
        if self.state.lock().phase == Phase::Idle {
            self.enter(Phase::Head);
        }
    }

    /// The head of a request is complete.
    pub fn begins(&self) {
        self.enter(Phase::Body);
    }

    /// The body of a request is complete.
    pub fn has_body(&self) {
        if self.phase() == Phase::Body {
            self.enter(Phase::Busy);
        }
    }

    /// A request is answered: the response takes this memory until it is sent.
    pub fn is_answered(&self, held: Option<Held>) {
        *self.held.lock() = held;
        self.enter(Phase::Response);
    }

    /// All bytes that were to be sent are sent.
    pub fn has_flushed(&self) {
        if self.phase() == Phase::Response {
            *self.held.lock() = None;
            self.enter(Phase::Idle);
        }
    }

    /// What it is doing.
    pub fn phase(&self) -> Phase {
        self.state.lock().phase
    }

    /// When its present phase times out.
    pub fn deadline(&self) -> Instant {
        let state = self.state.lock();
        state.since + state.phase.limit()
    }

    /// Completes when its deadline or [`Self::is_victim`] may have changed.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Whether it is to be closed now to make room.
    pub fn is_victim(&self) -> bool {
        self.state.lock().is_victim
    }

    /// Closes it, unless a request has begun since it was looked at.
    fn choose(&self) {
        let mut state = self.state.lock();
        if state.may_be_closed(Instant::now()) {
            state.is_victim = true;
            drop(state);
            self.changed.notify_one();
        }
    }
}

/// All connections.
#[derive(Debug, Default)]
pub struct Connections {
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// A connection has ended or become idle.
    ended: Arc<Notify>,
    next: AtomicU64,
    /// Connections closed to make room.
    evicted: AtomicU64,
}

impl Connections {
    /// Waits until another connection may be accepted; closes idle ones if there are too many.
    pub async fn room(&self) {
        self.room_below(MOST).await;
    }

    async fn room_below(&self, most: usize) {
        loop {
            let mut ended = pin!(self.ended.notified());
            ended.as_mut().enable();
            let victim = {
                let open = self.open.lock();
                if open.len() < most {
                    return;
                }
                let states = open.iter().map(|(id, c)| (*id, *c.state.lock()));
                victim(states).and_then(|id| open.get(&id).cloned())
            };
            if let Some(connection) = victim {
                connection.choose();
            }
            // A slow body becomes a victim by time alone.
            let _ = timeout(PATIENCE, ended).await;
        }
    }

    /// Waits until there is no connection.
    pub async fn none(&self) {
        self.room_below(1).await;
    }

    /// Adds a connection. It counts until the guard is dropped.
    pub fn add(self: &Arc<Self>) -> Open {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let connection = Arc::new(Connection {
            state: Mutex::new(State {
                phase: Phase::Handshake,
                since: Instant::now(),
                has_served: false,
                is_victim: false,
            }),
            held: Mutex::new(None),
            changed: Notify::new(),
            ended: Arc::clone(&self.ended),
        });
        self.open.lock().insert(id, Arc::clone(&connection));
        Open {
            all: Arc::clone(self),
            id,
            connection,
        }
    }

    /// Number of connections.
    pub fn len(&self) -> usize {
        self.open.lock().len()
    }

    /// The connections.
    #[cfg(test)]
    pub fn all(&self) -> Vec<Arc<Connection>> {
        self.open.lock().values().cloned().collect()
    }

    /// Whether there is no connection.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of connections that were closed to make room.
    pub fn evicted(&self) -> u64 {
        self.evicted.load(Ordering::Relaxed)
    }

    /// A connection was closed to make room.
    pub fn count_evicted(&self) {
        self.evicted.fetch_add(1, Ordering::Relaxed);
    }
}

/// A connection that counts.
#[derive(Debug)]
pub struct Open {
    all: Arc<Connections>,
    id: u64,
    /// The connection.
    pub connection: Arc<Connection>,
}

impl Drop for Open {
    fn drop(&mut self) {
        self.all.open.lock().remove(&self.id);
        self.all.ended.notify_waiters();
    }
}

impl State {
    /// Whether it may be closed to make room.
    fn may_be_closed(&self, now: Instant) -> bool {
        match self.phase {
            Phase::Handshake | Phase::Idle | Phase::Head => true,
            Phase::Body => now.duration_since(self.since) >= PATIENCE,
            Phase::Busy | Phase::Response => false,
        }
    }
}

/// The connection to close, of those that may be: first one that never served a request or is slow to send a body, then the
/// one longest in its phase.
fn victim(states: impl Iterator<Item = (u64, State)>) -> Option<u64> {
    let now = Instant::now();
    states
        .filter(|(_, state)| state.may_be_closed(now))
        .min_by_key(|(_, state)| (state.has_served && state.phase != Phase::Body, state.since))
        .map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    /// A request is sent, and its response received.
    fn exchange(connection: &Connection) {
        connection.begins();
        connection.has_body();
        connection.is_answered(None);
        connection.has_flushed();
    }

    /// Closes the connection when asked, unless it is busy.
    fn serve(open: Open) {
        tokio::spawn(async move {
            while !open.connection.is_victim() {
                open.connection.changed().await;
            }
        });
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_table_closes_what_never_served_first() {
        let all = Arc::new(Connections::default());
        let mut served = Vec::new();
        for _ in 0..3 {
            let open = all.add();
            open.connection.is_ready();
            exchange(&open.connection);
            served.push(Arc::clone(&open.connection));
            serve(open);
            tokio::time::advance(MS).await;
        }
        let fresh = all.add();
        let (id, connection) = (fresh.id, Arc::clone(&fresh.connection));
        connection.is_ready();
        serve(fresh);
        all.room_below(5).await;
        assert_eq!(all.len(), 4);
        all.room_below(4).await;
        assert!(
            !all.open.lock().contains_key(&id),
            "the one without a request"
        );
        // Then the one that has been idle the longest.
        tokio::time::advance(MS).await;
        exchange(&served[0]);
        all.room_below(3).await;
        let left: Vec<u64> = all.open.lock().keys().copied().collect();
        assert!(!left.contains(&1) && left.contains(&0), "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_is_waited_for() {
        let all = Arc::new(Connections::default());
        let open = all.add();
        open.connection.is_ready();
        let busy = Arc::clone(&open.connection);
        busy.begins();
        busy.has_body();
        serve(open);
        let waits = tokio::time::timeout(10 * MS, all.room_below(1)).await;
        assert!(waits.is_err(), "it is busy");
        let room = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.room_below(1).await }
        });
        tokio::time::sleep(2 * PATIENCE).await;
        busy.is_answered(None);
        tokio::time::sleep(2 * PATIENCE).await;
        assert!(!room.is_finished(), "its response is being sent");
        busy.has_flushed();
        tokio::time::timeout(MS, room).await.unwrap().unwrap();
        assert!(all.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn slow_bodies_are_closed_before_connections_that_have_served() {
        let all = Arc::new(Connections::default());
        let good = all.add();
        good.connection.is_ready();
        exchange(&good.connection);
        let id = good.id;
        serve(good);
        for _ in 0..3 {
            let slow = all.add();
            slow.connection.is_ready();
            // It has sent a request before, and learned nothing from it.
            exchange(&slow.connection);
            slow.connection.begins();
            serve(slow);
        }
        tokio::time::advance(PATIENCE).await;
        for most in [4, 3, 2] {
            all.room_below(most).await;
            assert!(all.open.lock().contains_key(&id), "{most}");
        }
        assert_eq!(all.len(), 1);
        // One that has just begun is given the time of an API server.
        let new = all.add();
        new.connection.is_ready();
        new.connection.begins();
        serve(new);
        all.room_below(2).await;
        assert!(!all.open.lock().contains_key(&id));
        let began = Instant::now();
        all.none().await;
        assert!(began.elapsed() >= PATIENCE, "{:?}", began.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn each_phase_has_its_limit() {
        let all = Arc::new(Connections::default());
        let open = all.add();
        let connection = &open.connection;
        let left = || connection.deadline().duration_since(Instant::now());
        assert_eq!(left(), HANDSHAKE);
        connection.has_received();
        assert_eq!(connection.phase(), Phase::Handshake);
        connection.is_ready();
        assert_eq!(left(), IDLE);
        connection.has_received();
        assert_eq!((connection.phase(), left()), (Phase::Head, HEAD));
        // Further bytes do not extend it.
        tokio::time::advance(MS).await;
        connection.has_received();
        assert_eq!(left(), HEAD.checked_sub(MS).unwrap());
        connection.begins();
        assert_eq!((connection.phase(), left()), (Phase::Body, BUSY));
        connection.has_flushed();
        connection.has_body();
        assert_eq!((connection.phase(), left()), (Phase::Busy, BUSY));
        connection.has_received();
        connection.has_flushed();
        assert_eq!(connection.phase(), Phase::Busy);
        connection.is_answered(None);
        assert_eq!((connection.phase(), left()), (Phase::Response, RESPONSE));
        connection.has_body();
        connection.has_flushed();
        assert_eq!((connection.phase(), left()), (Phase::Idle, IDLE));
    }
}
