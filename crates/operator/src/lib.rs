//! The host operator: LoadBalancer and IPPool objects in, addresses, Services, EndpointSlices and health checks out.
