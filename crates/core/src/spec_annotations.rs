//! The annotations of a load balancer that are a part of its spec (section 15). Pure.

use std::net::IpAddr;

use harvester_lb_api::keys;
use harvester_lb_api::meta::annotation;
use harvester_lb_ipam::{Explanation, addr};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Characters of an annotation that a message quotes.
const VALUE_SHOWN: usize = 64;

/// The beginning of an annotation, which may be any text, for messages.
pub fn shown(value: &str) -> String {
    value.chars().take(VALUE_SHOWN).collect()
}

/// The annotation `requested-address` (REQ-1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestedAddress<'a> {
    /// There is none.
    None,
    /// This address. An IPv4-mapped IPv6 address is the IPv4 address.
    Of(IpAddr),
    /// This text is no address.
    Invalid(&'a str),
}

/// The address that a load balancer requests (REQ-1). Blanks around it do not matter.
pub fn requested_address(meta: &ObjectMeta) -> RequestedAddress<'_> {
    match annotation(meta, keys::ANNOTATION_REQUESTED_ADDRESS) {
        None => RequestedAddress::None,
        Some(text) => match addr::parse(text.trim()) {
            Some(addr) => RequestedAddress::Of(addr.to_canonical()),
            None => RequestedAddress::Invalid(text),
        },
    }
}

/// Why a load balancer cannot have the address that it requests, for a condition (REQ-3, REQ-4).
pub fn unavailable(meta: &ObjectMeta, why: &Explanation) -> String {
    let key = keys::ANNOTATION_REQUESTED_ADDRESS;
    let value = shown(annotation(meta, key).unwrap_or_default());
    format!("annotation {key} is {value:?}: {why}")
}

#[cfg(test)]
mod tests {
    use harvester_lb_ipam::{PoolVerdict, Verdict};

    use super::*;

    #[test]
    fn req_3_the_reason_names_key_and_value() {
        let pool = "p".into();
        let verdict = Verdict::Missing;
        let why = Explanation::new(vec![PoolVerdict { pool, verdict }], 1);
        let of = |text: &str| {
            let key = keys::ANNOTATION_REQUESTED_ADDRESS.to_owned();
            let meta = ObjectMeta {
                annotations: Some([(key, text.to_owned())].into()),
                ..ObjectMeta::default()
            };
            unavailable(&meta, &why)
        };
        let key = keys::ANNOTATION_REQUESTED_ADDRESS;
        let expected = format!("annotation {key} is \"10.0.0.9\": pool p: does not exist");
        assert_eq!(of("10.0.0.9"), expected);
    }

    #[test]
    fn req_1_any_valid_text_of_an_address() {
        let of = |text: &str| {
            let annotations = [(
                keys::ANNOTATION_REQUESTED_ADDRESS.to_owned(),
                text.to_owned(),
            )];
            let meta = ObjectMeta {
                annotations: Some(annotations.into()),
                ..ObjectMeta::default()
            };
            match requested_address(&meta) {
                RequestedAddress::Of(addr) => addr.to_string(),
                other => format!("{other:?}"),
            }
        };
        for (text, expected) in [
            ("10.0.0.9", "10.0.0.9"),
            (" 10.0.0.9 ", "10.0.0.9"),
            ("fd10::9", "fd10::9"),
            ("FD10:0::9", "fd10::9"),
            ("::ffff:10.0.0.9", "10.0.0.9"),
            ("", "Invalid(\"\")"),
            ("x", "Invalid(\"x\")"),
            ("10.0.0.9/24", "Invalid(\"10.0.0.9/24\")"),
            ("10.0.0", "Invalid(\"10.0.0\")"),
        ] {
            assert_eq!(of(text), expected, "{text:?}");
        }
        let bare = ObjectMeta::default();
        assert_eq!(requested_address(&bare), RequestedAddress::None);
    }
}
