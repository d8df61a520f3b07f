//! The three objects that register the webhook: their names, their states, why they are written, and who wrote them last.

use std::fmt;

use harvester_lb_object::Key;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::webhook_names::{CONFIGURATION, DEFINITION, FIELD_MANAGER};

/// Longest name of a field manager that is repeated in a message, in bytes.
const MANAGER_LIMIT: usize = 64;

/// One of the three objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Object {
    Validating,
    Mutating,
    Conversion,
}

impl Object {
    /// The stanza comes first: without it objects stored as v1alpha1 cannot be read, whatever else happens.
    pub(super) const ALL: [Self; 3] = [Self::Conversion, Self::Validating, Self::Mutating];

    pub(super) const fn as_label(self) -> &'static str {
        match self {
            Self::Validating => "validating",
            Self::Mutating => "mutating",
            Self::Conversion => "conversion",
        }
    }

    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Validating => "ValidatingWebhookConfiguration",
            Self::Mutating => "MutatingWebhookConfiguration",
            Self::Conversion => "CustomResourceDefinition",
        }
    }

    pub(super) const fn api_version(self) -> &'static str {
        match self {
            Self::Validating | Self::Mutating => "admissionregistration.k8s.io/v1",
            Self::Conversion => "apiextensions.k8s.io/v1",
        }
    }

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Validating | Self::Mutating => CONFIGURATION,
            Self::Conversion => DEFINITION,
        }
    }

    pub(super) fn key(self) -> Key {
        Key::new("", self.name())
    }
}

/// Why an object is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    /// It does not exist.
    Missing,
    /// This process has not seen it as it must be: it is another version's, or another program's.
    Taken,
    /// The bundle has changed.
    Bundle,
    /// It was as it must be, and somebody has changed it.
    Changed,
}

impl Reason {
    /// The value of the label; `by` wrote the object before. During a rollout replicas of two versions undo each other's
    /// writes, which is no quarrel with another program.
    pub(super) const fn as_label(self, by: &Writer) -> &'static str {
        match (self, by) {
            (Self::Missing, _) => "missing",
            (Self::Taken, _) => "taken_over",
            (Self::Bundle, _) => "bundle",
            (Self::Changed, Writer::Replica) => "changed_by_replica",
            (Self::Changed, Writer::Program(_) | Writer::Unknown) => "changed_by_others",
        }
    }
}

/// An object compared with what it must be.
#[derive(Debug, PartialEq)]
pub(super) enum State {
    /// As it must be.
    Right,
    /// There is none.
    Missing,
    /// There is none, and it is not ours to create.
    Impossible,
    /// It differs.
    Differs(Box<ObjectMeta>),
}

impl State {
    pub(super) fn of(is_right: bool, meta: &ObjectMeta) -> Self {
        if is_right {
            Self::Right
        } else {
            Self::Differs(Box::new(meta.clone()))
        }
    }
}

/// Who wrote an object last. What this process wrote itself is as it must be, so it is never asked about that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// A replica of this webhook.
    Replica,
    /// Another program: its field manager, with the time.
    Program(String),
    /// The object does not say.
    Unknown,
}

impl Writer {
    /// The writer that the metadata name.
    pub(super) fn of(meta: &ObjectMeta) -> Self {
        let is_other = |manager: Option<&str>| manager != Some(FIELD_MANAGER);
        let entries = meta.managed_fields.iter().flatten();
        // The times have whole seconds. Within the same one the other program was later: a restore follows its write, and
        // its next write is restored now.
        let last = entries.max_by_key(|entry| {
            let time = entry.time.as_ref().map(|time| time.0);
            (time, is_other(entry.manager.as_deref()))
        });
        let Some(last) = last else {
            return Self::Unknown;
        };
        if !is_other(last.manager.as_deref()) {
            return Self::Replica;
        }
        let manager = last.manager.as_deref().unwrap_or("an unnamed manager");
        let manager = &manager[..manager.floor_char_boundary(MANAGER_LIMIT)];
        Self::Program(match &last.time {
            Some(time) => format!("{manager:?} at {}", time.0),
            None => format!("{manager:?}"),
        })
    }
}

impl fmt::Display for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica => {
                f.write_str("another replica of this webhook, maybe of another version")
            }
            Self::Program(name) => f.write_str(name),
            Self::Unknown => f.write_str("an unknown program"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn section_1_the_program_that_wrote_last_is_named() {
        let meta = |entries: serde_json::Value| -> ObjectMeta {
            serde_json::from_value(json!({ "managedFields": entries })).unwrap()
        };
        let entry = |manager: &str, time: &str| json!({"manager": manager, "operation": "Update", "time": time});
        let ours = entry(FIELD_MANAGER, "2026-01-03T00:00:00Z");
        let first = entry("kubectl", "2026-01-01T00:00:00Z");
        let last = entry("harvester-load-balancer-webhook", "2026-01-02T00:00:00Z");
        let of = |entries| Writer::of(&meta(entries));
        let by = of(json!([first, last]));
        let wanted = "\"harvester-load-balancer-webhook\" at 2026-01-02T00:00:00Z";
        assert_eq!(by, Writer::Program(wanted.to_owned()));
        // A restore within the same second came before.
        let then = entry(FIELD_MANAGER, "2026-01-02T00:00:00Z");
        assert_eq!(of(json!([last, then])), by);
        assert_eq!(of(json!([then, last])), by);
        assert_eq!(of(json!([first, last, ours])), Writer::Replica);
        assert_eq!(Writer::of(&ObjectMeta::default()), Writer::Unknown);
        let long = entry(&"é".repeat(100), "2026-01-01T00:00:00Z");
        assert!(of(json!([long])).to_string().len() < 120);
    }
}
