//! A queue of keys that are due.
//!
//! A key is in the queue at most once, regardless of how often it is added, and at most one worker has it at a time: a
//! key that is added while a worker has it returns when that worker is done. So the size of the queue is bounded by the
//! number of objects. Order is first come, first served.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::hash::Hash;
use std::time::Duration;

use parking_lot::Mutex;
use rustc_hash::FxBuildHasher;
use tokio::sync::Notify;
use tokio::time::Instant;

#[derive(Debug)]
struct Inner<K> {
    ready: VecDeque<K>,
    /// Keys in `ready`, and keys that return when their worker is done.
    wanted: HashSet<K, FxBuildHasher>,
    working: HashSet<K, FxBuildHasher>,
    by_time: BTreeSet<(Instant, K)>,
    times: HashMap<K, Instant, FxBuildHasher>,
    closed: bool,
}

/// A queue of keys.
#[derive(Debug)]
pub struct Queue<K> {
    inner: Mutex<Inner<K>>,
    changed: Notify,
    ended: Notify,
}

impl<K> Default for Queue<K> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                ready: VecDeque::new(),
                wanted: HashSet::default(),
                working: HashSet::default(),
                by_time: BTreeSet::new(),
                times: HashMap::default(),
                closed: false,
            }),
            changed: Notify::new(),
            ended: Notify::new(),
        }
    }
}

impl<K: Clone + Eq + Hash + Ord> Queue<K> {
    /// The key is due now.
    pub fn add(&self, key: K) {
        let mut inner = self.inner.lock();
        inner.want(key);
        drop(inner);
        self.changed.notify_one();
    }

    /// The key is due after a delay, or sooner if another caller adds it sooner.
    pub fn add_after(&self, key: K, delay: Duration) {
        let at = Instant::now() + delay;
        let mut inner = self.inner.lock();
        match inner.times.get(&key) {
            Some(present) if *present <= at => return,
            Some(present) => {
                let present = *present;
                inner.by_time.remove(&(present, key.clone()));
            }
            None => {}
        }
        inner.times.insert(key.clone(), at);
        inner.by_time.insert((at, key));
        drop(inner);
        self.changed.notify_one();
    }

    /// Waits for the next due key. `None` once the queue is closed. The caller must call [`Queue::done`].
    pub async fn next(&self) -> Option<K> {
        loop {
            let changed = self.changed.notified();
            let next_time = {
                let mut inner = self.inner.lock();
                if inner.closed {
                    // The notification wakes one waiter; each passes it on.
                    self.changed.notify_one();
                    return None;
                }
                inner.expire(Instant::now());
                if let Some(key) = inner.ready.pop_front() {
                    inner.wanted.remove(&key);
                    inner.working.insert(key.clone());
                    if !inner.ready.is_empty() {
                        self.changed.notify_one();
                    }
                    return Some(key);
                }
                inner.by_time.first().map(|(at, _)| *at)
            };
            match next_time {
                Some(at) => {
                    tokio::select! {
                        () = changed => {}
                        () = tokio::time::sleep_until(at) => {}
                    }
                }
                None => changed.await,
            }
        }
    }

    /// The worker is done with the key. If it was added meanwhile, it is due again.
    pub fn done(&self, key: &K) {
        let mut inner = self.inner.lock();
        inner.working.remove(key);
        if inner.wanted.contains(key) {
            inner.ready.push_back(key.clone());
            drop(inner);
            self.changed.notify_one();
        }
    }

    /// Whether a worker has the key.
    pub fn is_working(&self, key: &K) -> bool {
        self.inner.lock().working.contains(key)
    }

    /// Number of due keys that wait for a worker.
    pub fn depth(&self) -> usize {
        self.inner.lock().ready.len()
    }

    /// Whether no key is due and no worker is busy. Delayed keys do not count.
    pub fn is_idle(&self) -> bool {
        let inner = self.inner.lock();
        inner.ready.is_empty() && inner.working.is_empty()
    }

    /// Whether the queue is closed.
    pub fn is_closed(&self) -> bool {
        self.inner.lock().closed
    }

    /// Waits until the queue is closed.
    pub async fn closed(&self) {
        loop {
            let changed = self.ended.notified();
            if self.is_closed() {
                return;
            }
            changed.await;
        }
    }

    /// Closes the queue: every present and future [`Queue::next`] returns `None`.
    pub fn close(&self) {
        self.inner.lock().closed = true;
        self.changed.notify_one();
        self.ended.notify_waiters();
    }
}

impl<K: Clone + Eq + Hash + Ord> Inner<K> {
    fn want(&mut self, key: K) {
        if let Some(at) = self.times.remove(&key) {
            self.by_time.remove(&(at, key.clone()));
        }
        if self.wanted.insert(key.clone()) && !self.working.contains(&key) {
            self.ready.push_back(key);
        }
    }

    fn expire(&mut self, now: Instant) {
        while let Some((at, _)) = self.by_time.first() {
            if *at > now {
                break;
            }
            if let Some((_, key)) = self.by_time.pop_first() {
                self.times.remove(&key);
                self.want(key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    async fn next(queue: &Queue<&'static str>) -> Option<&'static str> {
        tokio::time::timeout(Duration::from_millis(1), queue.next())
            .await
            .ok()
            .flatten()
    }

    #[tokio::test(start_paused = true)]
    async fn a_key_is_queued_once_and_in_order() {
        let queue = Queue::default();
        for key in ["a", "b", "a", "c", "b"] {
            queue.add(key);
        }
        assert_eq!(queue.depth(), 3);
        assert_eq!(next(&queue).await, Some("a"));
        assert_eq!(next(&queue).await, Some("b"));
        assert_eq!(next(&queue).await, Some("c"));
        assert_eq!(next(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn one_worker_at_a_time() {
        let queue = Queue::default();
        queue.add("a");
        assert_eq!(next(&queue).await, Some("a"));
        queue.add("a");
        queue.add("a");
        assert_eq!(next(&queue).await, None, "a worker has it");
        assert!(!queue.is_idle());
        queue.done(&"a");
        assert_eq!(next(&queue).await, Some("a"), "it was asked for meanwhile");
        queue.done(&"a");
        assert_eq!(next(&queue).await, None);
        assert!(queue.is_idle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_is_shortened_never_lengthened() {
        let queue = Queue::default();
        queue.add_after("a", Duration::from_secs(10));
        queue.add_after("a", Duration::from_mins(1));
        tokio::time::advance(Duration::from_secs(9)).await;
        assert_eq!(next(&queue).await, None);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(next(&queue).await, Some("a"));
        queue.done(&"a");

        queue.add_after("a", Duration::from_mins(1));
        queue.add_after("a", Duration::from_secs(1));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(next(&queue).await, Some("a"));
        queue.done(&"a");
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(next(&queue).await, None, "the longer delay is gone");
    }

    #[tokio::test(start_paused = true)]
    async fn asking_now_drops_the_delay() {
        let queue = Queue::default();
        queue.add_after("a", Duration::from_secs(10));
        queue.add("a");
        assert_eq!(next(&queue).await, Some("a"));
        queue.done(&"a");
        tokio::time::advance(Duration::from_secs(20)).await;
        assert_eq!(next(&queue).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiting_worker_is_woken_by_a_delay() {
        let queue = Arc::new(Queue::default());
        let waiter = tokio::spawn({
            let queue = Arc::clone(&queue);
            async move { queue.next().await }
        });
        tokio::task::yield_now().await;
        queue.add_after("a", Duration::from_secs(3));
        assert_eq!(waiter.await.unwrap(), Some("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn closing_ends_every_worker() {
        let queue: Arc<Queue<&str>> = Arc::new(Queue::default());
        let workers: Vec<_> = (0..5)
            .map(|_| {
                let queue = Arc::clone(&queue);
                tokio::spawn(async move { queue.next().await })
            })
            .collect();
        tokio::task::yield_now().await;
        queue.close();
        for worker in workers {
            assert_eq!(worker.await.unwrap(), None);
        }
        assert_eq!(queue.next().await, None);
    }

    #[tokio::test]
    async fn many_workers_many_keys_nothing_is_lost() {
        let queue: Arc<Queue<u32>> = Arc::new(Queue::default());
        let seen = Arc::new(Mutex::new(HashSet::new()));
        let workers: Vec<_> = (0..8)
            .map(|_| {
                let (queue, seen) = (Arc::clone(&queue), Arc::clone(&seen));
                tokio::spawn(async move {
                    while let Some(key) = queue.next().await {
                        tokio::task::yield_now().await;
                        seen.lock().insert(key);
                        queue.done(&key);
                        if seen.lock().len() == 1000 {
                            queue.close();
                        }
                    }
                })
            })
            .collect();
        for key in 0..1000 {
            queue.add(key);
            if key % 7 == 0 {
                queue.add_after(key, Duration::from_millis(1));
                tokio::task::yield_now().await;
            }
        }
        for worker in workers {
            tokio::time::timeout(Duration::from_secs(30), worker)
                .await
                .unwrap()
                .unwrap();
        }
        assert_eq!(seen.lock().len(), 1000);
    }
}
