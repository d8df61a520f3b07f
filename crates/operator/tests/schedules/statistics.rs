//! Statistics of a schedule.

/// Statistics of a schedule.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Statistics {
    pub(crate) steps: usize,
    pub(crate) requests: u64,
    pub(crate) events: u64,
    pub(crate) crashes: u64,
    pub(crate) lost: u64,
    pub(crate) late: u64,
    pub(crate) served: usize,
    pub(crate) waiting: usize,
}

impl Statistics {
    pub(crate) fn add(&mut self, more: &Self) {
        self.steps += more.steps;
        self.requests += more.requests;
        self.events += more.events;
        self.crashes += more.crashes;
        self.lost += more.lost;
        self.late += more.late;
        self.served += more.served;
        self.waiting += more.waiting;
    }
}
