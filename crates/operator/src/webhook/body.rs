//! The body of a request, within limits of size, time and memory.
//!
//! A body of 3 MiB made of tiny values takes more than 600 MiB once it is decoded. So the memory of a decoded body is
//! estimated from its text first, and all that is decoded at one time is bounded by a [`Budget`].

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::{Body, Bytes};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

/// Largest body, in bytes. A review holds two copies of an object at most, and the API server stores none above 1.5 MiB.
pub const LIMIT: usize = 3 * 1024 * 1024;
/// Time limit of a body, from the head of its request.
pub const TIME: Duration = Duration::from_secs(10);
/// Most memory that one decoded body may take, in bytes. A LoadBalancer with 10,000 listeners, in two copies, is below.
const TREE_LIMIT: usize = 80 * 1024 * 1024;
/// Part of a body that every connection may always receive, in bytes. Few LoadBalancers are larger, so clients that send
/// large bodies slowly, or do not read their answers, keep no ordinary request waiting. 512 connections make 16 MiB of it.
const FREE: usize = 32 * 1024;
/// Memory of all bodies that are being received, and of all responses that are being sent, in KiB, without the free parts.
const RECEIVING: usize = 64 * 1024;
/// Memory of all bodies that are being decoded and answered, in KiB.
const DECODING: usize = 160 * 1024;
/// Unit of the budgets: a semaphore counts at most 2^29 permits.
const KIB: usize = 1024;

/// Why a body is not used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Above [`LIMIT`].
    TooLarge,
    /// It would take too much memory once decoded.
    TooComplex,
    /// Not complete in time.
    Timeout,
    /// The connection broke.
    Broken,
    /// Too much is being answered at the moment.
    Busy,
}

impl Refused {
    /// For the metric's label.
    pub const fn as_label(self) -> &'static str {
        match self {
            Self::TooLarge => "too_large",
            Self::TooComplex => "too_complex",
            Self::Timeout => "timeout",
            Self::Broken => "broken",
            Self::Busy => "busy",
        }
    }

    /// All reasons.
    pub const ALL: [Self; 5] = [
        Self::TooLarge,
        Self::TooComplex,
        Self::Timeout,
        Self::Broken,
        Self::Busy,
    ];
}

/// The memory for bodies.
#[derive(Clone, Debug)]
pub struct Budget {
    receiving: Arc<Semaphore>,
    decoding: Arc<Semaphore>,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            receiving: Arc::new(Semaphore::new(RECEIVING)),
            decoding: Arc::new(Semaphore::new(DECODING)),
        }
    }
}

/// A body. It counts in the budget until it is dropped.
#[derive(Debug)]
pub struct Received {
    /// The bytes.
    pub bytes: Vec<u8>,
    held: Held,
    _decoding: OwnedSemaphorePermit,
}

impl Received {
    /// Drops the body. Its memory counts on for its response, which is about as large, until that is dropped.
    pub fn into_held(self) -> Held {
        self.held
    }
}

/// Memory that counts in the budget.
#[derive(Debug)]
pub struct Held {
    _memory: Option<OwnedSemaphorePermit>,
}

impl Budget {
    /// Receives a body. One that is refused because of its size is received to its end all the same, as far as the time
    /// allows: a client that is still sending would not read the answer, and report a broken connection instead.
    pub async fn receive<B>(&self, mut body: B) -> Result<Received, Refused>
    where
        B: Body<Data = Bytes> + Unpin,
    {
        let until = Instant::now() + TIME;
        let mut bytes = Vec::new();
        let mut memory: Option<OwnedSemaphorePermit> = None;
        let mut is_too_large = false;
        loop {
            let frame = match timeout_at(until, body.frame()).await {
                Err(_) if is_too_large => break,
                Err(_) => return Err(Refused::Timeout),
                Ok(None) => break,
                Ok(Some(Err(_))) => return Err(Refused::Broken),
                Ok(Some(Ok(frame))) => frame,
            };
            let Ok(data) = frame.into_data() else {
                continue;
            };
            is_too_large |= bytes.len().saturating_add(data.len()) > LIMIT;
            if is_too_large {
                (bytes, memory) = (Vec::new(), None);
                continue;
            }
            let counted = |length: usize| length.saturating_sub(FREE);
            let more = counted(bytes.len() + data.len()) - counted(bytes.len());
            if more > 0 {
                let more = self.reserve(&self.receiving, more, until).await?;
                match &mut memory {
                    Some(memory) => memory.merge(more),
                    None => memory = Some(more),
                }
            }
            bytes.extend_from_slice(&data);
        }
        if is_too_large {
            return Err(Refused::TooLarge);
        }
        let tree = decoded_size(&bytes);
        if tree > TREE_LIMIT {
            return Err(Refused::TooComplex);
        }
        let until = Instant::now() + TIME / 2;
        let decoding = self.reserve(&self.decoding, tree, until).await?;
        Ok(Received {
            bytes,
            held: Held { _memory: memory },
            _decoding: decoding,
        })
    }

    async fn reserve(
        &self,
        of: &Arc<Semaphore>,
        bytes: usize,
        until: Instant,
    ) -> Result<OwnedSemaphorePermit, Refused> {
        let kib = u32::try_from(bytes.div_ceil(KIB)).unwrap_or(u32::MAX);
        match timeout_at(until, Arc::clone(of).acquire_many_owned(kib)).await {
            Ok(Ok(permit)) => Ok(permit),
            _ => Err(Refused::Busy),
        }
    }
}

/// Memory of the JSON tree of a text, in bytes, estimated from above: punctuation outside of strings gives the number of
/// its nodes. Sizes are those of `serde_json::Value` on 64 bits: a value takes 32 bytes, an entry of an object 24 more for
/// its key; lists double their capacity, from four; an object that is not empty has a node of a B-tree for eleven
/// entries, half of which are in use in a long one; each allocation costs up to 32 bytes more.
pub fn decoded_size(text: &[u8]) -> usize {
    let mut size = text.len();
    let (mut in_string, mut escaped) = (false, false);
    let mut bytes = text.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        size = size.saturating_add(match byte {
            b'"' => {
                in_string = true;
                32
            }
            // An empty object or list allocates nothing.
            b'{' if bytes.peek() == Some(&b'}') => 0,
            b'[' if bytes.peek() == Some(&b']') => 0,
            b'{' => 640,
            b'[' => 160,
            b':' => 140,
            b',' => 96,
            _ => 0,
        });
    }
    size
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_body_util::{Empty, Full, StreamBody};
    use hyper::body::Frame;
    use std::convert::Infallible;

    #[test]
    fn tiny_values_are_counted_and_strings_are_not() {
        let large = |unit: &str| {
            let text = format!("[{}0]", unit.repeat(LIMIT / unit.len() - 1));
            decoded_size(text.as_bytes())
        };
        for unit in [r#"{"":0},"#, "[0],", "0,", r#""","#, "[[[[]]]],"] {
            assert!(large(unit) > TREE_LIMIT, "{unit}");
        }
        let string = format!("\"{}\"", r#"{\":,[}"#.repeat(LIMIT / 8));
        assert_eq!(decoded_size(string.as_bytes()), string.len() + 32);
        assert_eq!(decoded_size(b""), 0);
        assert_eq!(decoded_size(b"{}"), 2);
        assert_eq!(decoded_size(br#""\\""#), 4 + 32);
    }

    /// Heap bytes of a value, as far as they can be told from its content.
    fn measured(value: &serde_json::Value) -> usize {
        use serde_json::Value;
        match value {
            Value::String(text) => text.capacity(),
            Value::Array(items) => {
                items.capacity() * size_of::<Value>() + items.iter().map(measured).sum::<usize>()
            }
            Value::Object(fields) if !fields.is_empty() => {
                let node = 11 * (size_of::<String>() + size_of::<Value>()) + 16;
                let nodes = fields.len().div_ceil(6);
                let inner = |(key, value): (&String, &Value)| key.capacity() + measured(value);
                nodes * node + fields.iter().map(inner).sum::<usize>()
            }
            _ => 0,
        }
    }

    #[test]
    fn the_estimate_is_above_what_a_tree_takes() {
        let mut random = fastrand::Rng::with_seed(7);
        for _ in 0..500 {
            let value = random_value(&mut random, 5);
            let text = serde_json::to_string(&value).unwrap();
            let value: serde_json::Value = serde_json::from_str(&text).unwrap();
            let (estimated, real) = (decoded_size(text.as_bytes()), measured(&value));
            assert!(estimated >= real, "{estimated} < {real}: {text}");
        }
    }

    fn random_value(random: &mut fastrand::Rng, depth: u32) -> serde_json::Value {
        use serde_json::Value;
        let items = random.usize(..8);
        match random.u8(if depth == 0 { 2..4 } else { 0..4 }) {
            0 => (0..items)
                .map(|_| random_value(random, depth - 1))
                .collect(),
            1 => (0..items)
                .map(|n| (format!("{n}"), random_value(random, depth - 1)))
                .collect(),
            2 => Value::from(random.u8(..)),
            _ => Value::from("x".repeat(random.usize(..40))),
        }
    }

    #[tokio::test]
    async fn bodies_up_to_the_limit_are_received() {
        let budget = Budget::default();
        for size in [0, 1, KIB, LIMIT] {
            let body = Full::new(Bytes::from(vec![b'"'; size]));
            let received = budget.receive(body).await;
            // A body of quotes alone has few values.
            assert_eq!(received.map(|r| r.bytes.len()), Ok(size));
        }
        let body = Full::new(Bytes::from(vec![b' '; LIMIT + 1]));
        assert_eq!(refused(&budget, body).await, Refused::TooLarge);
        let body = Full::new(Bytes::from("0,".repeat(LIMIT / 2)));
        assert_eq!(refused(&budget, body).await, Refused::TooComplex);
        assert_eq!(budget.receiving.available_permits(), RECEIVING);
        assert_eq!(budget.decoding.available_permits(), DECODING);
        let empty = Empty::<Bytes>::new();
        assert!(budget.receive(empty).await.is_ok());
    }

    async fn refused<B: Body<Data = Bytes> + Unpin>(budget: &Budget, body: B) -> Refused {
        budget.receive(body).await.map(|_| ()).unwrap_err()
    }

    /// A body of frames of 64 KiB, `pause` apart.
    fn slow(frames: usize, pause: Duration) -> impl Body<Data = Bytes, Error = Infallible> + Unpin {
        let frames = futures::stream::unfold(0, move |n| async move {
            if n == frames {
                return None;
            }
            tokio::time::sleep(pause).await;
            let frame = Frame::data(Bytes::from(vec![b' '; 64 * KIB]));
            Some((Ok(frame), n + 1))
        });
        StreamBody::new(Box::pin(frames))
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_body_times_out_and_one_that_is_too_large_is_received_to_its_end() {
        let budget = Budget::default();
        let second = Duration::from_secs(1);
        let started = Instant::now();
        assert!(budget.receive(slow(8, second)).await.is_ok());
        assert_eq!(started.elapsed(), 8 * second);
        let started = Instant::now();
        assert_eq!(refused(&budget, slow(20, second)).await, Refused::Timeout);
        assert_eq!(started.elapsed(), TIME);
        // 6.4 MB in five seconds: refused once it is received.
        let started = Instant::now();
        let body = slow(100, second / 20);
        assert_eq!(refused(&budget, body).await, Refused::TooLarge);
        assert_eq!(started.elapsed(), 5 * second);
        // One without an end is refused after the time limit.
        let started = Instant::now();
        let body = slow(10_000, second / 20);
        assert_eq!(refused(&budget, body).await, Refused::TooLarge);
        assert_eq!(started.elapsed(), TIME);
        assert_eq!(budget.receiving.available_permits(), RECEIVING);
    }

    #[tokio::test(start_paused = true)]
    async fn memory_is_bounded() {
        let budget = Budget::default();
        let body = || Full::new(Bytes::from("0,".repeat(300_000)));
        let mut kept = Vec::new();
        let refused = loop {
            match budget.receive(body()).await {
                Ok(received) => kept.push(received),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, Refused::Busy);
        assert!((3..10).contains(&kept.len()), "{}", kept.len());
        kept.pop();
        assert!(budget.receive(body()).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn large_bodies_and_responses_keep_no_small_body_waiting() {
        let budget = Budget::default();
        let large = || Full::new(Bytes::from(vec![b' '; LIMIT]));
        let mut held = Vec::new();
        let refused = loop {
            match budget.receive(large()).await {
                // It is answered, and the client does not read.
                Ok(received) => held.push(received.into_held()),
                Err(refused) => break refused,
            }
        };
        assert_eq!(refused, Refused::Busy);
        assert!((20..25).contains(&held.len()), "{}", held.len());
        assert_eq!(budget.decoding.available_permits(), DECODING);
        let started = Instant::now();
        let small = Full::new(Bytes::from(vec![b' '; FREE]));
        assert!(budget.receive(small).await.is_ok());
        assert!(started.elapsed().is_zero(), "{:?}", started.elapsed());
        held.clear();
        assert_eq!(budget.receiving.available_permits(), RECEIVING);
    }
}
