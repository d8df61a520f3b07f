//! Findings of an audit.

use std::fmt;

use harvester_lb_api::Condition;
use harvester_lb_object::Key;

use crate::kinds::Kind;

/// Maximum length of the text of a finding, in bytes. Names and addresses of a few objects fit; a list of a thousand
/// endpoints would hide the other findings.
const TEXT_LIMIT: usize = 600;

/// An object that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ObjectRef {
    /// Its kind.
    pub kind: &'static str,
    /// Its namespace; empty if it has none.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectRef {
    /// An object of a namespace.
    pub fn namespaced(kind: &'static str, key: &Key) -> Self {
        Self {
            kind,
            namespace: key.namespace.to_string(),
            name: key.name.to_string(),
        }
    }

    /// An object without a namespace.
    pub fn cluster(kind: &'static str, name: impl Into<String>) -> Self {
        Self {
            kind,
            namespace: String::new(),
            name: name.into(),
        }
    }
}

impl fmt::Display for ObjectRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            write!(f, "{} {}", self.kind, self.name)
        } else {
            write!(f, "{} {}/{}", self.kind, self.namespace, self.name)
        }
    }
}

/// A violation of a rule, or something else to know about an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it means, and what to do.
    pub kind: &'static Kind,
    /// The rule that is broken: a rule or a section of docs/internals/rules.md.
    pub rule: &'static str,
    /// The object.
    pub object: ObjectRef,
    /// What is wrong with it, 600 bytes at most.
    pub text: String,
}

impl Finding {
    /// A finding; a long text is cut.
    pub fn new(kind: &'static Kind, rule: &'static str, object: ObjectRef, text: String) -> Self {
        let text = if text.len() > TEXT_LIMIT {
            let end = text.floor_char_boundary(TEXT_LIMIT - 4);
            format!("{} ...", &text[..end])
        } else {
            text
        };
        Self {
            kind,
            rule,
            object,
            text,
        }
    }

    /// Whether the object is an IPPool, whose status write is delayed on purpose (POOL-3).
    pub fn is_of_a_pool(&self) -> bool {
        self.object.kind == "IPPool"
    }

    /// Two audits found the same if these are equal: kind, rule and object; the values in the text may differ.
    pub fn identity(&self) -> (&'static str, &'static str, &ObjectRef) {
        (self.kind.reason, self.rule, &self.object)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.object, self.rule, self.text)
    }
}

/// A load balancer without an address, in accordance with the rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// The load balancer.
    pub lb: Key,
    /// The reason of its condition Ready.
    pub reason: String,
}

/// The result of an audit.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// All violations.
    pub findings: Vec<Finding>,
    /// Load balancers without an address, in accordance with the rules: no violation.
    pub waiting: Vec<Waiting>,
    /// Number of Bound IPAllocations.
    pub bound: usize,
    /// Number of Released IPAllocations.
    pub released: usize,
    /// Number of LoadBalancers.
    pub load_balancers: usize,
}

/// Returns a finding from the check of an object if the condition `$holds` is false.
macro_rules! must {
    ($rule:literal, $kind:ident, $object:expr, $holds:expr, $($arg:tt)*) => {
        if !$holds {
            return Err($crate::finding::Finding::new(
                &$crate::kinds::$kind, $rule, $object.object(), format!($($arg)*),
            ));
        }
    };
}
pub(crate) use must;

/// Status, reason and message of a condition, for the text of a finding.
pub(crate) fn describe(condition: &Condition) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "{} {}: {:?}",
        condition.status,
        text(&condition.reason),
        text(&condition.message)
    )
}

/// The first five of a list, as text.
pub(crate) fn first_few<T: fmt::Display>(all: &[T]) -> String {
    const SHOWN: usize = 5;
    let shown: Vec<String> = all.iter().take(SHOWN).map(ToString::to_string).collect();
    match all.len().saturating_sub(SHOWN) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}
