//! Finalizers that the Go operator left on virtual machines (FIN-1). Nobody would ever take them off after a swap, and
//! no such machine could be deleted.

use harvester_lb_controller_kit::store::Store;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{Vm, Vmi};
use harvester_lb_object::Key;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::info;

use crate::context::Hub;
use crate::index::queues::{LegacyKind, LegacyObject};

/// Takes the finalizers of old off one object.
pub async fn reconcile(hub: &Hub, object: &LegacyObject) -> Result<Requeue, WriteError> {
    let LegacyObject { kind, key } = object;
    let namespace = &key.namespace;
    match kind {
        LegacyKind::Vm => {
            let keep = |vm: &Vm| vm.finalizers_to_keep.clone();
            strip(hub, &hub.vm_api(namespace), &hub.stores.vms, key, keep).await
        }
        LegacyKind::Vmi => {
            let keep = |vmi: &Vmi| vmi.finalizers_to_keep.clone();
            strip(hub, &hub.vmi_api(namespace), &hub.stores.vmis, key, keep).await
        }
    }
}

async fn strip<K, V>(
    hub: &Hub,
    api: &Api<K>,
    store: &Store<V>,
    key: &Key,
    keep: impl Fn(&V) -> Option<Vec<String>>,
) -> Result<Requeue, WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    let Some(entry) = store.entry(key) else {
        return Ok(Requeue::AwaitChange);
    };
    let Some(keep) = keep(&entry.value) else {
        return Ok(Requeue::AwaitChange);
    };
    let patch = json!({"metadata": {"finalizers": keep}});
    let written = hub
        .writer
        .patch(api, &key.name, &entry.stamp.version.to_string(), patch)
        .await;
    hub.note_refusal(&K::kind(&()), key, written.as_ref().err());
    match written {
        Ok(_) => {
            info!(object = %key, "finalizers of the Go operator are taken off");
            Ok(Requeue::AwaitChange)
        }
        // The newer copy is on its way through the watch and queues the object again.
        Err(error) if error.is_stale() => Ok(Requeue::AwaitChange),
        Err(other) => Err(other),
    }
}
