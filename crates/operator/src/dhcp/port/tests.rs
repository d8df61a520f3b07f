use std::sync::Arc;

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_controller_kit::work_queue::RetryPolicy;
use harvester_lb_core::dhcp::record::LeasePhase;
use harvester_lb_core::event_draft::EventDraft;
use harvester_lb_ipam::dhcp::{HardwareAddress, Lease};
use parking_lot::Mutex;

use super::*;
use crate::dhcp::index::Index;
use crate::dhcp::metrics::Metrics;
use crate::dhcp::order::Notify;

/// An interface that is not there.
const MISSING: &str = "no-such-name";
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 1);

/// What was told, as calls.
#[derive(Default)]
struct Told(Mutex<Vec<String>>);

impl Told {
    fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock())
    }
}

impl Notify for Told {
    fn is_leader(&self) -> bool {
        true
    }

    fn publish(&self, _: &Owner, draft: &EventDraft) {
        self.0.lock().push(format!("event {}", draft.reason));
    }

    fn problem(&self, _: &Owner, draft: &EventDraft) {
        self.0.lock().push(format!("problem {}", draft.reason));
    }

    fn lasting(&self, _: &Owner, draft: &EventDraft) {
        self.0.lock().push(format!("lasting {}", draft.reason));
    }

    fn solved(&self, _: &Uid, reasons: &[&str]) {
        self.0.lock().push(format!("solved {}", reasons.join(" ")));
    }
}

fn owner() -> Owner {
    Owner::new("shop", "web", "a")
}

fn record(interface: &str) -> LeaseSpec {
    LeaseSpec {
        owner: owner(),
        phase: LeasePhase::Pending,
        interface: interface.to_owned(),
        is_chosen: true,
        hardware: HardwareAddress([2, 0, 0, 0, 0, 1]),
        wanted: None,
        bound_at: None,
    }
}

fn port() -> (Port, Arc<Told>, mpsc::Sender<Request>) {
    let backoff = Backoff {
        base: Duration::from_secs(1),
        cap: Duration::from_secs(1),
    };
    let policy = RetryPolicy {
        resync: Duration::from_secs(30),
        refused: backoff,
        unavailable: backoff,
    };
    let told = Arc::<Told>::default();
    let around = Surroundings {
        index: Arc::new(Index::new(Arc::default(), policy)),
        metrics: Arc::new(Metrics::new().unwrap()),
        notifier: Arc::clone(&told) as _,
        limit: 8,
    };
    let (sender, requests) = mpsc::channel(4);
    (
        Port::new(MISSING.to_owned(), around, requests),
        told,
        sender,
    )
}

#[test]
fn dhc_1_a_problem_that_lasts_is_told_as_one() {
    let (mut port, told, _sender) = port();
    let now = port.clocks.now();
    port.clients.insert(record(MISSING), 0, now).unwrap();
    let lease = Lease {
        address: Ipv4Addr::new(192, 168, 100, 7),
        server: SERVER,
        server_hardware: None,
        mask: None,
        router: None,
        times: None,
    };
    let refused = Event::Refused {
        server: SERVER,
        text: None,
    };
    let declined = Event::Declined {
        address: lease.address,
        conflict: Conflict::Host,
    };
    let over = "solved LeaseUnanswered LeaseRefused LeaseInterfaceDown";
    for (event, expected) in [
        (Event::Unanswered, "lasting LeaseUnanswered"),
        (refused, "lasting LeaseRefused"),
        (declined, "problem LeaseDeclined"),
        (Event::Bound(lease), over),
        (Event::Renewed(lease), over),
        (Event::Expired(lease.address), "event LeaseLost"),
    ] {
        port.event(&owner().uid, &event);
        assert_eq!(told.take(), [expected]);
    }
    // The interface goes down again and again.
    for why in ["it is down", "there is no such interface"] {
        port.close(why.to_owned());
        assert_eq!(told.take(), ["lasting LeaseInterfaceDown"]);
    }
}
