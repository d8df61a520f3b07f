//! Owns network namespaces: their names, code and programs that run in them, and the `ip` command.

use std::fs::File;
use std::io::{self, Write};
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::{Context, anyhow, bail};
use nix::sched::{CloneFlags, setns};
use socket2::{Domain, Protocol, Socket, Type};

/// A named network namespace, as `ip netns` knows it. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Netns {
    name: Arc<str>,
    file: Arc<File>,
}

impl Netns {
    pub(crate) fn open(name: &str) -> anyhow::Result<Self> {
        let file = File::open(format!("/run/netns/{name}"))
            .with_context(|| format!("network namespace {name}"))?;
        Ok(Self {
            name: name.into(),
            file: Arc::new(file),
        })
    }

    /// Name for `ip netns exec`.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs blocking code on a separate thread inside the namespace.
    ///
    /// A socket created there stays in the namespace, regardless of the thread that uses it afterwards, and so does a
    /// program started there. Keep it short: the calling thread waits.
    pub fn run<T: Send>(&self, code: impl FnOnce() -> T + Send) -> anyhow::Result<T> {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                setns(&*self.file, CloneFlags::CLONE_NEWNET)
                    .with_context(|| format!("cannot enter the namespace {}", self.name))?;
                Ok(code())
            });
            thread
                .join()
                .map_err(|_| anyhow!("panic inside the namespace {}", self.name))?
        })
    }

    /// Runs `ip` inside the namespace with one command per line.
    pub fn ip(&self, commands: &str) -> anyhow::Result<()> {
        ip(&["-n", &self.name], commands)
    }

    /// Runs a program inside the namespace to its end and returns its standard output.
    pub fn output(&self, program: &str, args: &[&str]) -> anyhow::Result<String> {
        let output = self
            .run(|| {
                Command::new(program)
                    .args(args)
                    .stdin(Stdio::null())
                    .output()
            })?
            .with_context(|| format!("cannot run {program}"))?;
        if !output.status.success() {
            bail!(
                "{program} {} in {}: {}: {}",
                args.join(" "),
                self.name,
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Loads rules into the namespace's packet filter.
    pub fn nft(&self, rules: &str) -> anyhow::Result<()> {
        self.run(|| feed(Command::new("nft").args(["-f", "-"]), rules))?
    }

    /// Sets a sysctl of the namespace, `name` with slashes, below `/proc/sys`.
    pub fn sysctl(&self, name: &str, value: &str) -> anyhow::Result<()> {
        self.run(|| std::fs::write(format!("/proc/sys/{name}"), value))?
            .with_context(|| format!("sysctl {name} in {}", self.name))
    }

    /// A listening TCP socket inside the namespace, on all its addresses.
    pub(crate) fn listen(&self, port: u16) -> anyhow::Result<std::net::TcpListener> {
        self.run(|| -> io::Result<_> {
            let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
            socket.set_reuse_address(true)?;
            socket.set_nonblocking(true)?;
            socket.bind(&any(port).into())?;
            socket.listen(1024)?;
            Ok(socket.into())
        })?
        .with_context(|| format!("cannot listen on port {port} in {}", self.name))
    }

    /// An unconnected TCP socket inside the namespace.
    pub(crate) fn tcp(&self) -> io::Result<tokio::net::TcpSocket> {
        let socket = self
            .run(|| -> io::Result<_> {
                let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
                socket.set_nonblocking(true)?;
                Ok(socket)
            })
            .map_err(io::Error::other)??;
        Ok(tokio::net::TcpSocket::from_std_stream(socket.into()))
    }

    /// A UDP socket inside the namespace, on all its addresses; port 0 for any.
    pub(crate) fn udp(&self, port: u16) -> io::Result<tokio::net::UdpSocket> {
        let socket = self
            .run(|| -> io::Result<_> {
                let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
                socket.set_nonblocking(true)?;
                socket.bind(&any(port).into())?;
                Ok(socket)
            })
            .map_err(io::Error::other)??;
        tokio::net::UdpSocket::from_std(socket.into())
    }
}

fn any(port: u16) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, port))
}

/// Runs `ip` with `flags` and one command per line.
pub(crate) fn ip(flags: &[&str], commands: &str) -> anyhow::Result<()> {
    feed(
        Command::new("ip").args(flags).args(["-batch", "-"]),
        commands,
    )
    .with_context(|| format!("ip {}, commands:\n{commands}", flags.join(" ")))
}

fn feed(command: &mut Command, input: &str) -> anyhow::Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {program}"))?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if !output.status.success() {
        bail!(
            "{program}: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}
