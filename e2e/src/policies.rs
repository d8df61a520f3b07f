//! Policies of the API server that refuse requests, as those of an administrator do.

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::World;

const GROUP: &str = "admissionregistration.k8s.io/v1";
const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Makes the API server refuse the requests of a rule for which the CEL expression is false, until [`allow`]. It takes a moment until the
/// policy is in force: wait for a refusal.
pub async fn deny(
    world: &World,
    name: &str,
    rule: Value,
    expression: &str,
    message: &str,
) -> anyhow::Result<()> {
    let metadata = json!({"name": name});
    let policy = json!({
        "apiVersion": GROUP, "kind": POLICY, "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{
                "expression": expression, "message": message, "reason": "Forbidden",
            }],
        },
    });
    world.cluster.apply(&policy).await?;
    let binding = json!({
        "apiVersion": GROUP, "kind": BINDING, "metadata": metadata,
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    world.cluster.apply(&binding).await?;
    Ok(())
}

/// Ends a policy.
pub async fn allow(world: &World, name: &str) -> anyhow::Result<()> {
    let api = world.cluster.api(GROUP, BINDING, None).await?;
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}
