//! The condition type of this API group. All fields are strings, as upstream stores them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One observation about an object.
#[derive(Serialize, Deserialize, Clone, Debug, Default, PartialEq, Eq, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// Type of the condition.
    #[serde(rename = "type")]
    pub type_: String,
    /// Status of the condition, one of True, False, Unknown.
    pub status: String,
    /// When the status or the message changed last, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<String>,
    /// When the status changed last, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<String>,
    /// Machine-readable reason for the status, in CamelCase.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Human-readable message: what is wrong and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// The `status` of a [`Condition`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    /// The condition holds.
    True,
    /// The condition does not hold.
    False,
    /// It is not known whether the condition holds.
    Unknown,
}

impl ConditionStatus {
    /// The stored text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

/// Type of the condition that summarizes the state of an object.
pub const READY: &str = "Ready";

/// The condition of this type, if present.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|c| c.type_ == type_)
}

/// Sets a condition. `lastUpdateTime` changes only with status, reason or message, `lastTransitionTime` only with the
/// status (section 9), so that an unchanged condition causes no status write.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: &str,
) {
    let wanted = Condition {
        type_: type_.to_owned(),
        status: status.as_str().to_owned(),
        last_update_time: Some(now.to_owned()),
        last_transition_time: Some(now.to_owned()),
        reason: Some(reason.to_owned()),
        message: (!message.is_empty()).then(|| message.to_owned()),
    };
    let Some(present) = conditions.iter_mut().find(|c| c.type_ == type_) else {
        conditions.push(wanted);
        return;
    };
    let same_message = present.message.as_deref().unwrap_or_default() == message;
    if present.status == wanted.status && present.reason == wanted.reason && same_message {
        return;
    }
    let last_transition_time = if present.status == wanted.status {
        present.last_transition_time.clone()
    } else {
        wanted.last_transition_time.clone()
    };
    *present = Condition {
        last_transition_time,
        ..wanted
    };
}

/// Removes the conditions of this type.
pub fn clear(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|c| c.type_ != type_);
}

#[cfg(test)]
mod tests {
    use super::*;

    const T1: &str = "2026-01-01T00:00:00Z";
    const T2: &str = "2026-01-01T00:00:05Z";

    #[test]
    fn section_9_times_move_only_with_what_they_speak_of() {
        let mut all = Vec::new();
        set(
            &mut all,
            READY,
            ConditionStatus::False,
            "NoBackend",
            "a",
            T1,
        );
        let first = all.clone();
        set(
            &mut all,
            READY,
            ConditionStatus::False,
            "NoBackend",
            "a",
            T2,
        );
        assert_eq!(all, first, "a repeated verdict changes nothing");

        set(
            &mut all,
            READY,
            ConditionStatus::False,
            "NoBackend",
            "b",
            T2,
        );
        assert_eq!(all[0].last_update_time.as_deref(), Some(T2));
        assert_eq!(all[0].last_transition_time.as_deref(), Some(T1));

        set(&mut all, READY, ConditionStatus::True, "Ready", "", T2);
        assert_eq!(all[0].last_transition_time.as_deref(), Some(T2));
        assert_eq!(all[0].message, None);
        assert_eq!(all.len(), 1);
    }

    #[test]
    fn section_9_an_empty_and_an_absent_message_are_the_same() {
        let mut all = vec![Condition {
            type_: READY.into(),
            status: "True".into(),
            reason: Some("Ready".into()),
            message: Some(String::new()),
            ..Condition::default()
        }];
        let before = all.clone();
        set(&mut all, READY, ConditionStatus::True, "Ready", "", T1);
        assert_eq!(all, before);
    }

    #[test]
    fn other_types_are_left_alone() {
        let mut all = Vec::new();
        set(
            &mut all,
            "Overlaps",
            ConditionStatus::True,
            "Overlaps",
            "x",
            T1,
        );
        set(&mut all, READY, ConditionStatus::True, "Ready", "", T1);
        clear(&mut all, READY);
        assert_eq!(all.len(), 1);
        assert!(find(&all, "Overlaps").is_some());
        assert!(find(&all, READY).is_none());
    }
}
