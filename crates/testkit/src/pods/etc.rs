//! Owns the files below `/etc` that belong to a Pod and not to an image: names and addresses.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use k8s_openapi::api::core::v1::PodSpec;

use super::inside::Mount;

/// Name and content of each file.
pub(crate) fn files(
    spec: &PodSpec,
    namespace: &str,
    host_name: &str,
    address: Ipv4Addr,
    name_server: Ipv4Addr,
) -> [(&'static str, String); 3] {
    [
        ("hosts", hosts(spec, host_name, address)),
        ("hostname", format!("{host_name}\n")),
        ("resolv.conf", resolv_conf(spec, namespace, name_server)),
    ]
}

/// Writes them to a folder, and says where they belong.
pub(crate) fn write(files: &[(&str, String)], folder: &Path) -> io::Result<Vec<Mount>> {
    let write = |(name, text): &(&str, String)| {
        std::fs::write(folder.join(name), text)?;
        Ok(Mount {
            source: folder.join(name),
            target: Path::new("/etc").join(name),
            read_only: true,
        })
    };
    files.iter().map(write).collect()
}

fn hosts(spec: &PodSpec, host_name: &str, address: Ipv4Addr) -> String {
    let mut text = format!("127.0.0.1\tlocalhost\n{address}\t{host_name}\n");
    for alias in spec.host_aliases.iter().flatten() {
        let names = alias.hostnames.clone().unwrap_or_default().join("\t");
        text.push_str(&format!("{}\t{names}\n", alias.ip));
    }
    text
}

/// By the Pod's dnsPolicy `None`, or `ClusterFirst` for all others; with what its dnsConfig adds.
fn resolv_conf(spec: &PodSpec, namespace: &str, name_server: Ipv4Addr) -> String {
    let own = spec.dns_config.clone().unwrap_or_default();
    let (mut servers, mut searches, mut options) = (Vec::new(), Vec::new(), Vec::new());
    if spec.dns_policy.as_deref() != Some("None") {
        servers.push(name_server.to_string());
        searches.push(format!("{namespace}.svc.cluster.local"));
        searches.extend(["svc.cluster.local", "cluster.local"].map(String::from));
        options.push("ndots:5".to_owned());
    }
    servers.extend(own.nameservers.unwrap_or_default());
    searches.extend(own.searches.unwrap_or_default());
    for option in own.options.unwrap_or_default() {
        let name = option.name.unwrap_or_default();
        let value = option.value.map(|value| format!(":{value}"));
        options.push(name + &value.unwrap_or_default());
    }
    let mut text = String::new();
    for server in servers {
        text.push_str(&format!("nameserver {server}\n"));
    }
    for (key, words) in [("search", searches), ("options", options)] {
        if !words.is_empty() {
            text.push_str(&format!("{key} {}\n", words.join(" ")));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn name_service_follows_the_pods_policy() {
        let text = |dns: serde_json::Value| {
            let mut spec = dns;
            spec["containers"] = json!([]);
            let spec = serde_json::from_value(spec).unwrap();
            resolv_conf(&spec, "ns", Ipv4Addr::new(192, 0, 2, 1))
        };
        assert_eq!(
            text(json!({})),
            "nameserver 192.0.2.1\nsearch ns.svc.cluster.local svc.cluster.local cluster.local\noptions ndots:5\n"
        );
        let config = json!({"nameservers": ["192.0.2.9"], "options": [{"name": "a"}, {"name": "b", "value": "1"}]});
        assert_eq!(
            text(json!({"dnsPolicy": "None", "dnsConfig": config})),
            "nameserver 192.0.2.9\noptions a b:1\n"
        );
    }
}
