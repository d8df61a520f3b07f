//! Watches that break, report errors or fall silent, and lists that stop in the middle.

use std::sync::Arc;
use std::time::Duration;

use harvester_lb_e2e::World;
use harvester_lb_e2e::seeds::seed;
use harvester_lb_testkit::proxy::{After, End, Fault, Frequency, Match, Refusal, Verb};

use super::fault_run::FaultRun;

const TIME: Duration = Duration::from_secs(2);

pub async fn alc_8_watches_and_lists_are_cut(world: Arc<World>) -> anyhow::Result<()> {
    let seed = seed();
    let run = FaultRun::open(&world, "cut").await?;
    let soon = After::Time(Duration::from_millis(300));
    let some = |percent| Frequency::percent(percent, seed);
    for (name, faults) in [
        (
            "each watch ends after 0.3 s",
            vec![
                (some(33), Fault::EndWatch(soon, End::Clean)),
                (some(50), Fault::EndWatch(soon, End::Torn)),
                (Frequency::all(), Fault::EndWatch(soon, End::Cut)),
            ],
        ),
        (
            "each watch is cut in its second event",
            vec![(
                Frequency::all(),
                Fault::EndWatch(After::Events(1), End::Torn),
            )],
        ),
        (
            "each watch says 410 in the stream",
            vec![
                (some(50), Fault::EndWatch(soon, End::Expired)),
                (
                    Frequency::all(),
                    Fault::EndWatch(After::Events(1), End::Expired),
                ),
            ],
        ),
        (
            "watches swallow all events",
            vec![(Frequency::all(), Fault::Swallow)],
        ),
    ] {
        let watches = Match::any().verbs(&[Verb::Watch]);
        let faults = faults.into_iter();
        let faults = faults.map(|(frequency, fault)| (watches.clone(), frequency, fault));
        run.endure(name, TIME, faults.collect()).await?;
    }
    let of = |verb| Match::any().verbs(&[verb]);
    let some = || Frequency::percent(30, seed);
    // Each watch leads to a relist, lists are paginated, and few of them are complete.
    let relist = Fault::EndWatch(After::Time(Duration::from_millis(500)), End::Expired);
    let expired = Fault::Refuse(Refusal::expired());
    let faults = vec![
        (of(Verb::Watch), Frequency::all(), relist),
        (of(Verb::List), Frequency::all(), Fault::Pages(7)),
        (of(Verb::List).continued(), some(), expired),
        (of(Verb::List), some(), Fault::Truncate),
    ];
    run.endure("lists are cut, and their pages expire", TIME, faults)
        .await?;
    run.close().await
}
