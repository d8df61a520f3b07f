//! What admission answers: patches, warnings, refusals, and their wire format. Pure.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::ByteString;
use serde::Serialize;
use serde_json::{Map, Value};

use crate::admission::facts::Fact;
use crate::admission::request::Request;
use crate::wording::{MESSAGE_LIMIT, SEPARATOR};

/// One change of an object under review: JSON patch with the operation `add`, which also replaces. `replace` would fail on
/// a path that is missing (10.1).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Addition {
    op: &'static str,
    /// JSON pointer to the field.
    pub path: String,
    /// Its new value.
    pub value: Value,
}

/// The changes of an object under review; empty if there is nothing to change.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Patch(Vec<Addition>);

impl Patch {
    /// Whether nothing changes. The response then has no patch.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The changes, in order.
    pub fn additions(&self) -> &[Addition] {
        &self.0
    }

    /// Sets a field. `path`: a JSON pointer to it; its parent exists.
    pub(super) fn add(&mut self, path: String, value: Value) {
        self.0.push(Addition {
            op: "add",
            path,
            value,
        });
    }

    /// Sets keys of a map of texts, such as labels. `path`: a JSON pointer to the map, which is made if it is absent. Keys
    /// that have their value are left out.
    pub(super) fn add_to_map(
        &mut self,
        path: &str,
        present: Option<&BTreeMap<String, String>>,
        wanted: &[(&str, String)],
    ) {
        let Some(present) = present else {
            let map: Map<String, Value> = wanted
                .iter()
                .map(|(key, value)| ((*key).to_owned(), Value::from(value.clone())))
                .collect();
            if !map.is_empty() {
                self.add(path.to_owned(), Value::Object(map));
            }
            return;
        };
        for (key, value) in wanted {
            if present.get(*key) != Some(value) {
                let key = key.replace('~', "~0").replace('/', "~1");
                self.add(format!("{path}/{key}"), Value::from(value.clone()));
            }
        }
    }
}

/// A warning that `kubectl` shows to the user. At most 256 bytes: the API server may cut longer ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning(String);

impl Warning {
    /// Longest text, in bytes.
    pub const LIMIT: usize = 256;
    /// Most warnings of a response: all of them together stay below the 4,096 bytes that the API server passes on.
    pub const MOST: usize = 8;

    /// The warning of this text, cut to [`Self::LIMIT`].
    pub(super) fn new(text: &impl fmt::Display) -> Self {
        let mut text = text.to_string();
        // Line breaks and other control characters have no place in a header of HTTP.
        text.retain(|c| !c.is_control());
        if text.len() > Self::LIMIT {
            text.truncate(text.floor_char_boundary(Self::LIMIT - ELLIPSIS.len()));
            text.push_str(ELLIPSIS);
        }
        Self(text)
    }

    /// The first [`Self::MOST`] of these.
    pub(super) fn most(all: impl IntoIterator<Item = Self>) -> Vec<Self> {
        all.into_iter().take(Self::MOST).collect()
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Ends a text that was cut.
const ELLIPSIS: &str = "...";

/// Why a request is denied. The text names the object, the field and its value, in the words of the operator's conditions
/// (VAL-1).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    message: String,
    rule: &'static str,
}

impl Refusal {
    /// Violations besides the first in the text, as in the operator's conditions.
    const SHOWN: usize = 3;

    /// The refusal because of these violations, each with its rule; `None` if there are none. `object`: kind and name.
    pub(super) fn of<V: fmt::Display>(
        object: &str,
        violations: &[V],
        rule: impl Fn(&V) -> &'static str,
    ) -> Option<Self> {
        let (first, further) = violations.split_first()?;
        let mut message = format!("{object}: {first}");
        for violation in further.iter().take(Self::SHOWN) {
            message.push_str(SEPARATOR);
            message.push_str(&violation.to_string());
        }
        match further.len().saturating_sub(Self::SHOWN) {
            0 => {}
            more => message.push_str(&format!("{SEPARATOR}and {more} more")),
        }
        Some(Self::cut(message, rule(first)))
    }

    /// The refusal with one reason.
    pub(super) fn new(object: &str, reason: &impl fmt::Display, rule: &'static str) -> Self {
        Self::cut(format!("{object}: {reason}"), rule)
    }

    /// The refusal of an object that cannot be checked. `reason` continues the sentence.
    pub(super) fn unchecked(object: &str, reason: &str) -> Self {
        Self::cut(format!("{object} {reason}"), "10")
    }

    fn cut(mut message: String, rule: &'static str) -> Self {
        message.truncate(message.floor_char_boundary(MESSAGE_LIMIT));
        Self { message, rule }
    }

    /// The text, at most 1,024 bytes.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The id of the rule that was violated first, or the section of a rule without an id; for logs and metrics.
    pub const fn rule(&self) -> &'static str {
        self.rule
    }
}

/// Why a request is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// It violates a rule. The response says so.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The rules cannot be applied yet. Read the object and decide again, or answer 503 (CNV-1).
    #[error("{0}; try again")]
    NotReady(Fact),
}

/// The answer to a review.
#[derive(Clone, Copy, Debug)]
pub enum Response<'a> {
    /// The object is changed; with an empty patch it is allowed as it is.
    Patched(&'a Patch),
    /// The object is allowed, with warnings.
    Allowed(&'a [Warning]),
    /// The request is denied, with the code 422, reason `Invalid`.
    Refused(&'a Refusal),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RawReview<'a> {
    api_version: &'static str,
    kind: &'static str,
    response: RawResponse<'a>,
}

#[derive(Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct RawResponse<'a> {
    uid: &'a str,
    allowed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<Status<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch: Option<ByteString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    patch_type: Option<&'static str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<&'a str>,
}

/// A `metav1.Status` without `details`: kubectl would show kind, name and causes of these instead of the message.
#[derive(Serialize)]
struct Status<'a> {
    #[serde(rename = "status")]
    result: &'static str,
    code: u16,
    reason: &'static str,
    message: &'a str,
}

impl Response<'_> {
    /// The body of the response: an AdmissionReview of the version of the request.
    pub fn to_bytes(self, request: &Request) -> Vec<u8> {
        let mut response = RawResponse {
            uid: &request.uid,
            allowed: true,
            ..RawResponse::default()
        };
        match self {
            Self::Patched(patch) if patch.is_empty() => {}
            Self::Patched(patch) => {
                // Strings and JSON values: this cannot fail.
                let patch = serde_json::to_vec(patch).unwrap_or_default();
                response.patch = Some(ByteString(patch));
                response.patch_type = Some("JSONPatch");
            }
            Self::Allowed(warnings) => {
                response.warnings = warnings.iter().map(Warning::as_str).collect();
            }
            Self::Refused(refusal) => {
                response.allowed = false;
                response.status = Some(Status {
                    result: "Failure",
                    code: 422,
                    reason: "Invalid",
                    message: &refusal.message,
                });
            }
        }
        let review = RawReview {
            api_version: request.version.api_version(),
            kind: "AdmissionReview",
            response,
        };
        serde_json::to_vec(&review).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
