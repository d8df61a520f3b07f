use proptest::prelude::*;

use super::*;

fn selector(network: &str, priority: u32, scope: &[(&str, &str, &str)]) -> Selector {
    let scope = scope.iter().map(|(p, n, c)| Tuple::new(p, n, c)).collect();
    Selector {
        priority,
        network: network.into(),
        scope,
    }
}

/// The pools of the worked examples.
fn example(name: &str) -> Selector {
    match name {
        "A" => selector("net/v20", 0, &[("p1", "shop", "gc1")]),
        "B" => selector("net/v20", 5, &[("*", "shop", "*")]),
        "C" => selector("", 0, &[("", "shop", "")]),
        "D" => selector("net/v20", 0, &[("", "data", "")]),
        "G" => selector("", 0, &[("*", "*", "*")]),
        _ => unreachable!(),
    }
}

#[test]
fn sel_worked_examples() {
    use Workload::{Cluster, Vm};
    for ((network, project, namespace, cluster), workload, pools, result) in [
        (
            ("net/v20", "p1", "shop", "gc1"),
            Cluster,
            "A B G",
            Some("B"),
        ),
        (("net/v20", "p1", "shop", "gc1"), Cluster, "A G", Some("A")),
        (("", "", "shop", ""), Vm, "A B C G", Some("C")),
        (("", "p1", "shop", ""), Vm, "C", None),
        (("net/v20", "p9", "data", "gc7"), Cluster, "D", Some("D")),
        (("net/v20", "p9", "data", "gc7"), Cluster, "D G", Some("G")),
        (("net/v20", "p9", "data", "gc7"), Vm, "D", None),
        (("net/v99", "*", "shop", "*"), Cluster, "A B", None),
        (("net/v20", "*", "shop", "*"), Cluster, "A", Some("A")),
    ] {
        let pools: Vec<_> = pools.split(' ').map(|name| (name, example(name))).collect();
        let views = || pools.iter().map(|(name, selector)| (*name, selector));
        let requirement = Requirement::new(network, project, namespace, cluster);
        assert_eq!(
            select(views(), &requirement, workload),
            result,
            "{requirement:?}"
        );
        assert_eq!(
            select(views().rev(), &requirement, workload),
            result,
            "{requirement:?}"
        );
    }
}

fn pick(pools: &[(&str, Selector)], requirement: &Requirement) -> Option<String> {
    select(
        pools.iter().map(|(n, s)| (*n, s)),
        requirement,
        Workload::Vm,
    )
    .map(ToOwned::to_owned)
}

#[test]
fn sel_2_empty_equals_only_empty() {
    let tuple = Tuple::new("", "shop", "");
    assert!(tuple.matches(&Requirement::new("", "", "shop", "")));
    assert!(tuple.matches(&Requirement::new("", "*", "*", "")));
    assert!(!tuple.matches(&Requirement::new("", "p", "shop", "")));
    assert!(!tuple.matches(&Requirement::new("", "", "shop", "c")));
}

#[test]
fn sel_3_network_is_exact_and_an_empty_scope_matches_nothing() {
    let any = Requirement::new("*", "*", "*", "*");
    assert_eq!(
        pick(&[("a", selector("net", 0, &[("p", "n", "c")]))], &any),
        None
    );
    assert_eq!(pick(&[("a", selector("*", 0, &[]))], &any), None);
    let wild = [("a", selector("*", 0, &[("p", "n", "c")]))];
    assert_eq!(pick(&wild, &Requirement::new("net", "*", "*", "*")), None);
    assert_eq!(pick(&wild, &any), Some("a".into()));
}

#[test]
fn sel_4_global_is_exactly_one_tuple_of_stars_and_its_network_is_ignored() {
    let requirement = Requirement::new("net", "p", "n", "c");
    assert_eq!(
        pick(
            &[("g", selector("other", 0, &[("*", "*", "*")]))],
            &requirement
        )
        .unwrap(),
        "g"
    );
    assert!(!selector("", 0, &[("*", "*", "*"), ("*", "*", "*")]).is_global());
    // A global pool is no match: a match of lower priority takes precedence.
    let both = [
        ("g", selector("net", 9, &[("*", "*", "*")])),
        ("a", selector("net", 0, &[("p", "n", "c")])),
    ];
    assert_eq!(pick(&both, &requirement).unwrap(), "a");
}

#[test]
fn sel_5_priority_then_smallest_name() {
    let scope: &[_] = &[("*", "n", "*")];
    let pools = [
        ("c", selector("", 7, scope)),
        ("b", selector("", 7, scope)),
        ("a", selector("", 6, scope)),
    ];
    assert_eq!(
        pick(&pools, &Requirement::new("", "", "n", "")).unwrap(),
        "b"
    );
    let globals = [
        ("h", selector("", 0, &[("*", "*", "*")])),
        ("g", selector("", 0, &[("*", "*", "*")])),
    ];
    assert_eq!(pick(&globals, &Requirement::default()).unwrap(), "g");
}

#[test]
fn sel_6_namespace_stays_strict_in_the_loose_pass() {
    let pool = selector("net", 0, &[("", "", "")]);
    let requirement = Requirement::new("net", "p", "n", "c");
    assert_eq!(
        select([("a", &pool)], &requirement, Workload::Cluster),
        None
    );
    let same = Requirement {
        namespace: String::new(),
        ..requirement
    };
    assert_eq!(select([("a", &pool)], &same, Workload::Cluster), Some("a"));
    assert_eq!(select([("a", &pool)], &same, Workload::Vm), None);
}

#[test]
fn sel_namespace_defaults_to_the_load_balancers() {
    assert_eq!(
        Requirement::default().or_namespace("shop").namespace,
        "shop"
    );
    let named = Requirement::new("", "", "data", "").or_namespace("shop");
    assert_eq!(named.namespace, "data");
}

#[test]
fn explanation_says_why_for_each_pool() {
    let pools = ["A", "B", "C", "D", "G"].map(|name| (name, example(name)));
    let verdicts = explain(
        pools.iter().map(|(n, s)| (*n, s)),
        &Requirement::new("net/v20", "p1", "shop", "gc1"),
        Workload::Cluster,
    );
    assert_eq!(
        Explanation::new(verdicts, usize::MAX).to_string(),
        "pool B: serves this load balancer; pool A: priority 0 is lower than 5 of B; \
         pool G: is global, but B matches; \
         pool C: network is \"\", required is \"net/v20\"; pool D: its scope does not match"
    );
    let hidden = explain(
        pools[3..].iter().map(|(n, s)| (*n, s)),
        &Requirement::new("net/v20", "p9", "data", "gc7"),
        Workload::Cluster,
    );
    assert_eq!(
        Explanation::new(hidden, 8).to_string(),
        "pool G: serves this load balancer; \
         pool D: matches only loosely, and G takes precedence"
    );
}

#[test]
fn explanation_is_bounded() {
    let pool = selector("other", 0, &[]);
    let names: Vec<_> = (0..300).map(|n| format!("p{n:03}")).collect();
    let verdicts = explain(
        names.iter().map(|n| (n.as_str(), &pool)),
        &Requirement::default(),
        Workload::Vm,
    );
    let text = Explanation::new(verdicts.clone(), 300).to_string();
    assert!(text.ends_with("; and others"), "{text}");
    assert_eq!(text, Explanation::new(verdicts, 8).to_string());
    assert_eq!(Explanation::default().to_string(), "there are no pools");
}

fn word() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["", "*", "a", "b"]).prop_map(ToOwned::to_owned)
}

prop_compose! {
    fn any_selector()(
        priority in 0u32..3,
        network in prop::sample::select(vec!["", "n"]),
        scope in prop::collection::vec((word(), word(), word()), 0..3),
    ) -> Selector {
        let scope = scope.iter().map(|(p, n, c)| Tuple::new(p, n, c)).collect();
        Selector { priority, network: network.to_owned(), scope }
    }
}

/// The rules of the section, pass by pass.
fn naive(pools: &[(String, Selector)], r: &Requirement, workload: Workload) -> Option<String> {
    let best = |keep: &dyn Fn(&Selector) -> bool| {
        let mut kept: Vec<_> = pools.iter().filter(|(_, s)| keep(s)).collect();
        kept.sort_by_key(|(name, s)| (Reverse(s.priority), name.clone()));
        kept.first().map(|(name, _)| name.clone())
    };
    let meets = |a: &str, b: &str| a == "*" || b == "*" || a == b;
    best(&|s| {
        !s.is_global()
            && s.network == r.network
            && s.scope.iter().any(|t| {
                meets(&t.project, &r.project)
                    && meets(&t.namespace, &r.namespace)
                    && meets(&t.guest_cluster, &r.cluster)
            })
    })
    .or_else(|| best(&Selector::is_global))
    .or_else(|| {
        (workload == Workload::Cluster).then(|| {
            best(&|s| {
                s.network == r.network
                    && s.scope.iter().any(|t| {
                        (t.project.is_empty() || meets(&t.project, &r.project))
                            && meets(&t.namespace, &r.namespace)
                            && (t.guest_cluster.is_empty() || meets(&t.guest_cluster, &r.cluster))
                    })
            })
        })?
    })
}

proptest! {
    #[test]
    fn sel_agrees_with_the_passes_in_any_order(
        selectors in prop::collection::vec(any_selector(), 0..6),
        (network, project, namespace, cluster) in
            (prop::sample::select(vec!["", "n"]), word(), word(), word()),
        cluster_type: bool,
        turn in 0usize..6,
    ) {
        let workload = if cluster_type { Workload::Cluster } else { Workload::Vm };
        let requirement = Requirement::new(network, &project, &namespace, &cluster);
        let mut pools: Vec<_> = selectors.into_iter().enumerate()
            .map(|(n, s)| (format!("pool{n}"), s)).collect();
        let wanted = naive(&pools, &requirement, workload);
        if !pools.is_empty() {
            let turn = turn % pools.len();
            pools.rotate_left(turn);
        }
        let views = || pools.iter().map(|(n, s)| (n.as_str(), s));
        let chosen = select(views(), &requirement, workload).map(ToOwned::to_owned);
        prop_assert_eq!(&chosen, &wanted);
        let verdicts = explain(views(), &requirement, workload);
        prop_assert_eq!(verdicts.len(), pools.len());
        for PoolVerdict { pool, verdict } in verdicts {
            let serves = verdict == Verdict::Serves;
            prop_assert_eq!(serves, Some(&*pool) == wanted.as_deref());
        }
    }
}
