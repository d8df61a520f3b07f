use super::*;
use serde_json::{Value, json};

fn value(crd: &CustomResourceDefinition) -> Value {
    serde_json::to_value(crd).unwrap()
}

/// The schema of the stored version.
fn schema(crd: &CustomResourceDefinition) -> Value {
    schema_of(crd, 0)
}

fn schema_of(crd: &CustomResourceDefinition, version: usize) -> Value {
    value(crd)["spec"]["versions"][version]["schema"]["openAPIV3Schema"].clone()
}

/// The type of every field, as `path: type[/format][!]`, `!` where it is required.
fn fields(schema: &Value, path: &str, out: &mut Vec<String>) {
    let required: Vec<&str> = schema["required"]
        .as_array()
        .map(|r| r.iter().filter_map(Value::as_str).collect())
        .unwrap_or_default();
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, property) in properties {
        let at = format!("{path}.{name}");
        let mut line = format!("{at}: {}", property["type"].as_str().unwrap_or("?"));
        if let Some(format) = property["format"].as_str() {
            line += &format!("/{format}");
        }
        if required.contains(&name.as_str()) {
            line += "!";
        }
        out.push(line);
        fields(property, &at, out);
        fields(&property["items"], &format!("{at}[]"), out);
        if let Some(inner) = property["additionalProperties"]["type"].as_str() {
            out.push(format!("{at}{{}}: {inner}"));
        }
    }
}

fn described(crd: &CustomResourceDefinition) -> String {
    described_schema(&schema(crd))
}

fn described_schema(schema: &Value) -> String {
    let mut out = Vec::new();
    fields(schema, "", &mut out);
    out.retain(|l| !l.contains("conditions[]"));
    out.join("\n")
}

#[test]
fn section_2_1_load_balancer_field_for_field() {
    assert_eq!(
        described(&load_balancer()),
        "\
.spec: object!
.spec.backendServerSelector: object
.spec.backendServerSelector{}: array
.spec.description: string
.spec.healthCheck: object
.spec.healthCheck.failureThreshold: integer
.spec.healthCheck.periodSeconds: integer
.spec.healthCheck.port: integer
.spec.healthCheck.successThreshold: integer
.spec.healthCheck.timeoutSeconds: integer
.spec.ipPool: string
.spec.ipam: string
.spec.listeners: array
.spec.listeners[].backendPort: integer/int32!
.spec.listeners[].name: string
.spec.listeners[].port: integer/int32!
.spec.listeners[].protocol: string!
.spec.workloadType: string
.status: object
.status.address: string
.status.allocatedAddress: object
.status.allocatedAddress.gateway: string
.status.allocatedAddress.ip: string
.status.allocatedAddress.ipPool: string
.status.allocatedAddress.mask: string
.status.backendServers: array
.status.conditions: array"
    );
    let schema = schema(&load_balancer());
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["ipam"]["enum"], json!(["pool", "dhcp"]));
    assert_eq!(spec["workloadType"]["enum"], json!(["vm", "cluster"]));
    assert_eq!(
        spec["listeners"]["items"]["properties"]["protocol"]["default"],
        json!("TCP")
    );
    assert_eq!(
        spec["healthCheck"]["properties"]["port"]["minimum"],
        json!(0.0)
    );
}

#[test]
fn section_2_3_load_balancer_v1alpha1_field_for_field() {
    let schema = schema_of(&load_balancer(), 1);
    assert_eq!(
        described_schema(&schema),
        "\
.spec: object
.spec.backendServers: array
.spec.description: string
.spec.healthCheck: object
.spec.healthCheck.PeriodSeconds: integer!
.spec.healthCheck.failureThreshold: integer!
.spec.healthCheck.port: integer!
.spec.healthCheck.successThreshold: integer!
.spec.healthCheck.timeoutSeconds: integer!
.spec.ipam: string!
.spec.listeners: array
.spec.listeners[].backendPort: integer/int32
.spec.listeners[].name: string!
.spec.listeners[].port: integer/int32!
.spec.listeners[].protocol: string!
.status: object
.status.address: string
.status.conditions: array"
    );
    let spec = &schema["properties"]["spec"]["properties"];
    assert_eq!(spec["ipam"]["enum"], json!(["pool", "dhcp"]));
    let listener = &spec["listeners"]["items"]["properties"];
    assert_eq!(listener["protocol"]["default"], json!("TCP"));
    let version = &value(&load_balancer())["spec"]["versions"][1];
    assert_eq!(version["name"], "v1alpha1");
    assert_eq!(version["deprecated"], true);
    assert_eq!(version["served"], true);
    assert_eq!(version["storage"], false);
}

#[test]
fn section_2_2_pool_field_for_field() {
    assert_eq!(
        described(&ip_pool()),
        "\
.spec: object!
.spec.description: string
.spec.ranges: array!
.spec.ranges[].gateway: string
.spec.ranges[].rangeEnd: string
.spec.ranges[].rangeStart: string
.spec.ranges[].subnet: string!
.spec.selector: object
.spec.selector.network: string
.spec.selector.priority: integer/int32
.spec.selector.scope: array
.spec.selector.scope[].guestCluster: string
.spec.selector.scope[].namespace: string
.spec.selector.scope[].project: string
.status: object
.status.allocated: object
.status.allocated{}: string
.status.allocatedHistory: object
.status.allocatedHistory{}: string
.status.available: integer/int64!
.status.conditions: array
.status.lastAllocated: string!
.status.total: integer/int64!"
    );
    let schema = schema(&ip_pool());
    assert_eq!(
        schema["properties"]["spec"]["properties"]["selector"]["properties"]["priority"]["minimum"],
        json!(0.0)
    );
}

#[test]
fn section_6_5_allocation_field_for_field() {
    assert_eq!(
        described(&ip_allocation()),
        "\
.spec: object!
.spec.address: string!
.spec.boundAt: string
.spec.lease: object
.spec.lease.clientId: string!
.spec.lease.expiresAt: string
.spec.lease.hardwareAddress: string!
.spec.lease.interface: string!
.spec.lease.interfaceChosen: boolean
.spec.lease.rebindAt: string
.spec.lease.renewAt: string
.spec.lease.requestedAddress: string
.spec.lease.router: string
.spec.lease.server: string
.spec.lease.serverHardwareAddress: string
.spec.lease.subnetMask: string
.spec.owner: object!
.spec.owner.name: string!
.spec.owner.namespace: string!
.spec.owner.uid: string
.spec.phase: string!
.spec.pool: string!
.spec.releasedAt: string"
    );
}

#[test]
fn section_2_conditions_require_type_and_status() {
    for (crd, version) in [(load_balancer(), 0), (load_balancer(), 1), (ip_pool(), 0)] {
        let status = &schema_of(&crd, version)["properties"]["status"];
        let condition = &status["properties"]["conditions"]["items"];
        assert_eq!(condition["required"], json!(["status", "type"]));
        assert_eq!(condition["properties"].as_object().unwrap().len(), 6);
        for (name, property) in condition["properties"].as_object().unwrap() {
            assert_eq!(property["type"], "string", "{name}");
        }
    }
}

#[test]
fn api_1_no_status_subresource() {
    for crd in all() {
        let kind = &crd.spec.names.kind;
        let versions = &value(&crd)["spec"]["versions"];
        for version in versions.as_array().unwrap() {
            assert!(version.get("subresources").is_none(), "{kind}");
        }
        assert_eq!(versions[0]["name"], "v1beta1");
        assert_eq!(versions[0]["storage"], true);
        // The API server refuses a definition that lacks a version in which it stores objects.
        let is_lb = kind == "LoadBalancer";
        assert_eq!(versions[1]["name"] == "v1alpha1", is_lb, "{kind}");
    }
}

#[test]
fn pool_4_maps_are_atomic() {
    let schema = schema(&ip_pool());
    let status = &schema["properties"]["status"]["properties"];
    for map in ["allocated", "allocatedHistory"] {
        assert_eq!(status[map]["x-kubernetes-map-type"], "atomic", "{map}");
    }
}

#[test]
fn wv_8_wv_9_are_the_only_rules() {
    let ipam =
        "(has(self.ipam) ? self.ipam : 'pool') == (has(oldSelf.ipam) ? oldSelf.ipam : 'pool')";
    let workload_type = "(has(self.workloadType) ? self.workloadType : 'vm') == (has(oldSelf.workloadType) ? oldSelf.workloadType : 'vm')";
    for (version, expected) in [(0, &[ipam, workload_type][..]), (1, &[ipam])] {
        let schema = schema_of(&load_balancer(), version);
        let rules: Vec<&str> = schema["properties"]["spec"]["x-kubernetes-validations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["rule"].as_str().unwrap())
            .collect();
        assert_eq!(rules, expected);
    }
}

#[test]
fn names_and_scopes() {
    let expected = [
        (load_balancer(), "Namespaced", vec!["lb", "lbs"]),
        (ip_pool(), "Cluster", vec!["pool", "pools"]),
        (ip_allocation(), "Cluster", vec!["ipalloc"]),
    ];
    for (crd, scope, short) in expected {
        assert_eq!(crd.spec.scope, scope);
        assert_eq!(crd.spec.names.short_names.clone().unwrap(), short);
    }
}

/// Columns as `NAME type path`, with `wide` after those that only wide output shows.
fn columns(crd: &CustomResourceDefinition, version: usize) -> String {
    let columns = crd.spec.versions[version].additional_printer_columns.iter();
    let lines = columns.flatten().map(|c| {
        let wide = if c.priority.unwrap_or_default() > 0 {
            " wide"
        } else {
            ""
        };
        format!("{} {} {}{wide}", c.name, c.type_, c.json_path)
    });
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn ops_5_columns_of_the_contract_in_its_order() {
    assert_eq!(
        columns(&load_balancer(), 0),
        "\
DESCRIPTION string .spec.description
WORKLOADTYPE string .spec.workloadType
IPAM string .spec.ipam
ADDRESS string .status.address
READY string .status.conditions[?(@.type==\"Ready\")].status
POOL string .status.allocatedAddress.ipPool wide
REASON string .status.conditions[?(@.type==\"Ready\")].reason wide
AGE date .metadata.creationTimestamp"
    );
    assert_eq!(
        columns(&load_balancer(), 1),
        "\
DESCRIPTION string .spec.description
IPAM string .spec.ipam
ADDRESS string .status.address"
    );
    assert_eq!(
        columns(&ip_pool(), 0),
        "\
DESCRIPTION string .spec.description
RANGES string .spec.ranges
Priority string .spec.selector.priority
TOTAL integer .status.total
AVAILABLE integer .status.available
READY string .status.conditions[?(@.type==\"Ready\")].status
AGE date .metadata.creationTimestamp"
    );
    assert_eq!(
        columns(&ip_allocation(), 0),
        "\
ADDRESS string .spec.address
POOL string .spec.pool
NAMESPACE string .spec.owner.namespace
OWNER string .spec.owner.name
PHASE string .spec.phase
AGE date .metadata.creationTimestamp"
    );
}

#[test]
fn nothing_is_nullable() {
    for crd in all() {
        let text = serde_json::to_string(&crd).unwrap();
        assert!(!text.contains("nullable"), "{}", crd.spec.names.kind);
    }
}
