//! The places for connects in flight, and how many of them the silent may have.
//!
//! Pure counting. A target is silent when nothing came back from its last probe. Such a probe holds its place until the
//! timeout, hundreds of times as long as one that is answered, so that some thousand dead targets could hold all places and
//! make the others late (HC-5). They may have three quarters and no more; the others may have all
//! (docs/decisions/0010-silent-targets.md).

use crate::timetable::Room;

/// See the module.
#[derive(Debug)]
pub(crate) struct Slots {
    bound: usize,
    taken: usize,
    silent: usize,
}

impl Slots {
    /// So many places, at least one.
    pub(crate) fn new(bound: usize) -> Self {
        Self {
            bound: bound.max(1),
            taken: 0,
            silent: 0,
        }
    }

    /// Places that are taken.
    pub(crate) const fn taken(&self) -> usize {
        self.taken
    }

    /// Places that may be taken now.
    pub(crate) const fn room(&self) -> Room {
        // Rounded up: with one place or two they must have their turn too.
        let ration = self.bound - self.bound / 4;
        Room {
            all: self.bound.saturating_sub(self.taken),
            silent: ration.saturating_sub(self.silent),
        }
    }

    /// A probe begins.
    pub(crate) const fn take(&mut self, silent: bool) {
        self.taken += 1;
        self.silent += silent as usize;
    }

    /// The end of that probe, of which the same was said at its beginning.
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
