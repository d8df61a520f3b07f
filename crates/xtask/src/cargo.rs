//! Owns which cargo is started.

use std::ffi::OsString;

/// The cargo that runs this program, else the one on `PATH`.
pub(crate) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}
