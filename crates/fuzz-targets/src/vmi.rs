//! A VirtualMachineInstance from a watch, and the backend derived from it.

use harvester_lb_api::kubevirt::VirtualMachineInstance;
use harvester_lb_core::backends::{DiscoveredBackends, Selector};
use harvester_lb_core::cached::Vmi;
use harvester_lb_object::Key;

use crate::common::object;

/// Runs an input; returns whether it got past the decoder.
pub fn run(data: &[u8]) -> bool {
    let Some(decoded) = object::<VirtualMachineInstance>(data) else {
        return false;
    };
    let could_be_read = decoded.is_ok();
    let vmi = Vmi::from_watch(decoded);
    let key = Key::new("loud", "vm");
    let labels = [("app".to_owned(), vec!["web".to_owned(), String::new()])].into();
    let selector = Selector::new(Some(&labels)).unwrap();
    let mut found = DiscoveredBackends::default();
    found.add_if_selected(&selector, &key, &vmi);
    assert!(found.backends.len() <= found.matched && found.matched <= 1);
    assert_eq!(
        found.matched == 1,
        !vmi.deleting && selector.matches(&vmi.labels)
    );
    if let Some(address) = vmi.address {
        assert!(could_be_read);
        assert!(!address.is_unspecified() && !address.is_loopback());
        assert!(!address.is_link_local() && !address.is_multicast());
    }
    true
}
