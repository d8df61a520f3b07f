//! Owns the shell: its environment, and its commands that reach into the demo's process.
//!
//! Such a command is a script that runs this program as `demo call WORDS`. That sends the words to a socket, one per
//! line, and receives a line with the exit code and then the text to print.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::io::{Read, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, bail};
use harvester_lb_e2e::world::repository;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Mutex;

use crate::scene::{BACKEND_PORT, NAME, NODE, PORT, Scene};
use crate::screen::Screen;

/// The variable with the path of the socket.
const SOCKET: &str = "HLB_DEMO_SOCKET";
/// Most requests of one `client` command.
const MOST_REQUESTS: usize = 10_000;

struct Stage {
    scene: Scene,
    /// Virtual machines whose program runs.
    answering: Mutex<BTreeSet<String>>,
}

/// Starts a shell for the user and returns its exit code.
pub(crate) async fn run(screen: &mut Screen, scene: Scene) -> anyhow::Result<u8> {
    let folder = scene.world.cluster.folder().to_path_buf();
    let kubeconfig = scene.world.cluster.kubeconfig("admin")?;
    let socket = folder.join("demo.sock");
    let listener = UnixListener::bind(&socket)?;
    commands(&folder.join("bin"), &folder)?;
    introduce(screen, &scene);
    let stage = Arc::new(Stage {
        answering: Mutex::new(scene.names().into_iter().map(str::to_owned).collect()),
        scene,
    });
    let serving = tokio::spawn(serve(listener, Arc::clone(&stage)));

    let path = std::env::var("PATH").unwrap_or_default();
    let status = tokio::process::Command::new(program())
        .current_dir(repository())
        .env("KUBECONFIG", kubeconfig)
        // kubectl keeps its cache there, and the shell its configuration.
        .env("HOME", &folder)
        .env("ENV", folder.join(".bashrc"))
        .env("PATH", format!("{}:{path}", folder.join("bin").display()))
        .env(SOCKET, socket)
        .status()
        .await
        .with_context(|| format!("{} cannot be started", program().display()))?;
    serving.abort();
    screen.say("The shell has ended; everything is taken down.");
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .unwrap_or(1))
}

/// The user's shell, if it is installed.
fn program() -> PathBuf {
    std::env::var_os("SHELL")
        .map(PathBuf::from)
        .into_iter()
        .chain(["/bin/bash".into(), "/usr/bin/bash".into()])
        .find(|p| p.is_file())
        .unwrap_or_else(|| "/bin/sh".into())
}

fn commands(bin: &Path, folder: &Path) -> anyhow::Result<()> {
    let this = std::env::current_exe()?;
    let call = |name: &str| format!("exec '{}' call {name} \"$@\"", this.display());
    let log = folder.join(format!("operator-{NODE}.log"));
    let scripts = [
        ("client", call("client")),
        ("vm", call("vm")),
        ("metrics", call("metrics")),
        (
            "operator-log",
            format!("exec tail -n 40 \"$@\" '{}'", log.display()),
        ),
    ];
    for (name, text) in scripts {
        let file = bin.join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{text}\n"))?;
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755))?;
    }
    std::fs::write(folder.join(".bashrc"), "PS1='demo# '\n")?;
    Ok(())
}

fn introduce(screen: &mut Screen, scene: &Scene) {
    let vip = scene.vip;
    screen.step("Your turn");
    screen.say("It all goes on running until you leave the shell. Things to try:");
    let client = format!("client {vip} {PORT} 30");
    let delete_service = format!("kubectl delete service {NAME}");
    let delete = format!("kubectl delete lb {NAME}");
    let mut text = String::new();
    for (command, what) in [
        ("kubectl get lb,service,endpointslice", "what there is"),
        (&*client, "30 requests from outside of the cluster"),
        (
            "vm vm2 stop",
            "the program on vm2 ends; ask again 4 s later",
        ),
        ("vm vm2 start", "and runs again; `vm` lists them"),
        ("kubectl delete vmi vm3", "a machine goes away"),
        (&*delete_service, "the operator makes it again"),
        (&*delete, "and then: kubectl get ipalloc"),
        (
            "kubectl apply -f docs/examples/demo-loadbalancer.yaml",
            "it gets its address back",
        ),
        ("operator-log -f", "what the operator says to it all"),
        ("metrics | grep backend", "its metrics"),
        ("exit", ""),
    ] {
        let _ = writeln!(text, "{command:54} {what}");
    }
    screen.block(&text);
}

async fn serve(listener: UnixListener, stage: Arc<Stage>) {
    while let Ok((stream, _)) = listener.accept().await {
        let stage = Arc::clone(&stage);
        tokio::spawn(async move {
            // An interrupted command does not wait for the answer.
            let _ = serve_one(stream, &stage).await;
        });
    }
}

async fn serve_one(mut stream: UnixStream, stage: &Stage) -> anyhow::Result<()> {
    let mut text = String::new();
    stream.read_to_string(&mut text).await?;
    let words: Vec<&str> = text.lines().collect();
    let (code, answer) = match stage.answer(&words).await {
        Ok(answer) => (0, answer),
        Err(error) => (1, format!("{error:#}\n")),
    };
    let answer = format!("{code}\n{answer}");
    stream.write_all(answer.as_bytes()).await?;
    Ok(())
}

impl Stage {
    async fn answer(&self, words: &[&str]) -> anyhow::Result<String> {
        match words {
            ["client", ip, port] => self.client(ip, port, "1").await,
            ["client", ip, port, count] => self.client(ip, port, count).await,
            ["client", ..] => bail!("usage: client ADDRESS PORT [NUMBER OF REQUESTS]"),
            ["vm"] => self.list().await,
            ["vm", name, "stop"] => self.set(name, false).await,
            ["vm", name, "start"] => self.set(name, true).await,
            ["vm", ..] => bail!("usage: vm [NAME start|stop]"),
            ["metrics"] => Ok(self.scene.world.get(NODE, "/metrics").await?.1),
            _ => bail!("there is no command {words:?}"),
        }
    }

    async fn client(&self, ip: &str, port: &str, count: &str) -> anyhow::Result<String> {
        let ip: Ipv4Addr = ip.parse().context("the address is no IPv4 address")?;
        let port: u16 = port.parse().context("the port is no port number")?;
        let count: usize = count.parse().context("the number of requests")?;
        let cluster = &self.scene.world.cluster;
        if count == 1 {
            return Ok(format!("{}\n", cluster.client_get(ip, port).await?));
        }
        let count = count.min(MOST_REQUESTS);
        let tally = cluster.client_burst(ip, port, count, 6).await;
        let mut text = String::new();
        for (body, answers) in &tally.by_body {
            writeln!(text, "{body:8}  {answers:>5}")?;
        }
        if let Some(first) = tally.failures.first() {
            let failed = tally.failures.len();
            writeln!(text, "{:8}  {failed:>5}  ({})", "failed", first.error)?;
        }
        Ok(text)
    }

    async fn list(&self) -> anyhow::Result<String> {
        let answering = self.answering.lock().await;
        let mut text = String::new();
        for vm in &self.scene.vms {
            let state = if answering.contains(vm.name()) {
                "answers"
            } else {
                "stopped"
            };
            writeln!(text, "{:6}  {}  {state}", vm.name(), vm.address())?;
        }
        Ok(text)
    }

    async fn set(&self, name: &str, answers: bool) -> anyhow::Result<String> {
        let mut answering = self.answering.lock().await;
        let vm = self.scene.vms.iter().find(|vm| vm.name() == name);
        let vm = vm.with_context(|| format!("there is no {name}"))?;
        if !answers {
            vm.close(BACKEND_PORT).await;
            answering.remove(name);
            return Ok(format!("{name} refuses connections\n"));
        }
        if answering.insert(name.to_owned()) {
            vm.listen(BACKEND_PORT)?;
        }
        Ok(format!("{name} answers\n"))
    }
}

/// One command of the shell, in a separate process.
pub(crate) fn call(words: &[String]) -> ExitCode {
    let answer = ask(words).unwrap_or_else(|error| format!("1\n{error:#}\n"));
    let (code, text) = answer.split_once('\n').unwrap_or(("1", &answer));
    let code: u8 = code.parse().unwrap_or(1);
    // A closed output is not an error.
    if code == 0 {
        let _ = std::io::stdout().write_all(text.as_bytes());
    } else {
        let _ = std::io::stderr().write_all(text.as_bytes());
    }
    ExitCode::from(code)
}

fn ask(words: &[String]) -> anyhow::Result<String> {
    let socket = std::env::var_os(SOCKET).context("only of use in the shell of `demo shell`")?;
    let mut stream = std::os::unix::net::UnixStream::connect(socket).context("the demo is gone")?;
    stream.write_all(words.join("\n").as_bytes())?;
    stream.shutdown(std::net::Shutdown::Write)?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
