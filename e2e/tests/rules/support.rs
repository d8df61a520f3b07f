//! Helpers for the tests of the rules.
#![allow(dead_code, reason = "each test binary uses some of them")]

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer, Phase};
use harvester_lb_e2e::World;
use harvester_lb_e2e::world::SOON;
use harvester_lb_fixtures::{cluster_spec, vm_spec, with};
use harvester_lb_testkit::{TestClusterOptions, consistently, eventually};
use k8s_openapi::api::core::v1::Service;
use kube::Resource;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use serde_json::{Value, json};

/// One node without kube-proxy and kube-vip.
pub(crate) fn small_cluster_options() -> TestClusterOptions {
    TestClusterOptions {
        nodes: 1,
        kube_proxy: false,
        kube_vip: false,
        ..TestClusterOptions::default()
    }
}

/// Nothing is written for this long once the last writes of a change are over.
const SETTLED: Duration = Duration::from_millis(500);

/// An address that the operator of these tests refuses for backends.
pub(crate) const DENIED: &str = "192.0.2.7";

/// Starts the operator, for the life of the test cluster.
pub(crate) fn one_operator(
    world: Arc<World>,
) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>> {
    Box::pin(async move {
        let flags = [
            "--backend-deny-cidr",
            "192.0.2.0/24",
            "--service-interfaces",
            "storage,vlan20",
        ];
        let operator = world.start_operator_with("node1", &flags, &[]).await?;
        std::mem::forget(operator);
        Ok(())
    })
}

/// Spec of a LoadBalancer of cluster type.
pub(crate) fn cluster(pool: &str) -> Value {
    with(cluster_spec(), json!({ "ipPool": pool }))
}

/// Spec of a LoadBalancer for virtual machines labelled `app`.
pub(crate) fn vm(pool: &str, app: &str) -> Value {
    with(vm_spec(app), json!({ "ipPool": pool }))
}

/// Actions and checks that only these tests need.
pub(crate) trait RuleHelpers {
    /// Creates a pool that serves only LoadBalancers that name it.
    async fn ranges(&self, name: &str, ranges: &[Value]) -> anyhow::Result<()>;
    /// Creates a LoadBalancer of cluster type and waits for its address.
    async fn served(&self, namespace: &str, name: &str, pool: &str) -> anyhow::Result<String>;
    /// Reads a LoadBalancer.
    async fn read(&self, namespace: &str, name: &str) -> anyhow::Result<LoadBalancer>;
    /// Reports an external address of a Service, as kube-vip does.
    async fn ingress(&self, namespace: &str, name: &str, ingress: Value) -> anyhow::Result<()>;
    /// Waits until `wanted` holds for a Service.
    async fn service_until(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Service) -> bool,
    ) -> anyhow::Result<Service>;
    /// Creates a LoadBalancer of VM type and reports its external address once it has one.
    async fn announced(&self, namespace: &str, name: &str, spec: Value) -> anyhow::Result<String>;
    /// Deletes a LoadBalancer and waits until it is gone and its address is released.
    async fn remove(&self, namespace: &str, name: &str, address: &str) -> anyhow::Result<()>;
    /// The IPAllocation of an address.
    async fn record(&self, address: &str) -> anyhow::Result<Option<IPAllocation>>;
    /// Waits for the phase of an address, and returns its owner.
    async fn phase(&self, address: &str, phase: Phase) -> anyhow::Result<String>;
    /// Waits until a pool's status has all these values.
    async fn accounts(&self, pool: &str, wanted: &Accounts<'_>) -> anyhow::Result<()>;
    /// Resource versions of all objects of a namespace, and of pools.
    async fn versions(
        &self,
        namespace: &str,
        pools: &[&str],
    ) -> anyhow::Result<BTreeMap<String, String>>;
    /// Asserts for a while that the versions are these.
    async fn unchanged(
        &self,
        namespace: &str,
        pools: &[&str],
        wanted: &BTreeMap<String, String>,
        time: Duration,
    ) -> anyhow::Result<()>;
    /// Asserts for a while that an address is Bound to this owner, `<namespace>/<name>`.
    async fn stays_bound(&self, address: &str, owner: &str, time: Duration) -> anyhow::Result<()>;
    /// Waits until the pools' status is up to date, then asserts that nothing in a namespace, nor a pool, is written for a
    /// while.
    async fn at_rest(&self, namespace: &str, pools: &[&str], time: Duration) -> anyhow::Result<()>;
    /// Deletes a pool.
    async fn delete_pool(&self, name: &str) -> anyhow::Result<()>;
}

/// The addresses in a pool's status. Address to owner, both lists in order.
pub(crate) struct Accounts<'a> {
    /// `status.total`
    pub(crate) total: i64,
    /// `status.available`
    pub(crate) available: i64,
    /// `status.lastAllocated`
    pub(crate) last: &'a str,
    /// `status.allocated`
    pub(crate) allocated: &'a [(&'a str, &'a str)],
    /// `status.allocatedHistory`
    pub(crate) history: &'a [(&'a str, &'a str)],
}

impl Accounts<'_> {
    fn hold(&self, pool: &IPPool) -> bool {
        let map = |of: &[(&str, &str)]| -> BTreeMap<String, String> {
            of.iter()
                .map(|(a, o)| ((*a).to_owned(), (*o).to_owned()))
                .collect()
        };
        pool.status.as_ref().is_some_and(|s| {
            s.total == self.total
                && s.available == self.available
                && s.last_allocated == self.last
                && s.allocated.clone().unwrap_or_default() == map(self.allocated)
                && s.allocated_history.clone().unwrap_or_default() == map(self.history)
        })
    }
}

fn version_of<K: Resource>(object: &K) -> (String, String) {
    let meta = object.meta();
    let name = meta.name.clone().unwrap_or_default();
    let version = meta.resource_version.clone().unwrap_or_default();
    (format!("{} {name}", std::any::type_name::<K>()), version)
}

impl RuleHelpers for World {
    async fn ranges(&self, name: &str, ranges: &[Value]) -> anyhow::Result<()> {
        self.pool(name, json!({ "ranges": ranges })).await
    }

    async fn served(&self, namespace: &str, name: &str, pool: &str) -> anyhow::Result<String> {
        self.lb(namespace, name, cluster(pool)).await?;
        self.lb_address(namespace, name).await
    }

    async fn read(&self, namespace: &str, name: &str) -> anyhow::Result<LoadBalancer> {
        Ok(self.lbs(namespace).get(name).await?)
    }

    async fn ingress(&self, namespace: &str, name: &str, ingress: Value) -> anyhow::Result<()> {
        // The condition that reports the missing address is written before the Service.
        self.service_until(namespace, name, "exists", |_| true)
            .await?;
        let patch = json!({ "status": { "loadBalancer": { "ingress": ingress } } });
        self.services(namespace)
            .patch_status(name, &PatchParams::default(), &Patch::Merge(patch))
            .await?;
        Ok(())
    }

    async fn service_until(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        wanted: impl Fn(&Service) -> bool,
    ) -> anyhow::Result<Service> {
        let api = self.services(namespace);
        eventually(
            &format!("Service {namespace}/{name}: {what}"),
            SOON,
            || async {
                let service = api.get(name).await?;
                ensure!(wanted(&service), "it is {}", json!(service));
                Ok(Some(service))
            },
        )
        .await
    }

    async fn announced(&self, namespace: &str, name: &str, spec: Value) -> anyhow::Result<String> {
        self.lb(namespace, name, spec).await?;
        let address = self.lb_address(namespace, name).await?;
        self.service_until(namespace, name, "its address", |s| {
            let spec = s.spec.as_ref();
            spec.and_then(|s| s.load_balancer_ip.as_deref()) == Some(&address)
        })
        .await?;
        self.ingress(namespace, name, json!([{ "ip": address }]))
            .await?;
        self.lb_until(namespace, name, "its external address", |lb| {
            lb.status.as_ref().and_then(|s| s.address.as_deref()) == Some(&address)
        })
        .await?;
        Ok(address)
    }

    async fn remove(&self, namespace: &str, name: &str, address: &str) -> anyhow::Result<()> {
        self.delete_lb(namespace, name).await?;
        let owner = self.phase(address, Phase::Released).await?;
        ensure!(owner == format!("{namespace}/{name}"), "{address}: {owner}");
        self.gone(&self.lbs(namespace), name).await
    }

    async fn record(&self, address: &str) -> anyhow::Result<Option<IPAllocation>> {
        let all = self.records().list(&ListParams::default()).await?;
        Ok(all.into_iter().find(|r| r.spec.address == address))
    }

    async fn phase(&self, address: &str, phase: Phase) -> anyhow::Result<String> {
        eventually(&format!("{address} is {phase:?}"), SOON, || async {
            let record = self.record(address).await?.context("no record")?;
            let owner = record.spec.owner;
            ensure!(
                record.spec.phase == phase,
                "{:?} of {owner:?}",
                record.spec.phase
            );
            Ok(Some(format!("{}/{}", owner.namespace, owner.name)))
        })
        .await
    }

    async fn accounts(&self, pool: &str, wanted: &Accounts<'_>) -> anyhow::Result<()> {
        let what = format!(
            "available {} of {}, last {:?}, {:?}, history {:?}",
            wanted.available, wanted.total, wanted.last, wanted.allocated, wanted.history
        );
        self.pool_until(pool, &what, |p| wanted.hold(p)).await?;
        Ok(())
    }

    async fn versions(
        &self,
        namespace: &str,
        pools: &[&str],
    ) -> anyhow::Result<BTreeMap<String, String>> {
        let all = ListParams::default();
        let mut versions = BTreeMap::new();
        for name in pools {
            versions.extend([version_of(&self.pools().get(name).await?)]);
        }
        versions.extend(self.lbs(namespace).list(&all).await?.iter().map(version_of));
        let services = self.services(namespace).list(&all).await?;
        versions.extend(services.iter().map(version_of));
        let slices = self.slices(namespace).list(&all).await?;
        versions.extend(slices.iter().map(version_of));
        let records = self.records().list(&all).await?;
        let own = records
            .iter()
            .filter(|r| r.spec.owner.namespace == namespace);
        versions.extend(own.map(version_of));
        Ok(versions)
    }

    async fn unchanged(
        &self,
        namespace: &str,
        pools: &[&str],
        wanted: &BTreeMap<String, String>,
        time: Duration,
    ) -> anyhow::Result<()> {
        consistently("nothing is written", time, || async {
            let now = self.versions(namespace, pools).await?;
            ensure!(now == *wanted, "{now:?}, not {wanted:?}");
            Ok(())
        })
        .await
    }

    async fn stays_bound(&self, address: &str, owner: &str, time: Duration) -> anyhow::Result<()> {
        consistently(&format!("{address} is Bound"), time, || async {
            let spec = self.record(address).await?.context("no record")?.spec;
            let now = format!("{}/{}", spec.owner.namespace, spec.owner.name);
            ensure!(
                spec.phase == Phase::Bound && now == owner,
                "{:?} of {now}",
                spec.phase
            );
            Ok(())
        })
        .await
    }

    async fn at_rest(&self, namespace: &str, pools: &[&str], time: Duration) -> anyhow::Result<()> {
        // The last write of a pool's status comes late, on a busy machine by more than its second (POOL-3).
        for pool in pools {
            let what = format!("IPPool {pool}: its status names what is held");
            eventually(&what, 2 * SOON, || async {
                let records = self.records().list(&ListParams::default()).await?;
                let held =
                    |r: &&IPAllocation| r.spec.pool == **pool && r.spec.phase == Phase::Bound;
                let held = records.iter().filter(held).count();
                let status = self.pools().get(pool).await?.status;
                let named = status.and_then(|s| s.allocated).unwrap_or_default().len();
                ensure!(named == held, "it names {named} of {held}");
                Ok(Some(()))
            })
            .await?;
        }
        let settled = || async {
            let before = self.versions(namespace, pools).await?;
            self.unchanged(namespace, pools, &before, SETTLED).await?;
            Ok(Some(before))
        };
        let before = eventually("the last writes are over", SOON, settled).await?;
        self.unchanged(namespace, pools, &before, time).await
    }

    async fn delete_pool(&self, name: &str) -> anyhow::Result<()> {
        self.pools().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }
}
