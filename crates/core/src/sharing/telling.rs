//! What the status says of a shared address: the role of the load balancer, or why it does not share one.

use harvester_lb_api::condition::{self, ConditionStatus, READY};
use harvester_lb_api::{LoadBalancer, keys};

use super::group::Role;
use super::ports::Contested;
use crate::spec_annotations::shown;
use crate::status::{self, ExtraCondition};

/// The annotation, in messages.
const KEY: &str = keys::ANNOTATION_PRIMARY;

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
        "annotation {KEY} is {:?}, and Service {group} exists and is not that load balancer's: delete it, or name another load balancer",
        shown(group)
    )
}

/// The message for one that waits until the load balancer of the group's name has an address.
pub fn primary_has_none(group: &str) -> String {
    format!(
        "annotation {KEY} is {:?}, and that load balancer has no address",
        shown(group)
    )
}

/// Reason and message of one whose ports the Service of the group lacks. `refused`: why the API server refuses them.
pub fn ports_to_come(group: &str, refused: Option<&str>) -> (&'static str, String) {
    match refused {
        None => {
            let group = shown(group);
            let message = format!(
                "annotation {KEY} is {group:?}: waiting until Service {group} has the ports of this load balancer"
            );
            (status::WAITING_FOR_PRIMARY, message)
        }
        Some(why) => (status::API_ERROR, refused_ports(group, why)),
    }
}

fn refused_ports(group: &str, why: &str) -> String {
    let group = shown(group);
    format!(
        "annotation {KEY} is {group:?}, and Service {group} cannot be written for this load balancer: {why}"
    )
}

/// Whether a load balancer may wait for its ports on the Service of the group, by what its status says.
pub fn may_wait_for_ports(lb: &LoadBalancer, group: &str) -> bool {
    let Some(ready) = condition::find(status::conditions(lb), READY) else {
        return false;
    };
    let is_refused = || {
        let message = ready.message.as_deref().unwrap_or_default();
        message.starts_with(&refused_ports(group, ""))
    };
    match ready.reason.as_deref() {
        Some(status::WAITING_FOR_PRIMARY) => true,
        Some(status::API_ERROR) => is_refused(),
        _ => false,
    }
}

/// Whether the status of a load balancer does not say that the API server refuses its ports on the Service of the group for this reason.
/// `None`: it does not refuse them, and the status says so.
pub fn is_told_otherwise(lb: &LoadBalancer, group: &str, refused: Option<&str>) -> bool {
    let ready = condition::find(status::conditions(lb), READY);
    let said = ready.and_then(|it| it.reason.as_deref());
    let Some(why) = refused else {
        return said == Some(status::API_ERROR) && may_wait_for_ports(lb, group);
    };
    let message = ready.and_then(|it| it.message.as_deref());
    said != Some(status::API_ERROR) || message != Some(&*refused_ports(group, why))
}

/// The message for one that waits because the Service has another port under a name that it needs.
pub fn port_name_taken(group: &str) -> String {
    let group = shown(group);
    format!(
        "annotation {KEY} is {group:?}, and Service {group} has another port under the name that a port of this load balancer gets; if that stays, rename that listener of load balancer {group}"
    )
}

/// The message for a primary, the load balancer of the group's name, that gets none of its ports because one that shares its address
/// has one of them (SHR-2).
pub fn port_of_secondary(group: &str, why: &Contested) -> String {
    let (port, holder, group) = (why.port, &why.holder, shown(group));
    format!(
        "annotation {KEY} of load balancer {holder} is {group:?}, and port {} {} of this address belongs to {holder}: no port of this load balancer is served",
        port.port, port.protocol
    )
}

/// Reason and message of a load balancer that does not share the address of the group that it names, or whose name others share;
/// `None` if it is served in its group.
pub fn refusal(group: &str, role: &Role) -> Option<(&'static str, String)> {
    let group = shown(group);
    match role {
        Role::Member { .. } => None,
        Role::NameTaken => Some((
            status::NAME_CONFLICT,
            format!(
                "other load balancers share the address of an earlier one of this name (their annotation {KEY} is {group:?}): create this load balancer under another name; it is served under this one once none of them does"
            ),
        )),
        Role::Refused(why) => Some((why.reason(), why.to_string())),
        Role::PortConflict(why) => {
            let (port, holder) = (why.port, &why.holder);
            let message = format!(
                "annotation {KEY} is {group:?}, and port {} {} of that address belongs to {holder}: no port of this load balancer is served",
                port.port, port.protocol
            );
            Some((status::PORT_CONFLICT, message))
        }
    }
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
            it.status == ConditionStatus::True.as_str()
                && it.reason.as_deref() == Some(told_so.reason)
                && it.message == told_so.message
        })
    };
    is_told(Shared::Secondary(group.to_owned())) || is_told(Shared::Holder(group.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sharing::membership::NotAMember;
    use crate::sharing::ports::Served;

    fn contested(holder: &str) -> Contested {
        Contested {
            port: Served {
                port: 81,
                protocol: "TCP",
            },
            holder: holder.to_owned(),
        }
    }

    #[test]
    fn shr_1_every_refusal_names_key_and_value() {
        let conflict = Role::PortConflict(contested("b"));
        let not_found = Role::Refused(NotAMember::NotFound("web".to_owned()));
        for (role, reason, expected) in [
            (
                &Role::NameTaken,
                "NameConflict",
                "other load balancers share the address of an earlier one of this name (their annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\"): create this load balancer under another name; it is served under this one once none of them does",
            ),
            (
                &conflict,
                "PortConflict",
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\", and port 81 TCP of that address belongs to b: no port of this load balancer is served",
            ),
            (
                &not_found,
                "PrimaryNotFound",
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\": there is no such load balancer in this namespace",
            ),
        ] {
            let told = refusal("web", role);
            assert_eq!(told, Some((reason, expected.to_owned())));
        }
        assert_eq!(refusal("web", &Role::Member { is_holder: true }), None);
        assert_eq!(
            primary_has_none("web"),
            "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\", and that load balancer has no address"
        );
        assert_eq!(
            group_name_taken("web"),
            "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\", and Service web exists and is not that load balancer's: delete it, or name another load balancer"
        );
        let (reason, message) = ports_to_come("web", None);
        assert_eq!(
            (reason, &*message),
            (
                "WaitingForPrimary",
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\": waiting until Service web has the ports of this load balancer"
            )
        );
        let (reason, message) = ports_to_come("web", Some("exceeded quota"));
        assert_eq!(
            (reason, &*message),
            (
                "ApiError",
                "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\", and Service web cannot be written for this load balancer: exceeded quota"
            )
        );
        assert_eq!(
            port_name_taken("web"),
            "annotation loadbalancer.harvesterhci.io/primary-load-balancer is \"web\", and Service web has another port under the name that a port of this load balancer gets; if that stays, rename that listener of load balancer web"
        );
        // The primary has no such annotation: it is that of the other one.
        assert_eq!(
            port_of_secondary("web", &contested("b")),
            "annotation loadbalancer.harvesterhci.io/primary-load-balancer of load balancer b is \"web\", and port 81 TCP of this address belongs to b: no port of this load balancer is served"
        );
    }

    #[test]
    fn shr_2_of_a_long_value_the_beginning_is_quoted() {
        let long = "w".repeat(300);
        let (_, message) = refusal(&long, &Role::PortConflict(contested("b"))).unwrap();
        let quoted = format!("is \"{}\", and", "w".repeat(64));
        assert!(message.contains(&quoted), "{message}");
    }

    #[test]
    fn shr_3_who_waits_for_its_ports_is_told_anew_when_the_cause_changes() {
        let telling = |(reason, message): (&str, String)| LoadBalancer {
            status: Some(harvester_lb_api::LoadBalancerStatus {
                conditions: Some(vec![condition::Condition {
                    type_: READY.to_owned(),
                    status: "False".to_owned(),
                    reason: Some(reason.to_owned()),
                    message: Some(message),
                    ..condition::Condition::default()
                }]),
                ..harvester_lb_api::LoadBalancerStatus::default()
            }),
            ..LoadBalancer::default()
        };
        let waiting = telling(ports_to_come("web", None));
        let refused = telling(ports_to_come("web", Some("exceeded quota")));
        let no_address = telling((status::WAITING_FOR_PRIMARY, primary_has_none("web")));
        // Its own EndpointSlice is refused.
        let own = telling((status::API_ERROR, "EndpointSlice n/b: no".to_owned()));
        let none = LoadBalancer::default();
        // By what it says: whether it may wait, and whether that is outdated with this reason, another one, and none.
        for (lb, waits, outdated) in [
            (&waiting, true, [true, true, false]),
            (&refused, true, [false, true, true]),
            (&no_address, true, [true, true, false]),
            (&own, false, [true, true, false]),
            (&none, false, [true, true, false]),
        ] {
            assert_eq!(may_wait_for_ports(lb, "web"), waits, "{lb:?}");
            let causes = [Some("exceeded quota"), Some("no such port"), None];
            let told = causes.map(|now| is_told_otherwise(lb, "web", now));
            assert_eq!(told, outdated, "{lb:?}");
        }
        assert!(!may_wait_for_ports(&refused, "other"));
    }
}
