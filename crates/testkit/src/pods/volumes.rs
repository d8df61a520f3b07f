//! Owns the volumes of a Pod: empty folders, and folders with files from objects, which follow the objects.

mod atomic;
mod content;

use std::collections::BTreeMap;
use std::fs::{Permissions, create_dir_all, set_permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, Pod};
use tokio::time::sleep;

use self::content::Projected;
use super::env::expand;
use super::fields::Addresses;
use super::inside::Mount;
use super::sources::Sources;

/// How often the files are compared with their objects. A kubelet notices a change after up to 1 to 2 minutes.
const REFRESH: Duration = Duration::from_secs(1);

/// The volumes of a Pod, each a folder.
pub(crate) struct Volumes {
    folder: PathBuf,
    /// By name; `None` is an empty folder.
    all: BTreeMap<String, Option<Projected>>,
}

impl Volumes {
    /// The volumes of a Pod in `folder`; nothing is written yet.
    pub(crate) fn of(pod: &Pod, folder: PathBuf) -> anyhow::Result<Self> {
        let mut all = BTreeMap::new();
        let volumes = pod
            .spec
            .iter()
            .flat_map(|spec| spec.volumes.iter().flatten());
        for volume in volumes {
            let files = Projected::of(volume);
            if files.is_none() && volume.empty_dir.is_none() {
                bail!(
                    "volume {}: the Pod runner does not have this type",
                    volume.name
                );
            }
            all.insert(volume.name.clone(), files);
        }
        Ok(Self { folder, all })
    }

    /// Creates all volumes, or brings their files up to date.
    pub(crate) async fn write(
        &self,
        pod: &Pod,
        addresses: Addresses,
        sources: &Sources,
    ) -> anyhow::Result<()> {
        for (name, files) in &self.all {
            let folder = self.folder.join(name);
            create_dir_all(&folder)?;
            // Containers of one Pod may have different users.
            set_permissions(&folder, Permissions::from_mode(0o777))?;
            if let Some(files) = files {
                let files = files.files(pod, addresses, sources).await;
                let files = files.with_context(|| format!("volume {name}"))?;
                atomic::write(&folder, &files).with_context(|| format!("volume {name}"))?;
            }
        }
        Ok(())
    }

    /// Keeps the files up to date; never returns.
    pub(crate) async fn follow(&self, pod: &Pod, addresses: Addresses, sources: &Sources) {
        loop {
            sleep(REFRESH).await;
            // What cannot be read stays as it is, as with a kubelet.
            let _ = self.write(pod, addresses, sources).await;
        }
    }

    /// The mounts of a container.
    pub(crate) fn mounts(
        &self,
        container: &Container,
        env: &[(String, String)],
    ) -> anyhow::Result<Vec<Mount>> {
        let mut mounts = Vec::new();
        for mount in container.volume_mounts.iter().flatten() {
            let files = self.all.get(&mount.name);
            let files = files.with_context(|| format!("no volume {:?}", mount.name))?;
            let sub_path = match (&mount.sub_path, &mount.sub_path_expr) {
                (Some(path), _) => path.clone(),
                (None, Some(expression)) => expand(expression, env),
                (None, None) => String::new(),
            };
            let mut source = self.folder.join(&mount.name);
            if !sub_path.is_empty() {
                source = self.sub_path(&source, &sub_path, files.is_some())?;
            }
            mounts.push(Mount {
                source,
                target: Path::new("/").join(&mount.mount_path),
                // Files from objects cannot be written to, whatever the Pod asks for.
                read_only: mount.read_only == Some(true) || files.is_some(),
            });
        }
        Ok(mounts)
    }

    /// A file or folder of a volume, at its present version.
    fn sub_path(&self, volume: &Path, path: &str, files: bool) -> anyhow::Result<PathBuf> {
        let inside = volume.join(path);
        if !files {
            create_dir_all(&inside)?;
            set_permissions(&inside, Permissions::from_mode(0o777))?;
        }
        let found = inside.canonicalize();
        let found = found.with_context(|| format!("no {path:?} in the volume"))?;
        if !found.starts_with(self.folder.canonicalize()?) {
            bail!("{path:?} leaves the volume");
        }
        Ok(found)
    }
}
