//! A load balancer that is about to share the address of another one: from before its status names the address until after that, no
//! release of the address may be sent, or be under way (IPA-6, SHR-7).

use std::net::IpAddr;

use harvester_lb_api::{LoadBalancer, meta};
use harvester_lb_controller_kit::writer::WriteError;
use harvester_lb_core::plan::Goal;
use harvester_lb_core::status;
use harvester_lb_ipam::addr;
use harvester_lb_object::Key;

use crate::context::Context;
use crate::controllers::records;

/// While it exists, this process does not release the address.
pub struct Join<'a> {
    ctx: &'a Context,
    addr: IpAddr,
}

impl<'a> Join<'a> {
    /// `None` if this goal has no address of another one. `of`: the name of the group whose address it is.
    ///
    /// A release may be under way that this process does not know of: of an earlier leader, or one whose answer was lost. The record is
    /// written anew before the status names the address, which makes that release a conflict (IPA-5). Once is enough, until this process
    /// sends a release itself.
    ///
    /// # Errors
    /// `Conflict` if the address is being released, or was. Otherwise those of the request.
    pub async fn of(
        ctx: &'a Context,
        key: &Key,
        lb: &LoadBalancer,
        goal: &Goal,
        of: &Key,
    ) -> Result<Option<Self>, WriteError> {
        let address = match goal {
            Goal::Serve(_, address) | Goal::AddressOnly(address) => Some(address),
            Goal::Keep(keep) => keep.shared.as_deref(),
            Goal::Wait(..) => None,
        };
        let address = address.filter(|_| of != key);
        let addr = address.and_then(|it| addr::parse(&it.load_balancer_ip));
        let Some(addr) = addr else { return Ok(None) };
        if !ctx.index.begin_join(addr) {
            let why = format!("the address of {of} is being released");
            return Err(WriteError::Conflict(why));
        }
        let join = Self { ctx, addr };
        let is_named = status::allocated_addr(lb) == Some(addr);
        if !is_named && !ctx.index.is_settled(addr) {
            records::touch(ctx, addr).await?;
            ctx.index.settle(addr);
        }
        Ok(Some(join))
    }

    /// A request after which it ends has failed. If it was not answered, it may have been the write of the status, and may be done yet.
    /// `lb`: the copy from which that was decided.
    pub fn failed(&self, key: &Key, lb: &LoadBalancer, error: &WriteError) {
        if let WriteError::Unavailable(_) = error {
            let version = meta::version(&lb.metadata);
            self.ctx.index.doubt_join(self.addr, key, version);
        }
    }
}

impl Drop for Join<'_> {
    fn drop(&mut self) {
        self.ctx.index.join_ended(self.addr);
    }
}
