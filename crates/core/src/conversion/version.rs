//! The versions of a LoadBalancer.

use std::fmt;

use harvester_lb_api::{API_VERSION, API_VERSION_V1ALPHA1};

/// A version of a LoadBalancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// v1alpha1: backends by their addresses, no pools. Written by guest clusters with a cloud provider v0.1.x.
    V1Alpha1,
    /// v1beta1, the storage version.
    V1Beta1,
}

impl Version {
    /// Both versions, as an error names them.
    pub(super) const LIST: &'static str =
        "loadbalancer.harvesterhci.io/v1alpha1 and loadbalancer.harvesterhci.io/v1beta1";

    /// The `apiVersion`.
    pub const fn api_version(self) -> &'static str {
        match self {
            Self::V1Alpha1 => API_VERSION_V1ALPHA1,
            Self::V1Beta1 => API_VERSION,
        }
    }

    /// The version of an `apiVersion`.
    pub fn parse(text: &str) -> Option<Self> {
        [Self::V1Alpha1, Self::V1Beta1]
            .into_iter()
            .find(|version| version.api_version() == text)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.api_version())
    }
}
