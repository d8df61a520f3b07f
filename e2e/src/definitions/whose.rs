//! The definitions of LoadBalancer and IPPool that the tests of a binary run on: ours or Harvester's (API-1). `HLB_DEFINITIONS=own` or
//! `HLB_DEFINITIONS=harvester` chooses others than the binary does. That of IPAllocation is always ours.

use anyhow::{bail, ensure};

use crate::definitions::Definitions;
use crate::world::World;

/// Whose they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whose {
    /// Ours.
    Own,
    /// Those of Harvester's release.
    Harvester,
}

impl Whose {
    /// Those that are chosen; by default these.
    fn chosen(self) -> anyhow::Result<Self> {
        match std::env::var("HLB_DEFINITIONS").as_deref() {
            Err(_) => Ok(self),
            Ok("own") => Ok(Self::Own),
            Ok("harvester") => Ok(Self::Harvester),
            Ok(other) => bail!("HLB_DEFINITIONS={other}: own or harvester"),
        }
    }

    /// Before all tests: a new world has ours.
    pub async fn apply(self, world: &World) -> anyhow::Result<()> {
        match self.chosen()? {
            Self::Own => Ok(()),
            Self::Harvester => Definitions::of_harvester().apply(world).await,
        }
    }

    /// After all tests: nothing has replaced them.
    pub async fn are_stored(self, world: &World) -> anyhow::Result<()> {
        let harvesters = Definitions::of_harvester().are_stored(world).await;
        match self.chosen()? {
            Self::Own => {
                ensure!(harvesters.is_err(), "Harvester's are stored");
                Ok(())
            }
            Self::Harvester => harvesters,
        }
    }
}
