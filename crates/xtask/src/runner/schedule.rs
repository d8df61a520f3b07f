//! Owns the choice of the binary that starts next. Pure: the waiting and the running ones are arguments.

use super::table::{Lane, MOST_COMPUTING};

/// Concurrency limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Most concurrent test clusters.
    pub(crate) clusters: usize,
}

/// A binary that has not run yet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    /// Its index.
    pub(crate) id: usize,
    /// Its lane.
    pub(crate) lane: Lane,
    /// Its expected duration, in seconds.
    pub(crate) estimate: f64,
}

/// The binary to start now beside the running ones, or `None` until one of them has ended.
///
/// CPU-bound binaries come first and without test clusters: that takes a minute or two, instead of ten beside clusters, and
/// simple mistakes are reported before the first cluster has started. Exclusive ones come last. In each lane the longest
/// comes first, so that no long one is left over at the end.
pub(crate) fn next(waiting: &[Waiting], running: &[Lane], limits: Limits) -> Option<usize> {
    let busy = |lane| running.iter().filter(|l| **l == lane).count();
    if busy(Lane::Exclusive) > 0 {
        return None;
    }
    let longest = |lane| {
        waiting
            .iter()
            .filter(|w| w.lane == lane)
            .max_by(|a, b| a.estimate.total_cmp(&b.estimate))
            .map(|w| w.id)
    };
    let room = |lane| match lane {
        Lane::CpuBound => busy(lane) == running.len() && busy(lane) < MOST_COMPUTING,
        Lane::WaitBound => busy(Lane::CpuBound) == 0 && busy(lane) < limits.clusters,
        Lane::Exclusive => running.is_empty() && waiting.iter().all(|w| w.lane == Lane::Exclusive),
    };
    [Lane::CpuBound, Lane::WaitBound, Lane::Exclusive]
        .into_iter()
        .filter(|lane| room(*lane))
        .find_map(longest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Limits = Limits { clusters: 2 };

    fn waiting(all: &[(Lane, u32)]) -> Vec<Waiting> {
        all.iter()
            .enumerate()
            .map(|(id, (lane, estimate))| Waiting {
                id,
                lane: *lane,
                estimate: f64::from(*estimate),
            })
            .collect()
    }

    /// Simulates a whole run; returns the second at which each binary starts.
    fn play(all: &[(Lane, u32)], limits: Limits) -> Vec<u32> {
        let mut left = waiting(all);
        let mut running: Vec<(u32, Lane)> = Vec::new();
        let mut starts = vec![u32::MAX; all.len()];
        let mut now = 0;
        loop {
            let lanes: Vec<Lane> = running.iter().map(|(_, lane)| *lane).collect();
            if let Some(id) = next(&left, &lanes, limits) {
                starts[id] = now;
                running.push((now + all[id].1, all[id].0));
                left.retain(|w| w.id != id);
                continue;
            }
            let Some(end) = running.iter().map(|r| r.0).min() else {
                assert!(left.is_empty(), "nothing runs, and {left:?} waits");
                return starts;
            };
            now = end;
            running.retain(|r| r.0 > end);
        }
    }

    #[test]
    fn computing_binaries_come_first_and_waiting_ones_side_by_side_after_them() {
        let all = [
            (Lane::WaitBound, 100),
            (Lane::CpuBound, 10),
            (Lane::CpuBound, 20),
            (Lane::WaitBound, 30),
            (Lane::WaitBound, 50),
            (Lane::CpuBound, 8),
        ];
        assert_eq!(play(&all, TWO), [20, 0, 0, 70, 20, 10]);
    }

    #[test]
    fn an_exclusive_binary_runs_at_the_end_with_nothing_beside_it() {
        let all = [
            (Lane::Exclusive, 10),
            (Lane::CpuBound, 5),
            (Lane::WaitBound, 8),
            (Lane::Exclusive, 20),
        ];
        assert_eq!(play(&all, TWO), [33, 0, 5, 13]);
    }

    #[test]
    fn there_are_never_more_clusters_than_allowed() {
        let all = [(Lane::WaitBound, 10); 5];
        let mut starts = play(&all, TWO);
        starts.sort_unstable();
        assert_eq!(starts, [0, 0, 10, 10, 20]);
    }

    #[test]
    fn without_work_nothing_starts() {
        assert_eq!(next(&[], &[], TWO), None);
        assert_eq!(next(&[], &[Lane::CpuBound], TWO), None);
    }
}
