//! Clients of the API server: one for watches, one for requests that end.
//!
//! They differ in their timeouts: an idle watch is normal, a silent request is not. Neither retries by itself: a retry
//! inside the client would hide an overloaded API server from the caller that decides about the back-off. Both count
//! their requests.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use anyhow::ensure;
use axum::http::HeaderValue;
use futures::future::BoxFuture;
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, KubeconfigError};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service};

/// Timeout for establishing a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Read timeout of the write client.
const READ_TIMEOUT: Duration = Duration::from_secs(15);
/// Read timeout of a watch (RUN-2): above the longest watch timeout that is requested, 40 s.
const WATCH_TIMEOUT: Duration = Duration::from_secs(45);

/// Observes each request: verb, resource, status code (0: no answer) and duration.
pub trait RequestObserver: Send + Sync + 'static {
    /// A request has ended.
    fn request(&self, verb: &'static str, resource: &str, code: u16, duration: Duration);
}

/// The observer of the client of a command that runs to completion: nobody reads its metrics.
pub struct Unobserved;

impl RequestObserver for Unobserved {
    fn request(&self, _: &'static str, _: &str, _: u16, _: Duration) {}
}

/// The two clients of a process.
#[derive(Clone)]
pub struct Clients {
    /// For watches.
    pub watch: Client,
    /// For requests that end: reads, writes, Leases, Events.
    pub write: Client,
}

/// Clients configured by `KUBECONFIG` or its default path, else by the pod's service account.
pub async fn connect(observer: Arc<dyn RequestObserver>) -> anyhow::Result<Clients> {
    let config = config().await?;
    clients(&config, &observer)
}

/// As [`Config::infer`], which would log the part of a kubeconfig that it cannot parse, and so the token if that is
/// where the file is broken.
async fn config() -> anyhow::Result<Config> {
    let from_file = Config::from_kubeconfig(&KubeConfigOptions::default()).await;
    from_file.or_else(|from_file| {
        Config::incluster().map_err(|in_cluster| {
            anyhow::anyhow!(
                "no configuration for the API server: {}; {in_cluster}. Set KUBECONFIG, or run in a pod with a service account",
                without_content(&from_file)
            )
        })
    })
}

/// The error of a kubeconfig, without any of its content.
fn without_content(error: &KubeconfigError) -> String {
    let KubeconfigError::Parse(error) = error else {
        return error.to_string();
    };
    match error.location() {
        Some(at) => format!(
            "the kubeconfig is broken in line {}, column {}",
            at.line(),
            at.column()
        ),
        None => "the kubeconfig is broken".to_owned(),
    }
}

/// Clients for a given configuration.
pub fn clients(config: &Config, observer: &Arc<dyn RequestObserver>) -> anyhow::Result<Clients> {
    check_token(config)?;
    let build = |read_timeout| -> anyhow::Result<Client> {
        let mut config = config.clone();
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        config.read_timeout = Some(read_timeout);
        config.default_retry = false;
        Ok(ClientBuilder::try_from(config)?
            .with_layer(&CountLayer {
                observer: Arc::clone(observer),
            })
            .build())
    };
    Ok(Clients {
        watch: build(WATCH_TIMEOUT)?,
        write: build(READ_TIMEOUT)?,
    })
}

/// A token that no HTTP header can hold, for instance one with a line break, would make the client panic.
fn check_token(config: &Config) -> anyhow::Result<()> {
    let auth = serde_json::to_value(&config.auth_info)?;
    let token = auth["token"].as_str().unwrap_or_default();
    ensure!(
        HeaderValue::from_str(token).is_ok(),
        "the token for the API server has characters that cannot be sent, such as a line break: correct it in the kubeconfig"
    );
    Ok(())
}

#[derive(Clone)]
struct CountLayer {
    observer: Arc<dyn RequestObserver>,
}

impl<S> Layer<S> for CountLayer {
    type Service = Count<S>;

    fn layer(&self, inner: S) -> Count<S> {
        Count {
            inner,
            observer: Arc::clone(&self.observer),
        }
    }
}

#[derive(Clone)]
struct Count<S> {
    inner: S,
    observer: Arc<dyn RequestObserver>,
}

type Request = axum::http::Request<Body>;

impl<S, B> Service<Request> for Count<S>
where
    S: Service<Request, Response = axum::http::Response<B>, Error = BoxError>,
    S::Future: Send + 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let (verb, resource) = describe(
            request.method().as_str(),
            request.uri().path(),
            request.uri().query().unwrap_or_default(),
        );
        let observer = Arc::clone(&self.observer);
        let started = Instant::now();
        let answer = self.inner.call(request);
        Box::pin(async move {
            let answer = answer.await;
            let code = answer
                .as_ref()
                .map_or(0, |response| response.status().as_u16());
            observer.request(verb, &resource, code, started.elapsed());
            answer
        })
    }
}

/// Verb and resource of a request, as Kubernetes' own metrics name them. A path that is not a resource is `other`.
fn describe(method: &str, path: &str, query: &str) -> (&'static str, String) {
    let mut parts = path.trim_matches('/').split('/');
    let rest: Vec<&str> = match parts.next() {
        Some("api") => parts.skip(1).collect(),
        Some("apis") => parts.skip(2).collect(),
        _ => Vec::new(),
    };
    let rest = match rest.as_slice() {
        ["namespaces", _, namespaced @ ..] if !namespaced.is_empty() => namespaced,
        all => all,
    };
    let (resource, named) = match rest {
        [resource] => (*resource, false),
        [resource, _, ..] => (*resource, true),
        [] => ("other", true),
    };
    let verb = match method {
        "GET" if is_watch(query) => "watch",
        "GET" if named => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    (verb, resource.to_owned())
}

/// Whether a query asks for a watch.
pub(crate) fn is_watch(query: &str) -> bool {
    let mut parameters = query.split('&');
    parameters.any(|p| p == "watch=true" || p == "watch=1")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_that_cannot_be_sent_is_an_error_that_does_not_show_it() {
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        assert!(check_token(&config).is_ok());
        config.auth_info.token = Some("abc.def-ghi_jkl".to_owned().into());
        assert!(check_token(&config).is_ok());
        for bad in ["secret\n", "sec\0ret", "secret\u{1}"] {
            config.auth_info.token = Some(bad.to_owned().into());
            let error = check_token(&config).unwrap_err().to_string();
            assert!(
                error.contains("line break") && !error.contains("sec"),
                "{error}"
            );
        }
    }

    #[test]
    fn ops_1_requests_are_named_as_kubernetes_names_them() {
        let cases = [
            ("GET", "/api/v1/services", "limit=500", "list services"),
            (
                "GET",
                "/api/v1/services",
                "watch=true&timeoutSeconds=9",
                "watch services",
            ),
            ("GET", "/api/v1/namespaces/a/services/b", "", "get services"),
            (
                "POST",
                "/api/v1/namespaces/a/services",
                "",
                "create services",
            ),
            (
                "PATCH",
                "/apis/loadbalancer.harvesterhci.io/v1beta1/namespaces/a/loadbalancers/b",
                "",
                "patch loadbalancers",
            ),
            (
                "PUT",
                "/apis/loadbalancer.harvesterhci.io/v1beta1/ipallocations/10.0.0.1",
                "",
                "update ipallocations",
            ),
            (
                "GET",
                "/apis/loadbalancer.harvesterhci.io/v1beta1",
                "",
                "get other",
            ),
            ("GET", "/version", "", "get other"),
            (
                "DELETE",
                "/api/v1/namespaces/a/services/b",
                "",
                "delete services",
            ),
        ];
        for (method, path, query, expected) in cases {
            let (verb, resource) = describe(method, path, query);
            assert_eq!(format!("{verb} {resource}"), expected, "{method} {path}");
        }
    }
}
