//! Owns folders whose files change all at once, in the layout of a kubelet:
//!
//! ```text
//! ..data -> ..2            the current version
//! ..2/tls.crt  ..2/tls.key
//! tls.crt -> ..data/tls.crt
//! tls.key -> ..data/tls.key
//! ```
//!
//! A new version is complete before `..data` is replaced; the previous one is removed afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{
    Permissions, create_dir, create_dir_all, read_dir, read_link, remove_dir_all, rename,
};
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

/// The link to the current version.
const CURRENT: &str = "..data";
/// The link that replaces it.
const NEXT: &str = "..data_tmp";

/// Files by their path in the folder.
pub(crate) type Files = BTreeMap<String, FileContent>;

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FileContent {
    pub(crate) bytes: Vec<u8>,
    /// Permissions.
    pub(crate) mode: u32,
}

/// Makes `folder` contain exactly these files; a folder that does already is not touched. Returns whether it was
/// changed.
pub(crate) fn write(folder: &Path, files: &Files) -> io::Result<bool> {
    let current = folder.join(CURRENT);
    let previous = read_link(&current).ok();
    if previous.is_some() && is_current(&current, files)? {
        return Ok(false);
    }
    let version = next_version(previous.as_deref());
    let new = folder.join(&version);
    create_dir(&new)?;
    for (path, file) in files {
        let path = new.join(path);
        if let Some(parent) = path.parent() {
            create_dir_all(parent)?;
        }
        std::fs::write(&path, &file.bytes)?;
        std::fs::set_permissions(&path, Permissions::from_mode(file.mode))?;
    }
    symlink(&version, folder.join(NEXT))?;
    rename(folder.join(NEXT), &current)?;
    let names: BTreeSet<&str> = files.keys().map(|path| first(path)).collect();
    for name in &names {
        let link = folder.join(name);
        if read_link(&link).is_err() {
            symlink(Path::new(CURRENT).join(name), link)?;
        }
    }
    for entry in read_dir(folder)? {
        let name = entry?.file_name();
        let stays = name
            .to_str()
            .is_none_or(|name| name.starts_with("..") || names.contains(name));
        if !stays {
            std::fs::remove_file(folder.join(name))?;
        }
    }
    if let Some(previous) = previous {
        remove_dir_all(folder.join(previous))?;
    }
    Ok(true)
}

/// First component of a path.
fn first(path: &str) -> &str {
    path.split('/').next().unwrap_or(path)
}

fn next_version(previous: Option<&Path>) -> PathBuf {
    let number = previous
        .and_then(Path::to_str)
        .and_then(|name| name.trim_start_matches('.').parse().ok());
    PathBuf::from(format!("..{}", number.unwrap_or(0_u64) + 1))
}

fn is_current(current: &Path, files: &Files) -> io::Result<bool> {
    let mut found = Files::new();
    read_all(current, "", &mut found)?;
    Ok(found == *files)
}

fn read_all(folder: &Path, prefix: &str, files: &mut Files) -> io::Result<()> {
    for entry in read_dir(folder)? {
        let entry = entry?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let data = entry.metadata()?;
        if data.is_dir() {
            read_all(&entry.path(), &format!("{name}/"), files)?;
            continue;
        }
        let file = FileContent {
            bytes: std::fs::read(entry.path())?,
            mode: data.permissions().mode() & 0o7777,
        };
        files.insert(name, file);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(list: &[(&str, &str)]) -> Files {
        let file = |text: &str| FileContent {
            bytes: text.into(),
            mode: 0o640,
        };
        list.iter()
            .map(|(name, text)| ((*name).into(), file(text)))
            .collect()
    }

    #[test]
    fn a_change_replaces_all_files_at_once() {
        let folder = std::env::temp_dir().join(format!("atomic-{}", std::process::id()));
        let _ = remove_dir_all(&folder);
        create_dir(&folder).unwrap();
        let text = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
        let version = || read_link(folder.join(CURRENT)).unwrap();

        let first = files(&[("tls.crt", "c1"), ("tls.key", "k1"), ("a/b", "1")]);
        assert!(write(&folder, &first).unwrap());
        assert_eq!(text("tls.crt").as_deref(), Some("c1"));
        assert_eq!(text("a/b").as_deref(), Some("1"));
        let mode = folder
            .join("tls.key")
            .metadata()
            .unwrap()
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o640);
        let before = version();
        assert!(!write(&folder, &first).unwrap());
        assert_eq!(version(), before);

        assert!(write(&folder, &files(&[("tls.crt", "c2"), ("new", "n")])).unwrap());
        assert_eq!(text("tls.crt").as_deref(), Some("c2"));
        assert_eq!(text("new").as_deref(), Some("n"));
        assert_eq!((text("tls.key"), text("a/b")), (None, None));
        assert_ne!(version(), before);
        assert!(!folder.join(before).exists());

        assert!(write(&folder, &Files::new()).unwrap());
        assert_eq!(text("tls.crt"), None);
        remove_dir_all(&folder).unwrap();
    }
}
