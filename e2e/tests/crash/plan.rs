//! The plan of a round, derived from its seed: LoadBalancers that are created, deleted and recreated, some of which share an
//! address or request one, and the times of the kills.

use std::sync::Arc;
use std::time::Duration;

use anyhow::ensure;
use harvester_lb_api::keys;
use harvester_lb_e2e::World;
use harvester_lb_e2e::lives::{Life, Step, below, member};
use harvester_lb_fixtures::{cluster_spec, vm_spec};
use serde_json::{Value, json};

/// Names of cluster type, and of VM type.
const CLUSTER: usize = 460;
const VM: usize = 20;
/// Every fourth name requests an address of the pool that is too small.
const TIGHT: usize = 4;
/// Groups that share an address, of VM type, and of cluster type; their members.
const VM_GROUPS: usize = 4;
const CLUSTER_GROUPS: usize = 2;
const MEMBERS: u8 = 4;
/// Names that request a certain address; two request the same one.
const REQUESTING: usize = 8;
/// Time in which the names start.
const BEGIN: u64 = 2_000;

/// The lives of the LoadBalancers of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Created and deleted at random.
    Random,
    /// Deleted within 50 ms of their creation.
    Brief,
    /// Deleted, and recreated with a new uid.
    Again,
}

impl Mode {
    /// A name for namespace, pools and pod.
    pub fn name(self) -> &'static str {
        match self {
            Self::Random => "random",
            Self::Brief => "brief",
            Self::Again => "again",
        }
    }

    /// The seed of the one round in the test; the soak runs others. Each kills several times, and between them:
    ///
    /// | | standby | each process in the pod of its predecessor | end |
    /// |---|---|---|---|
    /// | random | no | no: it waits for the Lease | graceful |
    /// | brief | no | yes: it is leader at once | killed |
    /// | again | yes | no | killed |
    pub fn seed(self) -> u64 {
        match self {
            Self::Random => 76,
            Self::Brief => 192,
            Self::Again => 182,
        }
    }

    /// Addresses of the pool that is too small: about as many as its names at the end of a round, so that LoadBalancers
    /// wait at the end of some rounds, and in the middle of all of them.
    pub fn tight(self) -> usize {
        match self {
            Self::Random => 72,
            Self::Brief => 12,
            Self::Again => 108,
        }
    }
}

/// A round.
#[derive(Clone, Debug)]
pub struct Round {
    pub lives: Vec<Life>,
    /// For each kill: the time until it, from the beginning or the previous restart, and the downtime.
    pub kills: Vec<(Duration, Duration)>,
    /// Whether a second operator stands by on the other node.
    pub standby: bool,
    /// Whether each process has the pod uid of its predecessor, and so need not wait for its Lease.
    pub same_pod: bool,
    /// Whether the round ends with SIGTERM and a released Lease, instead of another kill.
    pub orderly: bool,
}

/// Derives a round from its seed.
pub fn round(mode: Mode, seed: u64) -> Round {
    let mut rng = fastrand::Rng::with_seed(seed);
    // First, so that the seeds of the test keep what the table says whatever the lives are.
    let kills = (0..rng.usize(1..=4)).map(|n| kill(&mut rng, n)).collect();
    let (standby, same_pod) = (rng.u8(0..3) == 0, rng.u8(0..3) > 0);
    let orderly = rng.bool();
    let lives = (0..CLUSTER)
        .map(|n| life(&mut rng, mode, 'c', n, cluster_spec()))
        .collect::<Vec<_>>();
    let vms = (0..VM).map(|n| life(&mut rng, mode, 'v', n, vm_spec("web")));
    let vms = vms.collect();
    let groups = groups(&mut rng, mode);
    let requesting = (0..REQUESTING).map(|n| requesting(&mut rng, mode, n));
    let requesting = requesting.collect();
    Round {
        lives: [lives, vms, groups, requesting].concat(),
        kills,
        standby,
        same_pod,
        orderly,
    }
}

/// The seeds of the test run what the table of [`Mode::seed`] says.
pub async fn the_seeds_cover_what_they_say(_: Arc<World>) -> anyhow::Result<()> {
    for (mode, standby, same_pod, orderly) in [
        (Mode::Random, false, false, true),
        (Mode::Brief, false, true, false),
        (Mode::Again, true, false, false),
    ] {
        let round = round(mode, mode.seed());
        let is = (round.standby, round.same_pod, round.orderly);
        ensure!(is == (standby, same_pod, orderly), "{mode:?}: {is:?}");
        let kills = round.kills.len();
        ensure!(kills > 2, "{mode:?}: {kills} kills");
    }
    Ok(())
}

/// At least one kill during the first creates; then at any time, also during the start or the wait for the Lease.
fn kill(rng: &mut fastrand::Rng, number: usize) -> (Duration, Duration) {
    let within = match (number, rng.u8(0..3)) {
        (0, _) => 1_500,
        (_, 0) => 300,
        _ => 3_500,
    };
    (below(rng, within), below(rng, 700))
}

fn life(rng: &mut fastrand::Rng, mode: Mode, kind: char, number: usize, mut spec: Value) -> Life {
    let is_tight = number % TIGHT == TIGHT - 1;
    spec["ipPool"] = json!(pool(mode, is_tight));
    Life {
        name: format!("{kind}{number}"),
        spec,
        annotations: json!({}),
        steps: steps(rng, mode),
    }
}

fn pool(mode: Mode, is_tight: bool) -> String {
    let size = if is_tight { "tight" } else { "wide" };
    format!("{}-{size}", mode.name())
}

/// Members of groups. The last one of each leaves and joins (SHR-7), the others name the group for good.
fn groups(rng: &mut fastrand::Rng, mode: Mode) -> Vec<Life> {
    let mut lives = Vec::new();
    for group in 0..VM_GROUPS + CLUSTER_GROUPS {
        let is_vm = group < VM_GROUPS;
        let of = format!("g{group}");
        for number in 0..MEMBERS {
            let mut life = member(&of, number, is_vm);
            life.spec["ipPool"] = json!(pool(mode, false));
            life.steps = steps(rng, mode);
            if number == MEMBERS - 1 {
                for group in [None, Some(of.clone())] {
                    let wait = Step::Wait(below(rng, 1_000));
                    life.steps.extend([wait, Step::Share(group)]);
                }
            }
            lives.push(life);
        }
    }
    lives
}

/// One that requests an address of the pool that is wide enough.
fn requesting(rng: &mut fastrand::Rng, mode: Mode, number: usize) -> Life {
    let address = format!("10.80.3.{}", 100 + number / 2);
    Life {
        annotations: json!({keys::ANNOTATION_REQUESTED_ADDRESS: address}),
        ..life(rng, mode, 'r', number * TIGHT, cluster_spec())
    }
}

fn steps(rng: &mut fastrand::Rng, mode: Mode) -> Vec<Step> {
    let mut steps = vec![Step::Wait(below(rng, BEGIN))];
    match mode {
        Mode::Random => random(rng, &mut steps),
        Mode::Brief => {
            for _ in 0..rng.u8(1..=2) {
                steps.extend(brief(rng));
            }
            if rng.u8(0..10) == 0 {
                steps.push(Step::Create);
            }
        }
        Mode::Again => {
            again(rng, &mut steps);
            if rng.u8(0..10) == 0 {
                steps.extend([Step::Wait(below(rng, 500)), Step::Delete]);
            }
        }
    }
    steps
}

/// Of ten names three are idle and six are left in the end, so that a round creates about 500 LoadBalancers,
/// regardless of the state that the previous round left.
fn random(rng: &mut fastrand::Rng, steps: &mut Vec<Step>) {
    match rng.u8(0..10) {
        // Stays, or comes if the round before has ended it.
        0..=2 => steps.push(Step::Create),
        3 | 4 => {
            steps.extend([Step::Delete, Step::Wait(below(rng, 100))]);
            steps.extend(brief(rng));
        }
        // Created, deleted and recreated.
        5..=7 => again(rng, steps),
        // Deleted for good after a while.
        _ => steps.extend([
            Step::Delete,
            Step::Wait(below(rng, 500)),
            Step::Create,
            Step::Wait(below(rng, 2_000)),
            Step::Delete,
        ]),
    }
}

/// Created and deleted before it is reconciled, or during that.
fn brief(rng: &mut fastrand::Rng) -> [Step; 3] {
    [Step::Create, Step::Wait(below(rng, 50)), Step::Delete]
}

/// Created, deleted and recreated with a new uid, almost at once.
fn again(rng: &mut fastrand::Rng, steps: &mut Vec<Step>) {
    steps.push(Step::Create);
    for _ in 0..rng.u8(1..=2) {
        steps.extend([
            Step::Wait(below(rng, 1_000)),
            Step::Delete,
            Step::Wait(below(rng, 100)),
            Step::Create,
        ]);
    }
}
