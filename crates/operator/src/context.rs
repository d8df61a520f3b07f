//! What the controllers share in one term of leadership (RUN-5): the index, the client, Events, health checks, metrics.
//! Prober, metrics and timings are those of the process, all else is the leader's and goes with it.

use std::sync::Arc;

use harvester_lb_controller_kit::cached_client::CachedClient;
use harvester_lb_controller_kit::events::{Events, Severity};
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::refused_writes::RefusedWrites;
use harvester_lb_controller_kit::throttle::Throttle;
use harvester_lb_controller_kit::writer::{Fence, Writer};
use harvester_lb_core::status::EventDraft;
use harvester_lb_object::Key;
use harvester_lb_prober::Prober;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::controllers::released_records::budget::Forgetting;
use crate::controllers::waiting_messages::budget::Telling;
use crate::index::Index;
use crate::metrics::Metrics;
use crate::throttles;
use crate::timings::Timings;

/// What the controllers share in one term.
pub struct Context {
    /// What is known, and what is due.
    pub index: Arc<Index>,
    /// Writes, and reads that must be live.
    pub client: CachedClient<Index>,
    /// What the API server refuses to write (RUN-1).
    pub refused_writes: Arc<RefusedWrites>,
    /// Events.
    pub events: Events,
    /// Health checks.
    pub prober: Prober,
    /// Counters and histograms.
    pub metrics: Arc<Metrics>,
    /// How long to wait where no event can wake.
    pub timings: Timings,
    /// Whether this process leads in this term.
    pub leadership: Arc<Leadership>,
    /// How fast records of the past are deleted (POOL-5).
    pub forgetting: Forgetting,
    /// How fast messages of load balancers that wait are brought up to date (SEL-7).
    pub telling: Telling,
    /// When an EndpointSlice may be written again for changed verdicts.
    pub slice_throttle: Throttle<Key>,
}

impl Context {
    /// A context over an index that has no leader's state yet.
    pub fn new(
        index: Index,
        writer: Writer,
        events: Events,
        prober: Prober,
        metrics: Arc<Metrics>,
        leadership: Arc<Leadership>,
        timings: Timings,
    ) -> Self {
        let index = Arc::new(index);
        let refused_writes = Arc::<RefusedWrites>::default();
        Self {
            client: CachedClient::new(
                Arc::clone(&index),
                writer,
                Arc::clone(&refused_writes),
                Arc::clone(&metrics) as _,
            ),
            index,
            refused_writes,
            events,
            prober,
            metrics,
            timings,
            leadership,
            forgetting: Forgetting::default(),
            telling: Telling::default(),
            slice_throttle: throttles::of_slices(),
        }
    }

    /// The context of the next term: it knows nothing of this one's leader, and may write only in its own.
    #[must_use]
    pub fn next_term(&self) -> Self {
        let leadership = Arc::new(Leadership::default());
        self.successor(Arc::clone(&leadership) as _, leadership)
    }

    /// As [`Context::next_term`], with the right to write given.
    #[must_use]
    pub fn successor(&self, fence: Arc<dyn Fence>, leadership: Arc<Leadership>) -> Self {
        Self::new(
            self.index.next_term(&self.timings),
            self.client.writer().under(Arc::clone(&fence)),
            self.events.under(fence),
            self.prober.clone(),
            Arc::clone(&self.metrics),
            leadership,
            self.timings,
        )
    }

    /// Publishes an Event about a load balancer.
    pub fn notify_lb(&self, meta: &ObjectMeta, draft: &EventDraft) {
        self.notify("LoadBalancer", meta, draft);
    }

    /// Publishes an Event about a pool.
    pub fn notify_pool(&self, meta: &ObjectMeta, draft: &EventDraft) {
        self.notify("IPPool", meta, draft);
    }

    /// Publishes an Event about an object of a kind of ours.
    pub fn notify(&self, kind: &str, meta: &ObjectMeta, draft: &EventDraft) {
        let severity = if draft.warning {
            Severity::Warning
        } else {
            Severity::Normal
        };
        let regarding = ObjectReference {
            api_version: Some(harvester_lb_api::API_VERSION.to_owned()),
            kind: Some(kind.to_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        };
        self.events
            .publish(regarding, severity, &draft.reason, "Reconcile", &draft.text);
    }
}
