//! What became of the steps of a plan, and what follows them.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;

use crate::plan::step::Next;
use crate::status::StatusUpdate;

/// What became of the steps of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub struct Applied<'a> {
    /// The Service after them; `None` if there is none.
    pub service: Option<&'a Service>,
    /// The EndpointSlice after them; `None` if there is none.
    pub slice: Option<&'a EndpointSlice>,
    /// Why a write of the Service or EndpointSlice was refused.
    pub refused: Option<&'a str>,
    /// A write failed.
    pub is_incomplete: bool,
    /// The remaining time until the Service is to be recreated, because it still shows its previous address; `None` if it need
    /// not be (REL-4).
    pub recreate_in: Option<Duration>,
}

/// What follows the steps of a plan.
#[derive(Debug)]
pub struct Conclusion {
    /// The status to write; `None`: none.
    pub status: Option<StatusUpdate>,
    /// When the load balancer is planned again.
    pub next: Next,
}

/// A changed verdict on a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Name of the VirtualMachineInstance.
    pub name: Arc<str>,
    /// Its address.
    pub address: Ipv4Addr,
    /// Whether its endpoint is ready now.
    pub is_ready: bool,
}
