//! The examples of docs/airgap.md, run as they are shown: the archive goes through a real registry unchanged, and a
//! packed chart into a HelmChart object.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_e2e::image::{NAME, archive, with_tools};
use harvester_lb_e2e::world::{SOON, repository};
use harvester_lb_testkit::Netns;
use serde_json::{Value, json};

/// Namespace with the registry.
const PLACE: &str = "client";
/// The registry, there.
const REGISTRY: &str = "127.0.0.1:5000";

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
    let version = format!("v{}", env!("CARGO_PKG_VERSION"));
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
    // More than one line of base64.
    let chart: Vec<u8> = (0..2_000_u32).flat_map(u32::to_le_bytes).collect();
    let packed = folder.join("chart.tgz");
    std::fs::write(&packed, &chart)?;
    let script = repository().join("docs/examples/airgap-helmchart.sh");
    let place = world.cluster.netns(PLACE)?;
    let script = script.display().to_string();
    let packed = packed.display().to_string();
    let text = place.output(&script, &[&packed, "registry.example.com:5000"])?;
    let object: Value = serde_saphyr::from_str(&text).with_context(|| text.clone())?;
    ensure!(object["apiVersion"] == "helm.cattle.io/v1" && object["kind"] == "HelmChart");
    let content = object["spec"]["chartContent"]
        .as_str()
        .context("no chart")?;
    ensure!(decoded(&place, &folder, content)? == chart);
    let values = object["spec"]["valuesContent"]
        .as_str()
        .context("no values")?;
    let values: Value = serde_saphyr::from_str(values)?;
    let repository = "registry.example.com:5000/rancher/harvester-load-balancer";
    ensure!(values["image"]["repository"] == repository, "{values}");
    let incomplete = place.output(&script, &[&packed]);
    ensure!(incomplete.is_err(), "without a registry: {incomplete:?}");
    Ok(())
}

fn decoded(place: &Netns, folder: &Path, text: &str) -> anyhow::Result<Vec<u8>> {
    let (encoded, plain) = (folder.join("encoded"), folder.join("plain"));
    std::fs::write(&encoded, text)?;
    let (from, to) = (encoded.display().to_string(), plain.display().to_string());
    place.output(
        "sh",
        &["-euc", "base64 -d <\"$1\" >\"$2\"", "sh", &from, &to],
    )?;
    Ok(std::fs::read(&plain)?)
}
