//! Owns what a container's program is started with: its environment, and its command line with variables expanded.

use anyhow::{Context, bail};
use k8s_openapi::api::core::v1::{Container, EnvVar, Pod};

use super::fields::{Addresses, field};
use super::image::Image;
use super::sources::{Data, Sources};
use crate::pki::KUBERNETES_SERVICE;

/// Port of the API server's Service.
const KUBERNETES_PORT: &str = "443";
/// `PATH` of a container whose image does not set one, as containerd's.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Names and values, in order, each name once.
pub(crate) type Env = Vec<(String, String)>;

/// The environment of a container: the image's, the API server's Service, that of the container.
pub(crate) async fn environment(
    pod: &Pod,
    container: &Container,
    image: &Image,
    host_name: &str,
    addresses: Addresses,
    sources: &Sources,
) -> anyhow::Result<Env> {
    let mut env = Env::new();
    set(&mut env, "PATH", PATH.into());
    for (name, value) in &image.env {
        set(&mut env, name, value.clone());
    }
    set(&mut env, "HOSTNAME", host_name.into());
    let server = KUBERNETES_SERVICE.to_string();
    set(&mut env, "KUBERNETES_SERVICE_HOST", server);
    set(&mut env, "KUBERNETES_SERVICE_PORT", KUBERNETES_PORT.into());
    set(
        &mut env,
        "KUBERNETES_SERVICE_PORT_HTTPS",
        KUBERNETES_PORT.into(),
    );
    for from in container.env_from.iter().flatten() {
        let data = match (&from.secret_ref, &from.config_map_ref) {
            (Some(secret), _) => {
                sources
                    .secret(&secret.name, secret.optional == Some(true))
                    .await?
            }
            (None, Some(map)) => {
                sources
                    .config_map(&map.name, map.optional == Some(true))
                    .await?
            }
            (None, None) => None,
        };
        let prefix = from.prefix.as_deref().unwrap_or_default();
        for (key, value) in data.into_iter().flatten() {
            let value = String::from_utf8(value).with_context(|| format!("key {key:?}"))?;
            set(&mut env, &format!("{prefix}{key}"), value);
        }
    }
    for var in container.env.iter().flatten() {
        let value = match &var.value_from {
            None => Some(expand(var.value.as_deref().unwrap_or_default(), &env)),
            Some(_) => value_from(pod, var, addresses, sources)
                .await
                .with_context(|| format!("variable {}", var.name))?,
        };
        if let Some(value) = value {
            set(&mut env, &var.name, value);
        }
    }
    Ok(env)
}

/// `None` if what it refers to does not exist and is optional.
async fn value_from(
    pod: &Pod,
    var: &EnvVar,
    addresses: Addresses,
    sources: &Sources,
) -> anyhow::Result<Option<String>> {
    let Some(from) = &var.value_from else {
        return Ok(None);
    };
    if let Some(reference) = &from.field_ref {
        let path = &reference.field_path;
        let value = field(pod, addresses, path).with_context(|| format!("no field {path:?}"))?;
        return Ok(Some(value));
    }
    if let Some(reference) = &from.secret_key_ref {
        let optional = reference.optional == Some(true);
        let data = sources.secret(&reference.name, optional).await?;
        return key_of(data, &reference.key, optional);
    }
    if let Some(reference) = &from.config_map_key_ref {
        let optional = reference.optional == Some(true);
        let data = sources.config_map(&reference.name, optional).await?;
        return key_of(data, &reference.key, optional);
    }
    bail!("the Pod runner has no such source")
}

fn key_of(data: Option<Data>, key: &str, optional: bool) -> anyhow::Result<Option<String>> {
    match data.and_then(|mut data| data.remove(key)) {
        Some(value) => Ok(Some(String::from_utf8(value)?)),
        None if optional => Ok(None),
        None => bail!("no key {key:?}"),
    }
}

fn set(env: &mut Env, name: &str, value: String) {
    match env.iter_mut().find(|(n, _)| n == name) {
        Some(known) => known.1 = value,
        None => env.push((name.to_owned(), value)),
    }
}

/// The program and its arguments: those of the container over those of the image.
pub(crate) fn command_line(
    container: &Container,
    image: &Image,
    env: &[(String, String)],
) -> Vec<String> {
    let given = |list: &Option<Vec<String>>| -> Vec<String> {
        let list = list.iter().flatten();
        list.map(|text| expand(text, env)).collect()
    };
    let (command, args) = (given(&container.command), given(&container.args));
    match (command.is_empty(), args.is_empty()) {
        (true, true) => [image.entrypoint.clone(), image.command.clone()].concat(),
        (true, false) => [image.entrypoint.clone(), args].concat(),
        (false, _) => [command, args].concat(),
    }
}

/// Replaces `$(NAME)` by the variable's value. `$$` is a dollar, and what is not defined remains.
pub(crate) fn expand(text: &str, env: &[(String, String)]) -> String {
    let mut result = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        result.push_str(before);
        let after = from.get(1..).unwrap_or_default();
        let reference = after.strip_prefix('(').and_then(|t| t.split_once(')'));
        if let Some(after) = after.strip_prefix('$') {
            result.push('$');
            rest = after;
        } else if let Some((name, after)) = reference {
            match env.iter().find(|(n, _)| n == name) {
                Some((_, value)) => result.push_str(value),
                None => result.push_str(&format!("$({name})")),
            }
            rest = after;
        } else {
            result.push('$');
            rest = after;
        }
    }
    result.push_str(rest);
    result
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn env() -> Env {
        vec![("A".into(), "1".into()), ("B".into(), "$(A)".into())]
    }

    #[test]
    fn variables_are_expanded_once() {
        for (text, expected) in [
            ("x$(A)y", "x1y"),
            ("$(B)", "$(A)"),
            ("$$(A)", "$(A)"),
            ("$$$(A)", "$1"),
            ("$(C)$(A)", "$(C)1"),
            ("$A $( $", "$A $( $"),
            ("$(A", "$(A"),
            ("é$(A)é", "é1é"),
        ] {
            assert_eq!(expand(text, &env()), expected, "{text}");
        }
    }

    #[test]
    fn a_command_replaces_the_entrypoint_and_its_arguments() {
        let image = Image::new("/").entrypoint(&["/run"]).command(&["all"]);
        let line = |value: serde_json::Value| {
            let container: Container = serde_json::from_value(value).unwrap();
            command_line(&container, &image, &env())
        };
        assert_eq!(line(json!({"name": "c"})), ["/run", "all"]);
        assert_eq!(line(json!({"name": "c", "args": ["$(A)"]})), ["/run", "1"]);
        assert_eq!(line(json!({"name": "c", "command": ["sh"]})), ["sh"]);
        assert_eq!(
            line(json!({"name": "c", "command": ["sh"], "args": ["-c"]})),
            ["sh", "-c"]
        );
    }

    #[test]
    fn a_variable_is_set_once() {
        let mut env = env();
        set(&mut env, "A", "2".into());
        assert_eq!(env.len(), 2);
        assert_eq!(expand("$(A)", &env), "2");
    }
}
