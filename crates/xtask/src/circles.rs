//! No cycles between files. A file uses another one if it names an item that is defined there; files that use each
//! other in a cycle can be understood, and changed, only together.
//!
//! A path is followed through re-exports to the file that defines the item. Declaring a module does not count as a use.
//! Not detected: calls of methods that another file defines, and names that a glob imports.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Context;

use crate::graph::metadata;
use crate::modules::Modules;
use crate::repository::Faults;

/// Longest chain of re-exports that is followed; a cyclic one does not compile.
const HOPS: usize = 16;

/// File to the files that it uses, with one name that it uses of each.
pub(crate) type Uses = BTreeMap<String, BTreeMap<String, String>>;

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = Faults::new();
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml"] {
        for file in targets(root, manifest)? {
            let modules = Modules::read(root, &file)?;
            let circles = circles(&uses(&modules));
            faults.extend(circles.iter().map(|circle| tell(circle)));
        }
    }
    Ok(faults)
}

/// The root files of all targets of our crates: libraries, programs, tests, examples.
fn targets(root: &Path, manifest: &str) -> anyhow::Result<Vec<String>> {
    let metadata = metadata(root, &["--no-deps", "--manifest-path", manifest])?;
    let root = root.canonicalize()?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let targets = packages.flat_map(|p| p["targets"].as_array().into_iter().flatten());
    targets
        .map(|target| {
            let path = target["src_path"]
                .as_str()
                .context("a target without src_path")?;
            let path = Path::new(path).canonicalize()?;
            Ok(path.strip_prefix(&root)?.to_string_lossy().into_owned())
        })
        .collect()
}

/// The uses between the files of a crate.
pub(crate) fn uses(modules: &Modules) -> Uses {
    let mut uses = Uses::new();
    for (index, module) in modules.0.iter().enumerate() {
        for path in &module.paths {
            let Some(target) = resolve(modules, index, path, 0) else {
                continue;
            };
            let file = &modules.0[target].file;
            let used = uses.entry(module.file.clone()).or_default();
            if *file != module.file {
                used.entry(file.clone()).or_insert_with(|| path.join("::"));
            }
        }
    }
    uses
}

/// The module that defines the item of a path, seen from another module; `None` if that is in another crate, or the
/// name is not an item.
fn resolve(modules: &Modules, from: usize, path: &[String], hops: usize) -> Option<usize> {
    if hops > HOPS {
        return None;
    }
    let (first, mut rest) = path.split_first()?;
    let here = &modules.0[from];
    let mut at = match first.as_str() {
        "crate" => 0,
        "self" => from,
        "super" => here.parent?,
        name => match (here.children.get(name), here.imports.get(name)) {
            (Some(child), _) => *child,
            (None, Some(import)) if import.as_slice() != path => {
                let whole = [import, rest].concat();
                return resolve(modules, from, &whole, hops + 1);
            }
            _ => return None,
        },
    };
    while let Some((name, after)) = rest.split_first() {
        let module = &modules.0[at];
        if name == "super" {
            at = module.parent?;
        } else if let Some(child) = module.children.get(name) {
            at = *child;
        } else if let Some(import) = module.imports.get(name) {
            let whole = [import, after].concat();
            // A re-exported item of another crate: the file that re-exports it counts as used.
            return resolve(modules, at, &whole, hops + 1).or(Some(at));
        } else {
            break;
        }
        rest = after;
    }
    Some(at)
}

/// Groups of files that use each other in a cycle, each with its uses.
fn circles(uses: &Uses) -> Vec<Vec<(String, String, String)>> {
    let reach: BTreeMap<&String, BTreeSet<&String>> = uses
        .keys()
        .map(|file| (file, reachable(uses, file)))
        .collect();
    let mut seen = BTreeSet::new();
    let mut circles = Vec::new();
    for (file, reached) in &reach {
        if seen.contains(file) || !reached.contains(file) {
            continue;
        }
        let together =
            |other: &&&String| reach.get(**other).is_some_and(|back| back.contains(file));
        let members: BTreeSet<&String> = reached.iter().filter(together).copied().collect();
        let arrows = members.iter().flat_map(|from| {
            let used = uses.get(*from).into_iter().flatten();
            let within = used.filter(|(to, _)| members.contains(to));
            within.map(|(to, name)| ((*from).clone(), to.clone(), name.clone()))
        });
        circles.push(arrows.collect());
        seen.extend(members);
    }
    circles
}

fn reachable<'a>(uses: &'a Uses, from: &String) -> BTreeSet<&'a String> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&String> = uses
        .get(from)
        .into_iter()
        .flat_map(BTreeMap::keys)
        .collect();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(uses.get(file).into_iter().flat_map(BTreeMap::keys));
        }
    }
    reached
}

fn tell(arrows: &[(String, String, String)]) -> String {
    let lines = arrows
        .iter()
        .map(|(from, to, name)| format!("\n  {from} -> {to}: {name}"));
    format!(
        "files use each other in a ring:{}",
        lines.collect::<String>()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::modules::Module;

    /// Modules from `file: parent, child=index ..., paths`.
    fn module(
        file: &str,
        parent: Option<usize>,
        children: &[(&str, usize)],
        imports: &[(&str, &str)],
        paths: &[&str],
    ) -> Module {
        let split = |path: &str| path.split("::").map(str::to_owned).collect::<Vec<_>>();
        Module {
            file: file.to_owned(),
            parent,
            children: children
                .iter()
                .map(|(n, i)| ((*n).to_owned(), *i))
                .collect(),
            imports: imports
                .iter()
                .map(|(n, p)| ((*n).to_owned(), split(p)))
                .collect(),
            paths: imports
                .iter()
                .map(|(_, p)| split(p))
                .chain(paths.iter().map(|p| split(p)))
                .collect(),
        }
    }

    fn found(modules: Vec<Module>) -> Vec<String> {
        circles(&uses(&Modules(modules)))
            .iter()
            .map(|c| tell(c))
            .collect()
    }

    #[test]
    fn a_ring_of_files_is_found_and_each_of_its_arrows_named() {
        let all = found(vec![
            module("lib.rs", None, &[("a", 1), ("b", 2), ("c", 3)], &[], &[]),
            module("a.rs", Some(0), &[], &[("B", "crate::b::B")], &[]),
            module("b.rs", Some(0), &[], &[("c", "crate::c")], &["c::f"]),
            module("c.rs", Some(0), &[], &[], &["super::a::A", "std::fs::read"]),
        ]);
        assert_eq!(all.len(), 1, "{all:?}");
        for arrow in [
            "a.rs -> b.rs: crate::b::B",
            "b.rs -> c.rs: crate::c",
            "c.rs -> a.rs: super::a::A",
        ] {
            assert!(all[0].contains(arrow), "{all:?}");
        }
    }

    #[test]
    fn a_re_export_leads_to_the_file_that_defines_it() {
        // The root re-exports what `a` defines, and `b` uses it through the root: no cycle through the root.
        let root = |names| module("lib.rs", None, &[("a", 1), ("b", 2)], names, &["b::run"]);
        let a = || module("a.rs", Some(0), &[], &[], &[]);
        let b = || module("b.rs", Some(0), &[], &[("A", "crate::A")], &[]);
        assert_eq!(
            found(vec![root(&[("A", "a::A")]), a(), b()]),
            Vec::<String>::new()
        );
        // If the root itself defines it, there is one.
        assert_eq!(found(vec![root(&[]), a(), b()]).len(), 1);
    }

    #[test]
    fn tests_beside_a_file_and_declarations_are_no_ring() {
        let all = found(vec![
            module(
                "a.rs",
                None,
                &[("tests", 1), ("inline", 2)],
                &[],
                &["inline::f"],
            ),
            module("a/tests.rs", Some(0), &[], &[], &["super::*"]),
            module("a.rs", Some(0), &[], &[], &["super::g"]),
        ]);
        assert_eq!(all, Vec::<String>::new());
    }

    #[test]
    fn an_import_that_names_itself_does_not_hang() {
        let all = found(vec![module(
            "a.rs",
            None,
            &[],
            &[("x", "x::x"), ("y", "z"), ("z", "y")],
            &["y::b"],
        )]);
        assert_eq!(all, Vec::<String>::new());
    }
}
