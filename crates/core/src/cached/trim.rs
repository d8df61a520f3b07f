//! Trimming of objects for the stores.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Metadata without the large fields that the operator never reads.
pub(super) fn pruned(mut meta: ObjectMeta) -> ObjectMeta {
    meta.managed_fields = None;
    // `kubectl apply` stores the whole object here, up to 256 KiB.
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    shrink(&mut meta.finalizers);
    shrink(&mut meta.owner_references);
    meta
}

/// Drops the spare capacity of a list: decoding allocates four elements for one.
pub(super) fn shrink<T>(list: &mut Option<Vec<T>>) {
    if let Some(list) = list {
        list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests;
