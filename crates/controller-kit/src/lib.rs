//! What the controllers share: stores over watches, work queue, back-off, writes, leader Lease, events, telemetry, admin port.
