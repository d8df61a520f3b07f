//! What a client tells of itself, as Events and as counts.

use harvester_lb_core::dhcp::events;
use harvester_lb_ipam::Uid;
use harvester_lb_ipam::dhcp::Event;

use crate::dhcp::clients::Clients;
use crate::dhcp::metrics::event_kind;
use crate::dhcp::order::Surroundings;

/// Counts what happened to a client, and publishes the Event about it: of a problem that lasts, one.
pub fn event(around: &Surroundings, clients: &mut Clients, uid: &Uid, event: &Event) {
    around.metrics.lease_event(event_kind(event));
    let Some(owner) = clients.tells(uid, event) else {
        return;
    };
    let notifier = &around.notifier;
    if matches!(event, Event::Bound(_) | Event::Renewed(_)) {
        notifier.solved(uid, &events::OVER_WITH_AN_ACK);
    }
    // As it was before this input.
    let view = around.index.views.get(uid);
    let has_lease = view.is_some_and(|view| view.lease.is_some());
    let holder = match event {
        Event::Declined { address, .. } => around.index.holder(uid, *address),
        _ => None,
    };
    if let Some(draft) = events::of_client(event, has_lease, holder.as_ref()) {
        match draft.reason.as_str() {
            events::LEASE_UNANSWERED | events::LEASE_REFUSED => notifier.lasting(owner, &draft),
            events::LEASE_DECLINED => notifier.problem(owner, &draft),
            _ => notifier.publish(owner, &draft),
        }
    }
}
