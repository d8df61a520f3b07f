//! Fixed fields of byte strings, without a way to panic.

/// The N bytes at an offset; `None` if there are fewer.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..)?.first_chunk().copied()
}
