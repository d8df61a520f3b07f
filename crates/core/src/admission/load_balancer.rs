//! Admission of LoadBalancers (10.1, 10.2): WM-1 to WM-4, WV-1 to WV-10, REQ-1, SHR-1, and warnings. Pure.

use std::num::NonZeroU16;

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{HealthCheck, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::Explanation;
use serde_json::{Value, json};

use crate::admission::allocated_addresses::Holder;
use crate::admission::facts::{Fact, Incomplete, Lookup, MutationFacts, ValidationFacts};
use crate::admission::host_ports;
use crate::admission::object::Change;
use crate::admission::request::{Operation, Request};
use crate::admission::response::{Denial, Patch, Refusal, Warning};
use crate::admission::shared_address;
use crate::guest_cluster;
use crate::kube_vip_annotations;
use crate::spec_annotations::{RequestedAddress, requested_address};
use crate::validation::{self, Consumer, Severity, Violation};

/// The value of the label of LoadBalancers whose cluster has no name of its own: guests use it when none is configured
/// (WV-10).
const UNNAMED_CLUSTER: &str = "kubernetes";

/// WM-1 to WM-4.
pub(super) fn mutate(
    request: &Request,
    change: &Change<LoadBalancer>,
    facts: &impl MutationFacts,
) -> Result<Patch, Denial> {
    let mut patch = Patch::default();
    let Ok(lb) = change.new_object() else {
        return Ok(patch);
    };
    if change.is_deleting() {
        return Ok(patch);
    }
    let wanted = match lb.spec.workload() {
        WorkloadType::Vm => vec![(keys::ANNOTATION_NAMESPACE, request.namespace.clone())],
        WorkloadType::Cluster => cluster_annotations(request, lb, facts)?,
    };
    let present = lb.metadata.annotations.as_ref();
    patch.add_to_map("/metadata/annotations", present, &wanted);
    if let Some(check) = &lb.spec.health_check {
        fill_in(check, &mut patch);
    }
    Ok(patch)
}

/// WM-2: the annotations of a LoadBalancer of cluster type.
fn cluster_annotations(
    request: &Request,
    lb: &LoadBalancer,
    facts: &impl MutationFacts,
) -> Result<Vec<(&'static str, String)>, Denial> {
    let namespace = &request.namespace;
    let refused = |reason: &str| {
        let object = format!("LoadBalancer {}", request.key());
        let reason = format!("Namespace {namespace} {reason}");
        Err(Denial::Refused(Refusal::new(&object, &reason, "WM-2")))
    };
    let project = match facts.project_id(namespace) {
        Lookup::Found(id) => id.replacen(':', "/", 1),
        Lookup::NotFound => return refused("does not exist, so its project is not known"),
        Lookup::Failed(error) => return refused(&format!("cannot be read: {error}")),
        Lookup::Unread => return Err(Denial::NotReady(Fact::Namespace(namespace.clone()))),
    };
    Ok(vec![
        (keys::ANNOTATION_NAMESPACE, namespace.clone()),
        (keys::ANNOTATION_PROJECT, project),
        (keys::ANNOTATION_NETWORK, network(request, lb, facts)?),
    ])
}

/// WM-3: the network of a LoadBalancer of cluster type; "" if nothing tells it.
fn network(
    request: &Request,
    lb: &LoadBalancer,
    facts: &impl MutationFacts,
) -> Result<String, Denial> {
    let value = |key| annotation(&lb.metadata, key).filter(|value| !value.is_empty());
    let given = value(keys::ANNOTATION_NETWORK);
    if let Some(network) = given.or_else(|| value(keys::ANNOTATION_MANAGEMENT_NETWORK)) {
        return Ok(network.to_owned());
    }
    let Some(cluster) = value(keys::ANNOTATION_CLUSTER) else {
        return Ok(String::new());
    };
    let networks = facts.guest_networks();
    let networks =
        networks.map_err(|Incomplete| Denial::NotReady(Fact::VirtualMachineInstances))?;
    let found = networks.network_of(&request.namespace, cluster);
    Ok(found.unwrap_or_default().to_owned())
}

/// WM-4: the defaults for numbers of an enabled health check that are absent or 0.
fn fill_in(check: &HealthCheck, patch: &mut Patch) {
    if check.port.unwrap_or(0) == 0 {
        return;
    }
    let defaults = harvester_lb_prober::HealthCheck::with_defaults(NonZeroU16::MIN);
    let numbers: [(&str, Option<i64>, Value); 4] = [
        (
            "successThreshold",
            check.success_threshold,
            json!(defaults.success_threshold()),
        ),
        (
            "failureThreshold",
            check.failure_threshold,
            json!(defaults.failure_threshold()),
        ),
        (
            "periodSeconds",
            check.period_seconds,
            json!(defaults.period().as_secs()),
        ),
        (
            "timeoutSeconds",
            check.timeout_seconds,
            json!(defaults.timeout().as_secs()),
        ),
    ];
    for (field, value, default) in numbers {
        if value.unwrap_or(0) == 0 {
            patch.add(format!("/spec/healthCheck/{field}"), default);
        }
    }
}

/// WV-1 to WV-10, REQ-1, SHR-1.
pub(super) fn validate(
    request: &Request,
    change: &Change<LoadBalancer>,
    facts: &impl ValidationFacts,
) -> Result<Vec<Warning>, Denial> {
    let is_update = request.operation == Operation::Update;
    if is_update && (change.is_deleting() || is_unchanged(change)) {
        // One that is older than a rule stays writable.
        let added = change
            .new_object()
            .ok()
            .filter(|lb| is_any_ignored_added(change, lb));
        let warnings = added.map(|lb| annotation_warnings(lb, facts));
        return Ok(Warning::most(warnings.into_iter().flatten()));
    }
    let object = format!("LoadBalancer {}", request.key());
    let lb = change.new_object();
    let lb = lb.map_err(|reason| Refusal::unchecked(&object, &reason))?;
    let stored = change.stored().filter(|_| is_update);
    let mut violations = validation::validate(lb);
    violations.extend(
        stored
            .into_iter()
            .flat_map(|stored| validation::validate_update(stored, lb)),
    );
    let (refused, legal): (Vec<Violation>, Vec<Violation>) = violations
        .into_iter()
        .partition(|v| v.severity(Consumer::Admission) == Severity::Refuse);
    if let Some(refusal) = Refusal::of(&object, &refused, Violation::rule) {
        return Err(refusal.into());
    }
    if !is_update {
        cluster_exists(request, lb, facts)?;
    }
    let warned = legal
        .iter()
        .filter(|v| v.severity(Consumer::Admission) == Severity::Warn);
    let warnings = warned.map(Warning::new);
    let shared = shared_address::warnings(request, lb, facts)?;
    let warnings = warnings
        .chain(requested_warning(request, lb, facts))
        .chain(shared)
        .chain(annotation_warnings(lb, facts))
        .chain(listener_warnings(lb));
    Ok(Warning::most(warnings))
}

/// Whether an update adds an annotation of kube-vip that means nothing here (KVA-1).
fn is_any_ignored_added(change: &Change<LoadBalancer>, lb: &LoadBalancer) -> bool {
    let mut keys = lb.metadata.annotations.iter().flatten().map(|(key, _)| key);
    let has = |key: &str| {
        let stored = change.stored();
        stored.is_some_and(|stored| annotation(&stored.metadata, key).is_some())
    };
    !change.is_deleting() && keys.any(|key| kube_vip_annotations::is_ignored(key) && !has(key))
}

/// Whether an update leaves alone what the rules are about: the spec, and the annotations that are a part of it (REQ-1, SHR-1). Of
/// one that cannot be decoded only the spec counts: it is not served.
fn is_unchanged(change: &Change<LoadBalancer>) -> bool {
    let Some((stored, lb)) = change.stored().zip(change.new_object().ok()) else {
        return change.is_same_text;
    };
    let [before, after] = [stored, lb]
        .map(|lb| keys::LOAD_BALANCER_SPEC_ANNOTATIONS.map(|key| annotation(&lb.metadata, key)));
    before == after && (change.is_same_text || stored.spec == lb.spec)
}

/// WV-10: a LoadBalancer of a guest cluster that is being removed is not created again.
fn cluster_exists(
    request: &Request,
    lb: &LoadBalancer,
    facts: &impl ValidationFacts,
) -> Result<(), Denial> {
    let cluster = guest_cluster::of_load_balancer(lb);
    let is_cluster_type = lb.spec.workload() == WorkloadType::Cluster;
    let Some(cluster) = cluster.filter(|c| is_cluster_type && *c != UNNAMED_CLUSTER) else {
        return Ok(());
    };
    let removed = facts.removed_clusters();
    let removed = removed.map_err(|Incomplete| Denial::NotReady(Fact::VirtualMachines))?;
    match removed.machine_of(&request.namespace, cluster) {
        None => Ok(()),
        Some(machine) => {
            let object = format!("LoadBalancer {}", request.key());
            let reason = format!(
                "metadata.labels[{:?}] is {cluster:?}, a guest cluster that is being removed: VirtualMachine {}/{machine} has the annotation {}",
                keys::LABEL_CLOUDPROVIDER_CLUSTER,
                request.namespace,
                keys::ANNOTATION_REMOVE_ALL_PVCS,
            );
            Err(Refusal::new(&object, &reason, "WV-10").into())
        }
    }
}

/// REQ-3: the load balancer will wait for the address that it requests, because another one holds it, or no pool has it, or each that
/// has it excludes it or has it as a gateway. What is not known is not warned about.
fn requested_warning(
    request: &Request,
    lb: &LoadBalancer,
    facts: &impl ValidationFacts,
) -> Option<Warning> {
    let RequestedAddress::Of(address) = requested_address(&lb.metadata) else {
        return None;
    };
    let named = lb.spec.ip_pool.as_deref().filter(|name| !name.is_empty());
    let holder = facts.allocated().ok();
    let holder = holder.and_then(|allocated| allocated.holder_of(address));
    let has_it = holder.is_some_and(|holder| is_own(request, holder));
    let why = if let Some(holder) = holder.filter(|_| !has_it) {
        format!("{address} is allocated to {holder}")
    } else {
        let refusals = facts.pools().ok()?.refusals(named, address)?;
        match named {
            Some(name) if refusals.is_empty() => {
                format!("IPPool {name}, which spec.ipPool names, does not have {address}")
            }
            None if refusals.is_empty() => format!("no IPPool has {address}"),
            // It keeps what it has (IPA-7, EXC-3).
            _ if has_it => return None,
            _ => Explanation::new(refusals, Explanation::SHOWN).to_string(),
        }
    };
    Some(Warning::new(&format!(
        "annotation {}: {why}: the load balancer gets no other address, and waits for it",
        keys::ANNOTATION_REQUESTED_ADDRESS
    )))
}

/// Whether the holder of an address is the load balancer of the request.
fn is_own(request: &Request, holder: Holder<'_>) -> bool {
    matches!(holder, Holder::Record(owner)
        if (owner.namespace(), owner.name()) == (&*request.namespace, &*request.name))
}

/// KVA-1, KVA-2: annotations for kube-vip that are not passed on to it.
fn annotation_warnings(lb: &LoadBalancer, facts: &impl ValidationFacts) -> Vec<Warning> {
    match lb.spec.workload() {
        WorkloadType::Vm => kube_vip_annotations::warnings(&lb.metadata, facts.interfaces())
            .map(|text| Warning::new(&text))
            .collect(),
        WorkloadType::Cluster => Vec::new(),
    }
}

/// Listeners of VM type whose port the hosts use too.
fn listener_warnings(lb: &LoadBalancer) -> impl Iterator<Item = Warning> {
    let listeners = lb.spec.listeners.as_deref().unwrap_or_default();
    let is_vm_type = lb.spec.workload() == WorkloadType::Vm;
    let listeners = listeners.iter().enumerate().filter(move |_| is_vm_type);
    listeners.filter_map(|(index, listener)| {
        let protocol = validation::protocol(index, &listener.protocol).ok()?;
        let port = listener.port;
        let user = host_ports::user_of(protocol, port)?;
        Some(Warning::new(&format!(
            "spec.listeners[{index}].port is {protocol} {port}, which {user} on the hosts uses too: connections reach the host while the load balancer is not served"
        )))
    })
}

#[cfg(test)]
mod tests;
