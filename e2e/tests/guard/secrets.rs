//! The operator's output holds no secret: neither logs nor metrics, Events or conditions, at any level and with any
//! error.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use harvester_lb_api::LoadBalancer;
use harvester_lb_e2e::World;
use harvester_lb_e2e::fake_kube_vip::FakeKubeVip;
use harvester_lb_e2e::permissions::{self, User};
use harvester_lb_e2e::quiet::reset;
use harvester_lb_e2e::requests;
use harvester_lb_fixtures::{cluster_spec, vm_spec, with};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::{ListParams, PostParams};
use serde_json::json;

use crate::stage::{LOUD, Operator, furnish};

/// Shorter parts could occur anywhere by chance.
const LEAST: usize = 16;

/// Forbidden texts.
#[derive(Default)]
struct Forbidden(BTreeSet<String>);

impl Forbidden {
    /// A secret, as it is and in the forms in which programs print bytes.
    fn add(&mut self, secret: &str) {
        let hex: Vec<String> = secret.bytes().map(|b| format!("{b:02x}")).collect();
        let bytes: Vec<String> = secret.bytes().take(LEAST).map(|b| b.to_string()).collect();
        self.0.extend([
            secret.to_owned(),
            base64(secret),
            hex.concat().chars().take(4 * LEAST).collect(),
            bytes.join(", "),
        ]);
        // The lines of a key, the parts of a token.
        let parts = secret.split(['\n', '.']).map(str::trim);
        self.0.extend(
            parts
                .filter(|p| p.len() >= LEAST && !p.starts_with("-----"))
                .map(ToOwned::to_owned),
        );
    }

    fn look(&self, at: &str, text: &str) -> anyhow::Result<()> {
        for secret in &self.0 {
            if let Some(found) = text.find(secret) {
                let line = text[..found].lines().count();
                anyhow::bail!("{at} holds a secret in line {line}");
            }
        }
        Ok(())
    }
}

fn base64(text: &str) -> String {
    let value = serde_json::to_value(ByteString(text.as_bytes().to_vec()));
    value.unwrap().as_str().unwrap().to_owned()
}

/// Every token in a kubeconfig of the test cluster.
fn tokens(world: &World, forbidden: &mut Forbidden) -> anyhow::Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(world.cluster.folder())? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "kubeconfig") {
            let text = std::fs::read_to_string(&path)?;
            let token = text
                .split("token: \"")
                .nth(1)
                .and_then(|t| t.split('"').next());
            let token = token.with_context(|| path.display().to_string())?;
            // Tokens of the test cluster's own users are short and not secret: `admin-token`.
            if token.len() >= 2 * LEAST {
                forbidden.add(token);
                count += 1;
            }
        }
    }
    Ok(count)
}

/// Checks the logs of all operators of this test cluster; returns their length.
fn look_at_logs(world: &World, forbidden: &Forbidden) -> anyhow::Result<usize> {
    let mut size = 0;
    for entry in std::fs::read_dir(world.cluster.folder())? {
        let path = entry?.path();
        let name = path
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        if name.starts_with("operator") {
            let text = String::from_utf8_lossy(&std::fs::read(&path)?).into_owned();
            forbidden.look(&name, &text)?;
            ensure!(
                !text.contains("Bearer "),
                "{name} holds an Authorization header"
            );
            size += text.len();
        }
    }
    Ok(size)
}

pub async fn no_secret_in_what_is_said_of_a_kubeconfig(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    let token = "eyJhbGciOiJSUzI1NiJ9-a-token-that-nobody-may-see-4711";
    let password = "a password that nobody may see 4712";
    let key = "-----BEGIN PRIVATE KEY-----\nMIGHAgEAMBMGByqGSM49nobodymaysee4713\n-----END PRIVATE KEY-----\n";
    let mut forbidden = Forbidden::default();
    for secret in [token, password, key] {
        forbidden.add(secret);
    }
    let (server, ca) = (
        world.cluster.server().to_owned(),
        base64(&world.cluster.ca_pem()),
    );
    let cluster =
        |server: &str| format!("{{server: \"{server}\", certificate-authority-data: \"{ca}\"}}");
    let right = cluster(&server);
    let with_token = format!("{{token: \"{token}\"}}");
    let other = foreign_certificate(&world)?;
    let cases: Vec<(&str, String, String)> = vec![
        ("a wrong token", right.clone(), with_token.clone()),
        (
            "a token that is no header",
            right.clone(),
            format!("{{token: \"{token}\\u0001\\n\"}}"),
        ),
        (
            "a token of a wrong type",
            right.clone(),
            format!("{{token: [\"{token}\"]}}"),
        ),
        (
            "broken after the token",
            right.clone(),
            format!("{{token: \"{token}\", x: ]}}"),
        ),
        (
            "broken amid the token",
            right.clone(),
            format!("{{token: \"{token}"),
        ),
        (
            "an unknown escape in the token",
            right.clone(),
            format!("{{token: \"{token}\\q\"}}"),
        ),
        (
            "a wrong password",
            right.clone(),
            format!("{{username: u, password: \"{password}\"}}"),
        ),
        (
            "a password of a wrong type",
            right.clone(),
            format!("{{username: u, password: {{\"{password}\": 1}}}}"),
        ),
        (
            "a key that is no base64",
            right.clone(),
            format!(
                "{{client-certificate-data: \"{ca}\", client-key-data: \"{}\"}}",
                key.replace('\n', " ")
            ),
        ),
        (
            "a key that is none",
            right.clone(),
            format!(
                "{{client-certificate-data: \"{ca}\", client-key-data: \"{}\"}}",
                base64(key)
            ),
        ),
        (
            "nobody there",
            cluster("https://10.251.0.1:1"),
            with_token.clone(),
        ),
        (
            "no such name",
            cluster("https://no.such.name:6443"),
            with_token.clone(),
        ),
        (
            "plain HTTP",
            cluster(&server.replace("https", "http")),
            with_token.clone(),
        ),
        ("no URL", cluster("::/not a url"), with_token.clone()),
        (
            "somebody else's certificate",
            format!("{{server: \"{server}\", certificate-authority-data: \"{other}\"}}"),
            with_token,
        ),
    ];
    for (number, (what, cluster, user)) in cases.iter().enumerate() {
        let path = world.cluster.folder().join(format!("broken-{number}.yaml"));
        let text = format!(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\nclusters: [{{name: c, cluster: {cluster}}}]\n\
             contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {user}}}]\n"
        );
        std::fs::write(&path, text)?;
        let kubeconfig = path.to_str().context("no text")?;
        let port = 9200 + u16::try_from(number)?;
        let operator = Operator::spawn(&world, kubeconfig, port, &[], LOUD)?;
        let said = ["permissions not checked", "\"exiting\""];
        harvester_lb_testkit::eventually(what, harvester_lb_e2e::world::SOON, || async {
            let log = operator.process.log();
            ensure!(
                said.iter().any(|s| log.contains(s)),
                "{}",
                operator.process.tail()
            );
            Ok(Some(()))
        })
        .await?;
        if let Ok((_, text)) = operator.get("/readyz").await {
            forbidden.look("/readyz", &text)?;
        }
        let log = operator.process.log();
        forbidden
            .look("the log", &log)
            .with_context(|| format!("{what}:\n{}", operator.process.tail()))?;
        let line = log.lines().find(|l| said.iter().any(|s| l.contains(s)));
        eprintln!("{what}: {}", line.unwrap_or_default());
    }
    look_at_logs(&world, &forbidden)?;
    Ok(())
}

/// A certificate that is not the API server's authority, in base64.
fn foreign_certificate(world: &World) -> anyhow::Result<String> {
    Ok(base64(&world.cluster.issue(&["somebody.else"], &[])?.0))
}

pub async fn no_secret_in_anything_that_is_written(world: Arc<World>) -> anyhow::Result<()> {
    reset(&world).await?;
    let ns = "secrets";
    furnish(&world, ns, "10.98.0.0/24").await?;
    let mut user = User::create(&world, "secrets", &permissions::all()?).await?;
    let mut forbidden = Forbidden::default();

    // A client certificate in addition to the token; the token decides.
    let (certificate, key) = world.cluster.issue(&["somebody"], &[])?;
    forbidden.add(&key);
    forbidden.add(&certificate);
    let text = std::fs::read_to_string(&user.kubeconfig)?;
    let both = format!(
        "client-certificate-data: \"{}\", client-key-data: \"{}\", token: \"",
        base64(&certificate),
        base64(&key)
    );
    let path = world.cluster.folder().join("secrets-both.kubeconfig");
    std::fs::write(&path, text.replace("token: \"", &both))?;
    user.kubeconfig = path.to_str().context("no text")?.to_owned();
    let count = tokens(&world, &mut forbidden)?;
    ensure!(count >= 1, "no token was found");

    let password = "correct horse battery staple";
    forbidden.add(password);
    let secret: Secret =
        serde_json::from_value(json!({"metadata": {"name": "a"}, "stringData": {"p": password}}))?;
    Api::<Secret>::namespaced(world.client(), ns)
        .create(&PostParams::default(), &secret)
        .await?;

    let fake_kube_vip = FakeKubeVip::start(&world.client());
    let operator = Operator::start(&world, &user, 8081, &[], LOUD).await?;
    world.lb(ns, "guest", cluster_spec()).await?;
    world.lb(ns, "web", vm_spec("web")).await?;
    world
        .lb(
            ns,
            "lost",
            with(cluster_spec(), json!({"ipPool": "missing"})),
        )
        .await?;
    world
        .lb(ns, "Wrong.name".to_lowercase().as_str(), vm_spec("web"))
        .await?;
    world.lb_reason(ns, "guest", "Ready").await?;
    world.lb_reason(ns, "web", "Ready").await?;
    world.lb_reason(ns, "lost", "PoolNotFound").await?;
    world.lb_reason(ns, "wrong.name", "ApiError").await?;
    let refused = permissions::all()?
        .into_iter()
        .filter(|r| r.verb != "create");
    user.may(&world, &refused.collect::<Vec<_>>()).await?;
    world.lb(ns, "refused", cluster_spec()).await?;
    world.lb_reason(ns, "refused", "ApiError").await?;
    user.may(&world, &permissions::all()?).await?;
    world.lb_reason(ns, "refused", "Ready").await?;
    let (_, figures) = operator.get("/metrics").await?;
    forbidden.look("/metrics", &figures)?;
    operator.stop().await?;
    drop(fake_kube_vip);

    let everything = ListParams::default();
    let lbs = Api::<LoadBalancer>::all(world.client())
        .list(&everything)
        .await?;
    forbidden.look("a load balancer", &serde_json::to_string(&lbs.items)?)?;
    let pools = world.pools().list(&everything).await?;
    forbidden.look("a pool", &serde_json::to_string(&pools.items)?)?;
    let events = Api::<Event>::all(world.client()).list(&everything).await?;
    ensure!(!events.items.is_empty(), "there is no Event");
    forbidden.look("an Event", &serde_json::to_string(&events.items)?)?;
    let seen = requests::of(&world, &user.name)?;
    let secrets: Vec<_> = seen.iter().filter(|r| r.resource == "secrets").collect();
    ensure!(!seen.is_empty() && secrets.is_empty(), "{secrets:#?}");
    let size = look_at_logs(&world, &forbidden)?;
    eprintln!(
        "{} texts of {count} tokens and other secrets are not in {size} bytes of logs",
        forbidden.0.len()
    );
    Ok(())
}
