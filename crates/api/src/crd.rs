//! The CustomResourceDefinitions, as written to `crds/`. Their printer columns (OPS-5) are declared with the types.

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray, JSONSchemaPropsOrBool,
    ValidationRule,
};
use kube::CustomResourceExt;

use crate::{IPAllocation, IPPool, LoadBalancer, v1alpha1};

/// The definitions of all kinds, in the order in which to apply them.
pub fn all() -> Vec<CustomResourceDefinition> {
    vec![load_balancer(), ip_pool(), ip_allocation()]
}

/// LoadBalancer: v1beta1, which is stored, and v1alpha1, which is served for old guest clusters (section 2.3). Without a
/// status subresource (API-1), with CEL rules for the immutable fields (WV-8, WV-9).
///
/// The definition names no conversion. Applied to a cluster that has none, it means the strategy `None`, and the webhook
/// sets its own as soon as it runs; an apply by helm or kubectl leaves that alone. Until then the API server only replaces
/// the `apiVersion` and drops the fields that the schema of the other version lacks:
///
/// - v1beta1 is not affected.
/// - v1alpha1 shows neither `backendServers` nor the period of a health check.
/// - A write in v1alpha1 drops `ipPool`, `workloadType`, the selector, `allocatedAddress` and the period. The operator
///   restores `allocatedAddress` from the IPAllocation, so that the address stays, but the load balancer has no backends
///   until a selector is set. For such a guest cluster the webhook is required.
/// - An object that is stored in v1alpha1 is read without its `backendServers`; they stay stored until its next write.
pub fn load_balancer() -> CustomResourceDefinition {
    let mut crd = finish(LoadBalancer::crd());
    set_rules(
        &mut crd,
        &[fixed("ipam", "pool"), fixed("workloadType", "vm")],
    );
    let mut old = finish(v1alpha1::LoadBalancer::crd());
    set_rules(&mut old, &[fixed("ipam", "pool")]);
    for version in &mut old.spec.versions {
        let schema = version.schema.as_mut();
        if let Some(schema) = schema.and_then(|s| s.open_api_v3_schema.as_mut()) {
            // As upstream: the spec is optional, and the numbers have no format.
            schema.required = None;
            without_int64(schema);
        }
    }
    crd.spec.versions.append(&mut old.spec.versions);
    crd
}

/// Sets the CEL rules of the spec.
fn set_rules(crd: &mut CustomResourceDefinition, rules: &[ValidationRule]) {
    for version in &mut crd.spec.versions {
        let spec = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
            .and_then(|s| s.properties.as_mut())
            .and_then(|p| p.get_mut("spec"));
        if let Some(spec) = spec {
            spec.x_kubernetes_validations = Some(rules.to_vec());
        }
    }
}

/// Removes the format of 64-bit numbers.
fn without_int64(schema: &mut JSONSchemaProps) {
    if schema.format.as_deref() == Some("int64") {
        schema.format = None;
    }
    schema
        .properties
        .iter_mut()
        .flatten()
        .for_each(|(_, property)| without_int64(property));
}

/// IPPool, without a status subresource (API-1).
pub fn ip_pool() -> CustomResourceDefinition {
    finish(IPPool::crd())
}

/// IPAllocation.
pub fn ip_allocation() -> CustomResourceDefinition {
    finish(IPAllocation::crd())
}

/// The CEL rule of an immutable field; an absent field has its default.
fn fixed(field: &str, default: &str) -> ValidationRule {
    let value = |of: &str| format!("(has({of}.{field}) ? {of}.{field} : '{default}')");
    ValidationRule {
        rule: format!("{} == {}", value("self"), value("oldSelf")),
        message: Some(format!(
            "spec.{field} cannot be changed once the load balancer exists (absent means '{default}'); delete it and create it again"
        )),
        field_path: Some(format!(".{field}")),
        reason: Some("FieldValueForbidden".to_owned()),
        ..ValidationRule::default()
    }
}

/// Fields that are required in the schema but optional for the decoder, so that an old object without them can still be
/// read. `true`: the API server fills in the default.
const REQUIRED: [(&str, bool); 4] = [
    ("protocol", true),
    ("total", false),
    ("available", false),
    ("lastAllocated", false),
];

/// Converts a derived definition to the form that upstream serves.
///
/// Removes the status subresource, which the derive macro adds wherever a kind has a status: deployed guest clusters
/// write the status by a plain update, from which a status subresource would silently drop the status (API-1). Removes
/// also `nullable`, which upstream's fields are not, and the defaults that only the decoder needs.
fn finish(mut crd: CustomResourceDefinition) -> CustomResourceDefinition {
    for version in &mut crd.spec.versions {
        version.subresources = None;
        if let Some(schema) = version
            .schema
            .as_mut()
            .and_then(|s| s.open_api_v3_schema.as_mut())
        {
            plain(schema);
        }
    }
    crd
}

fn plain(schema: &mut JSONSchemaProps) {
    schema.nullable = None;
    // Upstream's health check fields have no format; all other integers are int32 or int64.
    if schema.minimum.is_some() && schema.format.as_deref() == Some("int64") {
        schema.format = None;
    }
    for (name, property) in schema.properties.iter_mut().flatten() {
        let required = REQUIRED.iter().find(|(field, _)| field == name);
        if !required.is_some_and(|(_, filled_in)| *filled_in) {
            property.default = None;
        }
        if required.is_some() {
            let names = schema.required.get_or_insert_default();
            names.push(name.clone());
            names.sort();
            names.dedup();
        }
        plain(property);
    }
    match &mut schema.items {
        Some(JSONSchemaPropsOrArray::Schema(items)) => plain(items),
        Some(JSONSchemaPropsOrArray::Schemas(all)) => all.iter_mut().for_each(plain),
        None => {}
    }
    if let Some(JSONSchemaPropsOrBool::Schema(value)) = &mut schema.additional_properties {
        plain(value);
    }
}

#[cfg(test)]
mod tests;
