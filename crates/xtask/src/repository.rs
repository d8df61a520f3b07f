//! The files of the repository, and the findings of a check.

use std::path::{Path, PathBuf};

use anyhow::Context;

/// Findings, one per line.
pub(crate) type Faults = Vec<String>;

/// The root folder of the repository.
pub(crate) fn root() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(here
        .ancestors()
        .nth(2)
        .context("this crate has been moved")?
        .to_path_buf())
}

/// Text of a file of the repository.
pub(crate) fn read(root: &Path, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(root.join(path)).with_context(|| format!("{path} cannot be read"))
}

/// Files below a folder with one of the extensions, as paths from the root, sorted.
pub(crate) fn files(root: &Path, folder: &str, endings: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut folders = vec![root.join(folder)];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("{} cannot be listed", folder.display()))?;
        for entry in entries {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if name.starts_with('.') || name == "target" {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if endings.iter().any(|e| name.ends_with(e)) {
                found.push(path.strip_prefix(root)?.to_string_lossy().into_owned());
            }
        }
    }
    found.sort();
    Ok(found)
}

/// Whether a file contains only tests.
pub(crate) fn is_test(path: &str) -> bool {
    path.split('/')
        .any(|part| part == "tests" || part == "tests.rs")
}
