use std::collections::VecDeque;

use axum::http::{Request, Response};
use harvester_lb_api::IPPool;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use parking_lot::Mutex;
use prometheus::{IntCounter, IntGauge};
use serde_json::json;

use super::*;
use crate::watch_health::Watches;

/// A list that fails is begun anew each time.
#[tokio::test(start_paused = true)]
async fn run_2_the_pauses_of_a_list_that_goes_on_failing_grow() {
    let failing = stream::iter(0..24).map(|n| {
        if n % 2 == 0 {
            Err(watcher::Error::NoResourceVersion)
        } else {
            Ok(Event::<()>::Init)
        }
    });
    let began = Instant::now();
    failing.backoff(WatchBackoff::default()).count().await;
    // Without growth these would be twelve pauses of 0.2 s.
    let taken = began.elapsed();
    assert!(taken > Duration::from_secs(15), "{taken:?}");

    let mut pauses = WatchBackoff::default();
    let mut next = || pauses.next().unwrap_or_default();
    for _ in 0..9 {
        tokio::time::advance(next()).await;
    }
    assert!(next() > Duration::from_secs(2));
    tokio::time::advance(BACKOFF.cap + CALM + Duration::from_secs(1)).await;
    assert!(next() <= BACKOFF.base, "it worked for a while");
}

#[test]
fn run_2_watches_end_apart() {
    let limit = Duration::from_secs(40);
    let time = |nth| config(nth, limit, None).timeout.unwrap();
    let times: std::collections::BTreeSet<u32> = (0..SPREAD).map(time).collect();
    assert_eq!(times, (31..=40).collect());
    assert!((0..1_000).all(|nth| times.contains(&time(nth))));
    // Zero would mean no timeout at all.
    assert_eq!(config(9, Duration::from_secs(2), None).timeout, Some(1));
    // Without bookmarks a watch of a quiet kind would resume from its first version, and have to relist in the end.
    assert!(config(3, limit, Some("a=b")).bookmarks);
}

/// What an API server answers to the next request: whether that is a watch, status code and body.
type Answer = (bool, u16, String);

/// A complete list without objects.
fn list() -> Answer {
    let body = json!({"metadata": {"resourceVersion": "5"}, "items": []});
    (false, 200, body.to_string())
}

fn failure(is_watch: bool, code: u16) -> Answer {
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "ippools is refused", "reason": "R", "code": code,
    });
    (is_watch, code, status.to_string())
}

/// A watch that is accepted, and ends with an error.
fn error_event(code: u16) -> Answer {
    let (_, _, status) = failure(true, code);
    let event = format!("{{\"type\":\"ERROR\",\"object\":{status}}}\n");
    (true, 200, event)
}

/// Runs a watch against these answers; the request after them is never answered. What `/readyz` says of the watch after each
/// answer, and the number of errors.
async fn told(answers: impl IntoIterator<Item = Answer>) -> (Vec<bool>, u64) {
    let watches = Watches::default();
    let errors = IntCounter::new("errors", "h").unwrap();
    let failing = IntGauge::new("failing", "h").unwrap();
    let health = watches.add("IPPool".to_owned(), errors.clone(), failing.clone());
    let answers = Arc::new(Mutex::new(
        answers.into_iter().collect::<VecDeque<Answer>>(),
    ));
    let told = Arc::new(Mutex::new(Vec::new()));
    let asked = Arc::clone(&told);
    let service = tower::service_fn(move |request: Request<Body>| {
        // The answer before has been dealt with.
        let lines = watches.failing();
        let named = |line: &String| line.contains("IPPool") && line.contains("refused");
        assert!(lines.iter().all(named), "{lines:?}");
        assert_eq!(i64::try_from(lines.len()), Ok(failing.get()));
        asked.lock().push(!lines.is_empty());
        let answer = answers.lock().pop_front();
        async move {
            let Some((is_watch, code, body)) = answer else {
                return std::future::pending().await;
            };
            let asked = request.uri().query().unwrap_or_default();
            assert_eq!(crate::client::is_watch(asked), is_watch, "{asked}");
            let answer = Response::builder().status(code);
            Ok::<_, tower::BoxError>(answer.body(Body::from(body.into_bytes()))?)
        }
    });
    let watching = run(
        Client::new(service, "default"),
        config(0, Duration::from_secs(40), None),
        Arc::new(Store::default()),
        |decoded: Decoded<IPPool>| decoded.ok(),
        |_, _| {},
        health,
    );
    // Time advances as soon as nothing else is to be done.
    let ended = tokio::time::timeout(Duration::from_secs(30), watching).await;
    assert!(ended.is_err());
    let mut told = std::mem::take(&mut *told.lock());
    told.remove(0);
    (told, errors.get())
}

#[tokio::test(start_paused = true)]
async fn run_2_a_watch_that_is_refused_is_named_until_it_is_accepted() {
    // On a quiet kind no event tells that it is accepted.
    let quiet = (true, 200, String::new());
    let answers = [
        list(),
        failure(true, 403),
        failure(true, 403),
        quiet.clone(),
        // A watch that has ended is begun again.
        quiet,
        failure(true, 403),
    ];
    let said = vec![false, true, true, false, false, true];
    assert_eq!(told(answers).await, (said, 3));
}

#[tokio::test(start_paused = true)]
async fn run_2_a_watch_whose_version_has_expired_is_named_until_its_list_is_complete() {
    let more = json!({"metadata": {"resourceVersion": "7", "continue": "c"}, "items": []});
    let answers = [
        list(),
        error_event(410),
        // The first page of a list proves nothing.
        (false, 200, more.to_string()),
        failure(false, 403),
        list(),
    ];
    assert_eq!(
        told(answers).await,
        (vec![false, true, true, true, false], 2)
    );
}

#[tokio::test(start_paused = true)]
async fn run_2_a_watch_that_is_accepted_and_fails_each_time_is_named_all_the_time() {
    let quiet = (true, 200, String::new());
    let answers = [
        list(),
        error_event(500),
        error_event(500),
        quiet.clone(),
        quiet,
    ];
    assert_eq!(
        told(answers).await,
        (vec![false, true, true, true, false], 2)
    );
}

/// An object that a live read by a label selector does not find may have lost its label alone, and get it back.
#[test]
fn be_6_what_a_live_read_by_a_label_does_not_find_can_come_back() {
    for (is_all, comes_back) in [(true, false), (false, true)] {
        let store = Store::default();
        let key = Key::new("n", "a");
        let stamp = |version: u32| {
            Stamp::of(&ObjectMeta {
                uid: Some("u".to_owned()),
                resource_version: Some(version.to_string()),
                ..ObjectMeta::default()
            })
        };
        store.written(&key, stamp(20), 20);
        let none = |_: Decoded<IPPool>| None;
        let is_told = std::cell::Cell::new(false);
        let handler = |_: &Key, _: Change<i32>| is_told.set(true);
        apply_live_read(&key, Version(20), None, is_all, &store, &none, &handler);
        assert!(is_told.get() && store.is_empty());
        store.watched(&key, stamp(30), 30);
        assert_eq!(!store.is_empty(), comes_back, "{is_all}");
    }
}
