//! The context of the controllers in one leadership term (RUN-5): index, client, Events, health checks, metrics. Prober,
//! metrics and timings live as long as the process; the rest is dropped at the end of the term.

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

use crate::index::Index;
use crate::metrics::Metrics;
use crate::throttles;
use crate::throttles::history_deletions::HistoryDeletionBudget;
use crate::throttles::node_events::NodeEventBudget;
use crate::throttles::waiting_messages::WaitingMessageBudget;
use crate::timings::Timings;

/// The dependencies of the controllers in one term.
pub struct Context {
    /// Stores, work queues and the leader's state.
    pub index: Arc<Index>,
    /// Writes and live reads.
    pub client: CachedClient<Index>,
    /// Objects that the API server refuses to write (RUN-1).
    pub refused_writes: Arc<RefusedWrites>,
    /// Event recorder.
    pub events: Events,
    /// Health checks.
    pub prober: Prober,
    /// Metrics of the process.
    pub metrics: Arc<Metrics>,
    /// Delays of the controllers.
    pub timings: Timings,
    /// Whether this process is the leader in this term.
    pub leadership: Arc<Leadership>,
    /// Rate limit for deletions of Released IPAllocations (POOL-5).
    pub history_deletion_budget: HistoryDeletionBudget,
    /// Rate limit for updates of the messages of waiting load balancers (SEL-7).
    pub waiting_message_budget: WaitingMessageBudget,
    /// Throttle of EndpointSlice writes because of changed verdicts.
    pub slice_throttle: Throttle<Key>,
    /// Throttle of status writes that change only detail conditions.
    pub detail_throttle: Throttle<Key>,
    /// Rate limit for Events about the announcing node.
    pub node_event_budget: NodeEventBudget,
}

impl Context {
    /// A context over an index without leader state.
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
                Arc::new(metrics.reconciles.clone()),
            ),
            index,
            refused_writes,
            events,
            prober,
            metrics,
            timings,
            leadership,
            history_deletion_budget: HistoryDeletionBudget::default(),
            waiting_message_budget: WaitingMessageBudget::default(),
            slice_throttle: throttles::of_slices(),
            detail_throttle: throttles::of_details(&timings),
            node_event_budget: NodeEventBudget::default(),
        }
    }

    /// The context of the next term, without leader state. It may write in its own term only.
    #[must_use]
    pub fn next_term(&self) -> Self {
        let leadership = Arc::new(Leadership::default());
        self.successor(Arc::clone(&leadership) as _, leadership)
    }

    /// As [`Context::next_term`], with a given fence for writes.
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

    /// Publishes an Event about an object of our API group.
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
