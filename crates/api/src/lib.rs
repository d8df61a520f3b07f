//! Types of the loadbalancer.harvesterhci.io API group, its keys, and the parts of foreign types that are read.
