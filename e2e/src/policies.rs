//! Policies of the API server that refuse requests, as those of an administrator do.

use std::fmt::Debug;

use harvester_lb_testkit::eventually;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::World;
use crate::world::SOON;

const GROUP: &str = "admissionregistration.k8s.io/v1";
const POLICY: &str = "ValidatingAdmissionPolicy";
const BINDING: &str = "ValidatingAdmissionPolicyBinding";

/// Makes the API server refuse the requests of a rule for which the CEL expression is false, until [`allow`]. Waits until it is in force:
/// the creation of `probe` is refused.
pub async fn deny<K>(
    world: &World,
    name: &str,
    rule: Value,
    (expression, message): (&str, &str),
    (api, probe): (&Api<K>, &K),
) -> anyhow::Result<()>
where
    K: Clone + Debug + DeserializeOwned + Serialize,
{
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
    let dry = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    eventually("the policy is in force", SOON, || async {
        match api.create(&dry, probe).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(Some(())),
            other => anyhow::bail!("{other:?}"),
        }
    })
    .await
}

/// Ends a policy.
pub async fn allow(world: &World, name: &str) -> anyhow::Result<()> {
    let api = world.cluster.api(GROUP, BINDING, None).await?;
    api.delete(name, &DeleteParams::default()).await?;
    Ok(())
}
