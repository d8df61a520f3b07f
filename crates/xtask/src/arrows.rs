//! Which crate may depend on which. Dependencies never point back, and the pure parts stay pure. The order of the operator's
//! folders is in [`layers`].

use std::collections::BTreeSet;
use std::path::Path;

use crate::graph::Graph;
use crate::layers;
use crate::repository::{Faults, files, read};

struct Rule {
    name: &'static str,
    /// Our crates that it may be built with.
    ours: &'static [&'static str],
    /// Our crates that its tests may use as well.
    tests: &'static [&'static str],
    /// If given: all direct dependencies that are allowed.
    only: Option<&'static [&'static str]>,
    /// Crates that must not be dependencies, not even indirect ones.
    never: &'static [&'static str],
}

const OBJECT: &str = "harvester-lb-object";
const API: &str = "harvester-lb-api";
const IPAM: &str = "harvester-lb-ipam";
const PROBER: &str = "harvester-lb-prober";
const CORE: &str = "harvester-lb-core";
const KIT: &str = "harvester-lb-controller-kit";
const TESTKIT: &str = "harvester-lb-testkit";
const HOSTILE: &str = "harvester-lb-hostile";
const AUDIT: &str = "harvester-lb-audit";
const FIXTURES: &str = "harvester-lb-fixtures";
const OPERATOR: &str = "harvester-load-balancer";

const RULES: &[Rule] = &[
    Rule {
        name: OBJECT,
        ours: &[],
        tests: &[],
        only: Some(&[]),
        never: &[],
    },
    Rule {
        name: API,
        ours: &[OBJECT],
        tests: &[],
        only: None,
        never: &[],
    },
    Rule {
        name: IPAM,
        ours: &[OBJECT],
        tests: &[],
        // dhcproto's dependencies include tracing, log, rand and getrandom; of it only what uses none of them is called
        // (dhcp/options.rs).
        only: Some(&[OBJECT, "dhcproto", "ipnetwork", "rustc-hash", "thiserror"]),
        never: &[
            "kube",
            "k8s-openapi",
            "tokio",
            "jiff",
            "chrono",
            "time",
            "fastrand",
            "serde",
        ],
    },
    Rule {
        name: PROBER,
        ours: &[],
        tests: &[],
        only: None,
        never: &[
            "kube",
            "k8s-openapi",
            "tracing",
            "prometheus",
            "jiff",
            "chrono",
            "time",
            "rand",
        ],
    },
    // The prober's health check is a plain value; its engine is not used here (see PURE).
    Rule {
        name: CORE,
        ours: &[OBJECT, API, IPAM, PROBER],
        tests: &[FIXTURES],
        only: Some(&[
            OBJECT,
            API,
            IPAM,
            PROBER,
            "jiff",
            "k8s-openapi",
            "kube",
            "serde",
            "serde_json",
            "thiserror",
        ]),
        never: &[FIXTURES],
    },
    Rule {
        name: KIT,
        ours: &[OBJECT, API],
        tests: &[],
        only: None,
        never: &[],
    },
    Rule {
        name: OPERATOR,
        ours: &[OBJECT, API, IPAM, PROBER, CORE, KIT, AUDIT],
        tests: &[TESTKIT, HOSTILE, FIXTURES],
        only: None,
        never: &[TESTKIT, HOSTILE, FIXTURES],
    },
    Rule {
        name: "harvester-lb-fuzz-targets",
        ours: &[OBJECT, API, IPAM, CORE, KIT, OPERATOR],
        tests: &[],
        only: None,
        never: &[TESTKIT],
    },
    // It judges the operator's results, in tests and as its subcommand `check`, and shares no decision with it.
    Rule {
        name: AUDIT,
        ours: &[OBJECT, API],
        tests: &[FIXTURES],
        only: Some(&[OBJECT, API, "k8s-openapi"]),
        never: &[FIXTURES],
    },
    Rule {
        name: FIXTURES,
        ours: &[API],
        tests: &[],
        only: Some(&[API, "serde_json"]),
        never: &[],
    },
    Rule {
        name: HOSTILE,
        ours: &[API, FIXTURES],
        tests: &[],
        only: Some(&[API, FIXTURES, "fastrand", "serde_json"]),
        never: &[],
    },
    Rule {
        name: TESTKIT,
        ours: &[],
        tests: &[],
        only: None,
        never: &[],
    },
    // To these tests the operator is a program, not a library.
    Rule {
        name: "harvester-lb-e2e",
        ours: &[API, AUDIT, TESTKIT, HOSTILE, FIXTURES],
        tests: &[],
        only: None,
        never: &[],
    },
    Rule {
        name: "xtask",
        ours: &[],
        tests: &[],
        only: Some(&[
            "anyhow",
            "nix",
            "proc-macro2",
            "serde-saphyr",
            "serde_json",
            "syn",
        ]),
        never: &[],
    },
];

/// Words that must not appear where decisions are made from arguments only.
const DECIDES: &[&str] = &[
    "async ",
    "Client",
    "Instant",
    "Prober",
    "SystemTime",
    "Timestamp::now",
    "println!",
    "static mut",
    "std::env",
    "std::fs",
    "std::io",
    "std::process",
    "std::thread",
    "tokio",
];

/// Folders and files without input, output, clock or randomness, and the words that must not appear in their sources.
const PURE: &[(&str, &[&str])] = &[
    (
        "crates/ipam/src",
        &[
            "std::fs",
            "std::env",
            "std::io",
            "std::process",
            "std::thread",
            "std::time",
            "TcpStream",
            "UdpSocket",
            "println!",
            "eprintln!",
            "RandomState",
            "static mut",
        ],
    ),
    (
        "crates/prober/src/threshold.rs",
        &["tokio", "Instant::now", "SystemTime", "std::net::Tcp"],
    ),
    (
        "crates/prober/src/timetable.rs",
        &["tokio", "Instant::now", "SystemTime", "std::net::Tcp"],
    ),
    ("crates/core/src", DECIDES),
    ("crates/audit/src", DECIDES),
    ("crates/object/src", &["std::time", "std::env", "std::io"]),
];

/// Clocks that clippy must forbid in the pure crates.
const CLOCKS: [&str; 2] = ["std::time::Instant::now", "std::time::SystemTime::now"];

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = judge(&Graph::load(root)?);
    faults.extend(layers::check(root)?);
    for (path, words) in PURE {
        let sources = if root.join(path).is_file() {
            vec![(*path).to_owned()]
        } else {
            files(root, path, &[".rs"])?
        };
        for source in sources.iter().filter(|s| !s.contains("/tests")) {
            let text = read(root, source)?;
            faults.extend(impure(source, &text, words));
        }
    }
    for path in ["crates/core/clippy.toml", "crates/ipam/clippy.toml"] {
        let clippy = read(root, path)?;
        faults.extend(
            CLOCKS
                .iter()
                .filter(|clock| !clippy.contains(*clock))
                .map(|clock| format!("{path} does not refuse {clock}")),
        );
    }
    Ok(faults)
}

/// Lines of code, without comments, that name something forbidden in a pure part.
fn impure(source: &str, text: &str, words: &[&str]) -> Faults {
    let mut faults = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let code = line.split("//").next().unwrap_or_default();
        for word in words.iter().filter(|w| names(code, w)) {
            faults.push(format!(
                "{source}:{} uses {word}; this part is pure",
                number + 1
            ));
        }
    }
    faults
}

/// Whether the code has this word, and not only as a part of a longer name.
fn names(code: &str, word: &str) -> bool {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    code.match_indices(word).any(|(at, _)| {
        let before = code.get(..at).unwrap_or_default();
        let after = code.get(at + word.len()..).unwrap_or_default();
        let continues = word.starts_with(is_name) && before.ends_with(is_name);
        let goes_on = word.ends_with(is_name) && after.starts_with(is_name);
        !continues && !goes_on
    })
}

fn judge(graph: &Graph) -> Faults {
    let mut faults = Vec::new();
    let ours: BTreeSet<&str> = graph
        .0
        .values()
        .filter(|p| p.member)
        .map(|p| p.name.as_str())
        .collect();
    for name in &ours {
        let Some(rule) = RULES.iter().find(|r| r.name == *name) else {
            faults.push(format!(
                "{name} has no rule in crates/xtask/src/arrows.rs; write one"
            ));
            continue;
        };
        let Some(package) = graph.member(name) else {
            continue;
        };
        let normal = graph.names(&package.normal);
        let tests = graph.names(&package.dev);
        for other in normal
            .intersection(&ours)
            .filter(|o| !rule.ours.contains(o))
        {
            faults.push(format!("{name} must not depend on {other}"));
        }
        for other in tests.intersection(&ours) {
            // A crate may be built with more features for its own tests.
            if other != name && !rule.ours.contains(other) && !rule.tests.contains(other) {
                faults.push(format!("tests of {name} must not depend on {other}"));
            }
        }
        if let Some(only) = rule.only {
            for other in normal.iter().filter(|o| !only.contains(o)) {
                faults.push(format!(
                    "{name} must not depend on {other}; it may on {}",
                    only.join(", ")
                ));
            }
        }
        let below = graph.all_below(package);
        for other in rule.never.iter().filter(|o| below.contains(**o)) {
            faults.push(format!(
                "{name} must not be built with {other}, not even through another crate"
            ));
        }
    }
    for rule in RULES.iter().filter(|r| !ours.contains(r.name)) {
        faults.push(format!(
            "there is a rule for {}, but no such crate",
            rule.name
        ));
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::Package;

    fn graph(arrows: &[(&str, &[&str], &[&str])]) -> Graph {
        let set = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect();
        let mut graph: std::collections::BTreeMap<String, Package> = RULES
            .iter()
            .map(|r| (r.name, &[][..], &[][..]))
            .chain(arrows.iter().copied())
            .map(|(name, normal, dev): (&str, &[&str], &[&str])| {
                let package = Package {
                    name: name.to_owned(),
                    version: "1.0.0".to_owned(),
                    licence: "MIT".to_owned(),
                    member: RULES.iter().any(|r| r.name == name) || name == "new",
                    normal: set(normal),
                    dev: set(dev),
                };
                (name.to_owned(), package)
            })
            .collect();
        for other in ["tokio", "serde", "thiserror"] {
            graph.entry(other.to_owned()).or_insert_with(|| Package {
                name: other.to_owned(),
                version: "1.0.0".to_owned(),
                licence: "MIT".to_owned(),
                member: false,
                normal: BTreeSet::new(),
                dev: BTreeSet::new(),
            });
        }
        Graph(graph)
    }

    #[test]
    fn arrows_point_one_way() {
        assert_eq!(judge(&graph(&[])), Faults::new());
        let good: &[(&str, &[&str], &[&str])] = &[
            (
                "harvester-load-balancer",
                &[API, IPAM, PROBER, KIT, "tokio"],
                &[TESTKIT],
            ),
            (IPAM, &["thiserror"], &["tokio"]),
        ];
        assert_eq!(judge(&graph(good)), Faults::new());
        let bad: &[(&str, &[&str], &[&str])] = &[
            (KIT, &[IPAM], &[]),
            (PROBER, &[], &[IPAM]),
            (IPAM, &["tokio"], &[]),
            ("harvester-load-balancer", &[TESTKIT], &[]),
            ("new", &[], &[]),
        ];
        let faults = judge(&graph(bad)).join("\n");
        for wanted in [
            "harvester-lb-controller-kit must not depend on harvester-lb-ipam",
            "tests of harvester-lb-prober must not depend on harvester-lb-ipam",
            "harvester-lb-ipam must not depend on tokio",
            "harvester-lb-ipam must not be built with tokio",
            "harvester-load-balancer must not depend on harvester-lb-testkit",
            "new has no rule",
        ] {
            assert!(faults.contains(wanted), "{wanted} is not in\n{faults}");
        }
    }

    #[test]
    fn a_comment_is_no_use() {
        assert_eq!(
            impure("a.rs", "// std::fs\nlet a = 1; // std::fs", &["std::fs"]),
            Faults::new()
        );
        assert_eq!(
            impure("a.rs", "\nstd::fs::read(a)", &["std::fs"]),
            ["a.rs:2 uses std::fs; this part is pure"]
        );
    }

    #[test]
    fn a_longer_name_is_another_name() {
        let forbidden = |text| !impure("a.rs", text, &["Client", "async "]).is_empty();
        for text in ["kube::Client", "Client::new()", "async fn a()", "(Client)"] {
            assert!(forbidden(text), "{text}");
        }
        for text in ["ClientId", "DhcpClient", "my_Client", "an_async fn"] {
            assert!(!forbidden(text), "{text}");
        }
    }
}
