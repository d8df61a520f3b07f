//! A request that is caught, and waits for a test's command.

use std::time::Duration;

use anyhow::Context;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::fault::Refusal;
use super::request::Seen;

/// Longest wait for a request to arrive, and for one that was let go to be done.
pub(super) const PATIENCE: Duration = Duration::from_mins(1);

/// Where on its way a request is caught.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// Before the API server sees it.
    Before,
    /// When the API server has done it, before the answer goes out.
    After,
}

/// What becomes of a request that was caught.
#[derive(Debug)]
pub(crate) enum Command {
    LetGo,
    Cut,
    Refuse(Refusal),
}

/// A request that waits. Dropping this lets it go.
///
/// Its sender waits too, as long as it likes: one that gives up, or is killed, does not take the request back.
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
    /// Is told the code of the API server's answer.
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

    /// What it is about.
    pub fn request(&self) -> &Seen {
        &self.request
    }

    /// Code of the API server's answer, if caught [`Moment::After`].
    pub fn code(&self) -> Option<u16> {
        self.code
    }

    /// Lets it go on, waits until the API server has answered, and gives the code of that answer.
    pub async fn let_go(self) -> anyhow::Result<u16> {
        // An error means that the proxy is gone, which the next line tells.
        let _ = self.command.send(Command::LetGo);
        let code = timeout(PATIENCE, self.done).await;
        code.context("no answer within 60 s")?
            .context("the request was not done")
    }

    /// Cuts its connection: a request caught before is never done, one caught after has no answer.
    pub fn cut(self) {
        let _ = self.command.send(Command::Cut);
    }

    /// Answers it like this, in place of the API server.
    pub fn refuse(self, refusal: Refusal) {
        let _ = self.command.send(Command::Refuse(refusal));
    }
}
