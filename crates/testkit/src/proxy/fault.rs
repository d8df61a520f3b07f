//! What can be done to requests, and how often.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use kube::core::Status;

/// How often a rule does what it is for.
#[derive(Clone, Debug)]
pub struct Share(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Always,
    Times(u32),
    Percent(u8, fastrand::Rng),
}

impl Share {
    /// Each matching request.
    pub const fn all() -> Self {
        Self(Kind::Always)
    }

    /// The next so many of them.
    pub const fn times(times: u32) -> Self {
        Self(Kind::Times(times))
    }

    /// So many in a hundred, by chance from a seed.
    pub fn percent(percent: u8, seed: u64) -> Self {
        Self(Kind::Percent(percent, fastrand::Rng::with_seed(seed)))
    }

    pub(super) fn take(&mut self) -> bool {
        match &mut self.0 {
            Kind::Always => true,
            Kind::Times(0) => false,
            Kind::Times(left) => {
                *left -= 1;
                true
            }
            Kind::Percent(percent, rng) => rng.u8(0..100) < *percent,
        }
    }
}

/// An answer that the API server did not give.
#[derive(Clone, Debug)]
pub struct Refusal {
    code: u16,
    reason: &'static str,
    retry_after: Option<u32>,
}

impl Refusal {
    const fn new(code: u16, reason: &'static str) -> Self {
        Self {
            code,
            reason,
            retry_after: None,
        }
    }

    /// 409: the object has changed.
    pub const fn conflict() -> Self {
        Self::new(409, "Conflict")
    }

    /// 409: there is one of that name.
    pub const fn already_exists() -> Self {
        Self::new(409, "AlreadyExists")
    }

    /// 410: the version or the continue token is too old.
    pub const fn expired() -> Self {
        Self::new(410, "Expired")
    }

    /// 429, with the header Retry-After (in seconds) if given.
    pub const fn too_many(retry_after: Option<u32>) -> Self {
        Self {
            retry_after,
            ..Self::new(429, "TooManyRequests")
        }
    }

    /// 500.
    pub const fn internal() -> Self {
        Self::new(500, "InternalError")
    }

    /// 503.
    pub const fn unavailable() -> Self {
        Self::new(503, "ServiceUnavailable")
    }

    /// 504.
    pub const fn timeout() -> Self {
        Self::new(504, "Timeout")
    }

    /// 403.
    pub const fn forbidden() -> Self {
        Self::new(403, "Forbidden")
    }

    /// The `Status` object.
    pub(crate) fn status(&self) -> Status {
        let message = format!("the proxy of the test bed says {}", self.reason);
        Status::failure(&message, self.reason).with_code(self.code)
    }

    pub(crate) fn response(&self) -> Response {
        let status = self.status();
        // A status has no part that could fail to be written.
        let text = serde_json::to_vec(&status).unwrap_or_default();
        let mut response = Response::new(Body::from(text));
        *response.status_mut() =
            StatusCode::from_u16(self.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let json = HeaderValue::from_static("application/json");
        response.headers_mut().insert(header::CONTENT_TYPE, json);
        if let Some(seconds) = self.retry_after {
            response
                .headers_mut()
                .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// When a watch is ended.
#[derive(Clone, Copy, Debug)]
pub enum After {
    /// After so many events, bookmarks included.
    Events(usize),
    /// After this time, whether there were events or not.
    Time(Duration),
}

/// How a watch is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The answer is complete, as after the watch's own time.
    Clean,
    /// The connection is cut between two events.
    Cut,
    /// The connection is cut in the middle of an event.
    Torn,
    /// An event says that the version is too old (410), and the answer is complete.
    Expired,
}

/// What is done to a request. The first two alter it and leave it to the next rules; each of the others is the last word.
#[derive(Clone, Debug)]
pub enum Fault {
    /// It waits so long before it is forwarded, or until the rule is gone.
    Delay(Duration),
    /// A list is given in pages of this size, whatever was asked for.
    Pages(u32),
    /// It is answered like this and not forwarded.
    Refuse(Refusal),
    /// The connection is cut; it is not forwarded.
    Cut,
    /// It is forwarded and done, and the connection is cut in place of the answer.
    LoseAnswer,
    /// It is forwarded and done, and answered like this all the same.
    DenyAnswer(Refusal),
    /// It is forwarded; of the answer's body (of a list, most likely) the first half comes, then the connection is cut.
    Truncate,
    /// A watch ends early.
    EndWatch(After, End),
    /// A watch gives no event and no end, as over a line that has gone dead. When the rule is gone, it is cut.
    Swallow,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(mut share: Share, of: usize) -> usize {
        (0..of).filter(|_| share.take()).count()
    }

    #[test]
    fn shares_are_what_they_say() {
        assert_eq!(hits(Share::all(), 100), 100);
        assert_eq!(hits(Share::times(3), 100), 3);
        assert_eq!(hits(Share::percent(0, 1), 1_000), 0);
        assert_eq!(hits(Share::percent(100, 1), 1_000), 1_000);
        let third = hits(Share::percent(33, 1), 1_000);
        assert!((250..420).contains(&third), "{third}");
        assert_eq!(third, hits(Share::percent(33, 1), 1_000), "by the seed");
    }
}
