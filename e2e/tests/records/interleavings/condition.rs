//! The conditions of a row that are waited for, each as one look.

use anyhow::{Context, bail, ensure};
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::read::{allocated, endpoints};

use super::step::{NOTE, Place, Step};

impl Step {
    /// Checks the condition once; an error if it does not hold.
    pub(super) async fn holds(&self, world: &World, at: &Place) -> anyhow::Result<()> {
        let ns = &*at.ns;
        let lbs = world.lbs(ns);
        match *self {
            Self::HoldsAny(name) => {
                allocated(&lbs.get(name).await?).context("no address")?;
            }
            Self::Shows(name, host) => {
                let service = world.services(ns).get(name).await?;
                let shown = service.spec.and_then(|s| s.load_balancer_ip);
                ensure!(shown == Some(at.ip(host)), "it shows {shown:?}");
            }
            Self::Carries(name, wanted) => {
                let service = world.services(ns).get(name).await?;
                let ports = service.spec.and_then(|s| s.ports).unwrap_or_default();
                let mut names: Vec<String> = ports.into_iter().filter_map(|it| it.name).collect();
                names.sort_unstable();
                ensure!(names == wanted, "{names:?}");
                let slice = world.slices(ns).get_opt(name).await?;
                let ports = slice.and_then(|slice| slice.ports).unwrap_or_default();
                let mut left = ports.into_iter().filter_map(|port| port.name);
                let other = left.find(|name| !names.contains(name));
                ensure!(other.is_none(), "{other:?}");
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
