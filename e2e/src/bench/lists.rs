//! The lists of an operator's start, by a bare client.

use std::time::Instant;

use harvester_lb_api::{IPAllocation, LoadBalancer};
use k8s_openapi::api::core::v1::Service;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;

/// Page size of a list, as a watch requests it.
const PAGE: u32 = 500;

/// Seconds to list everything that an operator lists at its start.
pub(crate) async fn lists(client: &Client) -> anyhow::Result<f64> {
    let started = Instant::now();
    tokio::try_join!(
        list::<LoadBalancer>(client),
        list::<IPAllocation>(client),
        list::<Service>(client),
        list::<EndpointSlice>(client),
    )?;
    Ok(started.elapsed().as_secs_f64())
}

async fn list<K>(client: &Client) -> anyhow::Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    let api: Api<K> = Api::all(client.clone());
    let mut page = ListParams::default().limit(PAGE);
    loop {
        let list = api.list(&page).await?;
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = page.continue_token(&token),
            None => return Ok(()),
        }
    }
}
