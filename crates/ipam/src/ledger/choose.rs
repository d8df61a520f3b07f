//! Which pool a load balancer is served from, and the words for why it is not.

use std::borrow::Cow;

use super::Ledger;
use super::decision::{Request, Withheld};
use super::queue::{Age, Waiter, older};
use crate::select::{self, Explanation, PoolVerdict, Verdict};

/// How many answers of section 5 are kept between two changes of pools. Tenants choose what is
/// asked, so there must be a limit; those that wait seldom ask for more than a few dozen things.
const SELECTIONS: usize = 4096;

/// Longest text of a requirement, in bytes, whose answer is kept (OPS-6). Annotations may hold 256 KiB; with this limit all
/// kept answers together take some 10 MB at most. Names of a network, project, namespace and cluster that exist are shorter.
const CACHED_TEXT: usize = 1024;

impl Ledger {
    /// SEL-1, SEL-3 to SEL-6: the place of the pool that serves a load balancer without an
    /// address: the one it names, which may be missing, or the one that section 5 selects.
    pub(super) fn target(&mut self, request: &Request) -> Option<u32> {
        if let Some(name) = &request.pool {
            return Some(self.pools.intern(name));
        }
        let namespace = request.owner.id.namespace();
        let requirement = if request.requirement.namespace.is_empty() {
            Cow::Owned(request.requirement.clone().or_namespace(namespace))
        } else {
            Cow::Borrowed(&request.requirement)
        };
        let answers = &mut self.selected[request.workload as usize];
        if let Some(known) = answers.get(&*requirement) {
            return *known;
        }
        let name = select::select(self.pools.selectors(), &requirement, request.workload);
        let at = name.and_then(|name| self.pools.find(name));
        if requirement.text_len() > CACHED_TEXT {
            return at;
        }
        if answers.len() >= SELECTIONS {
            answers.clear();
        }
        answers.insert(requirement.into_owned(), at);
        at
    }

    /// Which pools were looked at for a load balancer and why each does or does not serve it.
    pub(super) fn explain_to(&self, request: &Request) -> Explanation {
        let mut verdicts = match &request.pool {
            Some(name) => vec![PoolVerdict {
                pool: name.clone(),
                verdict: Verdict::Serves,
            }],
            None => select::explain(
                self.pools.selectors(),
                &request
                    .requirement
                    .clone()
                    .or_namespace(request.owner.id.namespace()),
                request.workload,
            ),
        };
        for verdict in &mut verdicts {
            if verdict.verdict == Verdict::Serves {
                verdict.verdict = self.serves(&verdict.pool, request);
            } else if let Some(unknown) = self.undecodable(&verdict.pool) {
                // Its selector is not known: it might be the one.
                verdict.verdict = unknown;
            }
        }
        verdicts.sort_by(|a, b| (&a.verdict, &a.pool).cmp(&(&b.verdict, &b.pool)));
        Explanation::new(verdicts, Explanation::SHOWN)
    }

    /// The verdict on a pool that cannot be decoded.
    fn undecodable(&self, name: &str) -> Option<Verdict> {
        match self.pools.by_name(name)?.withheld()? {
            Withheld::Undecodable(error) => Some(Verdict::Undecodable {
                error: error.clone(),
            }),
            Withheld::Unsupported(_) => None,
        }
    }

    /// Whether the chosen pool has an address for a load balancer that has none.
    fn serves(&self, name: &str, request: &Request) -> Verdict {
        let pool = self.pools.by_name(name);
        let Some((pool, spec)) = pool.and_then(|pool| Some((pool, pool.spec.as_ref()?))) else {
            return Verdict::Missing;
        };
        match &spec.withheld {
            Some(Withheld::Undecodable(error)) => {
                let error = error.clone();
                return Verdict::Undecodable { error };
            }
            Some(Withheld::Unsupported(annotation)) => {
                return Verdict::Unsupported { annotation };
            }
            None => {}
        }
        if let Err(error) = &spec.ranges {
            return Verdict::RangesInvalid {
                error: error.to_string(),
            };
        }
        if !pool.suits(request.workload) {
            return Verdict::OtherFamily;
        }
        let free = pool.free_to(request.workload);
        let competes = |other: &Waiter| pool.free_to(other.request.workload) > 0;
        let waiting = older(&pool.queue, &Age::of(request), free, competes);
        match free {
            0 if pool.free() > 0 => Verdict::FullOfFamily,
            0 => Verdict::Full,
            free if free > waiting as u128 => Verdict::Serves,
            _ => Verdict::OthersFirst {
                waiting: pool.queue.range(..Age::of(request)).count(),
            },
        }
    }
}
