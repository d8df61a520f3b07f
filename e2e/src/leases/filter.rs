//! Faults of the LAN between DHCP clients and servers: rules of the packet filter of its bridge.

use crate::world::World;

/// A rule: servers do not answer.
pub const NO_REPLIES: &str = "udp sport 67 ip saddr 192.168.100.1 drop";
/// A rule: what dnsmasq acknowledges is not known to the client. Its option 53 is the first one.
pub const NO_ACKS: &str = "udp sport 67 @th,1984,24 0x350105 drop";
/// A rule: no client asks for a new lease. Option 53 is the first one of a client.
pub const NO_DISCOVERS: &str = "udp dport 67 @th,1984,24 0x350101 drop";
/// Rules: three of ten frames are lost between gw and node1, whose ports have these names.
pub const LOSS: &str = "iifname \"p1-11\" oifname \"p1-1\" numgen random mod 10 < 3 drop
iifname \"p1-1\" oifname \"p1-11\" numgen random mod 10 < 3 drop";

/// A rule at the bridge of the LAN, which each message between client and server passes. Dropping it ends it.
pub struct Filter<'a>(&'a World);

impl<'a> Filter<'a> {
    /// Sets the only rules, one a line.
    pub fn set(world: &'a World, rule: &str) -> anyhow::Result<Self> {
        load(
            world,
            &format!(
                "table bridge dhcp {{\nchain wire {{\ntype filter hook forward priority 0\n{rule}\n}}\n}}\n"
            ),
        )?;
        Ok(Self(world))
    }
}

impl Drop for Filter<'_> {
    fn drop(&mut self) {
        // Without it, what follows fails.
        let _ = load(self.0, "");
    }
}

/// Replaces the rules.
fn load(world: &World, rules: &str) -> anyhow::Result<()> {
    let none = "table bridge dhcp\ndelete table bridge dhcp\n";
    world.cluster.netns("lan")?.nft(&format!("{none}{rules}"))
}
