//! Finalizers that the Go operator left on virtual machines (FIN-1). Nobody would ever take them off after a swap, and
//! no such machine could be deleted.

use std::fmt::Debug;

use harvester_lb_controller_kit::Key;
use harvester_lb_controller_kit::writer::WriteError;
use kube::Api;
use serde::de::DeserializeOwned;
use serde_json::json;
use tracing::info;

use crate::hub::Hub;
use crate::reconcile::Next;
use crate::writes::is_stale;

/// A kind that may carry such a finalizer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// VirtualMachine.
    Vm,
    /// VirtualMachineInstance.
    Vmi,
}

/// Takes the finalizers of old off one object.
pub async fn reconcile(hub: &Hub, kind: Kind, key: &Key) -> Result<Next, WriteError> {
    match kind {
        Kind::Vm => {
            let Some(entry) = hub.stores.vms.entry(key) else {
                return Ok(Next::Event);
            };
            let api = hub.vm_api(&key.namespace);
            strip(
                hub,
                &api,
                key,
                entry.value.finalizers_to_keep.as_ref(),
                entry.version.0,
            )
            .await
        }
        Kind::Vmi => {
            let Some(entry) = hub.stores.vmis.entry(key) else {
                return Ok(Next::Event);
            };
            let api = hub.vmi_api(&key.namespace);
            strip(
                hub,
                &api,
                key,
                entry.value.finalizers_to_keep.as_ref(),
                entry.version.0,
            )
            .await
        }
    }
}

async fn strip<K>(
    hub: &Hub,
    api: &Api<K>,
    key: &Key,
    keep: Option<&Vec<String>>,
    version: u64,
) -> Result<Next, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let Some(keep) = keep else {
        return Ok(Next::Event);
    };
    let patch = json!({"metadata": {"finalizers": keep}});
    match hub
        .writer
        .patch(api, &key.name, &version.to_string(), patch)
        .await
    {
        Ok(_) => {
            info!(object = %key, "finalizers of the Go operator are taken off");
            Ok(Next::Event)
        }
        // The newer copy is on its way through the watch and queues the object again.
        Err(error) if is_stale(&error) => Ok(Next::Event),
        Err(other) => Err(other),
    }
}
