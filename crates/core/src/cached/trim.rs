//! What no copy needs of an object's metadata.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Metadata without what nobody reads and what may be large.
pub(super) fn pruned(mut meta: ObjectMeta) -> ObjectMeta {
    meta.managed_fields = None;
    // kubectl keeps a copy of the whole object here; up to 256 KiB that nobody reads.
    if let Some(annotations) = &mut meta.annotations {
        annotations.remove("kubectl.kubernetes.io/last-applied-configuration");
    }
    meta
}
