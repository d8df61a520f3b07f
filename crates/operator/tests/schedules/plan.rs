//! What happens to the operator in one schedule: the acts of users in their order, and how rough the world around is. Drawn
//! from a seed, and nothing else.

use fastrand::Rng;
use harvester_lb_api::keys;
use harvester_lb_fixtures::listeners;
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::api::{By, CLUSTER_IP, FINALIZER, Kind, Server};

/// Names of load balancers; one lives in another namespace than the rest.
pub(crate) const LBS: [(&str, &str); 5] =
    [("n", "a"), ("n", "b"), ("n", "c"), ("m", "d"), ("n", "e")];
/// Names of pools; the last one is never made.
pub(crate) const POOLS: [&str; 4] = ["p", "q", "r", "none"];
/// Names of virtual machines; one is in the other namespace.
const VMIS: [(&str, &str); 4] = [("n", "vm-1"), ("n", "vm-2"), ("n", "vm-3"), ("m", "vm-1")];

pub(crate) fn lb_key(lb: usize) -> Key {
    Key::new(LBS[lb].0, LBS[lb].1)
}

fn pool_key(pool: usize) -> Key {
    Key::new("", POOLS[pool])
}

fn vmi_key(vmi: usize) -> Key {
    Key::new(VMIS[vmi].0, VMIS[vmi].1)
}

/// A load balancer as a user makes it.
#[allow(
    clippy::struct_excessive_bools,
    reason = "five things that have nothing to do with each other"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LbSpec {
    vm: bool,
    dhcp: bool,
    pool: Option<usize>,
    project: bool,
    held_up: bool,
    asks: bool,
}

/// Addresses of a pool: last octets of 10.0.0.0/24 or of fd00::/64, and a gateway among or before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranges {
    first: u8,
    last: u8,
    gateway: u8,
    broken: bool,
    /// Prefixes of the ranges, in written order.
    of: &'static [&'static str],
}

const V4: &str = "10.0.0.";
const V6: &str = "fd00::";

/// Whom a pool is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    Everybody,
    Namespace,
    AnyProject,
    Nobody,
}

/// What a load balancer asks for by annotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    Address,
    /// The address of another.
    Primary(usize),
}

/// An act of a user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    CreateLb(usize, LbSpec),
    DeleteLb(usize),
    RecreateLb(usize, LbSpec),
    /// From a backup: the same with another uid, its status included.
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
    AskForRelease(usize, usize),
    EditService(usize, u8),
    DeleteService(usize),
    DeleteSlice(usize),
    EditSlice(usize),
    ForeignService(usize),
    /// Something that only a later version can do is asked for, or no more (IPA-9).
    Ask(usize, Asked),
    /// Another load balancer becomes an owner of the Service, as one that shares its address.
    ShareService(usize, usize),
    Exclude(usize, bool),
    CreateVmi(usize, u8, u8),
    DeleteVmi(usize),
    RelabelVmi(usize, u8),
    /// Running, paused, shut down, or on its way out for good.
    VmiState(usize, u8),
    /// The one Node is given an address, or goes.
    Node(u8),
}

/// How rough the world is: weights of what happens next, and chances in a thousand.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) watch: [u32; 8],
    pub(crate) take: u32,
    pub(crate) progress: u32,
    pub(crate) user: u32,
    pub(crate) cluster: u32,
    pub(crate) time: u32,
    pub(crate) relist: u32,
    pub(crate) crash: u32,
    pub(crate) lose: u32,
    pub(crate) standby: u32,
    pub(crate) fence: u32,
    pub(crate) recheck: u32,
    pub(crate) late: u32,
    pub(crate) lost_answers: u32,
    pub(crate) refusals: u32,
    pub(crate) stuck_moves: u32,
    pub(crate) service_finalizers: bool,
    pub(crate) workers: usize,
}

/// A schedule's beginning: all but the order of things.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) acts: Vec<Act>,
    pub(crate) style: Style,
}

impl Plan {
    pub(crate) fn draw(seed: u64) -> Self {
        let mut rng = Rng::with_seed(seed);
        let style = Style::draw(&mut rng);
        let lbs = rng.usize(2..=5);
        let pools = rng.usize(1..=2) + usize::from(rng.u8(..8) == 0);
        // In some worlds things are asked for that only a later version can do; nobody meddles by hand there.
        let later = rng.u8(..5) == 0;
        let by_hand = rng.bool() && !later;
        let style = Style {
            // Where an address is taken from its owner by hand, nobody knows that kube-vip is to leave it.
            stuck_moves: if by_hand { 0 } else { style.stuck_moves },
            ..style
        };
        let mut acts: Vec<Act> = Vec::new();
        for pool in 0..pools {
            acts.push(Act::CreatePool(
                pool,
                Ranges::draw(&mut rng, pool),
                rng.u8(..),
                rng.u8(..3),
            ));
        }
        for vmi in 0..rng.usize(0..=2) {
            acts.push(Act::CreateVmi(vmi, rng.u8(..ADDRESSES), rng.u8(..3)));
        }
        for lb in 0..lbs {
            acts.push(Act::CreateLb(lb, LbSpec::draw(&mut rng, pools, later)));
        }
        rng.shuffle(&mut acts);
        for _ in 0..rng.usize(4..=12) {
            acts.push(draw_act(&mut rng, lbs, pools, by_hand, later));
        }
        Self { acts, style }
    }
}

/// Worlds in which something was wrong once, each reduced to the acts that it takes.
pub(crate) fn found() -> Vec<(&'static str, Plan)> {
    let lb = |vm: bool, pool: Option<usize>| LbSpec {
        vm,
        dhcp: false,
        pool,
        project: false,
        held_up: false,
        asks: false,
    };
    let ranges = |first: u8, last: u8| Ranges {
        first,
        last,
        gateway: 1,
        broken: false,
        of: &[V4],
    };
    let pool = |first, last| Act::CreatePool(0, ranges(first, last), 0, 0);
    let smooth = Style {
        watch: [10; 8],
        take: 30,
        progress: 30,
        user: 8,
        cluster: 15,
        time: 1,
        relist: 0,
        crash: 0,
        lose: 0,
        standby: 0,
        fence: 0,
        recheck: 0,
        late: 20,
        lost_answers: 0,
        refusals: 0,
        stuck_moves: 0,
        service_finalizers: false,
        workers: 3,
    };
    let plan = |style: Style, acts: &[Act]| Plan {
        acts: acts.to_vec(),
        style,
    };
    vec![
        (
            "a record that another's retry has found wakes its owner",
            plan(
                Style {
                    lost_answers: 300,
                    watch: [10, 10, 2, 10, 10, 10, 10, 10],
                    ..smooth
                },
                &[
                    pool(10, 12),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::CreateLb(1, lb(false, Some(0))),
                ],
            ),
        ),
        (
            "a record deleted by hand as its owner goes keeps nothing",
            plan(
                smooth,
                &[
                    pool(10, 10),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::DeleteRecord(0),
                    Act::CreateLb(1, lb(false, Some(0))),
                ],
            ),
        ),
        (
            "an edit of a pool reaches those whose address is on its way",
            plan(
                smooth,
                &[
                    pool(10, 12),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::EditPool(0, ranges(12, 12)),
                ],
            ),
        ),
        (
            "a leader behind watches that lag takes nothing away",
            plan(
                Style {
                    standby: 15,
                    crash: 15,
                    watch: [10, 40, 2, 10, 10, 10, 10, 10],
                    ..smooth
                },
                &[
                    pool(10, 13),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::CreateLb(1, lb(true, Some(0))),
                    Act::RecreateLb(1, lb(true, Some(0))),
                    Act::CreateLb(2, lb(true, Some(0))),
                    Act::NamePool(0, None),
                ],
            ),
        ),
        (
            "a pool's counts follow the records of others after an overlap has ended",
            plan(
                smooth,
                &[
                    pool(10, 11),
                    Act::CreatePool(1, ranges(10, 12), 0, 0),
                    Act::CreateLb(0, lb(false, Some(1))),
                    Act::EditPool(1, ranges(12, 13)),
                    Act::DeleteLb(0),
                ],
            ),
        ),
        (
            "one that is broken before it was served keeps nothing",
            plan(
                smooth,
                &[
                    pool(10, 10),
                    Act::CreateLb(0, lb(true, Some(0))),
                    Act::RecreateLb(0, lb(true, Some(0))),
                    Act::BreakLb(0, true),
                    Act::CreateLb(1, lb(false, Some(0))),
                ],
            ),
        ),
        (
            "what is written during a list and deleted before it is made leaves nothing behind",
            plan(
                Style {
                    relist: 60,
                    ..smooth
                },
                &[
                    pool(10, 11),
                    Act::CreateLb(0, lb(false, Some(0))),
                    Act::DeleteLb(0),
                    Act::DeleteRecord(0),
                    Act::CreateLb(1, lb(false, Some(0))),
                    Act::DeleteLb(1),
                    Act::DeleteRecord(0),
                ],
            ),
        ),
    ]
}

impl Style {
    fn draw(rng: &mut Rng) -> Self {
        // Half of the worlds know no fault at all: what goes wrong there is the plainest.
        let faults = rng.bool();
        let mut rare = |most: u32| {
            if faults && rng.bool() {
                rng.u32(1..=most)
            } else {
                0
            }
        };
        let (lost_answers, refusals) = (rare(200), rare(150));
        let (crash, standby, fence, late) = (rare(12), rare(12), rare(8), rare(40));
        let relist = rare(15);
        let lose = rare(12);
        let mut watch = [0; 8];
        for weight in &mut watch {
            // Some watches lag a good deal behind the others.
            *weight = [2, 10, 40][rng.usize(..3)];
        }
        Self {
            watch,
            take: rng.u32(5..60),
            progress: rng.u32(10..90),
            user: rng.u32(2..20),
            cluster: rng.u32(2..25),
            time: rng.u32(0..6),
            relist,
            crash,
            lose,
            standby,
            fence,
            recheck: u32::from(rng.u8(..4) == 0),
            late: late.max(5),
            lost_answers,
            refusals,
            stuck_moves: [0, 0, 0, 400][rng.usize(..4)],
            service_finalizers: rng.u8(..3) == 0,
            workers: rng.usize(1..=5),
        }
    }
}

impl Ranges {
    fn draw(rng: &mut Rng, pool: usize) -> Self {
        // Pools lie apart, now and then not (IPA-4).
        let base = if rng.u8(..10) == 0 {
            10
        } else {
            10 * u8::try_from(pool + 1).unwrap()
        };
        let first = base + rng.u8(..3);
        let last = first + rng.u8(..4);
        let gateway = if rng.u8(..6) == 0 { first } else { 1 };
        let kind = rng.u8(..20);
        Self {
            first,
            last,
            gateway,
            broken: kind == 0,
            // BE-7: most have one family, as most pools do.
            of: match kind {
                1 => &[V6],
                2..4 => &[V4, V6],
                4 => &[V6, V4],
                _ => &[V4],
            },
        }
    }

    fn json(self) -> Value {
        let ranges = self.of.iter().map(|prefix| {
            let start = if self.broken {
                "x".to_owned()
            } else {
                format!("{prefix}{}", self.first)
            };
            json!({
                "subnet": if *prefix == V4 { "10.0.0.0/24" } else { "fd00::/64" },
                "rangeStart": start,
                "rangeEnd": format!("{prefix}{}", self.last),
                "gateway": format!("{prefix}{}", self.gateway),
            })
        });
        ranges.collect()
    }
}

impl Scope {
    fn of(number: u8) -> Self {
        match number % 8 {
            0..4 => Self::Everybody,
            4..6 => Self::Namespace,
            6 => Self::AnyProject,
            _ => Self::Nobody,
        }
    }

    fn json(self, priority: u8) -> Value {
        let scope = match self {
            Self::Everybody => json!([{"project": "*", "namespace": "*", "guestCluster": "*"}]),
            Self::Namespace => json!([{"namespace": "n"}]),
            Self::AnyProject => {
                json!([{"project": "*", "namespace": "n"}, {"project": "*", "namespace": "m"}])
            }
            Self::Nobody => json!([]),
        };
        json!({"priority": priority, "scope": scope})
    }
}

impl LbSpec {
    fn draw(rng: &mut Rng, pools: usize, later: bool) -> Self {
        Self {
            vm: rng.u8(..3) > 0,
            dhcp: rng.u8(..12) == 0,
            pool: draw_pool(rng, pools),
            project: rng.u8(..4) == 0,
            held_up: rng.u8(..8) == 0,
            asks: later && rng.u8(..6) == 0,
        }
    }

    fn json(self) -> Value {
        let mut spec = json!({
            "workloadType": if self.vm { "vm" } else { "cluster" },
            "ipam": if self.dhcp { "dhcp" } else { "pool" },
        });
        if let Some(pool) = self.pool {
            spec["ipPool"] = POOLS[pool].into();
        }
        if self.vm {
            spec["listeners"] = listeners();
            spec["backendServerSelector"] = json!({"app": ["x"]});
        }
        let mut metadata = json!({});
        if self.project {
            metadata["annotations"][keys::ANNOTATION_PROJECT] = "c/one".into();
        }
        if self.asks {
            metadata["annotations"][keys::ANNOTATION_REQUESTED_ADDRESS] = "10.0.0.11".into();
        }
        if self.held_up {
            metadata["finalizers"] = json!([FINALIZER]);
        }
        json!({"metadata": metadata, "spec": spec})
    }
}

fn draw_pool(rng: &mut Rng, pools: usize) -> Option<usize> {
    match rng.u8(..10) {
        0..4 => None,
        4 if rng.bool() => Some(POOLS.len() - 1),
        _ => Some(rng.usize(..pools)),
    }
}

impl Asked {
    fn draw(rng: &mut Rng, lbs: usize) -> Self {
        match rng.u8(..5) {
            0..2 => Self::Nothing,
            2 => Self::Address,
            _ => Self::Primary(rng.usize(..lbs)),
        }
    }
}

fn draw_act(rng: &mut Rng, lbs: usize, pools: usize, by_hand: bool, later: bool) -> Act {
    let lb = rng.usize(..lbs);
    let pool = rng.usize(..pools);
    let vmi = rng.usize(..VMIS.len());
    match rng.u8(..100) {
        53..61 if later => Act::Ask(lb, Asked::draw(rng, lbs)),
        81..84 if later => Act::Exclude(pool, rng.bool()),
        88..90 if later => Act::ShareService(lb, rng.usize(..lbs)),
        0..12 => Act::CreateLb(lb, LbSpec::draw(rng, pools, later)),
        12..26 => Act::DeleteLb(lb),
        26..34 => Act::RecreateLb(lb, LbSpec::draw(rng, pools, later)),
        34..37 => Act::RestoreLb(lb),
        37..53 => Act::NamePool(lb, draw_pool(rng, pools)),
        53..57 => Act::BreakLb(lb, rng.bool()),
        57..59 => Act::TouchLb(lb),
        59..61 => Act::GuestWrites(lb),
        61..65 => Act::CreatePool(pool, Ranges::draw(rng, pool), rng.u8(..), rng.u8(..3)),
        65..72 => Act::EditPool(pool, Ranges::draw(rng, pool)),
        72..74 => Act::Node(rng.u8(..4)),
        74..77 => Act::EditScope(pool, rng.u8(..), rng.u8(..3)),
        77..81 => Act::DeletePool(pool),
        97 if rng.bool() => Act::RelabelVmi(vmi, rng.u8(..3)),
        81 | 97 => Act::VmiState(vmi, rng.u8(..4)),
        82..84 if by_hand => Act::DeleteRecord(rng.usize(..8)),
        84..86 if by_hand => Act::ReleaseRecord(rng.usize(..8)),
        86..88 => Act::AskForRelease(pool, rng.usize(..8)),
        88..90 if by_hand => Act::EditService(lb, rng.u8(..4)),
        90..92 if by_hand => Act::DeleteService(lb),
        92 if by_hand => Act::DeleteSlice(lb),
        93 if by_hand => Act::EditSlice(lb),
        94..96 if by_hand => Act::ForeignService(lb),
        96 => Act::DeleteVmi(vmi),
        _ => Act::CreateVmi(vmi, rng.u8(..ADDRESSES), rng.u8(..3)),
    }
}

fn vmi_labels(number: u8) -> Value {
    json!({"app": if number == 0 { "y" } else { "x" }})
}

impl Act {
    /// Does it; without effect where there is nothing to do it to.
    pub(crate) fn apply(&self, server: &mut Server) {
        let user = By::User;
        server.clock += i64::from(server.revision.is_multiple_of(3));
        match self {
            Self::CreateLb(lb, spec) => create(server, Kind::Lb, &lb_key(*lb), spec.json()),
            Self::DeleteLb(lb) => {
                server.delete(Kind::Lb, &lb_key(*lb), user);
            }
            Self::RecreateLb(lb, spec) => {
                server.delete(Kind::Lb, &lb_key(*lb), user);
                create(server, Kind::Lb, &lb_key(*lb), spec.json());
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
            Self::AskForRelease(pool, nth) => {
                let Some(record) = nth_record(server, *nth) else {
                    return;
                };
                let spec = &server.get(Kind::Record, &record).unwrap()["spec"];
                let owner = &spec["owner"];
                let text = |value: &Value| value.as_str().unwrap().to_owned();
                let asked = format!(
                    "{}: {}/{}",
                    text(&spec["address"]),
                    text(&owner["namespace"]),
                    text(&owner["name"])
                );
                server.alter(Kind::Pool, &pool_key(*pool), user, |object| {
                    object["metadata"]["annotations"][keys::ANNOTATION_MANUALLY_RELEASE_IP] =
                        asked.into();
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
            Self::Exclude(pool, exclude) => {
                server.alter(Kind::Pool, &pool_key(*pool), user, |object| {
                    let list = if *exclude { "10.0.0.11" } else { "" };
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

/// How many kinds of addresses a virtual machine can report.
const ADDRESSES: u8 = 6;

/// What a virtual machine reports: nothing, an address of its own, what a Service has, or what a pool gives out.
fn interfaces(address: u8) -> Value {
    let ip = match address {
        0 => return json!([]),
        4 => CLUSTER_IP.to_owned(),
        5 => "10.0.0.12".to_owned(),
        _ => machine_address(address),
    };
    json!([{"name": "default", "ipAddress": ip}])
}

fn machine_address(number: u8) -> String {
    format!("10.52.1.{number}")
}

fn create(server: &mut Server, kind: Kind, key: &Key, object: Value) {
    if server.get(kind, key).is_none() {
        server.create(kind, key, object, By::User);
    }
}

fn nth_record(server: &Server, nth: usize) -> Option<Key> {
    let records = server.all(Kind::Record);
    records.keys().nth(nth % records.len().max(1)).cloned()
}
