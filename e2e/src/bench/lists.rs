//! The lists of an operator's start, by a bare client.

use std::time::Instant;

use harvester_lb_api::{IPAllocation, IPPool, LoadBalancer};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ListMeta;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// Page size of a list, as a watch requests it.
const PAGE: u32 = 500;
/// Page size of a list of names and versions.
const PAGE_OF_NAMES: u32 = 1_000;

/// Seconds to list everything that an operator lists at its start: all objects for the watches, and then, as the leader, the names
/// and versions of those that an earlier leader may have written meanwhile.
pub(crate) async fn lists(client: &Client) -> anyhow::Result<f64> {
    let started = Instant::now();
    tokio::try_join!(
        list::<LoadBalancer>(client),
        list::<IPAllocation>(client),
        list::<Service>(client),
        list::<EndpointSlice>(client),
    )?;
    tokio::try_join!(
        names::<LoadBalancer>(client),
        names::<IPPool>(client),
        names::<IPAllocation>(client),
        names::<Service>(client),
        names::<EndpointSlice>(client),
    )?;
    Ok(started.elapsed().as_secs_f64())
}

async fn list<K>(client: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    pages(PAGE, async |page| Ok(api.list(page).await?.metadata)).await
}

async fn names<K>(client: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let list = async |page: &_| Ok(api.list_metadata(page).await?.metadata);
    pages(PAGE_OF_NAMES, list).await
}

async fn pages(
    size: u32,
    list: impl AsyncFn(&ListParams) -> anyhow::Result<ListMeta>,
) -> anyhow::Result<()> {
    let mut page = ListParams::default().limit(size);
    loop {
        let list = list(&page).await?;
        match list.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}
