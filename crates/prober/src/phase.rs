//! Where in its period a target is probed: spread over all targets, and the same after a restart.

use std::net::IpAddr;

/// The phase of a target in the timetable: a hash of its identity that is the same in every
/// process and version (FNV-1a, then the finalizer of splitmix64 to spread its high bits).
pub(crate) fn phase(group: &str, id: &str, addr: IpAddr) -> u64 {
    fn fnv(hash: u64, bytes: &[u8]) -> u64 {
        bytes.iter().fold(hash, |hash, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        })
    }
    let mut hash = 0xcbf2_9ce4_8422_2325;
    for part in [group, id] {
        // The zero byte keeps "a" + "bc" apart from "ab" + "c".
        hash = fnv(fnv(hash, part.as_bytes()), &[0]);
    }
    hash = match addr {
        IpAddr::V4(addr) => fnv(hash, &addr.octets()),
        IpAddr::V6(addr) => fnv(hash, &addr.octets()),
    };
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^ (hash >> 31)
}
