//! What a container's program finds: environment, user, files, its token.

use anyhow::{Context, ensure};
use harvester_lb_testkit::{PodRunner, TestCluster, eventually};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{IMAGE, is_ready, namespace, pod, pod_until, serving};
use crate::support::SOON;

async fn facts(runner: &PodRunner, ns: &str, pod: &str) -> anyhow::Result<Value> {
    let (_, text) = runner.get(ns, pod, 8080, "/facts").await?;
    serde_json::from_str(&text).context(text)
}

pub(crate) async fn pods_find_what_their_spec_says(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let (ns, name) = ("pods-inside", "inside");
    namespace(cluster, ns).await?;
    cluster
        .apply_yaml(&format!(
            "{{apiVersion: v1, kind: Secret, metadata: {{name: s, namespace: {ns}}}, stringData: {{key: hidden}}}}\n---\n\
             {{apiVersion: v1, kind: ConfigMap, metadata: {{name: m, namespace: {ns}}}, data: {{a: one, b: two}}}}\n"
        ))
        .await?;
    let field = |name: &str, path: &str| json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": path}}});
    let container = serving(&json!({
        "args": ["serve"],
        "command": ["/program", "$(MODE)"],
        "workingDir": "/work",
        "envFrom": [{"prefix": "M_", "configMapRef": {"name": "m"}}],
        "env": [
            {"name": "MODE", "value": "container-program"},
            {"name": "TWICE", "value": "$(MODE) $(NONE) $$(MODE)"},
            field("UID", "metadata.uid"), field("IP", "status.podIP"), field("NODE", "spec.nodeName"),
            field("HOST", "status.hostIP"),
            {"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "MAYBE", "valueFrom": {"secretKeyRef": {"name": "none", "key": "key", "optional": true}}},
        ],
        "volumeMounts": [
            {"name": "scratch", "mountPath": "/scratch"}, {"name": "all", "mountPath": "/config"},
            {"name": "all", "mountPath": "/one", "subPath": "m/a"},
        ],
        "securityContext": {
            "readOnlyRootFilesystem": true, "allowPrivilegeEscalation": false, "runAsNonRoot": true,
            "capabilities": {"drop": ["ALL"]},
        },
        "startupProbe": {"tcpSocket": {"port": 8080}, "periodSeconds": 1},
        "livenessProbe": {"exec": {"command": ["/program", "container-program", "true"]}, "periodSeconds": 1},
        "resources": {"limits": {"memory": "64Mi"}},
    }));
    let mut object = pod(ns, name, &container);
    object["metadata"]["labels"] = json!({"app": "x"});
    object["spec"]["securityContext"] = json!({"runAsUser": 1234, "runAsGroup": 5678});
    object["spec"]["hostAliases"] = json!([{"ip": "192.0.2.1", "hostnames": ["alias"]}]);
    object["spec"]["initContainers"] = json!([{
        "name": "before", "image": IMAGE, "args": ["true"],
        "volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
    }]);
    object["spec"]["volumes"] = json!([
        {"name": "scratch", "emptyDir": {}},
        {"name": "all", "projected": {"sources": [
            {"configMap": {"name": "m", "items": [{"key": "a", "path": "m/a"}]}},
            {"secret": {"name": "s"}},
            {"downwardAPI": {"items": [{"path": "labels", "fieldRef": {"fieldPath": "metadata.labels"}}]}},
        ]}},
    ]);
    cluster.apply(&object).await?;
    let seen = pod_until(cluster, ns, name, is_ready).await?;
    let status = seen.status.clone().context("no status")?;
    ensure!(status.phase.as_deref() == Some("Running") && status.start_time.is_some());
    let init = status
        .init_container_statuses
        .context("no init container")?;
    let ended = init[0].state.as_ref().and_then(|s| s.terminated.as_ref());
    ensure!(ended.is_some_and(|end| end.exit_code == 0), "{init:?}");

    let facts = facts(runner, ns, name).await?;
    let env = &facts["env"];
    let ip = runner.address(ns, name)?.to_string();
    ensure!(status.pod_ip.as_deref() == Some(ip.as_str()));
    for (variable, expected) in [
        ("UID", seen.uid().unwrap_or_default()),
        ("IP", ip),
        ("NODE", super::node_of(&seen)),
        ("HOST", status.host_ip.unwrap_or_default()),
        ("SECRET", "hidden".into()),
        ("TWICE", "container-program $(NONE) $(MODE)".into()),
        ("M_a", "one".into()),
        ("M_b", "two".into()),
        ("HOSTNAME", name.into()),
        ("KUBERNETES_SERVICE_HOST", "10.53.0.1".into()),
        ("KUBERNETES_SERVICE_PORT", "443".into()),
    ] {
        ensure!(
            env[variable] == expected,
            "{variable}: {} and not {expected}",
            env[variable]
        );
    }
    for absent in ["MAYBE", "HLB_BED_STAGE", "HLB_BED_CONTAINER", "HOME"] {
        ensure!(env.get(absent).is_none(), "{absent}: {}", env[absent]);
    }
    for (fact, expected) in [
        ("pid", json!(1)),
        ("uid", json!("1234 1234 1234 1234")),
        ("gid", json!("5678 5678 5678 5678")),
        ("capabilities", json!("0000000000000000")),
        ("no_new_privileges", json!("1")),
        ("work_dir", json!("/work")),
        ("args", json!(["/program", "container-program", "serve"])),
        ("writes_root", json!(false)),
        ("writes_dev", json!(false)),
        ("writes_volume", json!(false)),
        ("writes_scratch", json!(true)),
    ] {
        ensure!(
            facts[fact] == expected,
            "{fact}: {} and not {expected}",
            facts[fact]
        );
    }
    for (file, expected) in [
        ("/config/m/a", "one"),
        ("/config/key", "hidden"),
        ("/config/labels", "app=\"x\""),
        ("/one", "one"),
        ("/etc/hostname", "inside\n"),
        ("/proc/sys/kernel/hostname", "inside\n"),
    ] {
        let (_, text) = runner.get(ns, name, 8080, &format!("/read{file}")).await?;
        ensure!(text == expected, "{file}: {text}");
    }
    let (_, hosts) = runner.get(ns, name, 8080, "/read/etc/hosts").await?;
    ensure!(
        hosts.contains("192.0.2.1\talias") && hosts.contains("\tinside\n"),
        "{hosts}"
    );
    let (_, resolv) = runner.get(ns, name, 8080, "/read/etc/resolv.conf").await?;
    ensure!(
        resolv.starts_with("nameserver 192.168.100.1\nsearch pods-inside.svc"),
        "{resolv}"
    );
    let exit = ["/program", "container-program", "whoami"];
    let ran = runner.exec(ns, name, "main", &exit, SOON).await?;
    ensure!(ran.0 == 0, "{ran:?}");
    let (_, account) = runner
        .get(ns, name, 8080, "/read/dev/termination-log")
        .await?;
    ensure!(
        account == "system:serviceaccount:pods-inside:default",
        "{account}"
    );
    let peak = runner.peak_memory_kib(ns, name, "main")?;
    ensure!((1..64 << 10).contains(&peak), "{peak} KiB");
    Ok(())
}

/// Phase, exit code and message of the only container of a Job's Pod.
fn ended(pod: &Pod) -> Option<(String, i32, String)> {
    let status = pod.status.as_ref()?;
    let container = status.container_statuses.as_ref()?.first()?;
    let end = container.state.as_ref()?.terminated.as_ref()?;
    Some((
        status.phase.clone()?,
        end.exit_code,
        end.message.clone().unwrap_or_default(),
    ))
}

pub(crate) async fn pods_of_jobs_end_as_their_programs_do(
    cluster: &TestCluster,
    runner: &PodRunner,
) -> anyhow::Result<()> {
    let ns = "pods-jobs";
    namespace(cluster, ns).await?;
    let account = "system:serviceaccount:pods-jobs:default";
    let jobs = [
        (
            "ok",
            json!(["exit", "0"]),
            "Complete",
            ("Succeeded", 0, "as told: 0"),
        ),
        (
            "bad",
            json!(["exit", "3"]),
            "Failed",
            ("Failed", 3, "as told: 3"),
        ),
        (
            "token",
            json!(["whoami"]),
            "Complete",
            ("Succeeded", 0, account),
        ),
    ];
    for (name, args, ..) in &jobs {
        let container = json!({"name": "main", "image": IMAGE, "args": args});
        cluster
            .apply(&json!({
                "apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": ns},
                "spec": {"backoffLimit": 0, "template": {"spec": {
                    "restartPolicy": "Never", "containers": [container],
                }}},
            }))
            .await?;
    }
    for (name, _, condition, (phase, code, message)) in jobs {
        eventually(&format!("Job {name} {condition}"), SOON, || async {
            let job = cluster.get("batch/v1", "Job", Some(ns), name).await?;
            let status = job.context("no Job")?.data["status"].clone();
            let all = status["conditions"].as_array().cloned().unwrap_or_default();
            let holds = all
                .iter()
                .any(|c| c["type"] == condition && c["status"] == "True");
            ensure!(holds, "{status}");
            Ok(Some(()))
        })
        .await?;
        let labelled = kube::api::ListParams::default().labels(&format!("job-name={name}"));
        let list = super::pods(cluster, ns).list(&labelled).await?;
        let found: Vec<_> = list.iter().filter_map(ended).collect();
        ensure!(
            found == [(phase.into(), code, message.into())],
            "{name}: {found:?}"
        );
        let log = runner.log(ns, &list.items[0].name_any(), "main");
        ensure!(
            name == "token" || log.contains(&format!("ends with {code}")),
            "{log}"
        );
    }
    // The log is had from the node, as helm does it for hooks.
    let log = cluster
        .kubectl(&["logs", "--namespace", ns, "job/bad"])
        .await?;
    ensure!(log == "ends with 3\n", "{log:?}");
    // Finished Pods stay, and are deleted at once with their Job; named before, since it may be gone when the request is answered.
    let list = super::pods(cluster, ns)
        .list(&kube::api::ListParams::default())
        .await?;
    let of_ok = list
        .iter()
        .map(ResourceExt::name_any)
        .find(|name| name.starts_with("ok-"))
        .context("the Pod of Job ok is gone before its Job")?;
    cluster.delete("batch/v1", "Job", Some(ns), "ok").await?;
    super::gone(cluster, ns, &of_ok).await
}

pub(crate) async fn pods_name_and_await_what_is_missing(
    cluster: &TestCluster,
    _runner: &PodRunner,
) -> anyhow::Result<()> {
    let ns = "pods-missing";
    namespace(cluster, ns).await?;
    let mut waiting = pod(
        ns,
        "waiting",
        &serving(&json!({
            "volumeMounts": [{"name": "late", "mountPath": "/late"}],
        })),
    );
    waiting["spec"]["volumes"] = json!([{"name": "late", "configMap": {"name": "late"}}]);
    let unknown = pod(ns, "unknown", &serving(&json!({"image": "none:1"})));
    let mut foreign = pod(ns, "foreign", &serving(&json!({})));
    foreign["spec"]["hostPID"] = true.into();
    for object in [&waiting, &unknown, &foreign] {
        cluster.apply(object).await?;
    }
    let message = |text: &'static str| {
        move |pod: &Pod| {
            let status = pod.status.clone().unwrap_or_default();
            let waiting = status.container_statuses.into_iter().flatten().next();
            let waiting = waiting.and_then(|c| c.state).and_then(|s| s.waiting);
            waiting
                .and_then(|w| w.message)
                .is_some_and(|m| m.contains(text))
        }
    };
    pod_until(
        cluster,
        ns,
        "waiting",
        message("ConfigMap \"late\" not found"),
    )
    .await?;
    pod_until(cluster, ns, "unknown", message("no image \"none:1\"")).await?;
    let text = "does not support: namespaces of the node";
    pod_until(cluster, ns, "foreign", message(text)).await?;
    cluster
        .apply(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "late", "namespace": ns}}))
        .await?;
    pod_until(cluster, ns, "waiting", is_ready).await?;
    Ok(())
}
