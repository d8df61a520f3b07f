//! Versions at the webhook's own port: of TLS, of reviews, and of what they are about.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use harvester_lb_e2e::World;
use harvester_lb_fixtures::vm_spec;
use rustls::version::{TLS12, TLS13};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::stage::{finish, one};
use crate::tls::{address, bundle, connect, connector, connector_of, post};

const VALIDATION: &str = "/v1/webhook/validation";
const MUTATION: &str = "/v1/webhook/mutation";
const CONVERSION: &str = "/v1/webhook/conversion";

pub async fn section_1_versions_of_tls_and_of_reviews(world: Arc<World>) -> anyhow::Result<()> {
    let replica = one(&world).await?;
    let (at, bundle) = (address(&world, "node1")?, bundle(&world).await?);
    for version in [&TLS12, &TLS13] {
        let connector = connector_of(&bundle, &[version])?;
        let stream = connect(&connector, at).await?;
        let (_, session) = stream.get_ref();
        let spoken = session.protocol_version();
        ensure!(spoken == Some(version.version), "{spoken:?}");
        reviews(&connector, at).await?;
    }
    // rustls speaks nothing older, so the first message is written here: that of 1.0, of 1.1, and of 1.2 to compare with.
    for (minor, is_refused) in [(1, true), (2, true), (3, false)] {
        let answer = answer_to(at, &client_hello(minor)?).await?;
        // An alert: fatal, protocol_version.
        let is_alert = answer[0] == 21 && answer[5..] == [2, 70];
        ensure!(is_alert == is_refused, "3.{minor}: {answer:?}");
    }
    other_reviews(&connector(&bundle)?, at).await?;
    finish(&world, &[&replica]).await
}

/// The first message of a handshake for the version 3.`minor`, without the extension by which 1.3 is offered.
fn client_hello(minor: u8) -> anyhow::Result<Vec<u8>> {
    let mut body = vec![3, minor];
    body.extend([7; 32]);
    // No session. TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 and _CBC_SHA. No compression.
    body.extend([0, 0, 4, 0xc0, 0x2b, 0xc0, 0x09, 1, 0]);
    let groups: [u8; 8] = [0, 10, 0, 4, 0, 2, 0, 23];
    let signatures: [u8; 8] = [0, 13, 0, 4, 0, 2, 4, 3];
    body.extend([0, 16]);
    body.extend([groups, signatures].concat());
    let length = u8::try_from(body.len())?;
    let head = [22, 3, 1, 0, length + 4, 1, 0, 0, length];
    Ok([head.as_slice(), &body].concat())
}

/// The first bytes of the answer to such a message: the head of a record, and two bytes of its content.
async fn answer_to(at: SocketAddr, message: &[u8]) -> anyhow::Result<[u8; 7]> {
    let mut answer = [0; 7];
    let exchange = async {
        let mut stream = TcpStream::connect(at).await?;
        stream.write_all(message).await?;
        stream.read_exact(&mut answer).await
    };
    let exchange = tokio::time::timeout(Duration::from_secs(10), exchange).await;
    exchange.context("no answer in time")??;
    Ok(answer)
}

/// An AdmissionReview of this version, of a LoadBalancer of that version.
fn admission(version: &str, of: &str) -> Value {
    let group = "loadbalancer.harvesterhci.io";
    json!({
        "apiVersion": version, "kind": "AdmissionReview",
        "request": {
            "uid": "r-1", "operation": "CREATE", "namespace": "a", "name": "b",
            "kind": {"group": group, "version": of, "kind": "LoadBalancer"},
            "object": {
                "apiVersion": format!("{group}/{of}"), "kind": "LoadBalancer",
                "metadata": {"namespace": "a", "name": "b"}, "spec": vm_spec("web"),
            },
        },
    })
}

/// A ConversionReview of this version, of a LoadBalancer of v1beta1 to that version.
fn conversion(version: &str, to: &str) -> Value {
    let group = "loadbalancer.harvesterhci.io";
    json!({
        "apiVersion": version, "kind": "ConversionReview",
        "request": {
            "uid": "r-1", "desiredAPIVersion": format!("{group}/{to}"),
            "objects": [{
                "apiVersion": format!("{group}/v1beta1"), "kind": "LoadBalancer",
                "metadata": {"namespace": "a", "name": "b"}, "spec": vm_spec("web"),
            }],
        },
    })
}

/// Posts a review, which is answered in its own version: its response.
async fn response(
    connector: &TlsConnector,
    at: SocketAddr,
    path: &str,
    review: &Value,
) -> anyhow::Result<Value> {
    let (code, body) = post(connector, at, path, review.to_string().as_bytes()).await?;
    ensure!(code == 200, "{path}: {code} to {review}");
    let mut answer: Value = serde_json::from_slice(&body)?;
    for field in ["apiVersion", "kind"] {
        ensure!(answer[field] == review[field], "{path}: {answer}");
    }
    ensure!(answer["response"]["uid"] == "r-1", "{path}: {answer}");
    Ok(answer["response"].take())
}

/// The versions that are served.
async fn reviews(connector: &TlsConnector, at: SocketAddr) -> anyhow::Result<()> {
    for path in [VALIDATION, MUTATION] {
        for version in ["admission.k8s.io/v1", "admission.k8s.io/v1beta1"] {
            let review = admission(version, "v1beta1");
            let response = response(connector, at, path, &review).await?;
            ensure!(response["allowed"] == true, "{response}");
        }
    }
    let review = conversion("apiextensions.k8s.io/v1", "v1alpha1");
    let response = response(connector, at, CONVERSION, &review).await?;
    ensure!(response["result"]["status"] == "Success", "{response}");
    Ok(())
}

/// Other versions: a review of one is no review, an object of one fails.
async fn other_reviews(connector: &TlsConnector, at: SocketAddr) -> anyhow::Result<()> {
    let of_v1 = admission("admission.k8s.io/v1", "v1beta1");
    let to_v1alpha1 = conversion("apiextensions.k8s.io/v1", "v1alpha1");
    let none = [
        (VALIDATION, admission("admission.k8s.io/v2", "v1beta1")),
        (MUTATION, admission("admission.k8s.io/v1alpha1", "v1beta1")),
        (VALIDATION, admission("", "v1beta1")),
        (
            CONVERSION,
            conversion("apiextensions.k8s.io/v1beta1", "v1alpha1"),
        ),
        (
            CONVERSION,
            conversion("apiextensions.k8s.io/v2", "v1alpha1"),
        ),
        (VALIDATION, to_v1alpha1.clone()),
        (MUTATION, to_v1alpha1),
        (CONVERSION, of_v1),
    ];
    for (path, review) in none {
        let (code, _) = post(connector, at, path, review.to_string().as_bytes()).await?;
        ensure!(code == 400, "{path}: {code} to {review}");
    }
    let review = admission("admission.k8s.io/v1", "v1alpha1");
    let refused = response(connector, at, VALIDATION, &review).await?;
    ensure!(
        refused["allowed"] == false && refused["status"]["code"] == 422,
        "{refused}"
    );
    for to in ["v2", "v1beta1"] {
        let review = conversion("apiextensions.k8s.io/v1", to);
        let failed = response(connector, at, CONVERSION, &review).await?;
        ensure!(failed["result"]["status"] == "Failure", "{to}: {failed}");
    }
    Ok(())
}
