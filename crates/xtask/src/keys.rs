//! docs/configuration.md has a row for each annotation, label and finalizer that the operator or the webhook reads or writes,
//! and for no other. They are constants of the API crate and of the webhook's names.

use std::collections::BTreeMap;
use std::path::Path;

use syn::{Expr, ExprLit, Item, Lit};

use crate::markdown;
use crate::repository::{Faults, read};

const SOURCES: [&str; 2] = [
    "crates/api/src/keys.rs",
    "crates/operator/src/webhook_names.rs",
];
const DOCUMENT: &str = "docs/configuration.md";
/// Beginnings of the names of constants that are keys.
const NAMES: [&str; 3] = ["ANNOTATION_", "LABEL_", "LEGACY_"];
/// Headings of the tables.
const SECTIONS: [&str; 3] = ["Annotations", "Labels", "Finalizers"];

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut keys = BTreeMap::new();
    for source in SOURCES {
        keys.append(&mut of_source(&read(root, source)?)?);
    }
    Ok(compare(&keys, &of_document(&read(root, DOCUMENT)?)))
}

fn compare(keys: &BTreeMap<String, String>, documented: &[String]) -> Faults {
    let mut faults = Vec::new();
    for (key, constant) in keys {
        if !documented.contains(key) {
            faults.push(format!("{DOCUMENT} has no row for {key} ({constant})"));
        }
    }
    for key in documented.iter().filter(|key| !keys.contains_key(*key)) {
        faults.push(format!(
            "{DOCUMENT} has a row for {key}, which is in none of {SOURCES:?}"
        ));
    }
    faults
}

/// The keys, each with its constant.
fn of_source(source: &str) -> anyhow::Result<BTreeMap<String, String>> {
    let mut keys = BTreeMap::new();
    for item in syn::parse_file(source)?.items {
        let Item::Const(item) = item else { continue };
        let name = item.ident.to_string();
        if NAMES.iter().any(|beginning| name.starts_with(beginning)) {
            for key in texts(&item.expr) {
                keys.insert(key, name.clone());
            }
        }
    }
    Ok(keys)
}

/// A text, or the texts of an array.
fn texts(value: &Expr) -> Vec<String> {
    match value {
        Expr::Lit(ExprLit {
            lit: Lit::Str(text),
            ..
        }) => vec![text.value()],
        Expr::Array(array) => array.elems.iter().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}

/// The keys in the first cells of the tables.
fn of_document(text: &str) -> Vec<String> {
    markdown::rows(text)
        .iter()
        .filter(|row| SECTIONS.contains(&row.section.as_str()))
        .flat_map(markdown::Row::subjects)
        .map(str::to_owned)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: &str = r#"
        pub const ANNOTATION_A: &str = "example.org/a";
        pub const LABEL_B: &str = "example.org/b";
        pub const LEGACY_FINALIZERS: [&str; 2] = ["example.org/c", "example.org/d"];
        pub const LEASE_NAME: &str = "no-key";
    "#;
    const PAGE: &str = "## Annotations\n| key | on |\n|---|---|\n| `example.org/a` | x |\n\
        ## Labels\n| `example.org/b` | y |\n## Finalizers\n| `example.org/c`, `example.org/d` | z |\n\
        ## Others\n| `example.org/e` | |\n";

    #[test]
    fn the_page_matches_the_constants() {
        let keys = of_source(KEYS).unwrap();
        assert_eq!(keys.len(), 4);
        assert_eq!(compare(&keys, &of_document(PAGE)), Faults::new());
    }

    #[test]
    fn differences_between_page_and_constants() {
        let keys = of_source(KEYS).unwrap();
        let renamed = PAGE.replace("example.org/d", "example.org/x");
        assert_eq!(compare(&keys, &of_document(&renamed)).len(), 2);
        let without = PAGE.replace("## Labels", "## Names");
        assert_eq!(compare(&keys, &of_document(&without)).len(), 1);
    }
}
