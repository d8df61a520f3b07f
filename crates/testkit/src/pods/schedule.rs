//! Owns the choice of a Pod's node, as far as Pods of tests restrict it. Pure.
//!
//! Respected: cordons, taints and tolerations, nodeSelector, node affinity, pod anti-affinity (required terms of this Pod
//! and of those on the node, preferred terms of this one), host ports. Else the node with the fewest Pods, in the order
//! of names. Not: resources, topology spread, priorities.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Affinity, Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, PodAffinityTerm, Taint,
    Toleration,
};
use kube::core::{Selector, SelectorExt};
use kube::{Resource, ResourceExt};

/// Taint that a cordon stands for.
const CORDON: &str = "node.kubernetes.io/unschedulable";

/// The node for a Pod, or why there is none. `placed` are the Pods that have a node and are not over.
pub(crate) fn choose(pod: &Pod, nodes: &[Node], placed: &[&Pod]) -> Result<String, String> {
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    let mut best = None;
    for node in nodes {
        if let Err(reason) = fits(pod, node, nodes, placed) {
            *reasons.entry(reason).or_default() += 1;
            continue;
        }
        let name = node.name_any();
        let (preference, load) = score(pod, node, nodes, placed);
        let rank = (Reverse(preference), load, name);
        if best.as_ref().is_none_or(|known| rank < *known) {
            best = Some(rank);
        }
    }
    best.map(|(_, _, name)| name).ok_or_else(|| {
        let reasons: Vec<String> = reasons
            .iter()
            .map(|(reason, count)| format!("{count} {reason}"))
            .collect();
        format!(
            "0/{} nodes are available: {}.",
            nodes.len(),
            reasons.join(", ")
        )
    })
}

fn fits(pod: &Pod, node: &Node, nodes: &[Node], placed: &[&Pod]) -> Result<(), &'static str> {
    let spec = pod.spec.as_ref();
    let tolerations = spec
        .and_then(|s| s.tolerations.as_deref())
        .unwrap_or_default();
    if !taints(node)
        .iter()
        .all(|taint| tolerated(taint, tolerations))
    {
        return Err("node(s) had untolerated taint(s)");
    }
    let labels = node.labels();
    let mut wanted = spec
        .into_iter()
        .flat_map(|s| s.node_selector.iter().flatten());
    if !wanted.all(|(key, value)| labels.get(key) == Some(value)) || !node_affinity(pod, node) {
        return Err("node(s) didn't match Pod's node affinity/selector");
    }
    for other in placed {
        if on_node(other, node)
            && !host_ports(pod)
                .iter()
                .all(|p| !host_ports(other).contains(p))
        {
            return Err("node(s) didn't have free ports for the requested pod ports");
        }
        let apart = required(pod).any(|term| conflicts(term, pod, other, node, nodes))
            || required(other).any(|term| {
                term_matches(term, other, pod)
                    && same_topology(&term.topology_key, other, node, nodes)
            });
        if apart {
            return Err("node(s) didn't match pod anti-affinity rules");
        }
    }
    Ok(())
}

/// How well a node fits: the preference, and the number of Pods that it has.
fn score(pod: &Pod, node: &Node, nodes: &[Node], placed: &[&Pod]) -> (i32, usize) {
    let mut preference = 0;
    let terms = affinity(pod)
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    for term in terms.into_iter().flatten() {
        if node_term(&term.preference, node) {
            preference += term.weight;
        }
    }
    let terms = affinity(pod)
        .and_then(|a| a.pod_anti_affinity.as_ref())
        .and_then(|a| {
            a.preferred_during_scheduling_ignored_during_execution
                .as_ref()
        });
    for term in terms.into_iter().flatten() {
        let near = placed
            .iter()
            .filter(|other| conflicts(&term.pod_affinity_term, pod, other, node, nodes));
        preference -= term.weight * i32::try_from(near.count()).unwrap_or(i32::MAX);
    }
    (
        preference,
        placed.iter().filter(|other| on_node(other, node)).count(),
    )
}

/// Taints that keep Pods away, a cordon among them.
fn taints(node: &Node) -> Vec<Taint> {
    let spec = node.spec.as_ref();
    let mut taints: Vec<Taint> = spec.and_then(|s| s.taints.clone()).unwrap_or_default();
    taints.retain(|taint| taint.effect != "PreferNoSchedule");
    if spec.is_some_and(|s| s.unschedulable == Some(true)) {
        taints.push(Taint {
            key: CORDON.into(),
            effect: "NoSchedule".into(),
            ..Taint::default()
        });
    }
    taints
}

fn tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| {
        let text = |value: &Option<String>| value.clone().unwrap_or_default();
        let key = text(&toleration.key);
        let effect = text(&toleration.effect);
        let exists = toleration.operator.as_deref() == Some("Exists");
        (key == taint.key || (key.is_empty() && exists))
            && (effect.is_empty() || effect == taint.effect)
            && (exists || text(&toleration.value) == text(&taint.value))
    })
}

fn affinity(pod: &Pod) -> Option<&Affinity> {
    pod.spec.as_ref()?.affinity.as_ref()
}

/// True if the node matches one of the required terms, or there are none.
fn node_affinity(pod: &Pod, node: &Node) -> bool {
    affinity(pod)
        .and_then(|a| a.node_affinity.as_ref())
        .and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .is_none_or(|required| {
            required
                .node_selector_terms
                .iter()
                .any(|t| node_term(t, node))
        })
}

/// An empty term matches nothing.
fn node_term(term: &NodeSelectorTerm, node: &Node) -> bool {
    let name = node.name_any();
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    (!labels.is_empty() || !fields.is_empty())
        && labels
            .iter()
            .all(|r| requirement(r, node.labels().get(&r.key).map(String::as_str)))
        && fields.iter().all(|r| requirement(r, Some(&name)))
}

fn requirement(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().flatten().any(|v| v == value);
    let number = |text: &str| text.parse::<i64>().ok();
    let bound = requirement
        .values
        .iter()
        .flatten()
        .next()
        .and_then(|v| number(v));
    match requirement.operator.as_str() {
        "In" => value.is_some_and(listed),
        "NotIn" => !value.is_some_and(listed),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(v, b)| v > b),
        "Lt" => value
            .and_then(number)
            .zip(bound)
            .is_some_and(|(v, b)| v < b),
        _ => false,
    }
}

/// The required terms of a Pod's anti-affinity.
fn required(pod: &Pod) -> impl Iterator<Item = &PodAffinityTerm> {
    affinity(pod)
        .and_then(|a| a.pod_anti_affinity.as_ref())
        .and_then(|a| {
            a.required_during_scheduling_ignored_during_execution
                .as_ref()
        })
        .into_iter()
        .flatten()
}

/// True if `other` is too near to `node`, by a term of `pod`.
fn conflicts(term: &PodAffinityTerm, pod: &Pod, other: &Pod, node: &Node, nodes: &[Node]) -> bool {
    term_matches(term, pod, other) && same_topology(&term.topology_key, other, node, nodes)
}

/// True if a term of `owner` means `other`. A term with a selector of namespaces means all of them.
fn term_matches(term: &PodAffinityTerm, owner: &Pod, other: &Pod) -> bool {
    let named = term.namespaces.as_deref().unwrap_or_default();
    let namespace = other.namespace().unwrap_or_default();
    let in_scope = term.namespace_selector.is_some()
        || named.contains(&namespace)
        || (named.is_empty() && owner.namespace() == other.namespace());
    let selector = term.label_selector.clone().map(Selector::try_from);
    let selected = selector.is_some_and(|s| s.is_ok_and(|s| s.matches(other.labels())));
    in_scope && selected
}

fn same_topology(key: &str, placed: &Pod, node: &Node, nodes: &[Node]) -> bool {
    let its = nodes.iter().find(|n| on_node(placed, n));
    let value = node.labels().get(key);
    value.is_some() && its.is_some_and(|its| its.labels().get(key) == value)
}

fn on_node(pod: &Pod, node: &Node) -> bool {
    let name = pod.spec.as_ref().and_then(|s| s.node_name.as_ref());
    name.is_some() && name == node.meta().name.as_ref()
}

fn host_ports(pod: &Pod) -> Vec<i32> {
    let containers = pod.spec.iter().flat_map(|s| &s.containers);
    let ports = containers.flat_map(|c| c.ports.iter().flatten());
    ports.filter_map(|port| port.host_port).collect()
}

#[cfg(test)]
mod tests;
