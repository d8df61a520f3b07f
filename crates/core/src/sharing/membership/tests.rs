use super::*;

fn lb(name: &'static str) -> Candidate<'static> {
    Candidate {
        name,
        uid: name,
        is_readable: true,
        created: Micros(1),
        workload: WorkloadType::Vm,
        ipam: Ipam::Pool,
        pool: None,
        requests_address: false,
        primary: None,
        secondary: None,
        names_address: false,
    }
}

fn held_by(name: &'static str, uid: &'static str) -> HeldBy<'static> {
    HeldBy { name, uid }
}

/// The group of `primary`, with an address of the pool p.
fn group() -> Group<'static> {
    Group {
        primary: Some(lb("primary")),
        members: Vec::new(),
        pool: Some("p"),
        is_ipv6: false,
    }
}

/// The answer to `b`, which names `primary`.
fn told(change: impl FnOnce(&mut Candidate<'static>, &mut Group<'static>)) -> String {
    let (mut b, mut group) = (lb("b"), group());
    b.primary = Some("primary");
    change(&mut b, &mut group);
    let primary = b.primary.unwrap();
    match join(&b, primary, &group) {
        Ok(()) => "joins".to_owned(),
        Err(why) => {
            let text = why.to_string();
            let own = format!("annotation {KEY} is {primary:?}");
            let Some(rest) = text.strip_prefix(&own) else {
                panic!("{text}")
            };
            rest.to_owned()
        }
    }
}

#[test]
fn shr_1_who_is_accepted() {
    assert_eq!(told(|_, _| {}), "joins");
    assert_eq!(told(|b, _| b.pool = Some("p")), "joins", "the group's pool");
    let without_address = told(|b, group| {
        b.pool = Some("q");
        group.pool = None;
    });
    assert_eq!(
        without_address, "joins",
        "the primary has no address yet, and names no pool"
    );
    let of_cluster = told(|b, group| {
        group.is_ipv6 = true;
        b.workload = WorkloadType::Cluster;
        group.primary.as_mut().unwrap().workload = WorkloadType::Cluster;
    });
    assert_eq!(of_cluster, "joins", "the guest serves an IPv6 address");
    let orphaned = told(|_, group| {
        group.primary = None;
        group.members = vec![lb("c")];
    });
    assert_eq!(orphaned, "joins", "the primary is gone, the group is not");
    let vain = told(|_, group| {
        let primary = group.primary.as_mut().unwrap();
        (primary.primary, primary.secondary) = (Some("other"), Some("c"));
    });
    assert_eq!(
        vain, "joins",
        "a primary that others share with stays one (SHR-7)"
    );
    let broken = told(|_, group| group.primary.as_mut().unwrap().primary = Some("a/b"));
    assert_eq!(broken, "joins", "a primary whose own request is no request");
}

#[test]
fn shr_1_who_is_refused() {
    for (what, found, expected) in [
        (
            "itself",
            told(|b, _| b.primary = Some("b")),
            ", the load balancer itself",
        ),
        (
            "a namespace",
            told(|b, _| b.primary = Some("n/primary")),
            ": it must be the name",
        ),
        (
            "no name",
            told(|b, _| b.primary = Some("")),
            ": it must be the name",
        ),
        (
            "a request",
            told(|b, _| b.requests_address = true),
            ", and loadbalancer.harvesterhci.io/requested-address is set too",
        ),
        (
            "its dhcp",
            told(|b, _| b.ipam = Ipam::Dhcp),
            ", and spec.ipam is dhcp",
        ),
        (
            "the primary's dhcp",
            told(|_, group| group.primary.as_mut().unwrap().ipam = Ipam::Dhcp),
            ", and spec.ipam of that load balancer is dhcp",
        ),
        (
            "a chain",
            told(|_, group| group.primary.as_mut().unwrap().primary = Some("other")),
            ", which shares the address of \"other\" itself",
        ),
        (
            "a circle",
            told(|_, group| group.primary.as_mut().unwrap().primary = Some("b")),
            ", which names this load balancer in its own: remove",
        ),
        (
            "it has secondaries",
            told(|b, _| b.secondary = Some("c")),
            ", but c shares the address of this load balancer, which goes on serving",
        ),
        (
            "another type",
            told(|b, _| b.workload = WorkloadType::Cluster),
            ", a load balancer of workload type vm, and this one is of type cluster",
        ),
        (
            "another type than that of the members",
            told(|b, group| {
                b.workload = WorkloadType::Cluster;
                group.primary = None;
                group.members = vec![lb("c")];
            }),
            ", a load balancer of workload type vm",
        ),
        (
            "an address without endpoints of its type",
            told(|_, group| group.is_ipv6 = true),
            ", whose address is an IPv6 address",
        ),
        (
            "another pool",
            told(|b, _| b.pool = Some("q")),
            ", whose address is of pool p, and spec.ipPool is q",
        ),
        (
            "another pool than the primary names",
            told(|b, group| {
                b.pool = Some("q");
                group.pool = None;
                group.primary.as_mut().unwrap().pool = Some("p");
            }),
            ", whose address is of pool p",
        ),
        (
            "nobody",
            told(|_, group| group.primary = None),
            ": there is no such load balancer",
        ),
    ] {
        assert!(found.starts_with(expected), "{what}: {found}");
    }
}

#[test]
fn shr_1_what_is_wrong_with_the_request_itself() {
    let fault = |value: Option<&str>, spec: serde_json::Value| {
        let mut object =
            serde_json::json!({"metadata": {"name": "b", "annotations": {}}, "spec": spec});
        if let Some(value) = value {
            object["metadata"]["annotations"][KEY] = value.into();
        }
        let lb: LoadBalancer = serde_json::from_value(object).unwrap();
        let fault = fault_of(&lb);
        assert!(fault.as_ref().is_none_or(NotAMember::is_final));
        fault.map(|why| (why.reason(), why.value().to_owned()))
    };
    let spec = || serde_json::json!({});
    assert_eq!(fault(None, spec()), None);
    assert_eq!(fault(Some("web"), spec()), None);
    // No object can have these names.
    for value in [
        "b",
        "",
        "ns/web",
        " ",
        " web",
        "Web",
        "web.",
        "-web",
        "\u{fc}ber",
        "a..b",
    ] {
        let expected = Some((INVALID_PRIMARY, value.to_owned()));
        assert_eq!(fault(Some(value), spec()), expected);
    }
    assert_eq!(fault(Some("web-1.example"), spec()), None);
    assert_eq!(fault(Some(&"a".repeat(253)), spec()), None);
    assert!(fault(Some(&"a".repeat(254)), spec()).is_some());
    let dhcp = serde_json::json!({"ipam": "dhcp"});
    assert!(fault(None, dhcp.clone()).is_none());
    assert!(fault(Some("web"), dhcp).is_some());
    // Any text may be in an annotation; the message says what is wrong all the same.
    let (_, told) = fault(Some(&"/é".repeat(100_000)), spec()).unwrap();
    assert_eq!(told, "/é".repeat(32));
}

#[test]
fn shr_1_admission_denies_what_only_an_edit_cures() {
    let value = || "x".to_owned();
    for (fault, is_final) in [
        (NotAMember::Itself(value()), true),
        (NotAMember::NoName(value()), true),
        (NotAMember::RequestsAddress(value()), true),
        (NotAMember::Dhcp(value()), true),
        (NotAMember::PrimaryUsesDhcp(value()), false),
        (NotAMember::NotFound(value()), false),
    ] {
        assert_eq!(fault.is_final(), is_final, "{fault}");
    }
}

#[test]
fn shr_5_the_holder_is_the_primary_then_the_oldest_member() {
    let at = |name, created| Candidate {
        created: Micros(created),
        ..lb(name)
    };
    let (primary, others) = (at("primary", 9), [at("d", 2), at("c", 1), at("b", 1)]);
    let mut members: Vec<_> = others.iter().map(|it| (it, false)).collect();
    let name = |members: &[(&Candidate<'static>, bool)]| {
        holder("primary", members, None).map(|it| it.name)
    };
    assert_eq!(name(&members), Some("b"));
    // Those have yet to join.
    let has_it = at("e", 5);
    members.push((&has_it, true));
    assert_eq!(name(&members), Some("e"));
    members.push((&primary, false));
    assert_eq!(name(&members), Some("primary"));
    assert_eq!(name(&[]), None);
}

#[test]
fn shr_5_the_record_stays_with_its_owner_as_long_as_that_is_a_member() {
    let of = |name: &'static str, created| Candidate {
        created: Micros(created),
        uid: name,
        ..lb(name)
    };
    let (older, owner) = (of("a", 1), of("b", 2));
    let unreadable = Candidate {
        is_readable: false,
        ..owner.clone()
    };
    let restored = Candidate {
        uid: "b-2",
        names_address: true,
        ..owner.clone()
    };
    let primary = of("primary", 9);
    let held = Some(held_by("b", "b"));
    let name = |members: &[&Candidate<'static>]| {
        let members: Vec<_> = members.iter().map(|it| (*it, true)).collect();
        holder("primary", &members, held).map(|it| it.name)
    };
    for member in [&owner, &unreadable, &restored] {
        assert_eq!(name(&[&older, member]), Some("b"), "{member:?}");
    }
    assert_eq!(name(&[&older, &owner, &primary]), Some("primary"));
    // It has gone, or is another one of its name.
    let later = Candidate {
        uid: "b-2",
        ..owner.clone()
    };
    assert_eq!(name(&[&older]), Some("a"));
    assert_eq!(name(&[&older, &later]), Some("a"));
}

#[test]
fn shr_6_one_that_is_made_anew_does_not_take_the_address_of_those_who_share_it() {
    let mut group = group();
    group.members = vec![lb("c")];
    let is_taken = |group: &Group<'static>, held_by| {
        let primary = group.primary.as_ref().unwrap();
        is_name_taken(primary, group, held_by)
    };
    // Handed over already, or its deletion and creation are seen together.
    let (earlier, handed_over) = (held_by("primary", "primary-0"), held_by("c", "c"));
    assert!(is_taken(&group, handed_over) && is_taken(&group, earlier));
    // Restored from a backup.
    group.primary.as_mut().unwrap().names_address = true;
    assert!(!is_taken(&group, earlier));
    assert!(is_taken(&group, handed_over));
    // The group has ended.
    group.primary.as_mut().unwrap().names_address = false;
    group.members.clear();
    assert!(!is_taken(&group, earlier));
}
