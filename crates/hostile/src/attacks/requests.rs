//! Attacks on the annotations of [`requests`](crate::requests): texts that are almost an address, a name, a list or a note, values of
//! other objects, and requests that exclude each other.

use fastrand::Rng;
use harvester_lb_api::keys;
use serde_json::{Value, json};

use super::parts::{address, id, put};
use crate::kind::{Kind, Targets};
use crate::requests::annotations;
use crate::values::{self, pick};

/// Texts that are almost an address, and addresses that nobody can have.
const ADDRESSES: [&str; 18] = [
    "10.66.0.010",
    "010.066.000.009",
    "１０.66.0.9",
    "10.66.0.٩",
    "10.66.0.9\u{0}",
    "10.66.0.9\n",
    "\u{a0}10.66.0.9",
    "10.66.0.9/32",
    "10.66.0.9:80",
    "[fd66::109]",
    "fd66::109%eth0",
    "::ffff:10.200.0.9",
    "0.0.0.0",
    "::",
    "255.255.255.255",
    "224.0.0.1",
    "10.66.0.1",
    "10.66.0.9,10.66.0.10",
];

/// Texts that are almost a hardware address, or one that no host has.
const HARDWARE: [&str; 10] = [
    "00:00:00:00:00:00",
    "ff:ff:ff:ff:ff:ff",
    "01:00:5e:00:00:01",
    "02:00:5e:10:00",
    "02:00:5e:10:00:01:02",
    "02:00:5e-10:00:01",
    "+2:00:5e:10:00:01",
    "2:0:5e:10:0:1",
    "０2:00:5e:10:00:01",
    " 02-00-5E-10-00-01 ",
];

/// Lists of exclusions that are wrong, odd, or exclude everything.
const LISTS: [&str; 16] = [
    ",,, ,",
    "10.66.0.9-10.66.0.1",
    "fd66::1ff-fd66::100",
    "10.66.0.1-fd66::100",
    "10.66.0.1-10.66.0.2-10.66.0.3",
    "10.66.0.5-",
    "-10.66.0.5",
    "10.66.0.05",
    "10.66.0.0/024",
    "10.66.0.0/33",
    "fd66::/129",
    "10.66.0.5;10.66.0.6",
    "10.66.0.5\n10.66.0.6",
    "0.0.0.0/0,::/0",
    "0.0.0.0-255.255.255.255,::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
    "::ffff:10.66.0.0/120",
];

/// Names of interfaces: of Linux or of none.
const INTERFACES: [&str; 8] = [
    "lo",
    "mgmt-br",
    "..",
    "../../etc",
    "eth0:1",
    "eth 0",
    "a-name-of-sixteen",
    "mgmt-br,lo",
];

/// Notes about copied annotations: no JSON, other types, keys that were not copied.
const NOTES: [&str; 8] = [
    "{",
    "[]",
    r#"{"from":1,"keys":{}}"#,
    r#"{"from":"","keys":[]}"#,
    r#"{"from":"u","keys":["kube-vip.io/vipHost","kube-vip.io/loadbalancerIPs"]}"#,
    r#"{"from":"u","keys":["kube-vip.io/serviceInterface"],"heir":{"uid":"u","values":{}}}"#,
    r#"{"from":"u","from":"v","keys":["kube-vip.io/serviceInterface"]}"#,
    r#"{"from":"u","keys":[],"heir":{"uid":"u","values":{"kube-vip.io/serviceInterface":"lo"}},"more":1}"#,
];

/// Entries of a long list: around the limit, and as many as an object can have.
const ENTRIES: [usize; 5] = [1_023, 1_024, 1_025, 5_000, 20_000];

/// Changes one of these annotations. Kinds that have none are left as they are.
pub(super) fn requests(
    rng: &mut Rng,
    kind: Kind,
    targets: &Targets,
    object: &mut Value,
) -> Option<String> {
    let all = annotations(kind);
    if all.is_empty() {
        return None;
    }
    let key = all[rng.usize(..all.len()).min(rng.usize(..all.len()))];
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let value = match rng.u8(..16) {
        0 => String::new(),
        1..=3 => values::text(rng),
        4 => values::text(rng).repeat(rng.usize(1..500)),
        _ => match key {
            keys::ANNOTATION_REQUESTED_ADDRESS
            | keys::ANNOTATION_KUBE_VIP_ADDRESSES
            | keys::ANNOTATION_KUBE_VIP_REQUESTED_IP => one_of(rng, &ADDRESSES, address, targets),
            keys::ANNOTATION_PRIMARY => primary(rng, targets, name),
            keys::ANNOTATION_DHCP_HARDWARE_ADDRESS | keys::ANNOTATION_KUBE_VIP_HARDWARE => {
                HARDWARE[rng.usize(..HARDWARE.len())].to_owned()
            }
            keys::ANNOTATION_EXCLUDE => one_of(rng, &LISTS, |rng, _| long_list(rng), targets),
            keys::ANNOTATION_COPIED => one_of(rng, &NOTES, |rng, _| nested(rng), targets),
            _ => INTERFACES[rng.usize(..INTERFACES.len())].to_owned(),
        },
    };
    if key == keys::ANNOTATION_DHCP_HARDWARE_ADDRESS {
        put(object, "/spec/ipam", json!("dhcp"));
    }
    if key == keys::ANNOTATION_PRIMARY && kind == Kind::LoadBalancer && rng.u8(..4) == 0 {
        contradict(rng, targets, object);
    }
    Some(put(
        object,
        &format!("/metadata/annotations/{}", key.replace('/', "~1")),
        json!(value),
    ))
}

/// One of these texts, or another value.
fn one_of(
    rng: &mut Rng,
    texts: &[&str],
    other: fn(&mut Rng, &Targets) -> String,
    targets: &Targets,
) -> String {
    if rng.u8(..3) == 0 {
        other(rng, targets)
    } else {
        texts[rng.usize(..texts.len())].to_owned()
    }
}

/// The name of another load balancer, of the object itself, or of one of another namespace. Several that name each other are a cycle.
fn primary(rng: &mut Rng, targets: &Targets, name: &str) -> String {
    match rng.u8(..6) {
        0 => name.to_owned(),
        1 => id(rng, targets),
        2 => format!(" {name}"),
        3 => "n".repeat(rng.usize(1..2_000)),
        _ => pick(rng, &targets.names),
    }
}

/// Adds to a request for another's address what excludes it.
fn contradict(rng: &mut Rng, targets: &Targets, object: &mut Value) {
    match rng.u8(..4) {
        0 => {
            let requested = keys::ANNOTATION_REQUESTED_ADDRESS.replace('/', "~1");
            let place = format!("/metadata/annotations/{requested}");
            put(object, &place, json!(address(rng, targets)))
        }
        1 => put(object, "/spec/ipam", json!("dhcp")),
        2 => put(object, "/spec/workloadType", json!("cluster")),
        _ => put(object, "/spec/ipPool", json!(pick(rng, &targets.pools))),
    };
}

/// A list with very many entries, all of them valid, and perhaps the same.
fn long_list(rng: &mut Rng) -> String {
    let count = ENTRIES[rng.usize(..ENTRIES.len())];
    let is_distinct = rng.bool();
    let entry = |n: usize| match n {
        n if is_distinct => format!("10.66.{}.{}", n / 256 % 256, n % 256),
        _ => "10.66.0.9".to_owned(),
    };
    let entries: Vec<String> = (0..count).map(entry).collect();
    entries.join(",")
}

/// Text of JSON that is deeper than a decoder goes.
fn nested(rng: &mut Rng) -> String {
    let levels = values::levels(rng);
    let open = ["[", "{\"from\":"][rng.usize(..2)];
    open.repeat(levels)
}
