//! The process that holds the Lease of the operator, for commands that need it stopped.

use harvester_lb_api::keys;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::Lease;
use kube::{Api, Client};

/// The holder of the Lease now; `None` if it is free or has expired.
///
/// # Errors
/// The Lease cannot be read.
pub(super) async fn current(client: &Client) -> Result<Option<String>, WriteError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), keys::LEASE_NAMESPACE);
    let lease = bounded(leases.get_opt(keys::LEASE_NAME)).await?;
    Ok(lease.and_then(|lease| holder(&lease, Timestamp::now())))
}

/// The holder of a Lease that has not expired at this time. One without a time or a duration does not expire.
fn holder(lease: &Lease, now: Timestamp) -> Option<String> {
    let spec = lease.spec.as_ref()?;
    let holder = spec.holder_identity.clone().filter(|h| !h.is_empty())?;
    if let (Some(renewed), Some(seconds)) = (&spec.renew_time, spec.lease_duration_seconds)
        && renewed.0 + SignedDuration::from_secs(seconds.into()) < now
    {
        return None;
    }
    Some(holder)
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::json;

    use super::*;

    /// Path of the Lease.
    pub(in crate::commands) const PATH: &str =
        "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/harvester-load-balancer";

    /// A Lease of 15 s.
    pub(in crate::commands) fn lease(holder: &str, renewed: &str) -> Lease {
        let spec = json!({
            "holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed,
        });
        serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
    }

    #[test]
    fn ops_2_a_lease_is_held_until_it_expires() {
        let now: Timestamp = "2026-01-01T00:01:00Z".parse().unwrap();
        let cases = [
            ("node1_u", "2026-01-01T00:00:50.000000Z", true),
            ("node1_u", "2026-01-01T00:00:44.000000Z", false),
            ("node1_u", "2026-01-01T00:02:00.000000Z", true),
            // Released.
            ("", "2026-01-01T00:00:59.000000Z", false),
        ];
        for (identity, renewed, held) in cases {
            let found = holder(&lease(identity, renewed), now);
            assert_eq!(found.is_some(), held, "{identity} {renewed}");
        }
        let mut endless = lease("go", "2020-01-01T00:00:00.000000Z");
        endless.spec.as_mut().unwrap().lease_duration_seconds = None;
        assert_eq!(holder(&endless, now), Some("go".to_owned()));
        assert_eq!(holder(&Lease::default(), now), None);
    }
}
