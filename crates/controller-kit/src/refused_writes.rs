//! Objects that the API server refuses to write (RUN-1), for `/readyz` and the metrics. A refusal delays that object
//! alone, so the object has to be named somewhere.

use std::collections::BTreeMap;
use std::time::Duration;

use harvester_lb_object::Key;
use parking_lot::Mutex;
use tokio::time::Instant;

/// A refused write is retried at least once a minute. One that was not refused again within this time is no longer
/// pending.
const PENDING_FOR: Duration = Duration::from_mins(3);
/// Most objects that are remembered. Beyond that, the problem is not one of single objects.
const MAX_OBJECTS: usize = 10_000;

/// Longest reason that is remembered, in bytes: more does not fit into a condition.
const LONGEST_REASON: usize = 512;

/// The objects whose last write was refused, by kind.
#[derive(Debug, Default)]
pub struct RefusedWrites(Mutex<BTreeMap<(String, Key), Refusal>>);

/// The last refusal of an object.
#[derive(Debug)]
struct Refusal {
    at: Instant,
    why: String,
}

impl RefusedWrites {
    /// The API server refused to write the object, for its content or for missing permissions.
    pub fn refused(&self, kind: &str, key: &Key, why: &str) {
        let mut all = self.0.lock();
        let at = Instant::now();
        if all.len() >= MAX_OBJECTS {
            all.retain(|_, refusal| refusal.is_pending(at));
        }
        let key = (kind.to_owned(), key.clone());
        if all.len() < MAX_OBJECTS || all.contains_key(&key) {
            let why = why[..why.floor_char_boundary(LONGEST_REASON)].to_owned();
            all.insert(key, Refusal { at, why });
        }
    }

    /// Why the API server refuses to write the object; `None` if it does not.
    pub fn why(&self, kind: &str, key: &Key) -> Option<String> {
        let all = self.0.lock();
        if all.is_empty() {
            return None;
        }
        let refusal = all.get(&(kind.to_owned(), key.clone()))?;
        let is_pending = refusal.is_pending(Instant::now());
        is_pending.then(|| refusal.why.clone())
    }

    /// The object was written, or is gone.
    pub fn written(&self, kind: &str, key: &Key) {
        let mut all = self.0.lock();
        if !all.is_empty() {
            all.remove(&(kind.to_owned(), key.clone()));
        }
    }

    /// The objects whose writes are refused now, by kind and key.
    pub fn all(&self) -> Vec<(String, Key)> {
        let mut all = self.0.lock();
        let now = Instant::now();
        all.retain(|_, refusal| refusal.is_pending(now));
        all.keys().cloned().collect()
    }
}

impl Refusal {
    fn is_pending(&self, now: Instant) -> bool {
        now.duration_since(self.at) < PENDING_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(name: &str) -> Key {
        Key::new("ns", name)
    }

    #[tokio::test(start_paused = true)]
    async fn run_1_what_is_refused_is_named_until_it_is_written() {
        let writes = RefusedWrites::default();
        writes.refused("Service", &key("a"), "no");
        writes.refused("Service", &key("a"), "no");
        writes.refused("LoadBalancer", &key("a"), "no");
        writes.written("Service", &key("b"));
        let named = |kind: &str| (kind.to_owned(), key("a"));
        assert_eq!(writes.all(), [named("LoadBalancer"), named("Service")]);
        writes.written("LoadBalancer", &key("a"));
        assert_eq!(writes.all(), [named("Service")]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_1_what_nobody_tries_any_more_is_forgotten() {
        let writes = RefusedWrites::default();
        writes.refused("Service", &key("a"), "no");
        tokio::time::advance(PENDING_FOR / 2).await;
        writes.refused("Service", &key("b"), "no");
        tokio::time::advance(PENDING_FOR / 2).await;
        assert_eq!(writes.all(), [("Service".to_owned(), key("b"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_1_why_it_was_refused_last() {
        let writes = RefusedWrites::default();
        assert_eq!(writes.why("Service", &key("a")), None);
        writes.refused("Service", &key("a"), "no");
        writes.refused("Service", &key("a"), &"ä".repeat(1_000));
        let why = writes.why("Service", &key("a")).unwrap();
        assert_eq!(why, "ä".repeat(LONGEST_REASON / 2));
        assert_eq!(writes.why("LoadBalancer", &key("a")), None);
        tokio::time::advance(PENDING_FOR).await;
        assert_eq!(writes.why("Service", &key("a")), None);
    }

    #[tokio::test(start_paused = true)]
    async fn run_1_the_memory_is_bounded() {
        let writes = RefusedWrites::default();
        for n in 0..MAX_OBJECTS + 10 {
            writes.refused("Service", &key(&n.to_string()), "no");
        }
        assert_eq!(writes.all().len(), MAX_OBJECTS);
    }
}
