//! The other side: a process that accepts on one port of every loopback address, and never answers on another.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::usage::{self, Core};

/// The listener process. Dropping it ends it.
pub(crate) struct Listener {
    child: Child,
    pub(crate) port: u16,
    pub(crate) dead_port: u16,
}

impl Listener {
    pub(crate) fn start() -> Result<Self, Box<dyn Error>> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg("listen")
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().ok_or("no output")?).read_line(&mut line)?;
        let (port, dead_port) = line.trim().split_once(' ').ok_or("no ports")?;
        Ok(Self {
            port: port.parse()?,
            dead_port: dead_port.parse()?,
            child,
        })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The main function of that process.
pub(crate) fn serve() -> Result<(), Box<dyn Error>> {
    usage::pin(Core::Last)?;
    let listener = listen(65_535)?;
    let full = listen(0)?;
    // The kernel drops SYNs to a listener whose queue is full: no answer at all, like a machine that is gone.
    let port = full.local_addr()?.port();
    let mut queued = Vec::new();
    let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    while let Ok(stream) = TcpStream::connect_timeout(&addr, Duration::from_millis(300)) {
        queued.push(stream);
    }
    println!("{} {port}", listener.local_addr()?.port());
    loop {
        drop(listener.accept());
    }
}

fn listen(backlog: i32) -> Result<TcpListener, Box<dyn Error>> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    socket.bind(&SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)).into())?;
    socket.listen(backlog)?;
    Ok(socket.into())
}
