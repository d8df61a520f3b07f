//! Each kind of finding is documented as the program explains it.

use std::collections::BTreeSet;

use crate::kinds::{ALL, Class};

#[test]
fn ops_2_docs_operations_has_a_row_for_each_finding() {
    let text = include_str!("../../../../docs/operations.md");
    let mut missing = Vec::new();
    for kind in ALL {
        let severity = match kind.class {
            Class::Danger => "error",
            Class::Repairable => "error; warning without a leader",
            Class::Minor => "warning",
            Class::Note => "info",
        };
        let row = format!(
            "| `{}` | {severity} | {} | {} |",
            kind.reason, kind.meaning, kind.action
        );
        if !text.lines().any(|line| line == row) {
            missing.push(row);
        }
    }
    assert!(
        missing.is_empty(),
        "not in the document:\n{}",
        missing.join("\n")
    );
    let reasons: BTreeSet<&str> = ALL.iter().map(|kind| kind.reason).collect();
    assert_eq!(reasons.len(), ALL.len());
}
