//! The ports of a term, one for each interface that a record names. Owns which of them a request goes to, and their end.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;

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
        port.send(request).await.map_err(|_| PortError::Ended)?;
        result.await.map_err(|_| PortError::Ended)?
    }

    fn port(&self, interface: &str) -> Result<mpsc::Sender<Request>, PortError> {
        let mut open = self.open.lock();
        if let Some(port) = open.requests.get(interface) {
            return Ok(port.clone());
        }
        if open.requests.len() >= MOST_PORTS {
            let text = format!("{MOST_PORTS} interfaces are in use");
            return Err(PortError::Down(interface.to_owned(), text));
        }
        let (sender, requests) = mpsc::channel(REQUESTS);
        let port = Port::new(interface.to_owned(), self.around.clone(), requests);
        open.tasks.spawn(port.run());
        open.requests.insert(interface.to_owned(), sender.clone());
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
