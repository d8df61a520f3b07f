//! A rule that was broken.

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// The rule's id.
    pub(crate) rule: &'static str,
    /// The details.
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(rule: &'static str, text: String) -> Self {
        Self { rule, text }
    }
}

/// Ends a check with the first violated rule.
macro_rules! must {
    ($rule:literal, $holds:expr, $($arg:tt)*) => {
        if !$holds {
            return Err($crate::failure::Failure::new($rule, format!($($arg)*)));
        }
    };
}
pub(crate) use must;
