//! Events and conditions of a row.

use anyhow::{Context, bail, ensure};
use harvester_lb_api::{Phase, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::announce;
use harvester_lb_e2e::world::{SOON, allocated, endpoints, ready};
use harvester_lb_fixtures::{cluster_spec, for_namespace, record};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

/// An event, or a condition to wait for. Texts are names; a number is the last part of an address: of the pool, or from
/// 100 on of the second pool.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A LoadBalancer of cluster type is created.
    Guest(&'static str),
    /// A LoadBalancer of cluster type of the guest cluster `gc` is created.
    OfGuest(&'static str),
    /// A LoadBalancer of VM type is created.
    Vm(&'static str),
    /// A LoadBalancer with the Go operator's finalizers is created.
    Old(&'static str),
    /// A LoadBalancer is deleted, and gone.
    Delete(&'static str),
    /// A LoadBalancer is deleted; its finalizers hold it.
    Ask(&'static str),
    /// `spec.ipPool` is set: `p`, `q` or a pool that does not exist.
    Use(&'static str, &'static str),
    /// A tenant writes an address into `status.allocatedAddress`.
    Says(&'static str, u8),
    /// A guest cluster writes `status.address`.
    Reports(&'static str, &'static str),
    /// The one listener gets this port.
    Port(&'static str, u16),
    /// The Service's address is announced.
    Announce(&'static str),
    /// The Service is deleted by a user.
    DropService(&'static str),
    /// A user annotates the Service.
    NoteService(&'static str),
    /// A foreign Service of that name is created.
    ForeignService(&'static str),
    /// The EndpointSlice is deleted by a user.
    DropSlice(&'static str),
    /// A VirtualMachineInstance is created: its name, and the last part of its address.
    Machine(&'static str, u8),
    /// A VirtualMachineInstance is deleted.
    NoMachine(&'static str),
    /// A VirtualMachine or VirtualMachineInstance with a finalizer of the Go operator and a foreign one.
    OldMachine(&'static str),
    /// Another client adds a finalizer.
    AddFinalizer(&'static str),
    /// That object is deleted, regardless of its finalizers.
    NoOldMachine(&'static str),
    /// The pool's range is edited.
    Range(u8, u8),
    /// The pool is deleted.
    NoPool,
    /// The pool is created.
    Pool,
    /// An administrator requests a release by hand: last part of the address and a name.
    Wish(u8, &'static str),
    /// An IPAllocation is created by hand: Bound, for an existing LoadBalancer.
    Forge(u8, &'static str),
    /// An IPAllocation is deleted by hand.
    DropRecord(u8),
    /// A node of the guest cluster `gc` that is being removed is created.
    Node,
    /// That node is deleted.
    NoNode,

    /// Its status and the IPAllocation have this address.
    Holds(&'static str, u8),
    /// It has some address.
    HoldsAny(&'static str),
    /// The IPAllocation is Released, and this was its last owner.
    Remembered(u8, &'static str),
    /// The address has no IPAllocation.
    NoRecord(u8),
    /// Its condition Ready has this reason.
    Waits(&'static str, &'static str),
    /// Its Service shows the address.
    Shows(&'static str, u8),
    /// It has no Service of ours.
    NoService(&'static str),
    /// It has no EndpointSlice.
    NoSlice(&'static str),
    /// It is gone.
    Gone(&'static str),
    /// Service and EndpointSlice have this port.
    PortIs(&'static str, u16),
    /// The EndpointSlice has these machines, by the last part of the address.
    Backends(&'static str, &'static [u8]),
    /// `status.address` has this value.
    Address(&'static str, &'static str),
    /// `status.address` is an address of the pool.
    AddressIs(&'static str, u8),
    /// The Service still has the user's annotation.
    Noted(&'static str),
    /// The object has these finalizers.
    Finalizers(&'static str, &'static [&'static str]),
    /// The pool's map has the address.
    PoolHas(u8),
    /// The pool's total.
    Total(i64),
    /// No release by hand is requested.
    NoWish,
    /// It is marked as belonging to a removed guest cluster.
    Marked(&'static str),
}

/// The namespace and pools of a row.
#[derive(Clone, Debug)]
pub struct Place {
    /// Name of the namespace and the pool.
    pub ns: String,
    subnet: String,
}

/// The annotation of a user on a Service.
const NOTE: &str = "example.org/note";
/// A foreign finalizer.
const KEPT: &str = "example.org/kept";
const LATE: &str = "example.org/late";

impl Place {
    /// The place of a row in a round.
    pub fn new(name: &str, round: u8, row: u8) -> Self {
        Self {
            ns: name.replace('_', "-"),
            subnet: format!("10.{}.{row}", 100 + round),
        }
    }

    /// An address of the pool, or from 100 on of the second pool.
    pub fn ip(&self, host: u8) -> String {
        let last = if host >= 100 { host + 28 } else { host };
        format!("{}.{last}", self.subnet)
    }

    fn second(&self) -> String {
        format!("{}-q", self.ns)
    }

    fn ranges(&self, (from, to): (u8, u8)) -> Value {
        json!([{"subnet": format!("{}.0/28", self.subnet), "rangeStart": self.ip(from), "rangeEnd": self.ip(to)}])
    }

    async fn pool(&self, world: &World, range: (u8, u8)) -> anyhow::Result<()> {
        let spec = json!({"ranges": self.ranges(range), "selector": for_namespace(&self.ns)});
        world.pool(&self.ns, spec).await
    }

    /// Creates the namespace and both pools.
    pub async fn make(&self, world: &World, range: (u8, u8)) -> anyhow::Result<()> {
        world.namespace(&self.ns).await?;
        self.pool(world, range).await?;
        let second = json!({"ranges": [{"subnet": format!("{}.128/28", self.subnet)}]});
        world.pool(&self.second(), second).await
    }
}

impl Step {
    /// Executes the event, or waits for the condition.
    pub async fn take(&self, world: &World, at: &Place) -> anyhow::Result<()> {
        let ns = &*at.ns;
        let lbs = world.lbs(ns);
        let plain = DeleteParams::default();
        match *self {
            Self::Guest(name) => {
                world.lb(ns, name, cluster_spec()).await?;
            }
            Self::OfGuest(name) => {
                let labels = json!({"cloudprovider.harvesterhci.io/cluster": "gc"});
                let metadata = json!({"namespace": ns, "name": name, "labels": labels});
                world.lb_with(metadata, cluster_spec()).await?;
            }
            Self::Vm(name) => {
                let spec = json!({
                    "listeners": [listener(80)], "backendServerSelector": {"app": ["web"]},
                });
                world.lb(ns, name, spec).await?;
            }
            Self::Old(name) => {
                let metadata =
                    json!({"namespace": ns, "name": name, "finalizers": keys::LEGACY_FINALIZERS});
                world.lb_with(metadata, cluster_spec()).await?;
            }
            Self::Delete(name) => {
                world.delete_lb(ns, name).await?;
                world.gone(&lbs, name).await?;
            }
            Self::Ask(name) => world.delete_lb(ns, name).await?,
            Self::Use(name, pool) => {
                let pool = match pool {
                    "p" => at.ns.clone(),
                    "q" => at.second(),
                    other => other.to_owned(),
                };
                world
                    .merge(&lbs, name, json!({"spec": {"ipPool": pool}}))
                    .await?;
            }
            Self::Says(name, host) => {
                let address = json!({"ipPool": ns, "ip": at.ip(host)});
                let patch = json!({"status": {"allocatedAddress": address}});
                world.merge(&lbs, name, patch).await?;
            }
            Self::Reports(name, address) => {
                let patch = json!({"status": {"address": address}});
                world.merge(&lbs, name, patch).await?;
            }
            Self::Port(name, port) => {
                let patch = json!({"spec": {"listeners": [listener(port)]}});
                world.merge(&lbs, name, patch).await?;
            }
            Self::Announce(name) => {
                let service = world.services(ns).get(name).await?;
                announce(&world.client(), &service).await?;
            }
            Self::DropService(name) => {
                world.services(ns).delete(name, &plain).await?;
            }
            Self::NoteService(name) => {
                let patch = json!({"metadata": {"annotations": {NOTE: "x"}}});
                world.merge(&world.services(ns), name, patch).await?;
            }
            Self::ForeignService(name) => {
                let service: Service = serde_json::from_value(json!({
                    "metadata": {"name": name}, "spec": {"ports": [{"name": "x", "port": 9}]},
                }))?;
                let api: Api<Service> = world.services(ns);
                api.create(&PostParams::default(), &service).await?;
            }
            Self::DropSlice(name) => {
                world.slices(ns).delete(name, &plain).await?;
            }
            Self::Machine(name, host) => {
                let ip = format!("10.99.0.{host}");
                world
                    .fake_vmi(ns, name, json!({"app": "web"}), Some(&ip))
                    .await?;
            }
            Self::NoMachine(name) => {
                world.vmis(ns).delete(name, &plain).await?;
            }
            Self::OldMachine(kind) => {
                let finalizers = [keys::LEGACY_VM_FINALIZERS[0], KEPT];
                machine(world, ns, kind, json!({"finalizers": finalizers})).await?;
            }
            Self::AddFinalizer(kind) => {
                let api = world.cluster.api("kubevirt.io/v1", kind, Some(ns)).await?;
                let finalizers = [keys::LEGACY_VM_FINALIZERS[0], KEPT, LATE];
                let patch = json!({"metadata": {"finalizers": finalizers}});
                world.merge(&api, "a", patch).await?;
            }
            Self::NoOldMachine(kind) => {
                let api = world.cluster.api("kubevirt.io/v1", kind, Some(ns)).await?;
                let patch = json!({"metadata": {"finalizers": null}});
                world.merge(&api, "a", patch).await?;
                api.delete("a", &plain).await?;
                world.gone(&api, "a").await?;
            }
            Self::Range(from, to) => {
                let patch = json!({"spec": {"ranges": at.ranges((from, to))}});
                world.merge(&world.pools(), ns, patch).await?;
            }
            Self::NoPool => {
                world.pools().delete(ns, &plain).await?;
                world.gone(&world.pools(), ns).await?;
            }
            Self::Pool => at.pool(world, (2, 14)).await?,
            Self::Wish(host, name) => {
                let value = format!("{}: {ns}/{name}", at.ip(host));
                let patch = json!({"metadata": {"annotations": {keys::ANNOTATION_MANUALLY_RELEASE_IP: value}}});
                world.merge(&world.pools(), ns, patch).await?;
            }
            Self::Forge(host, name) => {
                let uid = lbs.get(name).await?.metadata.uid;
                let ip = at.ip(host);
                let owner = (ns, name, &*uid.context("no uid")?);
                let record = serde_json::from_value(record(&ip, ns, "Bound", owner))?;
                let records = world.records();
                records.create(&PostParams::default(), &record).await?;
            }
            Self::DropRecord(host) => {
                world.records().delete(&at.ip(host), &plain).await?;
            }
            Self::Node => {
                let labels = json!({
                    "harvesterhci.io/creator": keys::CREATOR_NODE_DRIVER,
                    keys::LABEL_GUEST_CLUSTER: "gc",
                });
                let annotations = json!({keys::ANNOTATION_REMOVE_ALL_PVCS: "true"});
                let metadata = json!({"labels": labels, "annotations": annotations});
                machine(world, ns, "VirtualMachine", metadata).await?;
            }
            Self::NoNode => {
                let kind = ("kubevirt.io/v1", "VirtualMachine");
                world.cluster.delete(kind.0, kind.1, Some(ns), "a").await?;
            }
            Self::Gone(name) => world.gone(&lbs, name).await?,
            Self::NoSlice(name) => world.gone(&world.slices(ns), name).await?,
            Self::NoService(name) => world.gone(&world.services(ns), name).await?,
            Self::NoRecord(host) => world.gone(&world.records(), &at.ip(host)).await?,
            Self::Waits(name, reason) => {
                world.lb_reason(ns, name, reason).await?;
            }
            wait => {
                let what = format!("{wait:?}");
                eventually(&what, SOON, || async {
                    wait.holds(world, at).await.map(Some)
                })
                .await?;
            }
        }
        Ok(())
    }

    /// Checks the condition once; an error if it does not hold.
    async fn holds(&self, world: &World, at: &Place) -> anyhow::Result<()> {
        let ns = &*at.ns;
        let lbs = world.lbs(ns);
        match *self {
            Self::Holds(name, host) => {
                let (lb, ip) = (lbs.get(name).await?, at.ip(host));
                let says = allocated(&lb);
                ensure!(
                    says.as_deref() == Some(&*ip),
                    "its status says {says:?}, {:?}",
                    ready(&lb)
                );
                let spec = world.records().get(&ip).await?.spec;
                let held =
                    spec.phase == Phase::Bound && Some(&spec.owner.uid) == lb.metadata.uid.as_ref();
                ensure!(held, "the record says {spec:?}");
            }
            Self::HoldsAny(name) => {
                allocated(&lbs.get(name).await?).context("no address")?;
            }
            Self::Remembered(host, name) => {
                let spec = world.records().get(&at.ip(host)).await?.spec;
                let is = spec.phase == Phase::Released
                    && (&*spec.owner.namespace, &*spec.owner.name) == (ns, name);
                ensure!(is, "the record says {spec:?}");
            }
            Self::Shows(name, host) => {
                let service = world.services(ns).get(name).await?;
                let shown = service.spec.and_then(|s| s.load_balancer_ip);
                ensure!(shown == Some(at.ip(host)), "it shows {shown:?}");
            }
            Self::PortIs(name, port) => {
                let service = world.services(ns).get(name).await?;
                let ports = service.spec.and_then(|s| s.ports).unwrap_or_default();
                ensure!(ports.iter().all(|p| p.port == i32::from(port)), "{ports:?}");
                let ports = world.slices(ns).get(name).await?.ports.unwrap_or_default();
                ensure!(
                    ports.iter().all(|p| p.port == Some(8000 + i32::from(port))),
                    "{ports:?}"
                );
            }
            Self::Backends(name, hosts) => {
                let slice = world.slices(ns).get(name).await?;
                let wanted: Vec<String> = hosts.iter().map(|h| format!("10.99.0.{h}")).collect();
                let found = endpoints(&slice, true);
                ensure!(found == wanted, "{found:?}");
            }
            Self::Address(name, address) => {
                let status = lbs.get(name).await?.status.unwrap_or_default();
                let found = status.address.unwrap_or_default();
                ensure!(found == address, "it is {found:?}");
            }
            Self::AddressIs(name, host) => {
                let status = lbs.get(name).await?.status.unwrap_or_default();
                ensure!(
                    status.address == Some(at.ip(host)),
                    "it is {:?}",
                    status.address
                );
            }
            Self::Noted(name) => {
                let annotations = world.services(ns).get(name).await?.metadata.annotations;
                ensure!(
                    annotations.is_some_and(|a| a.contains_key(NOTE)),
                    "it is gone"
                );
            }
            Self::Finalizers(kind, wanted) => {
                let api = world.cluster.api("kubevirt.io/v1", kind, Some(ns)).await?;
                let found = api.get("a").await?.metadata.finalizers.unwrap_or_default();
                ensure!(found == wanted, "{found:?}");
            }
            Self::PoolHas(host) => {
                let status = world.pools().get(ns).await?.status.unwrap_or_default();
                let map = status.allocated.unwrap_or_default();
                ensure!(map.contains_key(&at.ip(host)), "{map:?}");
            }
            Self::Total(total) => {
                let status = world.pools().get(ns).await?.status.unwrap_or_default();
                ensure!(status.total == total, "{}", status.total);
            }
            Self::NoWish => {
                let annotations = world.pools().get(ns).await?.metadata.annotations;
                let key = keys::ANNOTATION_MANUALLY_RELEASE_IP;
                ensure!(
                    annotations.is_none_or(|a| !a.contains_key(key)),
                    "it is there"
                );
            }
            Self::Marked(name) => {
                let annotations = lbs.get(name).await?.metadata.annotations;
                let key = keys::ANNOTATION_GUEST_REMOVED;
                ensure!(
                    annotations.is_some_and(|a| a.contains_key(key)),
                    "it is not"
                );
            }
            other => bail!("{other:?} cannot be waited for"),
        }
        Ok(())
    }
}

fn listener(port: u16) -> Value {
    json!({"name": "http", "port": port, "protocol": "TCP", "backendPort": 8000 + port})
}

/// The VirtualMachine or VirtualMachineInstance `a`.
async fn machine(world: &World, ns: &str, kind: &str, mut metadata: Value) -> anyhow::Result<()> {
    metadata["namespace"] = ns.into();
    metadata["name"] = "a".into();
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": {},
    });
    world.cluster.apply(&object).await?;
    Ok(())
}
