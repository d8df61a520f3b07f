//! What the API server must be told (section 1): the two webhook configurations and the conversion stanza of the
//! definition of LoadBalancers, and what of an existing object differs from it. Pure.

use harvester_lb_api::condition::ConditionStatus;
use harvester_lb_api::keys;
use harvester_lb_core::{kube_vip_annotations, status};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    MatchCondition, MutatingWebhook, MutatingWebhookConfiguration, RuleWithOperations,
    ServiceReference, ValidatingWebhook, ValidatingWebhookConfiguration, WebhookClientConfig,
};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceConversion, ServiceReference as ConversionService,
    WebhookClientConfig as ConversionClient, WebhookConversion,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};

use crate::webhook_names::{CONFIGURATION, CONVERSION, MUTATION, Names, SERVICE_PORT, VALIDATION};

/// Time in which the API server expects the answer of validating admission, in seconds: its own default. The answer takes
/// milliseconds; a longer wait would block clients, a shorter one would refuse requests of a busy host.
const VALIDATION_TIMEOUT: i32 = 10;
/// The same for mutating admission, whose failures are ignored: every write to a LoadBalancer, those of the status
/// included, waits that long while no replica answers.
const MUTATION_TIMEOUT: i32 = 5;
/// The same for the warning before a deletion, whose failures are ignored: longer than the live read that it depends on takes at most
/// (SHR-9).
const DELETION_TIMEOUT: i32 = 3;
/// Validating admission judges the spec: a webhook that does not answer must not stop the writes of a status. A definition of
/// somebody else may not require a spec: to read one that is absent would be an error, which refuses the request.
const SPEC_CHANGED: &str = "request.operation != 'UPDATE' || has(object.spec) != has(oldObject.spec) || \
                            (has(object.spec) && object.spec != oldObject.spec)";

/// When validating admission is asked: the spec has changed, or an annotation that is a part of it (section 15), or one for kube-vip was
/// added that is warned about (KVA-1).
fn is_concerned() -> String {
    let quoted = |key: &str| format!("'{key}'");
    let keys = keys::SPEC_ANNOTATIONS.map(quoted);
    let copied = kube_vip_annotations::COPIED.map(quoted);
    let has = |object: &str| format!("has({object}.metadata.annotations)");
    let is_in = |object: &str| format!("({} && k in {object}.metadata.annotations)", has(object));
    format!(
        "{SPEC_CHANGED} || [{}].exists(k, {now} != {before} || \
         ({now} && {before} && object.metadata.annotations[k] != oldObject.metadata.annotations[k])) || \
         ({has_any} && object.metadata.annotations.exists(k, k.startsWith('{prefix}') && !(k in [{copied}]) && !{before}))",
        keys.join(", "),
        now = is_in("object"),
        before = is_in("oldObject"),
        has_any = has("object"),
        prefix = kube_vip_annotations::PREFIX,
        copied = copied.join(", "),
    )
}

/// When the warning before a deletion is asked for: others share the address of the load balancer (SHR-9). Every other deletion calls
/// no webhook. Nothing is read that may be absent: what cannot be evaluated is an error.
fn is_shared() -> String {
    let is = |field: &str, value: &str| format!("has(c.{field}) && c.{field} == '{value}'");
    format!(
        "has(oldObject.status) && has(oldObject.status.conditions) && \
         oldObject.status.conditions.exists(c, {} && {} && {})",
        is("type", status::ADDRESS_SHARED),
        is("status", ConditionStatus::True.as_str()),
        is("reason", status::SHARED_PRIMARY),
    )
}

/// The objects as they must be, for one bundle.
#[derive(Clone, Debug, PartialEq)]
pub struct Desired {
    names: Names,
    /// Certificates of the authorities, PEM.
    bundle: Vec<u8>,
}

impl Desired {
    /// The objects for these names and this bundle, PEM.
    pub fn new(names: Names, bundle: &str) -> Self {
        Self {
            names,
            bundle: bundle.as_bytes().to_vec(),
        }
    }

    /// The ValidatingWebhookConfiguration.
    pub fn validating(&self) -> ValidatingWebhookConfiguration {
        let webhook = ValidatingWebhook {
            admission_review_versions: review_versions(),
            client_config: self.client(VALIDATION),
            failure_policy: Some("Fail".to_owned()),
            match_conditions: Some(vec![MatchCondition {
                expression: is_concerned(),
                name: "spec-changed".to_owned(),
            }]),
            match_policy: Some("Equivalent".to_owned()),
            name: self.names.validator(),
            namespace_selector: Some(LabelSelector::default()),
            object_selector: Some(LabelSelector::default()),
            rules: Some(vec![
                rule("loadbalancers", "Namespaced", &["CREATE", "UPDATE"]),
                rule("ippools", "Cluster", &["CREATE", "UPDATE", "DELETE"]),
            ]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(VALIDATION_TIMEOUT),
        };
        ValidatingWebhookConfiguration {
            metadata: metadata(),
            webhooks: Some(vec![webhook, self.deletion()]),
        }
    }

    /// The warning before the deletion of a load balancer whose address others share (SHR-9). It is a webhook of its own, because it
    /// must not refuse a deletion: not even while nobody answers.
    fn deletion(&self) -> ValidatingWebhook {
        ValidatingWebhook {
            admission_review_versions: review_versions(),
            client_config: self.client(VALIDATION),
            failure_policy: Some("Ignore".to_owned()),
            match_conditions: Some(vec![MatchCondition {
                expression: is_shared(),
                name: "shared-address".to_owned(),
            }]),
            match_policy: Some("Equivalent".to_owned()),
            name: self.names.deletion(),
            namespace_selector: Some(LabelSelector::default()),
            object_selector: Some(LabelSelector::default()),
            rules: Some(vec![rule("loadbalancers", "Namespaced", &["DELETE"])]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(DELETION_TIMEOUT),
        }
    }

    /// The MutatingWebhookConfiguration.
    pub fn mutating(&self) -> MutatingWebhookConfiguration {
        let webhook = MutatingWebhook {
            admission_review_versions: review_versions(),
            client_config: self.client(MUTATION),
            failure_policy: Some("Ignore".to_owned()),
            match_conditions: None,
            match_policy: Some("Equivalent".to_owned()),
            name: self.names.mutator(),
            namespace_selector: Some(LabelSelector::default()),
            object_selector: Some(LabelSelector::default()),
            reinvocation_policy: Some("Never".to_owned()),
            rules: Some(vec![
                rule("loadbalancers", "Namespaced", &["CREATE", "UPDATE"]),
                rule("ippools", "Cluster", &["CREATE", "UPDATE"]),
            ]),
            side_effects: "None".to_owned(),
            timeout_seconds: Some(MUTATION_TIMEOUT),
        };
        MutatingWebhookConfiguration {
            metadata: metadata(),
            webhooks: Some(vec![webhook]),
        }
    }

    /// The conversion stanza of the definition of LoadBalancers (2.4).
    pub fn conversion(&self) -> CustomResourceConversion {
        CustomResourceConversion {
            strategy: "Webhook".to_owned(),
            webhook: Some(WebhookConversion {
                client_config: Some(ConversionClient {
                    ca_bundle: Some(ByteString(self.bundle.clone())),
                    service: Some(ConversionService {
                        name: self.names.service.clone(),
                        namespace: self.names.namespace.clone(),
                        path: Some(CONVERSION.to_owned()),
                        port: Some(SERVICE_PORT),
                    }),
                    url: None,
                }),
                conversion_review_versions: vec!["v1".to_owned()],
            }),
        }
    }

    fn client(&self, path: &str) -> WebhookClientConfig {
        WebhookClientConfig {
            ca_bundle: Some(ByteString(self.bundle.clone())),
            service: Some(ServiceReference {
                name: self.names.service.clone(),
                namespace: self.names.namespace.clone(),
                path: Some(path.to_owned()),
                port: Some(SERVICE_PORT),
            }),
            url: None,
        }
    }
}

fn metadata() -> ObjectMeta {
    ObjectMeta {
        name: Some(CONFIGURATION.to_owned()),
        ..ObjectMeta::default()
    }
}

fn review_versions() -> Vec<String> {
    vec!["v1".to_owned(), "v1beta1".to_owned()]
}

fn rule(resource: &str, scope: &str, operations: &[&str]) -> RuleWithOperations {
    let list = |items: &[&str]| Some(items.iter().map(|item| (*item).to_owned()).collect());
    RuleWithOperations {
        api_groups: list(&[harvester_lb_api::GROUP]),
        // With the match policy Equivalent, requests in v1alpha1 arrive converted.
        api_versions: list(&["v1beta1"]),
        operations: list(operations),
        resources: list(&[resource]),
        scope: Some(scope.to_owned()),
    }
}

/// How an object calls a webhook: its Service (namespace and name), if it does so by Service, and its bundle.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Call {
    /// Namespace and name of the Service.
    pub service: Option<(String, String)>,
    /// Certificates of the authorities, PEM.
    pub bundle: String,
}

impl Call {
    /// Whether it is a call of this webhook.
    pub fn is_of(&self, names: &Names) -> bool {
        let service = self.service.as_ref();
        service.is_some_and(|(ns, name)| *ns == names.namespace && *name == names.service)
    }
}

/// Whether one of the calls of an object is one of this webhook.
pub fn is_called(calls: &[Call], names: &Names) -> bool {
    calls.iter().any(|call| call.is_of(names))
}

/// The calls of a webhook configuration.
pub fn calls<'a>(clients: impl Iterator<Item = &'a WebhookClientConfig>) -> Vec<Call> {
    let call = |client: &WebhookClientConfig| Call {
        service: client
            .service
            .as_ref()
            .map(|s| (s.namespace.clone(), s.name.clone())),
        bundle: text(client.ca_bundle.as_ref()),
    };
    clients.map(call).collect()
}

/// The call of a conversion stanza, if its strategy is Webhook.
pub fn conversion_call(conversion: Option<&CustomResourceConversion>) -> Option<Call> {
    let conversion = conversion.filter(|c| c.strategy == "Webhook")?;
    let client = conversion.webhook.as_ref()?.client_config.as_ref()?;
    Some(Call {
        service: client
            .service
            .as_ref()
            .map(|s| (s.namespace.clone(), s.name.clone())),
        bundle: text(client.ca_bundle.as_ref()),
    })
}

fn text(bytes: Option<&ByteString>) -> String {
    let bytes = bytes.map_or(&[][..], |bytes| &bytes.0);
    String::from_utf8_lossy(bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired() -> Desired {
        let names = Names {
            namespace: "ns".to_owned(),
            service: "svc".to_owned(),
        };
        Desired::new(names, "PEM")
    }

    #[test]
    fn section_1_the_validating_configuration() {
        let object = desired().validating();
        assert_eq!(object.metadata.name.as_deref(), Some(CONFIGURATION));
        let webhook = object.webhooks.unwrap().remove(0);
        assert_eq!(webhook.name, "validator.ns.harvester-load-balancer-webhook");
        assert_eq!(webhook.failure_policy.as_deref(), Some("Fail"));
        assert_eq!(webhook.side_effects, "None");
        assert_eq!(webhook.admission_review_versions, ["v1", "v1beta1"]);
        let conditions = webhook.match_conditions.unwrap();
        assert_eq!(conditions.len(), 1);
        let expression = &*conditions[0].expression;
        assert!(
            expression.starts_with(
                "request.operation != 'UPDATE' || has(object.spec) != has(oldObject.spec) || \
                 (has(object.spec) && object.spec != oldObject.spec) || ['loadbalancer.harvesterhci.io/requested-address', "
            ),
            "{expression}"
        );
        assert_eq!(conditions[0].name, "spec-changed");
        let rules: Vec<_> = webhook
            .rules
            .unwrap()
            .into_iter()
            .map(|r| (r.resources.unwrap().remove(0), r.operations.unwrap()))
            .collect();
        assert_eq!(rules[0].0, "loadbalancers");
        assert_eq!(rules[0].1, ["CREATE", "UPDATE"]);
        assert_eq!(rules[1].0, "ippools");
        assert_eq!(rules[1].1, ["CREATE", "UPDATE", "DELETE"]);
        let service = webhook.client_config.service.unwrap();
        assert_eq!(service.path.as_deref(), Some("/v1/webhook/validation"));
        assert_eq!((&*service.namespace, &*service.name), ("ns", "svc"));
    }

    #[test]
    fn shr_9_a_webhook_of_its_own_warns_before_the_deletion_of_a_primary() {
        let webhooks = desired().validating().webhooks.unwrap();
        assert_eq!(webhooks.len(), 2);
        let webhook = &webhooks[1];
        assert_eq!(webhook.name, "deletion.ns.harvester-load-balancer-webhook");
        // Nothing that it does may stop a deletion.
        assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
        assert_eq!(webhook.side_effects, "None");
        assert_eq!(webhook.timeout_seconds, Some(3));
        assert_eq!(webhook.client_config, webhooks[0].client_config);
        let [rule] = webhook.rules.as_deref().unwrap() else {
            panic!("{:?}", webhook.rules)
        };
        assert_eq!(rule.resources.as_deref().unwrap(), ["loadbalancers"]);
        assert_eq!(rule.operations.as_deref().unwrap(), ["DELETE"]);
        let [condition] = webhook.match_conditions.as_deref().unwrap() else {
            panic!("{:?}", webhook.match_conditions)
        };
        assert_eq!(
            condition.expression,
            "has(oldObject.status) && has(oldObject.status.conditions) && \
             oldObject.status.conditions.exists(c, has(c.type) && c.type == 'AddressShared' && \
             has(c.status) && c.status == 'True' && has(c.reason) && c.reason == 'Primary')"
        );
        // The names in a configuration must differ, and what refuses is asked about no deletion of a load balancer.
        assert_ne!(webhooks[0].name, webhook.name);
        let rules = webhooks[0].rules.as_deref().unwrap().iter();
        let mut of_lbs =
            rules.filter(|rule| rule.resources.as_deref() == Some(&["loadbalancers".to_owned()]));
        let operations = of_lbs.next().and_then(|rule| rule.operations.as_deref());
        assert_eq!(operations.unwrap(), ["CREATE", "UPDATE"]);
    }

    #[test]
    fn shr_1_a_change_of_each_annotation_of_the_spec_is_judged() {
        let expression = is_concerned();
        for key in [
            keys::ANNOTATION_REQUESTED_ADDRESS,
            keys::ANNOTATION_PRIMARY,
            keys::ANNOTATION_DHCP_HARDWARE_ADDRESS,
            keys::ANNOTATION_EXCLUDE,
            keys::ANNOTATION_KUBE_VIP_INTERFACE,
        ] {
            assert!(expression.contains(&format!("'{key}'")), "{key}");
        }
        assert!(expression.contains("k.startsWith('kube-vip.io/') && !(k in ['kube-vip.io/"));
    }

    #[test]
    fn section_1_the_mutating_configuration() {
        let webhook = desired().mutating().webhooks.unwrap().remove(0);
        assert_eq!(webhook.name, "mutator.ns.harvester-load-balancer-webhook");
        assert_eq!(webhook.failure_policy.as_deref(), Some("Ignore"));
        assert_eq!(webhook.side_effects, "None");
        assert_eq!(webhook.match_conditions, None);
        let service = webhook.client_config.service.unwrap();
        assert_eq!(service.path.as_deref(), Some("/v1/webhook/mutation"));
    }

    #[test]
    fn section_1_the_conversion_stanza() {
        let stanza = desired().conversion();
        let call = conversion_call(Some(&stanza)).unwrap();
        assert_eq!(call.bundle, "PEM");
        assert!(call.is_of(&desired().names));
        let webhook = stanza.webhook.clone().unwrap();
        assert_eq!(webhook.conversion_review_versions, ["v1"]);
        let service = webhook.client_config.unwrap().service.unwrap();
        assert_eq!(service.path.as_deref(), Some("/v1/webhook/conversion"));
        assert_eq!(conversion_call(None), None);
        let none = CustomResourceConversion {
            strategy: "None".to_owned(),
            ..stanza
        };
        assert_eq!(conversion_call(Some(&none)), None);
    }

    #[test]
    fn section_1_the_calls_of_another_are_not_this_webhook_s() {
        let names = desired().names;
        let mut webhooks = desired().validating().webhooks.unwrap();
        webhooks.truncate(1);
        let of = |webhooks: &[ValidatingWebhook]| calls(webhooks.iter().map(|w| &w.client_config));
        assert!(of(&webhooks).iter().all(|call| call.is_of(&names)));
        let client = &mut webhooks[0].client_config;
        client.service.as_mut().unwrap().name = "other".to_owned();
        assert!(!of(&webhooks)[0].is_of(&names));
        let client = &mut webhooks[0].client_config;
        (client.service, client.url) = (None, Some("https://x".to_owned()));
        assert_eq!(of(&webhooks)[0].service, None);
        assert!(!of(&webhooks)[0].is_of(&names));
        // One call of this webhook is enough: the API server depends on its Service by then.
        assert!(!is_called(&of(&webhooks), &names));
        assert!(!is_called(&[], &names));
        webhooks.extend(desired().validating().webhooks.unwrap());
        assert!(is_called(&of(&webhooks), &names));
    }
}
