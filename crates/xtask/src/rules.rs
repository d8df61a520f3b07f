//! docs/rules.md lists every rule that the code names by its id, with the file that implements it; that file must name
//! the rule, in a comment or in the name of a test.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::repository::{Faults, files, read};

const DOCUMENT: &str = "docs/rules.md";
/// Prefixes of rule ids.
const PREFIXES: [&str; 19] = [
    "ALC", "API", "BE", "EPS", "FIN", "GC", "HC", "IPA", "OPS", "POOL", "PV", "REC", "REL", "RNG",
    "RUN", "SEL", "SVC", "VAL", "WV",
];

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = Vec::new();
    let document = read(root, DOCUMENT)?;
    let rows = rows(&document);
    let mut named: BTreeMap<String, String> = BTreeMap::new();
    for crate_ in ["api", "controller-kit", "ipam", "operator", "prober"] {
        for path in files(root, &format!("crates/{crate_}/src"), &[".rs"])? {
            for id in ids(&read(root, &path)?) {
                named.entry(id).or_insert_with(|| path.clone());
            }
        }
    }
    for (id, path) in &named {
        if !rows.contains_key(id) {
            faults.push(format!("{path} names {id}, which has no row in {DOCUMENT}"));
        }
    }
    for (id, paths) in &rows {
        if paths.is_empty() {
            faults.push(format!("the row of {id} in {DOCUMENT} names no file"));
        }
        for path in paths {
            match read(root, path) {
                Ok(text) if names(&text, id) => {}
                Ok(_) => faults.push(format!(
                    "{DOCUMENT} says that {id} lives in {path}, which does not name it"
                )),
                Err(error) => faults.push(format!("{DOCUMENT}, {id}: {error}")),
            }
        }
    }
    Ok(faults)
}

/// Rule ids in a text. `RNG-1 to RNG-3` and `RNG-1..RNG-3` name only the ends.
fn ids(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for word in text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-') {
        let Some((prefix, number)) = word.split_once('-') else {
            continue;
        };
        if PREFIXES.contains(&prefix)
            && !number.is_empty()
            && number.chars().all(|c| c.is_ascii_digit())
        {
            found.insert(word.to_owned());
        }
    }
    found
}

/// Whether a source names a rule, in a comment or in a test name: `rng_3_...`.
fn names(text: &str, id: &str) -> bool {
    let in_tests = format!("{}_", id.to_lowercase().replace('-', "_"));
    ids(text).contains(id) || text.contains(&in_tests)
}

/// Rows of the document's tables: the id in the first cell, files in the last.
fn rows(text: &str) -> BTreeMap<String, Vec<String>> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let (Some(first), Some(last)) = (cells.first(), cells.last()) else {
            continue;
        };
        if let Some(id) = ids(first).into_iter().next() {
            let files = last
                .split('`')
                .skip(1)
                .step_by(2)
                .map(str::to_owned)
                .collect();
            rows.insert(id, files);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_in_a_text() {
        let found =
            ids("/// (RNG-1, ALC-3) and IPA-10; not RFC-1, X-RNG-2 or RNG-x. `SEL-4`: HC-1/HC-2");
        let expected = ["ALC-3", "HC-1", "HC-2", "IPA-10", "RNG-1", "SEL-4"];
        assert_eq!(found, expected.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn a_test_names_a_rule() {
        assert!(names("// HC-4", "HC-4"));
        assert!(names("fn hc_4_none_healthy() {}", "HC-4"));
        assert!(!names("fn hc_41_none_healthy() {} // HC-41", "HC-4"));
    }

    #[test]
    fn rows_of_the_document() {
        let rows = rows(
            "| id | rule | where |\n|---|---|---|\n| RNG-1 | strict text | `a.rs`, `b.rs` |\n",
        );
        assert_eq!(rows.len(), 1);
        assert_eq!(rows["RNG-1"], ["a.rs", "b.rs"]);
    }
}
