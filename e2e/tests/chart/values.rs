//! Values: which are refused, and those of the Go operator's chart.

use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use serde_json::{Value, json};

use crate::helm::{chart, helm, object, rendered};

pub async fn chart_refuses_wrong_values(world: Arc<World>) -> anyhow::Result<()> {
    let chart = chart();
    let chart = chart.to_str().unwrap_or_default();
    // A value, and what the message must contain.
    let cases: &[(&str, &[&str])] = &[
        ("crds.manage=both", &["/crds/manage", "'own'"]),
        ("replicaCount=two", &["/replicaCount", "integer"]),
        ("replicaCount=-1", &["/replicaCount"]),
        ("replicas=3", &["replicas"]),
        (
            "image.pullPolicy=Sometimes",
            &["/image/pullPolicy", "'Never'"],
        ),
        (
            "image.repository=",
            &["image.repository is empty", "docs/image.md"],
        ),
        ("dhcpMode=dhclient", &["/dhcpMode", "kube-vip"]),
        (
            "dhcpMode=builtin",
            &["dhcpMode is builtin and dhcp.enabled is false"],
        ),
        ("dhcp.interface=eth0\\,eth1", &["/dhcp/interface"]),
        ("dhcp.interface=longer-than-15-b", &["/dhcp/interface"]),
        ("dhcp.leaseLimit=0", &["/dhcp/leaseLimit"]),
        ("dhcp.replicaCount=-1", &["/dhcp/replicaCount"]),
        ("serviceInterfaces[0]=vlan 20", &["/serviceInterfaces/0"]),
        ("logLevel=inof", &["/logLevel"]),
        ("logLevel=", &["/logLevel"]),
        ("logLevel=info\\,debg", &["/logLevel"]),
        ("logLevel=\\,", &["/logLevel"]),
        ("logLevel=kube=debg", &["/logLevel"]),
        ("logLevel=[span", &["/logLevel"]),
        ("webhook.logLevel=inof", &["/webhook/logLevel"]),
        ("webhook.logLevel=kube=warning", &["/webhook/logLevel"]),
        ("lease.duration=1500ms", &["/lease/duration"]),
        ("lease.renewDeadline=10", &["/lease/renewDeadline"]),
        ("lease.renewDeadline=0s", &["/lease/renewDeadline"]),
        ("lease.retryPeriod=0ms", &["/lease/retryPeriod"]),
        (
            "lease.duration=10s",
            &["lease.renewDeadline: 10s is not shorter", "10s"],
        ),
        ("lease.renewDeadline=1m", &["lease.renewDeadline: 1m"]),
        ("lease.retryPeriod=5001ms", &["lease.retryPeriod: 5001ms"]),
        ("backendDenyCIDRs[0]=10.0.0.1", &["/backendDenyCIDRs/0"]),
        ("backendDenyCIDRs[0]=10.0.0.0/33", &["/backendDenyCIDRs/0"]),
        ("backendDenyCIDRs[0]=256.1.1.1/8", &["/backendDenyCIDRs/0"]),
        ("backendDenyCIDRs[0]=10.0.0/8", &["/backendDenyCIDRs/0"]),
        ("backendDenyCIDRs[0]=fd00::/129", &["/backendDenyCIDRs/0"]),
        ("backendDenyCIDRs[0]=fd00:/8", &["/backendDenyCIDRs/0"]),
        (
            "backendDenyCIDRs[0]=1:2:3:4::5:6:7:8/64",
            &["backendDenyCIDRs: 1:2:3:4::5:6:7:8/64 is no address range"],
        ),
        (
            "image.repository=r.example.com/lb:v1",
            &["/image/repository"],
        ),
        (
            "image.repository=r.example.com/lb@sha256",
            &["/image/repository"],
        ),
        ("image.repository=r.example.com/ lb", &["/image/repository"]),
        ("image.digest=sha256:12", &["/image/digest"]),
        (
            "webhook.image.repository=lb:v1",
            &["/webhook/image/repository"],
        ),
        ("webhook.image.digest=v1", &["/webhook/image/digest"]),
        ("serviceAccount.name=Not_A_Name", &["/serviceAccount/name"]),
        (
            "serviceAccount.name=harvester-lb-webhook-hooks",
            &["serviceAccount.name: harvester-lb-webhook-hooks is another account"],
        ),
        (
            "serviceAccount.create=false",
            &["serviceAccount.create is false and serviceAccount.name is empty"],
        ),
        (
            "serviceAccount.name=harvester-lb-check",
            &["serviceAccount.name: harvester-lb-check is another account"],
        ),
        ("priorityClassName=Not_A_Name", &["/priorityClassName"]),
        (
            "monitoring.dashboard.namespace=a.b",
            &["/monitoring/dashboard/namespace"],
        ),
        (
            "adminPort=8443",
            &["adminPort and webhook.httpsPort", "8443"],
        ),
        ("hooks.deadlineSeconds=59", &["/hooks/deadlineSeconds"]),
        (
            "hooks.stopTimeoutSeconds=151",
            &["hooks.deadlineSeconds: 300 is less than twice"],
        ),
        (
            "terminationGracePeriodSeconds=5",
            &["/terminationGracePeriodSeconds", "20"],
        ),
        (
            "podLabels.app\\.kubernetes\\.io/name=a",
            &["podLabels: app.kubernetes.io/name is a label that the chart selects Pods by"],
        ),
        (
            "podLabels.app\\.kubernetes\\.io/instance=a",
            &["podLabels: app.kubernetes.io/instance is a label that the chart selects Pods by"],
        ),
        ("adminPort=80", &["/adminPort", "minimum"]),
        // Helm leaves these out, and their defaults too.
        ("adminPort=null", &["adminPort"]),
        ("crds.manage=null", &["/crds", "manage"]),
        ("webhook=null", &["webhook"]),
        ("logLevel=[a{]=info", &["/logLevel"]),
        ("hooks.stopTimeoutSeconds=1", &["/hooks/stopTimeoutSeconds"]),
        ("webhook.serviceName=Not_A_Name", &["/webhook/serviceName"]),
        (
            "webhook.serviceName=harvester-lb-operator",
            &["webhook.serviceName: harvester-lb-operator is the operator's"],
        ),
        (
            "monitoring.serviceMonitor.enabled=maybe",
            &["/monitoring/serviceMonitor/enabled"],
        ),
        // Those are the names of Harvester's own release.
        (
            "nameOverride=harvester-load-balancer",
            &["Harvester's own release"],
        ),
    ];
    for (value, parts) in cases {
        let image = "image.repository=registry.example.com/lb";
        let args = ["template", "x", chart, "--set", image, "--set", value];
        let said = helm(&world, &args).await?;
        ensure!(!said.success, "{value} is accepted");
        for part in *parts {
            ensure!(said.error.contains(part), "{value}: {}", said.error);
        }
    }
    Ok(())
}

/// Values at the edge of what is legal.
pub async fn chart_takes_legal_values(world: Arc<World>) -> anyhow::Result<()> {
    let ranges = [
        "0.0.0.0/0",
        "255.255.255.255/32",
        "10.52.0.0/16",
        "::/0",
        "::1/128",
        "FD00::/8",
        "2001:db8:1:2:3:4:5:6/127",
        "2001:db8::1:2/109",
        "2001:db8:1:2:3::4:5/127",
    ];
    for values in [
        json!({"backendDenyCIDRs": ranges}),
        json!({"image": {"repository": "lb"}}),
        json!({"image": {"repository": "registry.example.com:5000/a/lb"}}),
        json!({"serviceAccount": {"name": "a.b-c"}, "priorityClassName": "a.b"}),
        json!({"lease": {"duration": "1m", "renewDeadline": "59s", "retryPeriod": "29500ms"}}),
        json!({"hooks": {"deadlineSeconds": 60, "stopTimeoutSeconds": 30}}),
        json!({"adminPort": 8443, "webhook": {"enabled": false}}),
        json!({"logLevel": "WARN", "webhook": {"logLevel": "warning, kube::client=trace,[span]=info"}}),
        json!({"logLevel": "3", "webhook": {"logLevel": "debug,"}}),
        json!({"logLevel": "kube=,a[b{c}]=DEBUG", "webhook": {"logLevel": ""}}),
        json!({"securityContext": null, "podLabels": null}),
        json!({"dhcpMode": "builtin", "dhcp": {"enabled": true, "interface": "vlan20", "leaseLimit": 1, "replicaCount": 1}}),
        json!({"dhcpMode": "kube-vip", "dhcp": {"enabled": true}}),
        json!({"serviceInterfaces": ["vlan20", "bond0.30"]}),
    ] {
        let objects = rendered(&world, &values).await;
        let objects = objects.with_context(|| values.to_string())?;
        object(&objects, "Deployment", "harvester-lb-operator")?;
    }
    // Labels of a site replace those of the chart, and each key is there once: the documents are read strictly.
    let (part_of, version) = ("app.kubernetes.io/part-of", "app.kubernetes.io/version");
    let mine = json!({part_of: "mine", version: "", "team": "a"});
    let labelled = json!({"enabled": true, "labels": mine});
    let values = json!({
        "podLabels": mine,
        "monitoring": {"serviceMonitor": labelled, "prometheusRule": labelled, "dashboard": labelled},
    });
    let objects = rendered(&world, &values).await?;
    for (kind, name, at) in [
        (
            "Deployment",
            "harvester-lb-operator",
            "/spec/template/metadata/labels",
        ),
        (
            "ServiceMonitor",
            "harvester-lb-operator",
            "/metadata/labels",
        ),
        ("ServiceMonitor", "harvester-lb-webhook", "/metadata/labels"),
        (
            "PrometheusRule",
            "harvester-lb-operator",
            "/metadata/labels",
        ),
        ("ConfigMap", "harvester-lb-dashboard", "/metadata/labels"),
    ] {
        let found = object(&objects, kind, name)?.pointer(at).cloned();
        let found = found.context(kind)?;
        let is_mine = mine
            .as_object()
            .into_iter()
            .flatten()
            .all(|(key, value)| found[key] == *value);
        ensure!(
            is_mine && !found["helm.sh/chart"].is_null(),
            "{kind} {name}: {found}"
        );
    }
    Ok(())
}

/// Values of the Go operator's chart, each set.
pub fn of_the_go_operator() -> Value {
    json!({
        "replicaCount": 3,
        "image": {"repository": "registry/lb", "pullPolicy": "Always", "tag": "master-head"},
        "serviceAccount": {"create": true, "annotations": {"a": "b"}, "name": "lb-account"},
        "securityContext": {"runAsUser": 1000},
        "resources": {
            "limits": {"cpu": "100m", "memory": "128Mi"}, "requests": {"cpu": "10m", "memory": "64Mi"},
        },
        "nodeSelector": {"zone": "a"},
        "tolerations": [{"key": "k", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "webhook": {
            "replicasCount": 1,
            "image": {"repository": "registry/lb-webhook", "pullPolicy": "Always", "tag": "head"},
            "httpsPort": 9443,
            "resources": {
                "limits": {"cpu": "100m", "memory": "512Mi"}, "requests": {"cpu": "10m", "memory": "128Mi"},
            },
        },
    })
}

/// What Harvester's managed chart sets for its subchart.
pub fn of_the_managed_chart() -> Value {
    json!({
        "enabled": true,
        "global": {"cattle": {}},
        "image": {
            "imagePullPolicy": "Always", "repository": "rancher/harvester-load-balancer", "tag": "v1.7.0",
        },
        "webhook": {"image": {
            "imagePullPolicy": "IfNotPresent", "repository": "rancher/harvester-load-balancer-webhook",
            "tag": "v1.7.0",
        }},
    })
}

pub async fn chart_takes_the_values_of_the_go_operator_s_chart(
    world: Arc<World>,
) -> anyhow::Result<()> {
    let values = of_the_go_operator();
    let objects = rendered(&world, &values).await?;
    let operator = &object(&objects, "Deployment", "harvester-lb-operator")?["spec"];
    let webhook = &object(&objects, "Deployment", "harvester-lb-webhook")?["spec"];
    let pod = &operator["template"]["spec"];
    let [container, of_webhook] =
        [operator, webhook].map(|spec| &spec["template"]["spec"]["containers"][0]);
    let expected = [
        (&operator["replicas"], json!(3)),
        (&container["image"], json!("registry/lb:master-head")),
        (&container["imagePullPolicy"], json!("Always")),
        (&container["command"], json!(["harvester-load-balancer"])),
        (&container["resources"], values["resources"].clone()),
        (&container["securityContext"]["runAsUser"], json!(1000)),
        (&pod["serviceAccountName"], json!("lb-account")),
        (&pod["nodeSelector"], values["nodeSelector"].clone()),
        (&pod["tolerations"], values["tolerations"].clone()),
        (&pod["affinity"], values["affinity"].clone()),
        (&webhook["replicas"], json!(1)),
        (&of_webhook["image"], json!("registry/lb-webhook:head")),
        (&of_webhook["imagePullPolicy"], json!("Always")),
        (&of_webhook["ports"][0]["containerPort"], json!(9443)),
        (
            &of_webhook["resources"],
            values["webhook"]["resources"].clone(),
        ),
    ];
    for (found, wanted) in expected {
        ensure!(*found == wanted, "{found} is not {wanted}");
    }
    let account = object(&objects, "ServiceAccount", "lb-account")?;
    ensure!(account["metadata"]["annotations"] == json!({"a": "b"}));

    let objects = rendered(&world, &of_the_managed_chart()).await?;
    let operator = &object(&objects, "Deployment", "harvester-lb-operator")?["spec"];
    let container = &operator["template"]["spec"]["containers"][0];
    ensure!(container["imagePullPolicy"] == "Always", "{container}");
    ensure!(operator["replicas"] == 2, "{operator}");
    // The spelling of older charts.
    let objects = rendered(&world, &json!({"replicasCount": 1})).await?;
    let operator = object(&objects, "Deployment", "harvester-lb-operator")?;
    ensure!(operator["spec"]["replicas"] == 1, "{operator}");
    Ok(())
}
