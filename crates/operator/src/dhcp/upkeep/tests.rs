use std::net::Ipv4Addr;
use std::sync::Arc;

use harvester_lb_api::LoadBalancer;
use harvester_lb_controller_kit::events::Events;
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::writer::{Fence, Writer};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::dhcp::claim::Interfaces;
use harvester_lb_core::dhcp::upkeep::{ClientView, Guard, Holder};
use harvester_lb_fixtures::{load_balancer, record, service, stored, vm_spec, with};
use harvester_lb_ipam::Micros;
use harvester_lb_ipam::dhcp::{ClientId, HardwareAddress, Identity, Lease, LeaseTimes, StateName};
use harvester_lb_object::Key;
use http::Method;
use k8s_openapi::api::core::v1::Service;

use super::*;
use crate::dhcp::context::{Process, Settings};
use crate::dhcp::index::{Stores, pool_record_key};
use crate::dhcp::metrics::Metrics;
use crate::dhcp::views::Entry;
use crate::fake::FakeApiServer;
use crate::timings::Timings;

mod others;

const UID: &str = "6f1c6f0a-3f0e-4b57-9d4e-1f2f3a4b5c6d";
const LB: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/shop/loadbalancers/web";
const RECORD: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/dhcp-6f1c6f0a-3f0e-4b57-9d4e-1f2f3a4b5c6d";
const SERVICE: &str = "/api/v1/namespaces/shop/services/web";
const ADDRESS: Ipv4Addr = Ipv4Addr::new(192, 168, 100, 7);
/// An interface that is not there.
const MISSING: &str = "no-such-name";

struct Open;

impl Fence for Open {
    fn is_open(&self) -> bool {
        true
    }
}

fn context(api: &FakeApiServer, mode: Mode) -> Context {
    let writer = Writer::new(api.client(), Arc::new(Open));
    let (events, task) = Events::new(api.client(), "test", String::new());
    tokio::spawn(task);
    let process = Process {
        settings: Settings {
            mode,
            interfaces: Interfaces {
                default: MISSING.to_owned(),
                is_chosen: true,
                allowed: harvester_lb_core::kube_vip_annotations::Interfaces::default(),
            },
            limit: 8,
            timings: Timings::default(),
        },
        stores: Arc::<Stores>::default(),
        writer,
        events,
        metrics: Arc::new(Metrics::new().unwrap()),
    };
    let fence: Arc<dyn Fence> = Arc::new(Open);
    let ctx = Context::under(&process, &fence, Arc::new(Leadership::default()));
    ctx.index.begin_term();
    ctx
}

fn owner() -> Owner {
    Owner::new("shop", "web", UID)
}

/// A load balancer that asks for a lease, in the API server and in the store.
async fn put_lb(api: &FakeApiServer, ctx: &Context) {
    let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
    let lb = stored(load_balancer("shop", "web", UID, &spec), UID, 5);
    api.put(LB, lb);
    let key = Key::new("shop", "web");
    ctx.client.get_live::<LoadBalancer>(&key).await.unwrap();
    api.reads();
}

/// In an hour.
fn later() -> Micros {
    Micros(clock::now().0 + 3_600_000_000)
}

fn lease(expires_at: Micros) -> Lease {
    Lease {
        address: ADDRESS,
        server: Ipv4Addr::new(192, 168, 100, 1),
        server_hardware: None,
        mask: None,
        router: None,
        times: Some(LeaseTimes {
            renew_at: Micros(1),
            rebind_at: Micros(2),
            expires_at,
        }),
    }
}

/// A record in the API server and in the store.
async fn put_record(api: &FakeApiServer, ctx: &Context, phase: LeasePhase) {
    let spec = LeaseSpec {
        owner: owner(),
        phase,
        interface: MISSING.to_owned(),
        is_chosen: true,
        hardware: Identity::new(&Uid::new(UID), None).hardware,
        wanted: None,
        bound_at: None,
    };
    let record = json!({"metadata": {"name": spec.name()}, "spec": spec.to_api()});
    api.put(RECORD, stored(record, "r-1", 7));
    let key = record_key(&owner().uid);
    ctx.client.get_live::<IPAllocation>(&key).await.unwrap();
    api.reads();
}

async fn reconciled(ctx: &Context) -> Requeue {
    reconcile(ctx, &owner()).await.unwrap()
}

fn phase(api: &FakeApiServer) -> Value {
    api.get(RECORD)
        .map_or(Value::Null, |r| r["spec"]["phase"].clone())
}

#[tokio::test]
async fn dhc_1_the_record_comes_first_and_waits_for_its_interface() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
    assert_eq!(phase(&api), "Pending");
    // The interface, once more: no second Event.
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
    ctx.notices.written().await;
    let events = api.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(events[0]["reason"], "LeaseInterfaceDown");
    assert_eq!(events[0]["regarding"]["uid"], UID);
}

#[tokio::test]
async fn dhc_6_kube_vip_s_service_is_read_and_waited_for() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    let metadata = json!({
        "name": "web", "namespace": "shop",
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
        "annotations": {
            "kube-vip.io/requestedIP": "192.168.100.7", "kube-vip.io/hwaddr": "00:00:6c:11:22:33",
        },
    });
    api.put(SERVICE, stored(service(&metadata, "0.0.0.0"), "s", 6));
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    let lease = &api.get(RECORD).unwrap()["spec"]["lease"];
    assert_eq!(lease["requestedAddress"], "192.168.100.7");
    assert_eq!(lease["hardwareAddress"], "00:00:6c:11:22:33");
    // Nothing was asked of the interface.
    api.remove(SERVICE);
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
}

#[tokio::test]
async fn dhc_4_what_is_gone_is_given_back_after_a_live_read() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Bound(lease(Micros(3)))).await;
    let metadata = json!({
        "name": "web", "namespace": "shop",
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
    });
    api.put(SERVICE, stored(service(&metadata, "192.168.100.7"), "s", 6));
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Releasing");
    api.remove(SERVICE);
    // It has expired: nothing is left to give back, and the interface is not needed.
    assert_eq!(reconciled(&ctx).await, Requeue::AwaitChange);
    assert_eq!(api.get(RECORD), None);
    let deletion = api.writes().pop().unwrap();
    assert_eq!(deletion.0, Method::DELETE);
    assert_eq!(deletion.2["preconditions"]["uid"], "r-1");
    assert_eq!(deletion.2["preconditions"]["resourceVersion"], "107");
}

#[tokio::test]
async fn dhc_4_a_lease_that_is_given_back_is_renewed_while_it_is_served() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Releasing(lease(later()))).await;
    let metadata = json!({
        "name": "web", "namespace": "shop",
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
    });
    api.put(SERVICE, stored(service(&metadata, "192.168.100.7"), "s", 6));
    // The Service is read live, and is there; then a client is to run, on an interface that is missing.
    let first = reconciled(&ctx).await;
    assert!(
        matches!(first, Requeue::Resync | Requeue::Backoff),
        "{first:?}"
    );
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
    ctx.notices.written().await;
    assert_eq!(api.events()[0]["reason"], "LeaseInterfaceDown");
    assert_eq!(phase(&api), "Releasing");
}

#[tokio::test]
async fn dhc_4_no_lease_is_given_back_while_the_service_of_another_load_balancer_has_its_address() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Releasing(lease(Micros(3)))).await;
    // A server has leased it twice.
    let other = record_key(&Uid::new("another"));
    let mut record = api.get(RECORD).unwrap();
    record["metadata"]["name"] = (*other.name).into();
    record["spec"]["phase"] = "Bound".into();
    record["spec"]["owner"] = json!({"namespace": "shop", "name": "api", "uid": "another"});
    record["spec"]["lease"]["clientId"] =
        ClientId::from_uid(&Uid::new("another")).to_string().into();
    api.put(&RECORD.replace(&format!("dhcp-{UID}"), &other.name), record);
    ctx.client.get_live::<IPAllocation>(&other).await.unwrap();
    let metadata = json!({
        "name": "api", "namespace": "shop",
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
    });
    let path = "/api/v1/namespaces/shop/services/api";
    api.put(path, stored(service(&metadata, "192.168.100.7"), "s", 6));
    let key = Key::new("shop", "api");
    ctx.client.get_live::<Service>(&key).await.unwrap();
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Releasing");
    // The stored copy is behind: the Service is read live.
    api.remove(path);
    assert_eq!(reconciled(&ctx).await, Requeue::AwaitChange);
    assert_eq!(api.get(RECORD), None);
}

#[tokio::test]
async fn dhc_4_a_lease_whose_interface_is_down_is_not_forgotten() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Releasing(lease(later()))).await;
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
    assert_eq!(phase(&api), "Releasing");
    assert!(api.writes().is_empty());
}

#[tokio::test]
async fn dhc_4_a_load_balancer_that_is_there_after_all_keeps_its_lease() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Bound(lease(later()))).await;
    // In the API server alone: the watch is behind.
    let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
    api.put(LB, stored(load_balancer("shop", "web", UID, &spec), UID, 5));
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Bound");
    assert!(
        ctx.index.due.depth() > 0,
        "decided again with what was read"
    );
}

#[tokio::test]
async fn dhc_2_a_new_leader_with_an_older_copy_of_the_load_balancer_moves_no_lease() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    let spec = with(vm_spec("web"), json!({"ipam": "pool"}));
    let lb = stored(load_balancer("shop", "web", UID, &spec), UID, 4);
    api.put(LB, lb);
    let key = Key::new("shop", "web");
    ctx.client.get_live::<LoadBalancer>(&key).await.unwrap();
    // By now it asks for a lease, which an earlier leader has recorded.
    let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
    api.put(LB, stored(load_balancer("shop", "web", UID, &spec), UID, 5));
    put_record(&api, &ctx, LeasePhase::Bound(lease(later()))).await;
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Bound");
    assert!(
        ctx.index.due.depth() > 0,
        "decided again with what was read"
    );
    // It does not ask for one any more.
    let spec = with(vm_spec("web"), json!({"ipam": "pool"}));
    api.put(LB, stored(load_balancer("shop", "web", UID, &spec), UID, 6));
    ctx.client.get_live::<LoadBalancer>(&key).await.unwrap();
    reconciled(&ctx).await;
    assert_eq!(phase(&api), "Releasing");
}

/// An earlier leader has given the address back, and leased it again: a RELEASE would end that lease.
#[tokio::test]
async fn dhc_2_a_new_leader_with_an_older_copy_of_the_record_gives_nothing_back() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    put_record(&api, &ctx, LeasePhase::Releasing(lease(later()))).await;
    let mut now = api.get(RECORD).unwrap();
    now["metadata"]["resourceVersion"] = "9".into();
    now["spec"]["phase"] = "Bound".into();
    api.put(RECORD, now);
    reconciled(&ctx).await;
    let seen = ctx.index.record(&owner().uid).unwrap();
    let RecordView::Lease(seen) = &*seen else {
        panic!("{seen:?}")
    };
    let phase = &seen.spec.phase;
    assert!(matches!(phase, LeasePhase::Bound(_)), "{phase:?}");
}

/// It is there, and it has what it had: nothing is given back because of it, and nothing is read again and again.
#[tokio::test]
async fn dhc_4_dhc_5_what_cannot_be_decoded_is_there_and_holds_what_it_had() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Bound(lease(later()))).await;
    let broken = with(vm_spec("web"), json!({"listeners": "none"}));
    let lb = load_balancer("shop", "web", UID, &broken);
    api.put(LB, stored(lb, UID, 9));
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Bound");
    // The record of a pool's address, which was readable.
    let of_pool = record("192.168.100.7", "lan", "Bound", ("shop", "api", "u-9"));
    let path = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/192.168.100.7";
    api.put(path, stored(of_pool.clone(), "r-9", 8));
    let key = pool_record_key(ADDRESS);
    ctx.client.get_live::<IPAllocation>(&key).await.unwrap();
    let broken = with(of_pool, json!({"spec": {"owner": "nobody"}}));
    api.put(path, stored(broken, "r-9", 9));
    let holder = ctx.index.holder(&owner().uid, ADDRESS);
    assert_eq!(holder, Some(Holder::Pool));
    let situation = Situation {
        mode: Mode::Builtin,
        interfaces: &ctx.settings.interfaces,
        lb: None,
        record: None,
        client: None,
        is_kube_vips: false,
        is_served: false,
        holder: holder.as_ref(),
        ending_twin: None,
    };
    let confirmed = is_confirmed(&ctx, &owner(), &situation, Guard::Held(ADDRESS)).await;
    assert!(confirmed.unwrap());
}

#[tokio::test]
async fn dhc_6_no_record_is_made_from_a_service_that_cannot_be_decoded() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    let broken =
        json!({"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": "none"}});
    api.put(SERVICE, stored(broken, "s-1", 6));
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), Value::Null);
}

/// It was sent in the moment in which the port ended.
#[tokio::test]
async fn dhc_1_a_request_that_a_port_has_left_unanswered_is_repeated() {
    let ctx = context(&FakeApiServer::default(), Mode::Builtin);
    let next = after_order(&ctx, &owner(), Err(PortError::Ended));
    assert!(matches!(next, Next::Again));
}

#[tokio::test]
async fn ipa_5_a_write_replaces_every_field_of_a_record() {
    let full = LeaseSpec {
        owner: owner(),
        phase: LeasePhase::Bound(Lease {
            mask: Some(Ipv4Addr::new(255, 255, 255, 0)),
            router: Some(Ipv4Addr::new(192, 168, 100, 254)),
            server_hardware: Some(HardwareAddress([2, 0, 0, 0, 0, 5])),
            ..lease(later())
        }),
        interface: "eth0".to_owned(),
        is_chosen: true,
        hardware: Identity::new(&Uid::new(UID), None).hardware,
        wanted: None,
        bound_at: Some(Micros(1_770_000_000_000_000)),
    };
    let empty = LeaseSpec {
        phase: LeasePhase::Pending,
        interface: "eth1".to_owned(),
        is_chosen: false,
        hardware: HardwareAddress([2, 0, 0, 0, 0, 1]),
        wanted: Some(ADDRESS),
        bound_at: None,
        ..full.clone()
    };
    let released = LeaseSpec {
        phase: LeasePhase::Released(ADDRESS),
        ..full.clone()
    };
    let all = [full, empty, released];
    for (from, to) in all
        .iter()
        .flat_map(|from| all.iter().map(move |to| (from, to)))
    {
        let api = FakeApiServer::default();
        let ctx = context(&api, Mode::Builtin);
        let record = json!({"metadata": {"name": from.name()}, "spec": from.to_api()});
        api.put(RECORD, stored(record, "r-1", 7));
        let key = record_key(&owner().uid);
        let stored = ctx.client.get_live::<IPAllocation>(&key).await.unwrap();
        let stored = LeaseRecord::read(&stored.unwrap()).unwrap();
        write(&ctx, &stored, to).await.unwrap();
        let now: IPAllocation = serde_json::from_value(api.get(RECORD).unwrap()).unwrap();
        assert_eq!(LeaseRecord::read(&now).unwrap().spec, *to, "from {from:?}");
    }
}

#[tokio::test]
async fn dhc_6_a_released_record_stays_until_kube_vip_asks_for_its_address() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::KubeVip);
    put_lb(&api, &ctx).await;
    put_record(&api, &ctx, LeasePhase::Releasing(lease(Micros(3)))).await;
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Released");
    let spec = api.get(RECORD).unwrap()["spec"].clone();
    assert_eq!(spec["address"], "192.168.100.7");
    // No trace of the lease is left.
    assert_eq!(spec["lease"]["server"], Value::Null);
    assert_eq!(spec["lease"]["serverHardwareAddress"], Value::Null);
    assert_eq!(spec["lease"]["expiresAt"], Value::Null);
    let metadata = json!({
        "name": "web", "namespace": "shop",
        "labels": {"loadbalancer.harvesterhci.io/servicelb": "true"},
        "annotations": {"kube-vip.io/requestedIP": "192.168.100.7"},
    });
    api.put(SERVICE, stored(service(&metadata, "0.0.0.0"), "s", 300));
    assert_eq!(reconciled(&ctx).await, Requeue::AwaitChange);
    assert_eq!(api.get(RECORD), None);
}

#[tokio::test]
async fn dhc_1_a_refused_write_is_an_error_and_a_conflict_is_read_again() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    api.refuse(Method::POST, "ipallocations");
    let refused = reconcile(&ctx, &owner()).await.unwrap_err();
    assert!(refused.is_refusal());
    assert_eq!(ctx.refused_writes.all().len(), 1);
    api.admit();
    // Another process was faster.
    put_record(&api, &ctx, LeasePhase::Pending).await;
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
}

#[tokio::test]
async fn dhc_1_a_problem_has_one_event_until_it_is_over() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    let (notices, owner) = (&ctx.notices, owner());
    let problem = |text: &str| EventDraft {
        warning: true,
        reason: events::LEASE_REFUSED.to_owned(),
        text: text.to_owned(),
    };
    for text in ["by one server", "by another", "by one server"] {
        notices.lasting(&owner, &problem(text));
    }
    notices.solved(&owner.uid, &events::OVER_WITH_AN_ACK);
    notices.lasting(&owner, &problem("once more"));
    notices.problem(&owner, &problem("once more"));
    notices.problem(&owner, &problem("otherwise"));
    notices.written().await;
    let events = api.events();
    let texts: Vec<_> = events.iter().map(|event| &event["note"]).collect();
    assert_eq!(texts, ["by one server", "once more", "otherwise"]);
}

/// An earlier leader has given the lease back and deleted its record, and the watch has yet to bring that the load balancer is gone.
#[tokio::test]
async fn dhc_1_nothing_is_leased_for_a_load_balancer_that_is_gone() {
    for record in [None, Some(LeasePhase::Pending)] {
        let api = FakeApiServer::default();
        let ctx = context(&api, Mode::Builtin);
        put_lb(&api, &ctx).await;
        let is_recorded = record.is_some();
        if let Some(phase) = record {
            put_record(&api, &ctx, phase).await;
        }
        api.remove(LB);
        api.writes();
        assert_eq!(reconciled(&ctx).await, Requeue::Resync);
        assert_eq!(api.writes(), []);
        assert!(ctx.index.due.depth() > 0, "decided again");
        reconciled(&ctx).await;
        assert!(api.get(RECORD).is_none(), "{is_recorded}");
    }
}
