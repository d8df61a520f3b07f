//! Findings of an audit, and advice about them.

use std::fmt;

use harvester_lb_api::Condition;
use harvester_lb_object::Key;

/// A violation of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule that is broken: an id of docs/rules.md, or a section of the contract.
    pub rule: &'static str,
    /// The object: `LoadBalancer shop/web`.
    pub object: String,
    /// What is wrong with it.
    pub text: String,
}

impl Finding {
    pub(crate) fn new(rule: &'static str, object: String, text: String) -> Self {
        Self { rule, object, text }
    }

    /// Whether the object is an IPPool, whose status write is delayed on purpose (POOL-3).
    pub fn is_of_a_pool(&self) -> bool {
        self.object.starts_with("IPPool ")
    }

    /// What to do if a second audit finds it again.
    pub const fn advice(&self) -> &'static str {
        match self.rule.as_bytes() {
            // An address that no load balancer can use.
            b"REL-2" | b"IPA-3" => {
                "release the address manually: annotate its IPPool with loadbalancer.harvesterhci.io/manuallyReleaseIP: \"<ip>: <namespace>/<name>\""
            }
            // Two load balancers with one address.
            b"ALC-8" | b"IPA-2" => {
                "delete one of the two LoadBalancers, or name another IPPool in its spec.ipPool"
            }
            b"SVC-1" => "rename the Service or the LoadBalancer",
            _ => {
                "keep the log of the leader, then restart it: the next leader rebuilds its state from the stored objects"
            }
        }
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
    ($rule:literal, $object:expr, $holds:expr, $($arg:tt)*) => {
        if !$holds {
            return Err($crate::finding::Finding::new($rule, $object.to_string(), format!($($arg)*)));
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
