//! A rule that was broken.

/// A rule that was broken.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    /// Which rule.
    pub(crate) rule: &'static str,
    /// How.
    pub(crate) text: String,
}

impl Failure {
    pub(crate) fn new(rule: &'static str, text: String) -> Self {
        Self { rule, text }
    }
}

/// Ends a judgement with the first rule that does not hold.
macro_rules! must {
    ($rule:literal, $holds:expr, $($arg:tt)*) => {
        if !$holds {
            return Err($crate::failure::Failure::new($rule, format!($($arg)*)));
        }
    };
}
pub(crate) use must;
