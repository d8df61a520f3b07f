//! Admission of IPPools (10.3, 10.4): WM-5, PV-1 to PV-9, EXC-1, and warnings. Pure.

use std::collections::HashMap;
use std::net::IpAddr;

use harvester_lb_api::cni::NetworkAttachmentDefinition;
use harvester_lb_api::meta::annotation;
use harvester_lb_api::{IPPool, IPPoolSpec, keys};
use harvester_lb_ipam::{Exclusions, PoolRanges, Range};
use serde::Deserialize;

use crate::admission::address_holders::AddressHolders;
use crate::admission::allocated_addresses::{AllocatedAddresses, Held};
use crate::admission::facts::{Fact, Incomplete, Lookup, MutationFacts, ValidationFacts};
use crate::admission::object::Change;
use crate::admission::request::{Operation, Request};
use crate::admission::response::{Denial, Patch, Refusal, Warning};
use crate::pool_spec::{exclusions_of, ranges_of, selector_of};
use crate::validation::pools::{ParsedPool, PoolViolation};

/// Characters of a value of another object that a message quotes.
const QUOTED: usize = 64;

/// The VLAN id of a NetworkAttachmentDefinition (WM-5): of its label, else `vlan` in its configuration, else 0.
///
/// # Errors
/// The label is no number, or the configuration no JSON with such a number; the text continues a sentence that begins with
/// the object.
pub fn vlan_id(network: &NetworkAttachmentDefinition) -> Result<i64, String> {
    #[derive(Deserialize)]
    struct Config {
        #[serde(default)]
        vlan: Option<i64>,
    }
    let quoted = |text: &str| text.chars().take(QUOTED).collect::<String>();
    let labels = network.metadata.labels.as_ref();
    if let Some(text) = labels.and_then(|labels| labels.get(keys::LABEL_VLAN_ID)) {
        return text.parse().map_err(|_| {
            format!(
                "has the label {} {:?}, which is no number",
                keys::LABEL_VLAN_ID,
                quoted(text)
            )
        });
    }
    match network.spec.config.as_deref().unwrap_or_default().trim() {
        "" => Ok(0),
        text => match serde_json::from_str::<Config>(text) {
            Ok(config) => Ok(config.vlan.unwrap_or(0)),
            Err(error) => Err(format!(
                "has a spec.config without a readable vlan: {}",
                quoted(&error.to_string())
            )),
        },
    }
}

/// WM-5: the labels of a pool.
pub(super) fn mutate(
    request: &Request,
    change: &Change<IPPool>,
    facts: &impl MutationFacts,
) -> Result<Patch, Denial> {
    let mut patch = Patch::default();
    let Ok(pool) = change.new_object() else {
        return Ok(patch);
    };
    if change.is_deleting() {
        return Ok(patch);
    }
    let selector = pool.spec.selector.as_ref().map(selector_of);
    let is_global = selector.is_some_and(|selector| selector.is_global());
    let mut wanted = vec![(keys::LABEL_GLOBAL_IP_POOL, is_global.to_string())];
    wanted.extend(vid(request, change, pool, facts)?.map(|vid| (keys::LABEL_VID, vid)));
    let present = pool.metadata.labels.as_ref();
    patch.add_to_map("/metadata/labels", present, &wanted);
    Ok(patch)
}

/// The network of a pool; "" if it has none.
fn network_of(pool: &IPPool) -> &str {
    let selector = pool.spec.selector.as_ref();
    let network = selector.and_then(|selector| selector.network.as_deref());
    network.unwrap_or_default()
}

/// WM-5: the label `vid` of a pool; `None` if it stays as it is.
///
/// If the network is unchanged and its VLAN id cannot be found any more, the present label stays: every write of the pool
/// passes here, also those of its status, and a denial would stop all allocations from it.
fn vid(
    request: &Request,
    change: &Change<IPPool>,
    pool: &IPPool,
    facts: &impl MutationFacts,
) -> Result<Option<String>, Denial> {
    let network = network_of(pool);
    if network.is_empty() {
        return Ok(Some("0".to_owned()));
    }
    let stored = change
        .stored()
        .filter(|stored| network_of(stored) == network);
    let problem = match network.split_once('/') {
        Some((namespace, name)) if !name.contains('/') => match facts.vlan_id(namespace, name) {
            Lookup::Found(Ok(vid)) => return Ok(Some(vid.to_string())),
            Lookup::Found(Err(problem)) => problem,
            Lookup::NotFound => "does not exist".to_owned(),
            Lookup::Failed(error) => format!("cannot be read: {error}"),
            Lookup::Unread => {
                return Err(Denial::NotReady(Fact::NetworkAttachmentDefinition(
                    namespace.to_owned(),
                    name.to_owned(),
                )));
            }
        },
        _ => "is not written as <namespace>/<name>".to_owned(),
    };
    let Some(stored) = stored else {
        let object = format!("IPPool {}", request.key());
        let reason = format!(
            "spec.selector.network {network:?}: this NetworkAttachmentDefinition {problem}"
        );
        return Err(Refusal::new(&object, &reason, "WM-5").into());
    };
    let labels = stored.metadata.labels.as_ref();
    Ok(labels
        .and_then(|labels| labels.get(keys::LABEL_VID))
        .cloned())
}

/// PV-1 to PV-8 and EXC-1 for a creation or an update.
pub(super) fn validate(
    request: &Request,
    change: &Change<IPPool>,
    facts: &impl ValidationFacts,
) -> Result<Vec<Warning>, Denial> {
    let is_update = request.operation == Operation::Update;
    if is_update && (change.is_deleting() || is_unchanged(change)) {
        return Ok(Vec::new());
    }
    let object = format!("IPPool {}", request.key());
    let pool = change.new_object();
    let pool = pool.map_err(|reason| Refusal::unchecked(&object, &reason))?;
    let stored = change.stored().filter(|_| is_update);
    let parsed = ParsedPool::of(&pool.spec);
    let stored = stored.map(|stored| &stored.spec);
    let (mut violations, missing) = violations(&request.name, &parsed, stored, is_update, facts);
    let excluded = exclusions_of(&pool.metadata).unwrap_or_else(|error| {
        violations.push(error.into());
        Exclusions::default()
    });
    if let Some(refusal) = Refusal::of(&object, &violations, PoolViolation::rule) {
        return Err(refusal.into());
    }
    if let Some(fact) = missing {
        return Err(Denial::NotReady(fact));
    }
    Ok(warnings(&request.name, &parsed, &excluded, facts))
}

/// Whether an update leaves alone what the rules are about: the spec, and the annotation that is a part of it (EXC-1). Of a
/// pool that cannot be decoded only the spec counts: nothing is allocated from it.
fn is_unchanged(change: &Change<IPPool>) -> bool {
    let Some((stored, pool)) = change.stored().zip(change.new_object().ok()) else {
        return change.is_same_text;
    };
    let [before, after] =
        [stored, pool].map(|pool| annotation(&pool.metadata, keys::ANNOTATION_EXCLUDE));
    before == after && (change.is_same_text || stored.spec == pool.spec)
}

/// The violations in the order of the rules, without those of rules whose facts are missing; and one such fact.
fn violations(
    name: &str,
    pool: &ParsedPool,
    stored: Option<&IPPoolSpec>,
    is_update: bool,
    facts: &impl ValidationFacts,
) -> (Vec<PoolViolation>, Option<Fact>) {
    let pools = facts.pools().ok();
    let mut missing = pools.is_none().then_some(Fact::IPPools);
    let mut found = match pools {
        Some(pools) => pools.range_violations(name, pool),
        None => pool.range_violations(),
    };
    match (pool.ranges(), facts.allocated()) {
        (None, _) => {}
        (Some(_), Err(Incomplete)) => missing = Some(Fact::IPAllocations),
        (Some(ranges), Ok(allocated)) => {
            let stored = stored.and_then(parsed_ranges);
            let stored = stored.as_ref();
            found.extend(held_violations(name, ranges, stored, is_update, allocated));
        }
    }
    found.extend(match pools {
        Some(pools) => pools.scope_violations(name, pool),
        None => pool.scope_violations(),
    });
    (found, missing)
}

/// The ranges of a stored pool, if they are valid.
fn parsed_ranges(spec: &IPPoolSpec) -> Option<PoolRanges> {
    PoolRanges::parse(&ranges_of(spec)).ok()
}

/// PV-4 on an update: allocated addresses stay in a range. And 10.4: no gateway that is new is allocated.
fn held_violations(
    name: &str,
    ranges: &PoolRanges,
    stored: Option<&PoolRanges>,
    is_update: bool,
    allocated: &AllocatedAddresses,
) -> Vec<PoolViolation> {
    let gateways = new_gateways(ranges, stored);
    let (mut left_out, mut count) = (None::<(IpAddr, Held<'_>)>, 0);
    let (mut unreadable, mut taken) = (None, Vec::new());
    for held in allocated.of(name, stored) {
        match held.address {
            Ok(address) => {
                if !ranges.contains(address) {
                    count += 1;
                    if left_out.is_none_or(|(lowest, _)| address < lowest) {
                        left_out = Some((address, held));
                    }
                }
                if let Some(index) = gateways.get(&address) {
                    taken.push(PoolViolation::AllocatedGateway {
                        index: *index,
                        gateway: address,
                        holder: held.holder.to_string(),
                    });
                }
            }
            Err(text) => unreadable = unreadable.or(Some(text)),
        }
    }
    let mut found = Vec::new();
    if is_update {
        found.extend(left_out.map(|(address, held)| PoolViolation::LeftOut {
            count,
            address,
            holder: held.holder.to_string(),
        }));
        found.extend(unreadable.map(|text| PoolViolation::UnreadableKey(text.to_owned())));
    }
    found.extend(taken);
    found
}

/// The gateways that no range of the stored pool has, each with the index of its first range.
fn new_gateways(ranges: &PoolRanges, stored: Option<&PoolRanges>) -> HashMap<IpAddr, usize> {
    let mut found = HashMap::new();
    for (index, range) in ranges.ranges().iter().enumerate() {
        if let Some(gateway) = range.gateway() {
            found.entry(gateway).or_insert(index);
        }
    }
    let stored = stored.into_iter().flat_map(PoolRanges::ranges);
    for gateway in stored.filter_map(Range::gateway) {
        found.remove(&gateway);
    }
    found
}

/// PV-9: a pool is deleted only if none of its addresses is allocated.
pub(super) fn validate_deletion(
    request: &Request,
    change: &Change<IPPool>,
    facts: &impl ValidationFacts,
) -> Result<Vec<Warning>, Denial> {
    let allocated = facts.allocated();
    let allocated = allocated.map_err(|Incomplete| Denial::NotReady(Fact::IPAllocations))?;
    let ranges = change.stored().and_then(|pool| parsed_ranges(&pool.spec));
    let (mut first, mut count) = (None::<Held<'_>>, 0);
    for held in allocated.of(&request.name, ranges.as_ref()) {
        count += 1;
        first = Some(first.map_or(held, |first| first.min(held)));
    }
    let Some(first) = first else {
        return Ok(Vec::new());
    };
    let address = match first.address {
        Ok(address) => address.to_string(),
        Err(text) => format!("{text:?}"),
    };
    let violation = PoolViolation::StillAllocated {
        count,
        first: format!("{address} of {}", first.holder),
    };
    let object = format!("IPPool {}", request.key());
    Err(Refusal::new(&object, &violation, violation.rule()).into())
}

/// Warnings about ranges that hand out nothing (RNG-9), about exclusions without effect (EXC-1, EXC-3), and about addresses
/// that are in use by others.
fn warnings(
    name: &str,
    pool: &ParsedPool,
    excluded: &Exclusions,
    facts: &impl ValidationFacts,
) -> Vec<Warning> {
    let Some(ranges) = pool.ranges() else {
        return Vec::new();
    };
    let ranges = &ranges.clone().without(excluded);
    let empty = ranges.empty_ranges().into_iter().map(|index| {
        let is_tiny = ranges
            .ranges()
            .get(index)
            .is_some_and(|range| range.total() == 0);
        let why = if is_tiny {
            "its gateway is its only address"
        } else {
            "all of them are excluded"
        };
        Warning::new(&format!(
            "spec.ranges[{index}] has no address to allocate: {why}"
        ))
    });
    let nodes = in_use(ranges, facts.nodes(), "Node");
    let services = in_use(ranges, facts.services(), "Service");
    let used = nodes.into_iter().chain(services);
    let without_effect = outside(ranges, excluded).into_iter();
    let without_effect = without_effect.chain(still_held(name, ranges, facts));
    let all = used.chain(without_effect).chain(empty);
    Warning::most(all)
}

/// The warning that exclusions lie outside of the ranges, which changes nothing (EXC-1).
fn outside(ranges: &PoolRanges, excluded: &Exclusions) -> Option<Warning> {
    let spans = excluded.spans().iter();
    let mut found = spans.filter(|(first, last)| !ranges.contains_all(*first, *last));
    let (first, last) = found.next()?;
    let entry = if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    };
    let more = match found.count() {
        0 => String::new(),
        more => format!(", and {more} more entries like it"),
    };
    Some(Warning::new(&format!(
        "annotation {}: {entry} is not, or not wholly, in spec.ranges{more}: what lies outside is not allocated anyway",
        keys::ANNOTATION_EXCLUDE
    )))
}

/// The warning that excluded addresses are in use (EXC-3).
fn still_held(name: &str, ranges: &PoolRanges, facts: &impl ValidationFacts) -> Option<Warning> {
    if !ranges.has_exclusions() {
        return None;
    }
    let held = facts.allocated().ok()?.of(name, Some(ranges));
    let mut found: Vec<(IpAddr, Held<'_>)> = held
        .filter_map(|held| Some((held.address.ok()?, held)))
        .filter(|(address, _)| ranges.excludes(*address))
        .collect();
    found.sort_unstable_by_key(|(address, _)| *address);
    let (address, held) = found.first()?;
    let more = match found.len() - 1 {
        0 => String::new(),
        more => format!(", and {more} more in use like it"),
    };
    Some(Warning::new(&format!(
        "annotation {}: {address} is allocated to {}{more}: it stays so until its release",
        keys::ANNOTATION_EXCLUDE,
        held.holder
    )))
}

/// The warning that a pool would allocate addresses of Nodes, or of Services of others.
fn in_use(ranges: &PoolRanges, holders: Option<&AddressHolders>, kind: &str) -> Option<Warning> {
    let mut found = holders?.within(ranges);
    let (address, holder) = found.next()?;
    let more = match found.count() {
        0 => String::new(),
        more => format!(", and {more} more in use like it"),
    };
    Some(Warning::new(&format!(
        "spec.ranges holds {address}, the address of {kind} {holder}{more}: leave it out of the ranges, or two hosts answer for it"
    )))
}

#[cfg(test)]
mod tests;
