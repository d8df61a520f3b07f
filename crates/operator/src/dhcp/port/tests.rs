use std::sync::Arc;

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_controller_kit::work_queue::RetryPolicy;
use harvester_lb_core::dhcp::claim::ServiceView;
use harvester_lb_core::dhcp::record::{LeasePhase, LeaseRecord};
use harvester_lb_core::event_draft::EventDraft;
use harvester_lb_ipam::dhcp::{
    Arp, ArpKind, Checksum, Event, HardwareAddress, Lease, Received, Reply, ReplyKind, arp_frame,
};
use parking_lot::Mutex;

use harvester_lb_object::{Key, Version};

use super::*;
use crate::dhcp::index::{Index, RecordView, record_key};
use crate::dhcp::metrics::Metrics;
use crate::dhcp::order::Notify;

/// An interface that is not there.
const MISSING: &str = "no-such-name";
const SERVER: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 1);

/// What was told, as calls.
#[derive(Default)]
pub(in crate::dhcp) struct Told(Mutex<Vec<String>>);

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
        hardware: HardwareAddress::from_uid(&owner().uid),
        wanted: None,
        bound_at: None,
    }
}

/// Of a port, without objects.
pub(in crate::dhcp) fn surroundings() -> (Surroundings, Arc<Told>) {
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
    (around, told)
}

fn port() -> (Port, Arc<Told>, mpsc::Sender<Request>) {
    let (around, told) = surroundings();
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
        is_offer: false,
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
        report::event(&port.around, &mut port.clients, &owner().uid, &event);
        assert_eq!(told.take(), [expected]);
    }
    // A renewal is asked for again until the lease expires: it is counted alone.
    let event = Event::RenewalUnanswered;
    report::event(&port.around, &mut port.clients, &owner().uid, &event);
    assert_eq!(told.take(), [""; 0]);
    // The interface goes down again and again.
    for why in ["it is down", "there is no such interface"] {
        port.close(why.to_owned());
        assert_eq!(told.take(), ["lasting LeaseInterfaceDown"]);
    }
}

/// The client of a record starts, and a server answers with these messages, as long as it waits for one.
fn answered(port: &mut Port, record: LeaseSpec, address: Ipv4Addr, kinds: &[ReplyKind]) {
    let now = port.clocks.now();
    let (uid, hardware) = (owner().uid, record.hardware);
    port.clients.insert(record, 0, now).unwrap();
    let table = &mut port.clients.table;
    table.command(&uid, Command::Start, now, &mut port.actions);
    for kind in kinds {
        let table = &mut port.clients.table;
        let Some(xid) = table.client(&uid).unwrap().xid() else {
            break;
        };
        let reply = Reply {
            kind: *kind,
            xid,
            hardware,
            address,
            server: Some(SERVER),
            lease: Some(3_600),
            t1: None,
            t2: None,
            mask: None,
            router: None,
            client_id: None,
            text: None,
        };
        let source = HardwareAddress([2, 0, 0, 0, 0, 9]);
        let reply = Box::new(reply);
        let received = Received::Reply { reply, source };
        table.deliver(&received, now, &mut port.actions);
        port.carry_out();
    }
}

/// A server leases this address to the client.
fn leased(port: &mut Port, address: Ipv4Addr) {
    let kinds = [ReplyKind::Offer, ReplyKind::Ack];
    answered(port, record(MISSING), address, &kinds);
}

/// The operator was down when the lease was lost, so kube-vip still answers ARP.
#[test]
fn dhc_5_an_address_of_its_own_service_is_not_probed() {
    let address = Ipv4Addr::new(192, 168, 100, 7);
    for (shown, is_bound) in [(Some(address), true), (None, false)] {
        let (mut port, _, _sender) = port();
        let (index, key) = (&port.around.index, Key::new("shop", "web"));
        let service = ServiceView {
            shown: shown.into_iter().collect(),
            ..ServiceView::default()
        };
        index.stores.services.written(&key, Version(1), service);
        leased(&mut port, address);
        let client = port.around.index.views.get(&owner().uid).unwrap();
        assert_eq!(client.lease.map(|it| it.address), shown);
        assert_eq!(client.is_asking, !is_bound);
    }
}

/// A server that identifies clients by their hardware address would give its lease to the one that asks.
#[test]
fn dhc_5_an_offered_address_of_a_twin_is_not_asked_for() {
    let address = Ipv4Addr::new(192, 168, 100, 7);
    let hardware = HardwareAddress([2, 0, 0x5e, 0x10, 0, 0x2a]);
    let chosen = || LeaseSpec {
        hardware,
        ..record(MISSING)
    };
    for (is_twin, told_of) in [(true, vec!["problem LeaseDeclined"]), (false, vec![])] {
        let (mut port, told, _sender) = port();
        put_spec(&port, 1, chosen());
        let lease = Lease {
            address,
            server: SERVER,
            server_hardware: None,
            mask: None,
            router: None,
            times: None,
        };
        if is_twin {
            let twin = LeaseSpec {
                owner: Owner::new("other", "web", "b"),
                phase: LeasePhase::Bound(lease),
                bound_at: Some(harvester_lb_ipam::Micros(1)),
                ..chosen()
            };
            put_spec(&port, 2, twin);
        }
        answered(&mut port, chosen(), address, &[ReplyKind::Offer]);
        assert_eq!(told.take(), told_of);
        let client = port.clients.table.client(&owner().uid).unwrap();
        assert_eq!(client.probed(), (!is_twin).then_some(address));
        let client = port.around.index.views.get(&owner().uid).unwrap();
        assert!(!client.is_asking);
    }
}

/// Another load balancer has just given the address back, and kube-vip has not seen yet that its Service is gone.
#[test]
fn dhc_5_an_answer_for_an_address_that_any_service_has_just_shown_is_waited_out() {
    let address = Ipv4Addr::new(192, 168, 100, 7);
    let host = HardwareAddress([2, 0, 0, 0, 0, 5]);
    let answer = Arp {
        kind: ArpKind::Reply,
        sender: host,
        sender_address: address,
        target: host,
        target_address: address,
    };
    for was_shown in [true, false] {
        let (mut port, told, _sender) = port();
        if was_shown {
            let (index, key) = (&port.around.index, Key::new("shop", "api"));
            let service = ServiceView {
                shown: vec![address],
                ..ServiceView::default()
            };
            let services = &index.stores.services;
            services.written(&key, Version(1), service);
            let change = services.forget(&key, Version(1));
            index.service_changed(&key, &change.unwrap());
        }
        leased(&mut port, address);
        port.received(&arp_frame(host, &answer), Checksum::Verify);
        port.carry_out();
        let expected = if was_shown {
            vec![]
        } else {
            vec!["problem LeaseDeclined"]
        };
        assert_eq!(told.take(), expected);
        let client = port.clients.table.client(&owner().uid).unwrap();
        assert_eq!(client.probed(), was_shown.then_some(address));
    }
}

/// The record is in the store, on an interface.
fn put(port: &Port, version: u64, interface: &str) {
    put_spec(port, version, record(interface));
}

fn put_spec(port: &Port, version: u64, spec: LeaseSpec) {
    let key = record_key(&spec.owner.uid);
    let record = LeaseRecord {
        spec,
        version: Version(version),
        uid: Uid::new("r"),
    };
    let index = &port.around.index;
    let view = RecordView::Lease(record);
    index.stores.records.written(&key, Version(version), view);
    index.record_updated(&key);
}

#[test]
fn dhc_1_a_port_ends_when_no_record_names_its_interface() {
    let (mut port, _, _sender) = port();
    put(&port, 1, MISSING);
    let start = port.obey(Order::Start(record(MISSING)));
    assert!(matches!(start, Err(PortError::Down(..))), "{start:?}");
    assert!(!port.is_over());
    assert_eq!(port.waiting.len(), 1);
    // It is to have a lease elsewhere, or is gone.
    put(&port, 2, "eth0");
    assert!(port.is_over());
    assert!(port.waiting.is_empty());
    let now = port.clocks.now();
    port.clients.insert(record(MISSING), 0, now).unwrap();
    assert!(!port.is_over(), "a client");
}

#[tokio::test]
async fn dhc_1_a_request_to_a_port_that_ends_is_repeated() {
    let (port, _, sender) = port();
    port.around.metrics.interface(MISSING, false);
    let metrics = Arc::clone(&port.around.metrics);
    let (done, result) = tokio::sync::oneshot::channel();
    let order = Order::Start(record(MISSING));
    assert!(sender.try_send(Request { order, done }).is_ok());
    port.end();
    assert_eq!(result.await, Ok(Err(PortError::Changed)));
    assert!(sender.is_closed());
    let families = metrics.registry().gather();
    assert!(families.iter().all(|f| !f.name().ends_with("interface_up")));
}
