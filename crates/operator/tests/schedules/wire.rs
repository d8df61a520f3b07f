//! The way of a request from the operator's client to the API server of the simulation: each request stops here until the
//! schedule decides what becomes of it.

use std::sync::Arc;
use std::task::{Context, Poll};

use futures::FutureExt;
use futures::future::BoxFuture;
use harvester_lb_controller_kit::events::Note;
use http::{Request, Response};
use kube::client::Body;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tower::BoxError;

use super::api::{Answer, Call};
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
    open: Vec<Open>,
    /// What has come by, if somebody wants to know.
    sent: Option<Sent>,
}

/// All requests under way.
#[derive(Clone, Default)]
pub(crate) struct Wire(Arc<Mutex<Inner>>);

impl Wire {
    /// The requests that come now are those of this task.
    pub(crate) fn sender(&self, task: u64) {
        self.0.lock().sender = task;
    }

    /// How many requests of a task wait.
    pub(crate) fn waiting(&self, task: u64) -> usize {
        self.0.lock().open.iter().filter(|o| o.task == task).count()
    }

    /// Takes a request of a task, the `nth` of those that wait.
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

    /// Takes note of what comes by from now on, of each line if they are wanted.
    pub(crate) fn record(&self, lines: bool) {
        self.0.lock().sent = Some(Sent::new(lines));
    }

    /// What has come by since [`Self::clear`].
    pub(crate) fn sent(&self) -> Option<Sent> {
        self.0.lock().sent.clone()
    }

    /// An Event, which is sent another way.
    pub(crate) fn event(&self, note: &Note) {
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
        let call = Call::parse(head.method.as_str(), head.uri.path(), content_type, &body);
        let (answer, answered) = oneshot::channel();
        let mut inner = self.0.lock();
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
