use super::*;

use crate::fake::{self, FakeApiServer};
use crate::timings::Timings;

/// The process stays ready: it goes on serving, and a restart would not help.
#[tokio::test]
async fn run_2_readyz_names_a_watch_that_fails_beside_refused_writes() {
    let ctx = fake::first(FakeApiServer::default().client(), &Timings::default());
    let current = Arc::new(CurrentTerm::new(ctx));
    let ctx = current.context();
    let progress = Progress::default();
    *progress.current.write() = Some(Arc::clone(&current));
    let waiting = progress.waiting_for();
    let failing = || {
        let families = ctx.metrics.registry().gather();
        let mut families = families.iter();
        let watches = families.find(|it| it.name() == "harvester_lb_watches_failing");
        watches.unwrap().get_metric()[0].get_gauge().get_value() > 0.5
    };
    let watch = ctx.metrics.client.watch("Node", None);
    assert_eq!((progress.remarks(), failing()), (vec![], false));

    watch.failed("nodes is forbidden", false);
    ctx.refused_writes.refused("Service", &Key::new("n", "a"));
    // It fails in every term.
    current.next_term();
    let remarks = progress.remarks();
    assert!(remarks[0].starts_with("the watch of Node has been failing since 20"));
    assert!(remarks[0].ends_with("Z: nodes is forbidden"), "{remarks:?}");
    assert_eq!(progress.waiting_for(), waiting);
    assert!(failing());
    watch.established();
    assert!(!failing());
}
