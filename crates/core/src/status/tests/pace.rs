//! Whether a status is written, and when.

use super::*;
use crate::details::{allocated_from_pool, announced};

/// The update of the rules' example, with detail conditions.
fn detailed(address: &str) -> StatusUpdate {
    StatusUpdate {
        details: vec![
            allocated_from_pool(address, "p"),
            announced(Some(address), address, false),
        ],
        ..example()
    }
}

fn written(write: StatusWrite) -> LoadBalancer {
    match write {
        StatusWrite::Now(lb) | StatusWrite::Paced(lb) => *lb,
        StatusWrite::None => panic!("nothing is written"),
    }
}

#[test]
fn rec_5_details_are_in_the_write_that_happens_anyway() {
    let wanted = decide(&lb(&json!(null)), &detailed("172.20.1.4"), T1);
    let StatusWrite::Now(wanted) = wanted else {
        panic!("{wanted:?}")
    };
    let types: Vec<String> = conditions(&wanted)
        .iter()
        .map(|c| c.type_.clone())
        .collect();
    assert_eq!(types, ["Ready", "AddressAllocated", "Announced"]);
    let again = decide(&wanted, &detailed("172.20.1.4"), T2);
    assert_eq!(again, StatusWrite::None);
}

#[test]
fn rec_5_a_difference_in_details_alone_is_paced() {
    let first = written(decide(&lb(&json!(null)), &detailed("172.20.1.4"), T1));
    let later = decide(&first, &detailed("172.20.1.5"), T2);
    assert!(matches!(later, StatusWrite::Paced(_)), "{later:?}");
    let later = written(later);
    assert_eq!(ready(&later), ready(&first));
    assert_eq!(later.status.unwrap().address, first.status.unwrap().address);
}

#[test]
fn ops_2_an_upgrade_writes_no_status_for_the_details() {
    let old = apply(&lb(&json!(null)), &example(), T1);
    let update = detailed("172.20.1.4");
    assert_eq!(decide(&old, &update, T2), StatusWrite::None);
    // They come with the next write.
    let update = StatusUpdate {
        readiness: Readiness::not(NO_BACKEND, "nothing matches"),
        ..update
    };
    let StatusWrite::Now(now) = decide(&old, &update, T2) else {
        panic!("the readiness has changed")
    };
    assert_eq!(conditions(&now).len(), 3);
    // Or when a verdict changes.
    let update = StatusUpdate {
        verdicts_changed: true,
        ..detailed("172.20.1.4")
    };
    assert!(matches!(decide(&old, &update, T2), StatusWrite::Paced(_)));
    assert_eq!(
        decide(
            &old,
            &StatusUpdate {
                verdicts_changed: true,
                ..example()
            },
            T2
        ),
        StatusWrite::None
    );
}

#[test]
fn fin_2_a_legacy_finalizer_is_taken_off_at_once() {
    let mut old = written(decide(&lb(&json!(null)), &detailed("172.20.1.4"), T1));
    old.metadata.finalizers = Some(vec![keys::LEGACY_FINALIZERS[0].to_owned()]);
    let write = decide(&old, &detailed("172.20.1.4"), T2);
    assert!(matches!(write, StatusWrite::Now(_)), "{write:?}");
}
