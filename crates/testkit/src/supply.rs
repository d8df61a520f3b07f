//! Owns the external parts of a test cluster: the control plane's binary, helm, and the system's programs (`ip`, `nft`).
//! Found or built before entering the namespaces, since there is no network inside.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, bail};

/// Path of the control plane's binary, instead of building it from `e2e/plane`.
pub(crate) const PLANE: &str = "HLB_PLANE";
/// Path of a binary of kube-vip, instead of the one in the control plane's binary.
pub(crate) const KUBE_VIP: &str = "HLB_KUBE_VIP";
/// Variables by which a program finds the system's programs, their libraries, and the extensions of iptables.
const VARIABLES: [&str; 3] = ["PATH", "LD_LIBRARY_PATH", "XTABLES_LIBDIR"];
/// Folder into which `e2e/tools.sh` installs missing programs, instead of `target/tools`.
const TOOLS: &str = "BED_TOOLS";
/// A program that is built, by `e2e/helm/build.sh`, whatever is on `PATH`: the tests need its version.
const HELM: &str = "helm";
/// Programs that every test cluster needs.
const PROGRAMS: [&str; 2] = ["ip", "nft"];
/// The Debian package of each program that a test may need.
const PACKAGES: [(&str, &str); 9] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("ip6tables", "iptables"),
    ("iptables-legacy", "iptables"),
    ("dnsmasq", "dnsmasq-base"),
    ("kea-dhcp4", "kea-dhcp4-server"),
    ("promtool", "prometheus"),
    ("prometheus", "prometheus"),
];

/// The result; passed to the process inside as its environment.
pub(crate) struct Supply {
    plane: PathBuf,
    kube_vip: Option<PathBuf>,
    /// [`VARIABLES`], as written by the tools script.
    variables: Vec<(String, OsString)>,
}

impl Supply {
    pub(crate) fn environment(&self) -> Vec<(String, OsString)> {
        let mut all = self.variables.clone();
        all.push((PLANE.into(), self.plane.clone().into_os_string()));
        let kube_vip = self.kube_vip.iter();
        all.extend(kube_vip.map(|path| (KUBE_VIP.to_owned(), path.clone().into_os_string())));
        all
    }
}

/// The values of [`VARIABLES`] inside, for a program that starts with an empty environment.
pub(crate) fn variables() -> Vec<(&'static str, String)> {
    let set = |name: &'static str| std::env::var(name).ok().map(|value| (name, value));
    VARIABLES.into_iter().filter_map(set).collect()
}

/// Builds or finds everything. Progress goes to standard error.
pub(crate) fn provide(programs: &[&str]) -> anyhow::Result<Supply> {
    let repository = repository()?;
    let of_system = programs.iter().filter(|program| **program != HELM).copied();
    let wanted: Vec<&str> = PROGRAMS.into_iter().chain(of_system).collect();
    let mut variables = tools(&repository, &wanted)?;
    if programs.contains(&HELM) {
        add_to_path(&mut variables, &helm(&repository)?)?;
    }
    Ok(Supply {
        plane: plane(&repository)?,
        kube_vip: named_by(KUBE_VIP)?,
        variables,
    })
}

fn repository() -> anyhow::Result<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here
        .ancestors()
        .nth(2)
        .context("the crate has been moved")?;
    Ok(root.to_path_buf())
}

/// The file that a variable names; `None` if it is not set.
fn named_by(variable: &str) -> anyhow::Result<Option<PathBuf>> {
    let Some(path) = std::env::var_os(variable) else {
        return Ok(None);
    };
    let path = PathBuf::from(path);
    let found = path.canonicalize();
    found
        .map(Some)
        .with_context(|| format!("{variable} names {}", path.display()))
}

fn plane(repository: &Path) -> anyhow::Result<PathBuf> {
    if let Some(path) = named_by(PLANE)? {
        return Ok(path);
    }
    built(
        &repository.join("e2e/plane/build.sh"),
        &repository.join("target/plane"),
    )
}

fn helm(repository: &Path) -> anyhow::Result<PathBuf> {
    built(&repository.join("e2e/helm/build.sh"), &folder(repository))
}

/// The program that a script builds in a folder, or has built there before.
fn built(script: &Path, folder: &Path) -> anyhow::Result<PathBuf> {
    let output = Command::new(script)
        .arg(folder)
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot run {}", script.display()))?;
    if !output.status.success() {
        bail!(
            "{} failed ({}); its messages are above",
            script.display(),
            output.status
        );
    }
    Ok(PathBuf::from(String::from_utf8(output.stdout)?.trim()))
}

/// Puts the folder of a program first on `PATH`.
fn add_to_path(variables: &mut [(String, OsString)], program: &Path) -> anyhow::Result<()> {
    let folder = program.parent().context("a program in no folder")?;
    let path = variables.iter_mut().find(|(name, _)| name == "PATH");
    let (_, path) = path.context("no PATH")?;
    let all = std::iter::once(folder.to_path_buf()).chain(std::env::split_paths(&*path));
    *path = std::env::join_paths(all)?;
    Ok(())
}

/// The folder of the tools.
fn folder(repository: &Path) -> PathBuf {
    std::env::var_os(TOOLS).map_or_else(|| repository.join("target/tools"), PathBuf::from)
}

/// The variables that `env` in the tools folder sets; if a program is missing, it is installed there first.
fn tools(repository: &Path, wanted: &[&str]) -> anyhow::Result<Vec<(String, OsString)>> {
    let folder = folder(repository);
    let script = repository.join("e2e/tools.sh");
    // sbin is not on every user's PATH, although the programs are there.
    let shell = format!(
        r#"set -eu
        if [ -f "$2/env" ]; then . "$2/env"; fi
        PATH=$PATH:/usr/sbin:/sbin
        for p in {programs}; do
            command -v $p >/dev/null || {{ "$1" "$2" >&2; . "$2/env"; break; }}
        done
        for p in {programs}; do command -v $p >/dev/null || {{ echo "missing $p"; exit 0; }}; done
        echo "PATH=$PATH"
        echo "LD_LIBRARY_PATH=${{LD_LIBRARY_PATH:-}}"
        echo "XTABLES_LIBDIR=${{XTABLES_LIBDIR:-}}""#,
        programs = wanted.join(" ")
    );
    let output = Command::new("sh")
        .args(["-c", &shell, "sh"])
        .args([&script, &folder])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot run sh")?;
    let text = String::from_utf8(output.stdout)?;
    let named = |program: &str| {
        let package = PACKAGES.iter().find(|(name, _)| *name == program);
        package.map_or_else(
            || program.to_owned(),
            |(_, p)| format!("{program} (Debian package {p})"),
        )
    };
    if let Some(program) = text.trim().strip_prefix("missing ") {
        bail!("a program is missing: {}", named(program));
    }
    if !output.status.success() {
        let list: Vec<String> = wanted.iter().map(|program| named(program)).collect();
        bail!(
            "a program is missing and {} could not fetch it; install what is not there of: {}",
            script.display(),
            list.join(", ")
        );
    }
    Ok(text
        .lines()
        .filter_map(|line| line.split_once('='))
        .filter(|(_, value)| !value.is_empty())
        .map(|(name, value)| (name.to_owned(), value.into()))
        .collect())
}
