//! Owns the architectures of the image, and their names: those of images, of Rust, of musl and of Debian.

use anyhow::Context;

/// An architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arch {
    Amd64,
    Arm64,
}

impl Arch {
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// Its name in images, and in Debian.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The architecture of that name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.name() == name)
    }

    /// Its name in Rust and in the names of GNU's tools.
    const fn cpu(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    /// That of this machine.
    pub(crate) fn of_this_machine() -> anyhow::Result<Self> {
        let this = std::env::consts::ARCH;
        let found = Self::ALL.into_iter().find(|arch| arch.cpu() == this);
        found.with_context(|| format!("there is no image for {this}"))
    }

    /// Rust's target.
    pub(crate) fn target(self) -> String {
        format!("{}-unknown-linux-musl", self.cpu())
    }

    /// The target in the name of a variable: `CC_x86_64_unknown_linux_musl`.
    pub(crate) fn target_variable(self) -> String {
        self.target().replace('-', "_")
    }

    /// Prefix of GNU's cross tools.
    pub(crate) fn gnu(self) -> String {
        format!("{}-linux-gnu", self.cpu())
    }

    /// Debian's package of GNU's cross compiler.
    pub(crate) fn cross_package(self) -> String {
        format!("gcc-{}", self.gnu().replace('_', "-"))
    }

    /// Folder of musl's headers in Debian, below `/usr/include`.
    pub(crate) fn musl(self) -> String {
        format!("{}-linux-musl", self.cpu())
    }

    /// Flags of the C compiler.
    pub(crate) const fn compiler_flags(self) -> &'static str {
        match self {
            Self::Amd64 => "",
            // The functions for atomics that GCC calls otherwise are in its own library, which is not linked.
            Self::Arm64 => "-mno-outline-atomics",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let arm = Arch::named("arm64").unwrap();
        assert_eq!(arm.target(), "aarch64-unknown-linux-musl");
        assert_eq!(arm.cross_package(), "gcc-aarch64-linux-gnu");
        assert_eq!(arm.musl(), "aarch64-linux-musl");
        assert_eq!(Arch::Amd64.cross_package(), "gcc-x86-64-linux-gnu");
        assert_eq!(Arch::Amd64.target_variable(), "x86_64_unknown_linux_musl");
        assert_eq!(Arch::named("riscv64"), None);
    }
}
