//! A policy of an administrator that denies Services (SHR-3).

use std::net::IpAddr;

use serde_json::Value;

/// The Services that a policy denies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// Those with this port.
    Port(u16),
    /// Those that ask for an address with an even last number, or with an odd one.
    Addresses(bool),
}

impl Denied {
    /// Whether a Service with this spec is one of them.
    pub(crate) fn is_of(self, spec: &Value) -> bool {
        match self {
            Self::Port(denied) => {
                let mut ports = spec["ports"].as_array().into_iter().flatten();
                ports.any(|port| port["port"] == denied)
            }
            Self::Addresses(is_even) => {
                let asked = spec["loadBalancerIP"]
                    .as_str()
                    .and_then(|it| it.parse().ok());
                let last = asked.map(|it: IpAddr| match it {
                    IpAddr::V4(it) => it.octets()[3],
                    IpAddr::V6(it) => it.octets()[15],
                });
                last.is_some_and(|last| last.is_multiple_of(2) == is_even)
            }
        }
    }
}
