//! The Helm chart: its copy of the CRDs equals the original, its version is that of the workspace, each of its values has a
//! description and a place in the schema, and the table of values in its README.md is that of values.yaml.
//! `cargo run -p xtask -- write-chart` writes the copy and the table.

use std::path::Path;

use anyhow::Context;
use serde_json::Value;

use crate::repository::{Faults, read};

const CRDS: &str = "crds/crds.yaml";
const COPY: &str = "charts/harvester-load-balancer/files/crds.yaml";
const CHART: &str = "charts/harvester-load-balancer/Chart.yaml";
const VALUES: &str = "charts/harvester-load-balancer/values.yaml";
const SCHEMA: &str = "charts/harvester-load-balancer/values.schema.json";
const README: &str = "charts/harvester-load-balancer/README.md";
/// The lines around the table.
const BEGIN: &str = "<!-- values -->\n";
const END: &str = "<!-- end of values -->\n";

/// A value of the chart.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// Its keys, with dots.
    path: String,
    /// As written in values.yaml; of a map its leaves.
    default: String,
    meaning: String,
}

impl Row {
    /// Whether the templates need a value. Helm leaves out a value that a user sets to null, and so do the defaults then.
    fn is_needed(&self) -> bool {
        let is_map = self.default.contains(": ");
        !is_map && !["", "\"\"", "{}", "[]"].contains(&&*self.default)
    }
}

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = Faults::new();
    if read(root, CRDS)? != read(root, COPY)? {
        faults.push(format!("{COPY} is not {CRDS}; run `make chart`"));
    }
    faults.extend(versions(&read(root, "Cargo.toml")?, &read(root, CHART)?));
    let (rows, undescribed) = rows(&read(root, VALUES)?);
    faults.extend(undescribed);
    let schema: Value = serde_json::from_str(&read(root, SCHEMA)?).context(SCHEMA)?;
    faults.extend(in_schema(&rows, &schema));
    let readme = read(root, README)?;
    if with_table(&readme, &rows)? != readme {
        faults.push(format!(
            "{README}: the table is not that of {VALUES}; run `make chart`"
        ));
    }
    if rows.len() < 20 {
        let number = rows.len();
        faults.push(format!("only {number} values were found in {VALUES}; crates/xtask/src/chart.rs does not understand it any more"));
    }
    Ok(faults)
}

/// Writes what [`check`] compares.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    std::fs::copy(root.join(CRDS), root.join(COPY)).context(COPY)?;
    let (rows, _) = rows(&read(root, VALUES)?);
    let readme = with_table(&read(root, README)?, &rows)?;
    std::fs::write(root.join(README), readme).context(README)
}

/// The chart's versions against that of the workspace.
fn versions(workspace: &str, chart: &str) -> Faults {
    let (_, package) = workspace
        .split_once("[workspace.package]")
        .unwrap_or_default();
    let version = value_of(package, "version = ").trim_matches('"').to_owned();
    let wanted = [
        ("version: ", version.clone()),
        ("appVersion: ", format!("v{version}")),
    ];
    let wrong = wanted
        .iter()
        .filter(|(key, wanted)| value_of(chart, key) != wanted);
    wrong
        .map(|(key, wanted)| format!("{CHART}: {key}is not {wanted}, the version in Cargo.toml"))
        .collect()
}

/// What follows the key on the first line that begins with it; empty if there is none.
fn value_of<'a>(text: &'a str, key: &str) -> &'a str {
    let found = text.lines().find_map(|line| line.strip_prefix(key));
    found.map_or("", str::trim)
}

/// The values, and those that have no description. A description is a comment that begins with `# -- `; of a map it stands for
/// all that the map contains.
fn rows(text: &str) -> (Vec<Row>, Faults) {
    let (mut rows, mut faults): (Vec<Row>, _) = (Vec::new(), Faults::new());
    let mut sections: Vec<(usize, &str)> = Vec::new();
    let mut meaning: Option<String> = None;
    // The row of a map whose leaves follow, with its indentation and the sections inside.
    let mut map: Option<(usize, Vec<(usize, &str)>)> = None;
    for line in text.lines() {
        let words = line.trim();
        let indent = line.len() - line.trim_start().len();
        if words.is_empty() {
            meaning = None;
            continue;
        }
        if let Some((outer, inside)) = &mut map
            && indent > *outer
        {
            if let (Some((key, value)), Some(row)) = (words.split_once(':'), rows.last_mut()) {
                let path = enter(inside, indent, key);
                if !value.trim().is_empty() {
                    let separator = if row.default.is_empty() { "" } else { ", " };
                    row.default
                        .push_str(&format!("{separator}{path}: {}", value.trim()));
                }
            }
            continue;
        }
        map = None;
        if let Some(text) = words.strip_prefix("# -- ") {
            meaning = Some(text.to_owned());
        } else if let Some(text) = words.strip_prefix('#') {
            if let Some(meaning) = &mut meaning {
                meaning.push(' ');
                meaning.push_str(text.trim());
            }
        } else if let Some((key, value)) = words.split_once(':') {
            let path = enter(&mut sections, indent, key);
            let value = value.trim();
            match meaning.take() {
                Some(meaning) => {
                    if value.is_empty() {
                        map = Some((indent, Vec::new()));
                    }
                    let default = value.to_owned();
                    rows.push(Row {
                        path,
                        default,
                        meaning,
                    });
                }
                None if value.is_empty() => {}
                None => faults.push(format!("{VALUES}: {path} has no description")),
            }
        }
    }
    (rows, faults)
}

/// Enters a key at this indentation, and returns its path.
fn enter<'a>(sections: &mut Vec<(usize, &'a str)>, indent: usize, key: &'a str) -> String {
    sections.retain(|(outer, _)| *outer < indent);
    sections.push((indent, key));
    let keys: Vec<&str> = sections.iter().map(|(_, key)| *key).collect();
    keys.join(".")
}

/// Values that the schema lacks, and properties of the schema that are neither a value nor described: those are spellings of
/// other charts.
fn in_schema(rows: &[Row], schema: &Value) -> Faults {
    let mut faults = Faults::new();
    for row in rows {
        let mut part = schema;
        for key in row.path.split('.') {
            let Some(properties) = part.get("properties") else {
                break;
            };
            let required = part["required"].as_array();
            let is_required = required.is_some_and(|keys| keys.iter().any(|it| it == key));
            if row.is_needed() && !is_required {
                faults.push(format!("{SCHEMA} does not require {key} of {}", row.path));
            }
            part = &properties[key];
        }
        if part.is_null() {
            faults.push(format!("{SCHEMA} lacks {}", row.path));
        }
    }
    let mut open = vec![(String::new(), schema)];
    while let Some((path, part)) = open.pop() {
        for (key, property) in part["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}{key}");
            let inside = format!("{path}.");
            let is_value = |row: &Row| row.path == path || row.path.starts_with(&inside);
            if !rows.iter().any(is_value) && property["description"].is_null() {
                faults.push(format!("{SCHEMA} has {path}, which {VALUES} lacks"));
            }
            if !rows.iter().any(|row| row.path == path) {
                open.push((inside, property));
            }
        }
    }
    faults
}

/// The README with the table of these values.
fn with_table(readme: &str, rows: &[Row]) -> anyhow::Result<String> {
    let parts = readme
        .split_once(BEGIN)
        .and_then(|(before, rest)| Some((before, rest.split_once(END)?.1)));
    let (before, after) = parts.with_context(|| format!("{README} has no {BEGIN}"))?;
    let cell = |text: &str| text.replace('|', "\\|");
    let mut table = String::from("| value | default | meaning |\n|---|---|---|\n");
    for row in rows {
        let (path, default, meaning) = (&row.path, cell(&row.default), cell(&row.meaning));
        table.push_str(&format!("| `{path}` | `{default}` | {meaning} |\n"));
    }
    Ok(format!("{before}{BEGIN}{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const YAML: &str = "\
# Text that describes nothing.

# -- The first,
# on two lines
first: 1

image:
  # -- A tag
  tag: \"\"
  other: x

# -- A map
resources:
  requests:
    cpu: 50m
  limits:
    # A comment.
    memory: 5Mi
# -- A | b
last: []
";

    fn row(path: &str, default: &str, meaning: &str) -> Row {
        Row {
            path: path.to_owned(),
            default: default.to_owned(),
            meaning: meaning.to_owned(),
        }
    }

    #[test]
    fn values_have_paths_defaults_and_descriptions() {
        let (rows, faults) = rows(YAML);
        assert_eq!(
            rows,
            [
                row("first", "1", "The first, on two lines"),
                row("image.tag", "\"\"", "A tag"),
                row(
                    "resources",
                    "requests.cpu: 50m, limits.memory: 5Mi",
                    "A map"
                ),
                row("last", "[]", "A | b"),
            ]
        );
        assert!(
            matches!(&faults[..], [fault] if fault.contains("image.other has no description")),
            "{faults:?}"
        );
    }

    #[test]
    fn the_table_is_replaced_and_nothing_else() {
        let readme = format!("before\n{BEGIN}old\n{END}after\n");
        let new = with_table(&readme, &[row("a.b", "x|y", "M | n")]).unwrap();
        assert_eq!(
            new,
            format!(
                "before\n{BEGIN}| value | default | meaning |\n|---|---|---|\n| `a.b` | `x\\|y` | M \\| n |\n{END}after\n"
            )
        );
        assert_eq!(
            with_table(&new, &[row("a.b", "x|y", "M | n")]).unwrap(),
            new
        );
        assert!(with_table("nothing", &[]).is_err());
    }

    #[test]
    fn the_schema_has_the_values_and_described_spellings_of_others() {
        let schema = serde_json::json!({"properties": {
            "a": {}, "free": {"type": "object"}, "old": {"description": "as before"},
            "b": {"properties": {"c": {}, "d": {}}},
        }});
        let rows = ["a", "free", "b.c", "missing"].map(|path| row(path, "", ""));
        let needed = [row("b.c", "3", "")];
        let faults = ["b", "c"].map(|key| format!("{SCHEMA} does not require {key} of b.c"));
        assert_eq!(in_schema(&needed, &schema)[..2], faults);
        assert_eq!(
            in_schema(&rows, &schema),
            [
                format!("{SCHEMA} lacks missing"),
                format!("{SCHEMA} has b.d, which {VALUES} lacks")
            ]
        );
    }

    #[test]
    fn the_version_is_the_workspace_s() {
        let workspace = "[package]\nversion = \"9\"\n[workspace.package]\nversion = \"1.2.3\"\n";
        let chart = "name: x\nversion: 1.2.3\nappVersion: v1.2.3\n";
        assert_eq!(versions(workspace, chart), Faults::new());
        assert_eq!(
            versions(workspace, &chart.replace("1.2.3", "1.2.4")).len(),
            2
        );
    }
}
