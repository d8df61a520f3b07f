//! The roles of docs/examples and of the chart grant exactly what the operator requires (`REQUIRED` in its source), under
//! names that Harvester's release does not use. The chart's role for `check` is that of docs/examples.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::metrics::{Token, tokens};
use crate::repository::{Faults, read};

/// A source with permissions, and the documents that grant them: each a ServiceAccount with its permissions, the same
/// permissions for the ServiceAccount of Harvester's release, and those of the chart.
const SOURCES: [(&str, &[&str]); 3] = [
    (
        "crates/operator/src/permissions.rs",
        &[
            "docs/examples/rbac.yaml",
            "docs/examples/rbac-release-account.yaml",
            "charts/harvester-load-balancer/templates/rbac.yaml",
        ],
    ),
    (
        "crates/operator/src/webhook/permissions.rs",
        &[
            "docs/examples/rbac-webhook.yaml",
            "docs/examples/rbac-release-webhook.yaml",
            "charts/harvester-load-balancer/templates/webhook.yaml",
        ],
    ),
    (
        "crates/operator/src/dhcp/permissions.rs",
        &[
            "docs/examples/rbac-dhcp.yaml",
            "charts/harvester-load-balancer/templates/dhcp.yaml",
        ],
    ),
];
/// The webhook's Service in the chart's template, which names of Secrets follow, and its default name, for which the permissions
/// in the source are.
const SERVICE: [&str; 2] = ["{{ $service }}", "harvester-load-balancer-webhook"];
/// The permissions of `check`, and the same in the chart.
const CHECK: [&str; 2] = [
    "docs/examples/rbac-check.yaml",
    "charts/harvester-load-balancer/templates/rbac-check.yaml",
];
/// Names of Harvester's release: applying an object of such a name would replace the release's.
const RELEASE: [&str; 2] = ["harvester-load-balancer", "harvester-load-balancer-webhook"];

/// Verbs by group and resource; a resource whose permissions are for one object has its name after a slash.
type Rights = BTreeMap<(String, String), BTreeSet<String>>;

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let mut faults = Faults::new();
    for (source, documents) in SOURCES {
        let needed = needed(&read(root, source)?);
        for document in documents {
            let text = read(root, document)?;
            faults.extend(compare(document, &needed, &granted(&text)));
            faults.extend(names_of_the_release(document, &text));
        }
        if needed.len() < 5 {
            faults.push(format!("REQUIRED was not found in {source}; crates/xtask/src/rbac.rs does not understand it any more"));
        }
    }
    let [example, chart] = CHECK;
    let (of_check, of_chart) = (granted(&read(root, example)?), granted(&read(root, chart)?));
    faults.extend(compare(chart, &of_check, &of_chart));
    if of_check.len() < 5 {
        faults.push(format!("few permissions were found in {example}; crates/xtask/src/rbac.rs does not understand it any more"));
    }
    Ok(faults)
}

/// Objects that would replace those of Harvester's release. Subjects of a binding may name the release's
/// ServiceAccount.
fn names_of_the_release(document: &str, text: &str) -> Faults {
    let mut faults = Vec::new();
    let mut in_metadata = false;
    for line in text.lines() {
        if !line.starts_with(' ') {
            in_metadata = line == "metadata:";
        }
        let name = line.strip_prefix("  name: ").filter(|_| in_metadata);
        if let Some(name) = name.filter(|name| RELEASE.contains(name)) {
            faults.push(format!(
                "{document} has an object named {name}, as Harvester's own release has"
            ));
        }
    }
    faults
}

fn compare(document: &str, needed: &Rights, granted: &Rights) -> Faults {
    let none = BTreeSet::new();
    let mut faults = Vec::new();
    let all: BTreeSet<_> = needed.keys().chain(granted.keys()).collect();
    for key @ (group, resource) in all {
        let (needs, has) = (
            needed.get(key).unwrap_or(&none),
            granted.get(key).unwrap_or(&none),
        );
        for verb in needs.difference(has) {
            faults.push(format!(
                "{document} lacks {verb} {resource} of group {group:?}"
            ));
        }
        for verb in has.difference(needs) {
            faults.push(format!(
                "{document} grants {verb} {resource} of group {group:?}, which is not used"
            ));
        }
    }
    faults
}

/// Calls of `required` with three strings (group, version, resource) and a list of verbs, and of `named` with the name of
/// an object before the list.
fn needed(source: &str) -> Rights {
    let tokens = tokens(source);
    let mut rights = Rights::new();
    for at in 0..tokens.len() {
        let [Token::Word(function), Token::Mark('('), arguments @ ..] = &tokens[at..] else {
            continue;
        };
        let (texts, verbs) = texts(arguments);
        let (group, resource) = match (&**function, &texts[..]) {
            ("required", [group, _, resource]) => (group, (*resource).to_owned()),
            ("named", [group, _, resource, name]) => (group, format!("{resource}/{name}")),
            _ => continue,
        };
        let [Token::Mark('&'), Token::Mark('['), verbs @ ..] = verbs else {
            continue;
        };
        let verbs = verbs
            .iter()
            .take_while(|t| **t != Token::Mark(']'))
            .filter_map(|t| match t {
                Token::Text(verb) => Some(verb.clone()),
                _ => None,
            });
        let key = ((*group).to_owned(), resource);
        rights.entry(key).or_default().extend(verbs);
    }
    rights
}

/// The strings, each before a comma, that a list of arguments begins with, and what follows them.
fn texts(mut arguments: &[Token]) -> (Vec<&str>, &[Token]) {
    let mut texts = Vec::new();
    while let [Token::Text(text), Token::Mark(','), rest @ ..] = arguments {
        texts.push(&**text);
        arguments = rest;
    }
    (texts, arguments)
}

/// Rules of roles, written as three lists in brackets.
fn granted(text: &str) -> Rights {
    let [template, default] = SERVICE;
    let list = |line: &str, key: &str| -> Option<Vec<String>> {
        let inside = line.trim_start_matches("- ").strip_prefix(key)?.trim();
        let inside = inside.strip_prefix('[')?.strip_suffix(']')?;
        Some(
            inside
                .split(',')
                .map(|item| item.trim().trim_matches('"').replace(template, default))
                .collect(),
        )
    };
    let (mut groups, mut resources, mut names) = (Vec::new(), Vec::new(), Vec::new());
    let mut rights = Rights::new();
    for line in text.lines().map(str::trim) {
        if let Some(found) = list(line, "apiGroups:") {
            groups = found;
            names.clear();
        } else if let Some(found) = list(line, "resourceNames:") {
            names = found;
        } else if let Some(found) = list(line, "resources:") {
            resources = found;
        } else if let Some(verbs) = list(line, "verbs:") {
            for group in &groups {
                for resource in &resources {
                    let named = names.iter().map(|name| format!("{resource}/{name}"));
                    let all = names.is_empty().then(|| resource.clone());
                    for resource in all.into_iter().chain(named) {
                        let key = (group.clone(), resource);
                        rights.entry(key).or_default().extend(verbs.iter().cloned());
                    }
                }
            }
        }
    }
    rights
}

#[cfg(test)]
mod tests {
    use super::*;

    const CODE: &str = r#"
        required("", "v1", "services", &["get", "list"]),
        RequiredPermission { namespace: Some("kube-system"), ..required("coordination.k8s.io", "v1", "leases", &["get",],) },
    "#;

    #[test]
    fn neither_more_nor_less() {
        let yaml = "rules:\n- apiGroups: [\"\"]\n  resources: [services]\n  verbs: [get, list]\n---\nrules:\n\
                    - apiGroups: [coordination.k8s.io]\n  resources: [leases]\n  verbs: [get]\n";
        let compare = |yaml: &str| compare("rbac.yaml", &needed(CODE), &granted(yaml));
        assert_eq!(compare(yaml), Faults::new());
        assert_eq!(
            compare(&yaml.replace("[get, list]", "[get, watch]")).len(),
            2
        );
        assert_eq!(compare("").len(), 3);
    }

    #[test]
    fn a_permission_for_one_object_is_none_for_all() {
        let code = r#"named("", "v1", "configmaps", "a", &["get"]), required("", "v1", "services", &["get"]),"#;
        let rule = "- apiGroups: [\"\"]\n  resources: [configmaps]\n";
        let services = "- apiGroups: [\"\"]\n  resources: [services]\n  verbs: [get]\n";
        let compare = |names: &str| {
            let yaml = format!("{rule}{names}  verbs: [get]\n{services}");
            compare("rbac.yaml", &needed(code), &granted(&yaml))
        };
        assert_eq!(compare("  resourceNames: [a]\n"), Faults::new());
        assert_eq!(compare("  resourceNames: [b]\n").len(), 2);
        assert_eq!(compare("").len(), 2);
    }

    #[test]
    fn names_in_a_template_follow_the_service() {
        let code = r#"named("", "v1", "secrets", "harvester-load-balancer-webhook-ca", &["get"]),"#;
        let yaml = "- apiGroups: [\"\"]\n  resources: [secrets]\n  resourceNames: [{{ $service }}-ca]\n  verbs: [get]\n";
        let compare = |yaml: &str| compare("webhook.yaml", &needed(code), &granted(yaml));
        assert_eq!(compare(yaml), Faults::new());
        assert_eq!(compare(&yaml.replace("-ca", "-tls")).len(), 2);
    }

    #[test]
    fn an_object_of_the_releases_name_is_a_fault_and_a_subject_of_that_name_is_none() {
        let yaml = "kind: ClusterRoleBinding\nmetadata:\n  name: NAME\nsubjects:\n- kind: ServiceAccount\n  \
                    name: harvester-load-balancer\n---\nkind: Role\nmetadata:\n  namespace: x\n  name: NAME\n";
        let faults =
            |name: &str| names_of_the_release("rbac.yaml", &yaml.replace("NAME", name)).len();
        assert_eq!(faults("harvester-lb-operator"), 0);
        assert_eq!(faults("harvester-load-balancer"), 2);
        assert_eq!(faults("harvester-load-balancer-webhook"), 2);
    }
}
