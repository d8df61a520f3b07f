//! For tests: a hub over an API server that is a function.

use std::future::Future;
use std::sync::Arc;

use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::writer::{Fence, Writer};
use harvester_lb_prober::Prober;
use http::{Method, Response};
use kube::Client;
use kube::client::Body;
use serde_json::{Value, json};

use crate::context::{Hub, Stores};
use crate::metrics::Metrics;
use crate::timings::Timings;

/// A request as the API server gets it.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) method: Method,
    pub(crate) path: String,
    /// Null if there is none.
    pub(crate) body: Value,
}

/// Code and body of an answer.
pub(crate) type Answer = (u16, Value);

/// An answer that is no object.
pub(crate) fn failure(code: u16, reason: &str) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": reason, "reason": reason, "code": code,
    });
    (code, status)
}

/// A client of an API server that answers so.
pub(crate) fn client<F>(answer: impl Fn(Asked) -> F + Send + Sync + 'static) -> Client
where
    F: Future<Output = Answer> + Send + 'static,
{
    let answer = Arc::new(answer);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let answer = Arc::clone(&answer);
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect_bytes().await?;
            let (code, body) = answer(Asked {
                method: head.method,
                path: head.uri.path().to_owned(),
                body: serde_json::from_slice(&body).unwrap_or_default(),
            })
            .await;
            let answer = Response::builder().status(code);
            let answer = answer.body(Body::from(body.to_string().into_bytes()));
            Ok::<_, tower::BoxError>(answer?)
        }
    });
    Client::new(service, "default")
}

/// A right to write that is there, or is not.
struct Fixed(bool);

impl Fence for Fixed {
    fn is_open(&self) -> bool {
        self.0
    }
}

/// A hub that may write at any time, or never, and does not lead yet.
pub(crate) fn hub(client: Client, timings: Timings, may_write: bool) -> Hub {
    let leadership = Arc::new(Leadership::default());
    first(client, timings).successor(Arc::new(Fixed(may_write)), leadership)
}

/// The hub of a first term: it may write while it holds the Lease. Its Events are written.
pub(crate) fn first(client: Client, timings: Timings) -> Hub {
    let leadership = Arc::new(Leadership::default());
    let (events, task) = Events::new(client.clone(), "test", String::new());
    tokio::spawn(task);
    let (prober, _) = Prober::start(
        harvester_lb_prober::Settings::for_file_limit(64),
        Arc::new(()),
    );
    Hub::new(
        Stores::default(),
        Writer::new(client, Arc::clone(&leadership) as _),
        events.under(Arc::clone(&leadership) as _),
        prober,
        Arc::new(Metrics::new().unwrap()),
        leadership,
        timings,
    )
}
