//! A host of the LAN that has leased its address, as its operating system does: with its own hardware address and without a client
//! identifier.

use std::net::{Ipv4Addr, UdpSocket};

use anyhow::{Context, ensure};
use harvester_lb_testkit::{Dhcp, GATEWAY, eventually, lan};

use crate::world::{SOON, World};

/// The hardware address of a host, as text.
pub fn hardware(world: &World, host: &str) -> anyhow::Result<String> {
    let netns = world.cluster.netns(host)?;
    let link = netns.output("ip", &["-o", "link", "show", "dev", "eth0"])?;
    let mut words = link.split_whitespace();
    words.find(|it| *it == "link/ether");
    let hardware = words.next().context("no hardware address")?;
    Ok(hardware.to_owned())
}

/// Lets a host lease an address from dnsmasq, and waits until that has recorded it. Only one message is sent: another one might come into
/// the log of the server after this.
pub async fn lease(
    world: &World,
    host: &str,
    server: &Dhcp,
    address: Ipv4Addr,
) -> anyhow::Result<()> {
    let hardware = hardware(world, host)?;
    let request = request(&hardware, address)?;
    let netns = world.cluster.netns(host)?;
    let socket = netns.run(|| UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 68)))??;
    socket.set_broadcast(true)?;
    socket.send_to(&request, (lan(255), 67))?;
    eventually(&format!("{host} has leased {address}"), SOON, || async {
        let held = server.held_by(&hardware);
        ensure!(held == Some(address), "{}", server.leases());
        Ok(Some(()))
    })
    .await
}

/// Whether dnsmasq has the lease of a host still as that of a client without an identifier.
pub fn has_lease(server: &Dhcp, hardware: &str, address: Ipv4Addr) -> bool {
    let leases = server.leases();
    let mut rows = leases.lines().map(|it| it.split(' ').collect::<Vec<_>>());
    rows.any(|row| match row[..] {
        [_, of, at, _, id] => of == hardware && at == address.to_string() && id == "*",
        _ => false,
    })
}

/// A REQUEST for an address, as after an OFFER. The answer may be broadcast.
fn request(hardware: &str, address: Ipv4Addr) -> anyhow::Result<Vec<u8>> {
    let bytes: Result<Vec<u8>, _> = hardware
        .split(':')
        .map(|it| u8::from_str_radix(it, 16))
        .collect();
    let mut message = vec![1, 1, 6, 0, 0, 0, 0, 1, 0, 0, 0x80, 0];
    message.resize(28, 0);
    message.extend(bytes.with_context(|| format!("hardware address {hardware:?}"))?);
    message.resize(236, 0);
    message.extend([99, 130, 83, 99, 53, 1, 3]);
    message.extend([&[54, 4][..], &GATEWAY.octets()].concat());
    message.extend([&[50, 4][..], &address.octets()].concat());
    message.push(255);
    message.resize(300, 0);
    Ok(message)
}
