//! `cargo run -p xtask -- image [amd64] [arm64]`: the static program, its bill of materials, and the container image, for
//! both architectures or one. Written to `target/image`:
//!
//! | file | is |
//! |---|---|
//! | `rootfs/ARCH/` | the root file system of the image |
//! | `harvester-load-balancer-ARCH.oci.tar` | the image, an OCI archive |
//! | `harvester-load-balancer-ARCH.cdx.json` | the bill of materials, CycloneDX; the image has a copy |
//!
//! `--test` builds the program with the profile `image-test`, for this machine's architecture, to `target/image/test`:
//! without link-time optimisation, so that `make test` does not wait for that. `--program` builds only the program as
//! shipped, for `make bench`. What was asked for is printed to standard output, a path a line, all else to standard error.
//!
//! Nothing is installed but rustup's targets, and root is not needed.
//!
//! | module | owns |
//! |---|---|
//! | [`arch`] | the names of the architectures |
//! | [`tools`] | C compilers for musl, and buildah |
//! | [`program`] | the build of the program, and the crates that went into it |
//! | [`elf`] | that the program is static, and for its architecture |
//! | [`sbom`] | the bill of materials |
//! | [`pack`] | the root file system, the archive, their size |

mod arch;
mod elf;
mod pack;
mod program;
mod sbom;
mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::bail;

use arch::Arch;
use pack::Output;
use program::Profile;

/// Command line options.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    architectures: Vec<Arch>,
    profile: Profile,
    /// Only the program, without an image.
    program_only: bool,
}

impl Options {
    fn parse<S: AsRef<str>>(arguments: &[S]) -> anyhow::Result<Self> {
        let mut options = Self {
            architectures: Vec::new(),
            profile: Profile::Release,
            program_only: false,
        };
        for argument in arguments.iter().map(AsRef::as_ref) {
            match (argument, Arch::named(argument)) {
                (_, Some(arch)) => options.architectures.push(arch),
                ("--test", _) => options.profile = Profile::ImageTest,
                ("--program", _) => options.program_only = true,
                _ => bail!(
                    "unexpected argument {argument:?}; usage: xtask image [--test | --program] [amd64] [arm64]"
                ),
            }
        }
        if options.architectures.is_empty() {
            let one = options.program_only || options.profile == Profile::ImageTest;
            options.architectures = if one {
                vec![Arch::of_this_machine()?]
            } else {
                Arch::ALL.to_vec()
            };
        }
        Ok(options)
    }
}

/// Builds what the arguments ask for.
pub(crate) fn main(root: &Path, arguments: &[String]) -> ExitCode {
    let outcome = Options::parse(arguments).and_then(|options| run(root, &options));
    match outcome {
        Ok(paths) => {
            for path in paths {
                println!("{}", path.display());
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("image: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// The image that the tests use, as an archive; built if it is not up to date.
pub(crate) fn for_tests(root: &Path) -> anyhow::Result<PathBuf> {
    build(root, Arch::of_this_machine()?, Profile::ImageTest)
}

fn run(root: &Path, options: &Options) -> anyhow::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for arch in &options.architectures {
        paths.push(if options.program_only {
            program::build(root, *arch, options.profile)?.path
        } else {
            build(root, *arch, options.profile)?
        });
    }
    Ok(paths)
}

/// Builds an image and returns the path of its archive.
fn build(root: &Path, arch: Arch, profile: Profile) -> anyhow::Result<PathBuf> {
    let program = program::build(root, arch, profile)?;
    elf::verify(&std::fs::read(&program.path)?, arch)?;
    let output = Output::new(root, arch, profile);
    let bill = sbom::of_program(root, arch, &program.linked)?;
    output.pack(root, &program.path, &bill)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_are_architectures_and_what_to_build() {
        let all = Options::parse::<&str>(&[]).unwrap();
        assert_eq!(all.architectures, [Arch::Amd64, Arch::Arm64]);
        assert_eq!((all.profile, all.program_only), (Profile::Release, false));
        let arm = Options::parse(&["--program", "arm64"]).unwrap();
        assert_eq!(arm.architectures, [Arch::Arm64]);
        assert!(arm.program_only);
        let test = Options::parse(&["--test"]).unwrap();
        assert_eq!(test.architectures, [Arch::of_this_machine().unwrap()]);
        assert_eq!(test.profile, Profile::ImageTest);
        for wrong in [&["x86"][..], &["--fast"], &["amd64", "riscv64"]] {
            assert!(Options::parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
