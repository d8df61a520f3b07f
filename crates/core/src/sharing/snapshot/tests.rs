use harvester_lb_api::{LoadBalancer, keys};
use harvester_lb_ipam::{Micros, Owner, Phase, RecordSpec};
use harvester_lb_object::Version;
use serde_json::{Value, json};

use super::*;
use crate::sharing::telling::Shared;
use crate::status;

/// Annotations that name this primary.
pub(in crate::sharing) fn annotations(primary: Option<&str>) -> Value {
    match primary {
        Some(name) => json!({ keys::ANNOTATION_PRIMARY: name }),
        None => json!({}),
    }
}

pub(in crate::sharing) fn object<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

pub(in crate::sharing) fn record(addr: &str, owner: &str, group: Option<&str>) -> Record {
    Record {
        spec: RecordSpec {
            addr: addr.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new("ns", owner, &format!("u-{owner}")),
            phase: Phase::Bound,
            bound_at: Micros(1),
            released_at: None,
            group: group.map(Into::into),
        },
        version: Version(1),
    }
}

fn service(ip: &str) -> Service {
    object(json!({"metadata": {"name": "web"}, "spec": {"loadBalancerIP": ip}}))
}

fn lb(name: &str, primary: Option<&str>, ip: &str) -> Lb {
    Lb::valid(object(json!({
        "metadata": {
            "namespace": "ns", "name": name, "uid": format!("u-{name}"),
            "annotations": annotations(primary),
        },
        "spec": {"workloadType": "cluster"},
        "status": {"allocatedAddress": {"ip": ip}},
    })))
}

fn party(lb: &Lb) -> Party<'_> {
    Party {
        lb,
        slice: None,
        secondary: None,
        is_left_alone: false,
        names_others: false,
    }
}

#[test]
fn rel_4_of_several_records_that_counts_which_is_served() {
    let key = Key::new("ns", "web");
    let records = [
        record("10.0.0.3", "web", None),
        record("10.0.0.2", "web", None),
        record("10.0.0.4", "web", None),
    ];
    let web = lb("web", None, "10.0.0.3");
    let main = |service: Option<&Service>, parties: &[&Lb]| {
        let parties = parties.iter().map(|lb| party(lb)).collect();
        let snapshot = Snapshot::of(&key, parties, service, &records);
        snapshot.record.unwrap().spec.addr.to_string()
    };
    assert_eq!(main(Some(&service("10.0.0.4")), &[&web]), "10.0.0.4");
    assert_eq!(main(Some(&service("10.0.0.9")), &[&web]), "10.0.0.3");
    assert_eq!(main(None, &[]), "10.0.0.2");
    // The primary has moved, and is gone with the Service before the other one was told.
    let b = lb("b", Some("web"), "10.0.0.2");
    assert_eq!(main(None, &[&b]), "10.0.0.2");
    let records = [
        record("10.0.0.2", "web", None),
        record("10.0.0.3", "b", Some("web")),
    ];
    let snapshot = Snapshot::of(&key, vec![party(&b)], None, &records);
    assert_eq!(snapshot.record, Some(&records[1]));
}

#[test]
fn shr_5_the_holder_and_the_others() {
    let key = Key::new("ns", "web");
    let (b, c) = (
        lb("b", Some("web"), "10.0.0.2"),
        lb("c", Some("web"), "10.0.0.2"),
    );
    let records = [record("10.0.0.2", "c", Some("web"))];
    let parties = vec![party(&b), party(&c)];
    let snapshot = Snapshot::of(&key, parties, None, &records);
    let holder = snapshot.holder().and_then(|meta| meta.name.as_deref());
    assert_eq!(holder, Some("c"), "the owner of the record stays it");
    assert_eq!(snapshot.secondaries().collect::<Vec<_>>(), ["b", "c"]);
    // Of the one that is left alone nothing is known.
    let left = Party {
        is_left_alone: true,
        ..party(&b)
    };
    let snapshot = Snapshot::of(&key, vec![left, party(&c)], None, &records);
    assert!(snapshot.parties().any(|(_, ports)| ports.is_none()));
    // It shares the address and stays what it is.
    assert_eq!(snapshot.secondaries().count(), 2);
    let asks = lb("d", Some("web"), "");
    let left = Party {
        is_left_alone: true,
        ..party(&asks)
    };
    let snapshot = Snapshot::of(&key, vec![left, party(&c)], None, &records);
    assert_eq!(snapshot.secondaries().collect::<Vec<_>>(), ["c"]);
}

/// Its status says that it shares the address, and the Service does not have its ports yet.
#[test]
fn shr_5_who_is_told_remains_when_the_primary_goes() {
    const FOREIGN_SERVICE: &str = "NameConflict of the group";
    let key = Key::new("ns", "web");
    let told = Shared::Secondary("web".to_owned()).condition("10.0.0.2");
    let b = |address: &str, spec: Value, shared: &str, ready: &str| {
        let (ready, message) = match ready {
            FOREIGN_SERVICE => (status::NAME_CONFLICT, telling::group_name_taken("web")),
            other => (other, String::new()),
        };
        Lb::valid(object(json!({
            "metadata": {
                "namespace": "ns", "name": "b", "uid": "u-b", "annotations": annotations(Some("web")),
            },
            "spec": spec,
            "status": {"allocatedAddress": {"ip": address}, "conditions": [
                {"type": "AddressShared", "status": shared, "reason": told.reason, "message": told.message},
                {"type": "Ready", "status": "False", "reason": ready, "message": message},
            ]},
        })))
    };
    let valid = || json!({"listeners": [{"name": "a", "port": 81, "backendPort": 81}], "backendServerSelector": {"a": ["b"]}});
    // The primary may have moved just before it went (REL-4).
    let (at, moved) = (
        record("10.0.0.2", "web", None),
        record("10.0.0.3", "web", None),
    );
    let waits = status::WAITING_FOR_PRIMARY;
    for (what, lb, records, remains) in [
        (
            "",
            b("10.0.0.2", valid(), "True", waits),
            vec![at.clone()],
            true,
        ),
        (
            "moved",
            b("10.0.0.2", valid(), "True", waits),
            vec![moved.clone(), at.clone()],
            true,
        ),
        (
            "another",
            b("10.0.0.2", valid(), "True", waits),
            vec![moved],
            false,
        ),
        (
            "denied",
            b("10.0.0.2", valid(), "False", waits),
            vec![at.clone()],
            false,
        ),
        (
            "refused",
            b("10.0.0.2", json!({}), "True", waits),
            vec![at.clone()],
            false,
        ),
        (
            "somebody else has the name of its EndpointSlice",
            b("10.0.0.2", valid(), "True", status::NAME_CONFLICT),
            vec![at.clone()],
            false,
        ),
        (
            "somebody else has the name of the Service",
            b("10.0.0.2", valid(), "True", FOREIGN_SERVICE),
            vec![at],
            true,
        ),
    ] {
        let of_web = service("10.0.0.3");
        for service in [Some(&of_web), None] {
            let snapshot = Snapshot::of(&key, vec![party(&lb)], service, &records);
            let holder = snapshot.holder().and_then(|meta| meta.name.as_deref());
            assert_eq!(holder.is_some(), remains, "{what}: {:?}", snapshot.roles);
        }
    }
}

#[test]
fn alc_1_what_an_earlier_primary_has_left_is_nobodys_address_before_the_present_one_has_it() {
    let key = Key::new("ns", "web");
    let of = |owner: &str| {
        let mut record = record("10.0.0.2", "web", None);
        record.spec.owner = Owner::new("ns", "web", owner);
        [record]
    };
    let (earlier, present) = (of("u-0"), of("u-web"));
    let handed_over = [record("10.0.0.2", "b", Some("web"))];
    let (web, restored) = (lb("web", None, ""), lb("web", None, "10.0.0.2"));
    let (asks, shares) = (
        lb("b", Some("web"), "10.0.0.9"),
        lb("b", Some("web"), "10.0.0.2"),
    );
    let has = |parties: &[&Lb], records: &[Record]| {
        let parties = parties.iter().map(|lb| party(lb)).collect();
        let snapshot = Snapshot::of(&key, parties, None, records);
        let has = snapshot.record.is_some();
        // Nor does anybody share one, or is to own it.
        assert_eq!((snapshot.is_left, snapshot.holder().is_some()), (!has, has));
        assert!(has || snapshot.secondaries().next().is_none());
        has
    };
    assert!(has(&[&web, &asks], &present));
    assert!(!has(&[&web, &asks], &earlier));
    assert!(has(&[&restored, &asks], &earlier));
    // Somebody shares it: the name is taken (SHR-6).
    assert!(has(&[&web, &shares], &earlier));
    assert!(has(&[&web, &shares], &handed_over));
    // There is no primary.
    assert!(has(&[&shares], &earlier));
}

#[test]
fn ipa_7_of_cluster_type_the_status_tells_whose_address_lost_its_record() {
    let key = Key::new("ns", "web");
    let told = |name: &str, shared: &Shared| {
        let Lb::Valid(lb) = lb(name, Some("web"), "10.0.0.2") else {
            unreachable!("it is valid");
        };
        let told = shared.condition("10.0.0.2");
        let mut lb = LoadBalancer::clone(&lb);
        lb.status.as_mut().unwrap().conditions = Some(vec![object(json!({
            "type": told.type_, "status": "True", "reason": told.reason, "message": told.message,
        }))]);
        Lb::valid(lb)
    };
    let (holder, other) = (
        told("b", &Shared::Holder("web".to_owned())),
        told("c", &Shared::Secondary("web".to_owned())),
    );
    let elsewhere = told("d", &Shared::Secondary("api".to_owned()));
    let (primary, later) = (lb("web", None, "10.0.0.2"), lb("web", None, ""));
    let roles = |parties: &[&Lb]| {
        let parties = parties.iter().map(|lb| party(lb)).collect();
        let roles = Snapshot::of(&key, parties, None, &[]).roles;
        let text = |role: &Role| match role {
            Role::Member { is_holder: true } => "holds",
            Role::Member { .. } => "shares",
            Role::NameTaken => "taken",
            Role::Refused(_) => "refused",
            Role::PortConflict(_) => "conflict",
        };
        let all = roles
            .iter()
            .map(|(name, role)| format!("{name} {}", text(role)));
        all.collect::<Vec<_>>().join(", ")
    };
    // The primary is gone, and that of another group does not count.
    assert_eq!(
        roles(&[&holder, &other, &elsewhere]),
        "b holds, c shares, d shares"
    );
    assert_eq!(roles(&[&elsewhere]), "d refused");
    // The primary itself, and a later one of its name.
    assert_eq!(
        roles(&[&primary, &holder, &other]),
        "b shares, c shares, web holds"
    );
    assert_eq!(
        roles(&[&later, &holder, &other]),
        "b holds, c shares, web taken"
    );
}

#[test]
fn shr_1_whose_address_has_another_record_by_now_shares_it_no_longer() {
    // The condition still says that it was the group's; the group has ended, and the address was allocated to the load balancer itself.
    let key = Key::new("ns", "web");
    let told = Shared::Secondary("web".to_owned()).condition("10.0.0.2");
    let b = Lb::valid(object(json!({
        "metadata": {"namespace": "ns", "name": "b", "uid": "u-b", "annotations": annotations(Some("web"))},
        "spec": {"workloadType": "cluster"},
        "status": {
            "allocatedAddress": {"ip": "10.0.0.2"},
            "conditions": [{"type": "AddressShared", "status": "True", "reason": told.reason, "message": told.message}],
        },
    })));
    let role = |names_others: bool| {
        let party = Party {
            names_others,
            ..party(&b)
        };
        let mut snapshot = Snapshot::of(&key, vec![party], None, &[]);
        snapshot.roles.remove("b").unwrap()
    };
    assert!(matches!(role(false), Role::Member { .. }), "IPA-7");
    assert_eq!(
        telling::refusal("web", &role(true)).unwrap().0,
        status::PRIMARY_NOT_FOUND
    );
}
