//! One process of the operator: stores, watches, leader state, and reconciles in progress.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_api::meta::Decoded;
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::events::{EventReceiver, Events};
use harvester_lb_controller_kit::lease::Leadership;
use harvester_lb_controller_kit::store::{Change, Store};
use harvester_lb_controller_kit::watch;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::{Fence, WriteError, Writer};
use harvester_lb_core::cached::{self, Allocation, Lb, Pool, Vm, Vmi};
use harvester_lb_core::dhcp::Mode;
use harvester_lb_ipam::PoolName;
use harvester_lb_object::{Key, Version};
use harvester_lb_prober::Prober;
use harvester_load_balancer::context::Context;
use harvester_load_balancer::controllers::ip_pool;
use harvester_load_balancer::controllers::load_balancer;
use harvester_load_balancer::controllers::released_records;
use harvester_load_balancer::controllers::takeover::{self, CatchUp};
use harvester_load_balancer::index::Index;
use harvester_load_balancer::index::stores::Stores;
use harvester_load_balancer::metrics::Metrics;
use harvester_load_balancer::settings::Settings;
use harvester_load_balancer::timings::Timings;
use k8s_openapi::api::core::v1::{Node, Service};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::runtime::watcher::Event;
use kube::{Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::api::{self, Server, is_watched};
use super::call::Positions;
use super::defects::InjectedDefect;
use super::kind::Kind;

/// An undelivered event of a watch.
enum Item {
    ListBegins,
    Listed(Rc<Value>),
    /// With the resource version of the list.
    ListEnds(u64),
    Applied(Rc<Value>),
    Deleted(Rc<Value>),
    /// The response to a live read after a list.
    Found(Key, Version, Option<Rc<Value>>),
}

impl Item {
    fn object(&mut self) -> Option<&mut Rc<Value>> {
        match self {
            Self::ListBegins | Self::ListEnds(_) => None,
            Self::Listed(object) | Self::Applied(object) | Self::Deleted(object) => Some(object),
            Self::Found(_, _, object) => object.as_mut(),
        }
    }
}

/// The watch of one kind.
#[derive(Default)]
struct Watch {
    link: Link,
    queue: VecDeque<Item>,
}

/// The state of a watch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Link {
    /// Not connected yet, or interrupted.
    #[default]
    Down,
    /// A list is requested, and the store expects it.
    Asked,
    /// Listed; events follow.
    Up,
}

/// The phase of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Listing, or standby.
    Standby,
    /// Takeover at the start of a term.
    Beginning,
    /// Reconciling.
    Working,
    /// The Lease is lost, and requests are still in flight.
    Draining,
}

/// Work under way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Work {
    Begin,
    Lb(Key),
    Pool(PoolName),
    History,
}

type Outcome = Result<Requeue, WriteError>;

/// A task in progress.
pub(crate) struct Task {
    pub(crate) number: u64,
    pub(crate) work: Work,
    /// How far the watches had got at its beginning.
    pub(crate) seen: Positions,
    pub(crate) future: Pin<Box<dyn Future<Output = Outcome>>>,
}

/// The write fence of one term.
pub(crate) struct Gate(AtomicBool);

impl Gate {
    fn open() -> Arc<Self> {
        Arc::new(Self(AtomicBool::new(true)))
    }

    pub(crate) fn set(&self, open: bool) {
        self.0.store(open, Ordering::Relaxed);
    }
}

impl Fence for Gate {
    fn is_open(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Parts that all processes share, because their state does not matter here.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) prober: Prober,
    pub(crate) metrics: Arc<Metrics>,
}

/// A process of the operator. Context and gate are those of the current term.
pub(crate) struct Process {
    pub(crate) ctx: Arc<Context>,
    pub(crate) gate: Arc<Gate>,
    pub(crate) state: State,
    pub(crate) tasks: Vec<Task>,
    watches: [Watch; 8],
    /// How far the watch of each kind has got.
    pub(crate) seen: Positions,
    /// Live reads to do after a list.
    pub(crate) unconfirmed: Vec<(Kind, Key, Version)>,
    /// Published Events that are not taken yet.
    pub(crate) event_receiver: EventReceiver,
    /// Of the present term.
    catch_up: Arc<CatchUp>,
    defect: Option<InjectedDefect>,
}

impl Process {
    pub(crate) fn new(shared: &Shared, defect: Option<InjectedDefect>, builtin_dhcp: bool) -> Self {
        let gate = Gate::open();
        let (events, event_receiver) = Events::queue();
        let mut timings = Timings::default();
        if defect == Some(InjectedDefect::Hurried) {
            timings.detail_interval = Duration::from_millis(1);
        }
        if defect == Some(InjectedDefect::Sluggish) {
            timings.retry = timings.retry_cap;
        }
        if defect == Some(InjectedDefect::Patient) {
            let never = Duration::from_hours(24);
            timings.move_limit = never;
            timings.move_limit_followed = never;
            timings.move_limit_ignored = never;
        }
        let prober = shared.prober.clone();
        let settings = Settings {
            dhcp_mode: if builtin_dhcp {
                Mode::Builtin
            } else {
                Mode::KubeVip
            },
            ..Settings::default()
        };
        let index = Index::new(Stores::default(), prober, settings, &timings);
        let ctx = Context::new(
            index,
            Writer::new(shared.client.clone(), Arc::clone(&gate) as _),
            events,
            shared.prober.clone(),
            Arc::clone(&shared.metrics),
            Arc::new(Leadership::default()),
            timings,
        );
        Self {
            ctx: Arc::new(ctx),
            gate,
            state: State::Standby,
            tasks: Vec::new(),
            watches: Default::default(),
            seen: Positions::default(),
            unconfirmed: Vec::new(),
            event_receiver,
            catch_up: Arc::default(),
            defect,
        }
    }

    /// Loses the Lease. All requests of the term must end before the Lease is requested again.
    pub(crate) fn lose(&mut self) {
        self.gate.set(false);
        self.ctx.index.end_term();
        self.state = State::Draining;
    }

    /// Starts the next term after all work of the last one has ended: with the same stores and nothing else (RUN-5).
    pub(crate) fn stand_by(&mut self) {
        if self.state == State::Draining && self.tasks.is_empty() {
            assert!(
                !self.ctx.index.is_leader(),
                "RUN-5: knowledge of a term that is over"
            );
            self.gate = Gate::open();
            let leadership = Arc::new(Leadership::default());
            let ctx = self.ctx.successor(Arc::clone(&self.gate) as _, leadership);
            self.ctx = Arc::new(ctx);
            self.catch_up = Arc::default();
            self.state = State::Standby;
        }
    }

    /// The state of the watch of a kind.
    pub(crate) fn link(&self, kind: Kind) -> Link {
        self.watches[kind as usize].link
    }

    /// The number of undelivered events of a kind.
    pub(crate) fn pending(&self, kind: Kind) -> usize {
        self.watches[kind as usize].queue.len()
    }

    /// The watch of a kind requests a list, at the start or after an interruption; undelivered events are lost.
    pub(crate) fn ask(&mut self, kind: Kind) {
        let watch = &mut self.watches[kind as usize];
        watch.link = Link::Asked;
        watch.queue.clear();
        self.feed(kind, Item::ListBegins);
    }

    /// The API server answers with a list.
    pub(crate) fn list(&mut self, kind: Kind, server: &Server) {
        let watch = &mut self.watches[kind as usize];
        watch.link = Link::Up;
        for object in server.all(kind).values() {
            if is_watched(kind, Some(object)) {
                watch.queue.push_back(Item::Listed(Rc::clone(object)));
            }
        }
        watch.queue.push_back(Item::ListEnds(server.revision));
    }

    /// An object has changed.
    pub(crate) fn note(&mut self, event: &api::Event) {
        let watch = &mut self.watches[event.kind as usize];
        if watch.link != Link::Up {
            return;
        }
        let was = is_watched(event.kind, event.before.as_ref());
        let is = is_watched(event.kind, event.after.as_ref());
        match (&event.after, &event.last) {
            (Some(object), _) if is => watch.queue.push_back(Item::Applied(Rc::clone(object))),
            (Some(object), _) | (None, Some(object)) if was => {
                watch.queue.push_back(Item::Deleted(Rc::clone(object)));
            }
            _ => {}
        }
    }

    /// Delivers the next event of a kind. Returns its description for the trace.
    pub(crate) fn deliver(&mut self, kind: Kind) -> String {
        let item = self.watches[kind as usize].queue.pop_front().unwrap();
        let text = describe(&item);
        self.feed(kind, item);
        text
    }

    /// Reads the objects live that a list has left unconfirmed.
    pub(crate) fn look_up(&mut self, nth: usize, server: &Server) {
        let (kind, key, known) = self.unconfirmed.swap_remove(nth);
        let found = server.get(kind, &key).filter(|o| is_watched(kind, Some(o)));
        self.feed(kind, Item::Found(key, known, found.cloned()));
    }

    /// Hands an event to store and handler.
    fn feed(&mut self, kind: Kind, mut item: Item) {
        match &mut item {
            Item::ListEnds(revision) => self.seen[kind as usize] = *revision,
            Item::Applied(object) | Item::Deleted(object) => {
                self.seen[kind as usize] = api::version(object);
            }
            _ => {}
        }
        if let (Some(defect), Some(object)) = (self.defect, item.object()) {
            defect.hides(kind, object);
        }
        let ctx = &*self.ctx;
        let stores = &ctx.index.stores;
        let defect = self.defect;
        let hears = defect != Some(InjectedDefect::Deaf(kind));
        let open = match kind {
            Kind::Lb => feed(
                item,
                &stores.lbs,
                |d: Decoded<LoadBalancer>| Some(Lb::from_watch(d)),
                |k, mut c| {
                    if let (
                        Change::Deleted {
                            final_state_unknown,
                            ..
                        },
                        Some(InjectedDefect::Hasty),
                    ) = (&mut c, defect)
                    {
                        *final_state_unknown = false;
                    }
                    if hears {
                        ctx.index.lb_changed(k, &c);
                    }
                },
            ),
            Kind::Pool => feed(
                item,
                &stores.pools,
                |d: Decoded<IPPool>| Some(Pool::from_watch(d)),
                |k, c| {
                    if hears {
                        ctx.index.pool_changed(k, &c);
                    }
                },
            ),
            Kind::Record => feed(
                item,
                &stores.allocations,
                |d: Decoded<IPAllocation>| Some(Allocation::from_watch(d)),
                |k, c| {
                    if hears {
                        ctx.index.allocation_changed(k, &c);
                    }
                },
            ),
            Kind::Service => feed::<Service, _>(item, &stores.services, cached::service, |k, c| {
                if hears {
                    ctx.index.service_changed(k, &c);
                }
            }),
            Kind::Slice => feed::<EndpointSlice, _>(item, &stores.slices, cached::slice, |k, c| {
                ctx.index.slice_changed(k, &c);
            }),
            Kind::Vmi => feed(
                item,
                &stores.vmis,
                |d: Decoded<VirtualMachineInstance>| Some(Vmi::from_watch(d)),
                |k, c| {
                    if hears {
                        ctx.index.vmi_changed(k, &c);
                    }
                },
            ),
            Kind::Vm => feed(
                item,
                &stores.vms,
                |d: Decoded<VirtualMachine>| Some(Vm::from_watch(d)),
                |k, c| ctx.index.vm_changed(k, &c),
            ),
            Kind::Node => feed::<Node, _>(item, &stores.nodes, cached::node, |k, c| {
                if hears {
                    ctx.index.node_changed(k, &c);
                }
            }),
        };
        debug_assert!(open.older.is_empty(), "nothing is restored here");
        let of_kind = open
            .unconfirmed
            .into_iter()
            .map(|(key, known)| (kind, key, known));
        self.unconfirmed.extend(of_kind);
    }

    /// Begins a piece of work.
    pub(crate) fn begin(&mut self, number: u64, work: Work) {
        let ctx = Arc::clone(&self.ctx);
        let future: Pin<Box<dyn Future<Output = Outcome>>> = match work.clone() {
            Work::Begin => {
                let catch_up = Arc::clone(&self.catch_up);
                Box::pin(async move {
                    takeover::run(&ctx, &catch_up).await?;
                    Ok(Requeue::AwaitChange)
                })
            }
            Work::Lb(key) => Box::pin(async move { load_balancer::reconcile(&ctx, &key).await }),
            Work::Pool(name) => Box::pin(async move { ip_pool::reconcile(&ctx, &name).await }),
            Work::History => Box::pin(async move { released_records::reconcile(&ctx).await }),
        };
        // Tokio's task budget would make a future yield without a pending request.
        let future = Box::pin(tokio::task::unconstrained(future));
        self.tasks.push(Task {
            number,
            work,
            seen: self.seen,
            future,
        });
    }
}

fn feed<K, V>(
    item: Item,
    store: &Store<V>,
    convert: impl Fn(Decoded<K>) -> Option<V>,
    handler: impl Fn(&Key, Change<V>),
) -> watch::NeedsLiveRead
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let decoded = |object: &Value| DecodeGuard(Ok(K::deserialize(object).unwrap()));
    let event: Event<DecodeGuard<K>> = match item {
        Item::ListBegins => Event::Init,
        Item::Listed(object) => Event::InitApply(decoded(&object)),
        Item::ListEnds(_) => Event::InitDone,
        Item::Applied(object) => Event::Apply(decoded(&object)),
        Item::Deleted(object) => Event::Delete(decoded(&object)),
        Item::Found(key, known, found) => {
            let found = found.map(|object| decoded(&object));
            let is_all = K::kind(&()) != "EndpointSlice";
            watch::apply_live_read(&key, known, found, is_all, store, &convert, &handler);
            return watch::NeedsLiveRead::default();
        }
    };
    watch::deliver(event, store, &convert, &handler)
}

fn describe(item: &Item) -> String {
    let (what, object) = match item {
        Item::ListBegins => return "list begins".to_owned(),
        Item::ListEnds(_) => return "list ends".to_owned(),
        Item::Found(key, ..) => return format!("found out about {key}"),
        Item::Listed(object) => ("listed", object),
        Item::Applied(object) => ("applied", object),
        Item::Deleted(object) => ("deleted", object),
    };
    let meta = &object["metadata"];
    format!("{what} {} at {}", meta["name"], meta["resourceVersion"])
}
