//! Hostile input on a real API server: mutated objects of each kind, sent over several connections while the operator
//! runs. It must handle what the schema admits, and also what it does not, once the schema is removed. Other objects
//! are not affected.
//!
//! `HLB_SEED` repeats the objects, though not the order in which the API server processes them; `HLB_OBJECTS` sets the
//! number of objects of each kind, `HLB_SOAK=1` sends as many as the soak in total.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use harvester_lb_e2e::quiet::{audited, reset};
use harvester_lb_e2e::world::{PATIENT_LEASE, SOON, repository};
use harvester_lb_e2e::{Test, World, tests};
use harvester_lb_fixtures::subnet;
use harvester_lb_hostile::{Generator, Kind, Mutant, Source, Targets, amount, seed};
use harvester_lb_testkit::{Process, eventually};
use kube::api::ListParams;
use kube::core::Request;
use kube::{Api, Resource};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::misnamed::ipa_3_an_owner_that_is_no_name_is_given_up;
use crate::support::{RuleHelpers, vm};

/// All tests.
pub fn all() -> Vec<Test> {
    tests![
        input_mutated_objects_through_the_schema,
        input_mutated_objects_past_the_schema,
        ipa_3_an_owner_that_is_no_name_is_given_up
    ]
}

const CALM: &str = "calm";
const LOUD: &str = "loud";
/// Objects of each kind in a test run.
const OBJECTS: usize = 60;
/// Connections, each with separate objects.
const CONNECTIONS: usize = 6;
/// Objects of a kind that a connection maintains.
const NAMES: usize = 6;
/// Objects nested deeper than this are created but not patched: a merge takes the API server time that grows with the
/// square of the depth.
const DEEP: usize = 50;
/// Length of a request, in bytes, from which the API server may refuse it for its length alone.
const TOO_LARGE: usize = 1 << 20;
/// Memory limit of the operator, a debug build, at the end. What it caches is small; a leak of its input would not be.
const MEMORY_KIB: u64 = 400 * 1_024;

async fn input_mutated_objects_through_the_schema(world: Arc<World>) -> anyhow::Result<()> {
    let plan = Kind::ALL.map(|kind| (kind, amount(OBJECTS, 200_000)));
    attacked(&world, &plan, |_| Box::pin(async { Ok(()) })).await
}

async fn input_mutated_objects_past_the_schema(world: Arc<World>) -> anyhow::Result<()> {
    let plan = [Kind::LoadBalancer, Kind::IpPool, Kind::IpAllocation]
        .map(|kind| (kind, amount(OBJECTS, 40_000)));
    attacked(&world, &plan, |world| {
        Box::pin(remove_crd_validation(world))
    })
    .await
}

type Change = for<'a> fn(
    &'a World,
)
    -> std::pin::Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send + 'a>>;

/// Creates bystanders, sends hostile objects of all these kinds, restarts the operator in the middle, and deletes
/// everything hostile. The bystanders are unchanged, and a new LoadBalancer is served.
async fn attacked(
    world: &Arc<World>,
    plan: &[(Kind, usize)],
    change: Change,
) -> anyhow::Result<()> {
    let seed = seed();
    eprintln!("  HLB_SEED={seed}");
    reset(world).await?;
    world
        .cluster
        .apply_crds(repository().join("crds/crds.yaml"))
        .await?;
    for namespace in [CALM, LOUD] {
        let object =
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        world.cluster.apply(&object).await?;
    }
    let operator = start(world).await?;
    let targets = bystanders(world).await?;
    let before = versions(world).await?;
    ensure!(before.len() > 15, "{before:?}");
    change(world).await?;

    let started = Instant::now();
    let floods = plan
        .iter()
        .map(|(kind, count)| flood(world, *kind, *count, seed, &targets));
    let tallies: Vec<Arc<Tally>> = futures::future::try_join_all(floods).await?;
    let took = started.elapsed();
    for ((kind, _), tally) in plan.iter().zip(&tallies) {
        eprintln!("  {kind:?}: {tally}");
    }
    let sent: usize = plan.iter().map(|(_, count)| count).sum();
    let peak = operator.rss_kib()?;
    eprintln!(
        "  {sent} objects in {took:.1?}; the operator has {} MiB",
        peak / 1_024
    );
    unharmed(world, &operator, &before).await?;
    for ((kind, count), tally) in plan.iter().zip(&tallies) {
        let [accepted, refused, missed] =
            [&tally.accepted, &tally.refused, &tally.missed].map(|n| n.load(Ordering::Relaxed));
        ensure!(
            accepted + refused + missed == *count,
            "{kind:?}: {tally}, not {count}"
        );
        ensure!(
            accepted > count / 10,
            "{kind:?}: only {accepted} of {count} were taken"
        );
        ensure!(
            refused > count / 100,
            "{kind:?}: only {refused} of {count} were refused"
        );
    }

    // It must handle a list of all this as well.
    end(&operator).await?;
    let again = start(world).await?;
    unharmed(world, &again, &before).await?;

    for (kind, _) in plan {
        remove(world, *kind).await?;
    }
    world
        .cluster
        .apply_crds(repository().join("crds/crds.yaml"))
        .await?;
    let found = audited(world, "node1", &[CALM]).await?;
    eprintln!(
        "  after it all: {} load balancers, {} held",
        found.load_balancers, found.bound
    );
    unharmed(world, &again, &before).await?;
    let address = world.served(CALM, "late", CALM).await?;
    ensure!(address.starts_with("10.200.0."), "{address}");
    let memory = again.rss_kib()?.max(peak);
    ensure!(memory < MEMORY_KIB, "the operator has {memory} KiB");
    end(&again).await?;
    reset(world).await
}

/// An operator that does not lose its Lease when the API server is busy; another test covers that.
async fn start(world: &World) -> anyhow::Result<Arc<Process>> {
    world
        .start_operator_with("node1", &PATIENT_LEASE, &[])
        .await
}

async fn end(operator: &Process) -> anyhow::Result<()> {
    ensure!(!operator.log().contains("panicked"), "{}", operator.tail());
    operator.end().await
}

/// LoadBalancers of both types with all their objects; returns the targets for hostile objects.
async fn bystanders(world: &World) -> anyhow::Result<Targets> {
    world.ranges(CALM, &[subnet("10.200.0.0/24")]).await?;
    for n in 0..2 {
        let labels = json!({"app": "web"});
        world
            .fake_vmi(
                CALM,
                &format!("vm{n}"),
                labels,
                Some(&format!("10.244.9.{}", n + 7)),
            )
            .await?;
    }
    let mut addresses = Vec::new();
    for n in 0..3 {
        addresses.push(world.served(CALM, &format!("c{n}"), CALM).await?);
        let name = format!("v{n}");
        addresses.push(world.announced(CALM, &name, vm(CALM, "web")).await?);
        world.lb_reason(CALM, &name, "Ready").await?;
    }
    let mut uids = Vec::new();
    for name in ["c0", "v0"] {
        uids.push(
            world
                .read(CALM, name)
                .await?
                .metadata
                .uid
                .context("no uid")?,
        );
    }
    let text = |all: &[&str]| all.iter().map(ToString::to_string).collect();
    Ok(Targets {
        namespaces: text(&[CALM, LOUD]),
        names: text(&["c0", "v0", "a0-0", "a1-1"]),
        uids,
        addresses,
        pools: text(&[CALM, "a0-0", "a1-1", "a2-2"]),
        subnets: text(&[
            "10.200.0.0/28",
            "10.66.0.0/24",
            "10.66.1.0/24",
            "10.66.0.0/30",
            "fd66::/120",
        ]),
    })
}

/// The operator has not restarted, and all objects of the bystanders are unchanged, down to the resource version.
async fn unharmed(
    world: &World,
    operator: &Process,
    before: &BTreeMap<String, String>,
) -> anyhow::Result<()> {
    ensure!(
        operator.is_running(),
        "the operator has ended: {}",
        operator.tail()
    );
    let log = operator.log();
    let panic = log.lines().find(|line| line.contains("panicked"));
    ensure!(panic.is_none(), "{panic:?}");
    let now = versions(world).await?;
    for (object, version) in before {
        let is = now.get(object);
        ensure!(is == Some(version), "{object} was {version} and is {is:?}");
    }
    Ok(())
}

/// The parts of a list that are read; everything else is skipped, regardless of its depth.
#[derive(Deserialize)]
struct Listed {
    items: Vec<Object>,
}

#[derive(Deserialize)]
struct Object {
    metadata: Metadata,
}

#[derive(Deserialize)]
struct Metadata {
    name: String,
    #[serde(rename = "resourceVersion")]
    version: String,
}

/// The versions of all objects of the bystanders, and of all IPAllocations. Of the latter only the metadata are read,
/// which the API server guarantees: without the schema the rest may be anything.
async fn versions(world: &World) -> anyhow::Result<BTreeMap<String, String>> {
    async fn add<K>(api: Api<K>, all: &mut BTreeMap<String, String>) -> anyhow::Result<()>
    where
        K: Resource<DynamicType = ()>,
    {
        let kind = K::kind(&());
        let request = Request::new(api.resource_url()).list(&ListParams::default())?;
        let text = api.into_client().request_text(request).await?;
        let list: Listed = serde_json::from_str(&text)?;
        for Object { metadata } in list.items {
            all.insert(format!("{kind} {}", metadata.name), metadata.version);
        }
        Ok(())
    }
    let mut all = BTreeMap::new();
    add(world.lbs(CALM), &mut all).await?;
    add(world.services(CALM), &mut all).await?;
    add(world.slices(CALM), &mut all).await?;
    add(world.records(), &mut all).await?;
    Ok(all)
}

/// The answers of the API server.
#[derive(Default)]
struct Tally {
    accepted: AtomicUsize,
    refused: AtomicUsize,
    /// Another writer was faster: the operator, or a delete.
    missed: AtomicUsize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let of = |n: &AtomicUsize| n.load(Ordering::Relaxed);
        let (accepted, refused) = (of(&self.accepted), of(&self.refused));
        write!(
            f,
            "{accepted} accepted, {refused} refused, {} missed",
            of(&self.missed)
        )
    }
}

/// Sends mutated objects of a kind, as creates and as patches. Each connection is a separate task.
async fn flood(
    world: &Arc<World>,
    kind: Kind,
    count: usize,
    seed: u64,
    targets: &Targets,
) -> anyhow::Result<Arc<Tally>> {
    let tally = Arc::new(Tally::default());
    let mut tasks = JoinSet::new();
    for connection in 0..CONNECTIONS {
        let seed = seed.wrapping_add(connection as u64 * 1_000_003);
        let generator = Generator::new(seed, kind, Source::ToServer, targets.clone());
        let (world, tally) = (Arc::clone(world), Arc::clone(&tally));
        // The first connections take the remainder.
        let count = count / CONNECTIONS + usize::from(connection < count % CONNECTIONS);
        tasks.spawn(
            async move { send_all(&world, generator, kind, connection, count, &tally).await },
        );
    }
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    Ok(tally)
}

async fn send_all(
    world: &World,
    mut generator: Generator,
    kind: Kind,
    connection: usize,
    count: usize,
    tally: &Tally,
) -> anyhow::Result<()> {
    let mut there = [false; NAMES];
    for number in 0..count {
        let at = number % NAMES;
        let mutant = generator.mutant(LOUD, &name(kind, connection, at));
        // Two of three patch an existing object.
        if there[at] && ((number / NAMES).is_multiple_of(3) || depth(&mutant.text) > DEEP) {
            there[at] = !delete(world, kind, &mutant.name, 3).await?;
        }
        let code = send(world, &mutant, there[at]).await?;
        // The status of a Service is a subresource; that of our kinds is a part of the object.
        if kind == Kind::Service
            && (200..300).contains(&code)
            && mutant.text.contains("\"status\":")
        {
            patch_status(world, &mutant).await?;
        }
        let counter = match code {
            200..300 => &tally.accepted,
            404 | 409 => &tally.missed,
            _ => &tally.refused,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        there[at] = match code {
            200..300 => true,
            404 => false,
            409 => !there[at],
            _ => there[at],
        };
    }
    Ok(())
}

/// Largest number of open brackets, including those in strings.
fn depth(text: &str) -> usize {
    let (mut open, mut most) = (0_usize, 0);
    for byte in text.bytes() {
        match byte {
            b'{' | b'[' => open += 1,
            b'}' | b']' => open = open.saturating_sub(1),
            _ => continue,
        }
        most = most.max(open);
    }
    most
}

/// Names of the hostile objects, different for each connection; some IPAllocations are named as addresses, including
/// free ones of the bystanders' pool.
fn name(kind: Kind, connection: usize, at: usize) -> String {
    match (kind, at) {
        (Kind::IpAllocation, 0) => format!("10.66.0.{}", connection + 9),
        (Kind::IpAllocation, 1) => format!("10.200.0.{}", connection + 200),
        (Kind::IpAllocation, 2) => format!("fd66-0000-0000-0000-0000-0000-0000-{connection:04x}"),
        _ => format!("a{connection}-{at}"),
    }
}

fn path(kind: Kind) -> String {
    let (api_version, _) = kind.names();
    let root = if api_version == "v1" { "/api" } else { "/apis" };
    let (namespace, plural) = match kind {
        Kind::LoadBalancer => (true, "loadbalancers"),
        Kind::IpPool => (false, "ippools"),
        Kind::IpAllocation => (false, "ipallocations"),
        Kind::Vmi => (true, "virtualmachineinstances"),
        Kind::Vm => (true, "virtualmachines"),
        Kind::Service => (true, "services"),
        Kind::EndpointSlice => (true, "endpointslices"),
    };
    let namespace = if namespace {
        format!("/namespaces/{LOUD}")
    } else {
        String::new()
    };
    format!("{root}/{api_version}{namespace}/{plural}")
}

/// Otherwise the answer has a warning header for each unknown field, and there can be thousands.
const QUIETLY: &str = "fieldValidation=Ignore";

/// Creates the object, or merges it into the existing one; returns the status code.
async fn send(world: &World, mutant: &Mutant, over: bool) -> anyhow::Result<u16> {
    let path = path(mutant.kind);
    let text = mutant.text.clone().into_bytes();
    if over {
        let path = format!("{path}/{}?{QUIETLY}", mutant.name);
        request(world, "PATCH", &path, "application/merge-patch+json", text).await
    } else {
        let path = format!("{path}?{QUIETLY}");
        request(world, "POST", &path, "application/json", text).await
    }
}

/// Writes the status of an existing Service. Its answer is not counted, only that to the object itself.
async fn patch_status(world: &World, mutant: &Mutant) -> anyhow::Result<()> {
    if depth(&mutant.text) > DEEP {
        return Ok(());
    }
    let path = format!("{}/{}/status?{QUIETLY}", path(mutant.kind), mutant.name);
    let text = mutant.text.clone().into_bytes();
    request(world, "PATCH", &path, "application/merge-patch+json", text).await?;
    Ok(())
}

/// Deletes an object, with or without finalizers. Returns whether it is gone: the operator recreates Services and
/// EndpointSlices as long as there is a LoadBalancer of their name.
async fn delete(world: &World, kind: Kind, name: &str, attempts: usize) -> anyhow::Result<bool> {
    let path = format!("{}/{name}", path(kind));
    let body =
        json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": "Background"});
    for attempt in 0..attempts {
        let text = body.to_string().into_bytes();
        let code = request(world, "DELETE", &path, "application/json", text).await?;
        if code == 404 {
            return Ok(true);
        }
        if attempt > 0 {
            let free = json!({"metadata": {"finalizers": null}}).to_string();
            let patch = format!("{path}?{QUIETLY}");
            let content = "application/merge-patch+json";
            request(world, "PATCH", &patch, content, free.into_bytes()).await?;
        }
    }
    Ok(false)
}

/// A request with any body. It is retried if the answer is 429 or the like, or if the connection ends: the API server
/// closes it in the middle of a body that is too large.
async fn request(
    world: &World,
    verb: &str,
    path: &str,
    content: &str,
    body: Vec<u8>,
) -> anyhow::Result<u16> {
    let mut last = None;
    for _ in 0..50 {
        let request = http::Request::builder()
            .method(verb)
            .uri(path)
            .header("content-type", content)
            .body(body.clone())?;
        match world.client().request_text(request).await {
            Ok(_) => return Ok(200),
            Err(kube::Error::Api(status)) if status.code != 429 => return Ok(status.code),
            Err(kube::Error::Api(_)) => {}
            Err(_) if body.len() > TOO_LARGE => return Ok(413),
            Err(error) => last = Some(error),
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    bail!("{verb} {path}, {} bytes: {last:?}", body.len())
}

/// Deletes all hostile objects of a kind.
async fn remove(world: &World, kind: Kind) -> anyhow::Result<()> {
    stream::iter((0..CONNECTIONS).flat_map(|c| (0..NAMES).map(move |at| name(kind, c, at))))
        .map(|name| async move {
            let gone = delete(world, kind, &name, 50).await?;
            ensure!(gone, "{kind:?} {name} does not go");
            Ok(())
        })
        .buffer_unordered(CONNECTIONS)
        .try_collect::<Vec<()>>()
        .await?;
    Ok(())
}

/// Removes the validation from our CRDs, and waits until that is in effect.
async fn remove_crd_validation(world: &World) -> anyhow::Result<()> {
    world.remove_crd_validation().await?;
    let probe: Value = json!({
        "apiVersion": "loadbalancer.harvesterhci.io/v1beta1", "kind": "LoadBalancer",
        "metadata": {"namespace": LOUD, "name": "a0-0"}, "spec": {"listeners": 7},
    });
    eventually("anything can be stored", SOON, || async {
        world.cluster.apply(&probe).await?;
        Ok(Some(()))
    })
    .await?;
    Ok(())
}
