//! The ports that Harvester's hosts listen on, for the warning about listeners (10.2). Pure.
//!
//! kube-vip puts the address of a load balancer on a host. While kube-proxy serves the listener, its port belongs to the load
//! balancer; at any other moment a connection to it reaches what the host itself listens on. From the port requirements in
//! Harvester's documentation of installation (v1.3 and later), and from those of RKE2.

use std::ops::RangeInclusive;

/// Ports, protocol, and what uses them. docs/admission.md has the same table.
pub(super) const USED: [(RangeInclusive<u16>, &str, &str); 29] = [
    (22..=22, "TCP", "sshd"),
    // The DHCP client of the host.
    (68..=68, "UDP", "the DHCP client"),
    // rke2-ingress-nginx has these as host ports; it serves Harvester's UI and API.
    (80..=80, "TCP", "the ingress controller"),
    (443..=443, "TCP", "the ingress controller"),
    // Metrics.
    (2112..=2112, "TCP", "kube-vip"),
    // Clients, peers, metrics, clients over HTTP.
    (2379..=2382, "TCP", "etcd"),
    (3260..=3260, "TCP", "iscsid"),
    (6443..=6443, "TCP", "the Kubernetes API server"),
    // Its local load balancer towards the servers.
    (6444..=6444, "TCP", "the RKE2 agent"),
    // Default backend and TLS passthrough of the ingress controller, and its webhook.
    (8181..=8181, "TCP", "the ingress controller"),
    (8443..=8444, "TCP", "the ingress controller"),
    // VXLAN.
    (8472..=8472, "UDP", "the CNI plugin Canal"),
    // Metrics and health of Felix.
    (9091..=9091, "TCP", "the CNI plugin Canal"),
    (9099..=9099, "TCP", "the CNI plugin Canal"),
    // Nodes join the cluster through it.
    (9345..=9345, "TCP", "the RKE2 supervisor"),
    (9796..=9796, "TCP", "the node exporter"),
    (10_010..=10_010, "TCP", "containerd"),
    // Status and profiler of nginx.
    (10_245..=10_247, "TCP", "the ingress controller"),
    (10_248..=10_248, "TCP", "kubelet"),
    (10_249..=10_249, "TCP", "kube-proxy"),
    (10_250..=10_250, "TCP", "kubelet"),
    (10_251..=10_251, "TCP", "kube-scheduler"),
    (10_252..=10_252, "TCP", "kube-controller-manager"),
    (10_256..=10_256, "TCP", "kube-proxy"),
    (10_257..=10_257, "TCP", "kube-controller-manager"),
    (10_258..=10_258, "TCP", "cloud-controller-manager"),
    (10_259..=10_259, "TCP", "kube-scheduler"),
    (10_260..=10_260, "TCP", "cloud-controller-manager"),
    // On every address of a host.
    (30_000..=32_767, "TCP", "NodePorts of Services"),
];

/// What uses this port on the hosts; `None` if nothing does. `protocol`: `TCP`, `UDP` or `SCTP`.
pub(super) fn user_of(protocol: &str, port: i64) -> Option<&'static str> {
    let port = u16::try_from(port).ok()?;
    let used = USED
        .iter()
        .find(|(ports, of, _)| ports.contains(&port) && *of == protocol);
    used.map(|(_, _, user)| *user)
}
