//! Events and conditions of a row.

use anyhow::Context;
use harvester_lb_api::{API_VERSION, Phase, keys};
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::announce;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{
    allocated_address, cluster_spec, for_namespace, listener, manual_release, of_guest, part,
    removed_node, subnet, vm_spec, with,
};
use harvester_lb_testkit::eventually;
use k8s_openapi::api::core::v1::Service;
use kube::Api;
use kube::api::{DeleteParams, PostParams};
use serde_json::{Value, json};

use crate::stage::{forge, holds, record_is};

/// One thing that happens, or that is waited for until it is so. Texts are names; a number is the last part of an address:
/// of the pool, or from 100 on of the second pool.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// A load balancer of cluster type is created.
    CreateLb(&'static str),
    /// The same, of the guest cluster `gc`.
    CreateGuestLb(&'static str),
    /// One of VM type is created.
    CreateVmLb(&'static str),
    /// One that has the Go operator's finalizers is created.
    CreateLegacyLb(&'static str),
    /// One of VM type that shares the address of `a`, with this port, is created.
    CreateSharingLb(&'static str, u16),
    /// It asks for that no longer.
    StopSharing(&'static str),
    /// One of VM type whose address is leased is created.
    CreateDhcpLb(&'static str),
    /// The DHCP process has leased the address for it, or renewed the lease.
    Lease(&'static str, u8),
    /// The lease has expired.
    ExpireLease(&'static str),
    /// A load balancer is deleted, and gone.
    DeleteLb(&'static str),
    /// A load balancer is deleted; nobody waits until it is gone.
    StartDeleteLb(&'static str),
    /// `spec.ipPool` is set: `p`, `q` or none that exists.
    NamePool(&'static str, &'static str),
    /// A tenant writes an address into `status.allocatedAddress`.
    WriteAllocated(&'static str, u8),
    /// A guest writes `status.address`.
    GuestWrites(&'static str, &'static str),
    /// The one listener gets this port.
    EditListener(&'static str, u16),
    /// The Service's address is announced.
    Announce(&'static str),
    /// The Service is deleted by a user.
    DeleteService(&'static str),
    /// A user annotates the Service.
    EditService(&'static str),
    /// A Service of that name which is somebody else's is created.
    ForeignService(&'static str),
    /// The EndpointSlice is deleted by a user.
    DeleteSlice(&'static str),
    /// A running machine appears: its name, and the last part of its address.
    CreateVmi(&'static str, u8),
    /// A running machine is deleted.
    DeleteVmi(&'static str),
    /// A machine of a kind with a finalizer of the Go operator and one of somebody else.
    CreateLegacyMachine(&'static str),
    /// Somebody adds another finalizer.
    AddFinalizer(&'static str),
    /// That machine is gone, whatever its finalizers.
    DeleteLegacyMachine(&'static str),
    /// The pool's range is edited.
    EditPool(u8, u8),
    /// The pool is deleted.
    DeletePool,
    /// The pool is created.
    CreatePool,
    /// A manual release is asked for: last part of the address and a name.
    ManualRelease(u8, &'static str),
    /// A record is created by hand: Bound, for a load balancer that lives.
    CreateRecord(u8, &'static str),
    /// A record is deleted by hand.
    DeleteRecord(u8),
    /// A node of the guest cluster `gc` that is being removed appears.
    CreateGuestNode,
    /// That node is deleted.
    DeleteGuestNode,

    /// Its status and the IPAllocation have this address.
    Holds(&'static str, u8),
    /// The IPAllocation is Bound to it.
    Owns(&'static str, u8),
    /// It has some address.
    HoldsAny(&'static str),
    /// The IPAllocation is Released, and this was its last owner.
    InHistory(u8, &'static str),
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
    /// The Service has ports of these names, and its EndpointSlice of that name has no others.
    Carries(&'static str, &'static [&'static str]),
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
    /// No manual release is asked for.
    NoManualRelease,
    /// It is marked as one of a guest cluster that is removed.
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
pub(super) const NOTE: &str = "example.org/note";
/// A foreign finalizer.
const KEPT: &str = "example.org/kept";
/// Expiry of a lease that is valid, and of one that is not.
const FUTURE: &str = "2100-01-01T00:00:00.000000Z";
const PAST: &str = "2020-01-01T00:00:00.000000Z";
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
        json!([part(
            &format!("{}.0/28", self.subnet),
            &self.ip(from),
            &self.ip(to)
        )])
    }

    async fn pool(&self, world: &World, range: (u8, u8)) -> anyhow::Result<()> {
        let spec = json!({"ranges": self.ranges(range), "selector": for_namespace(&self.ns)});
        world.pool(&self.ns, spec).await
    }

    /// Creates the namespace and both pools.
    pub async fn make(&self, world: &World, range: (u8, u8)) -> anyhow::Result<()> {
        world.namespace(&self.ns).await?;
        self.pool(world, range).await?;
        let second = json!({"ranges": [subnet(&format!("{}.128/28", self.subnet))]});
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
            Self::CreateLb(name) => {
                world.lb(ns, name, cluster_spec()).await?;
            }
            Self::CreateGuestLb(name) => {
                world.lb_with(of_guest(ns, name), cluster_spec()).await?;
            }
            Self::CreateVmLb(name) => {
                world.lb(ns, name, vm_spec("web")).await?;
            }
            Self::CreateSharingLb(name, port) => {
                let metadata = json!({
                    "namespace": ns, "name": name, "annotations": {keys::ANNOTATION_PRIMARY: "a"},
                });
                let listeners = [listener("http", "TCP", port.into(), 8080)];
                let spec = with(vm_spec("web"), json!({"listeners": listeners}));
                world.lb_with(metadata, spec).await?;
            }
            Self::StopSharing(name) => {
                let patch = json!({"metadata": {"annotations": {keys::ANNOTATION_PRIMARY: null}}});
                world.merge(&lbs, name, patch).await?;
            }
            Self::CreateDhcpLb(name) => {
                let spec = with(vm_spec("web"), json!({"ipam": "dhcp"}));
                world.lb(ns, name, spec).await?;
            }
            Self::Lease(name, host) => {
                lease(world, ns, name, &at.ip(host), FUTURE).await?;
            }
            Self::ExpireLease(name) => {
                let service = world.services(ns).get(name).await?;
                let address = service.spec.and_then(|spec| spec.load_balancer_ip);
                lease(world, ns, name, &address.context("no address")?, PAST).await?;
            }
            Self::CreateLegacyLb(name) => {
                let metadata =
                    json!({"namespace": ns, "name": name, "finalizers": keys::LEGACY_FINALIZERS});
                world.lb_with(metadata, cluster_spec()).await?;
            }
            Self::DeleteLb(name) => {
                world.delete_lb(ns, name).await?;
                world.gone(&lbs, name).await?;
            }
            Self::StartDeleteLb(name) => world.delete_lb(ns, name).await?,
            Self::NamePool(name, pool) => {
                let pool = match pool {
                    "p" => at.ns.clone(),
                    "q" => at.second(),
                    other => other.to_owned(),
                };
                world
                    .merge(&lbs, name, json!({"spec": {"ipPool": pool}}))
                    .await?;
            }
            Self::WriteAllocated(name, host) => {
                world
                    .merge(&lbs, name, allocated_address(at.ip(host), ns))
                    .await?;
            }
            Self::GuestWrites(name, address) => {
                let patch = json!({"status": {"address": address}});
                world.merge(&lbs, name, patch).await?;
            }
            Self::EditListener(name, port) => {
                let port = i64::from(port);
                let listeners = [listener("http", "TCP", port, 8000 + port)];
                let patch = json!({"spec": {"listeners": listeners}});
                world.merge(&lbs, name, patch).await?;
            }
            Self::Announce(name) => {
                let service = world.services(ns).get(name).await?;
                announce(&world.client(), &service).await?;
            }
            Self::DeleteService(name) => {
                world.services(ns).delete(name, &plain).await?;
            }
            Self::EditService(name) => {
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
            Self::DeleteSlice(name) => {
                world.slices(ns).delete(name, &plain).await?;
            }
            Self::CreateVmi(name, host) => {
                let ip = format!("10.99.0.{host}");
                world
                    .fake_vmi(ns, name, json!({"app": "web"}), Some(&ip))
                    .await?;
            }
            Self::DeleteVmi(name) => {
                world.vmis(ns).delete(name, &plain).await?;
            }
            Self::CreateLegacyMachine(kind) => {
                let finalizers = [keys::LEGACY_VM_FINALIZERS[0], KEPT];
                machine(world, ns, kind, json!({"finalizers": finalizers})).await?;
            }
            Self::AddFinalizer(kind) => {
                let api = world.cluster.api("kubevirt.io/v1", kind, Some(ns)).await?;
                let finalizers = [keys::LEGACY_VM_FINALIZERS[0], KEPT, LATE];
                let patch = json!({"metadata": {"finalizers": finalizers}});
                world.merge(&api, "a", patch).await?;
            }
            Self::DeleteLegacyMachine(kind) => {
                let api = world.cluster.api("kubevirt.io/v1", kind, Some(ns)).await?;
                let patch = json!({"metadata": {"finalizers": null}});
                world.merge(&api, "a", patch).await?;
                api.delete("a", &plain).await?;
                world.gone(&api, "a").await?;
            }
            Self::EditPool(from, to) => {
                let patch = json!({"spec": {"ranges": at.ranges((from, to))}});
                world.merge(&world.pools(), ns, patch).await?;
            }
            Self::DeletePool => {
                world.pools().delete(ns, &plain).await?;
                world.gone(&world.pools(), ns).await?;
            }
            Self::CreatePool => at.pool(world, (2, 14)).await?,
            Self::ManualRelease(host, name) => {
                let asked = manual_release(at.ip(host), &format!("{ns}/{name}"));
                world.merge(&world.pools(), ns, asked).await?;
            }
            Self::CreateRecord(host, name) => {
                let uid = lbs.get(name).await?.metadata.uid;
                let owner = (ns, name, &*uid.context("no uid")?);
                forge(world, &at.ip(host), ns, "Bound", owner).await?;
            }
            Self::DeleteRecord(host) => {
                world.records().delete(&at.ip(host), &plain).await?;
            }
            Self::CreateGuestNode => {
                world.cluster.apply(&removed_node(ns, "a")).await?;
            }
            Self::DeleteGuestNode => {
                let kind = ("kubevirt.io/v1", "VirtualMachine");
                world.cluster.delete(kind.0, kind.1, Some(ns), "a").await?;
            }
            Self::Gone(name) => world.gone(&lbs, name).await?,
            Self::NoSlice(name) => world.gone(&world.slices(ns), name).await?,
            Self::NoService(name) => world.gone(&world.services(ns), name).await?,
            Self::NoRecord(host) => world.gone(&world.records(), &at.ip(host)).await?,
            Self::Holds(name, host) => holds(world, ns, name, &at.ip(host)).await?,
            Self::InHistory(host, name) => {
                let owner = format!("{ns}/{name}");
                record_is(world, &at.ip(host), Phase::Released, &owner).await?;
            }
            Self::Owns(name, host) => {
                record_is(world, &at.ip(host), Phase::Bound, &format!("{ns}/{name}")).await?;
            }
            Self::NoManualRelease => world.manual_release_done(ns).await?,
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
}

/// Writes the record of a lease, as the DHCP process does.
async fn lease(
    world: &World,
    ns: &str,
    name: &str,
    address: &str,
    expires_at: &str,
) -> anyhow::Result<()> {
    let uid = world.lbs(ns).get(name).await?.metadata.uid;
    let uid = uid.context("no uid")?;
    let object = json!({
        "apiVersion": API_VERSION, "kind": "IPAllocation",
        "metadata": {"name": format!("{}{uid}", keys::LEASE_RECORD_PREFIX)},
        "spec": {
            "address": address, "pool": "", "phase": "Bound",
            "owner": {"namespace": ns, "name": name, "uid": uid},
            "lease": {
                "interface": "eth0", "hardwareAddress": "02:00:00:00:00:01", "clientId": "ff",
                "server": "10.99.0.1", "renewAt": expires_at, "rebindAt": expires_at,
                "expiresAt": expires_at,
            },
        },
    });
    world.cluster.apply(&object).await?;
    Ok(())
}

/// The machine `a` of a kind.
async fn machine(world: &World, ns: &str, kind: &str, mut metadata: Value) -> anyhow::Result<()> {
    metadata["namespace"] = ns.into();
    metadata["name"] = "a".into();
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": kind, "metadata": metadata, "spec": {},
    });
    world.cluster.apply(&object).await?;
    Ok(())
}
