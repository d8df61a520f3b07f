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

/// The objects whose last write was refused, by kind.
#[derive(Debug, Default)]
pub struct RefusedWrites(Mutex<BTreeMap<(String, Key), Instant>>);

impl RefusedWrites {
    /// The API server refused to write the object, for its content or for missing permissions.
    pub fn refused(&self, kind: &str, key: &Key) {
        let mut all = self.0.lock();
        let now = Instant::now();
        if all.len() >= MAX_OBJECTS {
            all.retain(|_, at| now.duration_since(*at) < PENDING_FOR);
        }
        let key = (kind.to_owned(), key.clone());
        if all.len() < MAX_OBJECTS || all.contains_key(&key) {
            all.insert(key, now);
        }
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
        all.retain(|_, at| now.duration_since(*at) < PENDING_FOR);
        all.keys().cloned().collect()
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
        writes.refused("Service", &key("a"));
        writes.refused("Service", &key("a"));
        writes.refused("LoadBalancer", &key("a"));
        writes.written("Service", &key("b"));
        let named = |kind: &str| (kind.to_owned(), key("a"));
        assert_eq!(writes.all(), [named("LoadBalancer"), named("Service")]);
        writes.written("LoadBalancer", &key("a"));
        assert_eq!(writes.all(), [named("Service")]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_1_what_nobody_tries_any_more_is_forgotten() {
        let writes = RefusedWrites::default();
        writes.refused("Service", &key("a"));
        tokio::time::advance(PENDING_FOR / 2).await;
        writes.refused("Service", &key("b"));
        tokio::time::advance(PENDING_FOR / 2).await;
        assert_eq!(writes.all(), [("Service".to_owned(), key("b"))]);
    }

    #[tokio::test(start_paused = true)]
    async fn run_1_the_memory_is_bounded() {
        let writes = RefusedWrites::default();
        for n in 0..MAX_OBJECTS + 10 {
            writes.refused("Service", &key(&n.to_string()));
        }
        assert_eq!(writes.all().len(), MAX_OBJECTS);
    }
}
