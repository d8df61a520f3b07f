use super::*;

use harvester_lb_api::IPAllocation;
use harvester_lb_core::{cached, spec};
use harvester_lb_fixtures::{
    announced, load_balancer, owned_by, record as pool_record, service, stored, vm_spec, with,
};
use harvester_lb_ipam::{Ledger, Settings as LedgerSettings};
use harvester_lb_object::Version;
use serde_json::{Value, json};

use crate::controllers::load_balancer::announcement;
use crate::controllers::load_balancer::group::with_names;
use crate::controllers::load_balancer::observe::Stored;
use crate::fake::{self, FakeApiServer};
use crate::index::leader_state::LeaderState;

const SERVICE: &str = "/api/v1/namespaces/n/services/a";
const RECORDS: &str = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations";
const A: &str = "192.168.100.7";
const B: &str = "192.168.100.8";

/// The record of a lease, from now on for so many seconds.
fn lease(phase: &str, address: &str, seconds: i64) -> Value {
    let at = |share: i64| {
        harvester_lb_core::time::rfc3339_micros(Micros(clock::now().0 + seconds * share * 100_000))
    };
    json!({
        "metadata": {"name": "dhcp-u-a"},
        "spec": {
            "address": address, "pool": "", "phase": phase,
            "owner": {"namespace": "n", "name": "a", "uid": "u-a"},
            "lease": {
                "interface": "eth0", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff",
                "server": "192.168.100.1", "renewAt": at(5), "rebindAt": at(8), "expiresAt": at(10),
            },
        },
    })
}

/// Stores these IPAllocations, in the API server too.
fn store(ctx: &Context, server: &FakeApiServer, records: &[Value]) {
    for record in records {
        let name = record["metadata"]["name"].as_str().unwrap();
        let object = stored(record.clone(), "u-record", 7);
        server.put(&format!("{RECORDS}/{name}"), object.clone());
        let object: IPAllocation = serde_json::from_value(object).unwrap();
        let allocation = Allocation::decoded(&object);
        let name = Key::new("", name);
        ctx.index.observe_record(&name.name, &allocation);
        let stored = &ctx.index.stores.allocations;
        let change = stored.written(&name, Version(7), allocation);
        ctx.index.allocation_changed(&name, &change.unwrap());
    }
}

/// Whether the Service of a load balancer that stays as it is ends. It asks for `served`; these IPAllocations are in the store and in
/// the API server.
async fn ends(mode: Mode, records: &[Value], served: &str) -> bool {
    let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
    let lb = load_balancer("n", "a", "u-a", &spec);
    one_ends(&lb, mode, records, served).await
}

/// The same of this load balancer.
async fn one_ends(lb: &Value, mode: Mode, records: &[Value], served: &str) -> bool {
    let server = FakeApiServer::default();
    let ctx = fake::in_mode(server.client(), mode);
    ctx.index
        .become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
    let key = Key::new("n", "a");
    let lb: LoadBalancer = serde_json::from_value(stored(lb.clone(), "u-a", 5)).unwrap();
    let object = stored(service(&owned_by("n", "a", "u-a"), served), "u-service", 6);
    server.put(SERVICE, object.clone());
    let decoded = cached::service(Ok(serde_json::from_value(object).unwrap())).unwrap();
    let services = &ctx.index.stores.services;
    services.written(&key, Version(6), decoded);
    store(&ctx, &server, records);
    end_lost(&ctx, &key, &lb.metadata, Some(&lb)).await.unwrap();
    server.get(SERVICE).is_none()
}

#[tokio::test]
async fn alc_10_a_pool_s_address_that_only_the_api_server_knows_of_ends_no_service() {
    let server = FakeApiServer::default();
    let ctx = fake::in_mode(server.client(), Mode::Builtin);
    ctx.index
        .become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
    let key = Key::new("n", "a");
    let object = stored(service(&owned_by("n", "a", "u-a"), A), "u-service", 6);
    server.put(SERVICE, object.clone());
    let decoded = cached::service(Ok(serde_json::from_value(object).unwrap())).unwrap();
    ctx.index.stores.services.written(&key, Version(6), decoded);
    // Left over from before it was given an address of a pool.
    let left = stored(lease("Releasing", B, 3_600), "u-record", 7);
    server.put(&format!("{RECORDS}/dhcp-u-a"), left.clone());
    let left: IPAllocation = serde_json::from_value(left).unwrap();
    let name = Key::new("", "dhcp-u-a");
    ctx.index
        .stores
        .allocations
        .written(&name, Version(7), Allocation::decoded(&left));
    let pools = pool_record(A, "p", "Bound", ("n", "a", "u-a"));
    server.put(&format!("{RECORDS}/{A}"), stored(pools, "u-pool", 8));
    let lb = stored(load_balancer("n", "a", "u-a", &vm_spec("web")), "u-a", 5);
    let lb: LoadBalancer = serde_json::from_value(lb).unwrap();
    let ended = end_lost(&ctx, &key, &lb.metadata, Some(&lb)).await;
    assert!(matches!(ended, Err(WriteError::Conflict(_))), "{ended:?}");
    assert!(server.get(SERVICE).is_some());
}

/// Its Service was shared, so that the API server admits the names of its ports; for the DHCP process the spec alone counts.
#[tokio::test]
async fn dhc_1_no_lease_is_waited_for_that_the_dhcp_process_does_not_ask_for() {
    let (dhcp, pool) = (json!({"ipam": "dhcp"}), json!({"ipam": "pool"}));
    for (mode, ipam, is_refused) in [
        (Mode::Builtin, &dhcp, true),
        (Mode::Builtin, &pool, false),
        (Mode::KubeVip, &dhcp, false),
    ] {
        let server = FakeApiServer::default();
        let ctx = fake::in_mode(server.client(), mode);
        let key = Key::new("n", "a");
        let mut spec = with(vm_spec("web"), ipam.clone());
        spec["listeners"] = json!([{"name": "HTTP_80", "port": 80, "backendPort": 8080}]);
        let lb = stored(load_balancer("n", "a", "u-a", &spec), "u-a", 5);
        let lb: LoadBalancer = serde_json::from_value(lb).unwrap();
        let mut shared = stored(service(&owned_by("n", "a", "u-a"), A), "u-service", 6);
        shared["spec"]["ports"] =
            json!([{"name": "80-tcp", "port": 80, "protocol": "TCP", "targetPort": 8080}]);
        let shared = cached::service(Ok(serde_json::from_value(shared).unwrap())).unwrap();
        ctx.index.stores.services.written(&key, Version(6), shared);
        let checked = spec::check(&lb).unwrap();
        let name = checked.vm.as_ref().and_then(|vm| vm.unusable_name.clone());
        let observed = Stored::of(&ctx, &key);
        let objects = observed.objects(&key);
        let named = with_names(&ctx, &lb, &objects, checked, name.unwrap());
        assert_eq!(named.is_err(), is_refused, "{mode:?} {ipam}");
    }
}

#[tokio::test]
async fn dhc_3_a_lost_lease_ends_the_service_of_one_that_stays_as_it_is() {
    let of_pool =
        |phase: &str, owner: &str| pool_record(A, "p", phase, ("n", owner, &format!("u-{owner}")));
    let pools = |owner: &str| of_pool("Bound", owner);
    let own = || lease("Bound", A, 3_600);
    let edited = || {
        let mut record = own();
        record["spec"]["owner"]["name"] = json!("b");
        record
    };
    let (builtin, kube_vip) = (Mode::Builtin, Mode::KubeVip);
    // Mode, IPAllocations, the address that the Service asks for, whether it ends.
    let cases: Vec<(Mode, Vec<Value>, &str, bool)> = vec![
        (builtin, vec![own()], A, false),
        (kube_vip, vec![own()], A, false),
        (builtin, vec![lease("Bound", A, -1)], A, true),
        (builtin, vec![lease("Pending", "", 0)], A, true),
        (builtin, vec![lease("Releasing", A, 3_600)], A, true),
        // The lease that it has by now is another one.
        (builtin, vec![lease("Bound", B, 3_600)], A, true),
        // kube-vip's own.
        (builtin, vec![lease("Pending", "", 0)], "0.0.0.0", false),
        // A pool's address: that of this load balancer, and that of another one, for which the lease was declined.
        (builtin, vec![lease("Pending", "", 0), pools("a")], A, false),
        (builtin, vec![lease("Pending", "", 0), pools("b")], A, true),
        // It had the address from a pool once, which reserves nothing.
        (
            builtin,
            vec![lease("Pending", "", 0), of_pool("Released", "a")],
            A,
            true,
        ),
        // Somebody has deleted the record, or edited it.
        (builtin, vec![], A, true),
        (kube_vip, vec![], A, false),
        (builtin, vec![edited()], A, false),
    ];
    for (mode, records, served, expected) in cases {
        let ended = ends(mode, &records, served).await;
        assert_eq!(ended, expected, "{mode:?} {served} {records:?}");
    }
    // The edit of `ipam` is refused: only the status tells that its address is a lease.
    for (status, expected) in [
        (json!({}), false),
        (json!({"allocatedAddress": {"ip": "0.0.0.0"}}), true),
        (json!({"allocatedAddress": {"ip": "10.0.0.2"}}), false),
    ] {
        let lb = load_balancer("n", "a", "u-a", &vm_spec("web"));
        let lb = with(lb, json!({"status": status}));
        let ended = one_ends(&lb, builtin, &[], A).await;
        assert_eq!(ended, expected, "{status}");
    }
}

#[tokio::test]
async fn dhc_3_the_status_of_one_that_stays_as_it_is_does_not_keep_the_address_of_a_lost_lease() {
    let of = |ipam: &str, mode: Mode, records: &[Value], address: &str| {
        let server = FakeApiServer::default();
        let ctx = fake::in_mode(server.client(), mode);
        ctx.index
            .become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
        store(&ctx, &server, records);
        let key = Key::new("n", "a");
        let spec = with(vm_spec("web"), json!({"ipam": ipam}));
        let lb = with(
            load_balancer("n", "a", "u-a", &spec),
            json!({"status": {"address": address}}),
        );
        is_lost(&ctx, &key, &serde_json::from_value(lb).unwrap())
    };
    let lost = |mode, records: &[Value], address| of("dhcp", mode, records, address);
    let (builtin, valid, over) = (Mode::Builtin, lease("Bound", A, 60), lease("Bound", A, -1));
    assert!(lost(builtin, std::slice::from_ref(&over), A));
    assert!(lost(builtin, &[lease("Pending", "", 0)], A));
    assert!(lost(builtin, &[], A));
    assert!(
        !lost(builtin, &[valid], A),
        "the Service was deleted by hand"
    );
    assert!(!lost(builtin, &[over], ""), "it says so already");
    assert!(!lost(Mode::KubeVip, &[], A), "kube-vip's client leases it");
    let kube_vip = |record| lost(Mode::KubeVip, &[record], A);
    assert!(!kube_vip(lease("Bound", A, 60)));
    assert!(kube_vip(lease("Bound", A, -1)));
    assert!(kube_vip(lease("Pending", "", 0)));
    // The edit of `ipam` is refused.
    let pool = |records: &[Value]| of("pool", builtin, records, A);
    assert!(pool(&[lease("Bound", A, -1)]));
    assert!(!pool(&[lease("Bound", A, 60)]));
    assert!(!pool(&[]), "its address is a pool's");
    let has_another = [
        lease("Releasing", B, -1),
        pool_record(A, "p", "Bound", ("n", "a", "u-a")),
    ];
    assert!(!pool(&has_another));
}

/// Of one that has ended too: its address may be somebody else's by now, so kube-vip must not go on announcing it.
#[tokio::test]
async fn rel_4_kube_vip_is_not_left_with_the_address_of_an_ended_lease() {
    let key = Key::new("n", "a");
    for (records, expected) in [
        (vec![lease("Releasing", A, 60)], true),
        (vec![lease("Releasing", A, -1)], true),
        (vec![lease("Releasing", B, -1)], false),
        (vec![], false),
    ] {
        let server = FakeApiServer::default();
        let ctx = fake::in_mode(server.client(), Mode::Builtin);
        ctx.index
            .become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
        store(&ctx, &server, &records);
        // It has an address of a pool by now.
        let service = service(&owned_by("n", "a", "u-a"), "10.0.0.2");
        let service = with(service, json!({"status": announced(A)}));
        let service = serde_json::from_value(service).unwrap();
        let is_behind = announcement::is_behind(&ctx, &key, &service);
        assert_eq!(is_behind, expected, "{records:?}");
    }
}

/// The server gives kube-vip's client an address whose lease has ended, and not one that an earlier load balancer of the name still has.
#[tokio::test]
async fn rel_4_what_kube_vip_has_leased_itself_is_not_moved_away_from() {
    let key = Key::new("n", "a");
    let of_earlier = |seconds: i64| {
        let mut record = lease("Bound", A, seconds);
        record["metadata"]["name"] = json!("dhcp-u-b");
        record["spec"]["owner"]["uid"] = json!("u-b");
        record
    };
    for (record, expected) in [
        (of_earlier(60), Some(Duration::from_secs(3))),
        (of_earlier(-1), None),
        (lease("Bound", A, 60), None),
    ] {
        let server = FakeApiServer::default();
        let ctx = fake::in_mode(server.client(), Mode::KubeVip);
        ctx.index
            .become_leader(|| LeaderState::new(Ledger::new(LedgerSettings::default())));
        let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
        let lb = stored(load_balancer("n", "a", "u-a", &spec), "u-a", 5);
        let lb = cached::Lb::valid(serde_json::from_value(lb).unwrap());
        ctx.index.stores.lbs.written(&key, Version(5), lb);
        store(&ctx, &server, std::slice::from_ref(&record));
        let service = service(&owned_by("n", "a", "u-a"), keys::DHCP_ADDRESS);
        let service = with(service, json!({"status": announced(A)}));
        let service = cached::service(Ok(serde_json::from_value(service).unwrap())).unwrap();
        let address = Address::by_dhcp(Vec::new(), None, None);
        let observed = announcement::observe_move(&ctx, &key, &service, &address);
        assert_eq!(observed.and_then(|it| it.remaining), expected, "{record}");
    }
}
