//! Test bed: a real control plane and real network namespaces on one machine, gone when its process is.
