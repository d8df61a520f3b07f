//! The acts of users.

use fastrand::Rng;
use harvester_lb_api::keys;
use harvester_lb_fixtures::{listeners, manual_release};
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::api::{By, Server};
use super::kind::Kind;
use super::leases::{self, LeaseAct};
use super::policy::Denied;
use super::specs::{
    ADDRESSES, Asked, LBS, LbSpec, POOLS, Ranges, Scope, VMIS, draw_pool, interfaces, lb_key,
    machine_address, pool_key, vmi_key, vmi_labels,
};

/// Lists of excluded addresses (EXC-1): none, one or several addresses of the pools, all, and an invalid one.
const EXCLUDED: [&str; 5] = [
    "",
    "10.0.0.11",
    "10.0.0.10-10.0.0.12, fd00::10-fd00::12",
    "0.0.0.0/0",
    "x",
];

/// A load balancer with a port that depends on its number: some of them can share an address, others contest a port (SHR-2).
fn on_port(lb: usize, spec: LbSpec) -> Value {
    let mut object = spec.json();
    if let Some(listener) = object["spec"]["listeners"].get_mut(0) {
        listener["port"] = port_of(lb).into();
    }
    object
}

/// See [`on_port`].
pub(crate) fn port_of(lb: usize) -> u16 {
    80 + u16::try_from(lb % 3).unwrap()
}

/// An act of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    CreateLb(usize, LbSpec),
    DeleteLb(usize),
    RecreateLb(usize, LbSpec),
    /// Restores it from a backup: with its status and another uid.
    RestoreLb(usize),
    NamePool(usize, Option<usize>),
    BreakLb(usize, bool),
    TouchLb(usize),
    GuestWrites(usize),
    CreatePool(usize, Ranges, u8, u8),
    EditPool(usize, Ranges),
    EditScope(usize, u8, u8),
    DeletePool(usize),
    DeleteRecord(usize),
    ReleaseRecord(usize),
    ManualRelease(usize, usize),
    EditService(usize, u8),
    DeleteService(usize),
    DeleteSlice(usize),
    EditSlice(usize),
    ForeignService(usize),
    /// Sets or removes an annotation that asks for an address (REQ-1, SHR-1).
    Ask(usize, Asked),
    /// Another load balancer becomes an owner of the Service, although it does not share its address.
    ShareService(usize, usize),
    Exclude(usize, &'static str),
    CreateVmi(usize, u8, u8),
    DeleteVmi(usize),
    RelabelVmi(usize, u8),
    /// Running, paused, shut down, or being deleted.
    VmiState(usize, u8),
    /// Gives the only Node an address, or deletes it.
    Node(u8),
    /// From now on a policy denies these Services, or none.
    Deny(Option<Denied>),
    /// No user's, but the DHCP process's.
    Lease(usize, LeaseAct),
    /// Nothing, until what there is may be served: most of what follows would come before that.
    Wait,
}

impl Act {
    /// A random act on these numbers of load balancers and pools. `by_hand` allows manual edits of IPAllocations, `later`
    /// features of later versions.
    pub(crate) fn draw(
        rng: &mut Rng,
        lbs: usize,
        pools: usize,
        by_hand: bool,
        later: bool,
    ) -> Self {
        let lb = rng.usize(..lbs);
        let pool = rng.usize(..pools);
        let vmi = rng.usize(..VMIS.len());
        match rng.u8(..100) {
            55..61 if later => Self::Ask(lb, Asked::draw(rng, lbs)),
            82..84 if later && by_hand && rng.bool() => Self::DeleteRecord(rng.usize(..8)),
            81..84 if later => Self::Exclude(pool, EXCLUDED[rng.usize(..EXCLUDED.len())]),
            88..90 if later => Self::ShareService(lb, rng.usize(..lbs)),
            90 if later => Self::DeleteService(lb),
            91 if later => Self::EditService(lb, 3),
            92 if later => Self::DeleteSlice(lb),
            93 if later => Self::EditSlice(lb),
            0..12 => Self::CreateLb(lb, LbSpec::draw(rng, pools, later)),
            12..26 => Self::DeleteLb(lb),
            26..34 => Self::RecreateLb(lb, LbSpec::draw(rng, pools, later)),
            34..37 => Self::RestoreLb(lb),
            37..53 => Self::NamePool(lb, draw_pool(rng, pools)),
            53..57 => Self::BreakLb(lb, rng.bool()),
            57..59 => Self::TouchLb(lb),
            59..61 => Self::GuestWrites(lb),
            61..65 => Self::CreatePool(pool, Ranges::draw(rng, pool), rng.u8(..), rng.u8(..3)),
            65..72 => Self::EditPool(pool, Ranges::draw(rng, pool)),
            72..74 => Self::Node(rng.u8(..4)),
            74..77 => Self::EditScope(pool, rng.u8(..), rng.u8(..3)),
            77..81 => Self::DeletePool(pool),
            97 if rng.bool() => Self::RelabelVmi(vmi, rng.u8(..3)),
            81 | 97 => Self::VmiState(vmi, rng.u8(..4)),
            82..84 if by_hand => Self::DeleteRecord(rng.usize(..8)),
            84..86 if by_hand => Self::ReleaseRecord(rng.usize(..8)),
            86..88 => Self::ManualRelease(pool, rng.usize(..8)),
            88..90 if by_hand => Self::EditService(lb, rng.u8(..4)),
            90..92 if by_hand => Self::DeleteService(lb),
            92 if by_hand => Self::DeleteSlice(lb),
            93 if by_hand => Self::EditSlice(lb),
            94..96 if by_hand => Self::ForeignService(lb),
            96 => Self::DeleteVmi(vmi),
            _ => Self::CreateVmi(vmi, rng.u8(..ADDRESSES), rng.u8(..3)),
        }
    }

    /// Executes the act; no-op if its object does not exist.
    pub(crate) fn apply(&self, server: &mut Server) {
        let user = By::User;
        server.clock += i64::from(server.revision.is_multiple_of(3));
        match self {
            Self::CreateLb(lb, spec) => create(server, Kind::Lb, &lb_key(*lb), on_port(*lb, *spec)),
            Self::DeleteLb(lb) => {
                server.delete(Kind::Lb, &lb_key(*lb), user);
            }
            Self::RecreateLb(lb, spec) => {
                server.delete(Kind::Lb, &lb_key(*lb), user);
                create(server, Kind::Lb, &lb_key(*lb), on_port(*lb, *spec));
            }
            Self::RestoreLb(lb) => {
                if let Some(old) = server.get(Kind::Lb, &lb_key(*lb)).cloned() {
                    server.delete(Kind::Lb, &lb_key(*lb), user);
                    let backup = json!({"spec": old["spec"], "status": old["status"]});
                    create(server, Kind::Lb, &lb_key(*lb), backup);
                }
            }
            Self::NamePool(lb, pool) => {
                server.alter(Kind::Lb, &lb_key(*lb), user, |object| {
                    let spec = object["spec"].as_object_mut().unwrap();
                    match pool {
                        Some(pool) => drop(spec.insert("ipPool".to_owned(), POOLS[*pool].into())),
                        None => drop(spec.remove("ipPool")),
                    }
                });
            }
            Self::BreakLb(lb, broken) => {
                server.alter(Kind::Lb, &lb_key(*lb), user, |object| {
                    if object["spec"]["workloadType"] == "vm" {
                        object["spec"]["listeners"] = if *broken { json!([]) } else { listeners() };
                    }
                });
            }
            Self::TouchLb(lb) => {
                let mark = server.revision;
                server.alter(Kind::Lb, &lb_key(*lb), user, |object| {
                    object["metadata"]["labels"] = json!({"touched": mark.to_string()});
                });
            }
            Self::GuestWrites(lb) => {
                server.alter(Kind::Lb, &lb_key(*lb), user, |object| {
                    let given = object["status"]["allocatedAddress"]["ip"].clone();
                    if object["spec"]["workloadType"] == "cluster" && !given.is_null() {
                        object["status"]["address"] = given;
                    }
                });
            }
            Self::CreatePool(pool, ranges, scope, priority) => {
                let spec =
                    json!({"ranges": ranges.json(), "selector": Scope::of(*scope).json(*priority)});
                create(server, Kind::Pool, &pool_key(*pool), json!({"spec": spec}));
            }
            Self::EditPool(pool, ranges) => {
                server.alter(Kind::Pool, &pool_key(*pool), user, |object| {
                    object["spec"]["ranges"] = ranges.json();
                });
            }
            Self::EditScope(pool, scope, priority) => {
                server.alter(Kind::Pool, &pool_key(*pool), user, |object| {
                    object["spec"]["selector"] = Scope::of(*scope).json(*priority);
                });
            }
            Self::DeletePool(pool) => {
                server.delete(Kind::Pool, &pool_key(*pool), user);
            }
            Self::DeleteRecord(nth) => {
                if let Some(key) = nth_record(server, *nth) {
                    server.delete(Kind::Record, &key, user);
                }
            }
            Self::ReleaseRecord(nth) => {
                if let Some(key) = nth_record(server, *nth) {
                    server.alter(Kind::Record, &key, user, |object| {
                        object["spec"]["phase"] = "Released".into();
                    });
                }
            }
            Self::ManualRelease(pool, nth) => {
                let Some(record) = nth_record(server, *nth) else {
                    return;
                };
                let spec = &server.get(Kind::Record, &record).unwrap()["spec"];
                let owner = &spec["owner"];
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let id = format!("{}/{}", text(&owner["namespace"]), text(&owner["name"]));
                let asked = manual_release(text(&spec["address"]), &id);
                server.alter(Kind::Pool, &pool_key(*pool), user, |object| {
                    json_patch::merge(object, &asked);
                });
            }
            Self::EditService(lb, how) => {
                server.alter(Kind::Service, &lb_key(*lb), user, |object| match how {
                    0 => object["spec"]["loadBalancerIP"] = "10.0.0.99".into(),
                    1 => object["spec"]["selector"] = json!({"app": "z"}),
                    2 => object["spec"]["ports"] = json!([]),
                    _ => object["metadata"]["labels"] = json!({}),
                });
            }
            Self::DeleteService(lb) => {
                server.delete(Kind::Service, &lb_key(*lb), user);
            }
            Self::DeleteSlice(lb) => {
                server.delete(Kind::Slice, &lb_key(*lb), user);
            }
            Self::EditSlice(lb) => {
                server.alter(Kind::Slice, &lb_key(*lb), user, |object| {
                    object["endpoints"] = json!([]);
                    object["metadata"]["labels"][keys::LABEL_SERVICE_NAME] = "other".into();
                });
            }
            Self::ForeignService(lb) => {
                let key = lb_key(*lb);
                let foreign = |s: &Value| s["metadata"]["labels"]["foreign"] == "true";
                if server.get(Kind::Service, &key).is_some_and(|s| foreign(s)) {
                    server.delete(Kind::Service, &key, user);
                } else {
                    let service = json!({
                        "metadata": {"labels": {"foreign": "true"}},
                        "spec": {"type": "ClusterIP", "ports": [{"port": 1}]},
                    });
                    create(server, Kind::Service, &key, service);
                }
            }
            Self::Ask(lb, asked) => {
                server.alter(Kind::Lb, &lb_key(*lb), user, |object| {
                    let annotations = &mut object["metadata"]["annotations"];
                    if annotations.is_null() {
                        *annotations = json!({});
                    }
                    let annotations = annotations.as_object_mut().unwrap();
                    annotations.remove(keys::ANNOTATION_REQUESTED_ADDRESS);
                    annotations.remove(keys::ANNOTATION_PRIMARY);
                    let (key, value) = match asked {
                        Asked::Nothing => return,
                        Asked::Address => (keys::ANNOTATION_REQUESTED_ADDRESS, "10.0.0.11"),
                        Asked::Primary(primary) => (keys::ANNOTATION_PRIMARY, LBS[*primary].1),
                    };
                    annotations.insert(key.to_owned(), value.into());
                });
            }
            Self::ShareService(lb, other) => {
                let (key, other) = (lb_key(*lb), lb_key(*other));
                let Some(uid) = server
                    .get(Kind::Lb, &other)
                    .map(|o| o["metadata"]["uid"].clone())
                else {
                    return;
                };
                let ours = |service: &Value| service["metadata"]["ownerReferences"].is_array();
                if key == other
                    || key.namespace != other.namespace
                    || !server.get(Kind::Service, &key).is_some_and(|s| ours(s))
                {
                    return;
                }
                server.alter(Kind::Service, &key, user, |object| {
                    let owners = object["metadata"]["ownerReferences"]
                        .as_array_mut()
                        .unwrap();
                    owners.retain(|owner| owner["name"] != *other.name);
                    owners.push(json!({
                        "apiVersion": harvester_lb_api::API_VERSION, "kind": "LoadBalancer",
                        "name": &*other.name, "uid": uid,
                    }));
                });
            }
            Self::Exclude(pool, list) => {
                server.alter(Kind::Pool, &pool_key(*pool), user, |object| {
                    let list = *list;
                    object["metadata"]["annotations"][keys::ANNOTATION_EXCLUDE] = list.into();
                });
            }
            Self::CreateVmi(vmi, address, labels) => {
                let object = json!({
                    "metadata": {"labels": vmi_labels(*labels)},
                    "spec": {},
                    "status": {"interfaces": interfaces(*address)},
                });
                let key = vmi_key(*vmi);
                if server.get(Kind::Vmi, &key).is_some() {
                    server.alter(Kind::Vmi, &key, user, |present| {
                        present["status"] = object["status"].clone();
                    });
                } else {
                    create(server, Kind::Vmi, &key, object);
                }
            }
            Self::VmiState(vmi, state) => {
                server.alter(Kind::Vmi, &vmi_key(*vmi), user, |object| {
                    let status = match state {
                        0 => json!({"phase": "Running"}),
                        1 => json!({
                            "phase": "Running", "conditions": [{"type": "Paused", "status": "True"}],
                        }),
                        2 => json!({"phase": "Succeeded"}),
                        _ => json!({"phase": "Failed"}),
                    };
                    let interfaces = object["status"]["interfaces"].clone();
                    object["status"] = status;
                    object["status"]["interfaces"] = interfaces;
                });
            }
            Self::Node(address) => {
                let key = Key::new("", "node-1");
                let status = json!({"addresses": [
                    {"type": "InternalIP", "address": machine_address(*address)},
                ]});
                if *address == 0 {
                    server.delete(Kind::Node, &key, user);
                } else if server.get(Kind::Node, &key).is_some() {
                    server.alter(Kind::Node, &key, user, |node| node["status"] = status);
                } else {
                    create(server, Kind::Node, &key, json!({"status": status}));
                }
            }
            Self::Deny(denied) => server.denied = *denied,
            Self::Lease(lb, act) => act.apply(server, *lb),
            Self::Wait => {}
            Self::DeleteVmi(vmi) => {
                server.delete(Kind::Vmi, &vmi_key(*vmi), user);
            }
            Self::RelabelVmi(vmi, labels) => {
                server.alter(Kind::Vmi, &vmi_key(*vmi), user, |object| {
                    object["metadata"]["labels"] = vmi_labels(*labels);
                });
            }
        }
    }
}

fn create(server: &mut Server, kind: Kind, key: &Key, object: Value) {
    if server.get(kind, key).is_none() {
        server.create(kind, key, object, By::User);
    }
}

fn nth_record(server: &Server, nth: usize) -> Option<Key> {
    let records = server.all(Kind::Record);
    let records = records.keys().filter(|key| !leases::is_lease(key));
    let records: Vec<&Key> = records.collect();
    records.get(nth % records.len().max(1)).copied().cloned()
}
