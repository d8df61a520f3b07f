//! Removal of finalizers that the Go operator left on virtual machines (FIN-1). After a swap no other controller removes
//! them, and such a virtual machine could not be deleted.

use harvester_lb_api::kubevirt::{VirtualMachine, VirtualMachineInstance};
use harvester_lb_controller_kit::store::Store;
use harvester_lb_controller_kit::work_queue::Requeue;
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::cached::{Vm, Vmi};
use harvester_lb_object::Key;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::info;

use crate::context::Context;
use crate::index::queues::{LegacyKind, LegacyObject};

/// Removes the legacy finalizers of one object.
pub async fn reconcile(ctx: &Context, object: &LegacyObject) -> Result<Requeue, WriteError> {
    let LegacyObject { kind, key } = object;
    let (client, namespace) = (ctx.client.writer().client(), &key.namespace);
    match kind {
        LegacyKind::Vm => {
            let keep = |vm: &Vm| vm.finalizers_to_keep.clone();
            strip(
                ctx,
                &Api::<VirtualMachine>::namespaced(client, namespace),
                &ctx.index.stores.vms,
                key,
                keep,
            )
            .await
        }
        LegacyKind::Vmi => {
            let keep = |vmi: &Vmi| vmi.finalizers_to_keep.clone();
            strip(
                ctx,
                &Api::<VirtualMachineInstance>::namespaced(client, namespace),
                &ctx.index.stores.vmis,
                key,
                keep,
            )
            .await
        }
    }
}

async fn strip<K, V>(
    ctx: &Context,
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
    let written = ctx
        .client
        .writer()
        .patch(api, &key.name, &entry.stamp.version.to_string(), patch)
        .await;
    ctx.client
        .note_refusal(&K::kind(&()), key, written.as_ref().err());
    match written {
        Ok(_) => {
            info!(kind = %K::kind(&()), object = %key, "finalizers of the Go operator removed");
            Ok(Requeue::AwaitChange)
        }
        // The watch delivers the newer version, which queues the object again.
        Err(error) if error.is_stale() => Ok(Requeue::AwaitChange),
        Err(other) => Err(other),
    }
}
