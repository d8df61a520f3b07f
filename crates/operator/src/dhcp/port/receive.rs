//! What a port does with frames: those that are there are read before anybody's time counts as over (DHC-5).

use std::io;

use harvester_lb_ipam::dhcp::{Checksum, Delivery, Received, parse};

use super::Port;

/// Most frames that are read before the clients' own times are looked at, so that a flood of them does not hold up the renewals. They take
/// milliseconds, and are more than a network that is not flooded has for the process within the seconds that it may be delayed.
const FRAMES_AT_ONCE: usize = 1024;

impl Port {
    /// Frames that are there already. DHC-5: before anybody's time counts as over, or a process that was delayed would take an address for
    /// free whose holder has answered.
    pub(super) fn receive_all(&mut self, buffer: &mut [u8]) {
        for _ in 0..FRAMES_AT_ONCE {
            let Some(received) = self.line.receive_now(buffer) else {
                return;
            };
            self.heard(received, buffer);
        }
    }

    /// A frame, which begins the buffer, or why there is none.
    pub(super) fn heard(&mut self, received: io::Result<(usize, Checksum)>, buffer: &[u8]) {
        match received {
            Ok((length, checksum)) => {
                self.received(buffer.get(..length).unwrap_or_default(), checksum);
            }
            Err(error) => self.receive_failed(&error),
        }
    }

    pub(super) fn received(&mut self, frame: &[u8], checksum: Checksum) {
        let metrics = &self.around.metrics;
        let received = match parse(frame, checksum) {
            Ok(received) => received,
            Err(error) => return metrics.ignored(error.kind()),
        };
        match &received {
            Received::Reply { reply, .. } => metrics.received(reply.kind.kind()),
            Received::Arp(_) => metrics.received("arp"),
            Received::Other => {}
        }
        let now = self.clocks.now();
        let table = &mut self.clients.table;
        if let Received::Arp(arp) = &received
            && let Some(address) = table.checked_by(arp)
            && self.around.index.was_withdrawn(address)
        {
            // DHC-5: the answer of kube-vip says nothing, for a minute: the address was given back, and a DECLINE would keep it from all.
            return table.doubt(address, now, &mut self.actions);
        }
        let delivery = table.deliver(&received, now, &mut self.actions);
        if delivery == Delivery::Unknown {
            metrics.ignored("unknown");
        }
    }

    fn receive_failed(&mut self, error: &io::Error) {
        // ENETDOWN: the interface is down or gone. Anything else is as unexpected, and a new socket may cure it.
        self.around.metrics.socket_errors("receive");
        self.close(error.to_string());
    }
}
