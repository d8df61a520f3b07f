//! Whether the API server finds somebody behind the webhook's Service. What does not name the Service yet is not registered
//! before: with failurePolicy Fail the API server would refuse every write in the meantime. A Pod becomes an endpoint when
//! it is ready, and readiness does not depend on the registration.

use std::mem::replace;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use harvester_lb_api::keys::LABEL_SERVICE_NAME;
use harvester_lb_controller_kit::decode_guard::DecodeGuard;
use harvester_lb_controller_kit::writer::{WriteError, bounded};
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::ListParams;
use kube::{Api, Client};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::webhook_names::Names;

/// Interval at which the endpoints are read while the registration waits, and the time for which an answer counts.
const PAUSE: Duration = Duration::from_millis(500);

/// The endpoints of the webhook's Service.
pub struct Endpoints {
    api: Api<DecodeGuard<EndpointSlice>>,
    service: String,
    /// Whether the registration waits, for `/readyz`.
    waits: Arc<AtomicBool>,
    /// The last answer, and until when it counts.
    last: Option<(bool, Instant)>,
    /// Whether it was said that the registration waits.
    is_waiting_said: bool,
    /// Whether it was said that the endpoints cannot be read.
    is_unreadable_said: bool,
}

impl Endpoints {
    /// Nothing is read yet. `waits` is set while the registration waits.
    pub fn new(client: Client, names: &Names, waits: Arc<AtomicBool>) -> Self {
        Self {
            api: Api::namespaced(client, &names.namespace),
            service: names.service.clone(),
            waits,
            last: None,
            is_waiting_said: false,
            is_unreadable_said: false,
        }
    }

    /// Nothing has to wait now.
    pub fn not_needed(&self) {
        self.waits.store(false, Ordering::Relaxed);
    }

    /// Reads the endpoints. `None`: one is ready, or this program may not know; otherwise when to look again.
    pub async fn wait(&mut self) -> Option<Instant> {
        let last = self.last.filter(|(_, until)| *until > Instant::now());
        let (is_ready, until) = match last {
            Some(last) => last,
            None => (self.look().await, Instant::now() + PAUSE),
        };
        self.last = Some((is_ready, until));
        self.waits.store(!is_ready, Ordering::Relaxed);
        // Said again only after an endpoint was ready: other objects may come and go meanwhile.
        if !replace(&mut self.is_waiting_said, !is_ready) && !is_ready {
            let service = &*self.service;
            info!(
                service,
                "the registration waits for a ready endpoint of the Service"
            );
        }
        (!is_ready).then_some(until)
    }

    async fn look(&mut self) -> bool {
        let service = &*self.service;
        let params = ListParams::default().labels(&format!("{LABEL_SERVICE_NAME}={service}"));
        match bounded(self.api.list(&params)).await {
            Ok(slices) => {
                let mut slices = slices.iter().filter_map(|slice| slice.0.as_ref().ok());
                slices.any(has_ready_endpoint)
            }
            // A webhook that never registers itself is worse than some refused writes.
            Err(error) if error.is_refusal() || matches!(error, WriteError::NotFound(_)) => {
                if !replace(&mut self.is_unreadable_said, true) {
                    warn!(
                        service,
                        %error,
                        "EndpointSlices cannot be read, the registration does not wait for a ready endpoint of the Service"
                    );
                }
                true
            }
            Err(error) => {
                if !self.waits.load(Ordering::Relaxed) {
                    warn!(service, %error, "EndpointSlices not read, will retry");
                }
                false
            }
        }
    }
}

/// Whether an EndpointSlice has an endpoint to which connections are made.
pub fn has_ready_endpoint(slice: &EndpointSlice) -> bool {
    slice.endpoints.iter().any(|endpoint| {
        let conditions = endpoint.conditions.as_ref();
        !endpoint.addresses.is_empty() && conditions.and_then(|c| c.ready).unwrap_or(true)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn section_1_an_endpoint_is_ready_unless_it_says_that_it_is_not() {
        let endpoint =
            |conditions: Value| json!({"addresses": ["10.0.0.1"], "conditions": conditions});
        let (ready, not_ready) = (
            endpoint(json!({"ready": true})),
            endpoint(json!({"ready": false})),
        );
        for (endpoints, wanted) in [
            (json!([]), false),
            (json!([ready]), true),
            (json!([not_ready]), false),
            (json!([not_ready, ready]), true),
            (json!([endpoint(json!({}))]), true),
            (json!([endpoint(json!({"serving": false}))]), true),
            (json!([{"addresses": ["10.0.0.1"]}]), true),
            (json!([{"addresses": []}]), false),
            // A Pod that ends answers for a while, and is about to be gone.
            (
                json!([endpoint(
                    json!({"ready": false, "serving": true, "terminating": true})
                )]),
                false,
            ),
        ] {
            let slice: EndpointSlice = serde_json::from_value(json!({
                "metadata": {"name": "a"}, "addressType": "IPv4", "endpoints": endpoints,
            }))
            .unwrap();
            assert_eq!(has_ready_endpoint(&slice), wanted, "{slice:?}");
        }
    }
}
