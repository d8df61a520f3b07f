//! What is kept of the objects: load balancers, records of addresses of pools, and Services of ours.

use std::collections::BTreeSet;

use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::Value;
use tokio::time::Instant;

/// The addresses of a load balancer.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lb {
    pub(super) uid: String,
    pub(super) pool: Option<String>,
    /// The address that it requests (REQ-4).
    pub(super) requested: Option<String>,
    pub(super) dhcp: bool,
    /// `status.allocatedAddress.ip`
    pub(super) committed: Option<String>,
    /// That, if the status says that it shares it with others.
    pub(super) told: Option<String>,
    /// What that was before a request that landed late has changed it: it may have landed after whoever leads has made sure of
    /// the status, and before its write of the Service.
    pub(super) excused: Option<String>,
    /// The load balancer whose address it asks for (SHR-1).
    pub(super) primary: Option<String>,
    /// That of its former version: a write of the operator may come from a copy of it.
    pub(super) was: Option<String>,
    pub(super) workload: Option<String>,
    pub(super) ports: BTreeSet<u64>,
    /// Who is older has the first right to a port (SHR-2).
    pub(super) created: Option<String>,
    /// It is being deleted, and a finalizer holds it.
    pub(super) is_leaving: bool,
    /// The operator has written its status since its spec was last changed.
    pub(super) answered: bool,
    /// When the operator of this term has written its status.
    pub(super) written_at: Option<Instant>,
}

/// A record.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Record {
    pub(super) address: String,
    pub(super) owner: Key,
    pub(super) uid: String,
    pub(super) pool: String,
    pub(super) bound: bool,
    /// The group whose address it is, if that is not its owner's (SHR-5).
    pub(super) group: Option<String>,
}

/// A Service of ours.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Shown {
    pub(super) uid: String,
    pub(super) asked: Option<String>,
    pub(super) announced: Option<String>,
    /// Addresses written into it by a user or a late request: not the operator's fault until it has had time to correct
    /// them.
    pub(super) excused: BTreeSet<String>,
    /// Addresses that kube-vip announced late, when the Service no longer asked for them and they were released: the operator recreates
    /// the Service (REL-4).
    pub(super) late: BTreeSet<String>,
    /// Number of the last event by which somebody else has changed it.
    pub(super) changed_at: u64,
    /// Number of the event by which kube-vip, which announced what the Service asks for, has announced something else: one that the
    /// Service had asked for in between (docs/known-issues.md).
    pub(super) strayed_at: Option<u64>,
}

pub(super) fn text(value: &Value, pointer: &str) -> Option<String> {
    let text = value.pointer(pointer)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

impl Lb {
    pub(super) fn read(object: &Value) -> Self {
        Self {
            uid: text(object, "/metadata/uid").unwrap(),
            pool: text(object, "/spec/ipPool"),
            requested: object["metadata"]["annotations"][keys::ANNOTATION_REQUESTED_ADDRESS]
                .as_str()
                .map(str::to_owned),
            dhcp: object["spec"]["ipam"] == "dhcp",
            committed: text(object, "/status/allocatedAddress/ip").filter(|a| a != "0.0.0.0"),
            told: text(object, "/status/allocatedAddress/ip").filter(|_| shares_told(object)),
            excused: None,
            primary: object["metadata"]["annotations"][keys::ANNOTATION_PRIMARY]
                .as_str()
                .map(str::to_owned),
            was: None,
            is_leaving: !object["metadata"]["deletionTimestamp"].is_null(),
            workload: text(object, "/spec/workloadType"),
            ports: object["spec"]["listeners"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|listener| listener["port"].as_u64())
                .collect(),
            created: text(object, "/metadata/creationTimestamp"),
            answered: false,
            written_at: None,
        }
    }
}

impl Record {
    pub(super) fn read(object: &Value) -> Self {
        let owner = &object["spec"]["owner"];
        Self {
            address: text(object, "/spec/address").unwrap(),
            owner: Key::new(
                owner["namespace"].as_str().unwrap(),
                owner["name"].as_str().unwrap(),
            ),
            uid: owner["uid"].as_str().unwrap().to_owned(),
            pool: text(object, "/spec/pool").unwrap(),
            bound: object["spec"]["phase"] == "Bound",
            group: object["metadata"]["annotations"][keys::ANNOTATION_PRIMARY]
                .as_str()
                .map(str::to_owned),
        }
    }

    /// The load balancer whose address it is or was at first, and whose Service shows it.
    pub(super) fn of(&self) -> Key {
        match &self.group {
            Some(group) => Key::new(&self.owner.namespace, &**group),
            None => self.owner.clone(),
        }
    }
}

impl Lb {
    /// Whether it asks for the address of another one, or did so just now.
    pub(super) fn asks(&self) -> bool {
        self.primary.is_some() || self.was.is_some()
    }

    pub(super) fn names(&self, group: &Key) -> bool {
        let mut names = [&self.primary, &self.was].into_iter().flatten();
        names.any(|name| **name == *group.name)
    }
}

/// Whether a Service is the operator's: by its label, or as one of the load balancer of its name, or of one that `shares` its address.
pub(super) fn is_ours(object: &Value, key: &Key, shares: impl Fn(&Key) -> bool) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    let mut owners = owners.into_iter().flatten();
    let owned = owners.any(|owner| {
        let name = owner["name"].as_str().unwrap_or_default();
        let is_known = || name == &*key.name || shares(&Key::new(&key.namespace, name));
        owner["kind"] == "LoadBalancer" && is_known()
    });
    owned || object["metadata"]["labels"][keys::LABEL_SERVICELB] == "true"
}

/// Whether the status says that the load balancer shares an address.
pub(super) fn shares_told(lb: &Value) -> bool {
    let shared = condition(lb, "AddressShared");
    shared.is_some_and(|it| it["status"] == "True")
}

/// A condition in the status of a load balancer.
pub(super) fn condition<'a>(lb: &'a Value, type_: &str) -> Option<&'a Value> {
    let mut all = lb["status"]["conditions"].as_array()?.iter();
    all.find(|condition| condition["type"] == type_)
}
