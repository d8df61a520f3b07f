//! A load balancer that is about to get ports of a shared Service: from before its EndpointSlice has them until after that, no other one
//! gets them (SHR-2).

use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::sharing::service;
use harvester_lb_object::{Key, Version};

use crate::context::Context;
use crate::controllers::live;
use crate::controllers::load_balancer::group::Group;

/// While it exists, this process writes these ports into no other EndpointSlice of the group.
pub struct Offer<'a> {
    ctx: &'a Context,
    group: Key,
    lb: Key,
    ports: Vec<String>,
    /// The version of the EndpointSlice before it has them.
    from: Version,
    is_done: bool,
}

impl<'a> Offer<'a> {
    /// `ports`: their names in the Service of the group.
    ///
    /// # Errors
    /// `Conflict` if another load balancer has one of them by now, or is about to. Otherwise those of the requests.
    pub async fn of(
        ctx: &'a Context,
        group: &Key,
        lb: &Key,
        ports: &[String],
    ) -> Result<Self, WriteError> {
        // An earlier leader may have written what the watch has not brought yet.
        for other in ctx.index.slices_of_group(group) {
            if other != *lb {
                live::catch_slice_up(ctx, &other).await?;
            }
        }
        ctx.index.begin_offer(group, lb, ports);
        let offer = Self {
            ctx,
            group: group.clone(),
            lb: lb.clone(),
            ports: ports.to_vec(),
            from: ctx.index.stores.slices.version(lb),
            is_done: false,
        };
        // Looked at only now: what another one has written meanwhile is in the store, and what it is about to is an offer too.
        let others = Group::of(ctx, group).map(|it| service::elsewhere(&it.snapshot(), &lb.name));
        let taken = others.and_then(|all| ports.iter().find(|port| all.contains(*port)).cloned());
        match taken {
            None => Ok(offer),
            Some(port) => Err(WriteError::Conflict(format!(
                "another load balancer of {group} gets port {port}"
            ))),
        }
    }

    /// The EndpointSlice has them, and what depends on it is written.
    pub fn done(mut self) {
        self.is_done = true;
    }

    /// A request after which it ends has failed. If it was not answered, or by somebody who may not know, it may have been the write of the
    /// EndpointSlice, and may be done yet.
    pub fn failed(&self, error: &WriteError) {
        if let WriteError::Unavailable(_) = error {
            self.ctx.index.doubt_offer(&self.group, &self.lb, self.from);
        }
    }
}

impl Drop for Offer<'_> {
    fn drop(&mut self) {
        self.ctx.index.offer_ended(&self.group, &self.lb);
        if self.is_done {
            // The event of the EndpointSlice brings the group back.
            return;
        }
        // Not this one, whose back-off that would end.
        if let Some(group) = Group::of(self.ctx, &self.group) {
            let snapshot = group.snapshot();
            let waiting = service::waiting(&snapshot, &self.lb.name, &self.ports);
            for name in waiting {
                let key = Key::new(&self.group.namespace, name);
                self.ctx.index.queues.lbs.add(key);
            }
        }
    }
}
