//! The wire format: `ConversionReview` of apiextensions.k8s.io/v1.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::facts::Facts;
use super::fields::{Fields, List, each, quoted, text};
use super::load_balancer::{Name, to_v1alpha1, to_v1beta1};
use super::version::Version;

/// The `apiVersion` of a review.
const API_VERSION: &str = "apiextensions.k8s.io/v1";
/// The `kind` of a review.
const KIND: &str = "ConversionReview";
/// The kind of the objects.
const LOAD_BALANCER: &str = "LoadBalancer";
/// Most characters of an error that come from the request.
const QUOTED: usize = 256;

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
    #[error(
        "LoadBalancers cannot be converted to {desired:?}: the versions are {}",
        Version::LIST
    )]
    UnknownDesired {
        /// The version, shortened.
        desired: String,
    },
    /// `request.objects` is no list.
    #[error("request.objects is not a list")]
    NoList,
    /// An object is no JSON object, or has more fields than any LoadBalancer.
    #[error("objects[{index}]: {problem}")]
    Malformed {
        /// Its index in the request.
        index: usize,
        /// What is wrong, shortened.
        problem: String,
    },
    /// An object is of another group, version or kind.
    #[error(
        "{object} is a {kind:?} of {version:?}: only LoadBalancers of {} are converted",
        Version::LIST
    )]
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
    #[error(
        "VirtualMachineInstances, IPPools and IPAllocations are not listed yet: retry in a moment"
    )]
    NotReady,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review<'a> {
    #[serde(default)]
    api_version: String,
    #[serde(default)]
    kind: String,
    #[serde(borrow)]
    request: Option<Request<'a>>,
}

#[derive(Deserialize)]
struct Request<'a> {
    uid: String,
    #[serde(rename = "desiredAPIVersion", default)]
    desired: String,
    /// Absent or null: none.
    #[serde(borrow)]
    objects: Option<&'a RawValue>,
}

/// Why the conversion of the objects ends.
enum Stop {
    Failed(ConversionError),
    NotReady,
}

impl From<ConversionError> for Stop {
    fn from(error: ConversionError) -> Self {
        Self::Failed(error)
    }
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
    let not_a_review = |problem: &dyn fmt::Display| ReviewError::NotAReview(shortened(problem));
    let review: Review<'_> = serde_json::from_slice(body).map_err(|error| not_a_review(&error))?;
    let Review {
        api_version, kind, ..
    } = &review;
    if api_version != API_VERSION || kind != KIND {
        return Err(not_a_review(&format_args!(
            "it is a {kind:?} of {api_version:?}"
        )));
    }
    let request = review
        .request
        .ok_or_else(|| not_a_review(&"it has no request"))?;
    let objects = request.objects.map_or("[]", RawValue::get);
    let (converted, outcome) = match convert(objects, &request.desired, facts) {
        Ok((converted, outcome)) => (converted, outcome),
        Err(Stop::Failed(error)) => ("[]".to_owned(), Outcome::Failed(error)),
        Err(Stop::NotReady) => return Err(ReviewError::NotReady),
    };
    let result = match &outcome {
        Outcome::Converted { .. } => json!({ "status": "Success" }),
        Outcome::Failed(error) => json!({ "status": "Failure", "message": error.to_string() }),
    };
    let uid = quoted(&request.uid);
    let body = format!(
        r#"{{"apiVersion":"{API_VERSION}","kind":"{KIND}","response":{{"uid":{uid},"result":{result},"convertedObjects":{converted}}}}}"#
    );
    Ok(Response {
        body: body.into_bytes(),
        outcome,
    })
}

/// The converted objects as a JSON list, until the first that fails.
fn convert(
    objects: &str,
    desired: &str,
    facts: Option<&dyn Facts>,
) -> Result<(String, Outcome), Stop> {
    let desired = Version::parse(desired).ok_or_else(|| ConversionError::UnknownDesired {
        desired: shortened(&desired),
    })?;
    let mut converted = List::new();
    let mut count = 0;
    let mut stop = None;
    let is_list = each(objects, |object| {
        // Once one failed, the others are skipped.
        if stop.is_none() {
            match convert_object(count, object, desired, facts) {
                Ok(object) => converted.push(&object),
                Err(error) => stop = Some(error),
            }
            count += 1;
        }
    });
    match stop {
        Some(stop) => Err(stop),
        None if is_list => Ok((
            converted.into_json(),
            Outcome::Converted {
                desired,
                objects: count,
            },
        )),
        None => Err(Stop::Failed(ConversionError::NoList)),
    }
}

fn convert_object(
    index: usize,
    json: &str,
    desired: Version,
    facts: Option<&dyn Facts>,
) -> Result<String, Stop> {
    let mut object = Fields::parse(json).map_err(|error| ConversionError::Malformed {
        index,
        problem: shortened(&error),
    })?;
    let field = |name| object.get(name).and_then(text).unwrap_or(Cow::Borrowed(""));
    let (kind, version) = (field("kind"), field("apiVersion"));
    let present = Version::parse(&version).filter(|_| kind == LOAD_BALANCER);
    match (present, desired) {
        (None, _) => {
            return Err(Stop::Failed(ConversionError::UnknownObject {
                object: key(&object),
                kind: shortened(&kind),
                version: shortened(&version),
            }));
        }
        (Some(Version::V1Alpha1), Version::V1Beta1) => {
            to_v1beta1(&mut object, facts.ok_or(Stop::NotReady)?);
        }
        (Some(Version::V1Beta1), Version::V1Alpha1) => to_v1alpha1(&mut object),
        (Some(version), _) => {
            return Err(Stop::Failed(ConversionError::SameVersion {
                object: key(&object),
                version,
            }));
        }
    }
    Ok(object.to_json())
}

/// Namespace and name, for an error.
fn key(object: &Fields<'_>) -> String {
    let Name { namespace, name } = Name::of(object);
    shortened(&format_args!("{namespace}/{name}"))
}

/// The first characters of a text.
fn shortened(text: &dyn fmt::Display) -> String {
    let text = text.to_string();
    match text.char_indices().nth(QUOTED) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}
