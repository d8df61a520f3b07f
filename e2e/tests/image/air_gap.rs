//! The examples of docs/airgap.md, run as they are shown: the archive goes through a real registry unchanged, and the
//! packed chart through a HelmChart object.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::image::{NAME, archive, with_tools};
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_e2e::{World, foreign};
use harvester_lb_testkit::{Netns, eventually};
use serde_json::{Value, json};

/// Namespace with the registry.
const PLACE: &str = "client";
/// The registry, there.
const REGISTRY: &str = "127.0.0.1:5000";
/// Version and kind of the object with the chart.
const HELM_CHART: (&str, &str) = ("helm.cattle.io/v1", "HelmChart");
/// The chart, and the version of it and of the image.
const CHART: &str = "harvester-load-balancer";
const VERSION: &str = env!("CARGO_PKG_VERSION");

pub async fn air_gap_the_image_goes_through_a_registry(world: Arc<World>) -> anyhow::Result<()> {
    let folder = world.cluster.folder().join("registry");
    std::fs::create_dir_all(&folder)?;
    let config = json!({
        "version": 0.1, "log": {"level": "warn"},
        "storage": {"filesystem": {"rootdirectory": folder.join("data")}},
        "http": {"addr": REGISTRY},
    });
    let config_file = folder.join("config.yaml");
    std::fs::write(&config_file, config.to_string())?;
    let place = world.cluster.netns(PLACE)?;
    let mut arguments = with_tools("exec docker-registry serve \"$1\"");
    arguments.push(config_file.display().to_string());
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let registry = world
        .cluster
        .spawn(PLACE, "sh", &arguments, &[], "registry")?;
    registry
        .ready(SOON, || async {
            Ok(place
                .run(|| std::net::TcpStream::connect(REGISTRY))?
                .is_ok())
        })
        .await?;

    let archive = archive()?.display().to_string();
    // A containerd that imports the archive gives the image this name.
    let index = place.output("tar", &["-xOf", &archive, "index.json"])?;
    let index: Value = serde_json::from_str(&index)?;
    let name = &index["manifests"][0]["annotations"]["org.opencontainers.image.ref.name"];
    ensure!(*name == format!("docker.io/{NAME}"), "{index}");

    let pushed = format!("{REGISTRY}/{NAME}");
    let script = repository().join("docs/examples/airgap-registry.sh");
    let script = script.display().to_string();
    let insecure = "--dest-tls-verify=false";
    tools(
        &place,
        "SKOPEO='skopeo --insecure-policy' exec \"$@\"",
        &[&script, &archive, &pushed, insecure],
    )?;

    // What a node pulls is what was built.
    let here = inspect(&place, &format!("oci-archive:{archive}"))?;
    let there = inspect(&place, &format!("docker://{pushed}"))?;
    ensure!(here["Digest"] == there["Digest"], "{here} and {there}");
    let labels = &here["Labels"];
    let version = format!("v{VERSION}");
    ensure!(
        labels["org.opencontainers.image.version"] == version,
        "{labels}"
    );
    let bill = &labels["io.harvesterhci.load-balancer.sbom.sha256"];
    ensure!(
        bill.as_str().is_some_and(|text| text.len() == 64),
        "{labels}"
    );
    registry.kill9()
}

/// Runs a shell command with the tools, and returns its standard output.
fn tools(place: &Netns, command: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let all = with_tools(command);
    let all = all.iter().map(String::as_str);
    let all: Vec<&str> = all.chain(arguments.iter().copied()).collect();
    place.output("sh", &all)
}

fn inspect(place: &Netns, image: &str) -> anyhow::Result<Value> {
    let command = "exec skopeo --insecure-policy inspect --tls-verify=false --no-tags \"$1\"";
    let text = tools(place, command, &[image])?;
    serde_json::from_str(&text).context(text)
}

pub async fn air_gap_the_chart_goes_into_an_object(world: Arc<World>) -> anyhow::Result<()> {
    let folder = world.cluster.folder().join("helm-chart");
    std::fs::create_dir_all(&folder)?;
    let place = world.cluster.netns(PLACE)?;
    let chart = repository().join("charts").join(CHART);
    let (chart, to) = (chart.display().to_string(), folder.display().to_string());
    helm(&place, &folder, &["package", &chart, "--destination", &to])?;
    let packed = folder.join(format!("{CHART}-{VERSION}.tgz"));
    let chart = std::fs::read(&packed)?;

    let script = repository().join("docs/examples/airgap-helmchart.sh");
    let script = script.display().to_string();
    let packed = packed.display().to_string();
    let text = place.output(&script, &[&packed, "registry.example.com"])?;
    let incomplete = place.output(&script, &[&packed]);
    ensure!(incomplete.is_err(), "without a registry: {incomplete:?}");

    // The fields of the controller's definition that the script writes; kubectl refuses others.
    let any = json!({"type": "string"});
    let spec = json!({"type": "object", "properties": {
        "targetNamespace": any, "chartContent": any, "valuesContent": any,
        "failurePolicy": {"type": "string", "enum": ["abort", "reinstall"]},
    }});
    let (api_version, kind) = HELM_CHART;
    foreign::define(&world, api_version, kind, &spec).await?;
    // As it is, and with what a Harvester cluster needs, below `valuesContent`.
    for (more, definitions) in [("", 3), ("    crds: {manage: own}\n", 1)] {
        let spec = applied(&world, &folder, &format!("{text}{more}")).await?;
        let objects = rendered(&place, &folder, &spec, &chart)?;
        is_complete(&objects)?;
        let kinds = objects.iter().map(|object| &object["kind"]);
        let found = kinds.filter(|kind| *kind == "CustomResourceDefinition");
        let found = found.count();
        ensure!(found == definitions, "{more:?}: {found} definitions");
    }
    Ok(())
}

/// Runs helm, whose caches are in the folder.
fn helm(place: &Netns, folder: &Path, args: &[&str]) -> anyhow::Result<String> {
    let home = format!("HOME={}", folder.display());
    place.output("env", &[&[&*home, "helm"][..], args].concat())
}

/// Applies a HelmChart with kubectl, and returns its spec as the API server has it.
async fn applied(world: &World, folder: &Path, text: &str) -> anyhow::Result<Value> {
    let file = folder.join("helmchart.yaml");
    std::fs::write(&file, text)?;
    let file = file.display().to_string();
    eventually("the HelmChart is applied", SOON, || async {
        let apply = ["apply", "-f", &file];
        world.cluster.kubectl(&apply).await.map(Some)
    })
    .await?;
    let (api_version, kind) = HELM_CHART;
    let place = Some("kube-system");
    let found = world.cluster.get(api_version, kind, place, "harvester-lb");
    let found = found.await?.context("no HelmChart harvester-lb")?;
    Ok(found.data["spec"].clone())
}

/// What the controller's job would install: the chart that is in the object, which must be this one, with the object's values.
fn rendered(
    place: &Netns,
    folder: &Path,
    spec: &Value,
    chart: &[u8],
) -> anyhow::Result<Vec<Value>> {
    let field = |name: &str| spec[name].as_str().with_context(|| format!("no {name}"));
    let file = |name: &str| folder.join(name).display().to_string();
    let (encoded, decoded, values) = (file("chart.base64"), file("chart.tgz"), file("values"));
    std::fs::write(&encoded, field("chartContent")?)?;
    std::fs::write(&values, field("valuesContent")?)?;
    let decode = "base64 -d <\"$1\" >\"$2\"";
    place.output("sh", &["-euc", decode, "sh", &encoded, &decoded])?;
    ensure!(std::fs::read(&decoded)? == chart, "another chart");
    let namespace = field("targetNamespace")?;
    let release = ["template", "harvester-lb", &decoded];
    let flags = ["--namespace", namespace, "--values", &values];
    let text = helm(place, folder, &[release.as_slice(), &flags].concat())?;
    Ok(serde_saphyr::from_multiple(&text)?)
}

/// Fails unless operator and webhook are among the objects, with the image of the registry.
fn is_complete(objects: &[Value]) -> anyhow::Result<()> {
    let find = |kind: &str, name: &str| {
        let is_it = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == name;
        let found = objects.iter().find(is_it);
        found.with_context(|| format!("no {kind} {name}"))
    };
    let image = format!("registry.example.com/rancher/{CHART}:v{VERSION}");
    for name in ["harvester-lb-operator", "harvester-lb-webhook"] {
        find("Service", name)?;
        let deployment = find("Deployment", name)?;
        let namespace = &deployment["metadata"]["namespace"];
        ensure!(*namespace == "harvester-system", "{name}: {namespace}");
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        ensure!(container["image"] == image, "{container}");
    }
    Ok(())
}
