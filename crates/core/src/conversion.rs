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
mod fields;
mod load_balancer;
mod review;
pub mod version;

pub use facts::{Facts, Index};
pub use review::{ConversionError, Outcome, Response, ReviewError, review};
pub use version::Version;

#[cfg(test)]
mod tests;
