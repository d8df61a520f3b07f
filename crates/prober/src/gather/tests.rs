use super::*;

const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

fn names(groups: &[GroupId]) -> Vec<&str> {
    groups.iter().map(GroupId::as_str).collect()
}

#[test]
fn hc_5_changes_of_a_group_are_one_delivery_200_ms_after_the_first() {
    let mut gather = Gather::default();
    for at in [0, 50, 100, 199] {
        gather.mark(&"a".into(), ms(at));
    }
    gather.mark(&"b".into(), ms(150));
    assert_eq!(gather.next_deadline(), Some(ms(200)));
    assert!(gather.take(ms(199)).is_empty());
    assert_eq!(names(&gather.take(ms(200))), ["a"]);
    assert_eq!(gather.next_deadline(), Some(ms(350)));
    gather.mark(&"a".into(), ms(210));
    assert_eq!(names(&gather.take(ms(1000))), ["b", "a"]);
    assert_eq!(gather.next_deadline(), None);
}

#[test]
fn hc_5_never_more_entries_than_groups_and_none_of_a_removed_one() {
    let mut gather = Gather::default();
    for at in 0..1000 {
        gather.mark(&"a".into(), ms(at));
        gather.mark(&"b".into(), ms(at));
        gather.forget("b");
    }
    assert_eq!((gather.order.len(), gather.ready_at.len()), (1, 1));
    gather.forget("unknown");
    assert_eq!(names(&gather.take(ms(5000))), ["a"]);
    assert!(gather.take(ms(9000)).is_empty());
}
