//! Owns the proxy between one client and the API server, which injects the faults that a test sets.
//!
//! A client with [`Proxy::kubeconfig`] talks to the API server through it, in plain HTTP/1.1; its permissions are those
//! of its token, which is passed on. Other clients are not affected. Without rules everything passes unchanged, watches
//! included. How a test uses it:
//!
//! ```no_run
//! # use std::time::Duration;
//! # use harvester_lb_testkit::{TestCluster, proxy::{Unavailable, Fault, Match, Moment, Proxy, Refusal, Frequency, Verb}};
//! # async fn test(bed: &TestCluster) -> anyhow::Result<()> {
//! let proxy = Proxy::start(bed).await?;
//! let kubeconfig = proxy.kubeconfig("admin")?; // KUBECONFIG of the operator
//!
//! // A rule holds until it is dropped. Here a third of all writes is answered with 500, at random from a seed.
//! let rule = proxy.rule(Match::writes(), Frequency::percent(33, 7), Fault::Refuse(Refusal::internal()));
//! drop(rule);
//!
//! // The API server is unavailable to this client.
//! proxy.make_unavailable(Unavailable::Refused);
//! proxy.make_available();
//!
//! // A request is held, inspected and released: the way to test one specific interleaving. The writer waits meanwhile
//! // (until its own timeout), or is killed; the request is still done once it is released.
//! let mut hold = proxy.hold(Match::of(Verb::Create, "ipallocations").name("10.0.0.1"), Moment::Before);
//! // (something that makes the operator create the IPAllocation)
//! let held = hold.arrived().await?;
//! // (something else happens in between)
//! let code = held.release().await?; // 201, or 409 if another writer was faster
//! # Ok(())
//! # }
//! ```
//!
//! [`Moment::After`] holds the answer instead of the request: the write is done, and its writer does not know. Held
//! requests can also be lost ([`Held::cut`]) or refused ([`Held::refuse`]).

mod body;
mod fault;
mod forward;
mod held;
mod hold;
mod line;
mod mode;
mod request;
mod rule;
mod rules;
mod shared;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Context, ensure};
use axum::handler::Handler;
use kube::config::{AuthInfo, KubeConfigOptions, Kubeconfig};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::{TestCluster, pki};
use line::{Door, Line};
use mode::Mode;
use rules::Effect;
use shared::Shared;

pub use fault::{After, End, Fault, Frequency, Refusal};
pub use held::{Held, Moment};
pub use hold::Hold;
pub use mode::Unavailable;
pub use request::{Match, Seen, Verb};
pub use rule::Rule;

/// Ports of the proxies, in the namespace of the control plane: far from the API server's and below the kernel's range
/// for outgoing connections.
static PORTS: AtomicU16 = AtomicU16::new(7_400);
/// Timeout for connecting to the API server.
const CONNECT: Duration = Duration::from_secs(10);
/// Longest silence of the API server. Above the longest watch timeout of any client here.
const SILENCE: Duration = Duration::from_mins(10);

/// A proxy in front of a test cluster's API server. Dropping it ends it: connections are cut, held requests are not
/// done.
pub struct Proxy {
    shared: Arc<Shared>,
    task: JoinHandle<()>,
    port: u16,
    url: String,
    /// URL of the API server.
    real: String,
    folder: PathBuf,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Proxy")
            .field("url", &self.url)
            .finish_non_exhaustive()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.mode.send_replace(Mode::Ended);
        self.task.abort();
    }
}

impl Proxy {
    /// Starts a proxy that passes everything on. A test cluster can have several, one for each client to distinguish.
    pub async fn start(cluster: &TestCluster) -> anyhow::Result<Self> {
        let shared = Arc::new(Shared {
            upstream: upstream(&cluster.kubeconfig("admin")?).await?,
            mode: watch::Sender::new(Mode::Here),
            rules: Mutex::default(),
            counts: Mutex::default(),
            changed: Notify::new(),
            watching: Mutex::default(),
            next_watch: AtomicU64::new(0),
        });
        let port = PORTS.fetch_add(1, Ordering::Relaxed);
        let door = Door::open(cluster.netns("cp")?, port, shared.mode.subscribe())?;
        let service = forward::handle
            .with_state(Arc::clone(&shared))
            .into_make_service_with_connect_info::<Line>();
        let task = tokio::spawn(async move {
            // Never ends: errors are those of single connections.
            let _ = axum::serve(door, service).await;
        });
        Ok(Self {
            shared,
            task,
            port,
            url: format!("http://{}:{port}", cluster.layout.server()),
            real: cluster.server().to_owned(),
            folder: cluster.folder().to_owned(),
        })
    }

    /// URL of the proxy, reachable from the same places as the API server.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A kubeconfig file for one of the test cluster's users, as [`TestCluster::kubeconfig`], with the proxy as server.
    pub fn kubeconfig(&self, user: &str) -> anyhow::Result<PathBuf> {
        let ca = self.folder.join("pki/ca.crt");
        let text = pki::kubeconfig(&self.url, &ca, user, pki::token_of(user)?);
        self.write(&user.replace([':', '/'], "-"), &text)
    }

    /// A copy of a kubeconfig file, for instance of [`TestCluster::service_account_kubeconfig`], with the proxy as
    /// server.
    pub fn kubeconfig_via(&self, kubeconfig: &Path) -> anyhow::Result<PathBuf> {
        let text = std::fs::read_to_string(kubeconfig)?;
        ensure!(text.contains(&self.real), "no kubeconfig of this bed");
        let name = kubeconfig.file_stem().context("no file name")?;
        self.write(
            &name.to_string_lossy(),
            &text.replace(&self.real, &self.url),
        )
    }

    fn write(&self, name: &str, text: &str) -> anyhow::Result<PathBuf> {
        let file = format!("{name}-proxy-{}.kubeconfig", self.port);
        let path = self.folder.join(file);
        std::fs::write(&path, text)?;
        Ok(path)
    }

    /// Applies `fault` to matching requests, as often as `frequency` says, until the [`Rule`] is dropped. Rules are
    /// evaluated in the order in which they were set; [`Fault`] says which of them end the evaluation.
    #[must_use = "a rule ends when it is dropped"]
    pub fn rule(&self, matching: Match, frequency: Frequency, fault: Fault) -> Rule {
        Rule::set(&self.shared, matching, frequency, Effect::Fault(fault))
    }

    /// Holds the next request that matches.
    #[must_use = "nothing is caught when this is dropped"]
    pub fn hold(&self, matching: Match, moment: Moment) -> Hold {
        self.holds(matching, moment, 1)
    }

    /// Holds the next `times` requests that match.
    #[must_use = "nothing is caught when this is dropped"]
    pub fn holds(&self, matching: Match, moment: Moment, times: u32) -> Hold {
        Hold::set(&self.shared, matching, moment, times)
    }

    /// Makes the API server unavailable to this client.
    pub fn make_unavailable(&self, how: Unavailable) {
        self.shared.mode.send_replace(Mode::Unavailable(how));
    }

    /// Makes the API server available again.
    pub fn make_available(&self) {
        self.shared.mode.send_replace(Mode::Here);
    }

    /// Cuts the connections of all running watches that match. A rule for watches takes effect when one begins, so this
    /// also brings running ones under it.
    pub fn cut_watches(&self, matching: &Match) {
        for watching in self.shared.watching.lock().values() {
            if matching.takes(&watching.seen) {
                watching.cut.notify_one();
            }
        }
    }

    /// Number of running watches that match.
    pub fn watches(&self, matching: &Match) -> usize {
        let watching = self.shared.watching.lock();
        watching
            .values()
            .filter(|w| matching.takes(&w.seen))
            .count()
    }

    /// Number of requests of this verb and resource, regardless of their outcome.
    pub fn count(&self, verb: Verb, resource: &str) -> u64 {
        let counts = self.shared.counts.lock();
        counts
            .get(&(verb, resource.to_owned()))
            .copied()
            .unwrap_or(0)
    }

    /// Number of requests by verb and resource.
    pub fn counts(&self) -> BTreeMap<(Verb, String), u64> {
        self.shared.counts.lock().clone()
    }
}

/// A client without credentials: each request carries those of its sender.
async fn upstream(kubeconfig: &Path) -> anyhow::Result<kube::Client> {
    let text = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await?;
    config.auth_info = AuthInfo::default();
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    config.default_retry = false;
    Ok(kube::Client::try_from(config)?)
}
