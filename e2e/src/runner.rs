//! Runs the tests of a binary concurrently in one world.

use std::future::Future;
use std::pin::Pin;
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::Context;
use harvester_lb_testkit::{TestClusterOptions, TestReport, enter_with};
use libtest_mimic::{Arguments, Failed, Trial};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::OnceCell;

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

/// Runs tests in a world that `set_up` completes; `threads` of them at a time. The first test that needs the world
/// creates it; if that fails, all fail. `programs`: those that the tests call, besides what the cluster needs.
#[allow(
    clippy::needless_pass_by_value,
    reason = "callers make the options for this call"
)]
pub fn run(
    options: TestClusterOptions,
    programs: &[&str],
    threads: usize,
    set_up: Body,
    tests: Vec<Test>,
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
    let world: Arc<OnceCell<Arc<World>>> = Arc::default();
    let trials = tests
        .into_iter()
        .map(|test| trial(test, &runtime, &world, options.clone(), set_up));
    let conclusion = libtest_mimic::run(&arguments, trials.collect());
    drop(world);
    conclusion.exit_code()
}

/// A test cluster of two nodes without kube-vip, whose API server writes an audit log of all requests.
pub fn audited_cluster_options() -> TestClusterOptions {
    TestClusterOptions {
        nodes: 2,
        kube_vip: false,
        audit: true,
        ..TestClusterOptions::default()
    }
}

/// Runs tests one by one in a bare world: those that start operators themselves, which share the one Lease.
pub fn run_in_turn(options: TestClusterOptions, tests: Vec<Test>) -> ExitCode {
    run(options, &[], 1, |_| Box::pin(async { Ok(()) }), tests)
}

fn trial(
    test: Test,
    runtime: &Arc<Runtime>,
    world: &Arc<OnceCell<Arc<World>>>,
    options: TestClusterOptions,
    set_up: Body,
) -> Trial {
    let (runtime, world) = (Arc::clone(runtime), Arc::clone(world));
    Trial::test(test.name, move || {
        let mut report = TestReport::begin(test.name);
        let result = runtime.block_on(async {
            let world = world
                .get_or_try_init(|| async {
                    let world = Arc::new(World::start(options).await?);
                    set_up(Arc::clone(&world)).await.context("set-up")?;
                    anyhow::Ok(world)
                })
                .await?;
            report.set_up_done();
            // A separate task, so that a panic fails only this test.
            tokio::spawn((test.body)(Arc::clone(world))).await?
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
