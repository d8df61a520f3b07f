//! What the log and the Events say about a write of the registration.

use harvester_lb_controller_kit::events::{Events, Severity};
use k8s_openapi::api::core::v1::ObjectReference;
use tracing::{info, warn};

use crate::webhook::registration::object::{Object, Reason, Writer};

/// Consecutive restores from which on the other program is to be stopped.
const AGAIN_AND_AGAIN: u32 = 3;

/// Reports that an object was written, after who wrote it before; `count` is the number of consecutive writes.
pub(super) fn report(events: &Events, object: Object, reason: Reason, by: &Writer, count: u32) {
    let (kind, name) = (object.kind(), object.name());
    let (severity, event, text) = match reason {
        Reason::Missing => {
            info!(kind, name, "registration created");
            return;
        }
        Reason::Bundle => {
            info!(
                kind,
                name, "registration updated with the present authorities"
            );
            return;
        }
        Reason::Taken => {
            info!(kind, name, %by, "registration taken over");
            let text = format!("{kind} {name} was taken over from {by}");
            (Severity::Normal, "RegistrationTakenOver", text)
        }
        Reason::Changed => {
            let text = if count < AGAIN_AND_AGAIN {
                format!("{kind} {name} was changed by {by} and is restored")
            } else {
                format!("{kind} {name} is changed by {by} again and again, restored {count} times")
            };
            let (severity, text) = restored(object, by, count, text);
            (severity, "RegistrationRestored", text)
        }
    };
    let regarding = ObjectReference {
        api_version: Some(object.api_version().to_owned()),
        kind: Some(kind.to_owned()),
        name: Some(name.to_owned()),
        ..ObjectReference::default()
    };
    events.publish(regarding, severity, event, "Register", &text);
}

/// Logs a restore. Returns how serious it is, and what is to be done: nothing while replicas of two versions run, until the
/// rollout has ended.
fn restored(object: Object, by: &Writer, count: u32, text: String) -> (Severity, String) {
    let (kind, name) = (object.kind(), object.name());
    if *by == Writer::Replica {
        info!(kind, name, %by, count, "registration changed by another replica, restored");
        return (Severity::Normal, text);
    }
    warn!(kind, name, %by, count, "registration changed by another program, restored");
    let text = if count < AGAIN_AND_AGAIN {
        text
    } else {
        format!("{text}. Two webhooks must not run at once: stop the other one")
    };
    (Severity::Warning, text)
}
