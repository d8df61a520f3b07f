use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::time::Duration;

use harvester_lb_api::{IPAllocation, LoadBalancer};
use harvester_lb_controller_kit::lease::Settings;
use harvester_lb_core::cached::{Allocation, Lb};
use harvester_lb_core::status::EventDraft;
use harvester_lb_fixtures::{allocated_address, cluster_spec, load_balancer, record, stored, with};
use harvester_lb_object::{Key, Version};
use harvester_lb_prober::Prober;
use http::Method;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use parking_lot::Mutex;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Notify;

use super::*;
use crate::fake::{self, ReceivedRequest, failure};
use crate::timings::Timings;

/// Upper time limit of each step; no test waits for it.
const LIMIT: Duration = Duration::from_secs(20);

/// The response to the request of the takeover.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It is answered at once.
    AtOnce,
    /// It is answered once the term ends.
    AtTheEnd,
    /// It is never answered.
    Never,
}

/// An API server with a Lease that can be lost, and a load balancer that the takeover reads.
struct Server {
    fate: Fate,
    ctx: Mutex<Option<Arc<Context>>>,
    /// The Lease cannot be renewed.
    outage: AtomicBool,
    /// A request of the takeover has arrived.
    arrived: Notify,
    received: AtomicUsize,
    answered: AtomicUsize,
    events: AtomicUsize,
}

impl Server {
    fn new(fate: Fate) -> Arc<Self> {
        Arc::new(Self {
            fate,
            ctx: Mutex::default(),
            outage: AtomicBool::default(),
            arrived: Notify::new(),
            received: AtomicUsize::default(),
            answered: AtomicUsize::default(),
            events: AtomicUsize::default(),
        })
    }

    async fn answer(self: Arc<Self>, request: ReceivedRequest) -> fake::Answer {
        if request.path.contains("/leases") {
            return match (self.outage.load(Relaxed), request.method) {
                (true, _) => failure(503, "ServiceUnavailable"),
                (false, Method::GET) => failure(404, "NotFound"),
                (false, _) => (200, request.body),
            };
        }
        if request.path.contains("/events") {
            self.events.fetch_add(1, Relaxed);
            return (201, request.body);
        }
        self.received.fetch_add(1, Relaxed);
        self.arrived.notify_one();
        match self.fate {
            Fate::AtOnce => {}
            Fate::AtTheEnd => {
                let ctx = self.ctx.lock().clone().unwrap();
                ctx.index.queues.lbs.closed().await;
            }
            Fate::Never => std::future::pending().await,
        }
        self.answered.fetch_add(1, Relaxed);
        failure(404, "NotFound")
    }

    fn client(self: &Arc<Self>) -> Client {
        let server = Arc::clone(self);
        fake::client(move |request| Arc::clone(&server).answer(request))
    }
}

fn object<T: DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// A record of a deleted owner whose address an existing load balancer names: the takeover reads the owner first.
fn left_behind(ctx: &Context) {
    let lb = load_balancer("n", "lives", "u-lives", &cluster_spec());
    let lb: LoadBalancer = object(with(lb, allocated_address("10.0.0.2", "p")));
    let key = Key::new("n", "lives");
    ctx.index
        .stores
        .lbs
        .written(&key, Version(1), Lb::valid(lb));
    let record = record("10.0.0.2", "p", "Bound", ("n", "gone", "u-gone"));
    let record: IPAllocation = object(stored(record, "u-record", 2));
    let record = Allocation::decoded(&record);
    let name = Key::new("", "10.0.0.2");
    ctx.index
        .stores
        .allocations
        .written(&name, Version(2), record);
}

/// Runs a term with this context until `during` ends, then stops it unless it has lost the Lease.
async fn term(server: &Arc<Server>, ctx: Context, during: impl AsyncFnOnce(&Context)) -> End {
    let limits = harvester_lb_prober::Settings::for_file_limit(64);
    let (_prober, mut verdicts) = Prober::start(limits, Arc::new(()));
    let ctx = Arc::new(ctx);
    left_behind(&ctx);
    *server.ctx.lock() = Some(Arc::clone(&ctx));
    let settings = Settings {
        namespace: "n".into(),
        name: "l".into(),
        identity: "me".into(),
        duration: Duration::from_secs(1),
        renew_deadline: Duration::from_millis(500),
        retry: Duration::from_millis(20),
    };
    let mut candidate = Candidate::new(server.client(), settings);
    let stop = CancellationToken::new();
    let leadership = Arc::clone(&ctx.leadership);
    candidate.acquire(leadership, &stop, || {}).await.unwrap();
    let leads = Box::pin(lead(&ctx, 1, &mut verdicts, &mut candidate, &stop));
    let during = async {
        server.arrived.notified().await;
        during(&ctx).await;
        if !server.outage.load(Relaxed) {
            stop.cancel();
        }
    };
    let both = async { tokio::join!(leads, during).0 };
    let end = tokio::time::timeout(LIMIT, both).await.unwrap().unwrap();
    if end == End::Lost {
        assert!(!ctx.index.is_leader(), "its knowledge is left");
    }
    end
}

#[tokio::test]
async fn run_5_requests_of_the_beginning_are_answered_before_the_lease_is_asked_for_again() {
    let server = Server::new(Fate::AtTheEnd);
    let timings = Timings {
        drain_limit: LIMIT,
        ..Timings::default()
    };
    let ctx = fake::first(server.client(), &timings);
    let end = term(&server, ctx, async |_| server.outage.store(true, Relaxed)).await;
    assert_eq!(end, End::Lost);
    // The response came after the loss of the Lease.
    assert_eq!(server.answered.load(Relaxed), server.received.load(Relaxed));
    assert!(server.answered.load(Relaxed) > 0);
}

#[tokio::test]
async fn run_5_who_is_asked_to_stop_while_it_begins_stops_when_that_is_answered() {
    let server = Server::new(Fate::AtTheEnd);
    let timings = Timings {
        flush_limit: LIMIT,
        ..Timings::default()
    };
    let ctx = fake::first(server.client(), &timings);
    assert_eq!(term(&server, ctx, async |_| {}).await, End::Stopped);
    assert_eq!(server.answered.load(Relaxed), server.received.load(Relaxed));
    assert!(server.answered.load(Relaxed) > 0);
}

#[tokio::test]
async fn run_5_who_is_asked_to_stop_while_it_begins_waits_for_no_answer_for_ever() {
    let server = Server::new(Fate::Never);
    let timings = Timings {
        flush_limit: Duration::from_millis(50),
        ..Timings::default()
    };
    let ctx = fake::first(server.client(), &timings);
    assert_eq!(term(&server, ctx, async |_| {}).await, End::Stopped);
    assert_eq!(server.answered.load(Relaxed), 0);
}

#[tokio::test]
async fn run_5_who_is_asked_to_stop_while_it_begins_does_not_begin_again() {
    let server = Server::new(Fate::AtOnce);
    let timings = Timings {
        retry: LIMIT * 100,
        retry_unavailable_cap: LIMIT * 100,
        flush_limit: LIMIT * 100,
        ..Timings::default()
    };
    // The takeover cannot succeed, as the process may not write.
    let ctx = fake::context(server.client(), &timings, false);
    assert_eq!(term(&server, ctx, async |_| {}).await, End::Stopped);
}

#[tokio::test]
async fn run_5_events_that_wait_are_written_before_the_lease_is_given_up() {
    let server = Server::new(Fate::AtOnce);
    let ctx = fake::first(server.client(), &Timings::default());
    let left = async |ctx: &Context| {
        let draft = EventDraft {
            warning: false,
            reason: "Reason".into(),
            text: "text".into(),
        };
        for _ in 0..500 {
            ctx.notify_lb(&ObjectMeta::default(), &draft);
        }
    };
    assert_eq!(term(&server, ctx, left).await, End::Stopped);
    assert_eq!(server.events.load(Relaxed), 500);
}
