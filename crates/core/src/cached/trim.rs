//! Trimming of metadata for the stores.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Metadata without the large fields that the operator never reads.
pub(super) fn pruned(mut meta: ObjectMeta) -> ObjectMeta {
    meta.managed_fields = None;
    // `kubectl apply` stores the whole object here, up to 256 KiB.
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    meta
}
