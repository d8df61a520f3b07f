//! A simulated API server: it stores IPAllocations by address, and accepts a write only if the version in its
//! precondition is the stored one.

use std::collections::BTreeMap;
use std::net::IpAddr;

use harvester_lb_object::Version;

use crate::allocation::{Allocation, Step};
use crate::ledger::Ledger;
use crate::types::{Micros, Record, RecordSpec};

/// Outcome of a write or deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// It is executed, unless the object has changed.
    Executed,
    /// It is refused, whether or not the object has changed.
    Refused,
    /// It is executed, and the response is lost.
    Lost,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Server {
    pub(crate) records: BTreeMap<IpAddr, Record>,
    pub(crate) version: u64,
}

impl Server {
    /// Stores a record that the ledger does not observe, as by another writer.
    pub(crate) fn store(&mut self, spec: RecordSpec) -> Record {
        self.version += 1;
        let record = Record {
            spec,
            version: Version(self.version),
        };
        self.records.insert(record.spec.addr, record.clone());
        record
    }

    /// Passes all stored records to the ledger.
    pub(crate) fn sync(&self, ledger: &mut Ledger) {
        for record in self.records.values() {
            ledger.observe(record.clone());
        }
    }

    /// A live read.
    pub(crate) fn read(&self, ledger: &mut Ledger, addr: IpAddr) {
        match self.records.get(&addr) {
            Some(record) => _ = ledger.observe(record.clone()),
            None => {
                if let Some(known) = ledger.record(addr) {
                    ledger.forget(addr, known.version);
                }
            }
        }
    }

    fn is_at(&self, addr: IpAddr, version: Option<Version>) -> bool {
        self.records.get(&addr).map(|record| record.version) == version
    }

    /// Runs an allocation as the operator does; returns all its steps. A lost response, or a refusal other than of a
    /// deletion, ends it. `answer` may change the stored records before it returns the outcome of a request.
    pub(crate) fn play(
        &mut self,
        ledger: &mut Ledger,
        allocation: &mut Allocation<'_>,
        mut answer: impl FnMut(&mut Self, &Step) -> Answer,
    ) -> Vec<Step> {
        let mut steps = Vec::new();
        loop {
            let now = Micros(10_000 + i64::try_from(steps.len()).unwrap());
            let step = allocation.next(ledger, now);
            steps.push(step.clone());
            match &step {
                Step::ReadRecord(addr) => {
                    answer(self, &step);
                    self.read(ledger, *addr);
                }
                Step::VerifyOwner | Step::VerifyStatus(_) => {
                    if answer(self, &step) == Answer::Refused {
                        return steps;
                    }
                }
                Step::Delete(record) => {
                    let (addr, version) = (record.spec.addr, record.version);
                    match answer(self, &step) {
                        Answer::Lost => return steps,
                        Answer::Executed if self.is_at(addr, Some(version)) => {
                            self.records.remove(&addr);
                            ledger.forget(addr, version);
                        }
                        Answer::Executed | Answer::Refused => {}
                    }
                }
                Step::Write { spec, replaces, .. } => {
                    let answer = answer(self, &step);
                    let stored = (answer != Answer::Refused && self.is_at(spec.addr, *replaces))
                        .then(|| self.store(spec.clone()));
                    match (answer, stored) {
                        (Answer::Executed, Some(record)) => {
                            ledger.observe(record);
                            allocation.accepted();
                        }
                        (Answer::Executed, None) => self.read(ledger, spec.addr),
                        (Answer::Refused | Answer::Lost, _) => return steps,
                    }
                }
                Step::Done { .. } | Step::Wait { .. } | Step::Nothing { .. } | Step::GiveUp(_) => {
                    return steps;
                }
            }
        }
    }
}
