//! What a plan expects of the prober, compared with the prober.

use std::net::IpAddr;

use fastrand::Rng;
use harvester_lb_core::plan::Checks;
use harvester_lb_core::plan::step::Probes;
use harvester_lb_prober::{HealthCheck, Target};
use tokio::time::{Duration, sleep, timeout};

use super::*;
use crate::controllers::load_balancer::apply::probe;

/// What a plan is made from (`observe::view`).
fn seen(ctx: &Context) -> Checks {
    let group = key().to_string();
    Checks {
        check: ctx.prober.check(&group),
        targets: ctx.prober.group(&group).unwrap_or_default(),
    }
}

fn random(rng: &mut Rng) -> Probes {
    match rng.u8(..10) {
        0 => Probes::Unchanged,
        1 => Probes::End,
        _ => random_targets(rng, 0),
    }
}

/// At least so many targets, where nobody listens; each may be there twice.
fn random_targets(rng: &mut Rng, least: usize) -> Probes {
    let check = HealthCheck::new(Some(9), None, Some(rng.i64(1..3)), Some(1), Some(1));
    let target = |rng: &mut Rng| {
        let addr: IpAddr = [127, 0, 0, rng.u8(1..5)].into();
        let id = ["a", "b"][rng.usize(..2)];
        Target::new(id, addr, rng.bool())
    };
    let targets = (0..rng.usize(least..6)).map(|_| target(rng)).collect();
    Probes::Run(check.unwrap().unwrap(), targets)
}

#[tokio::test]
async fn hc_2_the_prober_is_after_each_step_as_the_plan_expects() {
    let ctx = fake::context(FakeApiServer::default().client(), &Timings::default(), true);
    let mut rng = Rng::with_seed(1);
    let (mut failed, mut kept) = (0, 0);
    for round in 0..600 {
        if round % 200 == 150 {
            probe(&ctx, &key(), &random_targets(&mut rng, 1));
            let has_failed = async {
                while seen(&ctx).targets.iter().all(|it| it.last.is_none()) {
                    sleep(Duration::from_millis(10)).await;
                }
            };
            timeout(Duration::from_secs(20), has_failed).await.unwrap();
        }
        let before = seen(&ctx);
        failed += before.targets.iter().filter(|it| it.last.is_some()).count();
        let probes = random(&mut rng);
        let expected = before.after(&probes);
        kept += expected
            .targets
            .iter()
            .filter(|it| it.last.is_some())
            .count();
        probe(&ctx, &key(), &probes);
        assert_eq!(seen(&ctx), expected, "round {round}: {probes:?}");
    }
    assert!(
        failed > 0 && kept > 0,
        "{failed} had a result, {kept} kept it"
    );
}
