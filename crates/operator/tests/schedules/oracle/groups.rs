//! Load balancers that share a Service: it carries each port for one of them (SHR-2), and one that nobody touches keeps its ports and
//! endpoints while others join and leave (SHR-4).

use std::collections::BTreeSet;

use harvester_lb_object::Key;
use serde_json::Value;

use super::Oracle;
use super::load_balancers::ready;
use super::objects::{Lb, text};
use super::wiring::{Port, decided, number, service_of, services_of};
use crate::api::{By, Event};
use crate::at_rest::FOLLOWED;
use crate::call::Positions;
use crate::failure::{Failure, must};
use crate::kind::Kind;
use crate::specs::MACHINES;

impl Oracle {
    /// A load balancer has changed.
    pub(super) fn settle(&mut self, event: &Event) {
        let is_settled = match (&event.before, &event.after) {
            (Some(_), Some(after)) if event.by == By::Operator => is_served(after),
            (Some(before), Some(after)) => {
                self.settled.contains(&event.key)
                    && asks_the_same(before, after)
                    && before["status"] == after["status"]
            }
            _ => false,
        };
        if is_settled {
            self.settled.insert(event.key.clone());
        } else {
            self.settled.remove(&event.key);
        }
    }

    /// A Service or an EndpointSlice has changed.
    pub(super) fn wired(&mut self, event: &Event) -> Result<(), Failure> {
        let services = services_of(event);
        let before: Vec<_> = services
            .iter()
            .map(|it| self.wiring.carried(it, &self.lbs))
            .collect();
        let last_written = self.wiring.written.get(&event.key).copied();
        self.wiring.note(event);
        let Some(seen) = decided(event) else {
            return Ok(());
        };
        // The Service may have carried a port for an earlier one of its name, or of an earlier spec.
        let wants = |key: &Key, (_, number): &Port| {
            let lb = self.lbs.get(key);
            lb.is_some_and(|lb| lb.ports.contains(number))
        };
        for (service, before) in services.iter().zip(before) {
            if self.wiring.tampered.contains(service) {
                continue;
            }
            let now = self.wiring.carried(service, &self.lbs);
            for (port, members) in &now {
                must!(
                    "SHR-2",
                    members.len() < 2 || before.get(port) == Some(members),
                    "the Service {service} carries {port:?} for {members:?}"
                );
            }
            for (port, members) in &before {
                let kept = now.get(port);
                let mut lost = members
                    .iter()
                    .filter(|it| kept.is_none_or(|all| !all.contains(it)));
                let robbed = lost.find(|it| {
                    wants(it, port)
                        && self.history.is_current(Kind::Service, service, &seen)
                        && self.history.is_current(Kind::Slice, it, &seen)
                        && self.is_untouched(it, service, &seen)
                });
                must!(
                    "SHR-4",
                    robbed.is_none(),
                    "the Service {service} carries {port:?} no more for {robbed:?}, which nobody has touched"
                );
            }
        }
        match (event.kind, last_written) {
            (Kind::Service, _) => ports_are_unique(event),
            (_, Some(written)) => self.slice_rewritten(event, &written, &seen),
            _ => Ok(()),
        }
    }

    /// SHR-4: an EndpointSlice is changed only for a reason.
    fn slice_rewritten(
        &self,
        event: &Event,
        written: &Positions,
        seen: &Positions,
    ) -> Result<(), Failure> {
        let (Some(before), Some(after)) = (&event.before, &event.after) else {
            return Ok(());
        };
        let Some(group) = service_of(before).map(|name| Key::new(&event.key.namespace, name))
        else {
            return Ok(());
        };
        let kinds = [Kind::Vmi, Kind::Node, Kind::Pool];
        if self.wiring.tampered.contains(&group)
            || !self.history.is_latest(&kinds, written)
            || !self.history.is_latest(&kinds, seen)
            || !self.is_untouched(&event.key, &group, written)
        {
            return Ok(());
        }
        let (had, has) = (endpoints(before), endpoints(after));
        let of_machine = |it: &&&str| it.starts_with(MACHINES);
        // An address of a pool or of a Service that nobody else has any more: machines that do not run serve only while no other one does.
        let is_any_freed = has.difference(&had).any(|it| !it.starts_with(MACHINES));
        let is_kept = (is_any_freed || had.iter().filter(of_machine).all(|it| has.contains(it)))
            && (group == event.key || ports(before).is_subset(&ports(after)));
        must!(
            "SHR-4",
            is_kept,
            "the EndpointSlice of {}, which nobody has touched, is changed from {before} to {after}",
            event.key
        );
        Ok(())
    }

    /// Whether a load balancer shares the address of a Service, has been told so, and no version of it that the operator may have known
    /// differs.
    fn is_untouched(&self, key: &Key, service: &Key, seen: &Positions) -> bool {
        let (Some(lb), Some(shown)) = (self.lbs.get(key), self.services.get(service)) else {
            return false;
        };
        let Some(record) = lb.committed.as_ref().and_then(|it| self.records.get(it)) else {
            return false;
        };
        // What the holder of the address wants is done to all.
        let stays = |lb: &Lb| {
            lb.pool.as_ref().is_none_or(|pool| *pool == record.pool)
                && lb.requested.as_ref().is_none_or(|it| *it == record.address)
        };
        let mut known = self.history.known(Kind::Lb, key, seen);
        let now = known.clone().last().flatten().unwrap();
        let is_as_now = |then: Option<&Value>| then.is_some_and(|then| asks_the_same(then, now));
        self.settled.contains(key)
            && !lb.is_leaving
            // One that asks for the address of another one is served alone until that has one (SHR-7).
            && if key == service { !lb.asks() } else { lb.was.is_none() && lb.names(service) }
            && shown.asked == lb.committed
            && shown.announced == lb.committed
            && record.bound
            && record.of() == *service
            && !self.by_hand.contains(&record.address)
            && stays(lb)
            && self.lbs.get(service).is_none_or(stays)
            && known.all(is_as_now)
    }
}

/// Whether the condition Ready says that its endpoints follow its spec.
fn is_served(lb: &Value) -> bool {
    ready(lb).is_some_and(|reason| FOLLOWED.contains(&reason))
}

/// Whether a user asks the same of a load balancer.
fn asks_the_same(one: &Value, other: &Value) -> bool {
    one["metadata"]["uid"] == other["metadata"]["uid"]
        && one["metadata"]["annotations"] == other["metadata"]["annotations"]
        && one["spec"] == other["spec"]
}

/// SHR-2, SHR-3: what the API server would refuse.
fn ports_are_unique(event: &Event) -> Result<(), Failure> {
    let Some(service) = &event.after else {
        return Ok(());
    };
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let (mut numbers, mut names) = (BTreeSet::new(), BTreeSet::new());
    for port in ports {
        let name = text(port, "/name").unwrap_or_default();
        must!(
            "SHR-2",
            numbers.insert(number(port)) && names.insert(name),
            "the Service {} has a port twice: {}",
            event.key,
            service["spec"]["ports"]
        );
    }
    Ok(())
}

/// The addresses in an EndpointSlice that are ready. One of a pool or of a Service counts only while nobody else has it.
fn endpoints(slice: &Value) -> BTreeSet<&str> {
    let all = slice["endpoints"].as_array().into_iter().flatten();
    let ready = all.filter(|endpoint| endpoint["conditions"]["ready"] == true);
    ready
        .filter_map(|endpoint| endpoint["addresses"][0].as_str())
        .collect()
}

/// The ports of an EndpointSlice, as text. More than before are one that another one had (SHR-2).
fn ports(slice: &Value) -> BTreeSet<String> {
    let all = slice["ports"].as_array().into_iter().flatten();
    all.map(Value::to_string).collect()
}
