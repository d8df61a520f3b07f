//! Fixture of the tests of a pool's status: pools, records, conditions.

mod conditions;
mod maps;
mod patch;

use super::*;
use crate::pool_spec::pool_spec;
use harvester_lb_fixtures::{self as fixtures, subnet as range};
use harvester_lb_ipam::{Micros, Owner, Phase, Record, RecordSpec, Settings};

/// Later than anything in these tests.
const NOW: Micros = Micros(2_000_000_000_000_000);
const T1: &str = "2026-01-01T00:00:00Z";
const T2: &str = "2026-01-01T00:00:05Z";

fn stored(value: Value) -> Pool {
    Pool::valid(serde_json::from_value(value).unwrap())
}

/// A pool without a status.
fn fresh(name: &str, subnet: &str, created: &str) -> Pool {
    let mut pool = fixtures::stored(fixtures::pool(name, &[range(subnet)]), "u-pool", 7);
    pool["metadata"]["creationTimestamp"] = created.into();
    stored(pool)
}

fn example() -> Pool {
    fresh("p", "172.20.1.0/29", "2026-01-01T00:00:00Z")
}

fn ledger(pools: &[(&str, &Pool)]) -> Ledger {
    let mut ledger = Ledger::new(Settings::default());
    for (name, pool) in pools {
        ledger.set_pool(pool_spec(&(*name).into(), pool, NOW));
    }
    ledger
}

/// A record of the pool `p`; Released if a release time is given.
fn record(addr: &str, owner: &str, bound_at: i64, released_at: Option<i64>) -> Record {
    Record {
        spec: RecordSpec {
            addr: addr.parse().unwrap(),
            pool: "p".into(),
            owner: Owner::new("shop", owner, &format!("uid-{owner}")),
            phase: if released_at.is_some() {
                Phase::Released
            } else {
                Phase::Bound
            },
            bound_at: Micros(bound_at),
            released_at: released_at.map(Micros),
            group: None,
        },
        version: harvester_lb_object::Version(u64::try_from(bound_at).unwrap()),
    }
}

fn observed(records: Vec<Record>) -> Ledger {
    let mut ledger = ledger(&[("p", &example())]);
    for record in records {
        assert!(ledger.observe(record));
    }
    ledger
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    entries
        .iter()
        .map(|(a, id)| ((*a).to_owned(), (*id).to_owned()))
        .collect()
}

/// Bytes of an entry of a map, as JSON counts them.
fn size(address: &str, id: &str) -> usize {
    let entry = serde_json::to_string(&map(&[(address, id)])).unwrap();
    // Less the braces, and with a comma.
    entry.len() - 2 + 1
}

fn condition(type_: &str, status: &str, reason: &str, message: Option<&str>) -> Condition {
    Condition {
        type_: type_.into(),
        status: status.into(),
        reason: Some(reason.into()),
        message: message.map(Into::into),
        last_update_time: Some(T1.into()),
        last_transition_time: Some(T1.into()),
    }
}

fn ready() -> Condition {
    condition(READY, "True", "Ready", None)
}
