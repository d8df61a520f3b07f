//! Load balancers that share an address, with traffic to all ports of those that a change does not concern (SHR-3 to SHR-5,
//! SHR-7), and a namespace that is deleted with such a group (REL-3).

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{LoadBalancer, Phase, condition};
use harvester_lb_e2e::read::allocated;
use harvester_lb_e2e::world::SOON;
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::{listener, with};
use harvester_lb_testkit::{Slowness, Traffic, Vm, eventually};
use kube::api::DeleteParams;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::operator::shared;
use crate::vips::{lan, released, silent, vm_spec};

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        shr_3_the_health_checks_of_one_change_nothing_of_another,
        shr_4_no_request_fails_while_others_join_and_leave,
        rel_3_a_deleted_namespace_takes_its_load_balancers_along,
    ]
}

const PRIMARY: &str = "loadbalancer.harvesterhci.io/primary-load-balancer";

/// The ports of a load balancer. They lead to [`BACKENDS`].
type Ports = [u16; 2];
/// Those of the primary, of the second and of the third load balancer.
const A: Ports = [80, 90];
const B: Ports = [81, 91];
const C: Ports = [82, 92];
const BACKENDS: Ports = [8080, 9090];

/// Pause between requests to a port.
const PAUSE: Duration = Duration::from_millis(50);
/// As many requests as are sent while kube-proxy, which writes its rules once a second, writes them twice.
const ENOUGH: usize = 40;

/// A group in a namespace of its own, which is also the name of its primary.
struct Group<'a> {
    world: &'a World,
    ns: &'a str,
    vip: Ipv4Addr,
    vms: Vec<Vm>,
}

impl<'a> Group<'a> {
    /// A group of the primary alone, which the first of these machines serves; its pool begins at 192.168.100.`from`.
    async fn start(
        world: &'a World,
        ns: &'a str,
        from: u8,
        machines: &[&str],
    ) -> anyhow::Result<Self> {
        world.namespace(ns).await?;
        world.pool_for(ns, ns, &[lan(from, from + 3)]).await?;
        let mut vms = Vec::new();
        for name in machines {
            let vm = world.vm(ns, name, &[("app", name)], BACKENDS[0]).await?;
            vm.listen(BACKENDS[1])?;
            vms.push(vm);
        }
        world.lb(ns, ns, spec(ns, machines[0], A)).await?;
        let lb = world.lb_reason(ns, ns, "Ready").await?;
        let vip = allocated(&lb).context("no address")?.parse()?;
        let group = Self {
            world,
            ns,
            vip,
            vms,
        };
        group.answers(machines[0], A).await?;
        Ok(group)
    }

    /// Creates a load balancer that shares the address, and waits until a machine answers at its ports.
    async fn add(&self, name: &str, machine: &str, ports: Ports) -> anyhow::Result<()> {
        let annotations = json!({ PRIMARY: self.ns });
        let meta = json!({"namespace": self.ns, "name": name, "annotations": annotations});
        self.world
            .lb_with(meta, spec(self.ns, machine, ports))
            .await?;
        self.world.lb_reason(self.ns, name, "Ready").await?;
        self.answers(machine, ports).await
    }

    /// Deletes a load balancer, and waits until its ports are closed.
    async fn remove(&self, name: &str, ports: Ports) -> anyhow::Result<()> {
        self.world.delete_lb(self.ns, name).await?;
        self.world.gone(&self.world.lbs(self.ns), name).await?;
        self.is_silent(ports).await
    }

    async fn edit(&self, name: &str, patch: Value) -> anyhow::Result<()> {
        self.world
            .merge(&self.world.lbs(self.ns), name, patch)
            .await?;
        Ok(())
    }

    async fn answers(&self, machine: &str, ports: Ports) -> anyhow::Result<()> {
        for port in ports {
            self.world.answered_by(self.vip, port, &[machine]).await?;
        }
        Ok(())
    }

    async fn is_silent(&self, ports: Ports) -> anyhow::Result<()> {
        for port in ports {
            silent(self.world, self.vip, port).await?;
        }
        Ok(())
    }

    /// Waits until the ports of the primary have these names alone, in its EndpointSlice and in the Service.
    async fn has_names(&self, wanted: [&str; 2]) -> anyhow::Result<()> {
        let (services, slices) = (self.world.services(self.ns), self.world.slices(self.ns));
        let what = format!("the ports of the primary are {wanted:?}");
        eventually(&what, SOON, || async {
            let slice = slices.get(self.ns).await?.ports.unwrap_or_default();
            let slice: Vec<_> = slice.into_iter().filter_map(|port| port.name).collect();
            let spec = services.get(self.ns).await?.spec.unwrap_or_default();
            let mut ports = spec.ports.unwrap_or_default();
            ports.retain(|port| A.map(i32::from).contains(&port.port));
            let service: Vec<_> = ports.into_iter().filter_map(|port| port.name).collect();
            ensure!(
                slice == wanted && service == wanted,
                "{slice:?}, {service:?}"
            );
            Ok(Some(()))
        })
        .await
    }

    /// Sends requests to the ports of a load balancer from now on.
    fn requests(&self, ports: Ports) -> Requests {
        Requests::start(self.world, self.vip, &ports)
    }
}

/// Spec of a load balancer on these ports.
fn spec(ns: &str, machine: &str, ports: Ports) -> Value {
    with(vm_spec(ns, machine), listeners(ports))
}

/// The part of a spec that has the ports.
fn listeners(ports: Ports) -> Value {
    let listener = |name, n: usize| listener(name, "TCP", ports[n].into(), BACKENDS[n].into());
    json!({"listeners": [listener("first", 0), listener("second", 1)]})
}

/// A merge patch that sets or removes the request for the address of another one.
fn names(primary: Option<&str>) -> Value {
    json!({"metadata": {"annotations": { PRIMARY: primary }}})
}

/// Requests to ports at which none may fail.
struct Requests(Vec<(u16, Traffic)>);

impl Requests {
    fn start(world: &World, vip: Ipv4Addr, ports: &[u16]) -> Self {
        let start = |port: &u16| (*port, Traffic::start(&world.cluster, vip, *port, PAUSE));
        Self(ports.iter().map(start).collect())
    }

    /// Waits until kube-proxy has made what it makes of the last change, and fails if a request has failed.
    async fn go_on(&self) -> anyhow::Result<()> {
        let from = Instant::now();
        for (port, traffic) in &self.0 {
            eventually(&format!("requests to port {port}"), SOON, || async {
                let sent = traffic.records().iter().filter(|it| it.at > from).count();
                Ok((sent >= ENOUGH).then_some(()))
            })
            .await?;
        }
        for (port, traffic) in &self.0 {
            let mut failed = traffic.records();
            failed.retain(|it| it.outcome.is_err());
            ensure!(failed.is_empty(), "of port {port}: {failed:?}");
        }
        Ok(())
    }

    /// Ends them, and fails if one of them has failed.
    async fn end(self) -> anyhow::Result<()> {
        for (port, traffic) in self.0 {
            let mut records = traffic.stop().await;
            println!("port {port}: {}", Slowness::of(&records));
            records.retain(|it| it.outcome.is_err());
            ensure!(records.is_empty(), "of port {port}: {records:?}");
        }
        Ok(())
    }
}

/// Three load balancers on one address. While others join, leave and fall out, no request to a port that none of that concerns
/// fails; and that the first one is deleted changes nothing for the rest (SHR-4, SHR-5, SHR-7).
async fn shr_4_no_request_fails_while_others_join_and_leave(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "share";
    let group = Group::start(&world, ns, 185, &["s1", "s2", "s3"]).await?;
    let (b, c) = ("share-b", "share-c");
    let first = group.requests(A);
    group.add(b, "s2", B).await?;
    group.has_names(["80-tcp", "90-tcp"]).await?;
    first.go_on().await?;
    let second = group.requests(B);
    let uid = world.services(ns).get(ns).await?.metadata.uid;
    group.add(c, "s3", C).await?;
    first.go_on().await?;
    second.go_on().await?;
    // It wants a port of another one and falls out, and comes back.
    group
        .edit(c, json!({"spec": listeners([B[0], C[1]])}))
        .await?;
    world.lb_reason(ns, c, "PortConflict").await?;
    group.is_silent(C).await?;
    group.edit(c, json!({"spec": listeners(C)})).await?;
    group.answers("s3", C).await?;
    second.end().await?;
    let third = group.requests(C);
    // One leaves for an address of its own, and joins with that.
    group.edit(b, names(None)).await?;
    group.is_silent(B).await?;
    let moved = |lb: &LoadBalancer| allocated(lb).is_some_and(|it| it != group.vip.to_string());
    let own = world
        .lb_until(ns, b, "an address of its own", moved)
        .await?;
    let own: Ipv4Addr = allocated(&own).context("no address")?.parse()?;
    world.answered_by(own, B[0], &["s2"]).await?;
    group.edit(b, names(Some(ns))).await?;
    group.answers("s2", B).await?;
    released(&world, own).await?;
    first.go_on().await?;
    third.go_on().await?;
    third.end().await?;
    // The primary is alone again.
    let second = group.requests(B);
    group.remove(c, C).await?;
    second.go_on().await?;
    second.end().await?;
    group.remove(b, B).await?;
    group.has_names(["first", "second"]).await?;
    first.go_on().await?;
    // Others join it again, and it goes.
    group.add(b, "s2", B).await?;
    group.add(c, "s3", C).await?;
    group.has_names(["80-tcp", "90-tcp"]).await?;
    first.go_on().await?;
    first.end().await?;
    let (second, third) = (group.requests(B), group.requests(C));
    group.remove(ns, A).await?;
    world
        .lb_until(ns, b, "it holds the address", |lb| {
            let status = lb.status.as_ref();
            let all = status.and_then(|s| s.conditions.as_deref());
            condition::find(all.unwrap_or_default(), "AddressShared")
                .is_some_and(|c| c.reason.as_deref() == Some("Holder"))
        })
        .await?;
    second.go_on().await?;
    second.end().await?;
    // The next holder goes too.
    group.remove(b, B).await?;
    third.go_on().await?;
    third.end().await?;
    let now = world.services(ns).get(ns).await?;
    ensure!(now.metadata.uid == uid, "another Service");
    group.remove(c, C).await?;
    released(&world, group.vip).await
}

/// What others have of a load balancer: the version of its EndpointSlice, and its conditions.
async fn state(world: &World, ns: &str, name: &str) -> anyhow::Result<(Option<String>, Value)> {
    let slice = world.slices(ns).get(name).await?;
    let status = world.lbs(ns).get(name).await?.status;
    let conditions = status.and_then(|status| status.conditions);
    let version = slice.metadata.resource_version;
    Ok((version, serde_json::to_value(conditions)?))
}

/// The machines of one load balancer fail: it alone is not ready and gets no traffic, the other one is not written.
async fn shr_3_the_health_checks_of_one_change_nothing_of_another(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let ns = "own-checks";
    let group = Group::start(&world, ns, 192, &["h1", "h2"]).await?;
    let b = "own-checks-b";
    group.add(b, "h2", B).await?;
    group.has_names(["80-tcp", "90-tcp"]).await?;
    let (first, before) = (group.requests(A), state(&world, ns, ns).await?);
    group.vms[1].close(BACKENDS[0]).await;
    world.ready_endpoints(ns, b, &["10.52.0.255"]).await?;
    world.lb_reason(ns, b, "BackendsUnhealthy").await?;
    group.is_silent(B).await?;
    first.go_on().await?;
    let now = state(&world, ns, ns).await?;
    ensure!(now == before, "{now:?}, not {before:?}");
    // And the other way round.
    group.vms[1].listen(BACKENDS[0])?;
    world.lb_reason(ns, b, "Ready").await?;
    group.answers("h2", B).await?;
    first.go_on().await?;
    first.end().await?;
    let now = state(&world, ns, ns).await?;
    ensure!(now == before, "{now:?}, not {before:?}");
    let (second, before) = (group.requests(B), state(&world, ns, b).await?);
    group.vms[0].close(BACKENDS[0]).await;
    world.lb_reason(ns, ns, "BackendsUnhealthy").await?;
    group.is_silent(A).await?;
    second.go_on().await?;
    second.end().await?;
    let now = state(&world, ns, b).await?;
    ensure!(now == before, "{now:?}, not {before:?}");
    Ok(())
}

/// The uids of a load balancer's objects, and the version of its EndpointSlice.
async fn objects(world: &World, ns: &str) -> anyhow::Result<[Option<String>; 4]> {
    let slice = world.slices(ns).get(ns).await?.metadata;
    Ok([
        world.lbs(ns).get(ns).await?.metadata.uid,
        world.services(ns).get(ns).await?.metadata.uid,
        slice.uid,
        slice.resource_version,
    ])
}

async fn rel_3_a_deleted_namespace_takes_its_load_balancers_along(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let _shared = shared(&world).await?;
    let (ns, other) = ("doomed", "spared");
    let group = Group::start(&world, ns, 196, &["z1"]).await?;
    group.add("doomed-b", "z1", B).await?;
    group.add("doomed-c", "z1", C).await?;
    // The same machine serves one of another namespace.
    world.namespace(other).await?;
    world.pool_for(other, other, &[lan(209, 209)]).await?;
    let machine = group.vms[0].vmi_manifest(other, &[("app", "z1")]);
    world.cluster.apply(&machine).await?;
    world.lb(other, other, spec(other, "z1", A)).await?;
    let spared = Ipv4Addr::new(192, 168, 100, 209);
    world.answered_by(spared, A[0], &["z1"]).await?;
    world.lb_reason(other, other, "Ready").await?;
    let (before, requests) = (
        objects(&world, other).await?,
        Requests::start(&world, spared, &A),
    );

    let namespaces = world.namespaces();
    namespaces.delete(ns, &DeleteParams::default()).await?;
    for ports in [A, B, C] {
        group.is_silent(ports).await?;
    }
    // It goes when the last of its objects is gone.
    world.gone(&namespaces, ns).await?;
    released(&world, group.vip).await?;
    requests.go_on().await?;
    requests.end().await?;
    let now = objects(&world, other).await?;
    ensure!(now == before, "{now:?}, not {before:?}");
    let record = world.records().get(&spared.to_string()).await?.spec;
    ensure!(record.phase == Phase::Bound, "{record:?}");
    Ok(())
}
