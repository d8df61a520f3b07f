//! Changes of load balancers: which address a status may name (IPA-6, IPA-7, SHR-3), and the pace of its writes (OPS-2).

use serde_json::Value;
use tokio::time::{Duration, Instant};

use super::Oracle;
use super::objects::{Lb, condition, shares_told};
use crate::api::{By, Event};
use crate::failure::{Failure, must};

/// Shortest time between two status writes of which the second changes only detail conditions.
const DETAIL_INTERVAL: Duration = Duration::from_secs(10);
/// Types of the detail conditions.
const DETAILS: [&str; 3] = ["AddressAllocated", "Announced", "BackendsHealthy"];

fn is_detail(condition: &Value) -> bool {
    DETAILS.iter().any(|type_| condition["type"] == *type_)
}

fn has_details(status: &Value) -> bool {
    let mut all = status["conditions"].as_array().into_iter().flatten();
    all.any(is_detail)
}

/// A status without its detail conditions.
fn without_details(status: &Value) -> Value {
    let mut status = status.clone();
    if let Some(conditions) = status["conditions"].as_array_mut() {
        conditions.retain(|condition| !is_detail(condition));
    }
    status
}

/// The reason of the condition Ready.
pub(super) fn ready(lb: &Value) -> Option<&str> {
    condition(lb, "Ready")?["reason"].as_str()
}

impl Oracle {
    pub(super) fn lb(&mut self, event: &Event) -> Result<(), Failure> {
        self.settle(event);
        let key = &event.key;
        let Some(object) = &event.after else {
            self.lbs.remove(key);
            return Ok(());
        };
        let mut now = Lb::read(object);
        let before = self.lbs.remove(key).filter(|b| b.uid == now.uid);
        now.written_at = self.paced(event, before.as_ref())?;
        if let Some(before) = &before {
            now.was = if before.primary == now.primary {
                before.was.clone()
            } else {
                before.primary.clone()
            };
            now.answered = match event.by {
                By::Operator => true,
                _ => {
                    before.answered
                        && event
                            .before
                            .as_ref()
                            .is_some_and(|b| b["spec"] == object["spec"])
                }
            };
            now.excused = match event.by {
                _ if before.committed == now.committed => before.excused.clone(),
                By::Late => before.committed.clone(),
                _ => None,
            };
        }
        self.lbs.insert(key.clone(), now.clone());
        let Some(before) = before else {
            return Ok(());
        };
        if before.committed == now.committed || matches!(event.by, By::User | By::Cluster) {
            return Ok(());
        }
        let holds = |address: &str| {
            let record = self.records.get(address);
            record.filter(|r| r.bound && r.owner == *key && r.uid == now.uid)
        };
        if let Some(left) = &before.committed
            && !self.made_late.contains(left)
            && let Some(record) = holds(left)
        {
            let is_served = now.requested.is_some() && now.requested == now.committed;
            // SHR-6: others share the address of an earlier one of its name, as they were told just when it was made.
            let shares_earlier = |other: &Lb| {
                let record = other.committed.as_ref().and_then(|it| self.records.get(it));
                other.names(key) && record.is_some_and(|r| r.of() == *key && r.uid != now.uid)
            };
            let is_taken =
                ready(object) == Some("NameConflict") && self.lbs.values().any(shares_earlier);
            let leaves = now.dhcp
                || is_taken
                || is_served
                || now.asks()
                || now.pool.as_ref().is_some_and(|pool| *pool != record.pool);
            must!(
                "IPA-7",
                leaves,
                "{key} holds {left} of pool {} and its status is changed to {:?}",
                record.pool,
                now.committed
            );
        }
        if let (Some(left), Some(told)) = (&before.committed, &event.before) {
            let group = now.primary.as_ref().filter(|_| now.was.is_none());
            let record = self.records.get(left).filter(|r| r.bound);
            let is_groups = record.zip(group).is_some_and(|(record, group)| {
                record.of().namespace == key.namespace && *record.of().name == **group
            });
            must!(
                "SHR-5",
                !is_groups
                    || self.by_hand.contains(left)
                    || !shares_told(told)
                    || ready(object) != Some("PrimaryNotFound"),
                "{key} was told that it shares {left}, which is the address of {group:?} still, and now that there is no such load balancer"
            );
        }
        // SHR-3: an address of the group that it names.
        let shares = |address: &str| {
            let record = self.records.get(address).filter(|r| r.bound);
            record.is_some_and(|r| r.of().namespace == key.namespace && now.names(&r.of()))
        };
        if let Some(address) = &now.committed {
            must!(
                "IPA-6",
                holds(address).is_some() || self.by_hand.contains(address) || shares(address),
                "the status of {key} is given {address} without a record: {:?}",
                self.records.get(address)
            );
        }
        Ok(())
    }

    /// A write of nothing but detail conditions comes at least [`DETAIL_INTERVAL`] after the previous status write, and not to a
    /// status without any of them, unless it is one about endpoints. Returns the time of the last status write.
    fn paced(&self, event: &Event, known: Option<&Lb>) -> Result<Option<Instant>, Failure> {
        let last = known.and_then(|lb| lb.written_at);
        let (Some(before), Some(after)) = (&event.before, &event.after) else {
            return Ok(last);
        };
        if event.by != By::Operator || before["status"] == after["status"] {
            return Ok(last);
        }
        let (is_same, had_any) = (
            without_details(&before["status"]) == without_details(&after["status"]),
            has_details(&before["status"]),
        );
        if is_same {
            let since = last.map(|last| last.elapsed());
            must!(
                "section 9",
                since.is_none_or(|since| since >= DETAIL_INTERVAL),
                "detail conditions of {} are written alone {since:?} after its status",
                event.key
            );
            must!(
                "OPS-2",
                had_any || self.slices_changed.contains(&event.key),
                "detail conditions are added to {}, which had none",
                event.key
            );
        }
        Ok(Some(Instant::now()))
    }
}
