use serde_json::json;

use super::*;

fn data(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let entries = entries.iter();
    entries
        .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
        .collect()
}

/// The ranges of a pool as JSON, and the number of problems.
fn migrated(key: &str, value: &str) -> (Value, usize) {
    let (pools, problems) = pools(&data(&[(key, value)]));
    let ranges = pools.first().map(|pool| json!(pool.spec.ranges));
    (ranges.unwrap_or_default(), problems.len())
}

fn subnets(all: &[&str]) -> Value {
    all.iter().map(|subnet| json!({"subnet": subnet})).collect()
}

fn part(subnet: &str, start: &str, end: &str) -> Value {
    json!([{"subnet": subnet, "rangeStart": start, "rangeEnd": end}])
}

#[test]
fn mig_1_keys_become_pools() {
    let all = data(&[
        ("cidr-shop", "10.10.7.0/24"),
        ("range-global", "10.10.8.10-10.10.8.30"),
        ("cidr-team-a", " 10.10.1.0/24 ,\t10.10.2.0/24, "),
        ("kubevip-services", "{}"),
    ]);
    let (pools, problems) = pools(&all);
    assert_eq!(problems, []);
    let scope = |namespace: &str| json!({"scope": [{"project": "*", "namespace": namespace, "guestCluster": "*"}]});
    let pools: Vec<Value> = pools
        .iter()
        .map(|pool| json!({"name": pool.name, "spec": pool.spec}))
        .collect();
    let global = part("10.10.8.0/27", "10.10.8.10", "10.10.8.30");
    assert_eq!(
        pools,
        [
            json!({"name": "global", "spec": {"ranges": global, "selector": scope("*")}}),
            json!({"name": "shop", "spec": {
                "ranges": subnets(&["10.10.7.0/24"]), "selector": scope("shop"),
            }}),
            json!({"name": "team-a", "spec": {
                "ranges": subnets(&["10.10.1.0/24", "10.10.2.0/24"]), "selector": scope("team-a"),
            }}),
        ]
    );
}

#[test]
fn mig_2_items_become_ranges() {
    for (key, value, ranges) in [
        ("cidr-a", "10.10.7.9/24", subnets(&["10.10.7.0/24"])),
        ("cidr-a", "10.10.7.9/32", subnets(&["10.10.7.9/32"])),
        ("cidr-a", "10.10.7.9/0", subnets(&["0.0.0.0/0"])),
        ("cidr-a", "fd10:5::9/64", subnets(&["fd10:5::/64"])),
        (
            "range-a",
            "10.10.3.1-10.10.3.6",
            part("10.10.3.0/29", "10.10.3.1", "10.10.3.6"),
        ),
        (
            "range-a",
            "10.10.3.20-10.10.3.40",
            part("10.10.3.0/26", "10.10.3.20", "10.10.3.40"),
        ),
        (
            "range-a",
            "10.10.8.10 - 10.10.8.30",
            part("10.10.8.0/27", "10.10.8.10", "10.10.8.30"),
        ),
        (
            "range-a",
            "9.0.0.1-200.0.0.1",
            part("0.0.0.0/0", "9.0.0.1", "200.0.0.1"),
        ),
        (
            "range-a",
            "fd10:5::100-fd10:5::1ff",
            part("fd10:5::100/120", "fd10:5::101", "fd10:5::1fe"),
        ),
    ] {
        assert_eq!(migrated(key, value), (ranges, 0), "{key}: {value}");
    }
}

#[test]
fn mig_3_ends_that_no_range_can_have() {
    for (value, ranges) in [
        ("10.10.3.7-10.10.3.7", subnets(&["10.10.3.7/32"])),
        (
            "10.10.3.6-10.10.3.7",
            subnets(&["10.10.3.6/32", "10.10.3.7/32"]),
        ),
        // Two addresses of different /31.
        (
            "10.10.3.5-10.10.3.6",
            part("10.10.3.4/30", "10.10.3.5", "10.10.3.6"),
        ),
        (
            "10.10.3.0-10.10.3.6",
            part("10.10.3.0/29", "10.10.3.1", "10.10.3.6"),
        ),
        (
            "10.10.3.1-10.10.3.7",
            part("10.10.3.0/29", "10.10.3.1", "10.10.3.6"),
        ),
        (
            "10.10.3.0-10.10.3.3",
            part("10.10.3.0/30", "10.10.3.1", "10.10.3.2"),
        ),
        (
            "10.10.3.40-10.10.3.20",
            part("10.10.3.0/26", "10.10.3.20", "10.10.3.40"),
        ),
        (
            "0.0.0.0-255.255.255.255",
            part("0.0.0.0/0", "0.0.0.1", "255.255.255.254"),
        ),
        ("fd10::6-fd10::7", subnets(&["fd10::6/128", "fd10::7/128"])),
        ("fd10::9-fd10::9", subnets(&["fd10::9/128"])),
        (
            "::-ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff",
            part("::/0", "::1", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:fffe"),
        ),
    ] {
        assert_eq!(migrated("range-a", value), (ranges, 0), "{value}");
    }
}

/// Whatever the ends, the pool is valid and has no address outside of the range.
#[test]
fn mig_3_every_range_becomes_a_valid_pool() {
    for a in 0..=33_u8 {
        for b in 0..=33_u8 {
            let value = format!("10.10.3.{a}-10.10.3.{b}");
            let (pools, problems) = pools(&data(&[("range-a", &value)]));
            assert_eq!(problems, [], "{value}");
            let ranges = parse(&pools[0].spec.ranges).unwrap();
            for octet in 0..=u8::MAX {
                let address = IpAddr::from([10, 10, 3, octet]);
                let inside = (a.min(b)..=a.max(b)).contains(&octet);
                assert!(inside || !ranges.usable(address), "{value}: {address}");
            }
        }
    }
}

#[test]
fn mig_4_what_is_wrong_is_skipped_and_the_rest_is_migrated() {
    let none = Value::Null;
    for (key, value, ranges, problem) in [
        (
            "search-order",
            "desc",
            none.clone(),
            "key \"search-order\" begins neither with cidr- nor with range-",
        ),
        ("plain", "10.0.0.0/24", none.clone(), "begins neither"),
        (
            "cidr-",
            "10.0.0.0/24",
            none.clone(),
            "key \"cidr-\" does not end in the name of a namespace",
        ),
        (
            "cidr-Shop_1",
            "10.0.0.0/24",
            none.clone(),
            "does not end in the name",
        ),
        (
            "cidr-a..b",
            "10.0.0.0/24",
            none.clone(),
            "does not end in the name",
        ),
        (
            "cidr--a",
            "10.0.0.0/24",
            none.clone(),
            "does not end in the name",
        ),
        (
            "cidr-a",
            " , ",
            none.clone(),
            "key \"cidr-a\" has no valid range",
        ),
        (
            "cidr-a",
            "10.0.0.0",
            none.clone(),
            "\"10.0.0.0\" is not a subnet such as 10.10.7.0/24",
        ),
        ("cidr-a", "10.0.0.0/33", none.clone(), "is not a subnet"),
        ("cidr-a", "10.0.0.0/+8", none.clone(), "is not a subnet"),
        ("cidr-a", "10.0.0.256/24", none.clone(), "is not a subnet"),
        (
            "cidr-a",
            "::ffff:10.0.0.0/120",
            none.clone(),
            "is not a subnet",
        ),
        (
            "cidr-a",
            "10.0.0.1-10.0.0.9",
            none.clone(),
            "is not a subnet",
        ),
        (
            "range-a",
            "10.0.0.1",
            none.clone(),
            "\"10.0.0.1\" is not a range such as 10.10.8.10-10.10.8.30",
        ),
        ("range-a", "10.0.0.1-", none.clone(), "is not a range"),
        (
            "range-a",
            "10.0.0.1-fd10::1",
            none.clone(),
            "is not a range",
        ),
        (
            "range-a",
            "10.0.0.1-10.0.0.2-10.0.0.3",
            none.clone(),
            "is not a range",
        ),
        (
            "range-a",
            "::ffff:10.0.0.1-::ffff:10.0.0.9",
            none,
            "is not a range",
        ),
        (
            "cidr-a",
            "10.0.0.0/24,x,10.0.1.0/24",
            subnets(&["10.0.0.0/24", "10.0.1.0/24"]),
            "\"x\" is not a subnet",
        ),
        (
            "cidr-a",
            "10.0.0.0/24,10.0.0.128/25",
            subnets(&["10.0.0.0/24"]),
            "key \"cidr-a\": \"10.0.0.128/25\" overlaps an earlier item",
        ),
    ] {
        let (pools, problems) = pools(&data(&[(key, value)]));
        let found = pools
            .first()
            .map_or(Value::Null, |pool| json!(pool.spec.ranges));
        assert_eq!(found, ranges, "{key}: {value}");
        let said = problems.iter().any(|it| it.to_string().contains(problem));
        assert!(said, "{key}: {value}: {problems:?}");
    }
    let long = "1".repeat(1_000);
    let (_, problems) = pools(&data(&[("cidr-a", &long)]));
    assert!(problems[0].to_string().len() < 200);
}

#[test]
fn mig_4_cidr_wins_over_range() {
    let both = |cidr: &str| pools(&data(&[("cidr-a", cidr), ("range-a", "10.0.9.1-10.0.9.6")]));
    let (pools, problems) = both("10.0.0.0/24");
    assert_eq!(json!(pools[0].spec.ranges), subnets(&["10.0.0.0/24"]));
    let text = "key \"range-a\" is not used, because there is cidr-a";
    assert_eq!(problems[0].to_string(), text);
    // A key that is skipped as a whole does not count.
    let (pools, problems) = both("x");
    assert_eq!((pools.len(), problems.len()), (1, 2));
    let ranges = part("10.0.9.0/29", "10.0.9.1", "10.0.9.6");
    assert_eq!(json!(pools[0].spec.ranges), ranges);
}

#[test]
fn mig_5_announced_addresses_are_remembered_by_the_pool_of_the_namespace_or_the_global_one() {
    let (pools, _) = pools(&data(&[
        ("cidr-shop", "10.10.7.0/24"),
        ("range-global", "10.10.8.10-10.10.8.30"),
    ]));
    let ranges: BTreeMap<&str, PoolRanges> = pools
        .iter()
        .map(|pool| (&*pool.name, parse(&pool.spec.ranges).unwrap()))
        .collect();
    let remembered = |namespace: &str, services: Value| -> Vec<(String, String, String)> {
        let text = json!({"services": services}).to_string();
        let all = announced(namespace, &text).unwrap();
        all.iter()
            .filter_map(|announced| {
                let pool = pool_of(announced, |name| ranges.get(name))?;
                let (address, owner) = (announced.address.to_string(), announced.owner.to_string());
                Some((pool.to_owned(), address, owner))
            })
            .collect()
    };
    let own = |pool: &str, address: &str, owner: &str| {
        (pool.to_owned(), address.to_owned(), owner.to_owned())
    };
    let shop = json!([
        {"vip": "10.10.7.9", "port": 80, "serviceName": "web", "uid": "u"},
        {"vip": "0.0.0.0", "serviceName": "dh"},
        {"vip": "10.10.8.11", "serviceName": "api"},
    ]);
    let expected = [
        own("shop", "10.10.7.9", "shop/web"),
        own("global", "10.10.8.11", "shop/api"),
    ];
    assert_eq!(remembered("shop", shop), expected);
    let data = json!([
        {"vip": "10.10.8.12", "serviceName": "db"},
        {"vip": "10.10.9.9", "serviceName": "x"},
        // Of another namespace's pool.
        {"vip": "10.10.7.10", "serviceName": "y"},
    ]);
    let expected = [own("global", "10.10.8.12", "data/db")];
    assert_eq!(remembered("data", data), expected);
    // Neither a gateway nor what is no address, or of nobody.
    let none = json!([
        {"vip": "10.10.7.1", "serviceName": "gateway"}, {"vip": "x", "serviceName": "a"},
        {"vip": "10.10.7.8"}, {"serviceName": "a"}, {"vip": "10.10.7.8", "serviceName": ""},
        {"vip": "10.10.7.8", "serviceName": "a/b"}, {"vip": 7, "serviceName": "a"}, 7, null,
    ]);
    assert_eq!(remembered("shop", none), []);
}

#[test]
fn mig_5_what_is_no_list_is_a_problem() {
    assert_eq!(announced("shop", "{}"), Ok(Vec::new()));
    for text in ["", "[]", "{\"services\":7}", "{\"services\":[}"] {
        let problem = announced("shop", text).unwrap_err().to_string();
        let begins = "key \"kubevip-services\" cannot be decoded: ";
        assert!(problem.starts_with(begins), "{text}: {problem}");
    }
}
