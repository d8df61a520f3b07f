//! The walk of a load balancer without HTTP: plans by rule id, and the property that an interrupted plan is continued.

mod cases;
mod leases;
mod resume;
mod world;
