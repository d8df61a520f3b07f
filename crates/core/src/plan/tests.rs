//! The walk of a load balancer without HTTP: plans by rule id, and the property that an interrupted plan is continued.

mod cases;
mod group;
mod leases;
mod leaving;
mod resume;
mod resume_group;
mod world;
