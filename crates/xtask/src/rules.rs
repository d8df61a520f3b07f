//! docs/internals/rules.md has a row for each rule that a source of the workspace cites. A row names at least one file
//! outside of tests, and each of those cites the rule in a doc comment; a test file in a row cites it in a comment or in the
//! name of a test. Each rule has a test whose name contains its id.
//!
//! A rule of a later version needs neither file nor test; its row says `later version` first.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::graph::members;
use crate::repository::{self, Faults, files, read};

const DOCUMENT: &str = "docs/internals/rules.md";
/// Prefixes of rule ids.
const PREFIXES: [&str; 28] = [
    "ALC", "API", "BE", "CNV", "DHC", "EPS", "EXC", "FIN", "GC", "GEN", "HC", "IPA", "KVA", "MIG",
    "OPS", "POOL", "PV", "REC", "REL", "REQ", "RNG", "RUN", "SEL", "SHR", "SVC", "VAL", "WM", "WV",
];
/// The first words of a row about a rule that this version does not implement.
const LATER: &str = "later version";
/// Crates that implement no rule: tests, and the auditor, which checks the rules.
const TEST_CRATES: [&str; 6] = [
    "crates/audit/",
    "crates/fixtures/",
    "crates/fuzz-targets/",
    "crates/hostile/",
    "crates/testkit/",
    "e2e/",
];
/// This crate: its tests contain ids as data.
const THIS: &str = "crates/xtask";
/// Ends the part of a source that is compiled into the operator.
const INLINE_TESTS: &str = "\nmod tests {";

/// A row of the document.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    /// The files in its last cell.
    files: Vec<String>,
    /// Whether the rule is one of a later version.
    later: bool,
}

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut sources = BTreeMap::new();
    for member in members(root)?.into_iter().filter(|it| it != THIS) {
        for path in files(root, &member, &[".rs"])? {
            let text = read(root, &path)?;
            sources.insert(path, text);
        }
    }
    Ok(judge(&rows(&read(root, DOCUMENT)?), &sources))
}

/// Compares the rows with the sources, by path.
fn judge(rows: &BTreeMap<String, Row>, sources: &BTreeMap<String, String>) -> Faults {
    let mut faults = Vec::new();
    let mut cited: BTreeMap<String, &str> = BTreeMap::new();
    let mut tested = BTreeSet::new();
    for (path, text) in sources {
        for id in ids(text) {
            cited.entry(id).or_insert(path);
        }
        tested.append(&mut tested_rules(text));
    }
    for (id, path) in &cited {
        if !rows.contains_key(id) {
            faults.push(format!("{path} cites {id}, which has no row in {DOCUMENT}"));
        }
    }
    for (id, row) in rows {
        for path in &row.files {
            let Some(text) = sources.get(path) else {
                faults.push(format!("{DOCUMENT}, {id}: {path} is no source file"));
                continue;
            };
            if is_test(path) && !names(text, id) {
                faults.push(format!("{DOCUMENT}, {id}: {path} does not cite it"));
            } else if !is_test(path) && !documents(text, id) {
                faults.push(format!(
                    "{DOCUMENT}, {id}: {path} does not cite it in a doc comment"
                ));
            }
        }
        if row.later {
            continue;
        }
        if row.files.iter().all(|path| is_test(path)) {
            faults.push(format!(
                "the row of {id} in {DOCUMENT} names no file outside of tests"
            ));
        }
        if !tested.contains(id) {
            let start = in_name(id);
            faults.push(format!("{id} has no test: none is named {start}..."));
        }
    }
    faults
}

/// Whether a source implements no rule.
fn is_test(path: &str) -> bool {
    repository::is_test(path) || TEST_CRATES.iter().any(|it| path.starts_with(it))
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

/// Whether a source cites a rule in a doc comment outside of its tests.
fn documents(text: &str, id: &str) -> bool {
    let source = text.split(INLINE_TESTS).next().unwrap_or_default();
    source
        .lines()
        .map(str::trim_start)
        .filter(|line| line.starts_with("///") || line.starts_with("//!"))
        .any(|line| ids(line).contains(id))
}

/// Whether a source cites a rule anywhere, also in the name of a test: `rng_3_...`.
fn names(text: &str, id: &str) -> bool {
    ids(text).contains(id) || tested_rules(text).contains(id)
}

/// A rule id as it begins the name of a test.
fn in_name(id: &str) -> String {
    format!("{}_", id.to_lowercase().replace('-', "_"))
}

/// The rules in the names of functions: those of `fn sel_6_and_sel_8_stickiness` are SEL-6 and SEL-8.
fn tested_rules(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for after in text.split("fn ").skip(1) {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let name = after.split(|c| !is_name(c)).next().unwrap_or_default();
        let words: Vec<&str> = name.split('_').collect();
        for pair in words.windows(2) {
            found.append(&mut ids(&format!("{}-{}", pair[0].to_uppercase(), pair[1])));
        }
    }
    found
}

/// Rows of the document's tables: the id in the first cell, the rule in the second, files in the last.
fn rows(text: &str) -> BTreeMap<String, Row> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|l| l.starts_with('|')) {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [first, rule, .., last] = cells.as_slice() else {
            continue;
        };
        if let Some(id) = ids(first).into_iter().next() {
            let files = last.split('`').skip(1).step_by(2);
            let row = Row {
                files: files.map(str::to_owned).collect(),
                later: rule.starts_with(LATER),
            };
            rows.insert(id, row);
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The faults of a table with these sources, joined.
    fn faults(document: &str, sources: &[(&str, &str)]) -> String {
        let sources = sources
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
            .collect();
        judge(&rows(document), &sources).join("\n")
    }

    const SOURCE: &str = "crates/ipam/src/a.rs";
    const TEST: &str = "crates/ipam/src/a/tests.rs";
    const ROW: &str = "| RNG-1 | strict text | `crates/ipam/src/a.rs` |";

    #[test]
    fn ids_in_a_text() {
        let found =
            ids("/// (RNG-1, ALC-3) and RNG-10; not RFC-1, X-RNG-2 or RNG-x. `SEL-4`: HC-1/HC-2");
        let expected = ["ALC-3", "HC-1", "HC-2", "RNG-1", "RNG-10", "SEL-4"];
        assert_eq!(found, expected.into_iter().map(str::to_owned).collect());
    }

    #[test]
    fn a_test_names_rules() {
        assert!(names("// HC-4", "HC-4"));
        assert!(names("fn rng_1_strict() {}", "RNG-1"));
        assert!(!names("fn rng_10_sum() {} // RNG-10", "RNG-1"));
        let found = tested_rules("async fn sel_6_and_sel_8_second_pass() {} fn a_1() {}");
        assert_eq!(found, ["SEL-6", "SEL-8"].map(str::to_owned).into());
    }

    #[test]
    fn rows_of_the_document() {
        let rows = rows(
            "| id | rule | where |\n|---|---|---|\n| RNG-1 | strict text | `a.rs`, `b.rs` |\n\
             | SHR-5 | later version: shared addresses | |\n",
        );
        assert_eq!(rows.len(), 2);
        assert_eq!(rows["RNG-1"].files, ["a.rs", "b.rs"]);
        assert!(!rows["RNG-1"].later && rows["SHR-5"].later);
    }

    #[test]
    fn a_row_with_source_and_test_is_complete() {
        let good = [(SOURCE, "/// RNG-1\nfn f() {}"), (TEST, "fn rng_1_x() {}")];
        assert_eq!(faults(ROW, &good), "");
        // The test may be in the source.
        let one = "//! RNG-1\n#[cfg(test)]\nmod tests {\n    fn rng_1_x() {}\n}";
        assert_eq!(faults(ROW, &[(SOURCE, one)]), "");
    }

    #[test]
    fn each_crate_of_the_workspace_may_cite_rules_with_a_row_only() {
        for path in [
            "crates/core/src/b.rs",
            "crates/fixtures/src/lib.rs",
            "e2e/tests/c.rs",
        ] {
            let found = faults("", &[(path, "// SHR-5, EXC-1")]);
            assert!(found.contains(&format!("{path} cites SHR-5")), "{found}");
            assert!(found.contains("EXC-1"), "{found}");
        }
    }

    #[test]
    fn the_file_of_a_row_cites_the_rule_in_a_doc_comment() {
        for text in [
            "fn f() {}",
            "// RNG-1\nfn f() {}",
            "\nmod tests {\n/// RNG-1\n}",
        ] {
            let found = faults(ROW, &[(SOURCE, text), (TEST, "fn rng_1_x() {}")]);
            assert!(
                found.contains("does not cite it in a doc comment"),
                "{text}: {found}"
            );
        }
        let found = faults(ROW, &[(TEST, "fn rng_1_x() {}")]);
        assert!(found.contains("is no source file"), "{found}");
    }

    #[test]
    fn a_row_names_a_file_outside_of_tests() {
        for path in [
            TEST,
            "e2e/src/a.rs",
            "crates/audit/src/a.rs",
            "crates/operator/tests/a.rs",
        ] {
            let row = format!("| RNG-1 | strict text | `{path}` |");
            let found = faults(&row, &[(path, "fn rng_1_x() {}")]);
            assert!(
                found.contains("names no file outside of tests"),
                "{path}: {found}"
            );
        }
        let found = faults("| RNG-1 | strict text | |", &[(TEST, "fn rng_1_x() {}")]);
        assert!(found.contains("names no file outside of tests"), "{found}");
    }

    #[test]
    fn each_rule_has_a_test_of_its_name() {
        let found = faults(
            ROW,
            &[(SOURCE, "/// RNG-1"), (TEST, "fn rng_10_x() {} // RNG-1")],
        );
        assert!(
            found.contains("RNG-1 has no test: none is named rng_1_..."),
            "{found}"
        );
    }

    #[test]
    fn a_rule_of_a_later_version_needs_neither_file_nor_test() {
        let row = "| SHR-5 | later version: shared addresses | |";
        assert_eq!(faults(row, &[(SOURCE, "// SHR-5")]), "");
        let row = "| SHR-5 | later version: left alone (IPA-9) | `crates/ipam/src/a.rs` |";
        assert!(faults(row, &[(SOURCE, "")]).contains("does not cite it"));
    }
}
