//! Changes of Services: which address one may ask for, when it may go, and whose address it shows (DHC-1, IPA-6, IPA-7, REL-3, REL-4,
//! SVC-1).

use harvester_lb_object::Key;
use serde_json::Value;

use super::Oracle;
use super::objects::{Record, Shown, is_ours, text};
use crate::api::{By, Event};
use crate::failure::{Failure, must};

impl Oracle {
    pub(super) fn service(&mut self, event: &Event) -> Result<(), Failure> {
        let key = &event.key;
        let lbs = &self.lbs;
        let is_ours = |object: &Value| {
            is_ours(object, key, |lb| {
                lbs.get(lb).is_some_and(|lb| lb.names(key))
            })
        };
        if let Some(before) = &event.before {
            must!(
                "SVC-1",
                !matches!(event.by, By::Operator | By::Late) || is_ours(before),
                "the operator writes to a Service {key} that is somebody else's"
            );
        }
        let is_deleted = |o: &Value| !o["metadata"]["deletionTimestamp"].is_null();
        if event.by == By::Operator
            && event.before.as_ref().is_some_and(|o| !is_deleted(o))
            && event.after.as_ref().is_none_or(|o| is_deleted(o))
        {
            self.taken_down(key)?;
        }
        let Some(object) = event.after.as_ref().filter(|o| is_ours(o)) else {
            self.services.remove(key);
            return Ok(());
        };
        let mut now = Shown {
            uid: text(object, "/metadata/uid").unwrap(),
            asked: text(object, "/spec/loadBalancerIP"),
            announced: text(object, "/status/loadBalancer/ingress/0/ip"),
            ..Shown::default()
        };
        let before = self.services.get(key).filter(|b| b.uid == now.uid);
        let news = before.is_none_or(|b| b.asked != now.asked);
        if let Some(before) = before {
            now.excused.clone_from(&before.excused);
            now.late.clone_from(&before.late);
            now.changed_at = before.changed_at;
            now.strayed_at = before.strayed_at;
        }
        if event.by != By::Operator {
            now.changed_at = self.events;
        }
        match event.by {
            By::User | By::Late => now.excused.extend(now.asked.clone()),
            By::Operator => {
                if let Some(asked) = now.asked.as_ref().filter(|_| news) {
                    now.excused.remove(asked);
                    now.late.remove(asked);
                }
            }
            By::Cluster => {
                let is_followed = |it: &Shown| it.announced.is_some() && it.announced == it.asked;
                if before.is_some_and(is_followed) && !is_followed(&now) {
                    now.strayed_at = Some(self.events);
                }
                let is_new = before.is_none_or(|b| b.announced != now.announced);
                let is_its = |it: &String| {
                    let record = self.records.get(it).filter(|record| record.bound);
                    record.is_some_and(|record| record.of() == *key)
                };
                let late = now.announced.clone().filter(|_| is_new);
                let late = late.filter(|it| now.asked.as_ref() != Some(it) && !is_its(it));
                now.late
                    .extend(late.filter(|_| now.asked.as_deref() != Some("0.0.0.0")));
            }
        }
        if event.by == By::Operator
            && news
            && let Some(asked) = now.asked.as_ref().filter(|a| *a != "0.0.0.0")
            && let Some(lb) = self.lbs.get(key)
        {
            let of_this = object["metadata"]["ownerReferences"]
                .as_array()
                .is_some_and(|all| all.iter().any(|o| o["uid"] == *lb.uid));
            let is_leased = |address: &String| {
                let lease = (lb.uid.clone(), Some(address.clone()));
                lb.dhcp && self.leased.contains(&lease)
            };
            // It is served for those that share it, whether the status of one that goes has named it or not.
            let others_have = |address: &String| {
                let mut others = self.lbs.values();
                others.any(|it| it.names(key) && it.committed.as_ref() == Some(address))
            };
            must!(
                "DHC-1",
                !of_this
                    || !lb.dhcp
                    || is_leased(asked)
                    || lb.excused.as_ref() == Some(asked)
                    || lb.committed.as_ref() == Some(asked),
                "the Service of {key} is given {asked}, which was never leased to it"
            );
            must!(
                "IPA-6",
                !of_this
                    || is_leased(asked)
                    || (lb.is_leaving && others_have(asked))
                    || [&lb.committed, &lb.excused].contains(&&Some(asked.clone())),
                "the Service of {key} is given {asked} before its status: {:?}",
                lb.committed
            );
        }
        self.services.insert(key.clone(), now);
        self.nobody_shows_what_is_anothers()
    }

    /// REL-4, IPA-7: a Service is not deleted while it announces the address that its load balancer has and is to have, nor if it never
    /// asked for the one that it is to have.
    fn taken_down(&self, key: &Key) -> Result<(), Failure> {
        let (Some(service), Some(lb)) = (self.services.get(key), self.lbs.get(key)) else {
            return Ok(());
        };
        // SHR-7: the Service of one that joins another goes.
        if lb.workload.as_deref() != Some("vm") || !lb.answered || lb.asks() {
            return Ok(());
        }
        let holds = |address: &String| {
            let record = self.records.get(address);
            record.filter(|r| r.bound && r.owner == *key && r.uid == lb.uid)
        };
        if lb.dhcp {
            return self.lease_taken_down(key, service, lb);
        }
        let Some(address) = &lb.committed else {
            return Ok(());
        };
        let is_of_pool = |record: &&Record| lb.pool.as_ref().is_none_or(|p| *p == record.pool);
        let is_kept = holds(address).as_ref().is_some_and(is_of_pool);
        let shows = [&service.asked, &service.announced].map(Option::as_ref) == [Some(address); 2];
        must!(
            "REL-4",
            !is_kept || !shows || self.by_hand.contains(address),
            "the Service of {key} is deleted although it announces {address}, which it has"
        );
        let asked = service.asked.as_ref().filter(|it| *it != address);
        let is_moving = asked.is_some_and(|it| holds(it).is_some() && !self.by_hand.contains(it));
        must!(
            "REL-4",
            !is_kept || !is_moving,
            "the Service of {key} is deleted although it was not asked for {address} yet"
        );
        Ok(())
    }

    /// IPA-3, REL-3: an address that a Service shows is not allocated to another load balancer.
    pub(super) fn nobody_shows_what_is_anothers(&self) -> Result<(), Failure> {
        for (key, service) in &self.services {
            for address in [&service.asked, &service.announced].into_iter().flatten() {
                let record = self.records.get(address).filter(|r| r.bound);
                must!(
                    "REL-3",
                    record.is_none_or(|r| r.of() == *key)
                        || service.excused.contains(address)
                        || service.late.contains(address)
                        || self.by_hand.contains(address),
                    "the Service of {key} shows {address}, which is Bound to {}",
                    record.map(|r| r.owner.to_string()).unwrap_or_default()
                );
            }
        }
        Ok(())
    }
}
