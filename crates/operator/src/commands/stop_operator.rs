//! `stop-operator` (OPS-2): ends an operator that runs as a Deployment, for the chart's hooks: `export` after it has the
//! last word, and the next operator finds the Lease free.
//!
//! The image of the operator has no shell and no kubectl, so this is a command of it. It needs `get` on the Deployment,
//! `patch` on its scale, `list` on Pods, and `get` on the Lease.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use harvester_lb_controller_kit::client;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::core::Selector;
use kube::{Api, Client, ResourceExt};
use tokio::time::{Instant, sleep};
use tracing::info;

use crate::args::StopOperatorArgs;
use crate::commands::deployment::scale_to_0;
use crate::commands::lease_holder;

/// Time between two looks.
const PAUSE: Duration = Duration::from_secs(1);

/// Scales the Deployment to 0, and waits until none of its Pods runs and none holds the Lease.
///
/// # Errors
/// The API server refuses a request, or the time is over; the error names what remains.
pub async fn run(args: &StopOperatorArgs) -> anyhow::Result<()> {
    let clients = client::connect(Arc::new(client::Unobserved)).await?;
    stop(&clients.write, args).await
}

async fn stop(client: &Client, args: &StopOperatorArgs) -> anyhow::Result<()> {
    let deadline = Instant::now() + args.timeout;
    let operator = Operator {
        client,
        namespace: &args.namespace,
        name: &args.deployment,
    };
    let mut scaled = false;
    loop {
        let remains = match operator.look(&mut scaled).await {
            Ok(None) => return Ok(()),
            Ok(Some(remains)) => remains,
            // Time may help.
            Err(Failure::Passing(error)) => error.to_string(),
            Err(Failure::Final(error)) => return Err(error),
        };
        if Instant::now() + PAUSE > deadline {
            bail!(
                "Deployment {}/{} is not stopped after {:?}: {remains}",
                args.namespace,
                args.deployment,
                args.timeout
            );
        }
        sleep(PAUSE).await;
    }
}

/// Why a look failed.
enum Failure {
    /// The API server was not available, or the object has changed.
    Passing(WriteError),
    Final(anyhow::Error),
}

impl From<WriteError> for Failure {
    fn from(error: WriteError) -> Self {
        if error.is_refusal() {
            Self::Final(error.into())
        } else {
            Self::Passing(error)
        }
    }
}

/// The operator that is to stop.
struct Operator<'a> {
    client: &'a Client,
    namespace: &'a str,
    name: &'a str,
}

impl Operator<'_> {
    /// Scales it to 0 unless that was done, and returns what remains of it; `None` if it is stopped.
    async fn look(&self, scaled: &mut bool) -> Result<Option<String>, Failure> {
        let (namespace, name) = (self.namespace, self.name);
        let deployments: Api<Deployment> = Api::namespaced(self.client.clone(), namespace);
        let Some(deployment) = bounded(deployments.get_opt(name)).await? else {
            info!(namespace, name, "no such Deployment, nothing to stop");
            return Ok(None);
        };
        if !*scaled {
            scale_to_0(self.client, namespace, name).await?;
            *scaled = true;
        }
        let pods = self.pods(&deployment).await?;
        if !pods.is_empty() {
            return Ok(Some(format!("still running: Pods {}", pods.join(", "))));
        }
        match lease_holder::current(self.client).await? {
            Some(holder) if self.is_pod(&holder) => {
                // It was killed, and its Lease has to expire.
                Ok(Some(format!("the Lease is held by {holder}")))
            }
            Some(holder) => {
                info!(holder, "operator stopped; another process holds the Lease");
                Ok(None)
            }
            None => {
                info!("operator stopped, the Lease is free");
                Ok(None)
            }
        }
    }

    /// Names of its Pods that have not ended.
    async fn pods(&self, deployment: &Deployment) -> Result<Vec<String>, Failure> {
        let spec = deployment.spec.as_ref();
        let selector = spec.map(|spec| spec.selector.clone()).unwrap_or_default();
        let selector = Selector::try_from(selector)
            .with_context(|| format!("selector of Deployment {}", self.name))
            .map_err(Failure::Final)?;
        let api: Api<Pod> = Api::namespaced(self.client.clone(), self.namespace);
        let list = bounded(api.list(&ListParams::default().labels_from(&selector))).await?;
        let runs = |pod: &&Pod| {
            let phase = pod.status.as_ref().and_then(|s| s.phase.as_deref());
            !matches!(phase, Some("Succeeded" | "Failed"))
        };
        Ok(list
            .iter()
            .filter(runs)
            .map(ResourceExt::name_any)
            .collect())
    }

    /// Whether the holder of the Lease is one of its Pods: an identity begins with the host name, which is the Pod's name.
    fn is_pod(&self, holder: &str) -> bool {
        let rest = holder.strip_prefix(self.name);
        rest.is_some_and(|rest| rest.starts_with('-'))
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use jiff::Timestamp;
    use serde_json::{Value, json};

    use super::*;
    use crate::commands::lease_holder::tests::{PATH as LEASE, lease};
    use crate::fake::FakeApiServer;

    const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/sys/deployments/lb-operator";
    const SCALE: &str = "/apis/apps/v1/namespaces/sys/deployments/lb-operator/scale";
    const PODS: &str = "/api/v1/namespaces/sys/pods";

    fn pods(phases: &[(&str, &str)]) -> Value {
        let pod = |(name, phase): &(&str, &str)| json!({"metadata": {"name": name}, "status": {"phase": phase}});
        json!({"metadata": {}, "items": phases.iter().map(pod).collect::<Vec<_>>()})
    }

    /// A Deployment with these Pods.
    fn server(phases: &[(&str, &str)]) -> FakeApiServer {
        let server = FakeApiServer::default();
        let labels = json!({"app": "lb"});
        server.put(
            DEPLOYMENT,
            json!({
                "metadata": {"namespace": "sys", "name": "lb-operator"},
                "spec": {
                    "replicas": 2, "selector": {"matchLabels": labels},
                    "template": {"metadata": {"labels": labels}},
                },
            }),
        );
        let metadata = json!({"namespace": "sys", "name": "lb-operator", "resourceVersion": "7"});
        server.put(
            SCALE,
            json!({"metadata": metadata, "spec": {"replicas": 2}}),
        );
        server.put(PODS, pods(phases));
        server
    }

    async fn stopped(server: &FakeApiServer) -> anyhow::Result<()> {
        let args = StopOperatorArgs {
            namespace: "sys".to_owned(),
            deployment: "lb-operator".to_owned(),
            timeout: Duration::from_secs(10),
        };
        stop(&server.client(), &args).await
    }

    fn held_by(server: &FakeApiServer, holder: &str) {
        let held = lease(holder, &Timestamp::now().to_string());
        server.put(LEASE, serde_json::to_value(held).unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn ops_2_stop_scales_to_0_and_waits_for_the_pods() {
        let server = server(&[("lb-operator-a", "Running"), ("lb-operator-old", "Failed")]);
        let later = server.clone();
        let began = Instant::now();
        tokio::spawn(async move {
            sleep(Duration::from_millis(3500)).await;
            later.put(PODS, pods(&[("lb-operator-old", "Failed")]));
        });
        stopped(&server).await.unwrap();
        assert_eq!(began.elapsed(), Duration::from_secs(4));
        // Once, however long the Pods take.
        let writes = server.writes();
        let [(method, path, body)] = &writes[..] else {
            panic!("{writes:?}")
        };
        assert_eq!((method, &**path), (&Method::PATCH, SCALE));
        assert_eq!(*body, json!({"spec": {"replicas": 0}}));
    }

    #[tokio::test(start_paused = true)]
    async fn ops_2_stop_names_what_remains_when_the_time_is_over() {
        let server = server(&[("lb-operator-a", "Running")]);
        let error = stopped(&server).await.unwrap_err().to_string();
        assert!(
            error.contains("sys/lb-operator") && error.contains("Pods lb-operator-a"),
            "{error}"
        );
        server.put(PODS, pods(&[]));
        held_by(&server, "lb-operator-a_uid");
        let error = stopped(&server).await.unwrap_err().to_string();
        assert!(error.contains("held by lb-operator-a_uid"), "{error}");
    }

    #[tokio::test(start_paused = true)]
    async fn ops_2_stop_does_not_wait_for_the_lease_of_others() {
        for holder in ["go-operator-b", "lb-operator2-a_uid", "node1_uid"] {
            let server = server(&[]);
            held_by(&server, holder);
            stopped(&server).await.unwrap();
        }
    }

    #[tokio::test(start_paused = true)]
    async fn ops_2_stop_of_nothing_is_done() {
        let server = FakeApiServer::default();
        stopped(&server).await.unwrap();
        assert!(server.writes().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn ops_2_stop_fails_at_once_if_it_is_refused() {
        let server = server(&[]);
        server.refuse(Method::PATCH, "/scale");
        let began = Instant::now();
        let error = stopped(&server).await.unwrap_err().to_string();
        assert!(error.contains("Forbidden"), "{error}");
        assert!(began.elapsed().is_zero());
    }
}
