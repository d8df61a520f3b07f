//! Owns the settings of the data path: kube-proxy, kube-vip, and the nodes' interface in the LAN.

/// How traffic for the address of a Service reaches its backends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPath {
    /// `--proxy-mode` of kube-proxy.
    pub proxy_mode: &'static str,
    /// `svc_election` of kube-vip: a Lease for each Service, so that the nodes share the addresses. Otherwise one Lease,
    /// `plndr-svcs-lock`, and one node announces all addresses.
    pub service_election: bool,
    /// `vip_interface` of kube-vip. If empty, kube-vip takes the interface of the default route.
    pub vip_interface: &'static str,
    /// Name of a bridge on each node that holds eth0 and has the node's address in the LAN.
    pub bridge: Option<&'static str>,
    /// `net.bridge.bridge-nf-call-iptables` on each node: its packet filter sees what its bridge forwards.
    pub bridge_calls_iptables: bool,
    /// `enable_service_security` of kube-vip: the announcing node drops what is sent to an address at ports that its Service
    /// does not have. Needs the program `iptables-legacy`, and the kernel's legacy tables.
    pub service_security: bool,
}

impl DataPath {
    /// The simplest one, with one address of kube-vip independent of the other. No bridge on the nodes.
    pub const DEFAULT: Self = Self {
        proxy_mode: "nftables",
        service_election: true,
        vip_interface: "eth0",
        bridge: None,
        bridge_calls_iptables: false,
        service_security: false,
    };

    /// As Harvester 1.5 to 1.9 sets it up:
    /// - kube-proxy: RKE2 starts it with k3s's flags, `--proxy-mode=iptables` (k3s-io/k3s, `kubeProxyArgs` in
    ///   pkg/daemons/agent/agent_linux.go), and Harvester adds none (harvester/harvester-installer,
    ///   pkg/config/templates/rke2-90-harvester-server.yaml).
    /// - kube-vip: `vip_interface: ""`, `vip_arp`, `svc_enable`, `enable_service_security` are set by Harvester's chart
    ///   (harvester/harvester, deploy/charts/harvester/values.yaml, `kube-vip.env`), `svc_election: "false"` and
    ///   `vip_subnet: "32"` (up to Harvester 1.6 `vip_cidr: "32"`) by kube-vip's (kube-vip/helm-charts,
    ///   charts/kube-vip/values.yaml). `lb_enable` there concerns the control plane only.
    /// - the management interface, with the default route, is the bridge `mgmt-br` (harvester/harvester-installer,
    ///   `MgmtInterfaceName` in pkg/config/constants.go). There it holds a bond of the network cards.
    /// - `bridge-nf-call-iptables=0` (harvester/harvester-installer,
    ///   package/harvester-os/files/etc/systemd/system/rke2-server.service.d/override.conf, since 1.5). With 1 an address that
    ///   kube-vip leases is announced, but its traffic is lost.
    pub const HARVESTER: Self = Self {
        proxy_mode: "iptables",
        service_election: false,
        vip_interface: "",
        bridge: Some("mgmt-br"),
        bridge_calls_iptables: false,
        service_security: true,
    };

    /// Programs that kube-proxy and kube-vip call, for [`crate::enter_with`].
    pub fn programs(&self) -> Vec<&'static str> {
        let mut all = Vec::new();
        if self.proxy_mode == "iptables" {
            all.extend(["iptables", "ip6tables"]);
        }
        if self.service_security {
            all.push("iptables-legacy");
        }
        all
    }
}
