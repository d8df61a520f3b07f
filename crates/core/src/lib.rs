//! The decisions of the operator as pure functions, from cached objects to desired state. No client, clock, task or log.
//!
//! | module | owns |
//! |---|---|
//! | [`cached`] | the trimmed objects in the stores |
//! | [`validation`] | the rules of a spec: every violation, with its rule id |
//! | [`spec`] | parsing of a LoadBalancer spec into checked types |
//! | [`backends`] | selection of a load balancer's backends |
//! | [`backend_addresses`] | the addresses that no backend may have, and those that virtual machines report |
//! | [`desired`] | the desired Service and EndpointSlice |
//! | [`address_move`] | how long kube-vip may take to announce a changed address |
//! | [`dhcp`] | DHCP leases of load balancers: their record, and what is decided about it |
//! | [`readiness`] | the condition `Ready` and the extra conditions of a load balancer of VM type |
//! | [`spec_annotations`] | the annotations of a load balancer that are a part of its spec |
//! | [`sharing`] | load balancers that share an address: who may, and whose port a contested one is |
//! | [`reasons`] | reasons of `Ready`, types of further conditions |
//! | [`details`] | the detail conditions `AddressAllocated`, `Announced`, `BackendsHealthy` |
//! | [`status`] | the status of a load balancer, whether it is written, and the Events of its changes |
//! | [`detail_events`] | the Events about addresses and backends |
//! | [`event_draft`] | an Event before it is published |
//! | [`plan`] | the steps from a load balancer's observed objects to what it is to have, and the status after them |
//! | [`pool_spec`] | parsing of an IPPool spec for the ledger |
//! | [`pool_status`] | the status of a pool |
//! | [`conversion`] | conversion of LoadBalancers between v1alpha1 and v1beta1 |
//! | [`guest_cluster`] | cleanup of the load balancers of a removed guest cluster |
//! | [`admission`] | the webhook's answers: which changes of LoadBalancers and IPPools are admitted, and how they are completed |
//! | [`kube_vip_annotations`] | kube-vip's annotations on a load balancer, and their copies on its Service |
//! | [`kube_vip_config`] | pools and history from the ConfigMaps of kube-vip |
//! | [`unsupported`] | features of later versions, which this version leaves alone |
//! | [`merge_patch`] | JSON merge patches between two objects |
//! | [`time`] | conversion of times from and to text |
//! | [`wording`] | comparison of messages with those of earlier versions |

pub mod address_move;
pub mod admission;
pub mod backend_addresses;
pub mod backends;
pub mod cached;
pub mod conversion;
pub mod desired;
pub mod detail_events;
pub mod details;
pub mod dhcp;
pub mod event_draft;
pub mod guest_cluster;
pub mod kube_vip_annotations;
pub mod kube_vip_config;
pub mod merge_patch;
pub mod plan;
pub mod pool_spec;
pub mod pool_status;
pub mod readiness;
pub mod reasons;
pub mod sharing;
pub mod spec;
pub mod spec_annotations;
pub mod status;
pub mod time;
pub mod unsupported;
pub mod validation;
pub mod wording;
