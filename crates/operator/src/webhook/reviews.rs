//! The answers to the API server: admission and conversion over crate core, with the facts of the stores.
//!
//! 200 with a review is an answer, also if it refuses. Everything else makes the API server apply the failure policy, or
//! fail the conversion: 503 if a list is not complete (CNV-1) or too much is being answered, 400 for a body that is no
//! review, 408 and 413 for one that is late or too large.

use std::sync::Arc;
use std::time::Instant;

use harvester_lb_core::admission::{self, Denial, Request, Response, Subject};
use harvester_lb_core::conversion::{self, ReviewError};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use hyper::{Method, StatusCode};
use tracing::{debug, info};

use crate::webhook::body::{Budget, Held, Refused};
use crate::webhook::facts::{Facts, Live};
use crate::webhook::live_reads::LiveReads;
use crate::webhook::metrics::{KINDS, Metrics, Outcome};
use crate::webhook::server::{Arriving, Handler};
use crate::webhook_names::{CONVERSION, MUTATION, VALIDATION};

/// Most live reads for one decision. A request names one Namespace and one network, and has the neighbours of one namespace.
const LIVE_READS: usize = 3;

/// What a request asks for, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Task {
    Validation,
    Mutation,
    Conversion,
}

impl Task {
    fn of(path: &str) -> Option<Self> {
        match path {
            VALIDATION => Some(Self::Validation),
            MUTATION => Some(Self::Mutation),
            CONVERSION => Some(Self::Conversion),
            _ => None,
        }
    }

    const fn as_label(self) -> &'static str {
        match self {
            Self::Validation => "validation",
            Self::Mutation => "mutation",
            Self::Conversion => "conversion",
        }
    }
}

/// Status and body of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    status: StatusCode,
    body: Vec<u8>,
}

impl Answer {
    fn text(status: StatusCode, text: &impl ToString) -> Self {
        let body = format!("{}\n", text.to_string()).into_bytes();
        Self { status, body }
    }
}

/// Answers reviews.
pub struct Reviews {
    facts: Facts,
    live_reads: LiveReads,
    budget: Budget,
    metrics: Arc<Metrics>,
}

impl Reviews {
    /// Answers with these facts.
    pub fn new(facts: Facts, live_reads: LiveReads, metrics: Arc<Metrics>) -> Self {
        Self {
            facts,
            live_reads,
            budget: Budget::default(),
            metrics,
        }
    }

    async fn admit(&self, body: &[u8], is_mutating: bool) -> Answer {
        let request = match Request::parse(body) {
            Ok(request) => request,
            Err(error) => {
                self.metrics
                    .admission(KINDS[2], is_mutating, Outcome::Invalid);
                debug!(%error, "not an AdmissionReview");
                return Answer::text(StatusCode::BAD_REQUEST, &error);
            }
        };
        let (outcome, answer) = self.decide(&request, is_mutating).await;
        self.metrics.admission(kind(&request), is_mutating, outcome);
        answer
    }

    async fn decide(&self, request: &Request, is_mutating: bool) -> (Outcome, Answer) {
        let mut live = Live::default();
        let mut reads = 0;
        loop {
            // Nothing of the snapshot is held while something is read.
            let denial = {
                let facts = self.facts.read(&live);
                let decided = if is_mutating {
                    admission::mutate(request, &facts)
                        .map(|patch| Response::Patched(&patch).to_bytes(request))
                } else {
                    admission::validate(request, &facts)
                        .map(|warnings| Response::Allowed(&warnings).to_bytes(request))
                };
                match decided {
                    Ok(body) => return (Outcome::Allowed, ok(body)),
                    Err(denial) => denial,
                }
            };
            let fact = match denial {
                Denial::Refused(refusal) => {
                    info!(
                        kind = kind(request),
                        namespace = request.namespace,
                        name = request.name,
                        rule = refusal.rule(),
                        reason = refusal.message(),
                        "admission refused"
                    );
                    let body = Response::Refused(&refusal).to_bytes(request);
                    return (Outcome::Refused, ok(body));
                }
                Denial::NotReady(fact) => fact,
            };
            reads += 1;
            if reads > LIVE_READS || !self.live_reads.read(&fact, &mut live).await {
                let denial = Denial::NotReady(fact);
                let answer = Answer::text(StatusCode::SERVICE_UNAVAILABLE, &denial);
                return (Outcome::NotReady, answer);
            }
        }
    }

    fn convert(&self, body: &[u8]) -> Answer {
        let live = Live::default();
        let reviewed = {
            let facts = self.facts.read(&live);
            conversion::review(body, facts.conversion())
        };
        let (outcome, answer) = match reviewed {
            Ok(response) => {
                let outcome = match &response.outcome {
                    conversion::Outcome::Converted { .. } => Outcome::Allowed,
                    conversion::Outcome::Failed(error) => {
                        info!(%error, "conversion refused");
                        Outcome::Refused
                    }
                };
                (outcome, ok(response.body))
            }
            Err(error @ ReviewError::NotAReview(_)) => {
                debug!(%error, "not a ConversionReview");
                let answer = Answer::text(StatusCode::BAD_REQUEST, &error);
                (Outcome::Invalid, answer)
            }
            Err(error @ ReviewError::NotReady) => {
                let answer = Answer::text(StatusCode::SERVICE_UNAVAILABLE, &error);
                (Outcome::NotReady, answer)
            }
        };
        self.metrics.conversion(outcome);
        answer
    }

    /// Answers the body of a request.
    async fn review(&self, task: Task, body: &[u8]) -> Answer {
        let started = Instant::now();
        let answer = match task {
            Task::Validation => self.admit(body, false).await,
            Task::Mutation => self.admit(body, true).await,
            Task::Conversion => self.convert(body),
        };
        let took = started.elapsed().as_secs_f64();
        self.metrics.answered(task.as_label()).observe(took);
        answer
    }
}

fn ok(body: Vec<u8>) -> Answer {
    Answer {
        status: StatusCode::OK,
        body,
    }
}

/// The value of the label `kind`.
fn kind(request: &Request) -> &'static str {
    match &request.subject {
        Subject::LoadBalancer(_) => KINDS[0],
        Subject::IPPool(_) => KINDS[1],
        Subject::OtherVersion { kind, .. } => KINDS
            .into_iter()
            .find(|known| known == kind)
            .unwrap_or(KINDS[2]),
        Subject::OtherKind(_) => KINDS[2],
    }
}

impl Handler for Reviews {
    async fn answer(
        self: Arc<Self>,
        request: hyper::Request<Arriving>,
    ) -> (hyper::Response<Full<Bytes>>, Option<Held>) {
        let (head, body) = request.into_parts();
        let Some(task) = Task::of(head.uri.path()) else {
            let text = "there is no such page; the webhook serves reviews of the API server";
            let answer = Answer::text(StatusCode::NOT_FOUND, &text);
            return (response(answer, true), None);
        };
        if head.method != Method::POST {
            let answer = Answer::text(StatusCode::METHOD_NOT_ALLOWED, &"reviews are sent by POST");
            return (response(answer, true), None);
        }
        match self.budget.receive(body).await {
            Ok(received) => {
                let answer = self.review(task, &received.bytes).await;
                (response(answer, false), Some(received.into_held()))
            }
            Err(refused) => {
                self.metrics.rejected(refused);
                debug!(reason = refused.as_label(), "request rejected");
                let (status, text, closes) = rejection(refused);
                (response(Answer::text(status, &text), closes), None)
            }
        }
    }
}

/// Status and text for a body that is not used, and whether the connection is of no more use.
const fn rejection(refused: Refused) -> (StatusCode, &'static str, bool) {
    match refused {
        Refused::TooLarge => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body is larger than 3 MiB",
            true,
        ),
        Refused::TooComplex => (
            StatusCode::PAYLOAD_TOO_LARGE,
            "the body has too many values",
            false,
        ),
        Refused::Timeout => (
            StatusCode::REQUEST_TIMEOUT,
            "the body was not complete within 10 s",
            true,
        ),
        Refused::Broken => (StatusCode::BAD_REQUEST, "the body is incomplete", true),
        Refused::Busy => (
            StatusCode::SERVICE_UNAVAILABLE,
            "too much is being answered at the moment",
            true,
        ),
    }
}

fn response(answer: Answer, closes: bool) -> hyper::Response<Full<Bytes>> {
    let content = if answer.status == StatusCode::OK {
        "application/json"
    } else {
        "text/plain; charset=utf-8"
    };
    let mut response = hyper::Response::new(Full::new(Bytes::from(answer.body)));
    *response.status_mut() = answer.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content));
    if closes {
        headers.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

#[cfg(test)]
mod tests;
