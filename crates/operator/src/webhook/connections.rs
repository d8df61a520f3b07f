//! The connections of the webhook's port: how many there are, what each is doing, and which one has to go.
//!
//! The API server keeps idle connections and sends requests on them at any time: closing one at the wrong moment refuses a
//! request. So an idle connection is closed only after the API server itself would have done that, or to make room. A
//! connection that has never carried a request goes first: it is the kind that anyone in the cluster can open.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

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
/// Time limit of one request with its response: above the sum of the limits that apply to its parts.
const BUSY: Duration = Duration::from_mins(1);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The TLS handshake.
    Handshake,
    /// It waits for a request.
    Idle,
    /// It receives the head of a request.
    Head,
    /// A request is being answered.
    Busy,
}

impl Phase {
    const fn limit(self) -> Duration {
        match self {
            Self::Handshake => HANDSHAKE,
            Self::Head => HEAD,
            Self::Idle => IDLE,
            Self::Busy => BUSY,
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
    /// Its phase has changed, or it is to be closed.
    changed: Notify,
    ended: Arc<Notify>,
}

impl Connection {
    fn enter(&self, phase: Phase) {
        let mut state = self.state.lock();
        state.has_served |= state.phase == Phase::Busy;
        state.is_victim &= phase != Phase::Busy;
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

    /// A request is complete up to its body. It ends when the guard is dropped.
    pub fn begin(self: &Arc<Self>) -> InFlight {
        self.enter(Phase::Busy);
        InFlight(Arc::clone(self))
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

    fn choose(&self) {
        self.state.lock().is_victim = true;
        self.changed.notify_one();
    }
}

/// A request in flight.
#[derive(Debug)]
pub struct InFlight(Arc<Connection>);

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
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
            ended.await;
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

/// The connection to close: none that is busy; first one that never served a request, then the one longest in its phase.
fn victim(states: impl Iterator<Item = (u64, State)>) -> Option<u64> {
    states
        .filter(|(_, state)| state.phase != Phase::Busy)
        .min_by_key(|(_, state)| (state.has_served, state.since))
        .map(|(id, _)| id)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

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
            drop(open.connection.begin());
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
        drop(served[0].begin());
        all.room_below(3).await;
        let left: Vec<u64> = all.open.lock().keys().copied().collect();
        assert!(!left.contains(&1) && left.contains(&0), "{left:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_busy_connection_is_waited_for() {
        let all = Arc::new(Connections::default());
        let open = all.add();
        open.connection.is_ready();
        let busy = open.connection.begin();
        serve(open);
        let waits = tokio::time::timeout(10 * MS, all.room_below(1)).await;
        assert!(waits.is_err(), "it is busy");
        let room = tokio::spawn({
            let all = Arc::clone(&all);
            async move { all.room_below(1).await }
        });
        tokio::time::sleep(MS).await;
        assert!(!room.is_finished());
        drop(busy);
        tokio::time::timeout(MS, room).await.unwrap().unwrap();
        assert!(all.is_empty());
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
        assert_eq!(left(), HEAD - MS);
        let request = connection.begin();
        assert_eq!(left(), BUSY);
        connection.has_received();
        assert_eq!(connection.phase(), Phase::Busy);
        drop(request);
        assert_eq!(left(), IDLE);
    }
}
