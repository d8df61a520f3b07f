//! Lists of many objects.

use super::*;

/// A list of several pages; one that the API server has forgotten in the middle begins again.
#[tokio::test(start_paused = true)]
async fn ops_2_lists_are_read_page_by_page() {
    let server = well();
    let (mut lbs, mut records) = (Vec::new(), Vec::new());
    for n in 0..1_200 {
        let (name, ip) = (format!("l{n}"), format!("10.1.{}.{}", n / 250, n % 250));
        lbs.push(served_lb(&name, &ip));
        records.push(record(&ip, &name));
    }
    server.set(LBS, lbs);
    server.set(RECORDS, records);
    server.fail(LBS, "continue=500", failure(410, "Expired"));
    let outcome = checked(&server).await;
    assert_eq!(
        (outcome.report.load_balancers, outcome.report.bound),
        (1_200, 1_200)
    );
    let requests = server.requests.lock();
    let of_lbs: Vec<&str> = requests
        .iter()
        .filter_map(|request| request.strip_prefix(LBS)?.strip_prefix("?limit=500"))
        .take(5)
        .collect();
    let pages = ["", "&continue=500", "", "&continue=500", "&continue=1000"];
    assert_eq!(of_lbs, pages);
}

/// 10,000 load balancers in 1,000 pools: the number of requests grows with the pages alone, and everything is judged.
#[tokio::test(start_paused = true)]
async fn ops_2_requests_for_10_000_load_balancers() {
    let server = well();
    let (mut lbs, mut pools, mut records) = (Vec::new(), Vec::new(), Vec::new());
    for number in 0..1_000 {
        let (name, net) = (
            format!("p{number}"),
            format!("10.{}.{}", number / 250, number % 250),
        );
        let mut allocated = BTreeMap::new();
        for host in 2..12 {
            let (ip, lb) = (format!("{net}.{host}"), format!("l{number}-{host}"));
            let mut object = served_lb(&lb, &ip);
            object["spec"]["ipPool"] = name.clone().into();
            object["status"]["allocatedAddress"]["ipPool"] = name.clone().into();
            lbs.push(object);
            let mut object = record(&ip, &lb);
            object["spec"]["pool"] = name.clone().into();
            records.push(object);
            allocated.insert(ip, format!("n/{lb}"));
        }
        let digest = projection::digest(Some(&allocated), None);
        let range = part(
            &format!("{net}.0/24"),
            &format!("{net}.2"),
            &format!("{net}.11"),
        );
        let mut object = stored(fixtures::pool(&name, &[range]), &format!("u-{name}"), 3);
        object["metadata"]["annotations"] = json!({keys::ANNOTATION_PROJECTION: digest});
        object["status"] = json!({
            "total": 10, "available": 0, "lastAllocated": "", "allocated": allocated,
            "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}],
        });
        pools.push(object);
    }
    server.set(LBS, lbs);
    server.set(POOLS, pools);
    server.set(RECORDS, records);
    let outcome = checked(&server).await;
    assert_eq!(
        reasons(&outcome),
        [""; 0],
        "{:#?}",
        outcome.findings.first()
    );
    assert_eq!(
        (
            outcome.report.load_balancers,
            outcome.report.bound,
            outcome.pools
        ),
        (10_000, 10_000, 1_000)
    );
    let requests = server.requests.lock();
    let of = |path: &str| {
        requests
            .iter()
            .filter(|it| it.split('?').next() == Some(path))
            .count()
    };
    assert_eq!((of(LBS), of(RECORDS), of(POOLS)), (20, 20, 2));
    // A page of each other kind, the Lease, the Deployment, and the API groups.
    let others = requests.len() - 42;
    assert!(others < 30, "{others}");
}
