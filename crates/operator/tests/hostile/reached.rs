//! Whether the generated objects reach the parsers of annotations: over some seeds each annotation occurs with texts that its parser
//! takes, and with texts that it refuses.

use std::collections::BTreeMap;

use harvester_lb_api::meta::{Decoded, annotation};
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, keys};
use harvester_lb_controller_kit::decode_guard::decode;
use harvester_lb_core::cached::Allocation;
use harvester_lb_core::dhcp::claim::ServiceView;
use harvester_lb_core::kube_vip_annotations::{COPIED, is_interface_name};
use harvester_lb_core::pool_spec::exclusions_of;
use harvester_lb_core::sharing::membership::fault_of;
use harvester_lb_core::spec_annotations::{RequestedAddress, requested_address};
use harvester_lb_hostile::{Generator, Kind, Source, annotations};
use harvester_lb_ipam::addr;
use harvester_lb_ipam::dhcp::HardwareAddress;
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::DeserializeOwned;

use crate::scene::{LOUD, targets};

/// Objects of a kind and seed.
const OBJECTS: usize = 1_000;
/// Least number of texts of each annotation that the parser takes, and of those that it refuses.
const LEAST: usize = 5;

/// How many texts of each annotation its parser has taken, and refused.
type Counts = BTreeMap<&'static str, (usize, usize)>;

/// Counts the texts of each annotation of a kind. `is_taken`: whether its parser takes that of this key.
fn counts<K: DeserializeOwned>(
    kind: Kind,
    metadata: impl Fn(&K) -> &ObjectMeta,
    is_taken: impl Fn(&K, &str, &str) -> bool,
) -> Counts {
    let mut counts = Counts::new();
    for seed in 1..=4 {
        let mut generator = Generator::new(seed, kind, Source::FromWatch, targets());
        for number in 0..OBJECTS {
            let namespace = if kind.is_cluster_scoped() { "" } else { LOUD };
            let name = format!("10.66.0.{}", number % 100);
            let mutant = generator.mutant(namespace, &name);
            let Ok(Ok(object)) = decode::<K>(&mutant.text) as Result<Decoded<K>, _> else {
                continue;
            };
            for key in annotations(kind) {
                if let Some(text) = annotation(metadata(&object), key) {
                    let (taken, refused) = counts.entry(key).or_default();
                    let count = if is_taken(&object, key, text) {
                        taken
                    } else {
                        refused
                    };
                    *count += 1;
                }
            }
        }
    }
    eprintln!("{kind:?}: {counts:?}");
    counts
}

fn are_reached(kind: Kind, counts: &Counts) {
    for key in annotations(kind) {
        let (taken, refused) = counts.get(key).copied().unwrap_or_default();
        assert!(
            taken >= LEAST && refused >= LEAST,
            "{kind:?}: {key}: {taken} taken, {refused} refused"
        );
    }
}

/// kube-vip's flags; the operator does not read them.
fn is_flag(text: &str) -> bool {
    text == "true" || text == "web.example.org"
}

#[test]
fn input_annotations_of_load_balancers_reach_their_parsers() {
    for key in COPIED {
        assert!(
            annotations(Kind::LoadBalancer).contains(&key),
            "{key} is never generated"
        );
    }
    let all = counts(
        Kind::LoadBalancer,
        |lb: &LoadBalancer| &lb.metadata,
        |lb, key, text| match key {
            keys::ANNOTATION_REQUESTED_ADDRESS => {
                matches!(requested_address(&lb.metadata), RequestedAddress::Of(_))
            }
            keys::ANNOTATION_PRIMARY => fault_of(lb).is_none(),
            keys::ANNOTATION_DHCP_HARDWARE_ADDRESS => HardwareAddress::parse(text).is_ok(),
            keys::ANNOTATION_KUBE_VIP_INTERFACE => is_interface_name(text),
            _ => is_flag(text),
        },
    );
    are_reached(Kind::LoadBalancer, &all);
}

#[test]
fn input_exclusions_reach_their_parser() {
    let all = counts(
        Kind::IpPool,
        |pool: &IPPool| &pool.metadata,
        |pool, _, _| exclusions_of(&pool.metadata).is_ok(),
    );
    are_reached(Kind::IpPool, &all);
}

#[test]
fn input_groups_of_records_reach_their_parser() {
    let all = counts(
        Kind::IpAllocation,
        |record: &IPAllocation| &record.metadata,
        |record, _, _| matches!(Allocation::decoded(record), Allocation::Valid { record, .. } if record.spec.group.is_some()),
    );
    are_reached(Kind::IpAllocation, &all);
}

#[test]
fn input_annotations_of_services_reach_their_parsers() {
    let all = counts(
        Kind::Service,
        |service: &Service| &service.metadata,
        |service, key, text| {
            let view = ServiceView::of(service);
            match key {
                keys::ANNOTATION_KUBE_VIP_ADDRESSES => addr::parse(text).is_some(),
                keys::ANNOTATION_KUBE_VIP_REQUESTED_IP => {
                    view.is_some_and(|view| view.kube_vip_address.is_some())
                }
                keys::ANNOTATION_KUBE_VIP_HARDWARE => {
                    view.is_some_and(|view| view.kube_vip_hardware.is_some())
                }
                keys::ANNOTATION_KUBE_VIP_INTERFACE => is_interface_name(text),
                keys::ANNOTATION_COPIED => serde_json::from_str::<serde_json::Value>(text).is_ok(),
                _ => text == "node1",
            }
        },
    );
    are_reached(Kind::Service, &all);
}
