//! The gauge of DHCP clients by state, read at each scrape.

use std::sync::Arc;

use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{IntGaugeVec, Opts};

use crate::runtime::dhcp::current::Current;

/// The gauge.
pub(super) struct ClientGauge {
    current: Arc<Current>,
    /// Without values, for its description.
    family: IntGaugeVec,
}

impl ClientGauge {
    /// Reads the clients of the current term.
    pub(super) fn new(current: &Arc<Current>) -> prometheus::Result<Self> {
        Ok(Self {
            current: Arc::clone(current),
            family: family()?,
        })
    }
}

fn family() -> prometheus::Result<IntGaugeVec> {
    IntGaugeVec::new(
        Opts::new(
            "harvester_lb_dhcp_clients",
            "DHCP clients of load balancers by state.",
        ),
        &["state"],
    )
}

impl Collector for ClientGauge {
    fn desc(&self) -> Vec<&Desc> {
        self.family.desc()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        // A definition that was valid once.
        let Ok(family) = family() else {
            return Vec::new();
        };
        for (state, count) in self.current.get().index.views.by_state() {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            family.with_label_values(&[state.as_str()]).set(count);
        }
        family.collect()
    }
}
