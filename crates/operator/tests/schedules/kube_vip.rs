//! kube-vip: which address it announces for which Service.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::Value;

use super::api::{By, Event, Kind};

/// What kube-vip knows of a Service.
#[derive(Default)]
struct Vip {
    /// Addresses that the Service asked for, one after another.
    asked: Vec<String>,
    /// The one that is announced.
    announced: Option<usize>,
    /// It has missed the last change for good.
    stuck: bool,
}

/// What kube-vip knows, by the uid of the Service.
#[derive(Default)]
pub(crate) struct KubeVip(BTreeMap<String, Vip>);

impl KubeVip {
    /// Takes in a change. In so many of a thousand cases it misses for good that a Service asks for another address.
    pub(crate) fn note(&mut self, event: &Event, stuck_moves: u32, rng: &mut Rng) {
        let Some(service) = event.after.as_ref().filter(|_| event.kind == Kind::Service) else {
            return;
        };
        let Some(address) = service["spec"]["loadBalancerIP"].as_str() else {
            return;
        };
        let vip = self.0.entry(uid(service).to_owned()).or_default();
        if vip.asked.last().is_none_or(|last| last != address) {
            // A lease is none of the operator's records: it cannot know that it is to be left.
            let leased = vip.asked.last().is_some_and(|last| last == "0.0.0.0");
            let moved = vip.announced.is_some() && event.by == By::Operator && !leased;
            vip.stuck = moved && rng.u32(..1_000) < stuck_moves;
            vip.asked.push(address.to_owned());
        }
    }

    /// What it would write into a Service, if that is news: the address that it asks for, for a while the one before, and
    /// in rare cases never another. In a calm world it is done with all changes.
    pub(crate) fn announcement(
        &self,
        service: &Value,
        revision: u64,
        calm: bool,
    ) -> Option<String> {
        if service["spec"]["type"] != "LoadBalancer"
            || !service["metadata"]["deletionTimestamp"].is_null()
        {
            return None;
        }
        let vip = self.0.get(uid(service))?;
        let latest = vip.asked.len() - 1;
        let at = match vip.announced {
            Some(announced) if vip.stuck => announced,
            // Which one is drawn as well: from the revision that it looks at. What it has never announced it leaves for good.
            Some(announced) if !calm => {
                let revision = usize::try_from(revision).unwrap();
                announced + revision % (latest + 1 - announced)
            }
            _ => latest,
        };
        let address = leased(&vip.asked[at]);
        (service["status"]["loadBalancer"]["ingress"][0]["ip"] != *address).then_some(address)
    }

    /// It announces that address.
    pub(crate) fn announces(&mut self, service: &Value, address: &str) {
        let vip = self.0.get_mut(uid(service)).unwrap();
        vip.announced = vip.asked.iter().rposition(|asked| leased(asked) == address);
    }
}

fn uid(service: &Value) -> &str {
    service["metadata"]["uid"].as_str().unwrap()
}

/// The address that is announced for what a Service asks for: DHCP gives one.
fn leased(asked: &str) -> String {
    if asked == "0.0.0.0" {
        "10.99.0.7".to_owned()
    } else {
        asked.to_owned()
    }
}
