//! Leases of which others have the address, or the hardware address of the client (DHC-1, DHC-5).

use super::*;

/// A client of the load balancer.
fn put_client(ctx: &Context, lease: Option<Lease>) {
    let view = ClientView {
        interface: MISSING.to_owned(),
        hardware: Identity::new(&owner().uid, None).hardware,
        lease,
        is_asking: false,
        loss: None,
        declined: None,
    };
    let state = StateName::Bound;
    let owner = owner();
    ctx.index.views.set(Entry { owner, view, state });
}

/// The load balancers whose lease is due; none is afterwards.
async fn due(ctx: &Context) -> Vec<Owner> {
    let mut all = Vec::new();
    while ctx.index.due.depth() > 0 {
        let key = ctx.index.due.next().await.unwrap();
        ctx.index.due.done(&key, &Ok(Requeue::AwaitChange));
        all.push(key.0);
    }
    all
}

#[tokio::test]
async fn dhc_5_a_served_lease_is_not_declined_for_a_pool_that_has_released_the_address() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    let leased = lease(later());
    put_record(&api, &ctx, LeasePhase::Bound(leased)).await;
    put_client(&ctx, Some(leased));
    // The copy of a new leader, whose watch is behind.
    let path = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/192.168.100.7";
    let held = record("192.168.100.7", "lan", "Bound", ("shop", "other", "u-9"));
    api.put(path, stored(held, "p-1", 3));
    let key = pool_record_key(ADDRESS);
    ctx.client.get_live::<IPAllocation>(&key).await.unwrap();
    assert!(ctx.index.is_held_by_pool(ADDRESS));
    let released = record("192.168.100.7", "lan", "Released", ("shop", "other", "u-9"));
    api.put(path, stored(released, "p-1", 8));
    api.reads();
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert!(
        api.reads()
            .iter()
            .any(|read| read.ends_with("192.168.100.7"))
    );
    assert_eq!(ctx.index.holder(&owner().uid, ADDRESS), None);
    assert_eq!(reconciled(&ctx).await, Requeue::AwaitChange);
    assert_eq!(phase(&api), "Bound");
}

/// The watch does not bring what this process has written.
#[tokio::test]
async fn dhc_5_a_write_of_this_process_makes_others_with_the_address_due() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_record(&api, &ctx, LeasePhase::Bound(lease(later()))).await;
    let record = api.get(RECORD).unwrap();
    due(&ctx).await;
    let other = Owner::new("shop", "other", "u-other");
    let mut leased = json!({"metadata": {"name": "dhcp-u-other"}, "spec": record["spec"]});
    leased["spec"]["owner"] = json!({"namespace": "shop", "name": "other", "uid": "u-other"});
    let leased: IPAllocation = serde_json::from_value(leased).unwrap();
    let key = record_key(&other.uid);
    let created = ctx.client.create(&key, &leased).await.unwrap();
    assert_eq!(due(&ctx).await, [owner()]);
    // So does what changes of its own record, but not itself.
    ctx.client
        .patch::<IPAllocation>(
            &record_key(&owner().uid),
            &ObjectMeta {
                resource_version: record["metadata"]["resourceVersion"]
                    .as_str()
                    .map(Into::into),
                ..ObjectMeta::default()
            },
            json!({"spec": {"boundAt": "2026-01-01T00:00:00.000000Z"}}),
        )
        .await
        .unwrap();
    assert_eq!(due(&ctx).await, std::slice::from_ref(&other));
    let stored = ctx.index.record(&other.uid).unwrap();
    let RecordView::Lease(stored) = &*stored else {
        panic!("it is a lease: {created:?}");
    };
    delete(&ctx, stored).await.unwrap();
    assert_eq!(due(&ctx).await, [owner()]);
}

/// A load balancer was deleted just before its client got a lease, and another one has the same hardware address.
#[tokio::test]
async fn dhc_1_who_waits_for_its_twin_is_due_when_that_is_gone() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    put_record(&api, &ctx, LeasePhase::Pending).await;
    let twin = Owner::new("shop", "before", "u-before");
    let mut before =
        json!({"spec": ctx.index.record(&owner().uid).unwrap().lease().unwrap().to_api()});
    before["metadata"]["name"] = "dhcp-u-before".into();
    before["spec"]["owner"] = json!({"namespace": "shop", "name": "before", "uid": "u-before"});
    api.put(&RECORD.replace(UID, "u-before"), stored(before, "r-2", 8));
    let key = record_key(&twin.uid);
    ctx.client.get_live::<IPAllocation>(&key).await.unwrap();
    for _ in 0..2 {
        assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    }
    due(&ctx).await;
    assert_eq!(reconcile(&ctx, &twin).await.unwrap(), Requeue::AwaitChange);
    assert_eq!(ctx.index.record(&twin.uid), None);
    assert_eq!(due(&ctx).await, [owner()]);
    // It would start now, if its interface were there.
    assert_eq!(reconciled(&ctx).await, Requeue::Backoff);
    ctx.notices.written().await;
    let events = api.events().into_iter().map(|it| it["reason"].clone());
    assert_eq!(
        events.collect::<Vec<_>>(),
        ["LeaseWaits", "LeaseInterfaceDown"]
    );
}

/// The pool has given the address away, which the watch has yet to bring: the lease is not recorded, and so not served.
#[tokio::test]
async fn dhc_5_who_else_has_the_address_is_read_before_a_lease_is_recorded() {
    let api = FakeApiServer::default();
    let ctx = context(&api, Mode::Builtin);
    put_lb(&api, &ctx).await;
    put_record(&api, &ctx, LeasePhase::Pending).await;
    put_client(&ctx, Some(lease(later())));
    let path = "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/192.168.100.7";
    let held = record("192.168.100.7", "lan", "Bound", ("shop", "other", "u-9"));
    api.put(path, stored(held, "p-1", 3));
    assert_eq!(reconciled(&ctx).await, Requeue::Resync);
    assert_eq!(phase(&api), "Pending");
    assert_eq!(
        ctx.index.holder(&owner().uid, ADDRESS),
        Some(Holder::Pool),
        "it is declined next"
    );
    assert!(ctx.index.due.depth() > 0);
    // The pool has released it.
    let released = record("192.168.100.7", "lan", "Released", ("shop", "other", "u-9"));
    api.put(path, stored(released, "p-1", 8));
    let key = pool_record_key(ADDRESS);
    ctx.client.get_live::<IPAllocation>(&key).await.unwrap();
    reconciled(&ctx).await;
    assert_eq!(phase(&api), "Bound");
}
