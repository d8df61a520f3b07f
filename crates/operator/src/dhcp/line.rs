//! The way to one interface: its socket, or why there is none and when it is tried again with a capped back-off. No clients.

use std::io;
use std::time::{Duration, Instant};

use harvester_lb_controller_kit::backoff::Backoff;
use harvester_lb_ipam::dhcp::{Checksum, HardwareAddress};
use nix::libc;
use tracing::{info, warn};

use crate::dhcp::socket::{self, OpenError, PacketSocket};

/// Pauses between attempts to open an interface. The cap is short: its leases may expire meanwhile.
const REOPEN: Backoff = Backoff {
    base: Duration::from_secs(1),
    cap: Duration::from_secs(10),
};

/// What an interface was found to be like.
pub enum Look {
    /// As before.
    AsBefore,
    /// It has another Ethernet address. Its socket is the same.
    OtherAddress,
    /// It cannot be used: why.
    Fault(String),
}

/// The way to one interface.
pub struct Line {
    /// The name of the interface.
    pub interface: String,
    socket: Option<PacketSocket>,
    /// Why there is no socket.
    fault: String,
    /// Whether that is because there was no such interface.
    is_missing: bool,
    failures: u32,
    open_at: Instant,
    hardware: HardwareAddress,
    /// The index of the interface that was opened last.
    index: Option<usize>,
}

impl Line {
    /// Without a socket; one is due now.
    pub fn new(interface: String) -> Self {
        Self {
            interface,
            socket: None,
            fault: String::new(),
            is_missing: false,
            failures: 0,
            open_at: Instant::now(),
            hardware: HardwareAddress::ZERO,
            index: None,
        }
    }

    /// Whether it can be used.
    pub const fn is_open(&self) -> bool {
        self.socket.is_some()
    }

    /// Why it cannot be used.
    pub fn fault(&self) -> &str {
        &self.fault
    }

    /// Whether there was no interface of the name.
    pub const fn is_missing(&self) -> bool {
        self.is_missing
    }

    /// The Ethernet address of the interface when it was looked at last.
    pub const fn hardware(&self) -> HardwareAddress {
        self.hardware
    }

    /// When it is to be opened again, if it is not open.
    pub fn open_at(&self) -> Option<Instant> {
        self.socket.is_none().then_some(self.open_at)
    }

    /// Opens it, if that is due. `None`: it is not.
    pub fn open_if_due(&mut self) -> Option<Result<(), OpenError>> {
        let is_due = self.open_at().is_some_and(|at| at <= Instant::now());
        is_due.then(|| {
            let opened = self.open();
            self.is_missing = matches!(opened, Err(OpenError::Missing));
            opened
        })
    }

    fn open(&mut self) -> Result<(), OpenError> {
        let link = socket::find(&self.interface)?;
        self.socket = Some(PacketSocket::open(&link)?);
        self.hardware = link.hardware;
        self.index = Some(link.index());
        self.failures = 0;
        self.fault.clear();
        info!(interface = self.interface, address = %link.hardware, "interface opened");
        Ok(())
    }

    /// It cannot be used for now. Whether that is news.
    pub fn close(&mut self, fault: String) -> bool {
        self.socket = None;
        self.failures = self.failures.saturating_add(1);
        self.open_at = Instant::now() + REOPEN.delay(self.failures, fastrand::f64());
        let is_news = self.fault != fault;
        if is_news {
            warn!(
                interface = self.interface,
                error = fault,
                "interface cannot be used, will retry"
            );
            self.fault = fault;
        }
        is_news
    }

    /// Looks for what no error shows of an open one: a bridge takes another address when a port is added or goes, and another
    /// interface may have its name.
    pub fn look(&mut self) -> Look {
        if self.socket.is_none() {
            return Look::AsBefore;
        }
        match socket::find(&self.interface) {
            Ok(link) if Some(link.index()) != self.index => {
                Look::Fault("it was made anew".to_owned())
            }
            Ok(link) if link.hardware != self.hardware => {
                info!(interface = self.interface, address = %link.hardware, "interface has another address");
                self.hardware = link.hardware;
                Look::OtherAddress
            }
            Ok(_) => Look::AsBefore,
            Err(error) => Look::Fault(error.to_string()),
        }
    }

    /// Waits for a frame; for ever if it is not open. Cancel safe.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Checksum)> {
        match &self.socket {
            Some(socket) => socket.receive(buffer).await,
            None => std::future::pending().await,
        }
    }

    /// Reads a frame that is there. `None`: there is none, or it is not open.
    pub fn receive_now(&self, buffer: &mut [u8]) -> Option<io::Result<(usize, Checksum)>> {
        match self.socket.as_ref()?.receive_now(buffer) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            received => Some(received),
        }
    }

    /// Sends a frame. `None`: it is not open.
    pub fn send(&self, frame: &[u8]) -> Option<io::Result<()>> {
        Some(self.socket.as_ref()?.send(frame))
    }
}

/// Whether the interface is down or gone; anything else concerns one frame.
pub fn is_down(error: &io::Error) -> bool {
    let errors = [libc::ENETDOWN, libc::ENXIO, libc::ENODEV];
    error
        .raw_os_error()
        .is_some_and(|code| errors.contains(&code))
}
