//! The outcomes of a request: answered, refused, lost before or after its application, or applied late.

use harvester_lb_object::Key;
use tokio::time::Instant;

use super::api::{Answer, By, DENIED};
use super::call::Call;
use super::failure::{Failure, must};
use super::process::State;
use super::simulation::{Simulation, say};

/// How often a Service may be denied while no time passes: all of the ports, those of each load balancer, and the rest, once more for each
/// of some acts in between.
const MOST_DENIALS: u32 = 40;

impl Simulation {
    /// Gives one request of a task one of the outcomes, and resumes the task.
    pub(crate) async fn progress(&mut self, at: usize, nth: usize) -> Result<(), Failure> {
        let number = self.processes[at].tasks[nth].number;
        let waiting = self.wire.waiting(number);
        let open = self.wire.take(number, self.rng.usize(..waiting)).unwrap();
        self.statistics.requests += 1;
        // A request in flight of a process that has lost the Lease is applied late if another process is leader by then.
        let by = match self.processes[at].state {
            State::Draining if at > 0 => By::Late,
            _ => By::Operator,
        };
        let chance = if self.calm {
            1_000
        } else {
            self.rng.u32(..1_000)
        };
        if chance < self.style.lost_answers {
            self.unanswered = true;
            match self.rng.u8(..3) {
                0 => {
                    let call = open.lose();
                    say!(self, "  [{at}] {} -> lost on the way", call.describe());
                }
                1 => {
                    let call = open.lose();
                    let code = self.server.apply(&call, by).code;
                    say!(
                        self,
                        "  [{at}] {} -> {code}, the answer is lost",
                        call.describe()
                    );
                    self.spread()?;
                }
                _ => {
                    let call = open.lose();
                    say!(self, "  [{at}] {} -> no answer yet", call.describe());
                    self.lag(call);
                }
            }
        } else if chance < self.style.lost_answers + self.style.refusals {
            let (code, reason, is_known) = [
                (500, "InternalError", false),
                (409, "Conflict", true),
                (429, "TooManyRequests", false),
                (403, "Forbidden", true),
            ][self.rng.usize(..4)];
            self.refused += 1;
            self.unanswered |= !is_known;
            say!(self, "  [{at}] {} -> refused, {code}", open.call.describe());
            open.answer(&Answer::failure(code, reason, "not now"));
        } else {
            let answer = match self.defect {
                Some(defect) => defect.answers(&mut self.server, &open.call),
                None => self.server.apply(&open.call, by),
            };
            say!(self, "  [{at}] {} -> {}", open.call.describe(), answer.code);
            if answer.code == DENIED {
                self.denied(&open.call.key)?;
            }
            open.answer(&answer);
            self.spread()?;
        }
        self.drive(at, nth).await
    }

    /// SHR-3: a denied write is not repeated at once, but in pieces.
    fn denied(&mut self, service: &Key) -> Result<(), Failure> {
        self.refused += 1;
        let now = Instant::now();
        let (at, times) = self.denials.entry(service.clone()).or_insert((now, 0));
        if *at != now {
            (*at, *times) = (now, 0);
        }
        *times += 1;
        must!(
            "SHR-3",
            *times <= MOST_DENIALS,
            "the Service {service} is written {times} times at once although a policy denies it"
        );
        Ok(())
    }

    pub(crate) fn lag(&mut self, call: Call) {
        if call.is_write() {
            self.late.push(call);
        }
    }

    pub(crate) fn land(&mut self, call: &Call) -> Result<(), Failure> {
        self.statistics.late += 1;
        let code = self.server.apply(call, By::Late).code;
        say!(self, "LATE {} -> {code}", call.describe());
        self.spread()
    }
}
