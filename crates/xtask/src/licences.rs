//! Licences, one version of each crate, and forbidden crates. The lists are in deny.toml, which cargo-deny reads too;
//! this check needs no other tool. docs/dependencies.md must give a reason for each direct dependency.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;

use crate::graph::Graph;
use crate::repository::{Faults, read};

/// The fuzz targets' folder.
const FUZZ: &str = "fuzz";
/// The end of the message about an unneeded exception. The fuzz targets need fewer of them than the rest.
const STALE: &str = ", which is no longer a second version";

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let lists = Lists::parse(&read(root, "deny.toml")?)?;
    let mut faults = judge(&Graph::load(root)?, &lists);
    // A separate workspace, with a separate lock file.
    let of_fuzz = judge(&Graph::load(&root.join(FUZZ))?, &lists);
    faults.extend(of_fuzz.into_iter().filter(|fault| !fault.ends_with(STALE)));
    let document = read(root, "docs/dependencies.md")?;
    let (ours, fuzz) = (
        read(root, "Cargo.toml")?,
        read(root, &format!("{FUZZ}/Cargo.toml"))?,
    );
    let all = direct(&ours, "[workspace.dependencies]");
    for name in all.into_iter().chain(direct(&fuzz, "[dependencies]")) {
        if !document.contains(&format!("`{name}`")) {
            faults.push(format!(
                "docs/dependencies.md does not say why there is {name}"
            ));
        }
    }
    Ok(faults)
}

/// Names of the direct dependencies in a table of a manifest, without our own crates.
fn direct<'a>(text: &'a str, table: &str) -> Vec<&'a str> {
    text.lines()
        .skip_while(|line| *line != table)
        .skip(1)
        .take_while(|line| !line.starts_with('['))
        .filter(|line| !line.starts_with('#') && !line.contains("path ="))
        .filter_map(|line| line.split_once(" = "))
        .map(|(name, _)| name)
        .collect()
}

/// The lists of deny.toml.
struct Lists {
    /// Licences.
    allow: BTreeSet<String>,
    /// `name@version` of versions that are allowed beside another one.
    skip: BTreeSet<String>,
    /// Forbidden crates.
    deny: BTreeSet<String>,
}

impl Lists {
    fn parse(text: &str) -> anyhow::Result<Self> {
        let list = |section: &str, key: &str| {
            strings(text, section, key)
                .with_context(|| format!("deny.toml has no list {key} in [{section}]"))
        };
        Ok(Self {
            allow: list("licenses", "allow")?,
            skip: list("bans", "skip")?,
            deny: list("bans", "deny")?,
        })
    }
}

/// The strings of a list, or the field `crate` of its tables. Enough of TOML for a list with one item per line.
fn strings(text: &str, section: &str, key: &str) -> Option<BTreeSet<String>> {
    let quoted = |line: &str| line.split('"').nth(1).map(str::to_owned);
    let mut lines = text
        .lines()
        .map(str::trim)
        .skip_while(|line| *line != format!("[{section}]"))
        .skip(1)
        .take_while(|line| !(line.starts_with('[') && line.ends_with(']')));
    lines.find(|line| line.starts_with(key) && line.ends_with('['))?;
    Some(
        lines
            .take_while(|line| *line != "]")
            .filter(|line| !line.starts_with('#'))
            .filter_map(quoted)
            .collect(),
    )
}

fn judge(graph: &Graph, lists: &Lists) -> Faults {
    let mut faults = Vec::new();
    let mut versions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for package in graph.0.values().filter(|p| !p.member) {
        let (name, version) = (package.name.as_str(), package.version.as_str());
        versions.entry(name).or_default().insert(version);
        match allowed(&package.licence, &lists.allow) {
            Some(true) => {}
            Some(false) => faults.push(format!(
                "{name} {version} has the licence {:?}, which deny.toml does not allow",
                package.licence
            )),
            None => faults.push(format!(
                "{name} {version} has the licence {:?}, which is no SPDX expression",
                package.licence
            )),
        }
        if lists.deny.contains(name) {
            faults.push(format!(
                "{name} {version} must not come in; deny.toml says why"
            ));
        }
    }
    let listed = |name: &str, version: &str| lists.skip.contains(&format!("{name}@{version}"));
    for (name, versions) in &versions {
        let unlisted = versions.iter().filter(|v| !listed(name, v)).count();
        if versions.len() > 1 && unlisted > 1 {
            faults.push(format!(
                "{name} is there in several versions: {}; list all but one in deny.toml, with the reason",
                versions.iter().copied().collect::<Vec<_>>().join(", ")
            ));
        }
    }
    for skipped in &lists.skip {
        let (name, version) = skipped.split_once('@').unwrap_or((skipped, ""));
        let present = versions.get(name);
        if !present.is_some_and(|v| v.len() > 1 && v.contains(version)) {
            faults.push(format!("deny.toml lists {skipped}{STALE}"));
        }
    }
    faults
}

/// Whether allowed licences satisfy an SPDX expression; `None` if it is not one.
fn allowed(expression: &str, allow: &BTreeSet<String>) -> Option<bool> {
    // Old crates write `A/B` for `A OR B`.
    let spaced = expression
        .replace('/', " OR ")
        .replace('(', " ( ")
        .replace(')', " ) ");
    let words: Vec<&str> = spaced.split_whitespace().collect();
    let mut rest = words.as_slice();
    let answer = either(&mut rest, allow)?;
    rest.is_empty().then_some(answer)
}

fn either(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    let mut answer = both(rest, allow)?;
    while rest.first() == Some(&"OR") {
        *rest = &rest[1..];
        answer |= both(rest, allow)?;
    }
    Some(answer)
}

fn both(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    let mut answer = one(rest, allow)?;
    while rest.first() == Some(&"AND") {
        *rest = &rest[1..];
        answer &= one(rest, allow)?;
    }
    Some(answer)
}

fn one(rest: &mut &[&str], allow: &BTreeSet<String>) -> Option<bool> {
    match **rest {
        ["(", ..] => {
            *rest = &rest[1..];
            let answer = either(rest, allow)?;
            let [")", tail @ ..] = *rest else { return None };
            *rest = tail;
            Some(answer)
        }
        [")" | "OR" | "AND" | "WITH", ..] | [] => None,
        [licence, "WITH", exception, ref tail @ ..] => {
            *rest = tail;
            Some(allow.contains(&format!("{licence} WITH {exception}")))
        }
        [licence, ref tail @ ..] => {
            *rest = tail;
            Some(allow.contains(licence))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Package;

    fn set(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|i| (*i).to_owned()).collect()
    }

    #[test]
    fn expressions() {
        let allow = set(&[
            "MIT",
            "Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
            "BSD-3-Clause",
        ]);
        for (expression, answer) in [
            ("MIT", Some(true)),
            ("GPL-3.0", Some(false)),
            ("GPL-3.0 OR MIT", Some(true)),
            ("GPL-3.0/MIT", Some(true)),
            ("MIT AND GPL-3.0", Some(false)),
            ("MIT AND BSD-3-Clause", Some(true)),
            ("(Apache-2.0 OR GPL-3.0) AND BSD-3-Clause", Some(true)),
            ("GPL-3.0 AND (MIT OR Apache-2.0)", Some(false)),
            ("Apache-2.0 WITH LLVM-exception", Some(true)),
            ("GPL-3.0 WITH Classpath-exception-2.0 OR MIT", Some(true)),
            ("MIT WITH LLVM-exception", Some(false)),
            ("", None),
            ("MIT MIT", None),
            ("(MIT", None),
            ("MIT OR", None),
        ] {
            assert_eq!(allowed(expression, &allow), answer, "{expression:?}");
        }
    }

    #[test]
    fn direct_dependencies() {
        let text = "[workspace.dependencies]\nours = { path = \"a\" }\n# why\na = \"1\"\nb = { version = \"1\" }\n\n[profile]\nc = 1\n";
        assert_eq!(direct(text, "[workspace.dependencies]"), ["a", "b"]);
    }

    #[test]
    fn lists() {
        let text = "[bans]\nskip = [\n  # why\n  { crate = \"syn@2.0.0\", reason = \"old\" },\n]\ndeny = [\n]\n\
                    [licenses]\nallow = [\n  \"MIT\", # short\n  \"ISC\",\n]\n";
        let lists = Lists::parse(text).unwrap();
        assert_eq!(lists.allow, set(&["MIT", "ISC"]));
        assert_eq!(lists.skip, set(&["syn@2.0.0"]));
        assert_eq!(lists.deny, set(&[]));
        assert!(Lists::parse("[licenses]\n").is_err());
    }

    #[test]
    fn second_versions_are_listed_and_lists_are_not_stale() {
        let package = |name: &str, version: &str| Package {
            name: name.to_owned(),
            version: version.to_owned(),
            licence: "MIT".to_owned(),
            member: false,
            normal: BTreeSet::new(),
            dev: BTreeSet::new(),
        };
        let graph = Graph(
            [
                package("syn", "2.0.0"),
                package("syn", "3.0.0"),
                package("bad", "1.0.0"),
            ]
            .into_iter()
            .map(|p| (format!("{}@{}", p.name, p.version), p))
            .collect(),
        );
        let judge = |skip: &[&str], deny: &[&str]| {
            judge(
                &graph,
                &Lists {
                    allow: set(&["MIT"]),
                    skip: set(skip),
                    deny: set(deny),
                },
            )
        };
        assert_eq!(judge(&["syn@2.0.0"], &[]), Faults::new());
        assert_eq!(judge(&[], &[]).len(), 1);
        assert_eq!(judge(&["syn@2.0.0", "gone@1.0.0"], &[]).len(), 1);
        assert_eq!(judge(&["syn@2.0.0"], &["bad"]).len(), 1);
    }
}
