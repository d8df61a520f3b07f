//! Response bodies with faults: watches that end early or fall silent, lists that stop in the middle.

use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::{Body, BodyDataStream, Bytes};
use axum::response::Response;
use futures::{StreamExt, stream};
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::fault::{After, End, Refusal};
use super::mode::{Mode, Unavailable};
use super::request::Seen;
use super::shared::{Shared, Watching};

/// Time for the last bytes to be sent before the connection is cut: otherwise the client would not see them.
const FLUSH: Duration = Duration::from_millis(20);
/// Timeout of a list.
const PATIENCE: Duration = Duration::from_mins(1);
/// Largest event of a watch, in bytes: three times the largest object that etcd accepts.
const EVENT: usize = 8 << 20;
/// The beginning of an event, for a watch that is cut in the middle of one while there is none.
const TORN: &[u8] = br#"{"type":"MODIFIED","object":{"apiVersion":"v1","metadata":{"na"#;

/// How a watch ends, except by itself.
pub(crate) enum Ending {
    Never,
    Then(After, End),
    /// Nothing passes while the rule of this number holds; then the connection is cut.
    Silent(u64),
}

/// The response of a watch, event by event.
pub(crate) fn events(
    shared: &Arc<Shared>,
    seen: Seen,
    answer: Response,
    ending: Ending,
) -> Response {
    let (parts, body) = answer.into_parts();
    let registered = Registered::new(shared, seen);
    let deadline = match ending {
        Ending::Then(After::Time(time), _) => Some(Instant::now() + time),
        _ => None,
    };
    let events = Events {
        registered,
        body: body.into_data_stream(),
        buffer: Vec::new(),
        passed: 0,
        ending,
        deadline,
        last: None,
    };
    let stream = stream::unfold(events, |mut events| async move {
        let item = events.next().await?;
        Some((item, events))
    });
    Response::from_parts(parts, Body::from_stream(stream))
}

/// An entry in the list of running watches.
struct Registered {
    shared: Arc<Shared>,
    id: u64,
    cut: Arc<Notify>,
}

impl Registered {
    fn new(shared: &Arc<Shared>, seen: Seen) -> Self {
        let id = shared.next_watch.fetch_add(1, Ordering::Relaxed);
        let cut = Arc::new(Notify::new());
        let watching = Watching {
            seen,
            cut: Arc::clone(&cut),
        };
        shared.watching.lock().insert(id, watching);
        Self {
            shared: Arc::clone(shared),
            id,
            cut,
        }
    }
}

impl Registered {
    /// Waits until the rule is gone or the connection is cut.
    async fn abandoned(&self, rule: u64) {
        tokio::select! {
            () = self.shared.without(rule) => {}
            () = self.cut.notified() => {}
            () = self.shared.until(|m| m.is_cut()) => {}
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.shared.watching.lock().remove(&self.id);
    }
}

struct Events {
    registered: Registered,
    body: BodyDataStream,
    buffer: Vec<u8>,
    passed: usize,
    ending: Ending,
    deadline: Option<Instant>,
    /// The final item, if the one returned last was the last but one.
    last: Option<Last>,
}

enum Last {
    Cut,
    End,
}

/// The next step of a watch.
enum Next {
    Chunk(Option<Result<Bytes, axum::Error>>),
    Ends(End),
}

impl Events {
    /// The next chunk; an error cuts the connection.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        match self.last.take() {
            Some(Last::End) => return None,
            Some(Last::Cut) => return cut().await,
            None => {}
        }
        loop {
            let shared = Arc::clone(&self.registered.shared);
            shared
                .until(|m| *m != Mode::Unavailable(Unavailable::Silent))
                .await;
            if shared.mode.borrow().is_cut() {
                return cut().await;
            }
            if !matches!(self.ending, Ending::Silent(_))
                && let Some(event) = self.take_event()
            {
                if let Ending::Then(After::Events(limit), end) = self.ending
                    && self.passed >= limit
                {
                    return self.end(end, &event).await;
                }
                self.passed += 1;
                return Some(Ok(event));
            }
            match self.wait().await {
                Next::Ends(end) => return self.end(end, TORN).await,
                Next::Chunk(ended @ (None | Some(Err(_)))) => {
                    // A dead connection does not show that the other end has hung up either.
                    if let Ending::Silent(rule) = self.ending {
                        self.registered.abandoned(rule).await;
                    } else if ended.is_none() {
                        return None;
                    }
                    return cut().await;
                }
                Next::Chunk(Some(Ok(chunk))) => {
                    if matches!(self.ending, Ending::Silent(_)) {
                        continue;
                    }
                    if self.buffer.len() + chunk.len() > EVENT {
                        return cut().await;
                    }
                    self.buffer.extend_from_slice(&chunk);
                }
            }
        }
    }

    fn take_event(&mut self) -> Option<Bytes> {
        let end = self.buffer.iter().position(|b| *b == b'\n')?;
        let rest = self.buffer.split_off(end + 1);
        Some(Bytes::from(std::mem::replace(&mut self.buffer, rest)))
    }

    async fn wait(&mut self) -> Next {
        let shared = &self.registered.shared;
        let deadline = async {
            match self.deadline {
                Some(at) => sleep_until(at).await,
                None => pending().await,
            }
        };
        let end = match self.ending {
            Ending::Then(_, end) => end,
            _ => End::Cut,
        };
        let released = async {
            match self.ending {
                Ending::Silent(rule) => shared.without(rule).await,
                _ => pending().await,
            }
        };
        tokio::select! {
            chunk = self.body.next() => Next::Chunk(chunk),
            () = deadline => Next::Ends(end),
            () = self.registered.cut.notified() => Next::Ends(End::Cut),
            () = released => Next::Ends(End::Cut),
            () = shared.until(|m| *m != Mode::Here) => Next::Chunk(Some(Ok(Bytes::new()))),
        }
    }

    /// The last chunk, or the last but one. `event` is the event that would come next.
    async fn end(&mut self, end: End, event: &[u8]) -> Option<io::Result<Bytes>> {
        match end {
            End::Clean => None,
            End::Cut => cut().await,
            End::Torn => {
                self.last = Some(Last::Cut);
                let half = event.get(..event.len() / 2).unwrap_or_default();
                Some(Ok(Bytes::copy_from_slice(half)))
            }
            End::Expired => {
                self.last = Some(Last::End);
                let event =
                    serde_json::json!({"type": "ERROR", "object": Refusal::expired().status()});
                Some(Ok(Bytes::from(format!("{event}\n"))))
            }
        }
    }
}

/// Cuts the connection without the end of the response, once the earlier bytes are sent.
async fn cut<T>() -> Option<io::Result<T>> {
    sleep(FLUSH).await;
    Some(Err(io::ErrorKind::ConnectionReset.into()))
}

/// The first half of a response, without an end. `None` if there was no response.
pub(crate) async fn halved(answer: Response, limit: usize) -> Option<Response> {
    let (parts, body) = answer.into_parts();
    let bytes = timeout(PATIENCE, axum::body::to_bytes(body, limit)).await;
    let bytes = bytes.ok()?.ok()?;
    let half = bytes.slice(..bytes.len() / 2);
    let pieces = stream::unfold(Some(half), |half| async move {
        let piece = match half {
            Some(half) => Ok(half),
            None => cut().await?,
        };
        Some((piece, None))
    });
    Some(Response::from_parts(parts, Body::from_stream(pieces)))
}
