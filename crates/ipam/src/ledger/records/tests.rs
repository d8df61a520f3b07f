use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn entry(last: u8, name: u8, phase: Phase) -> RecordEntry {
    let owner = Owner::new("ns", &format!("lb{name}"), "u");
    RecordEntry::new([10, 0, 0, last].into(), owner, 0, phase)
}

#[test]
fn a_record_stays_small() {
    assert!(size_of::<Option<RecordEntry>>() <= 96);
}

#[test]
fn deletions_are_remembered_within_a_bound() {
    let mut records = Records::default();
    let addr = [10, 0, 0, 1].into();
    records.tombstone(addr, Version(7));
    assert!(!records.is_news(addr, Version(7)));
    assert!(records.is_news(addr, Version(8)));
    for n in 0..=u32::try_from(DELETIONS).unwrap() {
        records.tombstone(
            std::net::Ipv4Addr::from_bits(n).into(),
            Version(100 + u64::from(n)),
        );
    }
    assert_eq!(records.deleted.len(), DELETIONS);
    assert_eq!(records.deleted_order.len(), DELETIONS);
    assert!(records.is_news(addr, Version(1)));
}

proptest! {
    #[test]
    fn behaves_as_a_plain_map(ops in prop::collection::vec((0u8..12, 0u8..4, 0u8..3), 0..80)) {
        let mut records = Records::default();
        let mut naive: BTreeMap<IpAddr, (OwnerId, Phase)> = BTreeMap::new();
        for (last, name, op) in ops {
            let phase = if op == 0 { Phase::Bound } else { Phase::Released };
            let entry = entry(last, name, phase);
            if op == 2 {
                let gone = records.remove(entry.addr).map(|old| old.owner.id);
                prop_assert_eq!(gone, naive.remove(&entry.addr).map(|(id, _)| id));
            } else {
                naive.insert(entry.addr, (entry.owner.id.clone(), phase));
                records.remove(entry.addr);
                records.insert(entry);
            }
        }
        prop_assert_eq!(records.len(), naive.len());
        let bound = naive.values().filter(|(_, phase)| *phase == Phase::Bound).count();
        prop_assert_eq!(records.bound(), bound);
        for name in 0..4 {
            let id = OwnerId::new("ns", &format!("lb{name}"));
            let mut found: Vec<_> = records.of(&id).map(|entry| entry.addr).collect();
            found.sort();
            let wanted: Vec<_> =
                naive.iter().filter(|(_, (owner, _))| *owner == id).map(|(a, _)| *a).collect();
            prop_assert_eq!(found, wanted);
        }
        let all: Vec<_> =
            records.within([10, 0, 0, 3].into(), [10, 0, 0, 8].into()).map(|s| s.addr).collect();
        let wanted: Vec<_> = naive
            .range(IpAddr::from([10, 0, 0, 3])..=IpAddr::from([10, 0, 0, 8]))
            .map(|(a, _)| *a)
            .collect();
        prop_assert_eq!(all, wanted);
    }
}
