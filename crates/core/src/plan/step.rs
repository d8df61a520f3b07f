//! The steps of a plan, their guards, and what a plan ends with.

use std::fmt;
use std::time::Duration;

use harvester_lb_ipam::{Owner, PoolName};
use harvester_lb_object::{Key, Version};
use harvester_lb_prober::{HealthCheck, Target};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use crate::status::StatusUpdate;

/// One step. All but [`Step::HealthChecks`] are one request to the API server.
#[derive(Clone, Debug)]
pub enum Step {
    /// Change which targets are probed.
    HealthChecks(Probes),
    /// Write the status of the load balancer, to commit its address before the Service has it (IPA-6).
    Commit(Box<StatusUpdate>),
    /// Write the EndpointSlice.
    Slice(Write<EndpointSlice>),
    /// Write the Service.
    Service(Write<Service>),
}

/// The write of an object.
#[derive(Clone, Debug)]
pub enum Write<K> {
    /// Create it.
    Create(Box<K>),
    /// Apply a merge patch to exactly the copy with this metadata (IPA-5).
    Patch(ObjectMeta, Value),
    /// Delete exactly the copy with this metadata (IPA-5).
    Delete(ObjectMeta),
}

/// The targets of a load balancer's health checks.
#[derive(Clone, Debug)]
pub enum Probes {
    /// They stay as they are.
    Unchanged,
    /// None are probed.
    End,
    /// Exactly these are probed.
    Run(HealthCheck, Vec<Target>),
}

/// What must hold before a step, because no write with a resource version proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// A live read finds the load balancer unchanged.
    Unchanged,
    /// As [`Guard::Unchanged`], at most once in a term: an earlier leader may have served a newer state than the copy that this
    /// process had when it became leader (IPA-6).
    CaughtUp,
    /// As [`Guard::CaughtUp`], for each of these load balancers, which share the address or own the Service; of one that the store does
    /// not have a live read finds none either.
    AllCaughtUp(Vec<Key>),
    /// A live read finds that the load balancer owns the Service of this group no more (SHR-7).
    LeftGroup(Key),
    /// A live read finds this load balancer.
    Exists(Owner),
    /// No other load balancer has one of these ports of a shared Service in its EndpointSlice, by their names, or is about to. None gets
    /// one until all steps of the plan are done (SHR-2).
    Unoffered(Key, Vec<String>),
    /// A live read finds the pool, or its absence, unchanged (REL-4).
    PoolUnchanged(SeenPool),
    /// A live read finds the record of a DHCP lease, or its absence, unchanged (DHC-3).
    LeaseUnchanged(SeenLease),
    /// A live read finds that the object of the load balancer's name is another owner's (SVC-1).
    Foreign(Kind),
}

/// The stored copy of the pool that a load balancer names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenPool {
    /// Its name.
    pub name: PoolName,
    /// Its resource version; `None` if there was no such pool.
    pub version: Option<Version>,
    /// Whether it can be decoded. The answer to a live read of one that cannot could not be decoded either.
    pub is_decodable: bool,
}

/// The stored copy of the record of a DHCP lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenLease {
    /// Its name.
    pub name: String,
    /// Its resource version; `None` if there was none.
    pub version: Option<Version>,
}

/// The kind of an object that a load balancer of VM type owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Service.
    Service,
    /// EndpointSlice.
    EndpointSlice,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Service => "Service",
            Self::EndpointSlice => "EndpointSlice",
        })
    }
}

/// A step with what must hold before it.
#[derive(Clone, Debug)]
pub struct Guarded {
    /// Checked in this order, immediately before the step.
    pub guards: Vec<Guard>,
    /// The step.
    pub step: Step,
}

impl From<Step> for Guarded {
    fn from(step: Step) -> Self {
        Self {
            guards: Vec::new(),
            step,
        }
    }
}

/// When a load balancer is planned again, if no change comes first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// Only after a change.
    AwaitChange,
    /// Periodically, in case a change is missed (RUN-4).
    Resync,
    /// After this time.
    After(Duration),
    /// The object cannot be served, and no change announces when it can: with back-off.
    Backoff,
    /// At once: an object has changed in a way that is decided at the beginning. Why.
    Again(String),
}

/// What is done to which object, without its content.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn write<K>(of: &Write<K>) -> &'static str {
            match of {
                Write::Create(_) => "create",
                Write::Patch(..) => "patch",
                Write::Delete(_) => "delete",
            }
        }
        match self {
            Self::HealthChecks(Probes::Unchanged) => f.write_str("leave health checks"),
            Self::HealthChecks(Probes::End) => f.write_str("end health checks"),
            Self::HealthChecks(Probes::Run(_, targets)) => {
                write!(f, "check the health of {}", targets.len())
            }
            Self::Commit(_) => f.write_str("commit the address"),
            Self::Slice(it) => write!(f, "{} EndpointSlice", write(it)),
            Self::Service(it) => write!(f, "{} Service", write(it)),
        }
    }
}
