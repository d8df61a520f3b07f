//! The table of section 2.4: a LoadBalancer from one version to the other.
//!
//! Fields that the other version lacks are dropped, also if the object has them against its own schema: what an object says
//! about pool, selector and workload type in v1alpha1 is not its own.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use harvester_lb_api::keys;
use harvester_lb_ipam::{OwnerId, addr};
use serde::Deserialize;
use serde_json::json;

use super::facts::Facts;
use super::fields::{Fields, List, each, quoted, text};
use super::version::Version;

/// The numbers of a health check that have the same name in both versions.
const NUMBERS: [&str; 4] = [
    "port",
    "successThreshold",
    "failureThreshold",
    "timeoutSeconds",
];
/// The name of the period in v1alpha1.
const PERIOD_V1ALPHA1: &str = "PeriodSeconds";
/// The name of the period in v1beta1.
const PERIOD_V1BETA1: &str = "periodSeconds";

/// Namespace and name of an object; "" where the metadata has none.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Name {
    pub(super) namespace: String,
    pub(super) name: String,
}

impl Name {
    /// Reads the metadata of an object.
    pub(super) fn of(object: &Fields<'_>) -> Self {
        let metadata = object.get("metadata");
        metadata
            .and_then(|json| serde_json::from_str(json).ok())
            .unwrap_or_default()
    }
}

/// Converts an object of v1alpha1 to v1beta1. A guest cluster that rewrites its whole spec gets selector and pool again
/// (GEN-1); what it does not name is dropped, and the operator finds the address by the IPAllocation.
pub(super) fn to_v1beta1(object: &mut Fields<'_>, facts: &dyn Facts) {
    let Name { namespace, name } = Name::of(object);
    let mut spec_part = Part::open(object, "spec");
    let mut status_part = Part::open(object, "status");
    let (spec, status) = (&mut spec_part.fields, &mut status_part.fields);

    spec.remove(&["ipPool", "workloadType", "backendServerSelector"]);
    status.remove(&["allocatedAddress", "backendServers"]);
    listeners(spec, |listener| {
        if listener.get("backendPort").is_none()
            && let Some(port) = listener.get("port").map(str::to_owned)
        {
            listener.set("backendPort", port);
        }
    });
    if let Some(servers) = spec.take("backendServers") {
        if let Some(selector) = selector(&servers, &namespace, facts) {
            spec.set("backendServerSelector", selector);
        }
        status.set("backendServers", servers);
    }
    health_check(spec, Version::V1Beta1);
    if spec.get("ipam").and_then(text).as_deref() == Some("dhcp") {
        let allocated = json!({ "ip": keys::DHCP_ADDRESS });
        status.set("allocatedAddress", allocated.to_string());
    } else if let Some(address) = status
        .get("address")
        .and_then(text)
        .and_then(|a| addr::parse(&a))
        && let Some(pool) = facts.pool(&OwnerId::new(&namespace, &name), address)
    {
        let allocated = json!({ "ipPool": &*pool, "ip": address.to_string() });
        spec.set("ipPool", quoted(&pool));
        status.set("allocatedAddress", allocated.to_string());
    }

    spec_part.close(object, Empty::Kept);
    status_part.close(object, Empty::AsBefore);
    object.set("apiVersion", quoted(Version::V1Beta1.api_version()));
}

/// Converts an object of v1beta1 to v1alpha1.
pub(super) fn to_v1alpha1(object: &mut Fields<'_>) {
    let mut spec_part = Part::open(object, "spec");
    let mut status_part = Part::open(object, "status");
    let (spec, status) = (&mut spec_part.fields, &mut status_part.fields);

    spec.remove(&[
        "ipPool",
        "workloadType",
        "backendServerSelector",
        "backendServers",
    ]);
    status.remove(&["allocatedAddress"]);
    if spec.get("ipam").is_none() {
        spec.set("ipam", quoted("pool"));
    }
    listeners(spec, |listener| {
        if listener.get("name").is_none() {
            listener.set("name", quoted(""));
        }
    });
    if let Some(servers) = status.take("backendServers") {
        spec.set("backendServers", servers);
    }
    health_check(spec, Version::V1Alpha1);

    spec_part.close(object, Empty::Kept);
    status_part.close(object, Empty::AsBefore);
    object.set("apiVersion", quoted(Version::V1Alpha1.api_version()));
}

/// `spec` or `status`, taken out of its object.
struct Part<'a> {
    name: &'static str,
    fields: Fields<'a>,
    /// It is neither absent nor a JSON object: it stays as it is.
    unreadable: bool,
    was_empty: bool,
}

/// What becomes of a part that has no field in the end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Empty {
    /// It stays an empty object: v1beta1 requires a spec.
    Kept,
    /// It stays what it was before, absent or empty; one that has become empty is dropped.
    AsBefore,
}

impl<'a> Part<'a> {
    /// An absent part is empty.
    fn open(object: &Fields<'a>, name: &'static str) -> Self {
        let mut part = Self {
            name,
            fields: Fields::default(),
            unreadable: false,
            was_empty: false,
        };
        match object.parsed(name).map(Fields::parse) {
            None => {}
            Some(Ok(fields)) => {
                part.was_empty = fields.is_empty();
                part.fields = fields;
            }
            Some(Err(_)) => part.unreadable = true,
        }
        part
    }

    fn close(self, object: &mut Fields<'a>, empty: Empty) {
        if self.unreadable {
            return;
        }
        if self.fields.is_empty() && empty == Empty::AsBefore && !self.was_empty {
            object.remove(&[self.name]);
        } else {
            object.set(self.name, self.fields.to_json());
        }
    }
}

/// Completes each listener. What is no list, and what is no listener, stays as it is.
fn listeners(spec: &mut Fields<'_>, complete: fn(&mut Fields<'_>)) {
    let Some(before) = spec.get("listeners") else {
        return;
    };
    let mut after = List::new();
    let is_list = each(before, |json| match Fields::parse(json) {
        Ok(mut listener) => {
            complete(&mut listener);
            after.push(&listener.to_json());
        }
        Err(_) => after.push(json),
    });
    if is_list {
        spec.set("listeners", after.into_json());
    }
}

/// The selector of the virtual machines of these addresses, in the order of the addresses; each once. Unknown addresses are
/// left out. `None` if no address is known: an empty list would be an invalid selector.
fn selector(servers: &str, namespace: &str, facts: &dyn Facts) -> Option<String> {
    let mut names = List::new();
    let mut seen = HashSet::new();
    each(servers, |server| {
        let address = text(server).and_then(|a| a.parse::<Ipv4Addr>().ok());
        if let Some(name) = address.and_then(|a| facts.virtual_machine(namespace, a))
            && !seen.contains(&name)
        {
            names.push(&quoted(&name));
            seen.insert(name);
        }
    });
    let is_known = !seen.is_empty();
    is_known.then(|| format!("{{{}:{}}}", quoted(keys::LABEL_VM_NAME), names.into_json()))
}

/// Renames the period and replaces negative numbers by 0. v1alpha1 requires all five numbers: an absent one becomes 0, which
/// means the same.
fn health_check(spec: &mut Fields<'_>, version: Version) {
    let Some(Ok(mut check)) = spec.get("healthCheck").map(Fields::parse) else {
        return;
    };
    let (before, after) = match version {
        Version::V1Alpha1 => (PERIOD_V1BETA1, PERIOD_V1ALPHA1),
        Version::V1Beta1 => (PERIOD_V1ALPHA1, PERIOD_V1BETA1),
    };
    check.remove(&[after]);
    if let Some(period) = check.take(before) {
        check.set(after, period);
    }
    for name in NUMBERS.into_iter().chain([after]) {
        let is_zero = match check.get(name) {
            Some(number) => number.starts_with('-'),
            None => version == Version::V1Alpha1,
        };
        if is_zero {
            check.set(name, "0");
        }
    }
    let check = check.to_json();
    spec.set("healthCheck", check);
}
