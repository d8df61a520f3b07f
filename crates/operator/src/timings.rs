//! The delays, intervals and time limits of the operator that a test would have to wait for. The others are constants where
//! they are used: rate limits and debounces in [`crate::throttles`], time limits of requests in `controller-kit: client` and
//! `writer`, of connections in the admin port and the webhook's server. Those of the Lease are flags.
//!
//! They are not configurable: the defaults fit every cluster. A debug build accepts shorter ones for tests, a release build
//! does not ([`crate::args::Args`]).

use std::time::Duration;

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_core::address_move::MoveLimits;

use crate::duration;

/// The timings that a test may shorten. Each is above zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timings {
    /// Maximum resync interval of a waiting load balancer, in case an event was missed (SEL-7, RUN-4). 30 s: no rule depends
    /// on it, and 1,000 waiting load balancers cost 40 reconciles a second, which write nothing.
    pub recheck: Duration,
    /// Time for kube-vip to move a Service to another address, after which the Service is recreated (REL-4), while it is not
    /// known whether kube-vip follows a changed address. 3 s: one that does normally takes a second.
    pub move_limit: Duration,
    /// The same, if kube-vip has followed a changed address before. 8 s: it will again, and a recreated Service loses its
    /// ClusterIP and what users have added to it.
    pub move_limit_followed: Duration,
    /// The same, if kube-vip has ignored a changed address before. 1 s: until then the address is not announced; after an
    /// upgrade of kube-vip a change that is followed within that time is noticed.
    pub move_limit_ignored: Duration,
    /// Interval between two checks for missing kinds and permissions. 5 s: administrators add them within minutes, and a
    /// permission costs two requests.
    pub preflight_pause: Duration,
    /// Time limit for the pool status writes at shutdown (POOL-3). 8 s: well below the 30 s grace period of a pod.
    pub flush_limit: Duration,
    /// Time limit for queued Events at shutdown. 2 s: enough for a thousand, and the conditions have the same content.
    pub events_limit: Duration,
    /// First back-off after a failure of any cause (section 9). 1 s: a refusal rarely ends sooner, and users notice a longer
    /// delay.
    pub retry: Duration,
    /// Back-off cap of refused writes (section 9). 60 s: a refusal lasts until a user acts, and each retry costs the API
    /// server a request.
    pub retry_cap: Duration,
    /// Back-off cap if the API server is unavailable or answers with a conflict. 5 s, as for watches: the cause is temporary,
    /// and after the API server's return all work must be done within seconds.
    pub retry_unavailable_cap: Duration,
    /// Delay after refused writes of rare controllers: removed guest clusters, history. 10 s: each retry writes all of their
    /// objects again, and a missing permission is granted late.
    pub rare_refused: Duration,
    /// Minimum interval between two writes of a pool's status. 1 s: set by POOL-3.
    pub pool_status_interval: Duration,
    /// Maximum pause after a write of a pool's status (POOL-3). 60 s: a write that was slow for another reason than its size,
    /// such as a stalled API server, must not delay the status for minutes.
    pub pool_status_max_pause: Duration,
    /// Minimum interval between a write of a load balancer's status and the next one that changes only detail conditions. 10 s:
    /// they explain, and a backend that goes up and down must not cause a write each time.
    pub detail_interval: Duration,
    /// Server-side timeout of a watch, in whole seconds (RUN-2). 40 s: with the 5 s after which a silent connection is
    /// closed, a dead connection delays a change by at most 45 s.
    pub watch: Duration,
    /// Interval between two checks whether etcd was restored from a backup (RUN-3). A minute: one small list, and after a restore
    /// an administrator has more to do for longer.
    pub restore_check: Duration,
    /// Time limit for requests in flight after the Lease was lost (RUN-5). 2 s: an API server that has not answered by then
    /// is unavailable, and waiting longer would delay the next term after its return.
    pub drain_limit: Duration,
    /// Life of the authority of the webhook's certificate. Two years: it is renewed when a third is left, and a cluster may
    /// be switched off for half a year.
    pub webhook_authority_life: Duration,
    /// Life of the webhook's certificate. 90 days: its key is in a Secret, and a renewal costs nothing.
    pub webhook_certificate_life: Duration,
    /// Time that a new authority is in every bundle before it signs. 5 min: above the time after which every replica and
    /// every API server has seen a change although a connection died silently (RUN-2).
    pub webhook_settle: Duration,
    /// Time that a previous authority stays in the bundle after its last certificate was replaced. A day: a replica that is
    /// behind for longer is broken.
    pub webhook_retain: Duration,
    /// Time that the webhook continues to answer after SIGTERM. 10 s: kube-proxy and the API server learn within seconds that
    /// its endpoint is gone, and the grace period of a pod is 30 s.
    pub webhook_leave: Duration,
    /// First back-off after a registration of the webhook was restored. 1 s: one restore is a mistake of somebody else's,
    /// repeated ones are another controller.
    pub webhook_restore: Duration,
    /// Back-off cap of the same. 60 s: two controllers that disagree write once a minute each.
    pub webhook_restore_cap: Duration,
}

impl Default for Timings {
    fn default() -> Self {
        Self {
            recheck: Duration::from_secs(30),
            move_limit: Duration::from_secs(3),
            move_limit_followed: Duration::from_secs(8),
            move_limit_ignored: Duration::from_secs(1),
            preflight_pause: Duration::from_secs(5),
            flush_limit: Duration::from_secs(8),
            events_limit: Duration::from_secs(2),
            retry: Duration::from_secs(1),
            retry_cap: Duration::from_mins(1),
            retry_unavailable_cap: Duration::from_secs(5),
            rare_refused: Duration::from_secs(10),
            pool_status_interval: Duration::from_secs(1),
            pool_status_max_pause: Duration::from_mins(1),
            detail_interval: Duration::from_secs(10),
            watch: Duration::from_secs(40),
            restore_check: Duration::from_mins(1),
            drain_limit: Duration::from_secs(2),
            webhook_authority_life: Duration::from_hours(2 * 365 * 24),
            webhook_certificate_life: Duration::from_hours(90 * 24),
            webhook_settle: Duration::from_mins(5),
            webhook_retain: Duration::from_hours(24),
            webhook_leave: Duration::from_secs(10),
            webhook_restore: Duration::from_secs(1),
            webhook_restore_cap: Duration::from_mins(1),
        }
    }
}

impl Timings {
    /// Back-off of refused writes (section 9).
    pub const fn backoff(&self) -> Backoff {
        Backoff {
            base: self.retry,
            cap: self.retry_cap,
        }
    }

    /// Time limits of a move to another address (REL-4).
    pub const fn move_limits(&self) -> MoveLimits {
        MoveLimits {
            unknown: self.move_limit,
            followed: self.move_limit_followed,
            ignored: self.move_limit_ignored,
        }
    }

    /// Back-off after conflicts and while the API server is unavailable.
    pub const fn backoff_unavailable(&self) -> Backoff {
        Backoff {
            base: self.retry,
            cap: self.retry_unavailable_cap,
        }
    }

    /// Back-off of restored registrations of the webhook.
    pub const fn webhook_restore_backoff(&self) -> Backoff {
        Backoff {
            base: self.webhook_restore,
            cap: self.webhook_restore_cap,
        }
    }

    /// Parses overrides such as `recheck=2s,move-limit=500ms`. The names are those of the fields, with dashes.
    ///
    /// # Errors
    /// An unknown name, a text that is no duration, or zero.
    pub fn parse(text: &str) -> Result<Self, String> {
        let mut timings = Self::default();
        for pair in text.split(',').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair
                .split_once('=')
                .ok_or_else(|| format!("{pair:?} is not a timing; write it like recheck=2s"))?;
            let field = timings
                .field(name)
                .ok_or_else(|| format!("unknown timing {name:?}"))?;
            *field = duration::parse(value)?;
            if field.is_zero() {
                return Err(format!("the timing {name} must be above zero"));
            }
        }
        Ok(timings)
    }

    fn field(&mut self, name: &str) -> Option<&mut Duration> {
        Some(match name {
            "recheck" => &mut self.recheck,
            "move-limit" => &mut self.move_limit,
            "move-limit-followed" => &mut self.move_limit_followed,
            "move-limit-ignored" => &mut self.move_limit_ignored,
            "preflight-pause" => &mut self.preflight_pause,
            "flush-limit" => &mut self.flush_limit,
            "events-limit" => &mut self.events_limit,
            "retry" => &mut self.retry,
            "retry-cap" => &mut self.retry_cap,
            "retry-unavailable-cap" => &mut self.retry_unavailable_cap,
            "rare-refused" => &mut self.rare_refused,
            "pool-status-interval" => &mut self.pool_status_interval,
            "pool-status-max-pause" => &mut self.pool_status_max_pause,
            "detail-interval" => &mut self.detail_interval,
            "watch" => &mut self.watch,
            "restore-check" => &mut self.restore_check,
            "drain-limit" => &mut self.drain_limit,
            "webhook-authority-life" => &mut self.webhook_authority_life,
            "webhook-certificate-life" => &mut self.webhook_certificate_life,
            "webhook-settle" => &mut self.webhook_settle,
            "webhook-retain" => &mut self.webhook_retain,
            "webhook-leave" => &mut self.webhook_leave,
            "webhook-restore" => &mut self.webhook_restore,
            "webhook-restore-cap" => &mut self.webhook_restore_cap,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_named_is_as_by_default() {
        let timings = Timings::parse("recheck=2s,move-limit=500ms").unwrap();
        let wanted = Timings {
            recheck: Duration::from_secs(2),
            move_limit: Duration::from_millis(500),
            ..Timings::default()
        };
        assert_eq!(timings, wanted);
        assert_eq!(Timings::parse(""), Ok(Timings::default()));
    }

    #[test]
    fn each_timing_can_be_shortened() {
        let names = "recheck,move-limit,move-limit-followed,move-limit-ignored,preflight-pause,flush-limit,events-limit,retry,retry-cap,retry-unavailable-cap,rare-refused,pool-status-interval,pool-status-max-pause,detail-interval,watch,restore-check,drain-limit,webhook-authority-life,webhook-certificate-life,webhook-settle,webhook-retain,webhook-leave,webhook-restore,webhook-restore-cap";
        let one = Duration::from_millis(1);
        let all = names.replace(',', "=1ms,") + "=1ms";
        let wanted = Timings {
            recheck: one,
            move_limit: one,
            move_limit_followed: one,
            move_limit_ignored: one,
            preflight_pause: one,
            flush_limit: one,
            events_limit: one,
            retry: one,
            retry_cap: one,
            retry_unavailable_cap: one,
            rare_refused: one,
            pool_status_interval: one,
            pool_status_max_pause: one,
            detail_interval: one,
            watch: one,
            restore_check: one,
            drain_limit: one,
            webhook_authority_life: one,
            webhook_certificate_life: one,
            webhook_settle: one,
            webhook_retain: one,
            webhook_leave: one,
            webhook_restore: one,
            webhook_restore_cap: one,
        };
        assert_eq!(Timings::parse(&all), Ok(wanted));
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["recheck", "recheck=", "recheck=0s", "rechek=2s", "retry=1h"] {
            assert!(Timings::parse(bad).is_err(), "{bad}");
        }
    }
}
