//! The names of the webhook (section 1): its Service, Secrets, configurations, paths.

use std::time::Duration;

use harvester_lb_api::GROUP;

/// Name of the ValidatingWebhookConfiguration and of the MutatingWebhookConfiguration.
pub const CONFIGURATION: &str = "harvester-load-balancer-webhook";
/// Name of the CustomResourceDefinition of LoadBalancers, which has the conversion stanza (2.4).
pub const DEFINITION: &str = "loadbalancers.loadbalancer.harvesterhci.io";
/// Path of validating admission.
pub const VALIDATION: &str = "/v1/webhook/validation";
/// Path of mutating admission.
pub const MUTATION: &str = "/v1/webhook/mutation";
/// Path of conversion.
pub const CONVERSION: &str = "/v1/webhook/conversion";
/// Port of the Service.
pub const SERVICE_PORT: i32 = 443;
/// Field manager of the webhook's writes. Differs from the Go operator's, so that `managedFields` tells the two apart.
pub const FIELD_MANAGER: &str = "harvester-lb-webhook";
/// On the Secret of the authority: the time at which `uninstall-webhook` last said that it is at work. Running replicas
/// register nothing any more, until [`UNINSTALLATION`] after it.
pub const ANNOTATION_UNINSTALLED: &str = "loadbalancer.harvesterhci.io/webhook-uninstalled";

/// Time after which an uninstallation that says nothing more has failed: the webhook registers itself again. The Secret,
/// which belongs to no chart, would otherwise keep every later installation from it. 10 min: ten times the interval.
pub const UNINSTALLATION: Duration = Duration::from_mins(10);
/// Interval at which `uninstall-webhook` says that it is at work.
pub const UNINSTALLATION_INTERVAL: Duration = Duration::from_mins(1);

/// The names that depend on where the webhook runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Names {
    /// Namespace of the webhook, its Service and its Secrets.
    pub namespace: String,
    /// Name of the Service.
    pub service: String,
}

impl Names {
    /// DNS name of the Service: the subject alternative name of the certificate.
    pub fn dns_name(&self) -> String {
        format!("{}.{}.svc", self.service, self.namespace)
    }

    /// Name of the Secret of the authority.
    pub fn authority_secret(&self) -> String {
        format!("{}-ca", self.service)
    }

    /// Name of the Secret of the serving certificate.
    pub fn leaf_secret(&self) -> String {
        format!("{}-tls", self.service)
    }

    /// Name of the webhook in the ValidatingWebhookConfiguration.
    pub fn validator(&self) -> String {
        format!("validator.{}.{CONFIGURATION}", self.namespace)
    }

    /// Name of the webhook in the ValidatingWebhookConfiguration that is asked before a load balancer is deleted whose address others
    /// share (SHR-9).
    pub fn deletion(&self) -> String {
        format!("deletion.{}.{CONFIGURATION}", self.namespace)
    }

    /// Name of the webhook in the MutatingWebhookConfiguration.
    pub fn mutator(&self) -> String {
        format!("mutator.{}.{CONFIGURATION}", self.namespace)
    }
}

/// The API group of the definition, for its name.
const _: () = assert!(DEFINITION.len() == "loadbalancers.".len() + GROUP.len());

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_1_names_follow_namespace_and_service() {
        let names = Names {
            namespace: "harvester-system".to_owned(),
            service: "harvester-load-balancer-webhook".to_owned(),
        };
        assert_eq!(
            names.dns_name(),
            "harvester-load-balancer-webhook.harvester-system.svc"
        );
        assert_eq!(
            names.authority_secret(),
            "harvester-load-balancer-webhook-ca"
        );
        assert_eq!(names.leaf_secret(), "harvester-load-balancer-webhook-tls");
        assert_eq!(
            names.validator(),
            "validator.harvester-system.harvester-load-balancer-webhook"
        );
        assert_eq!(
            names.deletion(),
            "deletion.harvester-system.harvester-load-balancer-webhook"
        );
        assert_eq!(
            names.mutator(),
            "mutator.harvester-system.harvester-load-balancer-webhook"
        );
        assert_eq!(DEFINITION, format!("loadbalancers.{GROUP}"));
    }
}
