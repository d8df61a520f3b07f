//! The world at rest, computed anew from the objects alone, in the plainest way that sections 5, 6, 8 and 9 of the contract
//! can be read.

use std::collections::{BTreeMap, BTreeSet};

use harvester_lb_api::keys;
use harvester_lb_object::Key;
use serde_json::Value;

use super::api::{Kind, Server};
use super::oracle::{Failure, is_ours};

macro_rules! must {
    ($rule:literal, $holds:expr, $($arg:tt)*) => {
        if !$holds {
            return Err(Failure::new($rule, format!($($arg)*)));
        }
    };
}

fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The part that all addresses of its family begin with, and the last octet, as a number that is written in decimal; nothing
/// if it is no address. All of IPv6 have digits alone there.
fn split(address: &str) -> Option<(&str, u8)> {
    let prefix = ["10.0.0.", "fd00::"]
        .into_iter()
        .find(|prefix| address.starts_with(prefix))?;
    Some((prefix, address.strip_prefix(prefix)?.parse().ok()?))
}

/// The addresses that a pool can hand out; nothing if its ranges are broken.
fn usable(pool: &Value) -> Option<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    for range in pool["spec"]["ranges"].as_array()? {
        let (prefix, first) = split(text(range, "/rangeStart"))?;
        let (_, last) = split(text(range, "/rangeEnd"))?;
        let (_, gateway) = split(text(range, "/gateway"))?;
        let addresses = (first..=last).filter(|a| *a != gateway);
        all.extend(addresses.map(|a| format!("{prefix}{a}")));
    }
    Some(all)
}

/// BE-7: whether a load balancer can have this address.
fn suits(lb: &Value, address: &str) -> bool {
    lb["spec"]["workloadType"] != "vm" || !address.contains(':')
}

/// Section 5. Pools and load balancers of this model know no network.
fn selected(server: &Server, key: &Key, lb: &Value) -> Option<String> {
    let annotation = |name: &str| {
        lb["metadata"]["annotations"][name]
            .as_str()
            .unwrap_or_default()
    };
    let project = annotation(keys::ANNOTATION_PROJECT);
    let is_global = |pool: &Value| {
        let scope = pool["spec"]["selector"]["scope"].as_array().unwrap();
        scope.len() == 1
            && ["project", "namespace", "guestCluster"]
                .iter()
                .all(|part| scope[0][part] == "*")
    };
    let matches = |pool: &Value, loose: bool| {
        let scope = pool["spec"]["selector"]["scope"].as_array().unwrap();
        let one = |of_pool: &Value, wanted: &str, loose: bool| {
            let of_pool = of_pool.as_str().unwrap_or_default();
            of_pool == "*" || of_pool == wanted || (loose && of_pool.is_empty())
        };
        scope.iter().any(|tuple| {
            one(&tuple["project"], project, loose)
                && one(&tuple["namespace"], &key.namespace, false)
                && one(&tuple["guestCluster"], "", loose)
        })
    };
    let best = |those: Vec<(&Key, &Value)>| {
        let rank = |pool: &Value| pool["spec"]["selector"]["priority"].as_u64().unwrap_or(0);
        let name = |key: &Key| key.name.to_string();
        let of_best = those
            .into_iter()
            .min_by_key(|(key, pool)| (std::cmp::Reverse(rank(pool)), name(key)));
        of_best.map(|(key, _)| name(key))
    };
    let pools: Vec<(&Key, &Value)> = server
        .all(Kind::Pool)
        .iter()
        .map(|(k, p)| (k, &**p))
        .collect();
    let of = |is: &dyn Fn(&Value) -> bool| -> Vec<(&Key, &Value)> {
        pools.iter().copied().filter(|(_, pool)| is(pool)).collect()
    };
    best(of(&|pool| !is_global(pool) && matches(pool, false)))
        .or_else(|| best(of(&|pool| is_global(pool))))
        .or_else(|| {
            (lb["spec"]["workloadType"] == "cluster")
                .then(|| best(of(&|pool| !is_global(pool) && matches(pool, true))))
                .flatten()
        })
}

/// Records that are Bound: address, pool, owner, uid.
fn bound(server: &Server) -> impl Iterator<Item = (&str, &str, Key, &str)> {
    server
        .all(Kind::Record)
        .values()
        .filter(|r| r["spec"]["phase"] == "Bound")
        .map(|r| {
            let owner = Key::new(
                text(r, "/spec/owner/namespace"),
                text(r, "/spec/owner/name"),
            );
            (
                text(r, "/spec/address"),
                text(r, "/spec/pool"),
                owner,
                text(r, "/spec/owner/uid"),
            )
        })
}

/// IPA-9: whether a load balancer asks for what only a later version can do.
pub(crate) fn asks(lb: &Value) -> bool {
    let annotations = &lb["metadata"]["annotations"];
    !annotations[keys::ANNOTATION_REQUESTED_ADDRESS].is_null()
        || !annotations[keys::ANNOTATION_PRIMARY].is_null()
}

/// The load balancer that this one names as the one whose address it shares.
fn primary(lb: &Value) -> Option<&str> {
    lb["metadata"]["annotations"][keys::ANNOTATION_PRIMARY].as_str()
}

/// IPA-9: names of the load balancers that own a Service together, its own among them; nothing if it is not shared.
fn sharers<'a>(key: &'a Key, service: &'a Value) -> BTreeSet<&'a str> {
    let owners = service["metadata"]["ownerReferences"].as_array();
    let owners = owners.into_iter().flatten();
    let mut names: BTreeSet<&str> = owners
        .filter(|owner| owner["kind"] == "LoadBalancer")
        .filter_map(|owner| owner["name"].as_str())
        .collect();
    if !is_ours(service, key) || names.iter().all(|name| *name == &*key.name) {
        return BTreeSet::new();
    }
    names.insert(&key.name);
    names
}

/// IPA-9: whether a load balancer has a part in a shared Service.
fn has_part(server: &Server, key: &Key) -> bool {
    server.all(Kind::Service).iter().any(|(service, object)| {
        service.namespace == key.namespace && sharers(service, object).contains(&*key.name)
    })
}

/// IPA-9: whether others of the namespace name a load balancer as the one whose address they share.
fn is_primary(server: &Server, key: &Key) -> bool {
    let mut lbs = server.all(Kind::Lb).iter();
    lbs.any(|(other, lb)| other.namespace == key.namespace && primary(lb) == Some(&key.name))
}

/// IPA-9: whether a load balancer is to be left as it is.
fn is_left_alone(server: &Server, key: &Key, lb: &Value) -> bool {
    let uid = text(lb, "/metadata/uid");
    let uids: Vec<&str> = bound(server)
        .filter(|(_, _, owner, _)| owner == key)
        .map(|(.., uid)| uid)
        .collect();
    let would_take_over = !uids.is_empty() && !uids.contains(&uid);
    asks(lb) || has_part(server, key) || (would_take_over && is_primary(server, key))
}

/// IPA-9: whether somebody may share the address of a record that its owner does not need.
fn is_shared(server: &Server, address: &str, owner: &Key) -> bool {
    let namespace = &owner.namespace;
    let named = server.all(Kind::Lb).iter().any(|(other, lb)| {
        other.namespace == *namespace
            && primary(lb).is_some()
            && text(lb, "/status/allocatedAddress/ip") == address
    });
    let shown = server.all(Kind::Service).iter().any(|(key, service)| {
        let shows = |pointer| text(service, pointer) == address;
        key.namespace == *namespace
            && !sharers(key, service).is_empty()
            && (shows("/spec/loadBalancerIP") || shows("/status/loadBalancer/ingress/0/ip"))
    });
    named || shown || has_part(server, owner) || is_primary(server, owner)
}

/// IPA-9: whether a pool has a list of exclusions.
fn excludes(pool: &Value) -> bool {
    let list = pool["metadata"]["annotations"][keys::ANNOTATION_EXCLUDE].as_str();
    list.is_some_and(|list| !list.is_empty())
}

/// IPA-9: the address that a load balancer has by its status alone, in a pool with exclusions, which cannot tell whether it is
/// its own; nothing if it has none.
fn held_back<'a>(server: &Server, key: &Key, lb: &'a Value) -> Option<&'a str> {
    let given = text(lb, "/status/allocatedAddress/ip");
    let pool = match text(lb, "/spec/ipPool") {
        "" => selected(server, key, lb)?,
        named => named.to_owned(),
    };
    let pool = server.get(Kind::Pool, &Key::new("", pool))?;
    let may_have = excludes(pool) && usable(pool)?.contains(given);
    let held = bound(server).any(|(address, _, owner, _)| address == given || owner == *key);
    let pooled = lb["spec"]["ipam"] != "dhcp" && !is_left_alone(server, key, lb);
    (may_have && !held && pooled).then_some(given)
}

/// Whether a load balancer has no listener although it must.
fn is_broken(lb: &Value) -> bool {
    lb["spec"]["workloadType"] == "vm"
        && lb["spec"]["listeners"].as_array().is_none_or(Vec::is_empty)
}

fn condition<'a>(object: &'a Value, type_: &str) -> Option<&'a Value> {
    object["status"]["conditions"]
        .as_array()?
        .iter()
        .find(|c| c["type"] == *type_)
}

/// REL-2, IPA-3: no address is held for somebody who is gone, or does not use it.
pub(crate) fn records_have_owners(server: &Server) -> Result<(), Failure> {
    for (address, _, owner, uid) in bound(server) {
        let lb = server.get(Kind::Lb, &owner);
        let left_alone = lb.is_some_and(|lb| is_left_alone(server, &owner, lb));
        if left_alone || is_shared(server, address, &owner) {
            continue;
        }
        let Some(lb) = server.get(Kind::Lb, &owner) else {
            return Err(Failure::new(
                "REL-2",
                format!("{address} is held for {owner}, which is gone"),
            ));
        };
        must!(
            "IPA-3",
            text(lb, "/metadata/uid") == uid,
            "{address} is held for an earlier {owner}"
        );
        must!(
            "REL-2",
            is_broken(lb) || text(lb, "/status/allocatedAddress/ip") == address,
            "{address} is held for {owner}, which does not name it: {}",
            lb["status"]
        );
    }
    Ok(())
}

/// A load balancer has what it should: an address if there is one for it, its objects, its status.
pub(crate) fn lb_is_as_it_should(server: &Server, key: &Key, lb: &Value) -> Result<(), Failure> {
    let given = text(lb, "/status/allocatedAddress/ip");
    let uid = text(lb, "/metadata/uid");
    let held: Vec<(&str, &str)> = bound(server)
        .filter(|(_, _, owner, _)| owner == key)
        // What it does not need stays as long as others may share it.
        .filter(|(address, _, _, of)| {
            (*address == given && *of == uid) || !is_shared(server, address, key)
        })
        .map(|(address, pool, ..)| (address, pool))
        .collect();
    let Some(ready) = condition(lb, "Ready") else {
        return Err(Failure::new(
            "section 9",
            format!("{key} has no condition Ready"),
        ));
    };
    let reason = text(ready, "/reason");
    if is_left_alone(server, key, lb) {
        must!(
            "IPA-9",
            reason == "UnsupportedAnnotation" && ready["status"] == "False",
            "{key} is not ours to touch, and is {ready}"
        );
        return Ok(());
    }
    if is_broken(lb) {
        must!(
            "section 9",
            reason == "InvalidListener",
            "{key} has no listener, and is {ready}"
        );
        return follows(server, key);
    }
    if lb["spec"]["ipam"] == "dhcp" {
        must!(
            "OPS-3",
            given == "0.0.0.0",
            "{key} takes its address by DHCP and is given {given}"
        );
        must!(
            "OPS-3",
            held.is_empty(),
            "{key} takes its address by DHCP and holds {held:?}"
        );
        return children(server, key, lb, given, ready);
    }
    let named = text(lb, "/spec/ipPool");
    let pool = match named {
        "" => selected(server, key, lb),
        named => Some(named.to_owned()),
    };
    if let [(address, of)] = held[..] {
        must!(
            "ALC-6",
            given == address,
            "{key} holds {address} and is given {given:?}"
        );
        must!(
            "ALC-6",
            text(lb, "/status/allocatedAddress/ipPool") == of,
            "{key} holds an address of {of}: {}",
            lb["status"]
        );
        must!(
            "REL-4",
            named.is_empty() || named == of,
            "{key} names {named}, holds {address} of {of}"
        );
        let present = server.get(Kind::Pool, &Key::new("", of));
        let outside = present.is_none_or(|p| usable(p).is_some_and(|u| !u.contains(address)));
        let told = condition(lb, "AddressOutOfPool").is_some_and(|c| c["status"] == "True");
        must!(
            "IPA-7",
            outside == told,
            "{key} holds {address} of {of}; outside of it: {outside}, told: {told}"
        );
        if !suits(lb, address) {
            must!(
                "BE-7",
                reason == "AddressFamilyMismatch" && ready["status"] == "False",
                "{key} has {address} from another life, and says {ready}"
            );
            return follows(server, key);
        }
        return children(server, key, lb, address, ready);
    }
    must!("ALC-1", held.is_empty(), "{key} holds {held:?}");
    let present = pool
        .as_ref()
        .and_then(|p| server.get(Kind::Pool, &Key::new("", p)));
    let expected = match (&pool, present.map(|p| usable(p))) {
        (None, _) => "NoMatchedPool",
        (Some(_), None) => "PoolNotFound",
        (Some(pool), Some(_)) if excludes(&server.all(Kind::Pool)[&Key::new("", &**pool)]) => {
            "UnsupportedAnnotation"
        }
        (Some(_), Some(None)) => "PoolInvalid",
        (Some(_), Some(Some(all))) if !all.is_empty() && !all.iter().any(|a| suits(lb, a)) => {
            "AddressFamilyMismatch"
        }
        (Some(pool), Some(Some(addresses))) => {
            // What a Service shows is taken too, as of one whose record was released by hand.
            let shown = server.all(Kind::Service).values();
            let shown = shown.map(|service| text(service, "/spec/loadBalancerIP"));
            // So is what one names that is left alone, and has no record of.
            let lbs = server.all(Kind::Lb).iter();
            let named = lbs.filter(|(key, lb)| is_left_alone(server, key, lb));
            let named = named.map(|(_, lb)| text(lb, "/status/allocatedAddress/ip"));
            let lbs = server.all(Kind::Lb).iter();
            let named = named.chain(lbs.filter_map(|(key, lb)| held_back(server, key, lb)));
            let taken: BTreeSet<&str> = bound(server)
                .map(|(address, ..)| address)
                .chain(shown)
                .chain(named)
                .collect();
            let mut free = addresses.iter().filter(|a| !taken.contains(a.as_str()));
            let free = free.find(|a| suits(lb, a));
            must!(
                "ALC-5",
                free.is_none(),
                "{key} waits ({reason}), and {free:?} of {pool} is free"
            );
            "NoAvailableIP"
        }
    };
    must!(
        "section 9",
        reason == expected,
        "{key} waits because of {expected}, and says {ready}"
    );
    must!(
        "section 9",
        ready["status"] == "False",
        "{key} waits and is ready"
    );
    let pools: Vec<&str> = server.all(Kind::Pool).keys().map(|k| &*k.name).collect();
    let all = present.and_then(|pool| usable(pool)).unwrap_or_default();
    let says = match expected {
        "NoMatchedPool" if pools.is_empty() => vec!["there are no pools".to_owned()],
        "NoMatchedPool" => pools.iter().map(|name| format!("pool {name}: ")).collect(),
        reason => {
            let name = pool.as_deref().unwrap_or_default();
            vec![match reason {
                "PoolNotFound" => format!("pool {name}: does not exist"),
                "PoolInvalid" => format!("pool {name}: its ranges are invalid"),
                "UnsupportedAnnotation" => {
                    format!("pool {name}: this version does not support its annotation")
                }
                "AddressFamilyMismatch" => format!("pool {name}: has IPv6 addresses alone"),
                _ if all.iter().any(|a| !suits(lb, a)) => {
                    format!("pool {name}: all IPv4 addresses are taken")
                }
                _ => format!("pool {name}: all addresses are taken"),
            }]
        }
    };
    let message = text(ready, "/message");
    must!(
        "SEL-7",
        says.iter().all(|part| message.contains(part)),
        "{key} waits and is to be told {says:?}, and is told {message:?}"
    );
    if held_back(server, key, lb).is_some() {
        return follows(server, key);
    }
    must!(
        "ALC-5",
        given.is_empty(),
        "{key} holds nothing and is given {given}"
    );
    if lb["spec"]["workloadType"] == "vm" {
        must!(
            "REL-4",
            text(lb, "/status/address").is_empty(),
            "{key} waits: {}",
            lb["status"]
        );
    }
    for kind in [Kind::Service, Kind::Slice] {
        let left = server
            .get(kind, key)
            .is_some_and(|object| is_ours(object, key));
        must!("REL-4", !left, "{key} waits and has a {kind:?}");
    }
    Ok(())
}

/// Service, EndpointSlice and the rest of the status of a load balancer that has an address (sections 8 and 9).
fn children(
    server: &Server,
    key: &Key,
    lb: &Value,
    address: &str,
    ready: &Value,
) -> Result<(), Failure> {
    let reason = text(ready, "/reason");
    let (service, slice) = (server.get(Kind::Service, key), server.get(Kind::Slice, key));
    if lb["spec"]["workloadType"] == "cluster" {
        must!(
            "REC-1",
            reason == "Ready",
            "{key} has {address}, and says {ready}"
        );
        must!(
            "REC-1",
            !service.is_some_and(|s| is_ours(s, key)),
            "{key} is of cluster type and has a Service"
        );
        must!(
            "REC-1",
            slice.is_none(),
            "{key} is of cluster type and has an EndpointSlice"
        );
        must!(
            "REC-1",
            address == "0.0.0.0" || !text(lb, "/status/address").is_empty(),
            "{key} has {address} and does not say so: {}",
            lb["status"]
        );
        return Ok(());
    }
    if service.is_some_and(|s| !is_ours(s, key)) {
        must!(
            "SVC-1",
            reason == "NameConflict",
            "{key} has somebody else's Service, and says {ready}"
        );
        must!(
            "SVC-1",
            slice.is_none(),
            "{key} has an EndpointSlice beside somebody else's Service"
        );
        return Ok(());
    }
    let Some(service) = service else {
        return Err(Failure::new(
            "REC-4",
            format!("{key} has {address} and no Service; it says {ready}"),
        ));
    };
    let uid = text(lb, "/metadata/uid");
    let owned = |object: &Value| {
        let owners = object["metadata"]["ownerReferences"].as_array();
        owners.is_some_and(|all| all.len() == 1 && all[0]["uid"] == *uid)
    };
    must!(
        "section 8.2",
        owned(service),
        "the Service of {key}: {}",
        service["metadata"]
    );
    must!(
        "section 8.2",
        service["metadata"]["labels"][keys::LABEL_SERVICELB] == "true",
        "the Service of {key}"
    );
    let spec = &service["spec"];
    must!(
        "section 8.2",
        text(spec, "/loadBalancerIP") == address,
        "{key} has {address}: {spec}"
    );
    must!(
        "section 8.2",
        spec["selector"].is_null(),
        "the Service of {key} has a selector"
    );
    let ports = spec["ports"].as_array().map_or(0, Vec::len);
    must!(
        "section 8.2",
        ports == 1 && spec["ports"][0]["targetPort"] == 8080,
        "the Service of {key}: {spec}"
    );
    let announced = text(service, "/status/loadBalancer/ingress/0/ip");
    must!(
        "REC-2",
        text(lb, "/status/address") == announced,
        "{key} is at {announced}: {}",
        lb["status"]
    );
    must!(
        "REL-4",
        address == "0.0.0.0" || announced == address,
        "{key} has {address}, and {announced} is announced"
    );
    let matching: BTreeMap<&Key, &Value> = server
        .all(Kind::Vmi)
        .iter()
        .filter(|(k, vmi)| k.namespace == key.namespace && vmi["metadata"]["labels"]["app"] == "x")
        .map(|(k, vmi)| (k, &**vmi))
        .collect();
    let reported: Vec<(&str, State)> = matching
        .values()
        .map(|vmi| (reports(vmi), state(vmi)))
        .filter(|(address, _)| !address.is_empty())
        .collect();
    let (refused, backends): (Vec<_>, Vec<_>) = unlike(&reported)
        .into_iter()
        .partition(|(address, _)| is_refused(server, address));
    let runs = backends.iter().any(|(_, state)| *state == State::Running);
    let ready_ones: Vec<bool> = backends
        .iter()
        .map(|(_, state)| *state == State::Running || (*state == State::Paused && !runs))
        .collect();
    let any_ready = ready_ones.contains(&true);
    let backends: Vec<&str> = backends.into_iter().map(|(address, _)| address).collect();
    let told = |type_| condition(lb, type_).is_some_and(|c| c["status"] == "True");
    must!(
        "BE-8",
        told("BackendAddressRefused") != refused.is_empty(),
        "{key}, with {refused:?} refused: {}",
        lb["status"]
    );
    let shared = |address: &&str| {
        let others = server.all(Kind::Vmi).iter();
        let mut others = others.filter(|(k, _)| k.namespace != key.namespace);
        others.any(|(_, vmi)| reports(vmi) == *address)
    };
    let shared: Vec<&&str> = backends.iter().filter(|a| shared(a)).collect();
    must!(
        "BE-8",
        told("BackendAddressShared") != shared.is_empty(),
        "{key}, with {shared:?} in another namespace too: {}",
        lb["status"]
    );
    let Some(slice) = slice else {
        return Err(Failure::new("REC-4", format!("{key} has no EndpointSlice")));
    };
    must!(
        "section 8.3",
        owned(slice),
        "the EndpointSlice of {key}: {}",
        slice["metadata"]
    );
    let endpoints: Vec<(&str, bool)> = slice["endpoints"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|e| (text(e, "/addresses/0"), e["conditions"]["ready"] == true))
        .collect();
    let mut expected: Vec<(&str, bool)> = backends.iter().copied().zip(ready_ones).collect();
    if !any_ready {
        expected.push((keys::DUMMY_ENDPOINT_ADDRESS, true));
    }
    must!(
        "BE-3",
        endpoints == expected,
        "{key} is to be served by {expected:?}, and is by {endpoints:?}"
    );
    let listed: Vec<&str> = lb["status"]["backendServers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    must!(
        "BE-3",
        listed == backends,
        "{key} is to list {backends:?}: {}",
        lb["status"]
    );
    let expected = if matching.is_empty() {
        "NoBackend"
    } else if backends.is_empty() {
        "BackendsWithoutIP"
    } else if any_ready {
        "Ready"
    } else {
        "BackendsUnhealthy"
    };
    must!(
        "section 9",
        reason == expected,
        "{key} is {expected}, and says {ready}"
    );
    must!(
        "section 9",
        (ready["status"] == "True") == (reason == "Ready"),
        "{key}: {ready}"
    );
    Ok(())
}

/// What a virtual machine is at (BE-5).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Running,
    Paused,
    Over,
}

fn state(vmi: &Value) -> State {
    match (
        text(vmi, "/status/phase"),
        text(vmi, "/status/conditions/0/type"),
    ) {
        ("Succeeded" | "Failed", _) => State::Over,
        (_, "Paused") => State::Paused,
        _ => State::Running,
    }
}

/// BE-5: one that is over is left out if another has its address; of several that are over the first stays.
fn unlike<'a>(all: &[(&'a str, State)]) -> Vec<(&'a str, State)> {
    let is_left_out = |at: usize, (address, state): &(&str, State)| {
        let mut others = all
            .iter()
            .enumerate()
            .filter(|(_, (other, _))| other == address);
        *state == State::Over && others.any(|(nth, (_, state))| *state != State::Over || nth < at)
    };
    let kept = all
        .iter()
        .enumerate()
        .filter(|(at, it)| !is_left_out(*at, it));
    kept.map(|(_, it)| *it).collect()
}

/// BE-6: what is still served of a load balancer that is broken is there.
fn follows(server: &Server, key: &Key) -> Result<(), Failure> {
    let Some(slice) = server.get(Kind::Slice, key) else {
        return Ok(());
    };
    let endpoints = slice["endpoints"].as_array().into_iter().flatten();
    let real: Vec<&Value> = endpoints
        .filter(|e| text(e, "/addresses/0") != keys::DUMMY_ENDPOINT_ADDRESS)
        .collect();
    for endpoint in real {
        let vmi = Key::new(&key.namespace, text(endpoint, "/targetRef/name"));
        let address = text(endpoint, "/addresses/0");
        let stands = server.get(Kind::Vmi, &vmi).is_some_and(|vmi| {
            text(vmi, "/metadata/uid") == text(endpoint, "/targetRef/uid")
                && reports(vmi) == address
                && (state(vmi) != State::Over || endpoint["conditions"]["ready"] == false)
        });
        must!(
            "BE-6",
            stands && !is_refused(server, address),
            "{key} is broken and goes on serving {endpoint}"
        );
    }
    Ok(())
}

fn reports(vmi: &Value) -> &str {
    text(vmi, "/status/interfaces/0/ipAddress")
}

/// BE-8: an address of a Node, of a Service, or with a record.
fn is_refused(server: &Server, address: &str) -> bool {
    let any = |kind, pointer| {
        let mut all = server.all(kind).values();
        all.any(|object| text(object, pointer) == address)
    };
    any(Kind::Node, "/status/addresses/0/address")
        || any(Kind::Service, "/spec/clusterIP")
        || any(Kind::Service, "/status/loadBalancer/ingress/0/ip")
        || server.get(Kind::Record, &Key::new("", address)).is_some()
}

/// POOL-1, POOL-3, IPA-4, IPA-7: the status of a pool is a recount.
pub(crate) fn pool_is_as_it_should(
    server: &Server,
    key: &Key,
    pool: &Value,
) -> Result<(), Failure> {
    let status = &pool["status"];
    let addresses = usable(pool);
    let none = BTreeSet::new();
    let all = addresses.as_ref().unwrap_or(&none);
    // What a Service of ours shows is somebody's too, as of one whose record was released by hand (ALC-11).
    let services = server.all(Kind::Service).iter();
    let shown = services.filter(|(key, service)| is_ours(service, key));
    let shown = shown.flat_map(|(_, service)| {
        ["/spec/loadBalancerIP", "/status/loadBalancer/ingress/0/ip"]
            .map(|pointer| text(service, pointer))
    });
    let lbs = server.all(Kind::Lb).iter();
    let held_back = lbs.filter_map(|(key, lb)| held_back(server, key, lb));
    let taken: BTreeSet<&str> = bound(server)
        .map(|(address, ..)| address)
        .chain(shown)
        .chain(held_back)
        .filter(|address| all.contains(*address))
        .collect();
    let taken = taken.len();
    must!(
        "POOL-1",
        status["total"] == all.len(),
        "pool {key} has {} addresses: {status}",
        all.len()
    );
    must!(
        "POOL-1",
        status["available"] == all.len() - taken,
        "pool {key}, {taken} taken: {status}"
    );
    let map = |field: &str| -> BTreeMap<String, String> {
        serde_json::from_value(status[field].clone()).unwrap_or_default()
    };
    let name = &*key.name;
    let held: BTreeMap<String, String> = bound(server)
        .filter(|(_, of, ..)| *of == name)
        .map(|(address, _, owner, _)| (address.to_owned(), owner.to_string()))
        .collect();
    must!(
        "POOL-3",
        map("allocated") == held,
        "pool {key} holds {held:?}: {status}"
    );
    let outside = held.keys().any(|a| addresses.is_some() && !all.contains(a));
    let mut history = BTreeMap::new();
    for record in server.all(Kind::Record).values() {
        if record["spec"]["phase"] == "Released" && text(record, "/spec/pool") == name {
            let (address, owner) = (text(record, "/spec/address"), &record["spec"]["owner"]);
            must!(
                "POOL-1",
                addresses.is_none() || all.contains(address),
                "pool {key} remembers {address}, which it does not have"
            );
            let owner = format!("{}/{}", text(owner, "/namespace"), text(owner, "/name"));
            history.insert(address.to_owned(), owner);
        }
    }
    must!(
        "POOL-3",
        map("allocatedHistory") == history,
        "pool {key} remembers {history:?}: {status}"
    );
    let ready = condition(pool, "Ready").cloned().unwrap_or_default();
    let expected = match &addresses {
        None => "InvalidRanges",
        Some(_) if excludes(pool) => "UnsupportedAnnotation",
        Some(_) => "Ready",
    };
    must!(
        "POOL-2",
        text(&ready, "/reason") == expected,
        "pool {key} is {expected}, and says {ready}"
    );
    must!(
        "IPA-7",
        condition(pool, "AddressOutOfPool").is_some() == outside,
        "pool {key}, with addresses outside: {outside}: {status}"
    );
    let age = |key: &Key, pool: &Value| {
        (
            text(pool, "/metadata/creationTimestamp").to_owned(),
            key.clone(),
        )
    };
    let overlapped = server
        .all(Kind::Pool)
        .iter()
        .any(|(other, older)| age(other, older) < age(key, pool) && meet(older, pool));
    must!(
        "IPA-4",
        condition(pool, "Overlaps").is_some() == overlapped,
        "pool {key}, overlaps an older one: {overlapped}: {status}"
    );
    must!(
        "6.4",
        pool["metadata"]["annotations"][keys::ANNOTATION_MANUALLY_RELEASE_IP].is_null(),
        "pool {key} still asks for a release"
    );
    Ok(())
}

/// Whether ranges of two pools overlap; gateways do not matter.
fn meet(a: &Value, b: &Value) -> bool {
    let spans = |pool: &Value| -> Option<Vec<(String, u8, u8)>> {
        let ranges = pool["spec"]["ranges"].as_array()?.iter();
        ranges
            .map(|range| {
                let (prefix, first) = split(text(range, "/rangeStart"))?;
                let (_, last) = split(text(range, "/rangeEnd"))?;
                Some((prefix.to_owned(), first, last))
            })
            .collect()
    };
    let (a, b) = (spans(a).unwrap_or_default(), spans(b).unwrap_or_default());
    let meets = |(p, a1, a2): &(String, u8, u8), (q, b1, b2): &(String, u8, u8)| {
        p == q && a1 <= b2 && b1 <= a2
    };
    a.iter().any(|a| b.iter().any(|b| meets(a, b)))
}

/// REL-3: nothing of ours is left of load balancers that are gone, and no record of pools that are.
pub(crate) fn no_orphans(server: &Server) -> Result<(), Failure> {
    for kind in [Kind::Service, Kind::Slice] {
        for (key, object) in server.all(kind) {
            must!(
                "REL-3",
                server.get(Kind::Lb, key).is_some()
                    || !is_ours(object, key)
                    || !sharers(key, object).is_empty(),
                "the {kind:?} {key} is left of a load balancer that is gone"
            );
        }
    }
    for (key, record) in server.all(Kind::Record) {
        let pool = Key::new("", text(record, "/spec/pool"));
        must!(
            "POOL-1",
            record["spec"]["phase"] == "Bound" || server.get(Kind::Pool, &pool).is_some(),
            "{key} is remembered for pool {pool}, which is gone"
        );
    }
    Ok(())
}
