//! The slots for connects in flight, and the share of silent targets.
//!
//! Pure counting. A target is silent when its last probe got no answer. Such a probe holds its slot until the timeout,
//! hundreds of times as long as one that is answered, so that some thousand dead targets could hold all slots and delay
//! the others (HC-5). They may have three quarters of the slots; the others may have all
//! (docs/internals/decisions/0010-silent-targets.md).

use crate::timetable::Room;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots {
    bound: usize,
    taken: usize,
    silent: usize,
}

impl Slots {
    /// `bound` slots, at least one.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            taken: 0,
            silent: 0,
        }
    }

    /// Slots in use.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// Slots that are free now.
    pub(crate) const fn room(&self) -> Room {
        // Rounded up: with one slot or two, silent targets must have their turn too.
        let ration = self.bound - self.bound / 4;
        Room {
            all: self.bound.saturating_sub(self.taken),
            silent: ration.saturating_sub(self.silent),
        }
    }

    /// A probe starts.
    pub(crate) const fn take(&mut self, silent: bool) {
        self.taken += 1;
        self.silent += silent as usize;
    }

    /// The probe ended; `silent` as at its start.
    pub(crate) const fn give_back(&mut self, silent: bool) {
        self.taken = self.taken.saturating_sub(1);
        self.silent = self.silent.saturating_sub(silent as usize);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hc_5_the_silent_have_three_quarters_and_the_others_all() {
        for (bound, ration) in [(0, 1), (1, 1), (2, 2), (4, 3), (5, 4), (16_384, 12_288)] {
            let mut slots = Slots::new(bound);
            assert_eq!(
                (slots.room().all, slots.room().silent),
                (bound.max(1), ration)
            );
            for _ in 0..ration {
                slots.take(true);
            }
            assert_eq!(slots.room().silent, 0);
            assert_eq!(slots.room().all, bound.max(1) - ration);
            slots.give_back(true);
            assert_eq!(slots.room().silent, 1);
            slots.take(false);
            slots.give_back(false);
            assert_eq!(slots.taken(), ration - 1);
        }
    }

    #[test]
    fn hc_5_the_others_leave_the_silent_what_is_there() {
        let mut slots = Slots::new(4);
        (0..4).for_each(|_| slots.take(false));
        assert_eq!((slots.room().all, slots.room().silent), (0, 3));
    }
}
