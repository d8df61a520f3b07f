use super::*;
use crate::ledger::Settings;
use crate::types::{Owner, RecordSpec};
use harvester_lb_object::Version;

fn ledger() -> Ledger {
    let mut ledger = Ledger::new(Settings::default());
    for (addr, name, phase) in [
        ("172.20.1.5", "cluster1-lb-3", Phase::Bound),
        ("172.20.1.6", "cluster1-lb-3", Phase::Bound),
        ("172.20.1.7", "gone", Phase::Released),
        ("fd10:5::9", "six", Phase::Bound),
    ] {
        let spec = RecordSpec {
            addr: addr.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new("default", name, "u1"),
            phase,
            bound_at: Micros(1),
            released_at: None,
            group: None,
        };
        ledger.observe(Record {
            spec,
            version: Version(7),
        });
    }
    ledger
}

fn released(value: &str) -> Option<String> {
    match verdict(&ledger(), "p", value, |_| false, Micros(9)) {
        Verdict::Release(record) => {
            assert_eq!(
                (record.spec.phase, record.version),
                (Phase::Released, Version(7))
            );
            assert_eq!(record.spec.released_at, Some(Micros(9)));
            Some(record.spec.addr.to_string())
        }
        _ => None,
    }
}

fn refusal(value: &str, alive: bool) -> Refusal {
    match verdict(&ledger(), "p", value, |_| alive, Micros(9)) {
        Verdict::Refused(refusal) => refusal,
        other => panic!("{other:?}"),
    }
}

#[test]
fn manual_release_of_exactly_this_address() {
    for value in [
        "172.20.1.5: default/cluster1-lb-3",
        "  172.20.1.5 :default/cluster1-lb-3\n",
        "172.20.1.5:default/cluster1-lb-3",
    ] {
        assert_eq!(released(value).as_deref(), Some("172.20.1.5"));
    }
    assert_eq!(
        released("fd10:5::9: default/six").as_deref(),
        Some("fd10:5::9")
    );
    assert_eq!(
        released("fd10:5:0:0:0:0:0:9:default/six").as_deref(),
        Some("fd10:5::9")
    );
}

#[test]
fn manual_release_empty_value_stays() {
    for value in ["", "  "] {
        assert_eq!(
            verdict(&ledger(), "p", value, |_| false, Micros(9)),
            Verdict::Nothing
        );
    }
}

#[test]
fn manual_release_refused() {
    for value in [
        "172.20.1.5",
        "172.20.1.5: ",
        "172.20.1.5: default",
        "172.20.1.5: default/a/b",
        "172.20.1: default/cluster1-lb-3",
        ": default/cluster1-lb-3",
        "172.20.1.5: /x",
        "172.20.1.5 default/cluster1-lb-3",
    ] {
        assert_eq!(refusal(value, false), Refusal::Unreadable, "{value}");
    }
    let id = OwnerId::new("default", "cluster1-lb-3");
    for addr in ["172.20.1.8", "172.20.1.7"] {
        let refused = refusal(&format!("{addr}: default/gone"), false);
        assert_eq!(refused, Refusal::NotAllocated(addr.parse().unwrap()));
    }
    assert_eq!(
        refusal("172.20.1.5: default/six", false),
        Refusal::OtherOwner(id.clone())
    );
    assert_eq!(
        refusal("172.20.1.5: default/cluster1-lb-3", true),
        Refusal::Alive(id.clone())
    );
    let mut shown = ledger();
    shown.set_shown(&id, &["172.20.1.5".parse().unwrap()]);
    let value = "172.20.1.5: default/cluster1-lb-3";
    let outcome = verdict(&shown, "p", value, |_| false, Micros(9));
    assert_eq!(outcome, Verdict::Refused(Refusal::Shown(id)));
    let elsewhere = verdict(&ledger(), "q", value, |_| false, Micros(9));
    assert!(matches!(
        elsewhere,
        Verdict::Refused(Refusal::NotAllocated(_))
    ));
}
