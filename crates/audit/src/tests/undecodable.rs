//! An object that cannot be decoded is named, and nothing is concluded from its absence.

use super::*;
use crate::kinds;

fn undecodable(kind: &'static str, namespace: &str, name: &str) -> UndecodableObject {
    UndecodableObject {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        error: "spec: invalid type".to_owned(),
    }
}

/// An object, and how it comes to be that it cannot be decoded.
type Case = (UndecodableObject, fn(&mut Snapshot));

#[test]
fn an_undecodable_object_is_named_and_counts_as_existing() {
    let cases: [Case; 8] = [
        (undecodable("LoadBalancer", "n", "a"), |all| {
            all.load_balancers.remove(0);
        }),
        (undecodable("LoadBalancer", "n", "b"), |all| {
            all.load_balancers.remove(1);
        }),
        (undecodable("IPPool", "", POOL), |all| all.pools.clear()),
        // Its address is blocked, and the map no longer has it.
        (undecodable("IPAllocation", "", "10.0.0.2"), |all| {
            all.records.remove(0);
            all.pools[0] = pool(3, &[("10.0.0.3", "n/b")], &[("10.0.0.4", "n/old")]);
            status(all).available = 1;
        }),
        (undecodable("Service", "n", "b"), |all| all.services.clear()),
        (undecodable("EndpointSlice", "n", "b"), |all| {
            all.slices.clear();
        }),
        (undecodable("VirtualMachineInstance", "n", "vm"), |all| {
            all.cluster.as_mut().unwrap().machines.clear();
        }),
        (undecodable("Node", "", "node1"), |_| {}),
    ];
    for (object, remove) in cases {
        let mut all = well();
        remove(&mut all);
        let name = format!("{} {}", object.kind, object.name);
        all.undecodable.push(object);
        let findings = audit(&all).findings;
        let kinds: Vec<_> = findings.iter().map(|finding| finding.kind).collect();
        assert_eq!(kinds, [&kinds::OBJECT_UNDECODABLE], "{name}: {findings:#?}");
        assert_eq!(findings[0].text, "spec: invalid type");
    }
}

#[test]
fn ipa_8_records_of_later_kinds_are_none() {
    let mut all = well();
    let mut lease = record("10.0.0.9", "Bound", "gone");
    lease.metadata.name = Some("dhcp-0a1b".into());
    all.records.push(lease);
    all.undecodable
        .push(undecodable("IPAllocation", "", "dhcp-77"));
    assert_eq!(audit(&all).findings, []);
}

/// The name of an IPv6 address has eight groups.
#[test]
fn section_6_5_names_of_ipv6_addresses() {
    let mut all = well();
    let mut record = record("fd10:5::9", "Released", "old");
    record.metadata.name = Some("fd10-0005-0000-0000-0000-0000-0000-0009".into());
    record.spec.pool = "q".into();
    all.records.push(record.clone());
    let rules = |all: &Snapshot| -> Vec<&'static str> {
        let findings = audit(all).findings;
        findings.iter().map(|finding| finding.rule).collect()
    };
    assert_eq!(
        rules(&all),
        ["POOL-1"],
        "it is a record of IPPool q, which does not exist"
    );
    all.records[3].spec.address = "fd10:5::8".into();
    assert_eq!(rules(&all), ["section 6.5"]);
    all.records[3].metadata.name = Some("fd10-5-0-0-0-0-0-9".into());
    assert_eq!(
        rules(&all),
        [""; 0],
        "a name of another form is of a later kind"
    );
}
