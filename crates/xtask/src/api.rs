//! docs/api.md is the reference of the API, generated from crds/crds.yaml: every field with its type, default,
//! constraints and meaning, the columns of `kubectl get`, the rules of the schema. `cargo run -p xtask -- api` writes it,
//! the check compares.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, bail};
use serde_json::{Map, Value};

use crate::repository::{Faults, read};

const SOURCE: &str = "crds/crds.yaml";
const DOCUMENT: &str = "docs/api.md";
/// The beginning of the reference.
const HEAD: &str = "\
<!-- Generated from crds/crds.yaml by `cargo run -p xtask -- api`; do not edit. -->
# API reference

The kinds of the group `loadbalancer.harvesterhci.io`. A default in a table is filled in by the API server; what an absent
field means otherwise is in its description. [configuration.md](configuration.md) lists annotations and labels,
[pool-selection.md](pool-selection.md) says which pool serves which load balancer. `[]` is an element of a list, `{}` a value
of a map.
";
/// Keywords of a schema that the reference shows.
const SHOWN: [&str; 15] = [
    "additionalProperties",
    "default",
    "description",
    "enum",
    "format",
    "items",
    "maximum",
    "minimum",
    "pattern",
    "properties",
    "required",
    "title",
    "type",
    "x-kubernetes-map-type",
    "x-kubernetes-validations",
];

pub(crate) fn check(root: &Path) -> anyhow::Result<Faults> {
    let wanted = page(&read(root, SOURCE)?)?;
    let present = read(root, DOCUMENT).unwrap_or_default();
    if wanted == present {
        return Ok(Faults::new());
    }
    let line = wanted
        .lines()
        .zip(present.lines())
        .position(|(wanted, present)| wanted != present)
        .unwrap_or_else(|| wanted.lines().count().min(present.lines().count()));
    Ok(vec![format!(
        "{DOCUMENT} differs from {SOURCE} at line {}; run: cargo run -p xtask -- api",
        line + 1
    )])
}

/// Writes the reference.
pub(crate) fn write(root: &Path) -> anyhow::Result<()> {
    let page = page(&read(root, SOURCE)?)?;
    std::fs::write(root.join(DOCUMENT), page).with_context(|| DOCUMENT.to_owned())
}

/// The page for these definitions.
fn page(definitions: &str) -> anyhow::Result<String> {
    let definitions: Vec<Value> =
        serde_saphyr::from_multiple(definitions).with_context(|| SOURCE.to_owned())?;
    let mut page = HEAD.to_owned();
    for definition in definitions.iter().filter(|it| !it.is_null()) {
        kind(&mut page, definition)?;
    }
    Ok(page)
}

/// The section of a kind.
fn kind(page: &mut String, definition: &Value) -> anyhow::Result<()> {
    let spec = &definition["spec"];
    let names = &spec["names"];
    let kind = text(&names["kind"])?;
    let short: Vec<String> = list(&names["shortNames"])
        .filter_map(Value::as_str)
        .map(|name| format!("`{name}`"))
        .collect();
    let scope = match text(&spec["scope"])? {
        "Namespaced" => "In a namespace",
        _ => "Cluster-wide",
    };
    write!(
        page,
        "\n## {kind}\n\n{scope}; `{}`",
        text(&names["plural"])?
    )?;
    if !short.is_empty() {
        write!(page, ", short {}", short.join(", "))?;
    }
    page.push_str(".\n");
    for version in list(&spec["versions"]) {
        one_version(page, kind, version).with_context(|| format!("{kind} {}", version["name"]))?;
    }
    Ok(())
}

/// The section of a version of a kind.
fn one_version(page: &mut String, kind: &str, version: &Value) -> anyhow::Result<()> {
    let name = text(&version["name"])?;
    let schema = &version["schema"]["openAPIV3Schema"];
    let mut states = Vec::new();
    for (state, word) in [
        ("served", "served"),
        ("storage", "stored"),
        ("deprecated", "deprecated"),
    ] {
        if version[state] == true {
            states.push(word);
        }
    }
    write!(page, "\n### {kind} {name}\n\n{}\n\n", sentence(schema))?;
    writeln!(page, "This version is {}.", states.join(" and "))?;
    page.push_str("\n| field | type | default | constraints | meaning |\n|---|---|---|---|---|\n");
    let mut rules = Vec::new();
    fields(page, "", schema, &mut rules)?;
    if !rules.is_empty() {
        page.push_str("\nRules of the schema:\n\n");
        for (path, message) in rules {
            writeln!(page, "- `{path}`: {message}")?;
        }
    }
    let columns: Vec<&Value> = list(&version["additionalPrinterColumns"]).collect();
    if !columns.is_empty() {
        page.push_str("\n| column of `kubectl get` | field | shown |\n|---|---|---|\n");
        for column in columns {
            let shown = match column["priority"].as_i64().unwrap_or(0) {
                0 => "always",
                _ => "with `-o wide`",
            };
            writeln!(
                page,
                "| {} | `{}` | {shown} |",
                text(&column["name"])?,
                text(&column["jsonPath"])?
            )?;
        }
    }
    Ok(())
}

/// The rows of all fields below a schema, and the validation rules on the way, each with its path.
fn fields(
    page: &mut String,
    path: &str,
    schema: &Value,
    rules: &mut Vec<(String, String)>,
) -> anyhow::Result<()> {
    known(schema).with_context(|| path.to_owned())?;
    for rule in list(&schema["x-kubernetes-validations"]) {
        let field = rule["fieldPath"].as_str().unwrap_or_default();
        rules.push((format!("{path}{field}"), text(&rule["message"])?.to_owned()));
    }
    let none = Map::new();
    let required: Vec<&str> = list(&schema["required"])
        .filter_map(Value::as_str)
        .collect();
    for (name, field) in schema["properties"].as_object().unwrap_or(&none) {
        let path = match path {
            "" => name.clone(),
            path => format!("{path}.{name}"),
        };
        let default = match &field["default"] {
            Value::Null => String::new(),
            value => format!("`{}`", plain(value)),
        };
        writeln!(
            page,
            "| `{path}` | {} | {default} | {} | {} |",
            type_of(field)?,
            constraints(field, required.contains(&name.as_str())),
            meaning(field).replace('|', "\\|")
        )?;
        match elements(field) {
            Some((mark, inner)) => fields(page, &format!("{path}{mark}"), inner, rules)?,
            None => fields(page, &path, field, rules)?,
        }
    }
    Ok(())
}

/// The schema of the elements of a list or of the values of a map, and how a path shows them.
fn elements(schema: &Value) -> Option<(&'static str, &Value)> {
    let of = |key: &str| schema.get(key).filter(|inner| inner.is_object());
    of("items")
        .map(|inner| ("[]", inner))
        .or_else(|| of("additionalProperties").map(|inner| ("{}", inner)))
}

/// The type in words.
fn type_of(schema: &Value) -> anyhow::Result<String> {
    let name = text(&schema["type"])?;
    Ok(match (name, elements(schema)) {
        ("array", Some((_, inner))) => format!("list of {}", type_of(inner)?),
        ("object", Some((_, inner))) => format!("map of {}", type_of(inner)?),
        (name, _) => match schema["format"].as_str() {
            Some(format) => format!("{name} ({format})"),
            None => name.to_owned(),
        },
    })
}

/// Everything that the schema demands of a field, apart from its type.
fn constraints(schema: &Value, is_required: bool) -> String {
    let mut all = Vec::new();
    if is_required {
        all.push("required".to_owned());
    }
    let values: Vec<String> = list(&schema["enum"])
        .map(|value| format!("`{}`", plain(value)))
        .collect();
    if !values.is_empty() {
        all.push(format!("one of {}", values.join(", ")));
    }
    for (keyword, words) in [
        ("minimum", "at least"),
        ("maximum", "at most"),
        ("pattern", "matches"),
    ] {
        match &schema[keyword] {
            Value::Null => {}
            value => all.push(format!("{words} {}", plain(value))),
        }
    }
    if schema["x-kubernetes-map-type"] == "atomic" {
        all.push("replaced as a whole".to_owned());
    }
    all.join("; ")
}

/// Fails for a keyword that the reference would leave out.
fn known(schema: &Value) -> anyhow::Result<()> {
    let keywords = schema.as_object().into_iter().flatten();
    for (keyword, _) in keywords {
        if !SHOWN.contains(&keyword.as_str()) {
            bail!("crates/xtask/src/api.rs does not know the keyword {keyword}");
        }
    }
    Ok(())
}

/// The description of a schema in one line.
fn sentence(schema: &Value) -> String {
    let text = schema["description"].as_str().unwrap_or_default();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The description of a field, and that of its elements if it is a list or a map.
fn meaning(schema: &Value) -> String {
    let element = elements(schema).map(|(_, inner)| sentence(inner));
    match element.filter(|text| !text.is_empty()) {
        Some(text) => format!("{} Each element: {text}", sentence(schema)),
        None => sentence(schema),
    }
}

/// A value without quotes; whole numbers without a fraction.
fn plain(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) => number.to_string().trim_end_matches(".0").to_owned(),
        other => other.to_string(),
    }
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> anyhow::Result<&str> {
    value
        .as_str()
        .with_context(|| format!("{value} is no text"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEFINITION: &str = r#"# A comment.
---
spec:
  names: {kind: Cat, plural: cats, shortNames: [c]}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    additionalPrinterColumns:
    - {name: AGE, jsonPath: .metadata.creationTimestamp, type: date}
    - {name: FUR, jsonPath: .spec.fur, type: string, priority: 1}
    schema:
      openAPIV3Schema:
        description: A cat.
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            description: What it is.
            x-kubernetes-validations:
            - {rule: "self == oldSelf", message: it stays, fieldPath: .fur}
            properties:
              fur: {type: string, enum: [long, short], default: short, description: "Its | fur."}
              legs:
                type: array
                items: {type: object, description: One., properties: {length: {type: integer, format: int32, minimum: 0.0}}}
              names: {type: object, additionalProperties: {type: array, items: {type: string}}, x-kubernetes-map-type: atomic}
"#;

    #[test]
    fn the_page_of_a_definition() {
        let page = page(DEFINITION).unwrap();
        for line in [
            "## Cat",
            "In a namespace; `cats`, short `c`.",
            "### Cat v1",
            "This version is served and stored.",
            "| `spec` | object |  | required | What it is. |",
            "| `spec.fur` | string | `short` | one of `long`, `short` | Its \\| fur. |",
            "| `spec.legs` | list of object |  |  |  Each element: One. |",
            "| `spec.legs[].length` | integer (int32) |  | at least 0 |  |",
            "| `spec.names` | map of list of string |  | replaced as a whole |  |",
            "- `spec.fur`: it stays",
            "| AGE | `.metadata.creationTimestamp` | always |",
            "| FUR | `.spec.fur` | with `-o wide` |",
        ] {
            assert!(page.lines().any(|it| it == line), "{line}\nin\n{page}");
        }
    }

    #[test]
    fn a_keyword_that_is_not_shown_is_refused() {
        let other = DEFINITION.replace("minimum: 0.0", "multipleOf: 2");
        let error = page(&other).unwrap_err();
        assert!(format!("{error:#}").contains("multipleOf"), "{error:#}");
    }
}
