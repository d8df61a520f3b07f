//! Owns images: root file systems in folders, with what an image's configuration says about its program. Unpacked from
//! an archive, or made of one program and the libraries that it needs.

use std::collections::BTreeSet;
use std::fs::create_dir_all;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail, ensure};
use serde::Deserialize;

/// An image of containers.
#[derive(Clone, Debug, Default)]
pub struct Image {
    pub(crate) root: PathBuf,
    pub(crate) entrypoint: Vec<String>,
    pub(crate) command: Vec<String>,
    pub(crate) env: Vec<(String, String)>,
    /// User and group; both 0 without.
    pub(crate) user: (u32, u32),
    pub(crate) work_dir: Option<PathBuf>,
}

/// `index.json` of an archive, or an index that it refers to.
#[derive(Deserialize)]
struct Index {
    manifests: Vec<Descriptor>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    #[serde(default)]
    media_type: String,
    digest: String,
    platform: Option<Platform>,
}

#[derive(Deserialize)]
struct Platform {
    architecture: String,
    os: String,
}

#[derive(Deserialize)]
struct Manifest {
    config: Descriptor,
    layers: Vec<Descriptor>,
}

#[derive(Default, Deserialize)]
struct Configuration {
    #[serde(default)]
    config: Program,
}

/// The part of an image's configuration that concerns its program.
#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct Program {
    user: String,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: String,
}

impl Image {
    /// A root file system in a folder. Nothing is written to it.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            ..Self::default()
        }
    }

    /// Folder of the root file system.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The program that is started, and its first arguments.
    #[must_use]
    pub fn entrypoint(mut self, line: &[&str]) -> Self {
        self.entrypoint = line.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    /// The arguments after the entrypoint, unless a Pod gives others.
    #[must_use]
    pub fn command(mut self, line: &[&str]) -> Self {
        self.command = line.iter().map(|text| (*text).to_owned()).collect();
        self
    }

    /// A variable of the environment.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// User and group of the program, unless a Pod gives others.
    #[must_use]
    pub const fn user(mut self, uid: u32, gid: u32) -> Self {
        self.user = (uid, gid);
        self
    }

    /// Makes an image of a program of this machine, as `/program`, and the libraries that `ldd` finds for it. `folder`
    /// must not exist.
    pub fn of_program(program: &Path, folder: &Path) -> anyhow::Result<Self> {
        create_dir_all(folder.parent().context("no folder")?)?;
        std::fs::create_dir(folder).with_context(|| folder.display().to_string())?;
        let place = |source: &Path, target: &Path| -> anyhow::Result<()> {
            let target = folder.join(target.strip_prefix("/")?);
            create_dir_all(target.parent().unwrap_or(folder))?;
            // A link where it is possible: test programs are large.
            if std::fs::hard_link(source, &target).is_err() {
                std::fs::copy(source, &target)?;
            }
            Ok(())
        };
        let program = program.canonicalize()?;
        place(&program, Path::new("/program"))?;
        for library in libraries(&program)? {
            // At the path that the program has for it, which can be a symbolic link.
            place(&library.canonicalize()?, &library)
                .with_context(|| library.display().to_string())?;
        }
        Ok(Self::new(folder).entrypoint(&["/program"]))
    }

    /// Unpacks an `oci-archive`, as `buildah push IMAGE oci-archive:FILE` writes it, to a folder that must not exist.
    ///
    /// All files belong to the user of this process, and devices are not possible. The user of the image must be given
    /// as numbers.
    pub fn unpack(archive: &Path, folder: &Path) -> anyhow::Result<Self> {
        unpack(archive, folder).with_context(|| format!("image {}", archive.display()))
    }
}

/// Paths of the libraries of a program, and of its loader; none for a static one.
fn libraries(program: &Path) -> anyhow::Result<BTreeSet<PathBuf>> {
    let output = Command::new("ldd")
        .arg(program)
        .stdin(Stdio::null())
        .output()
        .context("cannot run ldd")?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let error = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        ensure!(
            error.contains("not a dynamic executable") || text.contains("statically linked"),
            "ldd {}: {}",
            program.display(),
            error.trim()
        );
        return Ok(BTreeSet::new());
    }
    Ok(text.lines().filter_map(library).collect())
}

/// The path in a line of `ldd`: `name => /path (0x..)`, or `/path (0x..)` for the loader. The kernel's has none.
fn library(line: &str) -> Option<PathBuf> {
    let line = line.split_once("=>").map_or(line, |(_, path)| path).trim();
    let path = line.split(' ').next()?;
    path.starts_with('/').then(|| path.into())
}

fn unpack(archive: &Path, folder: &Path) -> anyhow::Result<Image> {
    let (blobs, root) = (folder.join("archive"), folder.join("root"));
    create_dir_all(folder.parent().context("no folder")?)?;
    std::fs::create_dir(folder)?;
    std::fs::create_dir(&root)?;
    std::fs::create_dir(&blobs)?;
    tar(&["-xf", path(archive)?, "-C", path(&blobs)?])?;
    let index: Index = read(&blobs.join("index.json"))?;
    let manifest = manifest(&blobs, &index)?;
    for layer in &manifest.layers {
        apply(&blob(&blobs, layer)?, &root)?;
    }
    let configuration: Configuration = read(&blob(&blobs, &manifest.config)?)?;
    std::fs::remove_dir_all(&blobs)?;
    let program = configuration.config;
    let env = program.env.unwrap_or_default();
    Ok(Image {
        root,
        entrypoint: program.entrypoint.unwrap_or_default(),
        command: program.cmd.unwrap_or_default(),
        env: env
            .iter()
            .filter_map(|line| line.split_once('='))
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect(),
        user: user(&program.user)?,
        work_dir: Some(program.working_dir)
            .filter(|dir| !dir.is_empty())
            .map(PathBuf::from),
    })
}

/// The manifest for this machine.
fn manifest(blobs: &Path, index: &Index) -> anyhow::Result<Manifest> {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let fits = |descriptor: &&Descriptor| {
        let platform = descriptor.platform.as_ref();
        platform.is_none_or(|p| p.architecture == architecture && p.os == "linux")
    };
    let found = index.manifests.iter().find(fits);
    let found = found.with_context(|| format!("no image for {architecture}"))?;
    let file = blob(blobs, found)?;
    if found.media_type.contains("index") || found.media_type.contains("manifest.list") {
        return manifest(blobs, &read(&file)?);
    }
    read(&file)
}

fn blob(blobs: &Path, descriptor: &Descriptor) -> anyhow::Result<PathBuf> {
    let (algorithm, hash) = descriptor.digest.split_once(':').context("no digest")?;
    Ok(blobs.join("blobs").join(algorithm).join(hash))
}

fn read<T: serde::de::DeserializeOwned>(file: &Path) -> anyhow::Result<T> {
    let text = std::fs::read(file).with_context(|| file.display().to_string())?;
    serde_json::from_slice(&text).with_context(|| file.display().to_string())
}

/// Unpacks a layer over those before, in any compression that `tar` detects.
fn apply(layer: &Path, root: &Path) -> anyhow::Result<()> {
    let layer = path(layer)?;
    for name in tar(&["-tf", layer])?.lines() {
        let file = root.join(name.trim_start_matches("./"));
        let (Some(parent), Some(base)) = (file.parent(), file.file_name()) else {
            continue;
        };
        let Some(hidden) = base.to_str().and_then(|base| base.strip_prefix(".wh.")) else {
            continue;
        };
        if hidden == ".wh..opq" {
            remove(parent)?;
            create_dir_all(parent)?;
        } else {
            remove(&parent.join(hidden))?;
        }
    }
    // Owners cannot be kept: there is one user only.
    tar(&[
        "-xf",
        layer,
        "-C",
        path(root)?,
        "--no-same-owner",
        "--same-permissions",
        "--exclude=.wh.*",
    ])?;
    Ok(())
}

/// Removes a file or a folder, if it is there.
fn remove(path: &Path) -> std::io::Result<()> {
    match path.symlink_metadata() {
        Ok(data) if data.is_dir() => std::fs::remove_dir_all(path),
        Ok(_) => std::fs::remove_file(path),
        Err(_) => Ok(()),
    }
}

/// `uid`, `uid:gid`, or nothing.
fn user(text: &str) -> anyhow::Result<(u32, u32)> {
    if text.is_empty() {
        return Ok((0, 0));
    }
    let (uid, gid) = text.split_once(':').unwrap_or((text, "0"));
    let number = |text: &str| {
        let number = text.parse::<u32>();
        number.with_context(|| format!("user {text:?} is not a number"))
    };
    Ok((number(uid)?, number(gid)?))
}

fn path(path: &Path) -> anyhow::Result<&str> {
    path.to_str().context("the path is no text")
}

fn tar(args: &[&str]) -> anyhow::Result<String> {
    let output = Command::new("tar")
        .args(args)
        .stdin(Stdio::null())
        .output()
        .context("cannot run tar")?;
    if !output.status.success() {
        bail!(
            "tar {}: {}",
            args.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests;
