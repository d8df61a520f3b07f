//! Whether `uninstall-webhook` is at work, or was, so that nothing may be registered.
//!
//! It marks the authority's Secret, and deletes that at the end. Authority and registration that are gone together, after this
//! process has served, count as an uninstallation whose mark it has missed while its watches were interrupted, for as long as
//! a mark would. Its copies of the registration may then be older than that of the authority, so they are read live before a
//! lost authority is made again.

use tracing::{info, warn};

use crate::webhook::certificates::x509::seconds;
use crate::webhook::stored::Stored;
use crate::webhook_names::UNINSTALLATION;

/// What a process has seen of uninstallations.
#[derive(Debug, Default)]
pub struct Uninstallation {
    /// When the registration is kept up again, in seconds since 1970, if `uninstall-webhook` has been at work.
    until: Option<i64>,
    /// Whether this process has seen that it serves and is registered.
    has_served: bool,
    /// The same as `until`, if that was seen only by what is gone.
    missed_until: Option<i64>,
}

impl Uninstallation {
    /// When the registration is kept up again, in seconds since 1970; `i64::MAX` if that is not known, or if it is kept up.
    pub fn again_at(&self) -> i64 {
        self.until.unwrap_or(i64::MAX)
    }

    /// Whether the registration decides whether an uninstallation was missed.
    pub fn may_be_missed(&self, stored: &Stored) -> bool {
        self.has_served && stored.authority.get(&stored.authority_key()).is_none()
    }

    /// Whether the registration must not be kept up at a time in seconds since 1970. `is_serving`: this process has a
    /// certificate.
    pub fn is_under_way(&mut self, stored: &Stored, is_serving: bool, now: i64) -> bool {
        let authority = stored.authority.get(&stored.authority_key());
        let before = self.until;
        let is_registered = !stored.bundles().is_empty();
        if authority.is_some() {
            self.has_served |= is_registered && is_serving;
        }
        let was_missed = self.missed_until.is_some();
        let was_told = before.is_some() && !was_missed;
        self.until = if let Some(secret) = &authority {
            secret.uninstalled_until(now)
        } else {
            // It goes at the end. An authority that was lost otherwise is made again.
            let is_uninstalled = was_told || stored.is_uninstalled();
            is_uninstalled.then_some(i64::MAX)
        };
        let is_all_gone = authority.is_none() && !is_registered && self.has_served;
        self.missed_until = if is_all_gone && self.until.is_none() {
            let limit = now + seconds(UNINSTALLATION);
            // A clock that was ahead must not make the wait longer.
            let until = self.missed_until.map_or(limit, |until| until.min(limit));
            self.until = (now < until).then_some(until);
            Some(until)
        } else {
            None
        };
        stored.has_missed_until(self.missed_until);
        match (before, self.until) {
            (None, Some(_)) if self.missed_until.is_some() => {
                let wait = UNINSTALLATION;
                warn!(
                    ?wait,
                    "authority and registration are gone, as after uninstall-webhook: nothing is registered for a while"
                );
            }
            (None, Some(_)) => {
                info!("uninstall-webhook has begun, nothing is registered any more");
            }
            (Some(_), None) if was_missed => {
                warn!(
                    "there was no uninstallation, or it is long over: the registration is kept up again"
                );
            }
            (Some(_), None) => {
                warn!(
                    "the registration is kept up again: uninstall-webhook was not completed, or another process has made an authority"
                );
            }
            _ => {}
        }
        self.until.is_some()
    }
}
