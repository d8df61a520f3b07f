//! Changes of records: when an address may be given up, and to whom it may go (ALC-1, ALC-8, IPA-3, REL-4, SHR-5).

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_object::Key;

use super::Oracle;
use super::objects::{Lb, Record};
use crate::api::{By, Event};
use crate::call::Seen;
use crate::failure::{Failure, must};
use crate::kind::Kind;
use crate::leases;

impl Oracle {
    pub(super) fn record(&mut self, event: &Event) -> Result<(), Failure> {
        if leases::is_lease(&event.key) {
            self.lease(event);
            return Ok(());
        }
        let after = event.after.as_deref().map(Record::read);
        let before = event.before.as_deref().map(Record::read);
        let Some(address) = after
            .as_ref()
            .or(before.as_ref())
            .map(|r| r.address.clone())
        else {
            return Ok(());
        };
        match &after {
            Some(record) => self.records.insert(address.clone(), record.clone()),
            None => self.records.remove(&address),
        };
        if event.by == By::Late && self.by_hand.contains(&address) {
            self.made_late.insert(address.clone());
        } else {
            self.made_late.remove(&address);
        }
        if event.by == By::User {
            if after.is_some_and(|record| !record.bound) {
                self.released_by_hand.insert(address.clone());
            }
            self.by_hand.insert(address);
            return Ok(());
        }
        let was_bound = before.as_ref().is_some_and(|record| record.bound);
        if let Some(record) = after.as_ref().filter(|it| it.bound && !was_bound) {
            self.given(event, record)?;
        }
        if let Some(before) = before.filter(|r| r.bound)
            && !self.by_hand.contains(&address)
        {
            self.given_up(event, &before, after.as_ref())?;
        }
        self.nobody_shows_what_is_anothers()
    }

    /// Whether a load balancer names the group of a record, and may not share its address (SHR-1, SHR-2).
    fn drops_out(&self, of: &Key, lb: &Lb, record: &Record) -> bool {
        self.drops_out_among(&self.lbs, of, lb, record)
    }

    /// The same with these load balancers.
    fn drops_out_among(&self, lbs: &BTreeMap<Key, Lb>, of: &Key, lb: &Lb, record: &Record) -> bool {
        if lb.requested.is_some() || lb.pool.as_ref().is_some_and(|pool| *pool != record.pool) {
            return true;
        }
        let group = record.of();
        let may_take_its_port = |(key, other): &(&Key, &Lb)| {
            // Of those for which the Service does not carry it the older one gets it, also one that has yet to join.
            let is_older = (&other.created, &key.name) < (&lb.created, &of.name)
                && other.workload == lb.workload
                && !other.dhcp
                && other.requested.is_none();
            key.namespace == of.namespace
                && *key != of
                && (other.names(&group) || **key == group)
                && (other.committed.as_ref() == Some(&record.address) || is_older)
        };
        let carried = self.wiring.carried(&group, lbs);
        // Of one whose spec is refused those that the Service carries for it.
        let ports_of = |(key, other): (&Key, &Lb)| -> BTreeSet<u64> {
            if !other.ports.is_empty() {
                return other.ports.clone();
            }
            let its = carried.iter().filter(|(_, by)| by.contains(key));
            its.map(|((_, port), _)| *port).collect()
        };
        let others = lbs.iter().filter(may_take_its_port);
        let mut contested: BTreeSet<u64> = others.flat_map(ports_of).collect();
        contested.retain(|port| lb.ports.contains(port));
        let is_carried = |number: u64| {
            let port = ("TCP".to_owned(), number);
            carried.get(&port).is_some_and(|by| by.contains(of))
        };
        contested.into_iter().any(|number| !is_carried(number))
    }

    /// A load balancer that has been told that it shares an address, and may.
    fn sharer(&self, record: &Record) -> Option<&Key> {
        let group = record.of();
        let primary = self.lbs.get(&group);
        // The address of a group changes with that of its primary.
        let moves = primary.is_some_and(|it| it.committed.as_ref() != Some(&record.address));
        let shares = |(key, lb): &(&Key, &Lb)| {
            **key != group
                && key.namespace == group.namespace
                && lb.committed.as_ref() == Some(&record.address)
                && self.settled.contains(*key)
                && !lb.is_leaving
                && !self.drops_out(key, lb, record)
                && lb.names(&group)
                && lb.was.is_none()
        };
        let mut sharers = self.lbs.iter().filter(shares);
        sharers.next().map(|(key, _)| key).filter(|_| !moves)
    }

    /// IPA-3: a Bound record was altered or deleted.
    fn given_up(
        &self,
        event: &Event,
        before: &Record,
        after: Option<&Record>,
    ) -> Result<(), Failure> {
        let Record {
            address,
            owner,
            uid,
            ..
        } = before;
        let lb = self.lbs.get(owner);
        let Some(after) = after else {
            return Err(Failure::new(
                "IPA-3",
                format!("the Bound record of {address} is deleted"),
            ));
        };
        if after.bound && after.owner != *owner {
            must!(
                "ALC-8",
                after.of() == before.of(),
                "{address} goes from {owner} to {} at once",
                after.owner
            );
            let group = before.of();
            // In between it may have left and come back.
            let stayed = |seen: Seen| {
                let mut known = self.history.known(Kind::Lb, owner, &seen.at_begin);
                known.all(|lb| lb.is_some_and(|lb| Lb::read(lb).names(&group)))
            };
            let shares = |lb: &&Lb| {
                *owner == group
                    || (lb.names(&group) && lb.was.is_none() && event.seen.is_none_or(stayed))
            };
            let robbed = lb.filter(|lb| lb.uid == *uid && !lb.dhcp).filter(shares);
            let robbed = robbed.filter(|lb| !self.drops_out(owner, lb, before));
            // While the request is on its way, the one that has its port may go.
            let had_its_port = |lb: &&Lb, seen: Seen| {
                let mut known = self.history.known(Kind::Lb, &after.owner, &seen.at_begin);
                known.any(|next| {
                    let next = next.map(Lb::read).filter(|next| next.uid == after.uid);
                    next.is_some_and(|next| {
                        let mut lbs = self.lbs.clone();
                        lbs.insert(after.owner.clone(), next);
                        self.drops_out_among(&lbs, owner, lb, before)
                    })
                })
            };
            let robbed = robbed.filter(|lb| !event.seen.is_some_and(|seen| had_its_port(lb, seen)));
            must!(
                "SHR-5",
                robbed.is_none(),
                "{address} of {group} is taken from {owner}, which lives and shares it"
            );
            let next = self.lbs.get(&after.owner);
            // While the request is on its way, it may leave: what it has got is released then.
            let shared = |seen: Seen| {
                let mut known = self.history.known(Kind::Lb, &after.owner, &seen.at_sending);
                known.any(|lb| lb.is_some_and(|lb| Lb::read(lb).names(&after.of())))
            };
            must!(
                "SHR-5",
                next.is_none_or(|lb| lb.uid != after.uid
                    || after.of() == after.owner
                    || lb.names(&after.of())
                    || event.seen.is_some_and(shared)),
                "{address} of {} is handed over to {}, which does not share it",
                after.of(),
                after.owner
            );
            return Ok(());
        }
        if after.bound {
            must!(
                "ALC-1",
                after.uid == *uid || lb.is_none_or(|lb| lb.uid != *uid),
                "{address} is taken from the living {owner}"
            );
            return Ok(());
        }
        let sharer = self.sharer(before);
        must!(
            "SHR-5",
            sharer.is_none(),
            "{address} is released although {sharer:?} shares it"
        );
        let names = |(key, lb): &(&Key, &Lb)| {
            *key != owner && key.namespace == owner.namespace && lb.told.as_ref() == Some(address)
        };
        let still = self.lbs.iter().find(names).map(|(key, _)| key);
        must!(
            "IPA-6",
            still.is_none() || self.by_hand.contains(address),
            "{address} is released although the status of {still:?}, which shared it, still names it"
        );
        if let Some(lb) = lb.filter(|lb| lb.uid == *uid) {
            must!(
                "IPA-3",
                lb.committed.as_ref() != Some(address),
                "{address} is released although the living {owner} names it"
            );
        }
        if let Some(service) = self.services.get(&before.of()) {
            let asks = service.asked.as_ref() == Some(address);
            let announces = service.announced.as_ref() == Some(address);
            // The operator has read the Service just before somebody changed it.
            let is_strayed = service.strayed_at.is_some_and(|at| at + 8 >= self.events);
            let is_just_changed = service.changed_at + 1 >= self.events || is_strayed;
            must!(
                "IPA-3",
                !asks && (!announces || is_just_changed) || service.excused.contains(address),
                "{address} is released although the Service of {owner} shows it: {service:?}"
            );
            let is_living = lb.is_some_and(|lb| lb.uid == *uid);
            let announced = service.announced.as_ref();
            let announced = announced.filter(|it| self.records.contains_key(*it));
            let is_by_dhcp = service.asked.as_deref() == Some("0.0.0.0");
            let is_behind = announced.is_some() && service.announced != service.asked;
            must!(
                "REL-4",
                !is_living || !is_behind || is_by_dhcp || is_just_changed,
                "{address} is released although kube-vip has yet to follow the Service of {owner}: {service:?}"
            );
        }
        Ok(())
    }
}
