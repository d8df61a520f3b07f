//! What was found, and what to do about it.

use std::fmt;

use harvester_lb_api::Condition;
use harvester_lb_object::Key;

/// A wrong.
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

    /// Whether it speaks of an IPPool, whose status is written late on purpose (POOL-3).
    pub fn is_of_a_pool(&self) -> bool {
        self.object.starts_with("IPPool ")
    }

    /// What to do if it is still there when looked at again.
    pub const fn advice(&self) -> &'static str {
        match self.rule.as_bytes() {
            // An address that nobody can use.
            b"REL-2" | b"IPA-3" => {
                "release the address by hand: annotate its IPPool with loadbalancer.harvesterhci.io/manuallyReleaseIP: \"<ip>: <namespace>/<name>\""
            }
            // Two for one address.
            b"ALC-8" | b"IPA-2" => {
                "delete one of the two LoadBalancers, or name another IPPool in its spec.ipPool"
            }
            b"SVC-1" => "rename the Service or the LoadBalancer",
            _ => {
                "restart the operator's leader: the next one takes over everything anew; keep the log of the one before"
            }
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({}): {}", self.object, self.rule, self.text)
    }
}

/// A load balancer that rightly has no address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Which.
    pub lb: Key,
    /// The reason of its condition Ready.
    pub reason: String,
}

/// What an audit has come to.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// Every wrong; none: all is well.
    pub findings: Vec<Finding>,
    /// Load balancers that rightly have no address: no wrong by itself.
    pub waiting: Vec<Waiting>,
    /// IPAllocations that are held.
    pub bound: usize,
    /// IPAllocations that are remembered.
    pub released: usize,
    /// LoadBalancers.
    pub load_balancers: usize,
}

/// Ends the judgement of an object with the first rule that does not hold.
macro_rules! must {
    ($rule:literal, $object:expr, $holds:expr, $($arg:tt)*) => {
        if !$holds {
            return Err($crate::finding::Finding::new($rule, $object.to_string(), format!($($arg)*)));
        }
    };
}
pub(crate) use must;

/// What is said of a condition.
pub(crate) fn words(condition: &Condition) -> String {
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    format!(
        "{} {}: {:?}",
        condition.status,
        text(&condition.reason),
        text(&condition.message)
    )
}
