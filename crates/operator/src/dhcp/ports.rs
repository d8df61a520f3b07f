//! The ports of a term, one for each interface that a record names: one that none names any more ends. Owns which of them a request goes to, and their end.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tracing::warn;

use crate::dhcp::order::{Order, PortError, Request, Surroundings};
use crate::dhcp::port::Port;

/// Requests that wait for a port. Each reconcile has one at most, so more would only hide that a port is slow.
const REQUESTS: usize = 16;
/// Most ports. Their names come from flags and from records, and a record can be edited by hand.
const MOST_PORTS: usize = 64;

/// The ports.
pub struct Ports {
    around: Surroundings,
    open: Mutex<Open>,
}

#[derive(Default)]
struct Open {
    requests: BTreeMap<String, mpsc::Sender<Request>>,
    tasks: JoinSet<()>,
    /// Whether there was no place for the last one, which is logged once.
    is_full: bool,
}

impl Ports {
    /// None is there yet.
    pub fn new(around: Surroundings) -> Self {
        Self {
            around,
            open: Mutex::default(),
        }
    }

    /// Gives an order to the port of an interface.
    pub async fn order(&self, interface: &str, order: Order) -> Result<(), PortError> {
        let (done, result) = oneshot::channel();
        let port = self.port(interface)?;
        let request = Request { order, done };
        // One that has ended meanwhile, since no record named its interface, is replaced.
        port.send(request).await.map_err(|_| PortError::Changed)?;
        result.await.map_err(|_| PortError::Ended)?
    }

    fn port(&self, interface: &str) -> Result<mpsc::Sender<Request>, PortError> {
        let mut open = self.open.lock();
        open.requests.retain(|_, port| !port.is_closed());
        while open.tasks.try_join_next().is_some() {}
        if let Some(port) = open.requests.get(interface) {
            return Ok(port.clone());
        }
        if open.requests.len() >= MOST_PORTS {
            let text = format!("{MOST_PORTS} interfaces are in use");
            if !std::mem::replace(&mut open.is_full, true) {
                warn!(interface, error = text, "interface is not opened");
            }
            return Err(PortError::Down(interface.to_owned(), text));
        }
        let (sender, requests) = mpsc::channel(REQUESTS);
        let port = Port::new(interface.to_owned(), self.around.clone(), requests);
        open.tasks.spawn(port.run());
        open.requests.insert(interface.to_owned(), sender.clone());
        open.is_full = false;
        Ok(sender)
    }

    /// Ends all ports, without a RELEASE.
    pub async fn end(&self) {
        let mut tasks = {
            let mut open = self.open.lock();
            open.requests.clear();
            std::mem::take(&mut open.tasks)
        };
        // Nothing that they do waits for anything but the next event.
        tasks.shutdown().await;
        self.around.index.views.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dhcp::port::tests::surroundings;

    #[tokio::test]
    async fn dhc_1_a_port_that_has_ended_is_replaced_and_keeps_no_place() {
        let (around, _) = surroundings();
        let ports = Ports::new(around);
        let (ended, requests) = mpsc::channel(1);
        drop(requests);
        for number in 0..MOST_PORTS {
            let name = format!("eth{number}");
            ports.open.lock().requests.insert(name, ended.clone());
        }
        let stop = || Order::Stop(harvester_lb_ipam::Uid::new("a"), view());
        assert_eq!(ports.order("eth0", stop()).await, Ok(()));
        assert_eq!(ports.order("no-such-name", stop()).await, Ok(()));
        assert_eq!(ports.open.lock().requests.len(), 2);
        ports.end().await;
    }

    fn view() -> harvester_lb_core::dhcp::upkeep::ClientView {
        harvester_lb_core::dhcp::upkeep::ClientView {
            interface: "eth0".to_owned(),
            hardware: harvester_lb_ipam::dhcp::HardwareAddress([2, 0, 0, 0, 0, 1]),
            lease: None,
            is_asking: false,
            loss: None,
            declined: None,
        }
    }
}
