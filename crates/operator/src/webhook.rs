//! The webhook: admission (section 10) and conversion (2.4) for the API server, with certificates and registration of its
//! own (section 1). It has no leader; several replicas may run.
//!
//! | module | owns |
//! |---|---|
//! | [`server`], [`connections`], [`body`], [`tls`] | the port, and the limits of everything that a client may send or delay |
//! | [`reviews`] | the answers, over crate core |
//! | [`facts`], [`live_reads`] | what the answers depend on |
//! | [`certificates`] | which certificates are needed when: a machine without I/O |
//! | [`desired`], [`restores`] | what the API server must be told, and when that is restored |
//! | [`stored`], [`secrets`], [`registration`] | the objects of the webhook: cached, written |
//! | [`endpoints`] | whether somebody is behind the Service, before that is registered |
//! | [`keeper`], [`uninstallation`] | the task that keeps certificates and registration, and when it must not |
//! | [`metrics`] | counters, histograms and gauges |
//!
//! [`crate::runtime::webhook`] starts and stops it.

pub mod body;
pub mod certificates;
pub mod connections;
pub mod desired;
pub mod endpoints;
pub mod facts;
pub mod keeper;
pub mod live_reads;
pub mod metrics;
pub mod permissions;
pub mod registration;
pub mod restores;
pub mod reviews;
pub mod secrets;
pub mod server;
pub mod stored;
pub mod tls;
pub mod uninstallation;
