//! Owns what can be said about a program without running it: that it is for its architecture, and static. The one for the
//! other architecture is never run here.

use anyhow::{Context, ensure};

use super::arch::Arch;

/// `e_machine` of an architecture.
const fn machine(arch: Arch) -> u16 {
    match arch {
        Arch::Amd64 => 62,
        Arch::Arm64 => 183,
    }
}

/// `p_type` of the segment that names a loader.
const INTERPRETER: u32 = 3;

/// Fails unless these are the bytes of a static program for an architecture: one that needs no loader.
pub(crate) fn verify(program: &[u8], arch: Arch) -> anyhow::Result<()> {
    // 64 bits, little endian.
    ensure!(
        program.starts_with(b"\x7fELF\x02\x01"),
        "the program is no ELF file of 64 bits"
    );
    let number = |from: usize, length: usize| -> anyhow::Result<u64> {
        let bytes = program.get(from..from + length);
        let bytes = bytes.context("the program ends within its headers")?;
        Ok(bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| (sum << 8) | u64::from(*byte)))
    };
    let found = number(18, 2)?;
    ensure!(
        found == u64::from(machine(arch)),
        "the program is for machine {found} of ELF, and not for {}",
        arch.name()
    );
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for entry in 0..count {
        let at = usize::try_from(table + entry * size)?;
        ensure!(
            number(at, 4)? != u64::from(INTERPRETER),
            "the program is not static: it names a loader"
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF file of headers only.
    fn elf(machine: u16, segments: &[u32]) -> Vec<u8> {
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0);
        file[18..20].copy_from_slice(&machine.to_le_bytes());
        file[32] = 64;
        file[54] = 56;
        file[56] = u8::try_from(segments.len()).unwrap();
        for kind in segments {
            file.extend(kind.to_le_bytes());
            file.resize(file.len() + 52, 0);
        }
        file
    }

    #[test]
    fn a_static_program_of_its_architecture() {
        assert!(verify(&elf(62, &[6, 1]), Arch::Amd64).is_ok());
        assert!(verify(&elf(183, &[1]), Arch::Arm64).is_ok());
        assert!(verify(&elf(183, &[1]), Arch::Amd64).is_err());
        assert!(verify(&elf(62, &[1, INTERPRETER]), Arch::Amd64).is_err());
        assert!(verify(&elf(62, &[1])[..64], Arch::Amd64).is_err());
        assert!(verify(b"#!/bin/sh\n", Arch::Amd64).is_err());
    }

    #[test]
    fn this_program_is_dynamic() {
        let this = std::fs::read("/proc/self/exe").unwrap();
        let error = verify(&this, Arch::of_this_machine().unwrap()).unwrap_err();
        assert!(error.to_string().contains("loader"), "{error}");
    }
}
