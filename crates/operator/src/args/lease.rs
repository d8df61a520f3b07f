//! The flags of the leader election, of the operator and of the DHCP process.

use std::time::Duration;

use clap::Args;
use harvester_lb_api::keys;
use harvester_lb_controller_kit::lease;

use crate::duration;

/// The flags of the leader election.
#[derive(Clone, Debug, Args)]
pub struct LeaseArgs {
    /// Time after which a Lease that is not renewed expires, in whole seconds.
    #[arg(long, env = "LEASE_DURATION", default_value = "15s", value_parser = duration::parse)]
    pub lease_duration: Duration,
    /// Time after the last renewal at which the leader stops working.
    #[arg(long, env = "LEASE_RENEW_DEADLINE", default_value = "10s", value_parser = duration::parse)]
    pub lease_renew_deadline: Duration,
    /// Time between two attempts to acquire or renew the Lease.
    #[arg(long, env = "LEASE_RETRY_PERIOD", default_value = "2s", value_parser = duration::parse)]
    pub lease_retry_period: Duration,
    /// Uid of this pod. A process takes the Lease of an earlier process of the same pod over at once.
    #[arg(long, env = "POD_UID")]
    pub pod_uid: Option<String>,
}

impl LeaseArgs {
    /// The holderIdentity of this process in the Lease: host name and pod uid. Without a pod uid a random number replaces
    /// it, because two processes on one host must differ.
    pub fn identity(&self, host: &str) -> String {
        match self.pod_uid.as_deref().filter(|uid| !uid.is_empty()) {
            Some(uid) => format!("{host}_{uid}"),
            None => format!("{host}_{:016x}", fastrand::u64(..)),
        }
    }

    /// The settings of the Lease of this name.
    pub fn settings(&self, name: &str, host: &str) -> lease::Settings {
        lease::Settings {
            namespace: keys::LEASE_NAMESPACE.to_owned(),
            name: name.to_owned(),
            identity: self.identity(host),
            duration: self.lease_duration,
            renew_deadline: self.lease_renew_deadline,
            retry: self.lease_retry_period,
        }
    }
}
