//! The order of the operator's folders: a file uses only its own row of a table in docs/architecture.md and the rows above
//! it. The table is the data of this check; each file of the operator has a row in it.
//!
//! Test files may use everything.

use std::path::Path;

use crate::circles::{Uses, uses};
use crate::modules::Modules;
use crate::repository::{Faults, is_test, read};

const DOCUMENT: &str = "docs/architecture.md";
/// The line before the table.
const TITLE: &str = "imports go upward in this list only";
const FOLDER: &str = "crates/operator/src/";
/// Declares the others and uses none.
const ROOT: &str = "lib";

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let layers = layers(&read(root, DOCUMENT)?);
    let modules = Modules::read(root, &format!("{FOLDER}{ROOT}.rs"))?;
    let mut faults = judge(&layers, &uses(&modules));
    let unlisted = modules.0.iter().map(|module| part(&module.file));
    let unlisted = unlisted.filter(|part| *part != ROOT && row(&layers, part).is_none());
    faults.extend(unlisted.map(|part| format!("{DOCUMENT} has no row for {FOLDER}{part}")));
    faults.sort();
    faults.dedup();
    Ok(faults)
}

/// Uses of a row further down.
fn judge(layers: &[Vec<String>], uses: &Uses) -> Faults {
    let mut faults = Faults::new();
    for (from, used) in uses.iter().filter(|(from, _)| !is_test(from)) {
        for (to, name) in used {
            let (above, below) = (row(layers, part(to)), row(layers, part(from)));
            if let (Some(above), Some(below)) = (above, below)
                && above > below
            {
                faults.push(format!(
                    "{from} uses {name} of {to}, which is further down in the list of {DOCUMENT}"
                ));
            }
        }
    }
    faults
}

/// The rows of the table: the files and folders in the first cell of each, without `.rs` and `/`.
fn layers(text: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines().skip_while(|line| !line.contains(TITLE));
    lines.next();
    lines
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .filter_map(|line| {
            let first = line.trim_start_matches('|').split('|').next()?;
            let names = first.split('`').skip(1).step_by(2);
            Some(names.map(|name| part(name).to_owned()).collect())
        })
        .filter(|row: &Vec<String>| !row.is_empty())
        .collect()
}

/// Index of the row of a file or folder.
fn row(layers: &[Vec<String>], part: &str) -> Option<usize> {
    layers
        .iter()
        .position(|row| row.iter().any(|it| it == part))
}

/// The first component of a path in the operator's sources, without `.rs`.
fn part(path: &str) -> &str {
    let inner = path.strip_prefix(FOLDER).unwrap_or(path);
    let first = inner.split('/').next().unwrap_or_default();
    first.strip_suffix(".rs").unwrap_or(first)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const TABLE: &str = "In `src`, imports go upward in this list only:\n\n| folder | owns |\n|---|---|\n\
        | `timings.rs`, `throttles.rs`, `throttles/` | intervals |\n| `index.rs`, `index/` | stores |\n\
        | `controllers/` | work |\n\n| step | module |\n|---|---|\n| other | `x` |\n";

    fn faults(uses: &[(&str, &str)]) -> Faults {
        let mut all = Uses::new();
        for (from, to) in uses {
            let used: &mut BTreeMap<String, String> =
                all.entry(format!("{FOLDER}{from}")).or_default();
            used.insert(format!("{FOLDER}{to}"), "Name".to_owned());
        }
        judge(&layers(TABLE), &all)
    }

    #[test]
    fn rows_of_the_table() {
        let rows = layers(TABLE);
        assert_eq!(
            rows,
            [
                vec!["timings", "throttles", "throttles"],
                vec!["index", "index"],
                vec!["controllers"]
            ]
        );
    }

    #[test]
    fn imports_go_upward() {
        let good = [
            ("index/queues.rs", "timings.rs"),
            ("throttles/budget.rs", "timings.rs"),
            ("controllers/load_balancer/apply.rs", "index.rs"),
            ("controllers.rs", "controllers/ip_pool.rs"),
            ("lib.rs", "controllers.rs"),
        ];
        assert_eq!(faults(&good), Faults::new());
    }

    #[test]
    fn an_import_of_a_row_further_down_is_found() {
        for (from, to) in [
            ("index.rs", "controllers/budget.rs"),
            ("index/queues.rs", "controllers.rs"),
            ("timings.rs", "index/stores.rs"),
        ] {
            let found = faults(&[(from, to)]);
            assert_eq!(found.len(), 1, "{from} -> {to}: {found:?}");
            assert!(
                found[0].contains(from) && found[0].contains(to),
                "{found:?}"
            );
        }
    }

    #[test]
    fn test_files_may_use_everything() {
        for from in ["index/tests.rs", "index/queues/tests/long.rs"] {
            assert_eq!(faults(&[(from, "controllers.rs")]), Faults::new());
        }
    }
}
