//! The faults of requests, and their frequency.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::Response;
use kube::core::Status;

/// How often a rule applies.
#[derive(Clone, Debug)]
pub struct Frequency(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Always,
    Times(u32),
    Percent(u8, fastrand::Rng),
}

impl Frequency {
    /// To each matching request.
    pub const fn all() -> Self {
        Self(Kind::Always)
    }

    /// To the next `times` matching requests.
    pub const fn times(times: u32) -> Self {
        Self(Kind::Times(times))
    }

    /// To this percentage of requests, at random from a seed.
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

/// A response that the API server did not send.
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

    /// 409: an object of that name exists.
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
        // Serializing a status cannot fail.
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
    /// After this number of events, bookmarks included.
    Events(usize),
    /// After this time, regardless of events.
    Time(Duration),
}

/// How a watch is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The response is complete, as after a watch timeout.
    Clean,
    /// The connection is cut between two events.
    Cut,
    /// The connection is cut in the middle of an event.
    Torn,
    /// An event reports that the version is too old (410), and the response is complete.
    Expired,
}

/// The fault of a request. The first two modify it and leave it to the next rules; each of the others is final.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The request is delayed by this time, or until the rule is gone.
    Delay(Duration),
    /// A list is returned in pages of this size, regardless of the requested limit.
    Pages(u32),
    /// This response, and the request is not forwarded.
    Refuse(Refusal),
    /// The connection is cut, and the request is not forwarded.
    Cut,
    /// The request is forwarded and done, and the connection is cut instead of a response.
    LoseAnswer,
    /// The request is forwarded and done, and this is the response all the same.
    DenyAnswer(Refusal),
    /// The request is forwarded; the first half of the response's body (usually of a list) is sent, then the connection
    /// is cut.
    Truncate,
    /// A watch ends early.
    EndWatch(After, End),
    /// A watch has no event and no end, like a dead connection. When the rule is gone, the connection is cut.
    Swallow,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(mut frequency: Frequency, of: usize) -> usize {
        (0..of).filter(|_| frequency.take()).count()
    }

    #[test]
    fn shares_are_what_they_say() {
        assert_eq!(hits(Frequency::all(), 100), 100);
        assert_eq!(hits(Frequency::times(3), 100), 3);
        assert_eq!(hits(Frequency::percent(0, 1), 1_000), 0);
        assert_eq!(hits(Frequency::percent(100, 1), 1_000), 1_000);
        let third = hits(Frequency::percent(33, 1), 1_000);
        assert!((250..420).contains(&third), "{third}");
        assert_eq!(third, hits(Frequency::percent(33, 1), 1_000), "by the seed");
    }
}
