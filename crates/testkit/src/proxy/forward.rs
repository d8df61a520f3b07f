//! The path of one request: received, modified, held, forwarded, answered.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, Uri, header};
use axum::response::Response;
use tokio::time::timeout;

use super::body::{self, Ending};
use super::fault::{Fault, Refusal};
use super::held::{Command, Held, Moment, Waiting};
use super::line::Line;
use super::mode::{Mode, Unavailable};
use super::request::{Seen, Verb};
use super::rules::{Effect, Plan};
use super::shared::Shared;

/// Largest request, in bytes: a little more than the API server itself accepts.
const REQUEST: usize = 4 << 20;
/// Largest response that is buffered, in bytes: lists of tens of thousands of objects.
const ANSWER: usize = 256 << 20;
/// Timeout of the response head.
const PATIENCE: Duration = Duration::from_mins(1);

/// The client's view of the result.
enum Outcome {
    Answer(Response),
    /// The connection is cut.
    Cut,
}

/// Answers a request.
pub(crate) async fn handle(
    State(shared): State<Arc<Shared>>,
    ConnectInfo(line): ConnectInfo<Line>,
    request: Request,
) -> Response {
    let (parts, body) = request.into_parts();
    let outcome = match axum::body::to_bytes(body, REQUEST).await {
        Ok(body) => detached(shared, parts, body).await,
        // The client hung up in the middle of its request.
        Err(_) => Outcome::Cut,
    };
    match outcome {
        Outcome::Answer(response) => response,
        Outcome::Cut => {
            line.cut();
            Response::default()
        }
    }
}

/// A request that was sent is done, whether the client waits for the response or not, as on a real connection. Only
/// reads end with their client.
async fn detached(shared: Arc<Shared>, parts: Parts, body: Bytes) -> Outcome {
    let seen = Seen::of(&parts.method, &parts.uri, &body);
    let writes = seen.verb.is_write();
    let work = async move {
        let ended = Arc::clone(&shared);
        tokio::select! {
            outcome = process(&shared, seen, parts, body) => outcome,
            () = ended.until(|m| *m == Mode::Ended) => Outcome::Cut,
        }
    };
    if writes {
        tokio::spawn(work).await.unwrap_or(Outcome::Cut)
    } else {
        work.await
    }
}

async fn process(shared: &Arc<Shared>, seen: Seen, mut parts: Parts, body: Bytes) -> Outcome {
    count(shared, &seen);
    if here(shared).await.is_err() {
        return Outcome::Cut;
    }
    let Plan {
        delays,
        pages,
        last,
    } = shared.rules.lock().plan(&seen);
    for (rule, delay) in delays {
        // An error is the end of the delay.
        let _ = timeout(delay, shared.without(rule)).await;
    }
    if let (Some(size), Verb::List) = (pages, seen.verb)
        && let Ok(uri) = paged(&parts.uri, size)
    {
        parts.uri = uri;
    }
    let mut waiting = None;
    match &last {
        Some((_, Effect::Fault(Fault::Cut))) => return Outcome::Cut,
        Some((_, Effect::Fault(Fault::Refuse(refusal)))) => {
            return Outcome::Answer(refusal.response());
        }
        Some((_, Effect::Hold(Moment::Before, catcher))) => {
            let (held, end) = Held::new(seen.clone(), None);
            match caught(catcher, held, end).await {
                Ok(done) => waiting = Some(done),
                Err(outcome) => return outcome,
            }
        }
        _ => {}
    }
    if here(shared).await.is_err() {
        return Outcome::Cut;
    }
    let answer = match forward(shared, parts, body).await {
        Ok(answer) => answer,
        // Like a gateway without its server.
        Err(_) => Refusal::unavailable().response(),
    };
    if let Some(done) = waiting {
        // The test may not wait for it.
        let _ = done.send(answer.status().as_u16());
    }
    let (id, effect) = match last {
        Some((id, effect)) => (Some(id), Some(effect)),
        None => (None, None),
    };
    let outcome = after(shared, id, effect, seen, answer).await;
    if here(shared).await.is_err() {
        return Outcome::Cut;
    }
    outcome
}

fn count(shared: &Shared, seen: &Seen) {
    let key = (seen.verb, seen.resource.clone());
    *shared.counts.lock().entry(key).or_default() += 1;
}

/// Waits while the API server is silent. An error: it is unavailable in the refusing way.
async fn here(shared: &Shared) -> Result<(), ()> {
    shared
        .until(|m| *m != Mode::Unavailable(Unavailable::Silent))
        .await;
    if shared.mode.borrow().is_cut() {
        Err(())
    } else {
        Ok(())
    }
}

/// Hands a request to the test and waits for its command. If the request continues, returns the channel for its result.
async fn caught(
    catcher: &tokio::sync::mpsc::Sender<Held>,
    held: Held,
    end: Waiting,
) -> Result<tokio::sync::oneshot::Sender<u16>, Outcome> {
    // An error means that the test holds no more requests: this one continues.
    let _ = catcher.send(held).await;
    match end.command.await {
        Ok(Command::Cut) => Err(Outcome::Cut),
        Ok(Command::Refuse(refusal)) => Err(Outcome::Answer(refusal.response())),
        Ok(Command::Release) | Err(_) => Ok(end.done),
    }
}

/// Sends the request to the API server, with the credentials of its sender.
async fn forward(shared: &Shared, parts: Parts, body: Bytes) -> anyhow::Result<Response> {
    let path = parts.uri.path_and_query().context("no path")?;
    let mut request = http::Request::new(kube::client::Body::from(body));
    *request.method_mut() = parts.method;
    *request.uri_mut() = Uri::from(path.clone());
    *request.headers_mut() = end_to_end(parts.headers);
    request.headers_mut().remove(header::HOST);
    let answer = timeout(PATIENCE, shared.upstream.send(request)).await??;
    let (parts, body) = answer.into_parts();
    let mut response = Response::new(Body::new(body));
    *response.status_mut() = parts.status;
    *response.headers_mut() = end_to_end(parts.headers);
    Ok(response)
}

/// The headers without the hop-by-hop ones.
fn end_to_end(mut headers: HeaderMap) -> HeaderMap {
    for name in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
    ] {
        headers.remove(name);
    }
    headers
}

/// Applies the faults of the response.
async fn after(
    shared: &Arc<Shared>,
    id: Option<u64>,
    effect: Option<Effect>,
    seen: Seen,
    answer: Response,
) -> Outcome {
    let good = answer.status().is_success();
    match effect {
        Some(Effect::Hold(Moment::After, catcher)) => {
            let code = answer.status().as_u16();
            // The whole response, so that the request is certainly done.
            let Some(answer) = whole(answer).await else {
                return Outcome::Cut;
            };
            let (held, end) = Held::new(seen, Some(code));
            match caught(&catcher, held, end).await {
                Ok(done) => {
                    let _ = done.send(code);
                    Outcome::Answer(answer)
                }
                Err(outcome) => outcome,
            }
        }
        Some(Effect::Fault(Fault::LoseAnswer)) => {
            whole(answer).await;
            Outcome::Cut
        }
        Some(Effect::Fault(Fault::DenyAnswer(refusal))) => {
            whole(answer).await;
            Outcome::Answer(refusal.response())
        }
        Some(Effect::Fault(Fault::Truncate)) if seen.verb != Verb::Watch => {
            match body::halved(answer, ANSWER).await {
                Some(answer) => Outcome::Answer(answer),
                None => Outcome::Cut,
            }
        }
        effect if seen.verb == Verb::Watch && good => {
            let ending = match (effect, id) {
                (Some(Effect::Fault(Fault::EndWatch(after, end))), _) => Ending::Then(after, end),
                (Some(Effect::Fault(Fault::Swallow)), Some(id)) => Ending::Silent(id),
                _ => Ending::Never,
            };
            Outcome::Answer(body::events(shared, seen, answer, ending))
        }
        _ => Outcome::Answer(answer),
    }
}

/// The same response, once it is complete.
async fn whole(answer: Response) -> Option<Response> {
    let (parts, body) = answer.into_parts();
    let bytes = timeout(PATIENCE, axum::body::to_bytes(body, ANSWER)).await;
    Some(Response::from_parts(parts, Body::from(bytes.ok()?.ok()?)))
}

/// The same list in pages of this size.
fn paged(uri: &Uri, size: u32) -> Result<Uri, axum::http::uri::InvalidUri> {
    let query = uri.query().unwrap_or_default();
    let kept = query
        .split('&')
        .filter(|p| !p.starts_with("limit=") && !p.is_empty());
    let limit = format!("limit={size}");
    let all: Vec<&str> = kept.chain([limit.as_str()]).collect();
    format!("{}?{}", uri.path(), all.join("&")).parse()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_of_a_page_is_replaced() {
        for (from, to) in [
            ("/api/v1/services", "/api/v1/services?limit=7"),
            ("/a?limit=500", "/a?limit=7"),
            ("/a?limit=500&continue=x", "/a?continue=x&limit=7"),
        ] {
            assert_eq!(paged(&from.parse().unwrap(), 7).unwrap().to_string(), to);
        }
    }
}
