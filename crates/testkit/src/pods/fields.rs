//! Owns the downward API: the fields of a Pod that its containers can read, in variables and in files. Pure.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

/// What the runner knows of a Pod beyond the object.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Addresses {
    pub(crate) pod: Ipv4Addr,
    pub(crate) host: Ipv4Addr,
}

/// Value of a field by its path; `None` if there is no such field.
pub(crate) fn field(pod: &Pod, addresses: Addresses, path: &str) -> Option<String> {
    let (meta, spec) = (&pod.metadata, pod.spec.as_ref());
    let text = |value: Option<&String>| Some(value.cloned().unwrap_or_default());
    match path {
        "metadata.name" => text(meta.name.as_ref()),
        "metadata.namespace" => text(meta.namespace.as_ref()),
        "metadata.uid" => text(meta.uid.as_ref()),
        "metadata.labels" => Some(lines(meta.labels.as_ref())),
        "metadata.annotations" => Some(lines(meta.annotations.as_ref())),
        "spec.nodeName" => text(spec?.node_name.as_ref()),
        "spec.serviceAccountName" => text(spec?.service_account_name.as_ref()),
        "status.podIP" | "status.podIPs" => Some(addresses.pod.to_string()),
        "status.hostIP" | "status.hostIPs" => Some(addresses.host.to_string()),
        _ => {
            let (map, key) = path.strip_suffix("']")?.split_once("['")?;
            let map = match map {
                "metadata.labels" => meta.labels.as_ref(),
                "metadata.annotations" => meta.annotations.as_ref(),
                _ => return None,
            };
            text(map.and_then(|map| map.get(key)))
        }
    }
}

/// A map as a file shows it.
fn lines(map: Option<&BTreeMap<String, String>>) -> String {
    let lines = map.into_iter().flatten();
    let lines: Vec<String> = lines
        .map(|(key, value)| format!("{key}={value:?}"))
        .collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fields_by_path() {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {
                "name": "a", "namespace": "ns", "uid": "u", "labels": {"app": "web", "tier": "\"1\""},
            },
            "spec": {"nodeName": "node1", "containers": []},
        }))
        .unwrap();
        let addresses = Addresses {
            pod: Ipv4Addr::new(10, 52, 1, 2),
            host: Ipv4Addr::new(10, 251, 0, 11),
        };
        let value = |path: &str| field(&pod, addresses, path);
        assert_eq!(value("metadata.uid").as_deref(), Some("u"));
        assert_eq!(value("spec.nodeName").as_deref(), Some("node1"));
        assert_eq!(value("status.podIP").as_deref(), Some("10.52.1.2"));
        assert_eq!(value("status.hostIP").as_deref(), Some("10.251.0.11"));
        assert_eq!(value("metadata.labels['app']").as_deref(), Some("web"));
        assert_eq!(value("metadata.annotations['none']").as_deref(), Some(""));
        assert_eq!(
            value("metadata.labels").as_deref(),
            Some("app=\"web\"\ntier=\"\\\"1\\\"\"")
        );
        assert_eq!(value("spec.hostNetwork"), None);
        assert_eq!(value("spec['x']"), None);
    }
}
