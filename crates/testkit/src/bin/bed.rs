//! `cluster [COMMAND...]`: starts a test cluster and runs a command in it, a shell by default, with kubectl and the
//! network namespaces available (`ip netns`). The test cluster ends with the command.

use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::Context;
use harvester_lb_testkit::{TestCluster, TestClusterOptions, enter};

#[tokio::main]
async fn run() -> anyhow::Result<u8> {
    let start = Instant::now();
    let cluster = TestCluster::start(TestClusterOptions::default()).await?;
    cluster.apply_foreign_crds().await?;
    report(&format!(
        "ready after {:.1?}, logs in {}",
        start.elapsed(),
        cluster.folder().display()
    ));
    let rss = cluster.rss_kib();
    let total: u64 = rss.iter().map(|(_, kib)| kib).sum();
    report(&format!(
        "{} programs, {} MiB resident",
        rss.len(),
        total / 1024
    ));
    report(
        "namespaces: ip netns; try: kubectl get nodes; ip netns exec client ping 192.168.100.11",
    );

    let path = std::env::var("PATH").unwrap_or_default();
    let mut args = std::env::args_os().skip(1);
    let program = args.next().unwrap_or_else(|| "sh".into());
    let status = Command::new(&program)
        .args(args)
        .env("KUBECONFIG", cluster.kubeconfig("admin")?)
        .env("HOME", cluster.folder())
        .env(
            "PATH",
            format!("{}:{path}", cluster.folder().join("bin").display()),
        )
        .env("PS1", "bed# ")
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}

#[allow(clippy::print_stderr, reason = "a command line tool")]
fn report(text: &str) {
    eprintln!("bed: {text}");
}

fn main() -> ExitCode {
    enter();
    match run() {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            report(&format!("{error:#}"));
            ExitCode::FAILURE
        }
    }
}
