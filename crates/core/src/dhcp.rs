//! DHCP leases of load balancers of VM type (DHC-1 to DHC-6): the record, which is all that passes between the operator and
//! the DHCP process, and the decisions of both about it.
//!
//! | module | owns |
//! |---|---|
//! | [`record`] | the lease of an IPAllocation `dhcp-<uid>`, read and written |

pub mod record;
