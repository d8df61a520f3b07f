//! What decides whether the operator can work at all, apart from the objects that it manages: the leader, webhooks, the
//! definitions of its kinds.

use std::collections::BTreeSet;

use harvester_lb_api::{GROUP, keys};
use harvester_lb_object::Key;
use k8s_openapi::api::admissionregistration::v1::{
    MutatingWebhookConfiguration, RuleWithOperations, ServiceReference,
    ValidatingWebhookConfiguration,
};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;

use crate::finding::{Finding, ObjectRef};
use crate::kinds::{self, Kind};
use crate::leader::Leader;

/// Namespace of Harvester's own Deployment.
pub const DEPLOYMENT_NAMESPACE: &str = "harvester-system";
/// Name of Harvester's own Deployment, which runs the Go operator unless its image was replaced.
pub const DEPLOYMENT_NAME: &str = "harvester-load-balancer";

/// The objects around those that the operator manages. A part that was not read is empty.
#[derive(Clone, Debug, Default)]
pub struct Surroundings {
    /// All of them.
    pub validating: Vec<ValidatingWebhookConfiguration>,
    /// All of them.
    pub mutating: Vec<MutatingWebhookConfiguration>,
    /// The definitions of the operator's group.
    pub crds: Vec<CustomResourceDefinition>,
    /// Harvester's own Deployment.
    pub deployment: Option<Deployment>,
    /// Services with a ready endpoint.
    pub ready_services: BTreeSet<Key>,
}

/// A kind that the operator writes: API group and plural name.
const WRITTEN: [(&str, &str); 5] = [
    (GROUP, "loadbalancers"),
    (GROUP, "ippools"),
    (GROUP, "ipallocations"),
    ("", "services"),
    ("discovery.k8s.io", "endpointslices"),
];

/// Checks leader, webhooks and definitions. `leader`: `None` if the Lease was not read.
pub fn check_surroundings(around: &Surroundings, leader: Option<&Leader>) -> Vec<Finding> {
    let mut findings = Vec::new();
    if let Some(leader) = leader {
        check_leader(around, leader, &mut findings);
    }
    for webhook in webhooks(around) {
        findings.extend(check_webhook(around, &webhook));
    }
    for crd in &around.crds {
        check_crd(around, crd, &mut findings);
    }
    findings
}

fn definition(plural: &str) -> ObjectRef {
    ObjectRef::cluster("CustomResourceDefinition", format!("{plural}.{GROUP}"))
}

/// OPS-2: whether another operator leads or stands by.
fn check_leader(around: &Surroundings, leader: &Leader, findings: &mut Vec<Finding>) {
    let lease = Key::new(keys::LEASE_NAMESPACE, keys::LEASE_NAME);
    let lease = ObjectRef::namespaced("Lease", &lease);
    let holder = match leader {
        Leader::Go(holder) => {
            let text = format!("its holder is {holder}, a process of the Go operator");
            findings.push(Finding::new(
                &kinds::GO_OPERATOR_LEADS,
                "OPS-2",
                lease,
                text,
            ));
            return;
        }
        Leader::This(holder) => Some(holder),
        Leader::None => {
            let text = "has no holder that renews it".to_owned();
            findings.push(Finding::new(&kinds::NO_LEADER, "section 1", lease, text));
            None
        }
    };
    let spec = around.deployment.as_ref().and_then(|it| it.spec.as_ref());
    let replicas = spec.map_or(0, |spec| spec.replicas.unwrap_or(1));
    // Names of Pods begin with the name of their Deployment.
    let is_own = holder.is_some_and(|it| it.starts_with(&format!("{DEPLOYMENT_NAME}-")));
    if replicas > 0 && !is_own {
        let key = Key::new(DEPLOYMENT_NAMESPACE, DEPLOYMENT_NAME);
        let object = ObjectRef::namespaced("Deployment", &key);
        let text = format!("has {replicas} replicas, and none of them holds the Lease");
        findings.push(Finding::new(
            &kinds::OTHER_DEPLOYMENT,
            "OPS-2",
            object,
            text,
        ));
    }
}

/// A webhook of either kind of configuration.
struct Webhook<'a> {
    configuration: ObjectRef,
    name: &'a str,
    /// None: it is asked by URL, which cannot be judged.
    service: Option<&'a ServiceReference>,
    policy: Option<&'a str>,
    rules: &'a [RuleWithOperations],
}

/// The webhooks of all configurations.
fn webhooks(around: &Surroundings) -> impl Iterator<Item = Webhook<'_>> {
    // Both kinds have the same fields, and no trait in common.
    macro_rules! of_kind {
        ($configurations:expr, $kind:literal) => {
            $configurations.iter().flat_map(|configuration| {
                let name = configuration.metadata.name.clone().unwrap_or_default();
                let hooks = configuration.webhooks.iter().flatten();
                hooks.map(move |hook| Webhook {
                    configuration: ObjectRef::cluster($kind, name.clone()),
                    name: &hook.name,
                    service: hook.client_config.service.as_ref(),
                    policy: hook.failure_policy.as_deref(),
                    rules: hook.rules.as_deref().unwrap_or_default(),
                })
            })
        };
    }
    of_kind!(around.validating, "ValidatingWebhookConfiguration")
        .chain(of_kind!(around.mutating, "MutatingWebhookConfiguration"))
}

/// Reports a webhook that refuses writes of the operator because no program answers for it.
fn check_webhook(around: &Surroundings, webhook: &Webhook<'_>) -> Option<Finding> {
    // An absent policy is Fail.
    if webhook.policy.is_some_and(|policy| policy != "Fail") {
        return None;
    }
    let affected: Vec<&str> = WRITTEN
        .into_iter()
        .filter(|(group, plural)| {
            let mut rules = webhook.rules.iter();
            rules.any(|rule| concerns(rule, group, plural))
        })
        .map(|(_, plural)| plural)
        .collect();
    let service = unreachable(around, webhook.service)?;
    if affected.is_empty() {
        return None;
    }
    let text = format!(
        "webhook {} asks Service {service}, which has no ready endpoint, about writes of {}",
        webhook.name,
        affected.join(", ")
    );
    let kind = &kinds::WEBHOOK_UNREACHABLE;
    let object = webhook.configuration.clone();
    Some(Finding::new(kind, "section 1", object, text))
}

/// The Service of a webhook, if it has no ready endpoint.
fn unreachable(around: &Surroundings, service: Option<&ServiceReference>) -> Option<Key> {
    let key = service.map(|service| Key::new(&service.namespace, &service.name))?;
    (!around.ready_services.contains(&key)).then_some(key)
}

/// Whether a rule of a webhook matches writes of a kind.
fn concerns(rule: &RuleWithOperations, group: &str, plural: &str) -> bool {
    let has = |list: &Option<Vec<String>>, wanted: &dyn Fn(&str) -> bool| {
        list.iter().flatten().any(|entry| wanted(entry))
    };
    has(&rule.operations, &|operation| operation != "CONNECT")
        && has(&rule.api_groups, &|entry| entry == "*" || entry == group)
        && has(&rule.resources, &|entry| {
            matches!(entry, "*" | "*/*") || entry == plural || entry == format!("{plural}/*")
        })
}

/// Reports whose definition it is, and a conversion webhook that does not answer.
fn check_crd(around: &Surroundings, crd: &CustomResourceDefinition, findings: &mut Vec<Finding>) {
    let plural = &*crd.spec.names.plural;
    let mut add = |kind: &'static Kind, rule: &'static str, text: String| {
        findings.push(Finding::new(kind, rule, definition(plural), text));
    };
    let is_old = plural == "loadbalancers" || plural == "ippools";
    let columns = crd.spec.versions.iter();
    let mut columns = columns.flat_map(|v| v.additional_printer_columns.iter().flatten());
    if is_old && !columns.any(|column| column.name == "READY") {
        let versions: Vec<&str> = crd.spec.versions.iter().map(|v| &*v.name).collect();
        let text = format!("is Harvester's definition, with {}", versions.join(", "));
        add(&kinds::CRD_OF_HARVESTER, "section 1", text);
    }
    let conversion = crd.spec.conversion.as_ref();
    let webhook = conversion.and_then(|it| it.webhook.as_ref()?.client_config.as_ref());
    let service = webhook.and_then(|client| client.service.as_ref());
    let service = service.map(|service| Key::new(&service.namespace, &service.name));
    if let Some(service) = service.filter(|key| !around.ready_services.contains(key)) {
        let status = crd.status.as_ref();
        let stored = status.and_then(|status| status.stored_versions.as_deref());
        let others = stored.unwrap_or_default().iter();
        let others: Vec<&str> = others.map(|v| &**v).filter(|v| *v != "v1beta1").collect();
        if others.is_empty() {
            let text = format!("conversion asks Service {service}, which has no ready endpoint");
            add(&kinds::CONVERSION_UNREACHABLE_UNUSED, "section 1", text);
        } else {
            let text = format!(
                "objects may be stored as {}, and conversion asks Service {service}, which has no ready endpoint",
                others.join(", ")
            );
            add(&kinds::CONVERSION_UNREACHABLE, "section 1", text);
        }
    }
}
