//! The annotations that request, share, lease or exclude addresses, and those of kube-vip: which objects have them, and the values
//! that users and the operator write.

use fastrand::Rng;
use harvester_lb_api::keys;
use serde_json::{Value, json};

use crate::kind::{Kind, Targets};
use crate::values::pick;

/// Annotations of kube-vip on a load balancer that are copied to its Service.
const COPIED: [&str; 5] = [
    keys::ANNOTATION_KUBE_VIP_INTERFACE,
    "kube-vip.io/loadbalancerHostname",
    "kube-vip.io/forcePerServiceElection",
    "kube-vip.io/flush-conntrack",
    "kube-vip.io/dhcp-broadcast",
];

/// One of kube-vip's that is for pods, and ignored on a load balancer.
const IGNORED: &str = "kube-vip.io/egress";

/// The annotations of this module that objects of a kind have. Those that the operator parses come first.
pub const fn annotations(kind: Kind) -> &'static [&'static str] {
    match kind {
        Kind::LoadBalancer => {
            const ALL: [&str; 9] = {
                let [interface, hostname, election, conntrack, broadcast] = COPIED;
                [
                    keys::ANNOTATION_REQUESTED_ADDRESS,
                    keys::ANNOTATION_PRIMARY,
                    keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
                    interface,
                    hostname,
                    election,
                    conntrack,
                    broadcast,
                    IGNORED,
                ]
            };
            &ALL
        }
        Kind::IpPool => &[keys::ANNOTATION_EXCLUDE],
        Kind::IpAllocation => &[keys::ANNOTATION_PRIMARY],
        Kind::Service => &[
            keys::ANNOTATION_COPIED,
            keys::ANNOTATION_KUBE_VIP_REQUESTED_IP,
            keys::ANNOTATION_KUBE_VIP_HARDWARE,
            keys::ANNOTATION_KUBE_VIP_ADDRESSES,
            keys::ANNOTATION_KUBE_VIP_HOST,
            keys::ANNOTATION_KUBE_VIP_INTERFACE,
        ],
        Kind::Vmi | Kind::Vm | Kind::EndpointSlice => &[],
    }
}

/// Adds to a valid load balancer what its source of addresses allows: an address, the address of another one, or the hardware address
/// of its lease; and annotations for kube-vip.
pub(crate) fn load_balancer(rng: &mut Rng, targets: &Targets, name: &str, object: &mut Value) {
    let is_leased = object["spec"]["ipam"] == "dhcp";
    match rng.u8(..5) {
        0..=2 if is_leased => {
            let hardware = json!(format!("02:00:5e:10:00:{:02x}", rng.u8(..)));
            set(object, keys::ANNOTATION_DHCP_HARDWARE_ADDRESS, hardware);
        }
        0 if !is_leased => {
            let address = json!(address(rng, targets));
            set(object, keys::ANNOTATION_REQUESTED_ADDRESS, address);
        }
        1 | 2 if !is_leased => secondary(rng, targets, name, object),
        _ => {}
    }
    for key in COPIED {
        if rng.u8(..6) == 0 {
            let value = match key {
                keys::ANNOTATION_KUBE_VIP_INTERFACE if rng.bool() => "mgmt-br",
                keys::ANNOTATION_KUBE_VIP_INTERFACE => "eth1",
                "kube-vip.io/loadbalancerHostname" => "web.example.org",
                _ => "true",
            };
            set(object, key, json!(value));
        }
    }
    if rng.u8(..16) == 0 {
        set(object, IGNORED, json!("true"));
    }
}

/// Makes a load balancer ask for the address of another one, and perhaps say that it has it.
fn secondary(rng: &mut Rng, targets: &Targets, name: &str, object: &mut Value) {
    let primary = pick(rng, &targets.names);
    if primary == name {
        return;
    }
    set(object, keys::ANNOTATION_PRIMARY, json!(primary));
    // Else its pool had to be that of the address.
    object["spec"]["ipPool"] = json!("");
    if let Some(status) = object.get_mut("status") {
        let address = status["allocatedAddress"]["ip"].as_str();
        let message = format!(
            "{} is the address of load balancer {primary}",
            address.unwrap_or_default()
        );
        if let Some(all) = status["conditions"].as_array_mut() {
            all.push(json!({"type": "AddressShared", "status": "True", "reason": "Secondary", "message": message}));
        }
    }
}

/// An address of a pool, taken or not, or of none.
fn address(rng: &mut Rng, targets: &Targets) -> String {
    match rng.u8(..6) {
        0 => "192.0.2.7".to_owned(),
        1 => format!("fd66::1{:02x}", rng.u8(..)),
        2 | 3 => format!("10.66.0.{}", rng.u8(2..20)),
        _ => pick(rng, &targets.addresses),
    }
}

/// Adds a list of exclusions to a valid pool.
pub(crate) fn pool(rng: &mut Rng, targets: &Targets, object: &mut Value) {
    if rng.u8(..3) == 0 {
        let entries: Vec<String> = (0..rng.usize(1..6)).map(|_| entry(rng, targets)).collect();
        let list = entries.join([",", ", ", " ,"][rng.usize(..3)]);
        set(object, keys::ANNOTATION_EXCLUDE, json!(list));
    }
}

/// An entry of a list of exclusions: an address, a range or a subnet, in the ranges of a pool or not.
fn entry(rng: &mut Rng, targets: &Targets) -> String {
    let first = rng.u8(..200);
    let last = first + rng.u8(..50);
    match rng.u8(..8) {
        0 | 1 => format!("10.66.0.{first}"),
        2 => format!("10.66.0.{first}-10.66.0.{last}"),
        3 => format!("10.66.0.{first}/{}", rng.u8(24..33)),
        4 => format!("fd66::1{first:02x}"),
        5 => format!("fd66::1{first:02x} - fd66::1{last:02x}"),
        6 => format!("fd66::1{first:02x}/{}", rng.u8(120..129)),
        _ => pick(rng, &targets.subnets),
    }
}

/// Makes a Bound record that of another load balancer's address.
pub(crate) fn allocation(rng: &mut Rng, targets: &Targets, object: &mut Value) {
    if object["spec"]["phase"] == "Bound" && rng.u8(..3) == 0 {
        let group = pick(rng, &targets.names);
        set(object, keys::ANNOTATION_PRIMARY, json!(group));
    }
}

/// Adds to a Service what kube-vip writes, and what the operator writes for it.
pub(crate) fn service(rng: &mut Rng, targets: &Targets, uid: &str, object: &mut Value) {
    if rng.u8(..4) == 0 {
        let address = pick(rng, &targets.addresses);
        set(object, keys::ANNOTATION_KUBE_VIP_ADDRESSES, json!(address));
        set(object, keys::ANNOTATION_KUBE_VIP_HOST, json!("node1"));
    }
    if rng.u8(..4) == 0 {
        object["spec"]["loadBalancerIP"] = json!(keys::DHCP_ADDRESS);
        let address = json!(format!("10.66.0.{}", rng.u8(2..20)));
        set(object, keys::ANNOTATION_KUBE_VIP_REQUESTED_IP, address);
        let hardware = json!("00:00:6c:12:34:56");
        set(object, keys::ANNOTATION_KUBE_VIP_HARDWARE, hardware);
    }
    if rng.u8(..3) == 0 {
        let interface = keys::ANNOTATION_KUBE_VIP_INTERFACE;
        set(object, interface, json!("eth1"));
        let mut note = json!({"from": uid, "keys": [interface]});
        if rng.bool() {
            note["heir"] = json!({"uid": "u-heir", "values": {interface: "eth1"}});
        }
        set(object, keys::ANNOTATION_COPIED, json!(note.to_string()));
    }
}

/// Sets an annotation.
fn set(object: &mut Value, key: &str, value: Value) {
    object["metadata"]["annotations"][key] = value;
}
