//! End-to-end tests and the demo: the operator on a real control plane with real traffic.
