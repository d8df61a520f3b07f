//! A packet socket on one interface (`AF_PACKET`, packet(7)). Owns every system call of the DHCP process that sends or
//! receives. Whole Ethernet frames pass, because no interface ever has a client's address.
//!
//! A filter in the kernel leaves ARP packets and UDP datagrams to the port of DHCP clients; all other traffic of the
//! interface costs a few instructions and wakes nobody.

use std::io::{self, IoSliceMut};
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, OwnedFd};

use harvester_lb_ipam::dhcp::{Checksum, HardwareAddress};
use nix::errno::Errno;
use nix::ifaddrs::getifaddrs;
use nix::libc;
use nix::net::if_::InterfaceFlags;
use nix::setsockopt_impl;
use nix::sys::socket::sockopt::{RcvBuf, SetBool};
use nix::sys::socket::{
    AddressFamily, ControlMessageOwned, LinkAddr, MsgFlags, SockFlag, SockProtocol, SockType,
    SockaddrStorage, bind, recvmsg, send, setsockopt, socket,
};
use socket2::{SockFilter, SockRef};
use thiserror::Error;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::dhcp::filter;

/// Longest frame that is read whole: a reply has at most 1,472 bytes of UDP payload, as option 57 says, which is a frame of 1,514 bytes.
/// An interface with jumbo frames may deliver longer ones, which are no replies to us.
pub const LONGEST_FRAME: usize = 2048;
/// Receive buffer in bytes. After a start the replies to 4,096 clients come within ten seconds, and a scheduler may be a
/// tenth of a second late: 40 frames, of which each occupies a page or more.
const RECEIVE_BUFFER: usize = 1 << 20;
/// Bytes of the kernel's `struct tpacket_auxdata`, which begins with the status.
const AUXDATA: usize = 20;
/// `PACKET_AUXDATA` and `TP_STATUS_CSUMNOTREADY` of linux/if_packet.h.
const CHECKSUM_NOT_READY: u32 = 1 << 3;

#[derive(Clone, Copy, Debug)]
struct AuxData;
setsockopt_impl!(
    AuxData,
    libc::SOL_PACKET,
    libc::PACKET_AUXDATA,
    bool,
    SetBool
);

/// Why an interface cannot be used.
#[derive(Debug, Error)]
pub enum OpenError {
    /// There is no such interface.
    #[error("there is no such interface")]
    Missing,
    /// It is down.
    #[error("it is down")]
    Down,
    /// It has no Ethernet address.
    #[error("it has no Ethernet address")]
    NotEthernet,
    /// The process lacks the capability.
    #[error("packet sockets are not permitted: the process needs the capability NET_RAW")]
    NotPermitted,
    /// A system call failed.
    #[error("{0}: {1}")]
    System(&'static str, io::Error),
}

impl OpenError {
    fn of(call: &'static str) -> impl Fn(Errno) -> Self {
        move |errno| match errno {
            Errno::EPERM | Errno::EACCES => Self::NotPermitted,
            other => Self::System(call, other.into()),
        }
    }
}

/// An interface: its index and its Ethernet address.
#[derive(Clone, Copy, Debug)]
pub struct Link {
    address: LinkAddr,
    /// Its Ethernet address.
    pub hardware: HardwareAddress,
}

impl Link {
    /// The index of the interface: another one of the same name has another.
    pub fn index(&self) -> usize {
        self.address.ifindex()
    }
}

/// Finds an interface that is up.
pub fn find(interface: &str) -> Result<Link, OpenError> {
    let all = getifaddrs().map_err(OpenError::of("getifaddrs"))?;
    let mut links = all.filter(|entry| entry.interface_name == interface);
    let found = links.find_map(|entry| {
        let address = *entry.address.as_ref()?.as_link_addr()?;
        Some((entry.flags, address))
    });
    let (flags, address) = found.ok_or(OpenError::Missing)?;
    if !flags.contains(InterfaceFlags::IFF_UP) {
        return Err(OpenError::Down);
    }
    let hardware = address.addr().map(HardwareAddress);
    let hardware = hardware
        .filter(|hardware| address.hatype() == libc::ARPHRD_ETHER && hardware.is_unicast())
        .ok_or(OpenError::NotEthernet)?;
    Ok(Link { address, hardware })
}

/// DHC-5: if this host has an address on one of its networks, of whatever interface, the hardware address of that interface: zeroes, if it
/// has none. Not one with the netmask /32: kube-vip adds those that it announces, and takes them off a little later than the Service goes.
pub fn own_hardware(address: Ipv4Addr) -> Option<HardwareAddress> {
    let all: Vec<_> = getifaddrs().ok()?.collect();
    let ip = |address: Option<&SockaddrStorage>| Some(address?.as_sockaddr_in()?.ip());
    let has_it = all.iter().find(|entry| {
        ip(entry.address.as_ref()) == Some(address)
            && ip(entry.netmask.as_ref()) != Some(Ipv4Addr::BROADCAST)
    })?;
    let interface = interface_of(&has_it.interface_name);
    let mut links = all.iter().filter(|entry| entry.interface_name == interface);
    let hardware = links.find_map(|entry| entry.address.as_ref()?.as_link_addr()?.addr());
    Some(hardware.map_or(HardwareAddress::ZERO, HardwareAddress))
}

/// The interface of an address, by what `getifaddrs` says: that is the label of the address, such as `eth0:1`. No interface has a colon in
/// its name.
fn interface_of(label: &str) -> &str {
    label.split(':').next().unwrap_or_default()
}

/// A socket on one interface.
#[derive(Debug)]
pub struct PacketSocket(AsyncFd<OwnedFd>);

impl PacketSocket {
    /// Opens a socket on an interface.
    pub fn open(link: &Link) -> Result<Self, OpenError> {
        let fd = socket(
            AddressFamily::Packet,
            SockType::Raw,
            SockFlag::SOCK_NONBLOCK | SockFlag::SOCK_CLOEXEC,
            SockProtocol::EthAll,
        )
        .map_err(OpenError::of("socket"))?;
        let attached = SockRef::from(&fd).attach_filter(&instructions());
        attached.map_err(|error| OpenError::System("SO_ATTACH_FILTER", error))?;
        setsockopt(&fd, AuxData, &true).map_err(OpenError::of("PACKET_AUXDATA"))?;
        // The kernel may allow less.
        let _ = setsockopt(&fd, RcvBuf, &RECEIVE_BUFFER);
        // The address has no protocol: the socket keeps its own.
        bind(fd.as_raw_fd(), &link.address).map_err(OpenError::of("bind"))?;
        let socket = Self(readiness(fd)?);
        socket.discard_earlier_frames()?;
        Ok(socket)
    }

    /// Until it was bound, the socket received from all interfaces.
    fn discard_earlier_frames(&self) -> Result<(), OpenError> {
        let mut buffer = [0; LONGEST_FRAME];
        loop {
            match self.receive_now(&mut buffer) {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(OpenError::System("recvmsg", error)),
            }
        }
    }

    /// Waits for a frame and reads it into `buffer`; returns its length, at most that of the buffer. Cancel safe.
    pub async fn receive(&self, buffer: &mut [u8]) -> io::Result<(usize, Checksum)> {
        let receive = |_: &OwnedFd| self.receive_now(buffer);
        // An error of the socket, such as that of an interface that goes down, comes alone.
        let interest = Interest::READABLE.add(Interest::ERROR);
        self.0.async_io(interest, receive).await
    }

    /// The same for a frame that is there; never waits: without one the error is `WouldBlock`.
    pub fn receive_now(&self, buffer: &mut [u8]) -> io::Result<(usize, Checksum)> {
        let mut parts = [IoSliceMut::new(buffer)];
        let mut control = nix::cmsg_space!([u8; AUXDATA]);
        let fd = self.0.get_ref().as_raw_fd();
        let received = recvmsg::<()>(fd, &mut parts, Some(&mut control), MsgFlags::MSG_DONTWAIT)?;
        let is_not_ready = received.cmsgs()?.any(|message| match message {
            ControlMessageOwned::Unknown(unknown)
                if unknown.cmsg_header.cmsg_level == libc::SOL_PACKET
                    && unknown.cmsg_header.cmsg_type == libc::PACKET_AUXDATA =>
            {
                let status = unknown.data_bytes.first_chunk().copied();
                status.is_some_and(|status| u32::from_ne_bytes(status) & CHECKSUM_NOT_READY != 0)
            }
            _ => false,
        });
        let checksum = if is_not_ready {
            Checksum::NotReady
        } else {
            Checksum::Verify
        };
        Ok((received.bytes, checksum))
    }

    /// Sends a frame; never waits. An error means that it was not sent.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        let fd = self.0.get_ref().as_raw_fd();
        let sent = send(fd, frame, MsgFlags::MSG_DONTWAIT)?;
        if sent == frame.len() {
            Ok(())
        } else {
            Err(io::Error::other("the frame was sent in part"))
        }
    }
}

/// The filter, as the kernel takes it.
fn instructions() -> [SockFilter; filter::LENGTH] {
    filter::PROGRAM.map(|i| SockFilter::new(i.code, i.then, i.otherwise, i.value))
}

/// Registers a socket with the runtime.
#[allow(
    unsafe_code,
    reason = "tokio has no safe function for a socket of a kind that it does not know"
)]
fn readiness(fd: OwnedFd) -> Result<AsyncFd<OwnedFd>, OpenError> {
    // SAFETY: the `AsyncFd` owns the descriptor, and `OwnedFd` keeps it open and the same until it is dropped. Nothing here
    // takes it out or replaces it.
    let interest = Interest::READABLE.add(Interest::ERROR);
    let registered = unsafe { AsyncFd::register_with_interest(fd, interest) };
    registered.map_err(|error| OpenError::System("epoll", error.into_parts().1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dhc_5_an_address_with_a_label_is_on_the_interface_before_the_colon() {
        let labels = [
            ("eth0", "eth0"),
            ("eth0:1", "eth0"),
            ("br0.7:kube", "br0.7"),
        ];
        for (label, interface) in labels {
            assert_eq!(interface_of(label), interface);
        }
    }

    #[test]
    fn dhc_1_an_interface_is_found_by_its_name() {
        assert!(matches!(find("no-such-name"), Err(OpenError::Missing)));
        // The loopback has the address 0, or is down.
        assert!(matches!(
            find("lo"),
            Err(OpenError::NotEthernet | OpenError::Down)
        ));
    }
}
