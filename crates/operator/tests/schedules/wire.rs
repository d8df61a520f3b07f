//! Transport between the operator's client and the simulated API server: each request waits here until the schedule decides
//! on its outcome.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use harvester_lb_controller_kit::events::QueuedEvent;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::BoxError;

use super::api::Answer;
use super::call::{Call, Seen};
use super::sent::Sent;

type Answered = Result<Response<Body>, BoxError>;

/// A request that waits for its answer.
pub(crate) struct Open {
    /// The task that sent it.
    pub(crate) task: u64,
    pub(crate) call: Call,
    answer: oneshot::Sender<Answered>,
}

impl Open {
    /// The API server's answer.
    pub(crate) fn answer(self, answer: &Answer) -> Call {
        let body = serde_json::to_vec(&*answer.body).unwrap();
        let response = Response::builder()
            .status(answer.code)
            .body(Body::from(body))
            .unwrap();
        let _ = self.answer.send(Ok(response));
        self.call
    }

    /// The connection breaks.
    pub(crate) fn lose(self) -> Call {
        let _ = self.answer.send(Err("the connection broke".into()));
        self.call
    }
}

#[derive(Default)]
struct Inner {
    sender: u64,
    /// How far its watches have got.
    seen: Seen,
    open: Vec<Open>,
    /// The recorded requests, if recording is on.
    sent: Option<Sent>,
}

/// All requests in flight.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Inner>>);

impl Wire {
    /// Attributes the following requests to this task of a process whose watches have got that far.
    pub(crate) fn sender(&self, task: u64, seen: Seen) {
        let mut inner = self.0.lock();
        (inner.sender, inner.seen) = (task, seen);
    }

    /// The number of waiting requests of a task.
    pub(crate) fn waiting(&self, task: u64) -> usize {
        self.0.lock().open.iter().filter(|o| o.task == task).count()
    }

    /// Takes the `nth` waiting request of a task.
    pub(crate) fn take(&self, task: u64, nth: usize) -> Option<Open> {
        let mut inner = self.0.lock();
        let of_task = inner
            .open
            .iter()
            .enumerate()
            .filter(|(_, o)| o.task == task);
        let at = of_task.map(|(at, _)| at).nth(nth)?;
        Some(inner.open.remove(at))
    }

    /// Records requests from now on, with their lines if requested.
    pub(crate) fn record(&self, lines: bool) {
        self.0.lock().sent = Some(Sent::new(lines));
    }

    /// The requests since [`Self::clear`].
    pub(crate) fn sent(&self) -> Option<Sent> {
        self.0.lock().sent.clone()
    }

    /// Records an Event, which does not pass through this transport.
    pub(crate) fn event(&self, note: &QueuedEvent) {
        if let Some(sent) = &mut self.0.lock().sent {
            sent.event(note);
        }
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        let mut inner = self.0.lock();
        let sent = inner.sent.as_ref().map(Sent::cleared);
        *inner = Inner {
            sent,
            ..Inner::default()
        };
    }
}

impl tower::Service<Request<Body>> for Wire {
    type Response = Response<Body>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Answered>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (head, body) = request.into_parts();
        let body = body.collect_bytes().now_or_never().unwrap().unwrap();
        let content_type = head.headers.get(http::header::CONTENT_TYPE);
        let content_type = content_type.map_or("", |t| t.to_str().unwrap());
        let (answer, answered) = oneshot::channel();
        let mut inner = self.0.lock();
        let (method, path) = (head.method.as_str(), head.uri.path());
        let call = Call::parse(method, path, content_type, &body, inner.seen);
        if let Some(sent) = &mut inner.sent {
            let path = head.uri.path_and_query().map_or("", |path| path.as_str());
            sent.request(head.method.as_str(), path, &body);
        }
        let task = inner.sender;
        inner.open.push(Open { task, call, answer });
        Box::pin(async move {
            answered
                .await
                .unwrap_or_else(|_| Err("nobody answers".into()))
        })
    }
}
