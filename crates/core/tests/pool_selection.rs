//! The worked examples of docs/pool-selection.md, row by row, by the pure functions alone.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test")]

use harvester_lb_fixtures::documents::{POOLS, WORKED_EXAMPLES, codes, table};
use harvester_lb_ipam::select::{explain, select};
use harvester_lb_ipam::{Explanation, Requirement, Selector, Tuple, Workload};

const DOCUMENT: &str = include_str!("../../../docs/pool-selection.md");

/// The pools of the document, by name.
fn pools() -> Vec<(&'static str, Selector)> {
    let rows = table(DOCUMENT, POOLS);
    let pool = |row: &Vec<&'static str>| {
        let [name, network, priority, scope @ ..] = row.as_slice() else {
            panic!("{row:?}");
        };
        let scope: Vec<&str> = scope.iter().flat_map(|cell| codes(cell)).collect();
        let &[project, namespace, cluster] = scope.as_slice() else {
            panic!("{row:?}");
        };
        let selector = Selector {
            priority: priority.parse().unwrap(),
            network: codes(network)[0].into(),
            scope: vec![Tuple::new(project, namespace, cluster)],
        };
        (codes(name)[0], selector)
    };
    rows.iter().map(pool).collect()
}

#[test]
fn sel_worked_examples_of_the_documentation() {
    let pools = pools();
    assert_eq!(pools.len(), 5);
    let rows = table(DOCUMENT, WORKED_EXAMPLES);
    assert!(rows.len() >= 11, "{rows:?}");
    for row in rows {
        let code = |at: usize| codes(row[at])[0];
        let requirement = Requirement::new(code(0), code(1), code(2), code(3));
        let workload = match code(4) {
            "vm" => Workload::Vm,
            "cluster" => Workload::Cluster,
            other => panic!("{other}"),
        };
        let present = codes(row[5]);
        let views: Vec<_> = pools
            .iter()
            .filter(|(name, _)| present.contains(name))
            .map(|(name, selector)| (*name, selector))
            .collect();
        assert_eq!(views.len(), present.len(), "{row:?}");
        let expected = codes(row[6]).first().copied();
        assert!(expected.is_some() || row[6] == "none", "{row:?}");
        assert_eq!(select(views, &requirement, workload), expected, "{row:?}");
    }

    let none_serves = explain(
        pools
            .iter()
            .filter(|(name, _)| ["A", "C", "D"].contains(name))
            .map(|(name, selector)| (*name, selector)),
        &Requirement::new("net/v20", "p9", "data", "gc7"),
        Workload::Vm,
    );
    let message = Explanation::new(none_serves, Explanation::SHOWN).to_string();
    assert!(DOCUMENT.lines().any(|line| line == message), "{message}");
}
