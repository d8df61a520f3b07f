//! What the DHCP process shares in one term of leadership, and the Events about leases.

use std::collections::BTreeMap;
use std::sync::Arc;

use harvester_lb_controller_kit::cached_client::CachedClient;
use harvester_lb_controller_kit::events::{Events, Severity};
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::refused_writes::RefusedWrites;
use harvester_lb_controller_kit::writer::{Fence, Writer};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_core::dhcp::claim::Interfaces;
use harvester_lb_core::event_draft::EventDraft;
use harvester_lb_ipam::{Owner, Uid};
use k8s_openapi::api::core::v1::ObjectReference;
use parking_lot::Mutex;

use crate::dhcp::index::{Index, Stores};
use crate::dhcp::metrics::Metrics;
use crate::dhcp::order::{Notify, Surroundings};
use crate::dhcp::ports::Ports;
use crate::timings::Timings;

/// The settings of the process.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who leases addresses.
    pub mode: Mode,
    /// Where.
    pub interfaces: Interfaces,
    /// Largest number of leases on one interface; those that are recorded get a client whatever it is (DHC-2).
    pub limit: usize,
    /// Delays.
    pub timings: Timings,
}

/// What lives as long as the process.
#[derive(Clone)]
pub struct Process {
    /// The settings.
    pub settings: Settings,
    /// Copies of objects.
    pub stores: Arc<Stores>,
    /// Writes, under no fence.
    pub writer: Writer,
    /// Events, under no fence.
    pub events: Events,
    /// Counters.
    pub metrics: Arc<Metrics>,
}

/// The dependencies of the reconciles in one term.
pub struct Context {
    /// The settings.
    pub settings: Settings,
    /// Stores, clients and queue.
    pub index: Arc<Index>,
    /// Writes and live reads.
    pub client: CachedClient<Index>,
    /// Objects that the API server refuses to write (RUN-1).
    pub refused_writes: Arc<RefusedWrites>,
    /// The interfaces.
    pub ports: Ports,
    /// Whether this process is the leader in this term.
    pub leadership: Arc<Leadership>,
    /// Counters.
    pub metrics: Arc<Metrics>,
    /// Events about leases.
    pub notices: Arc<Notices>,
}

impl Context {
    /// A term without clients.
    pub fn new(process: &Process) -> Self {
        let leadership = Arc::new(Leadership::default());
        Self::under(process, &(Arc::clone(&leadership) as _), leadership)
    }

    /// The same, with a given fence for what is written and sent.
    pub fn under(process: &Process, fence: &Arc<dyn Fence>, leadership: Arc<Leadership>) -> Self {
        let fence = || Arc::clone(fence);
        let timings = &process.settings.timings;
        let policy = harvester_lb_controller_kit::work_queue::RetryPolicy {
            resync: timings.recheck,
            refused: timings.backoff(),
            unavailable: timings.backoff_unavailable(),
        };
        let index = Arc::new(Index::new(Arc::clone(&process.stores), policy));
        let notices = Arc::new(Notices {
            events: process.events.under(fence()),
            fence: fence(),
            said: Mutex::default(),
        });
        let refused_writes = Arc::<RefusedWrites>::default();
        Self {
            settings: process.settings.clone(),
            client: CachedClient::new(
                Arc::clone(&index),
                process.writer.under(fence()),
                Arc::clone(&refused_writes),
                Arc::new(process.metrics.reconciles.clone()),
            ),
            refused_writes,
            ports: Ports::new(Surroundings {
                index: Arc::clone(&index),
                metrics: Arc::clone(&process.metrics),
                notifier: Arc::clone(&notices) as _,
                limit: process.settings.limit,
            }),
            index,
            leadership,
            metrics: Arc::clone(&process.metrics),
            notices,
        }
    }
}

/// Events about leases, and which problems were reported: once each, until they are over.
pub struct Notices {
    events: Events,
    fence: Arc<dyn Fence>,
    said: Mutex<BTreeMap<Uid, BTreeMap<String, String>>>,
}

impl Notices {
    /// What was last said of a problem, before this.
    fn says(&self, owner: &Owner, draft: &EventDraft) -> Option<String> {
        let mut said = self.said.lock();
        let of_owner = said.entry(owner.uid.clone()).or_default();
        of_owner.insert(draft.reason.clone(), draft.text.clone())
    }

    /// Waits until the Events so far are written or dropped.
    pub async fn written(&self) {
        self.events.written().await;
    }

    /// There is no record and no load balancer any more.
    pub fn forget(&self, uid: &Uid) {
        self.said.lock().remove(uid);
    }
}

impl Notify for Notices {
    fn is_leader(&self) -> bool {
        self.fence.is_open()
    }

    fn problem(&self, owner: &Owner, draft: &EventDraft) {
        if self.says(owner, draft).as_ref() != Some(&draft.text) {
            self.publish(owner, draft);
        }
    }

    fn lasting(&self, owner: &Owner, draft: &EventDraft) {
        if self.says(owner, draft).is_none() {
            self.publish(owner, draft);
        }
    }

    fn solved(&self, uid: &Uid, reasons: &[&str]) {
        let mut said = self.said.lock();
        if let Some(of_owner) = said.get_mut(uid) {
            of_owner.retain(|reason, _| !reasons.contains(&reason.as_str()));
            if of_owner.is_empty() {
                said.remove(uid);
            }
        }
    }

    fn publish(&self, owner: &Owner, draft: &EventDraft) {
        let severity = if draft.warning {
            Severity::Warning
        } else {
            Severity::Normal
        };
        let regarding = ObjectReference {
            api_version: Some(harvester_lb_api::API_VERSION.to_owned()),
            kind: Some("LoadBalancer".to_owned()),
            namespace: Some(owner.id.namespace().to_owned()),
            name: Some(owner.id.name().to_owned()),
            uid: Some(owner.uid.to_string()),
            ..ObjectReference::default()
        };
        let (reason, text) = (&draft.reason, &draft.text);
        self.events
            .publish(regarding, severity, reason, "Lease", text);
    }
}
