//! Runs many schedules on all cores, and minimizes a failing one.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

use futures::FutureExt;
use harvester_lb_prober::{Observer, Prober, Settings};
use harvester_load_balancer::metrics::{Metrics, ProbeMetrics};
use kube::Client;
use tokio::runtime::{Builder, Runtime};

use super::defects::InjectedDefect;
use super::failure::Failure;
use super::plan::Plan;
use super::play;
use super::process::Shared;
use super::regressions::regressions;
use super::sent::Sent;
use super::statistics::Statistics;
use super::wire::Wire;

/// Number of orders in which a plan without one act runs, to see whether the act matters.
const ORDERS: u64 = 150;

/// Schedules that broke a rule.
#[derive(Default)]
struct Counted {
    number: u64,
    examples: Vec<(u64, String)>,
}

/// The context of a thread that runs schedules.
struct Player {
    runtime: Runtime,
    shared: Shared,
    wire: Wire,
}

impl Player {
    fn new() -> Self {
        let runtime = Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        let guard = runtime.enter();
        let wire = Wire::default();
        let metrics = Arc::new(Metrics::new().unwrap());
        let observer: Arc<dyn Observer> = Arc::new(ProbeMetrics::new(&metrics));
        let (prober, _) = Prober::start(Settings::for_file_limit(64), observer);
        let client = Client::new(wire.clone(), "default");
        drop(guard);
        let shared = Shared {
            client,
            prober,
            metrics,
        };
        Self {
            runtime,
            shared,
            wire,
        }
    }

    fn play(
        &self,
        plan: &Plan,
        order: u64,
        traced: bool,
    ) -> (Result<Statistics, Failure>, Vec<String>) {
        self.play_with(plan, order, None, traced)
    }

    fn play_with(
        &self,
        plan: &Plan,
        order: u64,
        defect: Option<InjectedDefect>,
        traced: bool,
    ) -> (Result<Statistics, Failure>, Vec<String>) {
        let playing = play::play(plan, order, &self.shared, &self.wire, defect, traced);
        let outcome = self
            .runtime
            .block_on(AssertUnwindSafe(playing).catch_unwind());
        outcome.unwrap_or_else(|panic| {
            let text = panic
                .downcast_ref::<String>()
                .cloned()
                .or_else(|| panic.downcast_ref::<&str>().map(|t| (*t).to_owned()));
            (
                Err(Failure::new("panic", text.unwrap_or_default())),
                Vec::new(),
            )
        })
    }
}

/// Number of threads: one for each core.
fn threads() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from)
}

/// Runs this number of schedules from a seed on; fails with the first failure.
pub(crate) fn play_all(first: u64, number: u64) {
    eprintln!("{number} schedules from seed {first}");
    let started = Instant::now();
    let next = AtomicU64::new(first);
    let failed: Mutex<Option<(u64, Failure)>> = Mutex::new(None);
    let survey = std::env::var_os("HLB_SURVEY").is_some();
    let surveyed: Mutex<BTreeMap<&str, Counted>> = Mutex::default();
    let trace = trace_file();
    let sent: Mutex<BTreeMap<u64, Sent>> = Mutex::default();
    let total = Mutex::new(Statistics::default());
    let threads = threads();
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let player = Player::new();
                if trace.is_some() {
                    player.wire.record(false);
                }
                let mut sum = Statistics::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed - first >= number || failed.lock().unwrap().is_some() {
                        break;
                    }
                    let outcome = player.play(&Plan::draw(seed), seed, false).0;
                    if let Some(what) = player.wire.sent() {
                        sent.lock().unwrap().insert(seed, what);
                    }
                    match outcome {
                        Ok(statistics) => sum.add(&statistics),
                        Err(failure) => {
                            if survey {
                                let mut all = surveyed.lock().unwrap();
                                let counted = all.entry(failure.rule).or_default();
                                counted.number += 1;
                                if counted.examples.len() < 6 {
                                    counted.examples.push((seed, failure.text));
                                }
                            } else {
                                failed.lock().unwrap().get_or_insert((seed, failure));
                            }
                        }
                    }
                }
                total.lock().unwrap().add(&sum);
            });
        }
    });
    let total = total.into_inner().unwrap();
    eprintln!(
        "{number} schedules in {:.1} s on {threads} threads: {total:?}",
        started.elapsed().as_secs_f64()
    );
    if let Some(file) = trace {
        write_digests(&file, &sent.into_inner().unwrap());
    }
    let surveyed = surveyed.into_inner().unwrap();
    for (rule, counted) in &surveyed {
        eprintln!("{rule}: {}", counted.number);
        for (seed, text) in &counted.examples {
            eprintln!("    {seed}: {text}");
        }
    }
    assert!(surveyed.is_empty(), "rules are broken, see above");
    if let Some((seed, failure)) = failed.into_inner().unwrap() {
        report(seed, &failure);
    }
}

/// Runs schedules with each injected defect until the oracle finds it.
pub(crate) fn play_with_defects(most: u64) {
    let player = Player::new();
    for defect in InjectedDefect::ALL {
        let seen = (0..most).find_map(|seed| {
            let outcome = player.play_with(&Plan::draw(seed), seed, Some(defect), false);
            let failure = outcome.0.err()?;
            let is_it = defect.breaks().is_none_or(|rule| rule == failure.rule);
            is_it.then_some((seed, failure))
        });
        let Some((seed, failure)) = seen else {
            panic!("{defect:?} is not seen in {most} schedules");
        };
        eprintln!(
            "{defect:?} is seen in schedule {seed}: {}: {}",
            failure.rule, failure.text
        );
    }
}

/// Runs the regression plans on all cores, each in this number of orders; fails with the first failure.
pub(crate) fn play_regressions(orders: u64) {
    let plans = regressions();
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<(usize, u64)>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..threads() {
            scope.spawn(|| {
                let player = Player::new();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some((_, plan)) = plans.get(at) else {
                        break;
                    };
                    let fails = |order: &u64| player.play(plan, *order, false).0.is_err();
                    if let Some(order) = (0..orders).find(fails) {
                        failed.lock().unwrap().get_or_insert((at, order));
                    }
                }
            });
        }
    });
    if let Some((at, order)) = failed.into_inner().unwrap() {
        let (what, plan) = &plans[at];
        let (outcome, trace) = Player::new().play(plan, order, true);
        eprintln!("{}", trace.join("\n"));
        panic!("{what}, order {order}: {outcome:?}");
    }
}

/// The file of `HLB_TRACE`; a relative path starts at the root of the repository.
fn trace_file() -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("HLB_TRACE").map(|file| root.join(file))
}

/// One line for all schedules, then one for each: a difference shows which one to run alone.
fn write_digests(file: &Path, sent: &BTreeMap<u64, Sent>) {
    let mut sum = Sent::default();
    let mut lines = String::new();
    for (seed, what) in sent {
        sum.add(*seed, what);
        writeln!(lines, "{seed} {what}").unwrap();
    }
    let of = (sent.keys().next(), sent.keys().next_back());
    let (first, last) = (of.0.unwrap_or(&0), of.1.unwrap_or(&0));
    let first = format!("schedules {first} to {last} send {sum}");
    eprintln!("{first}");
    std::fs::write(file, format!("{first}\n{lines}")).unwrap();
}

/// Runs one schedule and prints its trace.
pub(crate) fn show(seed: u64) {
    let player = Player::new();
    let plan = Plan::draw(seed);
    player.wire.record(true);
    let (outcome, trace) = player.play(&plan, seed, true);
    if let (Some(file), Some(sent)) = (trace_file(), player.wire.sent()) {
        std::fs::write(file, sent.lines().join("\n")).unwrap();
    }
    eprintln!("{}\n{plan:#?}", trace.join("\n"));
    match outcome {
        Ok(statistics) => eprintln!("seed {seed}: as it should be, {statistics:?}"),
        Err(failure) => report(seed, &failure),
    }
}

/// Prints the smallest schedule that fails in the same way, and fails.
fn report(seed: u64, failure: &Failure) {
    let player = Player::new();
    let (mut plan, mut order) = (Plan::draw(seed), seed);
    let mut at = plan.acts.len();
    while at > 0 {
        at -= 1;
        let mut smaller = plan.clone();
        smaller.acts.remove(at);
        let fails = |order: &u64| {
            let outcome = player.play(&smaller, *order, false).0;
            outcome.is_err_and(|f| f.rule == failure.rule)
        };
        let found = std::iter::once(order)
            .chain(seed..seed + ORDERS)
            .find(fails);
        if let Some(found) = found {
            (plan, order) = (smaller, found);
        }
    }
    let (outcome, trace) = player.play(&plan, order, true);
    eprintln!(
        "a smaller schedule that fails like it:\n{}",
        trace.join("\n")
    );
    eprintln!("{plan:#?}\n{outcome:?}");
    panic!(
        "schedule {seed} breaks {}: {}\nHLB_SEED={seed} repeats it; above is a smaller one like it",
        failure.rule, failure.text
    );
}
