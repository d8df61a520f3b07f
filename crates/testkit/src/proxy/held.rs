//! A held request, which waits for a test's command.

use std::time::Duration;

use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::fault::Refusal;
use super::request::Seen;

/// Timeout for a request to arrive, and for a released one to be done.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Where a request is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the API server sees it.
    Before,
    /// After the API server has done it, before the response is sent.
    After,
}

/// The test's command for a held request.
#[derive(Debug)]
pub(crate) enum Command {
    Release,
    Cut,
    Refuse(Refusal),
}

/// A held request. Dropping this releases it.
///
/// Its sender waits too, for as long as it wants: one that times out, or is killed, does not withdraw the request.
#[derive(Debug)]
pub struct Held {
    request: Seen,
    code: Option<u16>,
    command: oneshot::Sender<Command>,
    done: oneshot::Receiver<u16>,
}

/// The proxy's end of a [`Held`].
pub(crate) struct Waiting {
    pub(crate) command: oneshot::Receiver<Command>,
    /// Receives the status code of the API server's response.
    pub(crate) done: oneshot::Sender<u16>,
}

impl Held {
    pub(crate) fn new(request: Seen, code: Option<u16>) -> (Self, Waiting) {
        let (command, commanded) = oneshot::channel();
        let (done, seen_done) = oneshot::channel();
        let held = Self {
            request,
            code,
            command,
            done: seen_done,
        };
        let waiting = Waiting {
            command: commanded,
            done,
        };
        (held, waiting)
    }

    /// The request.
    pub fn request(&self) -> &Seen {
        &self.request
    }

    /// Status code of the API server's response, if held [`Moment::After`].
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// Releases it, waits until the API server has answered, and returns the status code.
    pub async fn release(self) -> anyhow::Result<u16> {
        // An error means that the proxy is gone, which the next line reports.
        let _ = self.command.send(Command::Release);
        let code = timeout(PATIENCE, self.done).await;
        code.context("no answer within 60 s")?
            .context("the request was not done")
    }

    /// Cuts its connection: a request held before is never done, one held after has no response.
    pub fn cut(self) {
        let _ = self.command.send(Command::Cut);
    }

    /// Answers it with this response, instead of the API server.
    pub fn refuse(self, refusal: Refusal) {
        let _ = self.command.send(Command::Refuse(refusal));
    }
}
