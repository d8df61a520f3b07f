//! What the status says of a shared address: the role of the load balancer, or why it does not share one.

use harvester_lb_api::condition::{self, ConditionStatus};
use harvester_lb_api::meta::annotation;
use harvester_lb_api::{LoadBalancer, keys};

use super::group::Role;
use crate::status::{self, ExtraCondition};

/// The condition `AddressShared`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shared {
    /// Others share its address.
    Primary,
    /// Its address is that of this load balancer.
    Secondary(String),
    /// Its address was that of this load balancer, which is gone (SHR-5).
    Holder(String),
    /// It asks for the address of another one, and has one of its own: reason and message.
    Refused(&'static str, String),
}

impl Shared {
    /// The condition of a load balancer with this address. It names no other that shares it, so that a join writes no status but its
    /// own (SHR-4).
    pub fn condition(&self, address: &str) -> ExtraCondition {
        let (reason, message) = match self {
            Self::Primary => (
                status::SHARED_PRIMARY,
                format!("other load balancers share {address}"),
            ),
            Self::Secondary(primary) => (
                status::SHARED_SECONDARY,
                format!("{address} is the address of load balancer {primary}"),
            ),
            Self::Holder(group) => (
                status::SHARED_HOLDER,
                format!(
                    "{address} was the address of load balancer {group}, which is gone, and belongs to this load balancer now"
                ),
            ),
            Self::Refused(reason, why) => {
                let message = Some(format!("{address} is served meanwhile: {why}"));
                return ExtraCondition::denied(status::ADDRESS_SHARED, reason, message);
            }
        };
        ExtraCondition {
            reason,
            ..ExtraCondition::new(status::ADDRESS_SHARED, Some(message))
        }
    }
}

/// The message for one that cannot share the address of a group because somebody else has a Service of the group's name (SVC-1).
pub fn group_name_taken(group: &str) -> String {
    format!(
        "Service {group} exists and is not that of load balancer {group}, whose address this one asks for: rename that load balancer, or delete the Service"
    )
}

/// Reason and message of a load balancer that does not share the address that it asks for, or whose name others share; `None` if it
/// is served in its group.
pub fn refusal(role: &Role) -> Option<(&'static str, String)> {
    match role {
        Role::Member { .. } => None,
        Role::NameTaken => Some((
            status::NAME_CONFLICT,
            format!(
                "other load balancers share the address of an earlier one of this name (annotation {}): rename this load balancer; it is served once none of them does",
                keys::ANNOTATION_PRIMARY
            ),
        )),
        Role::Refused(why) => Some((why.reason(), why.to_string())),
        Role::PortConflict(why) => Some((status::PORT_CONFLICT, why.to_string())),
    }
}

/// Whether the address in the status of a load balancer is that of another one, and so no claim (SHR-3): it names a primary, or did so
/// when its status was written.
pub fn is_of_another(lb: &LoadBalancer) -> bool {
    annotation(&lb.metadata, keys::ANNOTATION_PRIMARY).is_some() || was_of_another(lb)
}

/// Whether the address in the status of a load balancer was that of another one when it was written.
pub fn was_of_another(lb: &LoadBalancer) -> bool {
    let shared = condition::find(status::conditions(lb), status::ADDRESS_SHARED);
    shared.is_some_and(|it| {
        let role = it.reason.as_deref();
        let is_others = |role| [status::SHARED_SECONDARY, status::SHARED_HOLDER].contains(&role);
        it.status == ConditionStatus::True.as_str() && role.is_some_and(is_others)
    })
}

/// Whether the address in the status of a load balancer was that of this group when it was written.
pub fn was_of(lb: &LoadBalancer, group: &str) -> bool {
    let Some(address) = status::allocated(lb) else {
        return false;
    };
    let told = condition::find(status::conditions(lb), status::ADDRESS_SHARED);
    let is_told = |role: Shared| {
        let told_so = role.condition(address);
        told.is_some_and(|it| {
            it.reason.as_deref() == Some(told_so.reason) && it.message == told_so.message
        })
    };
    is_told(Shared::Secondary(group.to_owned())) || is_told(Shared::Holder(group.to_owned()))
}
