use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use harvester_lb_controller_kit::events::{EventReceiver, Severity};
use k8s_openapi::api::admissionregistration::v1::ValidatingWebhook;
use kube::client::Body;
use parking_lot::Mutex;
use tower::service_fn;

use super::*;
use crate::fake;
use crate::webhook_names::Names;

/// The requests, as `METHOD path`.
type Sent = Arc<Mutex<Vec<String>>>;

/// How the API server answers.
struct Answers {
    /// The next resource version.
    version: AtomicU64,
    /// Code and reason that writes are refused with.
    refusal: Mutex<Option<(u16, &'static str)>>,
    /// Whether reads are not answered.
    is_silent: AtomicBool,
    /// Who wrote the objects last.
    manager: Mutex<&'static str>,
}

/// An API server that stores nothing: a write is answered with the object that it carries, or refused, a read with metadata.
fn client(sent: &Sent, answers: &Arc<Answers>) -> Client {
    let (sent, answers) = (Arc::clone(sent), Arc::clone(answers));
    let service = service_fn(move |request: http::Request<Body>| {
        let (sent, answers) = (Arc::clone(&sent), Arc::clone(&answers));
        async move {
            let (head, body) = request.into_parts();
            sent.lock()
                .push(format!("{} {}", head.method, head.uri.path()));
            let is_read = head.method == http::Method::GET;
            if is_read && answers.is_silent.load(Ordering::Relaxed) {
                std::future::pending::<()>().await;
            }
            let refusal = answers.refusal.lock().filter(|_| !is_read);
            if let Some((code, reason)) = refusal {
                let (_, status) = fake::failure(code, reason);
                let answer = http::Response::builder().status(code);
                let answer = answer.body(Body::from(status.to_string().into_bytes()));
                return answer.map_err(std::io::Error::other);
            }
            let bytes = body.collect_bytes().await.map_err(std::io::Error::other)?;
            let mut object: Value = serde_json::from_slice(&bytes).unwrap_or_else(|_| json!({}));
            let next = answers.version.fetch_add(1, Ordering::Relaxed);
            object["metadata"]["name"] = json!(CONFIGURATION);
            object["metadata"]["resourceVersion"] = json!(next.to_string());
            let manager = *answers.manager.lock();
            object["metadata"]["managedFields"] = json!([
                {"manager": manager, "operation": "Update", "time": "2026-01-02T00:00:00Z"},
            ]);
            let answer = http::Response::new(Body::from(object.to_string().into_bytes()));
            Ok::<_, std::io::Error>(answer)
        }
    });
    Client::new(service, "default")
}

struct Scene {
    sent: Sent,
    answers: Arc<Answers>,
    registration: Registration,
    events: EventReceiver,
}

impl Scene {
    fn new() -> Self {
        let sent = Sent::default();
        let answers = Arc::new(Answers {
            version: AtomicU64::new(10),
            refusal: Mutex::new(None),
            is_silent: AtomicBool::new(false),
            manager: Mutex::new("another-webhook"),
        });
        let (events, receiver) = Events::queue();
        let stored = Stored::new(Names {
            namespace: "ns".to_owned(),
            service: "svc".to_owned(),
        });
        let timings = Timings::default();
        let metrics = Arc::new(Metrics::new().unwrap());
        Self {
            registration: Registration::new(
                client(&sent, &answers),
                stored,
                metrics,
                events,
                &timings,
            ),
            sent,
            answers,
            events: receiver,
        }
    }

    fn desired(bundle: &str) -> Desired {
        let names = Names {
            namespace: "ns".to_owned(),
            service: "svc".to_owned(),
        };
        Desired::new(names, bundle)
    }

    async fn ensure(&mut self, bundle: &str) -> (Vec<String>, Option<Instant>) {
        self.ensure_of(bundle, Extent::All).await
    }

    async fn ensure_of(&mut self, bundle: &str, of: Extent) -> (Vec<String>, Option<Instant>) {
        let next = self.registration.ensure(&Self::desired(bundle), of).await;
        (std::mem::take(&mut *self.sent.lock()), next)
    }

    /// Writes of the validating configuration so far, by reason.
    fn writes(&self, reason: &str) -> u64 {
        let writes = &self.registration.metrics.registrations;
        writes.with_label_values(&["validating", reason]).get()
    }

    /// From now on writes are refused.
    fn refuse(&self, code: u16, reason: &'static str) {
        *self.answers.refusal.lock() = Some((code, reason));
    }

    /// Somebody changes the validating configuration.
    fn change(&self) {
        self.change_to("svc");
    }

    /// The same, to call this Service.
    fn change_to(&self, service: &str) {
        let names = Names {
            namespace: "ns".to_owned(),
            service: service.to_owned(),
        };
        self.store(Desired::new(names, "other").validating());
    }

    /// The validating configuration is stored as somebody else has written it.
    fn store(&self, mut object: ValidatingWebhookConfiguration) {
        let version = self.answers.version.fetch_add(1, Ordering::Relaxed);
        object.metadata.resource_version = Some(version.to_string());
        let stamp = Stamp::of(&object.metadata);
        let store = &self.registration.stored.validating;
        let key = Object::Validating.key();
        assert!(store.written(&key, stamp, validating(Ok(object))).is_some());
    }
}

const VALIDATING: &str = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
const MUTATING: &str = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";

#[tokio::test(start_paused = true)]
async fn section_1_missing_objects_are_created_once() {
    let mut scene = Scene::new();
    let (sent, next) = scene.ensure("a").await;
    // The definition is not this program's to create.
    assert_eq!(
        sent,
        [format!("POST {VALIDATING}"), format!("POST {MUTATING}")]
    );
    assert_eq!(next, Some(Instant::now()), "the bundles have changed");
    assert_eq!(scene.ensure("a").await, (Vec::new(), None));
    assert!(scene.events.try_next().is_none());
    // A new bundle is no quarrel; it waits for the back-off of the object all the same.
    let (sent, next) = scene.ensure("b").await;
    assert!(sent.is_empty() && next.is_some());
    tokio::time::sleep_until(next.unwrap()).await;
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    let (sent, _) = scene.ensure("b").await;
    let patched = [VALIDATING, MUTATING].map(|path| format!("PATCH {path}/{CONFIGURATION}"));
    assert_eq!(sent, patched);
    assert!(scene.events.try_next().is_none());
}

#[tokio::test(start_paused = true)]
async fn section_1_a_change_of_another_program_is_restored_and_named() {
    let mut scene = Scene::new();
    scene.ensure("a").await;
    tokio::time::sleep(std::time::Duration::from_mins(11)).await;
    let mut restored = 0;
    for _ in 0..20 {
        scene.change();
        let (sent, next) = scene.ensure("a").await;
        match next.filter(|next| *next > Instant::now()) {
            None => {
                let path = format!("{VALIDATING}/{CONFIGURATION}");
                assert_eq!(sent, [format!("GET {path}"), format!("PATCH {path}")]);
                restored += 1;
                let event = scene.events.try_next().unwrap();
                assert_eq!(event.reason, "RegistrationRestored");
                assert!(event.text.contains("another-webhook"), "{}", event.text);
                assert_eq!(event.text.contains("stop the other one"), restored >= 3);
            }
            Some(due) => {
                assert!(sent.is_empty());
                tokio::time::sleep_until(due).await;
            }
        }
    }
    assert!((5..20).contains(&restored), "{restored}");
    assert_eq!(scene.writes("changed_by_others"), restored);
    assert_eq!(scene.writes("changed_by_replica"), 0);
}

#[tokio::test(start_paused = true)]
async fn shr_9_each_webhook_of_the_validating_configuration_is_restored() {
    let mut scene = Scene::new();
    scene.ensure("a").await;
    let right = Scene::desired("a").validating();
    let changed = |change: &dyn Fn(&mut Vec<ValidatingWebhook>)| {
        let mut object = right.clone();
        change(object.webhooks.as_mut().unwrap());
        object
    };
    for object in [
        // A replica of an earlier version knows the first one alone.
        changed(&|webhooks| webhooks.truncate(1)),
        changed(&|webhooks| _ = webhooks.remove(0)),
        changed(&|webhooks| webhooks.swap(0, 1)),
        changed(&|webhooks| webhooks[1].failure_policy = Some("Fail".to_owned())),
        changed(&|webhooks| webhooks[1].match_conditions = None),
        changed(&|webhooks| webhooks[1].client_config.ca_bundle = None),
    ] {
        tokio::time::sleep(Duration::from_mins(11)).await;
        scene.store(object);
        assert!(
            !scene
                .registration
                .is_right(&Scene::desired("a"), Extent::All)
        );
        // Each calls this webhook's Service, so none waits for an endpoint.
        let (sent, _) = scene.ensure_of("a", Extent::Named).await;
        let path = format!("{VALIDATING}/{CONFIGURATION}");
        assert_eq!(sent, [format!("GET {path}"), format!("PATCH {path}")]);
        let stored = scene
            .registration
            .stored
            .validating
            .get(&Object::Validating.key());
        assert_eq!(Some(&stored.unwrap().webhooks), right.webhooks.as_ref());
    }
    assert_eq!(scene.writes("changed_by_others"), 6);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_write_that_fails_restores_nothing() {
    let mut scene = Scene::new();
    scene.ensure("a").await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    scene.change();
    scene.refuse(403, "Forbidden");
    let (start, mut tries) = (Instant::now(), 0);
    while start.elapsed() < Duration::from_mins(5) {
        let (sent, next) = scene.ensure("a").await;
        tries += usize::from(!sent.is_empty());
        let next = next.unwrap();
        assert!(next <= Instant::now() + FAILURES.cap);
        tokio::time::sleep_until(next).await;
    }
    assert!((30..100).contains(&tries), "{tries}");
    assert!(scene.events.try_next().is_none());
    // It is the first time that somebody has changed it.
    *scene.answers.refusal.lock() = None;
    scene.ensure("a").await;
    let event = scene.events.try_next().unwrap();
    assert_eq!(event.reason, "RegistrationRestored");
    assert!(event.text.ends_with("and is restored"), "{}", event.text);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_write_that_another_replica_was_faster_with_is_no_failure() {
    let mut scene = Scene::new();
    scene.ensure("a").await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    scene.change();
    let validating = Object::ALL.iter().position(|o| *o == Object::Validating);
    let validating = validating.unwrap();
    let failures = |scene: &Scene| scene.registration.known[validating].failures.count();
    scene.refuse(409, "Conflict");
    for _ in 0..20 {
        let (sent, next) = scene.ensure("a").await;
        assert!(!sent.is_empty());
        assert!(next.unwrap() <= Instant::now() + FAILURES.base);
        tokio::time::sleep_until(next.unwrap()).await;
    }
    assert_eq!(failures(&scene), 0);
    scene.refuse(403, "Forbidden");
    for _ in 0..3 {
        let (_, next) = scene.ensure("a").await;
        tokio::time::sleep_until(next.unwrap()).await;
    }
    assert_eq!(failures(&scene), 3);
    *scene.answers.refusal.lock() = None;
    scene.ensure("a").await;
    assert_eq!(failures(&scene), 0, "a success ends them");
}

#[tokio::test(start_paused = true)]
async fn section_1_a_restore_because_of_another_replica_blames_no_other_program() {
    let mut scene = Scene::new();
    *scene.answers.manager.lock() = FIELD_MANAGER;
    scene.ensure("a").await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    for _ in 0..5 {
        scene.change();
        loop {
            let (sent, next) = scene.ensure("a").await;
            if !sent.is_empty() {
                break;
            }
            tokio::time::sleep_until(next.unwrap()).await;
        }
        let event = scene.events.try_next().unwrap();
        assert_eq!(event.reason, "RegistrationRestored");
        assert_eq!(event.severity, Severity::Normal);
        let text = event.text;
        assert!(text.contains("another replica of this webhook"), "{text}");
        assert!(!text.contains("stop the other one"), "{text}");
    }
    // Nor does the alert on another program.
    assert_eq!(scene.writes("changed_by_replica"), 5);
    assert_eq!(scene.writes("changed_by_others"), 0);
}

#[tokio::test(start_paused = true)]
async fn section_1_a_restore_does_not_wait_for_the_name_of_who_made_it_necessary() {
    let mut scene = Scene::new();
    scene.ensure("a").await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    scene.change();
    scene.answers.is_silent.store(true, Ordering::Relaxed);
    let start = Instant::now();
    let (sent, _) = scene.ensure("a").await;
    assert!(start.elapsed() <= WRITER_LIMIT + Duration::from_millis(10));
    let path = format!("{VALIDATING}/{CONFIGURATION}");
    assert_eq!(sent, [format!("GET {path}"), format!("PATCH {path}")]);
    let event = scene.events.try_next().unwrap();
    assert!(event.text.contains("an unknown program"), "{}", event.text);
}

#[tokio::test(start_paused = true)]
async fn section_1_the_conversion_stanza_is_set_on_a_definition_that_exists() {
    let mut scene = Scene::new();
    scene.ensure("a").await;
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": DEFINITION, "resourceVersion": "5"},
        "spec": {
            "group": harvester_lb_api::GROUP, "scope": "Namespaced", "versions": [],
            "names": {"kind": "LoadBalancer", "plural": "loadbalancers"},
        },
    }))
    .unwrap();
    let stamp = Stamp::of(&definition.metadata);
    let key = Object::Conversion.key();
    let store = &scene.registration.stored.definition;
    store.written(&key, stamp, Definition::of(Ok(definition)));
    let desired = Scene::desired("a");
    assert!(!scene.registration.is_right(&desired, Extent::All));
    // It calls nobody.
    assert!(scene.registration.is_right(&desired, Extent::Named));
    assert!(scene.registration.is_to_begin(&desired));
    let (sent, _) = scene.ensure("a").await;
    let path = format!("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{DEFINITION}");
    assert_eq!(sent, [format!("GET {path}"), format!("PATCH {path}")]);
    let event = scene.events.try_next().unwrap();
    assert_eq!(event.reason, "RegistrationTakenOver");
}

#[tokio::test(start_paused = true)]
async fn section_1_what_calls_the_service_already_is_written_without_the_rest() {
    let mut scene = Scene::new();
    let desired = Scene::desired("a");
    let waits = |scene: &Scene| {
        let registration = &scene.registration;
        assert!(registration.is_to_begin(&desired));
        assert!(!registration.is_right(&desired, Extent::All));
        registration.is_right(&desired, Extent::Named)
    };
    // Absent, and another's.
    assert!(waits(&scene));
    let nothing = (Vec::new(), None);
    assert_eq!(scene.ensure_of("a", Extent::Named).await, nothing);
    scene.change_to("another");
    assert!(waits(&scene));
    assert_eq!(scene.ensure_of("a", Extent::Named).await, nothing);
    // This webhook's, as an earlier process left it.
    scene.change();
    assert!(!waits(&scene));
    let path = format!("{VALIDATING}/{CONFIGURATION}");
    let (sent, next) = scene.ensure_of("a", Extent::Named).await;
    assert_eq!(sent, [format!("GET {path}"), format!("PATCH {path}")]);
    assert_eq!(next, Some(Instant::now()));
    assert!(waits(&scene));
    // The rest begins.
    let (sent, _) = scene.ensure("a").await;
    assert_eq!(sent, [format!("POST {MUTATING}")]);
    assert!(!scene.registration.is_to_begin(&desired));
    assert!(scene.registration.is_right(&desired, Extent::All));
}
