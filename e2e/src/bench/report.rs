//! What is printed of a run, and written as JSON.

use std::path::PathBuf;

use anyhow::Context;
use serde_json::{Value, json};

use crate::world::repository;

/// The rows of a run.
#[derive(Debug, Default)]
pub struct Report {
    rows: Vec<Value>,
}

impl Report {
    /// No rows yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A figure beside the limit of the same requests.
    pub fn against(&mut self, what: &str, unit: &str, figure: f64, limit: f64) {
        let ratio = figure / limit;
        self.say(&format!(
            "{what:<64} {figure:>10.2} {unit:<6} limit {limit:>9.2}  ratio {ratio:.2}"
        ));
        self.rows.push(json!({
            "row": what, "unit": unit, "figure": figure, "limit": limit, "ratio": ratio
        }));
    }

    /// A figure that speaks for itself.
    pub fn figure(&mut self, what: &str, unit: &str, figure: f64) {
        self.say(&format!("{what:<64} {figure:>10.2} {unit}"));
        self.rows
            .push(json!({"row": what, "unit": unit, "figure": figure}));
    }

    #[allow(clippy::print_stdout, reason = "what the program is for")]
    #[allow(clippy::unused_self, reason = "rows are said where they are kept")]
    fn say(&self, line: &str) {
        println!("{line}");
    }

    /// Writes the rows as JSON.
    pub fn write(&self) -> anyhow::Result<()> {
        let path = path();
        let text = serde_json::to_string_pretty(&self.rows)?;
        std::fs::write(&path, text).with_context(|| path.display().to_string())
    }
}

fn path() -> PathBuf {
    repository().join("target/bench.json")
}
