//! Owns the settings of kube-vip whose name or values depend on its version.

use std::path::Path;
use std::process::Command;

use anyhow::{Context, ensure};

/// Variables for addresses with a prefix of 32 bits, and for a log of everything.
pub(crate) type Settings = [(&'static str, &'static str); 2];

/// For 0.9 and later.
pub(crate) const SETTINGS: Settings = [("vip_subnet", "32"), ("vip_loglevel", "-4")];

/// For earlier versions. These add `vip_subnet` to an address without a slash, so that "32" makes every address invalid,
/// and end at once if the log level is negative.
const SETTINGS_BEFORE_0_9: Settings = [("vip_cidr", "32"), ("vip_loglevel", "5")];

/// The settings for a binary. Its flags tell, since one built from source may not know its version.
pub(crate) fn settings_of(binary: &Path) -> anyhow::Result<Settings> {
    let what = || format!("{} manager --help", binary.display());
    let output = Command::new(binary)
        .args(["manager", "--help"])
        .output()
        .with_context(what)?;
    ensure!(output.status.success(), "{}: {}", what(), output.status);
    Ok(settings_by(&String::from_utf8_lossy(&output.stdout)))
}

/// `help` lists the flags; `--cidr` was removed together with `vip_cidr`.
fn settings_by(help: &str) -> Settings {
    if help.split_whitespace().any(|word| word == "--cidr") {
        SETTINGS_BEFORE_0_9
    } else {
        SETTINGS
    }
}

#[cfg(test)]
mod tests {
    use super::{SETTINGS, SETTINGS_BEFORE_0_9, settings_by};

    #[test]
    fn settings_by_the_flags() {
        let table = [
            (
                "0.8.1",
                "  --cidr string  The CIDR range",
                SETTINGS_BEFORE_0_9,
            ),
            ("0.9.2", "  --vipSubnet string  e.g. /32", SETTINGS),
        ];
        for (version, help, settings) in table {
            assert_eq!(settings_by(help), settings, "{version}");
        }
    }
}
