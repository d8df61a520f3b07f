//! A simulated kube-vip: the announced addresses of Services.

use std::collections::BTreeMap;

use fastrand::Rng;
use serde_json::Value;

use super::api::{By, Event};
use super::kind::Kind;

/// kube-vip's state of a Service.
#[derive(Default)]
struct Vip {
    /// Addresses that the Service has requested, in order.
    asked: Vec<String>,
    /// The announced one.
    announced: Option<usize>,
    /// It has missed the last change permanently.
    stuck: bool,
}

/// kube-vip's state by the uid of the Service.
#[derive(Default)]
pub(crate) struct KubeVip(BTreeMap<String, Vip>);

impl KubeVip {
    /// Handles a change of a Service. With this probability per thousand it misses an address change permanently: kube-vip 0.9
    /// and 1.1 rarely do, 1.2.3 ignores each.
    pub(crate) fn note(&mut self, event: &Event, stuck_moves: u32, rng: &mut Rng) {
        let Some(service) = event.after.as_ref().filter(|_| event.kind == Kind::Service) else {
            return;
        };
        let Some(address) = service["spec"]["loadBalancerIP"].as_str() else {
            return;
        };
        let vip = self.0.entry(uid(service).to_owned()).or_default();
        if vip.asked.last().is_none_or(|last| last != address) {
            // A DHCP lease has no IPAllocation, so the operator cannot detect a stuck move from one.
            let leased = vip.asked.last().is_some_and(|last| last == "0.0.0.0");
            let moved = vip.announced.is_some() && event.by == By::Operator && !leased;
            vip.stuck = moved && rng.u32(..1_000) < stuck_moves;
            vip.asked.push(address.to_owned());
        }
    }

    /// The ingress address that it would write into a Service, if that changes: the requested one, for a while the previous
    /// one, rarely the previous one permanently. In calm mode all changes are processed.
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
            // The address is random too, drawn from the Service's revision. An address never announced is skipped for good.
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

/// The announced address for a requested one: for DHCP a lease.
fn leased(asked: &str) -> String {
    if asked == "0.0.0.0" {
        "10.99.0.7".to_owned()
    } else {
        asked.to_owned()
    }
}
