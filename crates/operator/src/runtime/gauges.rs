//! Gauges, computed from the stores at each scrape.

mod leases;

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use harvester_lb_api::condition::{self, ConditionStatus, READY};
use harvester_lb_core::cached::Lb;
use harvester_lb_core::desired;
use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{GaugeVec, IntCounter, IntGauge, IntGaugeVec, Opts};

use crate::clock;
use crate::context::Context;
use crate::runtime::term::CurrentTerm;

/// Collector of the gauges.
pub(super) struct Gauges {
    pub(super) current: Weak<CurrentTerm>,
    pub(super) backend_limit: usize,
    /// The families without values, for their descriptions.
    pub(super) families: Families,
    /// Serializes scrapes.
    pub(super) scrape: Mutex<()>,
}

pub(super) struct Families {
    pub(super) pool_addresses: GaugeVec,
    pub(super) load_balancers: IntGaugeVec,
    pub(super) load_balancer_ready: IntGaugeVec,
    pub(super) backends: IntGaugeVec,
    pub(super) backend_up: IntGaugeVec,
    pub(super) records: IntGaugeVec,
    pub(super) waiting: IntGauge,
    pub(super) dhcp_leases: IntGaugeVec,
    pub(super) dhcp_lease_expiry: GaugeVec,
    pub(super) cached_objects: IntGaugeVec,
    pub(super) queue_depth: IntGaugeVec,
    pub(super) failing: IntGaugeVec,
    pub(super) refused: IntGaugeVec,
    pub(super) probe_targets: IntGaugeVec,
    pub(super) probe_targets_unknown: IntGauge,
    pub(super) probes_in_flight: IntGauge,
    pub(super) leader: IntGauge,
    pub(super) events_dropped: IntCounter,
}

impl Families {
    pub(super) fn new() -> prometheus::Result<Self> {
        let gauges = |name: &str, help: &str, labels: &[&str]| {
            IntGaugeVec::new(Opts::new(format!("harvester_lb_{name}"), help), labels)
        };
        let gauge = |name: &str, help: &str| IntGauge::new(format!("harvester_lb_{name}"), help);
        Ok(Self {
            pool_addresses: GaugeVec::new(
                Opts::new(
                    "harvester_lb_ippool_addresses",
                    "Addresses of a pool: all that it has, those held, those free.",
                ),
                &["pool", "state"],
            )?,
            load_balancers: gauges(
                "load_balancers",
                "Load balancers by the status and the reason of their condition Ready.",
                &["ready", "reason"],
            )?,
            load_balancer_ready: gauges(
                "load_balancer_ready",
                "Whether the condition Ready of a load balancer is True.",
                &["namespace", "loadbalancer"],
            )?,
            backends: gauges(
                "backends",
                "Backends of a load balancer by state.",
                &["namespace", "loadbalancer", "state"],
            )?,
            backend_up: gauges(
                "backend_up",
                "Whether a backend takes traffic; for a limited number of backends.",
                &["namespace", "loadbalancer", "backend"],
            )?,
            records: gauges("ipallocations", "IPAllocations by phase.", &["phase"])?,
            waiting: gauge(
                "load_balancers_waiting",
                "Load balancers that wait for an address.",
            )?,
            dhcp_leases: gauges(
                "dhcp_leases",
                "DHCP leases of load balancers by state.",
                &["state"],
            )?,
            dhcp_lease_expiry: GaugeVec::new(
                Opts::new(
                    "harvester_lb_dhcp_lease_expiry_timestamp_seconds",
                    "When the DHCP lease of a load balancer expires, unless it is renewed.",
                ),
                &["namespace", "loadbalancer"],
            )?,
            cached_objects: gauges(
                "cached_objects",
                "Objects of a kind in the memory of this process.",
                &["kind"],
            )?,
            queue_depth: gauges(
                "queue_depth",
                "Objects that are due and wait for a worker.",
                &["kind"],
            )?,
            refused: gauges(
                "refused_objects",
                "Objects that the API server refuses to write.",
                &["kind"],
            )?,
            failing: gauges("failing", "Objects whose last reconcile failed.", &["kind"])?,
            probe_targets: gauges(
                "probe_targets",
                "Targets of health checks by verdict.",
                &["verdict"],
            )?,
            probe_targets_unknown: gauge(
                "probe_targets_unknown",
                "Targets whose verdict is stale: this host could not begin the last failureThreshold health checks.",
            )?,
            probes_in_flight: gauge("probes_in_flight", "Health checks that wait for an answer.")?,
            leader: gauge("leader", "Whether this process is leader.")?,
            events_dropped: IntCounter::new(
                "harvester_lb_events_dropped_total",
                "Kubernetes Events that could not be written.",
            )?,
        })
    }

    pub(super) fn collectors(&self) -> [&dyn Collector; 18] {
        [
            &self.pool_addresses,
            &self.load_balancers,
            &self.load_balancer_ready,
            &self.backends,
            &self.backend_up,
            &self.records,
            &self.waiting,
            &self.dhcp_leases,
            &self.dhcp_lease_expiry,
            &self.cached_objects,
            &self.queue_depth,
            &self.failing,
            &self.refused,
            &self.probe_targets,
            &self.probe_targets_unknown,
            &self.probes_in_flight,
            &self.leader,
            &self.events_dropped,
        ]
    }
}

impl Families {
    /// Those of a standby.
    fn of_process(&self) -> [&dyn Collector; 6] {
        [
            &self.cached_objects,
            &self.probe_targets,
            &self.probe_targets_unknown,
            &self.probes_in_flight,
            &self.leader,
            &self.events_dropped,
        ]
    }
}

impl Gauges {
    pub(super) fn new(
        current: &Arc<CurrentTerm>,
        backend_limit: usize,
    ) -> prometheus::Result<Self> {
        Ok(Self {
            current: Arc::downgrade(current),
            backend_limit,
            families: Families::new()?,
            scrape: Mutex::new(()),
        })
    }

    #[allow(
        clippy::cast_precision_loss,
        reason = "a pool of more than 2^53 addresses may be off by a few"
    )]
    fn fill_pools(ctx: &Context, to: &Families) {
        // `all` copies the list: the leader's lock must not be taken under a store's lock.
        for (key, pool) in ctx.index.stores.pools.all() {
            let live = ctx.index.pool_size(&key.name);
            let stored = pool
                .counters
                .as_ref()
                .map(|(total, available, _)| (*total, *available));
            if let Some((total, available)) = live.or(stored) {
                let set = |state: &str, value: i64| {
                    to.pool_addresses
                        .with_label_values(&[&*key.name, state])
                        .set(value as f64);
                };
                set("total", total);
                set("available", available);
                set("allocated", total.saturating_sub(available));
            }
        }
        if let Some(counts) = ctx.index.counts() {
            to.records
                .with_label_values(&["Bound"])
                .set(size(counts.bound));
            to.records
                .with_label_values(&["Released"])
                .set(size(counts.released));
            to.waiting.set(size(counts.waiting));
        }
    }

    fn fill_load_balancers(ctx: &Context, to: &Families) {
        let mut by_reason: BTreeMap<(String, String), i64> = BTreeMap::new();
        ctx.index.stores.lbs.for_each(|key, lb| {
            let ready = match lb {
                Lb::Valid(lb) => lb
                    .status
                    .as_ref()
                    .and_then(|s| s.conditions.as_deref())
                    .and_then(|c| condition::find(c, READY)),
                Lb::Invalid(..) => None,
            };
            let labels = match (ready, lb) {
                (Some(c), _) => (c.status.clone(), c.reason.clone().unwrap_or_default()),
                (None, Lb::Invalid(..)) => (
                    "False".to_owned(),
                    harvester_lb_core::status::INVALID_OBJECT.to_owned(),
                ),
                (None, Lb::Valid(_)) => ("Unknown".to_owned(), String::new()),
            };
            to.load_balancer_ready
                .with_label_values(&[&*key.namespace, &*key.name])
                .set(i64::from(labels.0 == ConditionStatus::True.as_str()));
            *by_reason.entry(labels).or_default() += 1;
        });
        for ((ready, reason), count) in by_reason {
            to.load_balancers
                .with_label_values(&[&ready, &reason])
                .set(count);
        }
    }

    fn fill_backends(&self, ctx: &Context, to: &Families) {
        let mut named = 0;
        for (key, slice) in ctx.index.stores.slices.all() {
            if ctx.index.stores.lbs.get(&key).is_none() {
                continue;
            }
            let (mut ready, mut not_ready) = (0, 0);
            for endpoint in desired::real_endpoints(&slice) {
                let up = endpoint
                    .conditions
                    .as_ref()
                    .and_then(|c| c.ready)
                    .unwrap_or(true);
                *(if up { &mut ready } else { &mut not_ready }) += 1;
                if named < self.backend_limit
                    && let Some(name) = endpoint.target_ref.as_ref().and_then(|t| t.name.as_deref())
                {
                    named += 1;
                    to.backend_up
                        .with_label_values(&[&*key.namespace, &*key.name, name])
                        .set(i64::from(up));
                }
            }
            for (state, count) in [("ready", ready), ("not_ready", not_ready)] {
                to.backends
                    .with_label_values(&[&*key.namespace, &*key.name, state])
                    .set(count);
            }
        }
    }

    /// The leader's work.
    fn fill_work(ctx: &Context, to: &Families) {
        for (kind, depth, failing) in [
            (
                "LoadBalancer",
                ctx.index.queues.lbs.depth(),
                Some(ctx.index.queues.lbs.failing()),
            ),
            (
                "IPPool",
                ctx.index.queues.pools.depth(),
                Some(ctx.index.queues.pools.failing()),
            ),
            (
                "GuestCluster",
                ctx.index.queues.guest_clusters.depth(),
                None,
            ),
            ("History", ctx.index.queues.history.depth(), None),
            ("LegacyFinalizer", ctx.index.queues.legacy.depth(), None),
            (
                "WaitingMessage",
                ctx.index.queues.waiting_messages.depth(),
                None,
            ),
        ] {
            to.queue_depth.with_label_values(&[kind]).set(size(depth));
            if let Some(failing) = failing {
                to.failing.with_label_values(&[kind]).set(size(failing));
            }
        }
        for (kind, _) in ctx.refused_writes.all() {
            to.refused.with_label_values(&[&*kind]).inc();
        }
    }

    /// What a standby exports too: leadership and the health of the process. A leader that has lost the Lease continues its
    /// health checks until another process holds it (RUN-5).
    fn fill_process(ctx: &Context, to: &Families) {
        let stores = &ctx.index.stores;
        for (kind, count) in [
            ("LoadBalancer", stores.lbs.len()),
            ("IPPool", stores.pools.len()),
            ("IPAllocation", stores.allocations.len()),
            ("Service", stores.services.len()),
            ("EndpointSlice", stores.slices.len()),
            ("VirtualMachineInstance", stores.vmis.len()),
            ("VirtualMachine", stores.vms.len()),
            ("Node", stores.nodes.len()),
        ] {
            to.cached_objects
                .with_label_values(&[kind])
                .set(size(count));
        }
        let probes = ctx.prober.snapshot();
        to.probe_targets
            .with_label_values(&["up"])
            .set(size(probes.up));
        to.probe_targets
            .with_label_values(&["down"])
            .set(size(probes.targets - probes.up));
        to.probe_targets_unknown.set(size(probes.unknown));
        to.probes_in_flight.set(size(probes.in_flight));
        to.leader.set(i64::from(ctx.leadership.is_leader()));
        to.events_dropped.inc_by(ctx.events.dropped());
    }
}

fn collected(collectors: &[&dyn Collector]) -> Vec<MetricFamily> {
    let families = collectors.iter().copied().flat_map(Collector::collect);
    families.collect()
}

fn size(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Collector for Gauges {
    fn desc(&self) -> Vec<&Desc> {
        self.families
            .collectors()
            .into_iter()
            .flat_map(Collector::desc)
            .collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let _one_at_a_time = self.scrape.lock();
        let Some(current) = self.current.upgrade() else {
            return Vec::new();
        };
        let ctx = current.context();
        // New families for each scrape, so that series of deleted objects disappear.
        let Ok(families) = Families::new() else {
            return Vec::new();
        };
        Self::fill_process(&ctx, &families);
        if !ctx.leadership.is_leader() {
            // The objects are the leader's to export, so that each series exists once.
            return collected(&families.of_process());
        }
        Self::fill_pools(&ctx, &families);
        Self::fill_load_balancers(&ctx, &families);
        self.fill_backends(&ctx, &families);
        let expiry = &families.dhcp_lease_expiry;
        leases::fill(&ctx, &families.dhcp_leases, expiry, clock::now());
        Self::fill_work(&ctx, &families);
        collected(&families.collectors())
    }
}

#[cfg(test)]
mod tests;
