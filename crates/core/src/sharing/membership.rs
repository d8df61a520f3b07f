//! Who may belong to a group, and who has its address (SHR-1, SHR-5 to SHR-7).

use harvester_lb_api::meta::annotation;
use harvester_lb_api::{Ipam, LoadBalancer, WorkloadType, keys};
use harvester_lb_ipam::Micros;
use harvester_lb_object::is_dns_subdomain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::reasons::{INVALID_PRIMARY, PRIMARY_NOT_FOUND};
use crate::spec_annotations::shown;
use crate::time;

/// The annotation, in messages.
const KEY: &str = keys::ANNOTATION_PRIMARY;

/// What counts of a load balancer.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Whether it can be decoded. Of one that cannot only the metadata is known, and a live read could not be decoded either.
    pub is_readable: bool,
    /// When it was created.
    pub created: Micros,
    /// Its type.
    pub workload: WorkloadType,
    /// Where its address comes from.
    pub ipam: Ipam,
    /// The pool that it names.
    pub pool: Option<&'a str>,
    /// Whether it requests an address of its own.
    pub requests_address: bool,
    /// The group that it names: the value of its annotation.
    pub primary: Option<&'a str>,
    /// A load balancer that shares its address now, if any (SHR-7).
    pub secondary: Option<&'a str>,
    /// Whether its status names the address of the group; while that has no record, whether it was that when the status was written.
    pub names_address: bool,
}

impl<'a> Candidate<'a> {
    /// What counts of a load balancer by itself: nobody shares its address, and its status names none.
    pub fn of(lb: &'a LoadBalancer) -> Self {
        Self {
            is_readable: true,
            workload: lb.spec.workload(),
            ipam: lb.spec.address_source(),
            pool: lb.spec.ip_pool.as_deref().filter(|it| !it.is_empty()),
            ..Self::of_meta(&lb.metadata)
        }
    }

    /// The same of one that cannot be decoded.
    pub fn of_meta(meta: &'a ObjectMeta) -> Self {
        Self {
            name: meta.name.as_deref().unwrap_or_default(),
            uid: meta.uid.as_deref().unwrap_or_default(),
            is_readable: false,
            created: time::created(meta),
            workload: WorkloadType::Vm,
            ipam: Ipam::Pool,
            pool: None,
            requests_address: annotation(meta, keys::ANNOTATION_REQUESTED_ADDRESS).is_some(),
            primary: annotation(meta, keys::ANNOTATION_PRIMARY),
            secondary: None,
            names_address: false,
        }
    }
}

/// The group that a load balancer names, as it is.
#[derive(Clone, Debug, Default)]
pub struct Group<'a> {
    /// The load balancer of its name, if that exists.
    pub primary: Option<Candidate<'a>>,
    /// The present members besides that one: they share the address, and one of them owns its record if there is no primary.
    pub members: Vec<Candidate<'a>>,
    /// The pool of the address; `None` while it has none.
    pub pool: Option<&'a str>,
    /// Whether the address is an IPv6 address.
    pub is_ipv6: bool,
}

/// Why a load balancer does not share the address of the group that it names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotAMember {
    /// It names itself.
    #[error(
        "annotation {KEY} is {0:?}, the load balancer itself: name another one, or remove the annotation"
    )]
    Itself(String),
    /// The text is no name.
    #[error(
        "annotation {KEY} is {0:?}: it must be the name of a load balancer of the same namespace, without the namespace"
    )]
    NoName(String),
    /// It requests an address.
    #[error("annotation {KEY} is {0:?}, and {requested} is set too: remove one of the two", requested = keys::ANNOTATION_REQUESTED_ADDRESS)]
    RequestsAddress(String),
    /// It gets its address by DHCP.
    #[error(
        "annotation {KEY} is {0:?}, and spec.ipam is dhcp: only addresses of pools can be shared"
    )]
    Dhcp(String),
    /// The primary gets its address by DHCP.
    #[error(
        "annotation {KEY} is {0:?}, and spec.ipam of that load balancer is dhcp: only addresses of pools can be shared"
    )]
    PrimaryUsesDhcp(String),
    /// The primary shares the address of another one itself.
    #[error(
        "annotation {KEY} is {primary:?}, which shares the address of {of:?} itself: name that one"
    )]
    Chain {
        /// The value.
        primary: String,
        /// The primary of that load balancer.
        of: String,
    },
    /// The primary names this load balancer.
    #[error(
        "annotation {KEY} is {0:?}, which names this load balancer in its own: remove the annotation of one of the two"
    )]
    Circle(String),
    /// Others share its own address.
    #[error(
        "annotation {KEY} is {primary:?}, but {secondary} shares the address of this load balancer, which goes on serving: remove the annotation here, or there first"
    )]
    HasSecondaries {
        /// The value.
        primary: String,
        /// One that shares its address.
        secondary: String,
    },
    /// The types differ.
    #[error(
        "annotation {KEY} is {primary:?}, a load balancer of workload type {theirs}, and this one is of type {own}: the types must be the same"
    )]
    OtherType {
        /// The value.
        primary: String,
        /// The type in the group.
        theirs: &'static str,
        /// Its own.
        own: &'static str,
    },
    /// Its type has no endpoints with the address (BE-7).
    #[error(
        "annotation {KEY} is {0:?}, whose address is an IPv6 address, and the endpoints of a load balancer of workload type vm have IPv4 addresses: name one with an IPv4 address"
    )]
    Ipv6(String),
    /// It names another pool.
    #[error(
        "annotation {KEY} is {primary:?}, whose address is of pool {of}, and spec.ipPool is {named}: leave spec.ipPool empty, or name that pool"
    )]
    OtherPool {
        /// The value.
        primary: String,
        /// The pool that the load balancer names.
        named: String,
        /// That of the address.
        of: String,
    },
    /// There is neither the primary nor anybody who shares its address.
    #[error("annotation {KEY} is {0:?}: there is no such load balancer in this namespace")]
    NotFound(String),
}

impl NotAMember {
    /// The reason of the condition (SHR-1).
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::NotFound(_) => PRIMARY_NOT_FOUND,
            _ => INVALID_PRIMARY,
        }
    }

    /// Whether only an edit of the load balancer itself can cure it, so that admission denies it.
    pub const fn is_final(&self) -> bool {
        matches!(
            self,
            Self::Itself(_) | Self::NoName(_) | Self::RequestsAddress(_) | Self::Dhcp(_)
        )
    }

    /// The value of the annotation, as the text quotes it.
    pub fn value(&self) -> &str {
        match self {
            Self::Itself(value)
            | Self::NoName(value)
            | Self::RequestsAddress(value)
            | Self::Dhcp(value)
            | Self::PrimaryUsesDhcp(value)
            | Self::NotFound(value)
            | Self::Ipv6(value)
            | Self::Circle(value)
            | Self::Chain { primary: value, .. }
            | Self::HasSecondaries { primary: value, .. }
            | Self::OtherType { primary: value, .. }
            | Self::OtherPool { primary: value, .. } => value,
        }
    }
}

/// What is wrong with the request of a load balancer to share an address, whatever else exists (SHR-1); `None` also if it has none.
pub fn fault_of(lb: &LoadBalancer) -> Option<NotAMember> {
    let candidate = Candidate::of(lb);
    own_fault(&candidate, candidate.primary?)
}

/// What is wrong with a request to share an address, whatever else exists (SHR-1). Of the value, which may be any text, only the
/// beginning is quoted.
pub fn own_fault(lb: &Candidate<'_>, primary: &str) -> Option<NotAMember> {
    let value = || shown(primary);
    if !is_dns_subdomain(primary) {
        Some(NotAMember::NoName(value()))
    } else if primary == lb.name {
        Some(NotAMember::Itself(value()))
    } else if lb.requests_address {
        Some(NotAMember::RequestsAddress(value()))
    } else if lb.ipam == Ipam::Dhcp {
        Some(NotAMember::Dhcp(value()))
    } else {
        None
    }
}

/// Why a load balancer does not share the address of the group that it names (SHR-1, SHR-7). Contested ports are decided
/// afterwards, see [`super::ports`].
///
/// # Errors
/// The first reason.
pub fn join(lb: &Candidate<'_>, primary: &str, group: &Group<'_>) -> Result<(), NotAMember> {
    if let Some(fault) = own_fault(lb, primary) {
        return Err(fault);
    }
    let value = || shown(primary);
    if let Some(secondary) = lb.secondary {
        return Err(NotAMember::HasSecondaries {
            primary: value(),
            secondary: secondary.to_owned(),
        });
    }
    if let Some(present) = &group.primary {
        // One that others share with names a primary in vain, and stays one itself (SHR-7).
        if let Some(of) = present.primary.filter(|_| present.secondary.is_none())
            && own_fault(present, of).is_none()
        {
            return Err(if of == lb.name {
                NotAMember::Circle(value())
            } else {
                NotAMember::Chain {
                    primary: value(),
                    of: shown(of),
                }
            });
        }
        if present.ipam == Ipam::Dhcp {
            return Err(NotAMember::PrimaryUsesDhcp(value()));
        }
    }
    let Some(one) = group.primary.as_ref().or_else(|| oldest(&group.members)) else {
        return Err(NotAMember::NotFound(value()));
    };
    if one.workload != lb.workload {
        return Err(NotAMember::OtherType {
            primary: value(),
            theirs: text(one.workload),
            own: text(lb.workload),
        });
    }
    if group.is_ipv6 && lb.workload == WorkloadType::Vm {
        return Err(NotAMember::Ipv6(value()));
    }
    let pool = group.pool.or(one.pool);
    match (lb.pool, pool) {
        (Some(named), Some(of)) if named != of => Err(NotAMember::OtherPool {
            primary: value(),
            named: named.to_owned(),
            of: of.to_owned(),
        }),
        _ => Ok(()),
    }
}

/// The owner in the record of a group's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldBy<'a> {
    /// Name of the load balancer.
    pub name: &'a str,
    /// Its uid.
    pub uid: &'a str,
}

impl HeldBy<'_> {
    /// Whether this load balancer is that owner, or was restored from a backup of it: its status names the address (IPA-3).
    pub fn is(&self, lb: &Candidate<'_>) -> bool {
        self.uid == lb.uid || (self.name == lb.name && lb.names_address)
    }
}

/// Who is to own the record of a group: the one of its name, the primary, else the present owner, else the oldest that can be decoded, of
/// those that share the address before those that have yet to join. A record passes on when its owner goes or drops out, not when an
/// older one joins (SHR-5). `members`: each with whether it shares the address now.
pub fn holder<'a, 'b>(
    name: &str,
    members: &[(&'b Candidate<'a>, bool)],
    held_by: Option<HeldBy<'_>>,
) -> Option<&'b Candidate<'a>> {
    let is_owner = |it: &Candidate<'_>| held_by.is_some_and(|held_by| held_by.is(it));
    let members = members.iter().copied();
    let first = members.min_by_key(|(it, is_present)| {
        let of_name = it.name == name;
        (
            !of_name,
            !is_owner(it),
            !it.is_readable,
            !is_present,
            it.created,
            it.name,
        )
    });
    first.map(|(it, _)| it)
}

/// Whether a record of the group's address is that of an earlier load balancer of the primary's name, or of one that had the address
/// handed over from it. One that was restored from a backup is that earlier one: its status names the address (IPA-3).
pub fn is_of_earlier(primary: &Candidate<'_>, held_by: HeldBy<'_>) -> bool {
    let is_restored = held_by.name == primary.name && primary.names_address;
    primary.uid != held_by.uid && !is_restored
}

/// SHR-6: whether others share the address of an earlier load balancer of this name, which this one must not take over (ALC-1).
pub fn is_name_taken(primary: &Candidate<'_>, group: &Group<'_>, held_by: HeldBy<'_>) -> bool {
    !group.members.is_empty() && is_of_earlier(primary, held_by)
}

/// A type as `spec.workloadType` has it.
const fn text(of: WorkloadType) -> &'static str {
    match of {
        WorkloadType::Vm => "vm",
        WorkloadType::Cluster => "cluster",
    }
}

fn oldest<'a, 'b>(members: &'b [Candidate<'a>]) -> Option<&'b Candidate<'a>> {
    members.iter().min_by_key(|it| (it.created, it.name))
}

#[cfg(test)]
mod tests;
