use super::*;
#[test]
fn zz_scale() {
    let mut all = Snapshot::default();
    let n_pools = 1000usize;
    let n = 10_000usize;
    let mut allocated: Vec<BTreeMap<String, String>> = vec![BTreeMap::new(); n_pools];
    let mut cluster = Cluster::default();
    for i in 0..n {
        let p = i % n_pools;
        let k = i / n_pools;
        let ip = format!("10.{}.{}.{}", 1 + p / 250, p % 250, 2 + k);
        let pool = format!("p{p}");
        let ns = format!("n{}", i % 50);
        let name = format!("l{i}");
        let u = uid(&name);
        allocated[p].insert(ip.clone(), format!("{ns}/{name}"));
        all.records.push(made(fixtures::record(
            &ip,
            &pool,
            "Bound",
            (&ns, &name, &u),
        )));
        let mut spec = vm_spec(&format!("app{i}"));
        if i % 2 == 0 {
            spec["ipPool"] = pool.clone().into();
        }
        let lb = fixtures::load_balancer(&ns, &name, &u, &spec);
        let be = format!("10.200.{}.{}", i / 250, 1 + i % 250);
        let status = json!({"address": ip, "allocatedAddress": {"ip": ip, "ipPool": pool}, "backendServers": [be], "conditions": condition("Ready", "")});
        all.load_balancers
            .push(made(with(lb, json!({"status": status}))));
        let meta = fixtures::owned_by(&ns, &name, &u);
        let service = fixtures::service(&meta, &ip);
        all.services.push(made(with(
            service,
            json!({"status": fixtures::announced(&ip)}),
        )));
        let vmi = fixtures::machine(
            &ns,
            &format!("vm{i}"),
            &json!({"app": format!("app{i}")}),
            Some(&be),
        );
        let mut vmi = vmi;
        vmi["metadata"]["uid"] = format!("u-vm{i}").into();
        cluster.machines.push(made(vmi));
        let ep = fixtures::endpoint(&be, &ns, &format!("vm{i}"), &format!("u-vm{i}"));
        all.slices
            .push(made(fixtures::endpoint_slice(&meta, &[ep])));
    }
    for w in 0..1000 {
        let spec = with(cluster_spec(), json!({"ipPool": "p0"}));
        let lb = fixtures::load_balancer("w", &format!("w{w}"), &format!("uw{w}"), &spec);
        let status = json!({"conditions": condition("NoMatchedPool", "pool p0: x")});
        all.load_balancers
            .push(made(with(lb, json!({"status": status}))));
    }
    all.cluster = Some(cluster);
    for p in 0..n_pools {
        let digest = projection::digest(Some(&allocated[p]), None);
        let pool = fixtures::pool(
            &format!("p{p}"),
            &[fixtures::subnet(&format!(
                "10.{}.{}.0/24",
                1 + p / 250,
                p % 250
            ))],
        );
        let pool = with(
            pool.clone(),
            json!({
                "metadata": {"name": format!("p{p}"), "annotations": {keys::ANNOTATION_PROJECTION: digest}},
                "status": {"total": 253, "available": 253 - allocated[p].len(), "lastAllocated": "", "allocated": allocated[p], "conditions": condition("Ready", "")},
            }),
        );
        all.pools.push(made(pool));
    }
    all.announcing = false;
    let t = std::time::Instant::now();
    let report = audit(&all);
    eprintln!(
        "audit {:?} findings {} waiting {}",
        t.elapsed(),
        report.findings.len(),
        report.waiting.len()
    );
    for f in report.findings.iter().take(5) {
        eprintln!("{f}");
    }
    let t = std::time::Instant::now();
    let report = crate::audit_before_import(&all);
    eprintln!(
        "before import {:?} findings {}",
        t.elapsed(),
        report.findings.len()
    );
}
