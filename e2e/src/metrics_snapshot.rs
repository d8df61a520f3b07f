//! The operator's metrics, read from its admin port.

use std::collections::BTreeMap;

use anyhow::{Context, ensure};
use harvester_lb_testkit::eventually;

use crate::world::{SOON, World};

/// One series and its value.
#[derive(Clone, Debug)]
pub struct Series {
    /// The name of the metric.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its value.
    pub value: f64,
}

impl Series {
    /// The value of a label; empty if there is none.
    pub fn label(&self, name: &str) -> &str {
        self.labels.get(name).map_or("", String::as_str)
    }
}

/// All metrics of one operator at one moment.
#[derive(Clone, Debug, Default)]
pub struct MetricsSnapshot(pub Vec<Series>);

impl MetricsSnapshot {
    /// Reads the metrics of the operator on a node.
    pub async fn read(world: &World, node: &str) -> anyhow::Result<Self> {
        let (code, text) = world.get(node, "/metrics").await?;
        ensure!(code == 200, "/metrics answers {code}");
        Self::parse(&text)
    }

    /// Parses metrics in the text format of Prometheus.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let lines = text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'));
        Ok(Self(lines.map(parse).collect::<anyhow::Result<_>>()?))
    }

    /// The sum over the series of a name for which `wanted` holds.
    pub fn sum(&self, name: &str, wanted: impl Fn(&Series) -> bool) -> f64 {
        let all = self.0.iter().filter(|s| s.name == name && wanted(s));
        all.map(|s| s.value).sum()
    }

    /// Whether the operator is leader.
    pub fn is_leader(&self) -> bool {
        self.sum("harvester_lb_leader", |_| true) > 0.0
    }

    /// Whether no key is due or failing.
    pub fn idle(&self) -> bool {
        let due = self.sum("harvester_lb_queue_depth", |_| true);
        let failing = self.sum("harvester_lb_failing", |_| true);
        due + failing < 0.5
    }

    /// Number of reconciles of LoadBalancers.
    pub fn reconciles(&self) -> f64 {
        let name = "harvester_lb_reconcile_duration_seconds_count";
        self.sum(name, |s| s.label("kind") == "LoadBalancer")
    }

    /// Write requests, by `verb resource`, regardless of their outcome.
    pub fn writes(&self) -> BTreeMap<String, u64> {
        let mut writes = BTreeMap::new();
        for series in &self.0 {
            let verb = series.label("verb");
            if series.name == "harvester_lb_api_requests_total"
                && ["create", "patch", "update", "delete"].contains(&verb)
                // Permission checks at the start; nothing is stored.
                && series.label("resource") != "selfsubjectaccessreviews"
            {
                let key = format!("{verb} {}", series.label("resource"));
                #[allow(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "a count"
                )]
                let value = series.value as u64;
                *writes.entry(key).or_default() += value;
            }
        }
        writes
    }

    /// Writes since an earlier reading; resources without any are left out.
    pub fn writes_since(&self, before: &Self) -> BTreeMap<String, u64> {
        let before = before.writes();
        let mut now = self.writes();
        for (key, value) in &mut now {
            *value -= before.get(key).copied().unwrap_or(0);
        }
        now.retain(|_, value| *value > 0);
        now
    }
}

/// Waits until one of the operators on these nodes is leader, and returns its node.
pub async fn leader<'a>(world: &World, nodes: &[&'a str]) -> anyhow::Result<&'a str> {
    eventually("one leads", SOON, || async {
        let mut leaders = Vec::new();
        for node in nodes {
            if MetricsSnapshot::read(world, node)
                .await
                .is_ok_and(|f| f.is_leader())
            {
                leaders.push(*node);
            }
        }
        ensure!(leaders.len() < 2, "{leaders:?} lead");
        Ok(leaders.pop())
    })
    .await
}

fn parse(line: &str) -> anyhow::Result<Series> {
    let (series, value) = line
        .rsplit_once(' ')
        .with_context(|| format!("no value in {line:?}"))?;
    let (name, labels) = series.split_once('{').unwrap_or((series, ""));
    let mut found = BTreeMap::new();
    for pair in labels.trim_end_matches('}').split("\",") {
        if let Some((key, value)) = pair.split_once("=\"") {
            found.insert(
                key.trim_start_matches(',').to_owned(),
                value.trim_end_matches('"').to_owned(),
            );
        }
    }
    Ok(Series {
        name: name.to_owned(),
        labels: found,
        value: value.parse()?,
    })
}
