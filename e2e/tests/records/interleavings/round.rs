//! One round: many writes of one operator are held, it is killed, the next one becomes leader, and then they arrive.

use std::sync::Arc;

use anyhow::{Context, bail, ensure};
use futures::future::join_all;
use harvester_lb_e2e::World;
use harvester_lb_e2e::history_checker::HistoryChecker;
use harvester_lb_e2e::quiet::{audited, quiet, reset};
use harvester_lb_testkit::Process;
use harvester_lb_testkit::proxy::{Held, Hold, Match, Moment, Proxy, Verb};
use tokio::time::Instant;

use super::step::{Place, Step};
use crate::stage::becomes_leader;

/// The late write.
#[derive(Clone, Copy, Debug)]
pub enum Write {
    /// Of the IPAllocation of an address.
    Record(Verb, u8),
    /// Of the LoadBalancer `a`; a patch contains this text.
    Lb(Verb, &'static str),
    /// Of the Service `a`.
    Service(Verb),
    /// Of the EndpointSlice `a`.
    Slice(Verb),
    /// Of the pool.
    Pool,
    /// Of the VirtualMachine or VirtualMachineInstance `a`, by resource.
    Machine(&'static str),
}

/// One interleaving. The names are always `a`, whose write is late, and `b`.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// Its name, also that of its namespace and its pool, with dashes.
    pub name: &'static str,
    /// First and last address of the pool.
    pub range: (u8, u8),
    /// The state before, as left by an earlier operator.
    pub given: &'static [Step],
    /// Events while there is no operator.
    pub while_stopped: &'static [Step],
    /// Events that make the operator decide on the write.
    pub trigger: &'static [Step],
    /// The write.
    pub write: Write,
    /// Events after the operator's end, before the next one is leader.
    pub before_leader: &'static [Step],
    /// The write arrives before the next one is leader.
    pub early: bool,
    /// Events and conditions while the next one is leader.
    pub with_leader: &'static [Step],
    /// The API server's answer to the late write.
    pub code: u16,
    /// The final state.
    pub finally: &'static [Step],
}

/// A row without events, for `..ROW`.
pub const ROW: Row = Row {
    name: "",
    range: (2, 14),
    given: &[],
    while_stopped: &[],
    trigger: &[],
    write: Write::Pool,
    before_leader: &[],
    early: false,
    with_leader: &[],
    code: 409,
    finally: &[],
};

impl Row {
    fn matching(&self, place: &Place) -> Match {
        let of = |verb, resource| Match::of(verb, resource);
        match self.write {
            Write::Record(verb, host) => of(verb, "ipallocations").name(&place.ip(host)),
            Write::Lb(verb, text) => of(verb, "loadbalancers")
                .namespace(&place.ns)
                .name("a")
                .text(text),
            Write::Service(verb) => of(verb, "services").namespace(&place.ns).name("a"),
            Write::Slice(verb) => of(verb, "endpointslices").namespace(&place.ns).name("a"),
            Write::Pool => of(Verb::Patch, "ippools").name(&place.ns),
            Write::Machine(resource) => of(Verb::Patch, resource).namespace(&place.ns).name("a"),
        }
    }

    /// Whether something like this happens in the row.
    fn has(&self, is_it: impl Fn(&Step) -> bool) -> bool {
        let all = [
            self.given,
            self.trigger,
            self.before_leader,
            self.with_leader,
            self.finally,
        ];
        all.concat().iter().any(is_it)
    }

    /// Whether the row itself moves addresses.
    fn moves(&self) -> bool {
        self.has(|step| {
            matches!(
                step,
                Step::NamePool(..) | Step::WriteAllocated(..) | Step::StopSharing(..)
            )
        })
    }

    /// Whether load balancers share an address in the row.
    fn shares(&self) -> bool {
        self.has(|step| matches!(step, Step::CreateSharingLb(..)))
    }
}

/// Runs the same part of all rows concurrently.
async fn all(
    world: &World,
    rows: &[(Place, Row)],
    what: &str,
    part: impl Fn(&Row) -> &'static [Step],
) -> anyhow::Result<()> {
    let each = rows.iter().map(|(place, row)| {
        let steps = part(row);
        async move {
            for step in steps {
                let done = step.take(world, place).await;
                done.with_context(|| format!("{}: {what}: {step:?}", row.name))?;
            }
            anyhow::Ok(())
        }
    });
    let failed: Vec<String> = join_all(each)
        .await
        .into_iter()
        .filter_map(|done| done.err().map(|e| format!("{e:#}")))
        .collect();
    ensure!(failed.is_empty(), "{}", failed.join("\n"));
    Ok(())
}

/// Starts an operator; all of a round have the same pod, so that the next need not wait for the Lease of its
/// predecessor.
async fn start(
    world: &World,
    node: &str,
    kubeconfig: Option<&str>,
) -> anyhow::Result<Arc<Process>> {
    let mut env = vec![("POD_UID", "interleavings")];
    env.extend(kubeconfig.map(|path| ("KUBECONFIG", path)));
    // Each held write blocks a worker.
    let operator = world
        .start_operator_with(node, &["--threadiness=64", "--dhcp-mode=builtin"], &env)
        .await?;
    becomes_leader(world, node).await?;
    Ok(operator)
}

/// Runs a round.
pub async fn round(world: &Arc<World>, number: u8, rows: &[Row]) -> anyhow::Result<()> {
    let began = Instant::now();
    reset(world).await?;
    let rows: Vec<(Place, Row)> = rows
        .iter()
        .zip(0..)
        .map(|(row, index)| (Place::new(row.name, number, index), *row))
        .collect();
    for (place, row) in &rows {
        place.make(world, row.range).await?;
    }
    let history = HistoryChecker::start(&world.client());

    let earlier = start(world, "node1", None).await?;
    all(world, &rows, "given", |row| row.given).await?;
    earlier.end().await?;
    all(world, &rows, "while_stopped", |row| row.while_stopped).await?;

    let proxy = Proxy::start(&world.cluster).await?;
    let mut holds: Vec<Hold> = rows
        .iter()
        .map(|(place, row)| proxy.holds(row.matching(place), Moment::Before, 8))
        .collect();
    let kubeconfig = proxy.kubeconfig("admin")?;
    let first = start(world, "node2", kubeconfig.to_str()).await?;
    all(world, &rows, "trigger", |row| row.trigger).await?;
    let mut held: Vec<Held> = Vec::new();
    for (hold, (_, row)) in holds.iter_mut().zip(&rows) {
        let arrived = hold.arrived().await;
        held.push(arrived.with_context(|| format!("{}: its write", row.name))?);
    }
    first.kill9()?;
    // Retries of the same worker, or of another.
    for hold in &mut holds {
        while let Some(more) = hold.try_arrived() {
            more.cut();
        }
    }
    all(world, &rows, "before_leader", |row| row.before_leader).await?;

    let mut wrong = Vec::new();
    let mut late = Vec::new();
    for (held, (_, row)) in held.into_iter().zip(&rows) {
        if row.early {
            arrive(held, row, &mut wrong).await?;
        } else {
            late.push((held, row));
        }
    }
    let next = start(world, "node1", None).await?;
    all(world, &rows, "with_leader", |row| row.with_leader).await?;
    quiet(world, "node1").await?;
    for (held, row) in late {
        arrive(held, row, &mut wrong).await?;
    }
    let done = all(world, &rows, "finally", |row| row.finally).await;
    if !wrong.is_empty() {
        bail!(
            "{}\n{}",
            wrong.join("\n"),
            done.err().map_or_else(String::new, |e| e.to_string())
        );
    }
    done?;
    let pools: Vec<String> = world
        .pools()
        .list(&kube::api::ListParams::default())
        .await?
        .into_iter()
        .filter_map(|pool| pool.metadata.name)
        .collect();
    let pools: Vec<&str> = pools.iter().map(String::as_str).collect();
    audited(world, "node1", &pools).await?;
    history.caught_up(world).await?;
    let mut shared_addresses = history.shared_addresses();
    shared_addresses.retain(|line| {
        let mut rows = rows.iter().filter(|(_, row)| row.shares());
        !rows.any(|(place, _)| line.contains(&format!("{}/", place.ns)))
    });
    ensure!(shared_addresses.is_empty(), "{shared_addresses:#?}");
    let moved: Vec<String> = history
        .moved()
        .into_iter()
        .filter(|line| {
            let row = rows
                .iter()
                .find(|(place, _)| line.starts_with(&format!("{}/", place.ns)));
            row.is_none_or(|(_, row)| !row.moves())
        })
        .collect();
    ensure!(moved.is_empty(), "{moved:#?}");
    next.end().await?;
    eprintln!("{} interleavings in {:.1?}", rows.len(), began.elapsed());
    Ok(())
}

/// Releases a write and checks the answer.
async fn arrive(held: Held, row: &Row, wrong: &mut Vec<String>) -> anyhow::Result<()> {
    let code = held.release().await.with_context(|| row.name)?;
    eprintln!("{}: {code}", row.name);
    if code != row.code {
        wrong.push(format!(
            "{}: the answer is {code}, not {}",
            row.name, row.code
        ));
    }
    Ok(())
}
