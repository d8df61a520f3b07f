//! Owns what an image is made of: the root file system, the archive that buildah makes of it, and their size.
//!
//! buildah runs in a user namespace of its own, so that it needs neither root nor ranges of ids in `/etc/subuid`; all
//! files in the image belong to root. Times in the image are that of the commit, so that one commit gives one image.

use std::fs::{File, create_dir_all};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, ensure};

use super::arch::Arch;
use super::program::{NAME, Profile};
use super::tools;

/// Largest size of all files of an image together, in bytes.
const MOST: u64 = 20_000_000;
/// The repository that charts name; part of the name that an import of the archive gives the image.
const REPOSITORY: &str = "docker.io/rancher/harvester-load-balancer";
/// The version of all our crates.
const VERSION: &str = env!("CARGO_PKG_VERSION");
/// Path of the bill of materials in the image.
const BILL: &str = "/usr/share/harvester-load-balancer/sbom.cdx.json";
/// Prefix of our labels.
const LABELS: &str = "io.harvesterhci.load-balancer";
/// The parts of an image that are in the repository.
const PARTS: [&str; 5] = [
    "image/Containerfile",
    "image/group",
    "image/passwd",
    "image/rootfs.sh",
    "LICENSE",
];

/// The files of one image, in `target/image` or below.
#[derive(Debug)]
pub(crate) struct Output {
    folder: PathBuf,
    arch: Arch,
}

/// The commit, as it is known.
struct Commit {
    revision: String,
    /// Seconds since 1970.
    time: String,
}

impl Output {
    pub(crate) fn new(root: &Path, arch: Arch, profile: Profile) -> Self {
        let folder = root.join("target/image");
        let folder = match profile {
            Profile::Release => folder,
            Profile::ImageTest => folder.join("test"),
        };
        Self { folder, arch }
    }

    fn file(&self, ending: &str) -> PathBuf {
        self.folder
            .join(format!("{NAME}-{}.{ending}", self.arch.name()))
    }

    /// Packs a program and its bill of materials, unless that was done already. Returns the path of the archive.
    ///
    /// # Errors
    /// If the image is too large.
    pub(crate) fn pack(&self, root: &Path, program: &Path, bill: &str) -> anyhow::Result<PathBuf> {
        create_dir_all(&self.folder)?;
        let lock = File::create(self.folder.join("lock"))?;
        // Another one that packs the same is done before.
        lock.lock().context("lock")?;
        let (archive, bill_file, stamp) = (
            self.file("oci.tar"),
            self.file("cdx.json"),
            self.file("stamp"),
        );
        std::fs::write(&bill_file, bill).with_context(|| bill_file.display().to_string())?;
        let commit = Commit::of(root);
        let mut inputs = vec![program.to_owned(), bill_file.clone()];
        inputs.extend(PARTS.map(|part| root.join(part)));
        let content = format!("{}{}\n", sums(&inputs)?, commit.revision);
        if archive.is_file() && std::fs::read_to_string(&stamp).is_ok_and(|old| old == content) {
            return Ok(archive);
        }
        for old in [&stamp, &archive] {
            if old.exists() {
                std::fs::remove_file(old)?;
            }
        }
        let rootfs = self.folder.join("rootfs").join(self.arch.name());
        make_rootfs(root, program, &rootfs, &bill_file)?;
        let size = size(&rootfs)?;
        ensure!(
            size <= MOST,
            "the image for {} has {} MB, more than {}; the program {} MB",
            self.arch.name(),
            megabytes(size),
            megabytes(MOST),
            megabytes(program.metadata()?.len())
        );
        let digest = sums(std::slice::from_ref(&bill_file))?;
        let digest = digest.split(' ').next().unwrap_or_default();
        self.build(root, &commit, digest, &archive)?;
        std::fs::write(&stamp, content)?;
        eprintln!(
            "{}: {} MB, its archive {} MB; at most {} MB",
            archive.display(),
            megabytes(size),
            megabytes(archive.metadata()?.len()),
            megabytes(MOST)
        );
        Ok(archive)
    }

    /// Makes the archive of the root file system.
    fn build(
        &self,
        root: &Path,
        commit: &Commit,
        bill_digest: &str,
        archive: &Path,
    ) -> anyhow::Result<()> {
        let storage = self.folder.join("storage");
        remove(&storage)?;
        create_dir_all(&storage)?;
        let policy = storage.join("policy.json");
        std::fs::write(
            &policy,
            r#"{"default":[{"type":"insecureAcceptAnything"}]}"#,
        )?;
        let registries = storage.join("registries.conf");
        std::fs::write(&registries, "")?;
        let text = |path: &Path| path.display().to_string();
        let buildah = |arguments: &[String]| -> anyhow::Result<()> {
            let mut all = vec![
                format!("--root={}", text(&storage.join("root"))),
                format!("--runroot={}", text(&storage.join("run"))),
                "--storage-driver=vfs".to_owned(),
                format!("--registries-conf={}", text(&registries)),
            ];
            all.extend_from_slice(arguments);
            in_namespace(&tools::buildah(root)?, "buildah", &all, &storage)
        };
        let arch = self.arch.name();
        let local = format!("localhost/{NAME}:{arch}");
        let mut arguments: Vec<String> = vec![
            "bud".into(),
            "--quiet".into(),
            "--isolation=chroot".into(),
            // Not the version of buildah.
            "--identity-label=false".into(),
            format!("--signature-policy={}", text(&policy)),
            format!("--platform=linux/{arch}"),
            format!("--timestamp={}", commit.time),
            format!("--build-arg=VERSION={VERSION}"),
            format!("--build-arg=REVISION={}", commit.revision),
        ];
        for flag in ["label", "annotation"] {
            arguments.push(format!("--{flag}={LABELS}.sbom.path={BILL}"));
            arguments.push(format!("--{flag}={LABELS}.sbom.sha256={bill_digest}"));
        }
        arguments.extend([
            format!("--file={}", text(&root.join("image/Containerfile"))),
            format!("--tag={local}"),
            text(&self.folder),
        ]);
        buildah(&arguments)?;
        // Under another name until it is complete.
        let partial = self.file("oci.tar.new");
        remove(&partial)?;
        buildah(&[
            "push".into(),
            "--quiet".into(),
            "--format=oci".into(),
            format!("--signature-policy={}", text(&policy)),
            local,
            format!("oci-archive:{}:{REPOSITORY}:v{VERSION}", text(&partial)),
        ])?;
        std::fs::rename(&partial, archive)?;
        remove(&storage)
    }
}

impl Commit {
    /// That of the work tree; without git, an unknown one at the beginning of time.
    fn of(root: &Path) -> Self {
        let git = |arguments: &[&str]| {
            let output = Command::new("git")
                .args(arguments)
                .current_dir(root)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .output()
                .ok()?;
            let text = String::from_utf8(output.stdout).ok()?;
            (output.status.success() && !text.trim().is_empty()).then(|| text.trim().to_owned())
        };
        Self {
            revision: git(&[
                "describe",
                "--always",
                "--dirty",
                "--abbrev=40",
                "--exclude=*",
            ])
            .unwrap_or_else(|| "unknown".to_owned()),
            time: git(&["log", "-1", "--format=%ct"]).unwrap_or_else(|| "0".to_owned()),
        }
    }
}

fn make_rootfs(root: &Path, program: &Path, rootfs: &Path, bill: &Path) -> anyhow::Result<()> {
    remove(rootfs)?;
    create_dir_all(rootfs.parent().context("no folder")?)?;
    let status = Command::new(root.join("image/rootfs.sh"))
        .args([program, rootfs, bill])
        .stdin(Stdio::null())
        .status()
        .context("image/rootfs.sh cannot be started")?;
    ensure!(status.success(), "image/rootfs.sh failed");
    Ok(())
}

/// Runs a program as root of a new user namespace, with the variables that a file sets.
fn in_namespace(
    variables: &Path,
    program: &str,
    arguments: &[String],
    home: &Path,
) -> anyhow::Result<()> {
    let output = Command::new("sh")
        .args(["-euc", ". \"$1\"; shift; exec \"$@\"", "sh"])
        .arg(variables)
        .args(["unshare", "--user", "--map-root-user", "--mount", program])
        .args(arguments)
        // The configuration of the user's own containers does not matter.
        .env("HOME", home)
        .env_remove("XDG_RUNTIME_DIR")
        .env_remove("XDG_CONFIG_HOME")
        // It is in a user namespace already.
        .env("_CONTAINERS_USERNS_CONFIGURED", "done")
        .stdin(Stdio::null())
        .output()
        .context("sh cannot be started")?;
    ensure!(
        output.status.success(),
        "{program} {}: {}\n{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(())
}

/// SHA-256 of each file, a line each, as `sha256sum` writes them.
fn sums(files: &[PathBuf]) -> anyhow::Result<String> {
    let output = Command::new("sha256sum")
        .args(files)
        .stdin(Stdio::null())
        .output()
        .context("sha256sum cannot be started")?;
    ensure!(
        output.status.success(),
        "sha256sum: {}",
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?)
}

/// Sum of the sizes of all files below a folder.
fn size(folder: &Path) -> anyhow::Result<u64> {
    let mut sum = 0;
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let data = path.symlink_metadata()?;
        sum += if data.is_dir() {
            size(&path)?
        } else {
            data.len()
        };
    }
    Ok(sum)
}

/// A size in megabytes, with a decimal.
fn megabytes(bytes: u64) -> String {
    let tenths = bytes.div_ceil(100_000);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> anyhow::Result<()> {
    let result = match path.symlink_metadata() {
        Ok(data) if data.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => return Ok(()),
    };
    result.with_context(|| path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_up() {
        for (bytes, text) in [
            (0, "0.0"),
            (1, "0.1"),
            (1_999_999, "2.0"),
            (20_000_000, "20.0"),
            (20_000_001, "20.1"),
        ] {
            assert_eq!(megabytes(bytes), text, "{bytes}");
        }
    }

    #[test]
    fn the_size_of_a_folder_is_that_of_all_its_files() {
        let root = crate::repository::root().unwrap();
        let expected: u64 = [
            "passwd",
            "group",
            "rootfs.sh",
            "Containerfile",
            "Containerfile.source",
        ]
        .iter()
        .map(|name| root.join("image").join(name).metadata().unwrap().len())
        .sum();
        assert_eq!(size(&root.join("image")).unwrap(), expected);
    }

    #[test]
    fn both_container_files_make_the_same_image() {
        let root = crate::repository::root().unwrap();
        let end = |name: &str| {
            let text = crate::repository::read(&root, name).unwrap();
            let (_, end) = text.split_once("# Both files end").unwrap();
            end.to_owned()
        };
        let shipped = end("image/Containerfile");
        assert_eq!(shipped, end("image/Containerfile.source"));
        assert!(
            shipped.contains(&format!("ARG VERSION={VERSION}\n")),
            "{shipped}"
        );
        assert!(shipped.contains("USER 65532:65532\n"), "{shipped}");
        let toolchain = crate::repository::read(&root, "rust-toolchain.toml").unwrap();
        let version = toolchain.split('"').nth(1).unwrap();
        let source = crate::repository::read(&root, "image/Containerfile.source").unwrap();
        for wanted in [
            format!("rust:{version}-alpine"),
            format!("RUSTUP_TOOLCHAIN={version}"),
        ] {
            assert!(source.contains(&wanted), "{wanted}");
        }
    }
}
