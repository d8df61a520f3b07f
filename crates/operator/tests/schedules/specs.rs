//! Random names, specs, labels and addresses of objects, drawn from a seed.

use fastrand::Rng;
use harvester_lb_api::keys;
use harvester_lb_fixtures::{cluster_spec, for_everybody, part, vm_spec, with};
use harvester_lb_object::Key;
use serde_json::{Value, json};

use super::api::{CLUSTER_IP, FINALIZER};

/// Names of load balancers; one is in another namespace than the rest.
pub(crate) const LBS: [(&str, &str); 5] =
    [("n", "a"), ("n", "b"), ("n", "c"), ("m", "d"), ("n", "e")];
/// Names of pools; the last one is never created.
pub(crate) const POOLS: [&str; 4] = ["p", "q", "r", "none"];
/// Names of virtual machines; one is in the other namespace.
pub(crate) const VMIS: [(&str, &str); 4] =
    [("n", "vm-1"), ("n", "vm-2"), ("n", "vm-3"), ("m", "vm-1")];

pub(crate) fn lb_key(lb: usize) -> Key {
    Key::new(LBS[lb].0, LBS[lb].1)
}

pub(crate) fn pool_key(pool: usize) -> Key {
    Key::new("", POOLS[pool])
}

pub(crate) fn vmi_key(vmi: usize) -> Key {
    Key::new(VMIS[vmi].0, VMIS[vmi].1)
}

/// A load balancer as a user creates it.
#[allow(
    clippy::struct_excessive_bools,
    reason = "five things that have nothing to do with each other"
)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LbSpec {
    pub(crate) vm: bool,
    pub(crate) dhcp: bool,
    pub(crate) pool: Option<usize>,
    pub(crate) project: bool,
    pub(crate) held_up: bool,
    pub(crate) asks: bool,
}

/// Addresses of a pool: last octets of 10.0.0.0/24 or of fd00::/64, and a gateway among or before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ranges {
    pub(crate) first: u8,
    pub(crate) last: u8,
    pub(crate) gateway: u8,
    pub(crate) broken: bool,
    /// Prefixes of the ranges, in written order.
    pub(crate) of: &'static [&'static str],
}

pub(crate) const V4: &str = "10.0.0.";
pub(crate) const V6: &str = "fd00::";

/// The selector of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Everybody,
    Namespace,
    AnyProject,
    Nobody,
}

/// The requirement in a load balancer's annotations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Nothing,
    Address,
    /// The address of another.
    Primary(usize),
}

impl Ranges {
    pub(crate) fn draw(rng: &mut Rng, pool: usize) -> Self {
        // Pools rarely overlap (IPA-4).
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

    pub(crate) fn json(self) -> Value {
        let ranges = self.of.iter().map(|prefix| {
            let start = if self.broken {
                "x".to_owned()
            } else {
                format!("{prefix}{}", self.first)
            };
            let subnet = if *prefix == V4 {
                "10.0.0.0/24"
            } else {
                "fd00::/64"
            };
            let range = part(subnet, &start, &format!("{prefix}{}", self.last));
            with(
                range,
                json!({"gateway": format!("{prefix}{}", self.gateway)}),
            )
        });
        ranges.collect()
    }
}

impl Scope {
    pub(crate) fn of(number: u8) -> Self {
        match number % 8 {
            0..4 => Self::Everybody,
            4..6 => Self::Namespace,
            6 => Self::AnyProject,
            _ => Self::Nobody,
        }
    }

    pub(crate) fn json(self, priority: u8) -> Value {
        let scope = match self {
            Self::Everybody => for_everybody()["scope"].clone(),
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
    pub(crate) fn draw(rng: &mut Rng, pools: usize, later: bool) -> Self {
        Self {
            vm: rng.u8(..3) > 0,
            dhcp: rng.u8(..12) == 0,
            pool: draw_pool(rng, pools),
            project: rng.u8(..4) == 0,
            held_up: rng.u8(..8) == 0,
            asks: later && rng.u8(..6) == 0,
        }
    }

    /// The same, with an address by DHCP.
    pub(crate) const fn leased(mut self) -> Self {
        self.vm = true;
        self.dhcp = true;
        self.asks = false;
        self
    }

    pub(crate) fn json(self) -> Value {
        let mut spec = if self.vm {
            with(vm_spec("x"), json!({"workloadType": "vm"}))
        } else {
            cluster_spec()
        };
        spec["ipam"] = if self.dhcp { "dhcp" } else { "pool" }.into();
        if let Some(pool) = self.pool {
            spec["ipPool"] = POOLS[pool].into();
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

pub(crate) fn draw_pool(rng: &mut Rng, pools: usize) -> Option<usize> {
    match rng.u8(..10) {
        0..4 => None,
        4 if rng.bool() => Some(POOLS.len() - 1),
        _ => Some(rng.usize(..pools)),
    }
}

impl Asked {
    pub(crate) fn draw(rng: &mut Rng, lbs: usize) -> Self {
        match rng.u8(..5) {
            0..2 => Self::Nothing,
            2 => Self::Address,
            _ => Self::Primary(rng.usize(..lbs)),
        }
    }
}

pub(crate) fn vmi_labels(number: u8) -> Value {
    json!({"app": if number == 0 { "y" } else { "x" }})
}

/// How many kinds of addresses a virtual machine can report.
pub(crate) const ADDRESSES: u8 = 6;

/// The reported address of a virtual machine: none, its own, a Service's, or one of a pool.
pub(crate) fn interfaces(address: u8) -> Value {
    let ip = match address {
        0 => return json!([]),
        4 => CLUSTER_IP.to_owned(),
        5 => "10.0.0.12".to_owned(),
        _ => machine_address(address),
    };
    json!([{"name": "default", "ipAddress": ip}])
}

/// What the addresses of machines begin with.
pub(crate) const MACHINES: &str = "10.52.1.";

pub(crate) fn machine_address(number: u8) -> String {
    format!("{MACHINES}{number}")
}
