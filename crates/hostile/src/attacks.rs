//! Changes with an attacker's intent: one of the metadata of any kind (`metadata`), of the annotations that request addresses
//! (`requests`), of a kind of our API group (`ours`) or of another (`others`), with the values in `parts`.

mod metadata;
mod others;
mod ours;
mod parts;
mod requests;

use fastrand::Rng;
use serde_json::Value;

use crate::kind::{Kind, Source, Targets};

use metadata::metadata;
use others::{service, slice, vm, vmi};
use ours::{allocation, load_balancer, pool};
use requests::requests;

/// Makes one change, and says which.
pub(crate) fn one(
    rng: &mut Rng,
    kind: Kind,
    source: Source,
    targets: &Targets,
    object: &mut Value,
) -> String {
    if rng.u8(..4) == 0 {
        return metadata(rng, source, targets, object);
    }
    if rng.u8(..3) == 0
        && let Some(done) = requests(rng, kind, targets, object)
    {
        return done;
    }
    match kind {
        Kind::LoadBalancer => load_balancer(rng, targets, object),
        Kind::IpPool => pool(rng, targets, object),
        Kind::IpAllocation => allocation(rng, targets, object),
        Kind::Vmi => vmi(rng, object),
        Kind::Vm => vm(rng, object),
        Kind::Service => service(rng, targets, object),
        Kind::EndpointSlice => slice(rng, targets, object),
    }
}
