//! Conversion of LoadBalancers between v1alpha1 and v1beta1 (section 2.4): from the bytes of a `ConversionReview` to those of
//! its response. Pure: what is read of other objects comes in through [`Facts`].
//!
//! ```text
//! body ─> review ─┬─> Response: the objects in their order, or one failure for all of them
//!                 └─> ReviewError: no review (400), or a list is not complete yet (503)
//! ```
//!
//! | module | owns |
//! |---|---|
//! | [`facts`] | what is read of other objects, and an index of it that is updated incrementally |
//! | [`version`] | the versions of a LoadBalancer |
//! | `fields` | JSON objects whose values stay text |
//! | `load_balancer` | the table of section 2.4 |
//! | `review` | the wire format |
//!
//! **Nothing is decoded that is not converted.** Metadata, conditions, unknown fields and numbers of any size reach the
//! response as the text that they are in the request, so that no field is lost or rewritten. It also bounds the memory: a
//! review takes a small multiple of its body, whatever the body holds, and the work is linear in its size.
//!
//! **An object is not refused because a field has an unexpected type.** The API server converts stored objects before it
//! lists or watches them, so that one failure would hide all LoadBalancers. A field that cannot be converted is carried
//! over as it is, and the reader of the object reports it.

pub mod facts;
pub mod version;

pub use facts::{Facts, Index};
pub use version::Version;

/// The response to a review.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The `ConversionReview` to send, as JSON, with status 200.
    pub body: Vec<u8>,
    /// What it says, for log and metrics.
    pub outcome: Outcome,
}

/// What a response says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// All objects are converted.
    Converted {
        /// The version that they have now.
        desired: Version,
        /// Their number.
        objects: usize,
    },
    /// The review failed, with this message. A response of apiextensions.k8s.io/v1 has no failure of a single object: the
    /// first one fails the review.
    Failed(ConversionError),
}

/// Why a review failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConversionError {
    /// `request.desiredAPIVersion` is none of the two versions.
    #[error("LoadBalancers cannot be converted to {desired:?}: the versions are {}", Version::LIST)]
    UnknownDesired {
        /// The version, shortened.
        desired: String,
    },
    /// An object is no JSON object, or has more fields than any LoadBalancer.
    #[error("objects[{index}]: {problem}")]
    Malformed {
        /// Its index in the request.
        index: usize,
        /// What is wrong.
        problem: String,
    },
    /// An object is of another group, version or kind.
    #[error("{object} is a {kind:?} of {version:?}: only LoadBalancers of {} are converted", Version::LIST)]
    UnknownObject {
        /// Namespace and name.
        object: String,
        /// Its kind, shortened.
        kind: String,
        /// Its `apiVersion`, shortened.
        version: String,
    },
    /// An object has the desired version. The API server does not ask for that.
    #[error("LoadBalancer {object} is of {version} already: there is nothing to convert")]
    SameVersion {
        /// Namespace and name.
        object: String,
        /// The version.
        version: Version,
    },
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReviewError {
    /// The body is no `ConversionReview` of apiextensions.k8s.io/v1 (status 400).
    #[error("not a ConversionReview of apiextensions.k8s.io/v1: {0}")]
    NotAReview(String),
    /// A list that the conversion needs is not complete yet (status 503): without it the conversion would strip the
    /// selector or the pool of the object. The API server fails the request, and the client repeats it.
    #[error("VirtualMachineInstances, IPPools and IPAllocations are not listed yet: retry in a moment")]
    NotReady,
}

/// Answers a `ConversionReview` of apiextensions.k8s.io/v1. Objects keep their order, the response has the uid of the request.
///
/// `facts` is `None` until VirtualMachineInstances, IPPools and IPAllocations are listed. Objects of v1alpha1 need them, and
/// objects of v1beta1 are converted without.
///
/// The caller bounds the length of the body. The response is at most about five times as long, apart from the names of
/// virtual machines.
///
/// # Errors
/// [`ReviewError::NotAReview`], and [`ReviewError::NotReady`] if an object of v1alpha1 comes without `facts`. Everything that
/// is wrong with version or objects is a [`Response`] with [`Outcome::Failed`].
pub fn review(body: &[u8], facts: Option<&dyn Facts>) -> Result<Response, ReviewError> {
    review::answer(body, facts)
}
