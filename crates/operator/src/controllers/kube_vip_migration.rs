//! Migration from the ConfigMaps of kube-vip's cloud provider, once, by the leader, before it reconciles (MIG-1 to MIG-5).
//!
//! Each step can be repeated: pools and IPAllocations that exist are left alone, and the annotation that ends the migration
//! is written last. So the process may be killed between any two writes. A cluster without that ConfigMap costs one read.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Display;
use std::net::IpAddr;

use futures::{StreamExt, stream};
use harvester_lb_api::meta::annotation;
use harvester_lb_api::{IPPool, keys};
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::events::Severity;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use harvester_lb_core::kube_vip_config::{
    self, Announced, CONFIG_MAP, CONFIG_NAMESPACE, NewPool, SERVICES,
};
use harvester_lb_core::pool_spec::{exclusions_of, ranges_of};
use harvester_lb_ipam::{
    Micros, Owner, Phase, PoolName, PoolRanges, RecordSpec, Settings, Uid, addr,
};
use harvester_lb_object::Key;
use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};
use kube::api::{ListParams, ObjectMeta};
use kube::{Api, Resource};
use serde_json::json;
use tracing::{info, warn};

use crate::clock;
use crate::context::Context;
use crate::controllers::records;

/// Event: pools and history were migrated.
const MIGRATED: &str = "Migrated";
/// Event: something was not migrated.
const NOT_MIGRATED: &str = "NotMigrated";

/// How often the ConfigMap is read again because somebody else changed it meanwhile. Each change is an edit by a person.
const ROUNDS: usize = 5;
/// Maximum number of Events about what is skipped; the log has all.
const EVENTS: usize = 20;
/// Number of creations that may fail as if the API server were unavailable, while it answers reads. The cause is an admission
/// webhook, which may take 10 s each time.
const FAILURES: usize = 3;
/// Number of concurrent creations of IPAllocations, as for the maps of the Go operator.
const AT_A_TIME: usize = 16;

/// Migrates, unless that was done before. What is wrong with the ConfigMap, and what the API server refuses, delays nothing
/// else (MIG-4): it is logged and reported by an Event. After a refusal the next term tries again.
///
/// # Errors
/// This process is no longer leader, or the API server is unavailable.
pub async fn run(ctx: &Context) -> Result<(), WriteError> {
    let api: Api<ConfigMap> = Api::namespaced(ctx.client.writer().client(), CONFIG_NAMESPACE);
    for _ in 0..ROUNDS {
        let config = match ctx.client.writer().get(&api, CONFIG_MAP).await {
            Err(error) if error.is_refusal() => {
                // A permission was revoked, which must not stop the start (RUN-1).
                warn!(%error, "migration from kube-vip left to the next leader");
                return Ok(());
            }
            other => other?,
        };
        let Some(config) = config.filter(|config| !is_done(config)) else {
            return Ok(());
        };
        match Migration::new(ctx, &config).run(&api).await {
            Err(error) if error.is_stale() => {}
            other => return other,
        }
    }
    warn!("migration from kube-vip not marked as done, its ConfigMap keeps changing");
    Ok(())
}

/// Whether the migration was done before, by this operator or the Go operator.
fn is_done(config: &ConfigMap) -> bool {
    annotation(&config.metadata, keys::ANNOTATION_AFTER_CONVERSION) == Some("true")
}

/// One attempt.
struct Migration<'a> {
    ctx: &'a Context,
    config: &'a ConfigMap,
    /// Number of created pools and IPAllocations.
    created: (usize, usize),
    /// Number of requests that the API server refused, or that were not sent any more after [`FAILURES`].
    refused: usize,
    /// Number of those for which it seemed to be unavailable.
    failures: usize,
    events: usize,
}

impl<'a> Migration<'a> {
    const fn new(ctx: &'a Context, config: &'a ConfigMap) -> Self {
        Self {
            ctx,
            config,
            created: (0, 0),
            refused: 0,
            failures: 0,
            events: 0,
        }
    }

    /// Creates pools, then IPAllocations, then marks the migration as done if nothing was refused.
    ///
    /// # Errors
    /// As [`run`]; also if the ConfigMap has changed meanwhile.
    async fn run(&mut self, api: &Api<ConfigMap>) -> Result<(), WriteError> {
        let none = BTreeMap::new();
        let data = self.config.data.as_ref().unwrap_or(&none);
        let (pools, problems) = kube_vip_config::pools(data);
        for problem in problems {
            self.skip(&problem);
        }
        for pool in pools {
            self.create_pool(api, pool).await?;
        }
        self.remember(api).await?;
        if self.refused == 0 {
            return self.finish(api).await;
        }
        let annotation = keys::ANNOTATION_AFTER_CONVERSION;
        let text = format!(
            "{} requests refused; the next leader tries again, until the annotation {annotation} is \"true\"",
            self.refused
        );
        self.skip(&text);
        Ok(())
    }

    /// MIG-1: creates a pool, unless there is one of its name.
    async fn create_pool(&mut self, api: &Api<ConfigMap>, pool: NewPool) -> Result<(), WriteError> {
        let key = Key::new("", &pool.name);
        if self.ctx.index.stores.pools.get(&key).is_some() {
            info!(
                pool = pool.name,
                "IPPool exists, not migrated from kube-vip"
            );
            return Ok(());
        }
        if self.failures == FAILURES {
            self.refused += 1;
            return Ok(());
        }
        let object = IPPool {
            metadata: ObjectMeta {
                name: Some(pool.name.clone()),
                ..ObjectMeta::default()
            },
            spec: pool.spec,
            status: None,
        };
        match self.ctx.client.create(&key, &object).await {
            Ok(_) => {
                info!(pool = pool.name, "IPPool migrated from kube-vip");
                self.created.0 += 1;
                Ok(())
            }
            Err(WriteError::AlreadyExists(_)) => Ok(()),
            Err(error) => {
                let what = format!("IPPool {} cannot be written", pool.name);
                self.refused(api, &what, error).await
            }
        }
    }

    /// MIG-5: creates a Released IPAllocation for each announced address. Of several that are refused one is reported.
    async fn remember(&mut self, api: &Api<ConfigMap>) -> Result<(), WriteError> {
        let announced = self.announced(api).await?;
        let ctx = self.ctx;
        let outcomes: Vec<(IpAddr, Result<bool, WriteError>)> =
            stream::iter(self.records(&announced))
                .map(|spec| async move { (spec.addr, records::write(ctx, &spec, None).await) })
                .buffer_unordered(AT_A_TIME)
                .collect()
                .await;
        let mut first_refused = None;
        for (address, outcome) in outcomes {
            match outcome {
                Ok(true) => self.created.1 += 1,
                // Somebody else has created it.
                Ok(false) => {}
                Err(error) => first_refused = first_refused.or(Some((address, error))),
            }
        }
        let Some((address, error)) = first_refused else {
            return Ok(());
        };
        let what = format!("IPAllocation of {address} cannot be written");
        self.refused(api, &what, error).await
    }

    /// The announced addresses in the ConfigMaps of all namespaces, in the order of the namespaces.
    async fn announced(&mut self, api: &Api<ConfigMap>) -> Result<Vec<Announced>, WriteError> {
        let all: Api<DecodeGuard<ConfigMap>> = Api::all(api.clone().into_client());
        let named = ListParams::default().fields(&format!("metadata.name={CONFIG_MAP}"));
        let mut configs = match bounded(all.list(&named)).await {
            Err(error) if error.is_refusal() => {
                self.refused(api, "the announced addresses cannot be read", error)
                    .await?;
                return Ok(Vec::new());
            }
            other => other?.items,
        };
        configs.sort_by(|a, b| a.meta().namespace.cmp(&b.meta().namespace));
        let mut announced = Vec::new();
        for config in configs {
            let Ok(config) = config.0 else { continue };
            let data = config.data.as_ref();
            let Some(services) = data.and_then(|data| data.get(SERVICES)) else {
                continue;
            };
            let namespace = config.metadata.namespace.as_deref().unwrap_or_default();
            match kube_vip_config::announced(namespace, services) {
                Ok(more) => announced.extend(more),
                Err(problem) => {
                    self.skip(&format!("ConfigMap {namespace}/{CONFIG_MAP}: {problem}"));
                }
            }
        }
        Ok(announced)
    }

    /// The IPAllocations that are missing, within the limits of the history. Of several Services with one address the first
    /// counts.
    fn records(&self, announced: &[Announced]) -> Vec<RecordSpec> {
        let stores = &self.ctx.index.stores;
        let ranges: HashMap<String, PoolRanges> = stores
            .pools
            .all()
            .into_iter()
            .filter_map(|(key, pool)| {
                let spec = pool.spec.as_ref().ok()?;
                let ranges = PoolRanges::parse(&ranges_of(spec)).ok()?;
                // What the list excludes is not to be had again (EXC-2).
                let excluded = exclusions_of(&pool.meta).unwrap_or_default();
                Some((key.name.to_string(), ranges.without(&excluded)))
            })
            .collect();
        let limits = Settings::default();
        let mut seen = HashSet::new();
        let mut number: HashMap<&str, usize> = HashMap::new();
        let mut records = Vec::new();
        for one in announced {
            let Some(pool) = kube_vip_config::pool_of(one, |name| ranges.get(name)) else {
                continue;
            };
            let key = Key::new("", addr::record_name(one.address));
            let of_pool = number.entry(pool).or_default();
            let is_full =
                *of_pool == limits.history_per_pool || records.len() == limits.history_total;
            if is_full || !seen.insert(one.address) || stores.allocations.get(&key).is_some() {
                continue;
            }
            *of_pool += 1;
            records.push(RecordSpec {
                addr: one.address,
                pool: PoolName::from(pool),
                owner: Owner {
                    id: one.owner.clone(),
                    uid: Uid::new(""),
                },
                phase: Phase::Released,
                // Unknown, as for history from the Go operator.
                bound_at: Micros(0),
                released_at: Some(clock::now()),
                group: None,
            });
        }
        records
    }

    /// Marks the migration as done, in exactly the copy that was migrated.
    async fn finish(&mut self, api: &Api<ConfigMap>) -> Result<(), WriteError> {
        let meta = &self.config.metadata;
        let version = meta.resource_version.as_deref().unwrap_or_default();
        let patch =
            json!({"metadata": {"annotations": {keys::ANNOTATION_AFTER_CONVERSION: "true"}}});
        let writer = self.ctx.client.writer();
        let marked = writer.patch::<ConfigMap>(api, CONFIG_MAP, version, patch);
        match marked.await {
            Ok(_) => {}
            Err(error) if error.is_stale() => return Err(error),
            Err(error) => {
                return self
                    .refused(api, "the annotation cannot be written", error)
                    .await;
            }
        }
        let (pools, addresses) = self.created;
        info!(pools, addresses, "migration from kube-vip complete");
        let text = format!(
            "{pools} IPPools created, {addresses} addresses are remembered for their Services"
        );
        self.notify(Severity::Normal, MIGRATED, &text);
        Ok(())
    }

    /// MIG-4: a request was refused, which the start does not wait for: a webhook that no program serves, which looks like an
    /// unavailable API server, must not stop it.
    ///
    /// # Errors
    /// The API server is in fact unavailable, so that the start is retried; or this process is not leader any more.
    async fn refused(
        &mut self,
        api: &Api<ConfigMap>,
        what: &str,
        error: WriteError,
    ) -> Result<(), WriteError> {
        match error {
            WriteError::Fenced => return Err(WriteError::Fenced),
            WriteError::Unavailable(_) => {
                self.ctx.client.writer().get(api, CONFIG_MAP).await?;
                self.failures += 1;
            }
            _ => {}
        }
        self.refused += 1;
        self.skip(&format!("{what}: {error}"));
        Ok(())
    }

    /// Logs and reports something that is not migrated.
    fn skip(&mut self, why: &dyn Display) {
        let text = why.to_string();
        warn!(why = text, "not migrated from kube-vip");
        self.events += 1;
        if self.events <= EVENTS {
            self.notify(Severity::Warning, NOT_MIGRATED, &text);
        }
    }

    fn notify(&self, severity: Severity, reason: &str, text: &str) {
        let meta = &self.config.metadata;
        let regarding = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("ConfigMap".to_owned()),
            namespace: meta.namespace.clone(),
            name: meta.name.clone(),
            uid: meta.uid.clone(),
            ..ObjectReference::default()
        };
        self.ctx
            .events
            .publish(regarding, severity, reason, "Migrate", text);
    }
}

#[cfg(test)]
mod tests;
