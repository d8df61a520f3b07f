mod ownership;
mod service;
mod slice;

use super::*;
use crate::merge_patch::difference;
use crate::spec;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The load balancer of the rules' example (section 8.3).
fn example() -> LoadBalancer {
    object(
        "
        apiVersion: loadbalancer.harvesterhci.io/v1beta1
        kind: LoadBalancer
        metadata: {namespace: shop, name: web, uid: uid-web}
        spec:
          ipam: pool
          listeners: [{name: http, port: 80, protocol: TCP, backendPort: 8080}]
          backendServerSelector: {app: [web]}
          healthCheck: {port: 8080}
        ",
    )
}

fn object<T: DeserializeOwned>(yaml: &str) -> T {
    serde_json::from_value(serde_saphyr::from_str(yaml).unwrap()).unwrap()
}

fn ports(lb: &LoadBalancer) -> Vec<Port> {
    spec::check(lb).unwrap().vm.unwrap().ports
}

fn port(name: &str, protocol: &'static str, port: u16, backend_port: u16) -> Port {
    Port {
        name: name.to_owned(),
        protocol,
        port,
        backend_port,
    }
}

fn backend(name: &str, address: &str) -> Backend {
    Backend {
        name: name.into(),
        uid: format!("uid-{name}"),
        address: address.parse().unwrap(),
        state: VmiState::Running,
    }
}

/// vm7 healthy or not, vm8 not.
fn backends(first: bool) -> Vec<(Backend, bool)> {
    vec![
        (backend("vm7", "10.10.1.7"), first),
        (backend("vm8", "10.10.1.8"), false),
    ]
}

fn json_of(object: &impl serde::Serialize) -> Value {
    serde_json::to_value(object).unwrap()
}

fn expected(yaml: &str) -> Value {
    serde_saphyr::from_str(yaml).unwrap()
}

const OWNER: &str = "{apiVersion: loadbalancer.harvesterhci.io/v1beta1, kind: LoadBalancer, name: web, uid: uid-web}";

/// The slice of the example with these endpoints.
fn example_slice(endpoints: &str) -> Value {
    expected(&format!(
        "
        apiVersion: discovery.k8s.io/v1
        kind: EndpointSlice
        metadata:
          namespace: shop
          name: web
          labels:
            loadbalancer.harvesterhci.io/servicelb: \"true\"
            kubernetes.io/service-name: web
            endpointslice.kubernetes.io/managed-by: harvester-load-balancer
          ownerReferences: [{OWNER}]
        addressType: IPv4
        ports: [{{name: http, protocol: TCP, port: 8080}}]
        endpoints: {endpoints}
        "
    ))
}

const STAND_IN: &str = "{addresses: [10.52.0.255], conditions: {ready: true}, targetRef: {namespace: shop, name: web, uid: dummy347-546a-4642-9da6-5608endpoint}}";

fn vm_endpoint(name: &str, address: &str, ready: bool) -> String {
    format!(
        "{{addresses: [{address}], conditions: {{ready: {ready}}}, targetRef: {{kind: VirtualMachineInstance, namespace: shop, name: {name}, uid: uid-{name}}}}}"
    )
}

/// A Service with the fields that the API server and kube-vip set.
const STORED_SERVICE: &str = r#"
    apiVersion: v1
    kind: Service
    metadata:
      namespace: shop
      name: web
      uid: uid-service
      resourceVersion: "77"
      creationTimestamp: "2026-01-01T00:00:00Z"
      finalizers: [service.kubernetes.io/load-balancer-cleanup]
      annotations:
        kube-vip.io/hwaddr: "00:00:5e:00:53:01"
        kube-vip.io/requestedIP: 172.20.1.4
        kube-vip.io/loadbalancerIPs: 172.20.1.9
      labels: {team: blue, implementation: kube-vip, loadbalancer.harvesterhci.io/servicelb: "true"}
      ownerReferences: [{apiVersion: loadbalancer.harvesterhci.io/v1beta1, kind: LoadBalancer, name: web, uid: uid-web}]
    spec:
      type: LoadBalancer
      allocateLoadBalancerNodePorts: true
      clusterIP: 10.53.1.1
      clusterIPs: [10.53.1.1]
      externalTrafficPolicy: Local
      healthCheckNodePort: 31999
      internalTrafficPolicy: Cluster
      ipFamilies: [IPv4]
      ipFamilyPolicy: SingleStack
      loadBalancerIP: 172.20.1.4
      loadBalancerClass: kube-vip.io/kube-vip-class
      loadBalancerSourceRanges: [10.0.0.0/8]
      sessionAffinity: ClientIP
      ports:
      - {name: http, protocol: TCP, port: 80, targetPort: 8080, nodePort: 30080, appProtocol: http}
    status: {loadBalancer: {ingress: [{ip: 172.20.1.4}]}}
"#;
