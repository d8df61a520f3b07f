use proptest::prelude::*;

use super::*;
use crate::select::{Requirement, Workload};
use crate::types::Owner;

/// Every third load balancer is of VM type.
fn request(name: u8, created: i64) -> Request {
    let workload = if name.is_multiple_of(3) {
        Workload::Vm
    } else {
        Workload::Cluster
    };
    Request {
        workload,
        owner: Owner::new("ns", &format!("{name}"), "u"),
        created: Micros(created),
        pool: None,
        requirement: Requirement::default(),
        status: None,
        requested: None,
    }
}

fn waiter(request: &Request, is_woken: bool) -> Waiter {
    Waiter {
        request: request.clone(),
        explanation_digest: None,
        is_behind: false,
        is_woken,
    }
}

#[derive(Clone, Debug)]
enum Step {
    Comes(u8, bool),
    Goes(u8),
    Free(u8, u8),
    Named(u8),
    Due,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..12, any::<bool>()).prop_map(|(name, is_woken)| Step::Comes(name, is_woken)),
        2 => (0u8..12).prop_map(Step::Goes),
        3 => (0u8..8, 0u8..8).prop_map(|(v4, v6)| Step::Free(v4, v6)),
        1 => (0u8..12).prop_map(Step::Named),
        2 => Just(Step::Due),
    ]
}

proptest! {
    /// Room is as counted, after any insertions, removals and changes of the free addresses.
    #[test]
    fn alc_5_room_is_what_a_count_says(steps in prop::collection::vec(step(), 1..60)) {
        let mut queue = Queue::default();
        // Ages are not in the order of the names.
        let of = |name: u8| request(name, i64::from(name.wrapping_mul(7) % 12 / 2));
        let mut naive: BTreeMap<Age, (Workload, bool)> = BTreeMap::new();
        let (mut v4, mut v6) = (0usize, 0usize);
        let room = |naive: &BTreeMap<Age, (Workload, bool)>, age: &Age, workload, v4, v6| {
            let guests = naive.range(..age).filter(|(_, (other, _))| *other == Workload::Cluster);
            Room {
                v4: v4 > naive.range(..age).count(),
                v6: workload == Workload::Cluster && v6 > guests.count(),
            }
        };
        for step in steps {
            match step {
                Step::Comes(name, is_woken) => {
                    let age = Age::of(&of(name));
                    queue.insert(&age, waiter(&of(name), is_woken));
                    naive.insert(age, (of(name).workload, is_woken));
                }
                Step::Goes(name) => {
                    let age = Age::of(&of(name));
                    prop_assert_eq!(queue.remove(&age).is_some(), naive.remove(&age).is_some());
                }
                Step::Free(of_v4, of_v6) => {
                    (v4, v6) = (of_v4.into(), of_v6.into());
                    queue.set_free(v4 as u128, v6 as u128);
                }
                Step::Named(name) => {
                    let age = Age::of(&of(name));
                    queue.mark_woken(&age);
                    naive.entry(age).and_modify(|(_, is_woken)| *is_woken = true);
                }
                Step::Due => {
                    let due: Vec<Age> = naive
                        .iter()
                        .filter(|(age, (workload, is_woken))| {
                            !is_woken && room(&naive, age, *workload, v4, v6).is_any()
                        })
                        .map(|(age, _)| age.clone())
                        .collect();
                    prop_assert_eq!(queue.take_due(), due.clone());
                    for age in due {
                        naive.entry(age).and_modify(|(_, is_woken)| *is_woken = true);
                    }
                }
            }
            prop_assert_eq!(queue.len(), naive.len());
            for name in 0..12 {
                let age = Age::of(&of(name));
                for workload in [Workload::Vm, Workload::Cluster] {
                    let expected = room(&naive, &age, workload, v4, v6);
                    prop_assert_eq!(queue.room(&age, workload), expected, "{}", name);
                }
            }
        }
    }
}
