//! The filter of the packet sockets: a program of the classic BPF (linux/filter.h), which the kernel runs for each frame of the
//! interface. Owns which frames reach the DHCP process: ARP packets, and IPv4 packets with UDP to the port of DHCP clients.

use harvester_lb_ipam::dhcp::CLIENT_PORT;

/// An instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Instruction {
    /// What it does.
    pub code: u16,
    /// How many instructions are skipped if a comparison holds.
    pub then: u8,
    /// How many, if it does not.
    pub otherwise: u8,
    /// The operand.
    pub value: u32,
}

/// Offsets from here are fields of the packet's metadata.
const METADATA: u32 = 0xffff_f000;
/// The kind of packet, such as [`OUTGOING`].
const PACKET_TYPE: u32 = METADATA + 4;
/// Whether the network card or the kernel has taken a VLAN tag off.
const IS_TAGGED: u32 = METADATA + 48;
/// The VLAN tag that was taken off.
const TAG: u32 = METADATA + 44;
/// `PACKET_OUTGOING`: sent by this host.
const OUTGOING: u32 = 4;
const ARP: u32 = 0x0806;
const IPV4: u32 = 0x0800;
const UDP: u32 = 17;
/// Where the IPv4 header begins.
const IP: u32 = 14;
const FRAGMENT_OFFSET: u32 = 0x1fff;
/// The number of the VLAN in a tag; 0 if the tag has a priority alone, and the frame is of no VLAN (IEEE 802.1Q).
const VLAN: u32 = 0x0fff;

const LOAD_WORD: u16 = 0x20;
const LOAD_HALF: u16 = 0x28;
const LOAD_BYTE: u16 = 0x30;
/// The half word at the index and an offset.
const LOAD_HALF_INDEXED: u16 = 0x48;
/// Sets the index to the length of the IPv4 header at an offset.
const INDEX_OF_HEADER: u16 = 0xb1;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const fn load(code: u16, at: u32) -> Instruction {
    jump(code, at, 0, 0)
}

const fn jump(code: u16, value: u32, then: u8, otherwise: u8) -> Instruction {
    Instruction {
        code,
        then,
        otherwise,
        value,
    }
}

/// Instructions of [`PROGRAM`].
pub const LENGTH: usize = 18;

/// The filter. Frames of another VLAN belong to another network, and what this host sends is no answer.
pub const PROGRAM: [Instruction; LENGTH] = [
    load(LOAD_WORD, PACKET_TYPE),
    jump(IF_EQUAL, OUTGOING, 15, 0),
    load(LOAD_WORD, IS_TAGGED),
    jump(IF_EQUAL, 0, 2, 0),
    load(LOAD_WORD, TAG),
    jump(IF_ANY_BIT, VLAN, 11, 0),
    load(LOAD_HALF, 12),
    jump(IF_EQUAL, ARP, 8, 0),
    jump(IF_EQUAL, IPV4, 0, 8),
    load(LOAD_BYTE, IP + 9),
    jump(IF_EQUAL, UDP, 0, 6),
    load(LOAD_HALF, IP + 6),
    jump(IF_ANY_BIT, FRAGMENT_OFFSET, 4, 0),
    load(INDEX_OF_HEADER, IP),
    load(LOAD_HALF_INDEXED, IP + 2),
    jump(IF_EQUAL, CLIENT_PORT as u32, 0, 1),
    // The whole frame, or nothing.
    load(RETURN, u32::MAX),
    load(RETURN, 0),
];

#[cfg(test)]
mod tests;
