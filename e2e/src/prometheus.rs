//! A real Prometheus in a test cluster, which scrapes operators, and the documented alerts.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use harvester_lb_testkit::{Process, eventually};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::world::{SOON, World, repository};

/// Its port.
const PORT: u16 = 9090;
/// Admin port of an operator.
const OPERATOR: u16 = 8081;
/// Longest time for an answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// A documented alert.
#[derive(Clone, Debug)]
pub struct Alert {
    /// Its name.
    pub name: String,
    /// The expression.
    pub expression: String,
    /// How long the expression must hold, in minutes.
    pub minutes: u32,
}

/// The alerts of docs/metrics.md, in order.
pub fn documented_alerts() -> anyhow::Result<Vec<Alert>> {
    let text = std::fs::read_to_string(repository().join("docs/metrics.md"))?;
    let (_, section) = text
        .split_once("## What to alert on")
        .context("no section on alerts")?;
    let mut alerts = Vec::new();
    let is_alert = |line: &&str| line.starts_with('|') && line.contains('`');
    for line in section.lines().filter(is_alert) {
        let row = line.replace("\\|", "\u{0}");
        let cells: Vec<String> = row
            .split('|')
            .map(|cell| cell.trim().replace('\u{0}', "|"))
            .collect();
        let [_, name, expression, ..] = &cells[..] else {
            bail!("{line}");
        };
        let (expression, wait) = expression
            .strip_prefix('`')
            .and_then(|e| e.split_once('`'))
            .with_context(|| line.to_owned())?;
        let minutes = match wait.trim() {
            "" => 0,
            wait => wait
                .strip_prefix("for ")
                .and_then(|w| w.strip_suffix(" min"))
                .with_context(|| line.to_owned())?
                .parse()?,
        };
        alerts.push(Alert {
            name: name.clone(),
            expression: expression.to_owned(),
            minutes,
        });
    }
    Ok(alerts)
}

/// A rule file with these alerts, which fire as soon as their expressions hold if `at_once`. YAML, as JSON is.
pub fn rules(alerts: &[Alert], at_once: bool) -> Value {
    let rule = |alert: &Alert| {
        let minutes = if at_once { 0 } else { alert.minutes };
        json!({"alert": alert.name, "expr": alert.expression, "for": format!("{minutes}m")})
    };
    let rules: Vec<Value> = alerts.iter().map(rule).collect();
    json!({"groups": [{"name": "documented", "rules": rules}]})
}

/// A running Prometheus.
pub struct Prometheus {
    process: Arc<Process>,
    at: SocketAddr,
}

/// Runs tests of these rules with promtool, in a folder of the cluster; `name`: of the files.
pub async fn promtool(
    world: &World,
    name: &str,
    rules: &Value,
    tests: &[Value],
) -> anyhow::Result<()> {
    let folder = world.cluster.folder();
    let rules_file = format!("{name}.yaml");
    std::fs::write(folder.join(&rules_file), rules.to_string())?;
    let tests = json!({"rule_files": [rules_file], "evaluation_interval": "1m", "tests": tests});
    let path = folder.join(format!("{name}.test.yaml"));
    std::fs::write(&path, tests.to_string())?;
    let output = tokio::process::Command::new("promtool")
        .args(["test", "rules"])
        .arg(&path)
        .output()
        .await
        .context("promtool")?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{said}");
    Ok(())
}

impl Prometheus {
    /// Starts one on the first node, which scrapes the operators on these nodes and evaluates these rules each second. The test
    /// cluster must have been started with the program `prometheus`.
    pub async fn start(world: &World, nodes: &[&str], rules: &Value) -> anyhow::Result<Self> {
        let operator = |node: &&str| Ok(SocketAddr::from((world.node_address(node)?, OPERATOR)));
        let targets: Vec<SocketAddr> = nodes.iter().map(operator).collect::<anyhow::Result<_>>()?;
        Self::start_for(world, &targets, rules).await
    }

    /// The same for these admin ports.
    pub async fn start_for(
        world: &World,
        targets: &[SocketAddr],
        rules: &Value,
    ) -> anyhow::Result<Self> {
        let targets: Vec<String> = targets.iter().map(ToString::to_string).collect();
        let job = json!({
            "job_name": "harvester-load-balancer", "honor_labels": true,
            "static_configs": [{"targets": targets}],
        });
        Self::start_with(world, &[job], rules).await
    }

    /// Samples of the past, in the text format of OpenMetrics, for the Prometheus that is started next.
    pub async fn backfill(world: &World, samples: &str) -> anyhow::Result<()> {
        let folder = world.cluster.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        let path = folder.join("samples");
        std::fs::write(&path, samples)?;
        let output = tokio::process::Command::new("promtool")
            .args(["tsdb", "create-blocks-from", "openmetrics"])
            .args([&path, &folder.join("data")])
            .output()
            .await
            .context("promtool")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{said}");
        Ok(())
    }

    /// The same for these entries of `scrape_configs`.
    pub async fn start_with(world: &World, jobs: &[Value], rules: &Value) -> anyhow::Result<Self> {
        let folder = world.cluster.folder().join("prometheus");
        std::fs::create_dir_all(&folder)?;
        std::fs::write(folder.join("rules.yaml"), rules.to_string())?;
        let config = json!({
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yaml"],
            "scrape_configs": jobs,
        });
        let path = folder.join("prometheus.yaml");
        std::fs::write(&path, config.to_string())?;
        let text = |flag: &str, path: &std::path::Path| format!("--{flag}={}", path.display());
        let flags = [
            text("config.file", &path),
            text("storage.tsdb.path", &folder.join("data")),
            format!("--web.listen-address={}:{PORT}", Ipv4Addr::UNSPECIFIED),
            "--log.level=warn".to_owned(),
        ];
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let process = world
            .cluster
            .spawn("node1", "prometheus", &flags, &[], "prometheus")?;
        let at = SocketAddr::from((world.node_address("node1")?, PORT));
        let prometheus = Self { process, at };
        let ready = || async {
            Ok(prometheus
                .get("/-/ready")
                .await
                .is_ok_and(|(code, _)| code == 200))
        };
        prometheus.process.ready(SOON, ready).await?;
        Ok(prometheus)
    }

    /// Address and port of its HTTP API.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    /// The values that an expression has now, each with its labels.
    pub async fn query(&self, expression: &str) -> anyhow::Result<Vec<(Value, f64)>> {
        let path = format!("/api/v1/query?query={}", percent_encoded(expression));
        let (code, body) = self.get(&path).await?;
        let answer: Value = serde_json::from_str(&body).context(body)?;
        ensure!(code == 200, "{expression}: {answer}");
        let results = answer["data"]["result"].as_array().context("no result")?;
        let value = |result: &Value| {
            let text = result["value"][1].as_str().context("no value")?;
            Ok((result["metric"].clone(), text.parse()?))
        };
        results.iter().map(value).collect()
    }

    /// The names of the alerts that fire.
    pub async fn firing(&self) -> anyhow::Result<BTreeSet<String>> {
        let (_, body) = self.get("/api/v1/alerts").await?;
        let answer: Value = serde_json::from_str(&body).context(body)?;
        let alerts = answer["data"]["alerts"].as_array().context("no alerts")?;
        let firing = alerts.iter().filter(|alert| alert["state"] == "firing");
        let name = |alert: &Value| alert["labels"]["alertname"].as_str().map(ToOwned::to_owned);
        Ok(firing.filter_map(name).collect())
    }

    /// Waits until all these alerts fire at the same time.
    pub async fn fires(&self, alerts: &[&str]) -> anyhow::Result<()> {
        eventually(&format!("{alerts:?} fire"), 3 * SOON, || async {
            let firing = self.firing().await?;
            let lacking: Vec<_> = alerts.iter().filter(|a| !firing.contains(**a)).collect();
            ensure!(lacking.is_empty(), "{lacking:?} do not fire");
            Ok(Some(()))
        })
        .await
    }

    /// Fails unless a query has a number.
    pub async fn has_data(&self, query: &str) -> anyhow::Result<()> {
        let data = self.query(query).await;
        let data = data.with_context(|| query.to_owned())?;
        let is_number = data.iter().any(|(_, value)| value.is_finite());
        ensure!(is_number, "{query} has no data: {data:?}");
        Ok(())
    }

    /// Waits until none of these alerts fires.
    pub async fn is_silent(&self, alerts: &[&str]) -> anyhow::Result<()> {
        eventually(&format!("{alerts:?} do not fire"), 3 * SOON, || async {
            let firing = self.firing().await?;
            let loud: Vec<_> = alerts.iter().filter(|a| firing.contains(**a)).collect();
            ensure!(loud.is_empty(), "{loud:?} fire");
            Ok(Some(()))
        })
        .await
    }

    /// Ends it.
    pub async fn end(&self) -> anyhow::Result<()> {
        self.process.end().await
    }

    async fn get(&self, path: &str) -> anyhow::Result<(u16, String)> {
        let exchange = async {
            let mut stream = TcpStream::connect(self.at).await?;
            // In HTTP/1.0 the answer is not chunked.
            let request = format!("GET {path} HTTP/1.0\r\nHost: prometheus\r\n\r\n");
            stream.write_all(request.as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            anyhow::Ok(answer)
        };
        let answer = tokio::time::timeout(TIMEOUT, exchange).await??;
        let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP answer")?;
        let code = head.split(' ').nth(1).context("no status line")?.parse()?;
        Ok((code, body.to_owned()))
    }
}

/// A text as part of a URL's query.
fn percent_encoded(text: &str) -> String {
    let byte = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => {
            char::from(byte).to_string()
        }
        other => format!("%{other:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The queries of a Grafana dashboard, with its variables replaced as Grafana does. Those of a row of the dashboard are about
/// another program than all others.
pub struct DashboardQueries {
    /// Those of the row about the webhook.
    pub webhook: Vec<String>,
    /// All others, which are about the operator.
    pub operator: Vec<String>,
}

impl DashboardQueries {
    /// The queries of the chart's dashboard.
    pub fn of_chart() -> anyhow::Result<Self> {
        let path = repository().join("charts/harvester-load-balancer/files/dashboard.json");
        let dashboard = serde_json::from_str(&std::fs::read_to_string(path)?)?;
        Ok(Self::of(&dashboard))
    }

    /// The queries of a dashboard.
    pub fn of(dashboard: &Value) -> Self {
        let (mut webhook, mut operator) = (Vec::new(), Vec::new());
        let mut is_of_webhook = false;
        for panel in dashboard["panels"].as_array().into_iter().flatten() {
            if panel["type"] == "row" {
                is_of_webhook = panel["title"] == "Webhook";
            }
            let targets = panel["targets"].as_array().into_iter().flatten();
            let expressions = targets.filter_map(|target| target["expr"].as_str());
            let queries = if is_of_webhook {
                &mut webhook
            } else {
                &mut operator
            };
            queries.extend(expressions.map(|it| it.replace("$__rate_interval", "1m")));
        }
        Self { webhook, operator }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ops_1_queries_are_encoded() {
        let encoded = percent_encoded("a{b=\"c d\"} > 1");
        assert_eq!(encoded, "a%7Bb%3D%22c%20d%22%7D%20%3E%201");
    }

    #[test]
    fn ops_1_the_chart_has_the_documented_alerts() {
        let path = repository().join("charts/harvester-load-balancer/files/alerts.yaml");
        let text = std::fs::read_to_string(path).unwrap();
        let file: Value = serde_saphyr::from_str(&text).unwrap();
        let rules = file["groups"][0]["rules"].as_array().unwrap();
        let alerts = documented_alerts().unwrap();
        assert_eq!(rules.len(), alerts.len());
        for (rule, alert) in rules.iter().zip(&alerts) {
            assert_eq!(rule["alert"], alert.name);
            assert_eq!(rule["expr"], alert.expression, "{}", alert.name);
            let minutes = rule["for"].as_str().unwrap_or("0m");
            assert_eq!(minutes, format!("{}m", alert.minutes), "{}", alert.name);
            assert!(rule["labels"]["severity"].is_string(), "{rule}");
            for text in ["summary", "description"] {
                assert!(rule["annotations"][text].is_string(), "{rule}");
            }
        }
    }

    #[test]
    fn ops_1_each_panel_of_the_dashboard_has_queries_and_a_place() {
        let path = repository().join("charts/harvester-load-balancer/files/dashboard.json");
        let dashboard: Value =
            serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let panels = dashboard["panels"].as_array().unwrap();
        let mut ids = BTreeSet::new();
        let mut places = Vec::new();
        for panel in panels {
            assert!(ids.insert(panel["id"].as_u64().unwrap()), "{panel}");
            let targets = panel["targets"].as_array().map_or(0, Vec::len);
            assert!(panel["type"] == "row" || targets > 0, "{panel}");
            let place = &panel["gridPos"];
            let [x, y, w, h] = ["x", "y", "w", "h"].map(|key| place[key].as_u64().unwrap());
            assert!(x + w <= 24, "{panel}");
            places.push((x, y, w, h));
        }
        for (at, (x, y, w, h)) in places.iter().enumerate() {
            let overlaps = |(ox, oy, ow, oh): &(u64, u64, u64, u64)| {
                x < &(ox + ow) && ox < &(x + w) && y < &(oy + oh) && oy < &(y + h)
            };
            assert!(!places[at + 1..].iter().any(overlaps), "{x} {y}");
        }
        let queries = DashboardQueries::of(&dashboard);
        let counts = (queries.operator.len(), queries.webhook.len());
        assert!(counts.0 > 20 && counts.1 > 5, "{counts:?}");
        for query in [queries.operator, queries.webhook].concat() {
            assert!(!query.contains('$'), "{query}");
        }
    }
}
