//! A simulated DHCP process: the records of leases (DHC-1). What it does at which time is drawn like the acts of users; that it gives
//! a lease back is a chore, which follows from the objects (DHC-4).

use fastrand::Rng;
use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::api::{By, Server};
use super::kind::Kind;
use super::specs::lb_key;

/// Expiry of a lease that is valid, and of one that is over.
const VALID: &str = "2100-01-01T00:00:00.000000Z";
pub(crate) const OVER: &str = "2000-01-01T00:00:00.000000Z";

/// What the DHCP process does about a load balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LeaseAct {
    /// It asks for a lease.
    Ask,
    /// A server has leased this address, for ever or until it is renewed.
    Bind(u8, bool),
    /// Nobody has renewed the lease.
    Expire,
    /// A server has ended the lease.
    Lose,
    /// The lease is to be given back.
    GiveBack,
    /// It was given back, for kube-vip.
    HandOver,
    /// The record is of another version, or edited.
    Garble,
}

impl LeaseAct {
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        match rng.u8(..16) {
            0..3 => Self::Ask,
            3..9 => Self::Bind(rng.u8(1..4), rng.bool()),
            9 | 10 => Self::Expire,
            11 | 12 => Self::Lose,
            13 => Self::GiveBack,
            14 => Self::HandOver,
            _ => Self::Garble,
        }
    }

    /// No-op if the load balancer uses no lease. What a process does in this mode is of no interest: during a change of the mode that
    /// of the operator may be another one.
    pub(crate) fn apply(self, server: &mut Server, lb: usize) {
        let name = lb_key(lb);
        let Some(object) = server.get(Kind::Lb, &name) else {
            return;
        };
        if object["spec"]["ipam"] != "dhcp" || object["spec"]["workloadType"] != "vm" {
            return;
        }
        let uid = object["metadata"]["uid"].as_str().unwrap().to_owned();
        let key = Key::new("", format!("{}{uid}", keys::LEASE_RECORD_PREFIX));
        let Some(before) = server.get(Kind::Record, &key).cloned() else {
            let spec = json!({
                "address": "", "pool": "", "phase": "Pending",
                "owner": {"namespace": &*name.namespace, "name": &*name.name, "uid": uid},
                "lease": {
                    "interface": "mgmt-br", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff",
                },
            });
            server.create(Kind::Record, &key, json!({ "spec": spec }), By::Cluster);
            return;
        };
        let has_lease = ["Bound", "Releasing"]
            .iter()
            .any(|it| before["spec"]["phase"] == *it);
        let change = match self {
            Self::Bind(number, is_endless) => {
                // While there is a lease, a server renews that.
                let address = before["spec"]["address"].as_str().filter(|_| has_lease);
                let address = address.map_or_else(|| leased_address(lb, number), str::to_owned);
                if is_leased_by_another(server, &key, &address) {
                    return;
                }
                json!({"phase": "Bound", "address": address, "lease": lease(is_endless, VALID)})
            }
            Self::Expire if before["spec"]["phase"] == "Bound" => {
                json!({"lease": lease(false, OVER)})
            }
            Self::Lose if has_lease => json!({
                "phase": "Pending", "address": "",
                "lease": {"server": null, "renewAt": null, "rebindAt": null, "expiresAt": null},
            }),
            Self::GiveBack if has_lease => json!({"phase": "Releasing"}),
            // Only once nothing shows it.
            Self::HandOver
                if before["spec"]["phase"] == "Releasing" && !is_shown(server, &before) =>
            {
                json!({"phase": "Released"})
            }
            Self::Garble => json!({"lease": {"hardwareAddress": "x"}}),
            Self::Ask | Self::Expire | Self::Lose | Self::GiveBack | Self::HandOver => return,
        };
        // One that is garbled is corrected by anything that is done next.
        let correct = json!({"lease": {"hardwareAddress": "02:00:00:00:00:01"}});
        server.alter(Kind::Record, &key, By::Cluster, |object| {
            json_patch::merge(&mut object["spec"], &correct);
            json_patch::merge(&mut object["spec"], &change);
        });
    }
}

fn lease(is_endless: bool, expires_at: &str) -> Value {
    let time = if is_endless {
        Value::Null
    } else {
        expires_at.into()
    };
    json!({"server": "10.77.0.1", "renewAt": time, "rebindAt": time, "expiresAt": time})
}

/// Makes the lease of a record endless.
pub(crate) fn make_endless(record: &mut Value) {
    json_patch::merge(&mut record["spec"], &json!({"lease": lease(true, VALID)}));
}

/// An address that no pool has.
fn leased_address(lb: usize, number: u8) -> String {
    format!("10.77.{}.{number}", lb + 1)
}

/// Whether a server has leased an address to another client: it leases none twice.
fn is_leased_by_another(server: &Server, but: &Key, address: &str) -> bool {
    let mut leases = server.all(Kind::Record).iter();
    leases.any(|(key, record)| {
        let spec = &record["spec"];
        let is_over = spec["lease"]["expiresAt"] == OVER;
        let has_lease = !is_over && (spec["phase"] == "Bound" || spec["phase"] == "Releasing");
        is_lease(key) && key != but && has_lease && spec["address"] == address
    })
}

/// Whether an IPAllocation is the record of a lease.
pub(crate) fn is_lease(key: &Key) -> bool {
    key.name.starts_with(keys::LEASE_RECORD_PREFIX)
}

/// DHC-4: leases of load balancers that are gone, whose address no Service has.
pub(crate) fn left(server: &Server) -> Vec<Key> {
    let records = server.all(Kind::Record).iter();
    let leases = records.filter(|(key, _)| is_lease(key));
    let left = leases.filter(|(_, record)| {
        let owner = &record["spec"]["owner"];
        let lb = server.get(Kind::Lb, &owner_of(record));
        lb.is_none_or(|lb| lb["metadata"]["uid"] != owner["uid"]) && !is_shown(server, record)
    });
    left.map(|(key, _)| key.clone()).collect()
}

pub(crate) fn owner_of(record: &Value) -> Key {
    let owner = &record["spec"]["owner"];
    let text = |field: &str| owner[field].as_str().unwrap_or_default().to_owned();
    Key::new(text("namespace"), text("name"))
}

fn is_shown(server: &Server, record: &Value) -> bool {
    let service = server.get(Kind::Service, &owner_of(record));
    let address = &record["spec"]["address"];
    service.is_some_and(|service| {
        service["spec"]["loadBalancerIP"] == *address
            || service["status"]["loadBalancer"]["ingress"][0]["ip"] == *address
    })
}
