//! Runs the tests of a binary concurrently in one world, in one phase or several.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use harvester_lb_testkit::{TestClusterOptions, TestReport, enter_with};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

use crate::definitions::whose::Whose;
use crate::world::World;

/// The body of a test: the shared world in, the result out.
pub type Body = fn(Arc<World>) -> Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

/// A test.
#[derive(Clone, Copy)]
pub struct Test {
    /// Its name, which starts with the rules that it tests.
    pub name: &'static str,
    /// Its body.
    pub body: Body,
}

/// Makes a [`Test`] of an `async fn(Arc<World>) -> anyhow::Result<()>`.
#[macro_export]
macro_rules! tests {
    ($($name:ident),* $(,)?) => {
        vec![$($crate::Test { name: stringify!($name), body: |world| Box::pin($name(world)) }),*]
    };
}

/// Tests that run concurrently, and what is done before them.
pub struct Phase {
    /// Completes a new world, or in a later phase that of the phases before it. In a later phase it is repeated if it fails.
    pub set_up: Body,
    /// The tests.
    pub tests: Vec<Test>,
}

/// Runs tests in a world that `set_up` completes; `threads` of them at a time. The first test that needs the world
/// creates it; if that fails, all fail. `programs`: those that the tests call, besides what the cluster needs.
pub fn run(
    options: TestClusterOptions,
    programs: &[&str],
    threads: usize,
    set_up: Body,
    tests: Vec<Test>,
) -> ExitCode {
    run_in_phases(options, programs, threads, vec![Phase { set_up, tests }])
}

/// Runs the phases in turn in one world, as [`run`] does it. No test starts before all those of the phases before it have
/// ended. The set-ups of these phases are done also if none of their tests is chosen.
pub fn run_in_phases(
    options: TestClusterOptions,
    programs: &[&str],
    threads: usize,
    phases: Vec<Phase>,
) -> ExitCode {
    let mut arguments = Arguments::from_args();
    if !arguments.list
        && std::env::var_os("HLB_BED_STAGE").is_none()
        && let Err(error) = World::build()
    {
        return complain(&error);
    }
    let of_cluster = options.data_path.programs();
    enter_with(&[programs, of_cluster.as_slice()].concat());
    arguments.test_threads.get_or_insert(threads);
    let runtime = match Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => Arc::new(runtime),
        Err(error) => return complain(&error.into()),
    };
    let shared = Arc::new(Shared {
        options,
        world: OnceCell::new(),
        set_ups: phases
            .iter()
            .map(|phase| (phase.set_up, OnceCell::new()))
            .collect(),
    });
    let mut has_failed = false;
    for (number, phase) in phases.into_iter().enumerate() {
        let trials = phase
            .tests
            .into_iter()
            .map(|test| trial(test, number, &runtime, &shared));
        has_failed |= libtest_mimic::run(&arguments, trials.collect()).has_failed();
    }
    drop(shared);
    // As the standard harness.
    ExitCode::from(if has_failed { 101 } else { 0 })
}

/// What the tests share: the world, and how far it is.
struct Shared {
    options: TestClusterOptions,
    /// Exists once the first set-up is done.
    world: OnceCell<Arc<World>>,
    /// The set-up of each phase. Whether it is done is not used of the first.
    set_ups: Vec<(Body, OnceCell<()>)>,
}

impl Shared {
    /// The world as the tests of a phase need it.
    async fn world(&self, phase: usize) -> anyhow::Result<Arc<World>> {
        let mut set_ups = self.set_ups.iter().take(phase + 1);
        let (first, _) = set_ups.next().context("no phase")?;
        let world = self
            .world
            .get_or_try_init(|| async {
                let world = Arc::new(World::start(self.options.clone()).await?);
                first(Arc::clone(&world)).await.context("set-up")?;
                anyhow::Ok(world)
            })
            .await?;
        for (set_up, done) in set_ups {
            done.get_or_try_init(|| set_up(Arc::clone(world)))
                .await
                .context("set-up of a later phase")?;
        }
        Ok(Arc::clone(world))
    }
}

/// A test cluster of two nodes without kube-proxy and kube-vip, whose API server writes an audit log of all requests.
pub fn audited_cluster_options() -> TestClusterOptions {
    TestClusterOptions {
        nodes: 2,
        kube_proxy: false,
        kube_vip: false,
        audit: true,
        ..TestClusterOptions::default()
    }
}

/// Runs tests one by one in a world that has only definitions, ours unless others are chosen: tests that start operators themselves, which
/// share the one Lease.
pub fn run_in_turn(options: TestClusterOptions, programs: &[&str], tests: Vec<Test>) -> ExitCode {
    let set_up = |world: Arc<World>| Box::pin(async move { Whose::Own.apply(&world).await }) as _;
    run(options, programs, 1, set_up, tests)
}

fn trial(test: Test, phase: usize, runtime: &Arc<Runtime>, shared: &Arc<Shared>) -> Trial {
    let (runtime, shared) = (Arc::clone(runtime), Arc::clone(shared));
    Trial::test(test.name, move || {
        let mut report = TestReport::begin(test.name);
        let result = runtime.block_on(async {
            let world = shared.world(phase).await?;
            report.set_up_done();
            // A separate task, so that a panic fails only this test.
            tokio::spawn((test.body)(world)).await?
        });
        report
            .end(result)
            .map_err(|error: anyhow::Error| Failed::from(format!("{error:#}")))
    })
}

#[allow(clippy::print_stderr, reason = "the way to the user of a test")]
fn complain(error: &anyhow::Error) -> ExitCode {
    eprintln!("{error:#}");
    ExitCode::FAILURE
}
