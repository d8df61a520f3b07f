//! Tests of the proxy in front of the API server: it passes everything on, and injects the faults it is set to.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use futures::{Stream, StreamExt, pin_mut};
use harvester_lb_testkit::proxy::{
    After, End, Fault, Frequency, Match, Moment, Proxy, Refusal, Unavailable, Verb,
};
use harvester_lb_testkit::{TestCluster, eventually};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::support::SOON;

/// For events that must not happen.
const A_WHILE: Duration = Duration::from_millis(500);

/// A client that neither retries nor waits for long.
async fn client(kubeconfig: &Path) -> anyhow::Result<Client> {
    let text = Kubeconfig::read_from(kubeconfig)?;
    let mut config =
        kube::Config::from_custom_kubeconfig(text, &KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.read_timeout = Some(SOON);
    Ok(Client::try_from(config)?)
}

/// A proxy, ConfigMaps through it, and ConfigMaps directly.
async fn pair(cluster: &TestCluster) -> anyhow::Result<(Proxy, Api<ConfigMap>, Api<ConfigMap>)> {
    let proxy = Proxy::start(cluster).await?;
    let through = client(&proxy.kubeconfig("admin")?).await?;
    Ok((
        proxy,
        Api::namespaced(through, "default"),
        Api::namespaced(cluster.client(), "default"),
    ))
}

fn map(name: &str) -> anyhow::Result<ConfigMap> {
    Ok(serde_json::from_value(
        json!({"metadata": {"name": name, "labels": {"test": "proxy"}}}),
    )?)
}

async fn make(api: &Api<ConfigMap>, name: &str) -> kube::Result<ConfigMap> {
    let map = map(name).map_err(|e| kube::Error::Service(e.into()))?;
    api.create(&PostParams::default(), &map).await
}

fn code<T: Debug>(answer: kube::Result<T>) -> anyhow::Result<u16> {
    match answer {
        Err(kube::Error::Api(status)) => Ok(status.code),
        other => bail!("{other:?} in place of a Status"),
    }
}

/// An error that is not a response of the API server.
#[allow(clippy::needless_pass_by_value, reason = "callers have no use for it")]
fn broken<T: Debug>(answer: kube::Result<T>) -> anyhow::Result<()> {
    match answer {
        Ok(_) | Err(kube::Error::Api(_)) => bail!("{answer:?} in place of a broken connection"),
        Err(_) => Ok(()),
    }
}

pub(crate) async fn passes_everything_on_with_the_senders_rights(
    cluster: &TestCluster,
) -> anyhow::Result<()> {
    let (proxy, api, _) = pair(cluster).await?;
    let stream = watch(&api).await?;
    pin_mut!(stream);
    for n in 0..3 {
        make(&api, &format!("passes{n}")).await?;
    }
    let mut found = Vec::new();
    while found.len() < 3 {
        match timeout(SOON, stream.next()).await?.context("end")?? {
            WatchEvent::Added(map) => {
                found.extend(map.metadata.name);
            }
            other => bail!("{other:?}"),
        }
    }
    ensure!(found == ["passes0", "passes1", "passes2"], "{found:?}");
    ensure!(proxy.watches(&Match::of(Verb::Watch, "configmaps")) == 1);
    api.delete("passes0", &DeleteParams::default()).await?;
    ensure!(code(api.get("passes0").await)? == 404);
    ensure!(code(make(&api, "passes1").await)? == 409);
    ensure!(
        proxy.count(Verb::Create, "configmaps") == 4,
        "{:?}",
        proxy.counts()
    );
    ensure!(
        proxy.count(Verb::Delete, "configmaps") == 1,
        "{:?}",
        proxy.counts()
    );

    let poor = client(&proxy.kubeconfig("kube-vip")?).await?;
    let secrets: Api<Secret> = Api::namespaced(poor, "default");
    ensure!(code(secrets.list(&ListParams::default()).await)? == 403);
    let poor = cluster
        .service_account_kubeconfig("default", "default")
        .await;
    let poor = proxy.kubeconfig_via(&poor.context("the ServiceAccount")?)?;
    let secrets: Api<Secret> = Api::namespaced(client(&poor).await?, "default");
    let answer = secrets.list(&ListParams::default()).await;
    let text = format!("{answer:?}");
    ensure!(
        code(answer)? == 403 && text.contains("serviceaccount:default"),
        "{text}"
    );
    Ok(())
}

pub(crate) async fn is_reached_from_a_node(cluster: &TestCluster) -> anyhow::Result<()> {
    let proxy = Proxy::start(cluster).await?;
    let rule = proxy.rule(
        Match::any(),
        Frequency::all(),
        Fault::Refuse(Refusal::too_many(Some(7))),
    );
    let address = proxy.url().trim_start_matches("http://").to_owned();
    let node = cluster.netns("node1")?;
    let ask = tokio::task::spawn_blocking(move || {
        node.run(|| -> anyhow::Result<String> {
            let mut stream = std::net::TcpStream::connect(&address)?;
            stream.set_read_timeout(Some(SOON))?;
            stream.write_all(b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer)?;
            Ok(answer)
        })
    });
    let answer = ask.await???.to_lowercase();
    ensure!(answer.starts_with("http/1.1 429 "), "{answer}");
    ensure!(answer.contains("\r\nretry-after: 7\r\n"), "{answer}");
    ensure!(rule.hits() == 1);
    Ok(())
}

pub(crate) async fn refuses_in_the_api_servers_words(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let cases = [
        (Refusal::conflict(), 409, "Conflict"),
        (Refusal::already_exists(), 409, "AlreadyExists"),
        (Refusal::expired(), 410, "Expired"),
        (Refusal::too_many(None), 429, "TooManyRequests"),
        (Refusal::internal(), 500, "InternalError"),
        (Refusal::unavailable(), 503, "ServiceUnavailable"),
        (Refusal::timeout(), 504, "Timeout"),
        (Refusal::forbidden(), 403, "Forbidden"),
    ];
    for (refusal, expected, reason) in cases {
        let rule = proxy.rule(
            Match::of(Verb::Create, "configmaps").name("refused"),
            Frequency::times(1),
            Fault::Refuse(refusal),
        );
        make(&api, &format!("others-pass-{}", reason.to_lowercase())).await?;
        match make(&api, "refused").await {
            Err(kube::Error::Api(status)) => {
                ensure!(
                    status.code == expected && status.reason == reason,
                    "{status:?}"
                );
            }
            other => bail!("{other:?}"),
        }
        ensure!(
            direct.get_opt("refused").await?.is_none(),
            "it was forwarded"
        );
        ensure!(rule.hits() == 1);
    }
    let rule = proxy.rule(Match::writes(), Frequency::all(), Fault::Cut);
    broken(make(&api, "refused").await)?;
    ensure!(
        direct.get_opt("refused").await?.is_none(),
        "it was forwarded"
    );
    drop(rule);
    make(&api, "refused").await?;
    Ok(())
}

pub(crate) async fn loses_answers_of_what_was_done(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let rule = proxy.rule(Match::writes(), Frequency::times(1), Fault::LoseAnswer);
    broken(make(&api, "lost").await)?;
    direct.get("lost").await?;
    drop(rule);
    let _rule = proxy.rule(
        Match::writes().text("denied"),
        Frequency::times(1),
        Fault::DenyAnswer(Refusal::internal()),
    );
    ensure!(code(make(&api, "denied").await)? == 500);
    direct.get("denied").await?;
    ensure!(code(make(&api, "denied").await)? == 409);
    Ok(())
}

pub(crate) async fn shares_delays_and_counts(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, _) = pair(cluster).await?;
    let gets = Match::of(Verb::Get, "configmaps");
    let third = proxy.rule(
        gets.clone(),
        Frequency::percent(33, 1),
        Fault::Refuse(Refusal::internal()),
    );
    let mut refused = 0;
    for _ in 0..100 {
        if code(api.get("nothing").await)? == 500 {
            refused += 1;
        }
    }
    ensure!((15..55).contains(&refused), "{refused} of 100");
    ensure!(third.hits() == refused);
    ensure!(proxy.count(Verb::Get, "configmaps") == 100);
    drop(third);
    // Delays add up, and leave the final fault to other rules.
    let _delays = [1, 2].map(|_| {
        let delay = Fault::Delay(Duration::from_millis(200));
        proxy.rule(gets.clone(), Frequency::all(), delay)
    });
    let last = proxy.rule(
        gets.clone(),
        Frequency::all(),
        Fault::Refuse(Refusal::unavailable()),
    );
    let began = Instant::now();
    ensure!(code(api.get("nothing").await)? == 503);
    ensure!(
        began.elapsed() >= Duration::from_millis(400),
        "{:?}",
        began.elapsed()
    );
    // A long one ends with its rule.
    drop(last);
    let long = proxy.rule(
        gets,
        Frequency::all(),
        Fault::Delay(Duration::from_mins(10)),
    );
    let asking = api.clone();
    let mut asked = tokio::spawn(async move { asking.get("nothing").await });
    ensure!(timeout(2 * A_WHILE, &mut asked).await.is_err());
    drop(long);
    ensure!(code(timeout(SOON, asked).await??)? == 404);
    Ok(())
}

pub(crate) async fn holds_a_request_before_and_after(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let creations = Match::of(Verb::Create, "configmaps");
    let start = |name: &'static str| {
        let api = api.clone();
        tokio::spawn(async move { make(&api, name).await })
    };

    let mut hold = proxy.hold(creations.clone().name("held"), Moment::Before);
    let sender = start("held");
    let held = hold.arrived().await?;
    ensure!(held.request().name.as_deref() == Some("held") && held.code().is_none());
    // This request is held, the others are not; and another writer is faster.
    make(&api, "not-held").await?;
    make(&direct, "held").await?;
    ensure!(!sender.is_finished());
    ensure!(held.release().await? == 409);
    ensure!(code(sender.await?)? == 409);
    ensure!(
        code(make(&api, "held").await)? == 409 && hold.try_arrived().is_none(),
        "held twice"
    );

    let mut hold = proxy.hold(creations.clone().name("held-after"), Moment::After);
    let sender = start("held-after");
    let held = hold.arrived().await?;
    ensure!(held.code() == Some(201));
    direct.get("held-after").await?;
    ensure!(!sender.is_finished());
    ensure!(held.release().await? == 201);
    sender.await??;

    let mut hold = proxy.holds(creations, Moment::Before, 2);
    let sender = start("held-cut");
    hold.arrived().await?.cut();
    broken(sender.await?)?;
    let sender = start("held-cut");
    hold.arrived().await?.refuse(Refusal::timeout());
    ensure!(code(sender.await?)? == 504);
    ensure!(direct.get_opt("held-cut").await?.is_none());
    ensure!(hold.hits() == 2);
    // Dropped, it continues.
    let mut hold = proxy.hold(Match::any().name("held-cut"), Moment::Before);
    let sender = start("held-cut");
    drop(hold.arrived().await?);
    sender.await??;
    Ok(())
}

pub(crate) async fn held_request_outlives_its_sender(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let mut hold = proxy.hold(Match::any().name("orphan"), Moment::Before);
    let sender = tokio::spawn(async move { make(&api, "orphan").await });
    let held = hold.arrived().await?;
    sender.abort();
    let _ = sender.await;
    tokio::time::sleep(A_WHILE).await;
    ensure!(direct.get_opt("orphan").await?.is_none());
    ensure!(held.release().await? == 201);
    direct.get("orphan").await?;
    Ok(())
}

async fn watch(
    api: &Api<ConfigMap>,
) -> anyhow::Result<impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>> + use<>> {
    let params = WatchParams::default().labels("test=proxy").timeout(60);
    // From now on.
    let version = api
        .list(&ListParams::default())
        .await?
        .metadata
        .resource_version;
    Ok(api
        .watch(&params, &version.context("no version")?)
        .await?
        .boxed())
}

/// The events of a watch: names, then how it ended. To this client a cut looks like an end.
async fn shown(
    stream: impl Stream<Item = kube::Result<WatchEvent<ConfigMap>>>,
) -> anyhow::Result<(Vec<String>, String)> {
    pin_mut!(stream);
    let mut names = Vec::new();
    loop {
        match timeout(SOON, stream.next())
            .await
            .context("the watch goes on")?
        {
            None => return Ok((names, "end".into())),
            Some(Ok(WatchEvent::Error(status))) => {
                return Ok((names, format!("status {}", status.code)));
            }
            Some(Ok(WatchEvent::Added(map))) => names.extend(map.metadata.name),
            Some(Ok(other)) => bail!("{other:?}"),
            Some(Err(error)) => return Ok((names, format!("error {error:?}"))),
        }
    }
}

/// Starts a watch on a raw connection.
async fn bare_watch(proxy: &Proxy, version: &str) -> anyhow::Result<TcpStream> {
    let mut line = TcpStream::connect(proxy.url().trim_start_matches("http://")).await?;
    let path = format!(
        "/api/v1/namespaces/default/configmaps?watch=true&timeoutSeconds=60&resourceVersion={version}"
    );
    let head = "Host: x\r\nAuthorization: Bearer admin-token\r\nAccept: application/json";
    line.write_all(format!("GET {path} HTTP/1.1\r\n{head}\r\n\r\n").as_bytes())
        .await?;
    Ok(line)
}

/// Reads a connection until it is closed or the response is complete: number of whole events, the rest of a torn one,
/// whether it was complete.
async fn bare_end(mut line: TcpStream) -> anyhow::Result<(usize, String, bool)> {
    let mut bytes = Vec::new();
    let read = async {
        let mut buffer = [0; 4096];
        while !bytes.ends_with(b"\r\n0\r\n\r\n") {
            match line.read(&mut buffer).await {
                Ok(0) | Err(_) => return false,
                Ok(length) => bytes.extend_from_slice(&buffer[..length]),
            }
        }
        true
    };
    let complete = timeout(SOON, read).await.context("the line is open")?;
    let text = String::from_utf8(bytes)?;
    let (_, body) = text.split_once("\r\n\r\n").context("no answer")?;
    // Chunk sizes have separate lines.
    let events: Vec<&str> = body.split('\n').filter(|l| l.starts_with('{')).collect();
    let whole = |l: &&str| serde_json::from_str::<serde_json::Value>(l.trim()).is_ok();
    let torn = events.iter().find(|l| !whole(l)).copied();
    let count = events.iter().filter(|l| whole(l)).count();
    Ok((count, torn.unwrap_or_default().to_owned(), complete))
}

pub(crate) async fn ends_watches(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let watches = Match::of(Verb::Watch, "configmaps");
    let cases = [
        // When, how; events received; torn; complete.
        (After::Events(2), End::Clean, 2, false, true),
        (After::Events(2), End::Cut, 2, false, false),
        (After::Events(1), End::Torn, 1, true, false),
        (After::Events(1), End::Expired, 2, false, true),
        (After::Time(A_WHILE), End::Clean, 3, false, true),
        (After::Time(A_WHILE), End::Cut, 3, false, false),
        (After::Time(A_WHILE), End::Torn, 3, true, false),
        (After::Time(A_WHILE), End::Expired, 4, false, true),
    ];
    for (number, (after, end, count, torn, complete)) in cases.into_iter().enumerate() {
        let case = format!("{after:?} {end:?}");
        let all = direct.list(&ListParams::default()).await?;
        let version = all.metadata.resource_version.context("no version")?;
        for n in 0..3 {
            make(&direct, &format!("ends-{number}-{n}")).await?;
        }
        let rule = proxy.rule(
            watches.clone(),
            Frequency::times(1),
            Fault::EndWatch(after, end),
        );
        let found = bare_end(bare_watch(&proxy, &version).await?).await?;
        ensure!(
            (found.0, !found.1.is_empty(), found.2) == (count, torn, complete),
            "{case}: {found:?}"
        );
        ensure!(rule.hits() == 1, "{case}");
    }
    // The client sees the cut in the middle of an event.
    let rule = proxy.rule(
        watches.clone(),
        Frequency::times(1),
        Fault::EndWatch(After::Events(0), End::Expired),
    );
    let stream = watch(&api).await?;
    make(&direct, "ends-seen").await?;
    let (names, ended) = shown(stream).await?;
    ensure!(
        names.is_empty() && ended == "status 410",
        "{names:?} {ended}"
    );
    drop(rule);
    let one = watch(&api).await?;
    let other = watch(&api).await?;
    proxy.cut_watches(&Match::any().resource("secrets"));
    make(&direct, "ends-cut").await?;
    tokio::time::sleep(A_WHILE).await;
    proxy.cut_watches(&watches);
    for stream in [one, other] {
        let (names, ended) = shown(stream).await?;
        ensure!(names == ["ends-cut"] && ended == "end", "{names:?} {ended}");
    }
    eventually("no watch is left", SOON, || async {
        Ok((proxy.watches(&Match::any()) == 0).then_some(()))
    })
    .await
}

pub(crate) async fn swallows_events_of_a_watch(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let rule = proxy.rule(
        Match::any().verbs(&[Verb::Watch]),
        Frequency::all(),
        Fault::Swallow,
    );
    let stream = watch(&api).await?;
    make(&direct, "swallowed").await?;
    let mut shown = tokio::spawn(shown(stream));
    ensure!(
        timeout(A_WHILE, &mut shown).await.is_err(),
        "it was not silent"
    );
    drop(rule);
    let (names, ended) = shown.await??;
    ensure!(names.is_empty() && ended == "end", "{names:?} {ended}");
    Ok(())
}

pub(crate) async fn cuts_lists_and_pages(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    for n in 0..5 {
        make(&direct, &format!("paged{n}")).await?;
    }
    let lists = Match::of(Verb::List, "configmaps");
    let rule = proxy.rule(lists.clone(), Frequency::times(1), Fault::Truncate);
    broken(api.list(&ListParams::default()).await)?;
    ensure!(rule.hits() == 1);
    let all = api.list(&ListParams::default()).await?.items.len();

    let _pages = proxy.rule(lists.clone(), Frequency::all(), Fault::Pages(2));
    let page = api.list(&ListParams::default().limit(500)).await?;
    ensure!(page.items.len() == 2, "{}", page.items.len());
    let token = page.metadata.continue_.context("no further page")?;
    let next = ListParams::default().continue_token(&token);
    let expired = proxy.rule(
        lists.continued(),
        Frequency::times(1),
        Fault::Refuse(Refusal::expired()),
    );
    ensure!(code(api.list(&next).await)? == 410);
    ensure!(expired.hits() == 1);
    let rest = api.list(&next).await?;
    let left = rest.metadata.remaining_item_count.unwrap_or_default();
    ensure!(
        rest.items.len() == 2 && usize::try_from(left)? + 4 == all,
        "{left} of {all}"
    );
    Ok(())
}

pub(crate) async fn is_unavailable(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let stream = watch(&api).await?;
    proxy.make_unavailable(Unavailable::Silent);
    make(&direct, "away").await?;
    let asking = api.clone();
    let mut asked = tokio::spawn(async move { asking.get("away").await });
    let mut shown = tokio::spawn(shown(stream));
    ensure!(
        timeout(A_WHILE, &mut asked).await.is_err(),
        "it was answered"
    );
    proxy.make_available();
    asked.await??;

    proxy.make_unavailable(Unavailable::Refused);
    let (names, ended) = (&mut shown).await??;
    ensure!(names == ["away"] && ended == "end", "{names:?} {ended}");
    for _ in 0..3 {
        broken(api.get("away").await)?;
    }
    let (address, port) = proxy
        .url()
        .trim_start_matches("http://")
        .split_once(':')
        .context("no port")?;
    let refused = TcpStream::connect((address, port.parse::<u16>()?)).await;
    let error = refused.err().context("not refused")?;
    ensure!(
        error.kind() == std::io::ErrorKind::ConnectionRefused,
        "{error}"
    );
    // Other clients are not affected.
    direct.get("away").await?;
    proxy.make_available();
    api_is_back(&api).await
}

async fn api_is_back(api: &Api<ConfigMap>) -> anyhow::Result<()> {
    eventually("it is back", SOON, || async {
        Ok(Some(api.get("away").await.map(|_| ())?))
    })
    .await
}

pub(crate) async fn ends_with_its_handle(cluster: &TestCluster) -> anyhow::Result<()> {
    let (proxy, api, direct) = pair(cluster).await?;
    let stream = watch(&api).await?;
    let mut hold = proxy.hold(Match::any().name("never"), Moment::Before);
    let sending = api.clone();
    let sender = tokio::spawn(async move { make(&sending, "never").await });
    let held = hold.arrived().await?;
    drop(proxy);
    let (_, ended) = shown(stream).await?;
    ensure!(ended == "end", "{ended}");
    broken(timeout(SOON, sender).await??)?;
    ensure!(held.release().await.is_err());
    ensure!(direct.get_opt("never").await?.is_none());
    broken(timeout(SOON, api.get("never")).await?)
}
