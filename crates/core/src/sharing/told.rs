//! What the status of a load balancer says of the address that it shares: the reader's side of [`super::telling`].

use harvester_lb_api::condition::{self, ConditionStatus};
use harvester_lb_api::meta::annotation;
use harvester_lb_api::{LoadBalancer, keys};

use crate::status;

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

/// Whether the status of a load balancer says that it does not share the address that it asks for, and has one of its own meanwhile.
pub fn is_refused(lb: &LoadBalancer) -> bool {
    let shared = condition::find(status::conditions(lb), status::ADDRESS_SHARED);
    shared.is_some_and(|it| it.status == ConditionStatus::False.as_str())
}

#[cfg(test)]
mod tests {
    use harvester_lb_api::condition::Condition;

    use super::*;

    #[test]
    fn shr_3_whose_address_a_status_names() {
        let told = |status: &str, reason: &str, annotations: &[(&str, &str)]| {
            let shared = Condition {
                type_: status::ADDRESS_SHARED.to_owned(),
                status: status.to_owned(),
                reason: Some(reason.to_owned()),
                ..Condition::default()
            };
            let mut lb = LoadBalancer::default();
            lb.status.get_or_insert_default().conditions = Some(vec![shared]);
            let annotations = annotations
                .iter()
                .map(|(key, it)| ((*key).to_owned(), (*it).to_owned()));
            lb.metadata.annotations = Some(annotations.collect());
            lb
        };
        let naming = [(keys::ANNOTATION_PRIMARY, "web")];
        // Whether it is that of another one, was that, and whether it is told that it is refused.
        for (lb, expected) in [
            (told("True", "Secondary", &naming), [true, true, false]),
            (told("True", "Secondary", &[]), [true, true, false]),
            (told("True", "Holder", &[]), [true, true, false]),
            (told("True", "Primary", &[]), [false, false, false]),
            (
                told("False", "WaitingForPrimary", &naming),
                [true, false, true],
            ),
            (told("False", "Secondary", &[]), [false, false, true]),
            (LoadBalancer::default(), [false, false, false]),
        ] {
            let said = [is_of_another(&lb), was_of_another(&lb), is_refused(&lb)];
            assert_eq!(said, expected, "{lb:?}");
        }
    }
}
