//! An Event about a load balancer or a pool before it is published.

/// An Event about a change of an object, not sent yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EventDraft {
    /// Type `Warning` if true, else `Normal`.
    pub warning: bool,
    /// Its reason: that of the condition, if it is about one.
    pub reason: String,
    /// Its message.
    pub text: String,
}
