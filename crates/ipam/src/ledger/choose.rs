//! Selects the pool that serves a load balancer, and explains why it cannot be served.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Ledger;
use super::decision::{Request, Withheld};
use crate::select::{self, Explanation, PoolVerdict, Verdict};

/// Capacity of the cache of pool selections (section 5) between two changes of pools. Limited
/// because tenants choose the requirements; usually there are at most a few dozen.
const SELECTIONS: usize = 4096;
/// Capacity of the cache of explanations, each of some hundred bytes.
const EXPLANATIONS: usize = 512;

/// Longest text of a requirement, in bytes, that is cached (OPS-6). Annotations may hold 256 KiB; with this limit the
/// caches take some 10 MB at most. Names of existing networks, projects, namespaces and clusters are shorter.
const CACHED_TEXT: usize = 1024;

impl Ledger {
    /// SEL-1, SEL-3 to SEL-6: the place of the pool for a load balancer without an address: the
    /// pool that it names, which may be missing, or the one that section 5 selects.
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

    /// The verdict on each pool for a load balancer.
    pub(super) fn explain_to(&mut self, request: &Request) -> Explanation {
        let mut explanation = match &request.pool {
            Some(name) => {
                let verdict = Verdict::Serves;
                let pool = name.clone();
                Explanation::new(vec![PoolVerdict { pool, verdict }], 1)
            }
            None => self.explain_choice(request),
        };
        for verdict in explanation
            .pools
            .iter_mut()
            .filter(|it| it.verdict == Verdict::Serves)
        {
            verdict.verdict = self.serves(&verdict.pool, request);
        }
        explanation.pools.sort_by(nearest_first);
        explanation
    }

    /// The part of the explanation that follows from the selectors only.
    fn explain_choice(&mut self, request: &Request) -> Explanation {
        let namespace = request.owner.id.namespace();
        let requirement = request.requirement.clone().or_namespace(namespace);
        if let Some(known) = self.explained[request.workload as usize].get(&requirement) {
            return known.clone();
        }
        let mut verdicts = select::explain(self.pools.selectors(), &requirement, request.workload);
        let unchosen = |it: &&mut PoolVerdict| it.verdict != Verdict::Serves;
        for verdict in verdicts.iter_mut().filter(unchosen) {
            // Its selector is unknown, so it might be the one that serves.
            if let Some(unknown) = self.undecodable(&verdict.pool) {
                verdict.verdict = unknown;
            }
        }
        verdicts.sort_by(nearest_first);
        let explanation = Explanation::new(verdicts, Explanation::SHOWN);
        if requirement.text_len() > CACHED_TEXT {
            return explanation;
        }
        let answers = &mut self.explained[request.workload as usize];
        if answers.len() >= EXPLANATIONS {
            answers.clear();
        }
        answers.insert(requirement, explanation.clone());
        explanation
    }

    /// The verdict on a pool if it cannot be decoded.
    fn undecodable(&self, name: &str) -> Option<Verdict> {
        match self.pools.by_name(name)?.withheld()? {
            Withheld::Undecodable(error) => Some(Verdict::Undecodable {
                error: error.clone(),
            }),
            Withheld::InvalidExclude(_) => None,
        }
    }

    /// The verdict on the chosen pool: whether it has an address for a load balancer without one.
    fn serves(&self, name: &str, request: &Request) -> Verdict {
        let Some(pool) = self.pools.by_name(name) else {
            return Verdict::Missing;
        };
        if let Some(refusal) = pool.refusal(request.workload) {
            refusal
        } else if pool.free_to(request.workload) == 0 {
            pool.full(request.workload)
        } else if pool.room(request).is_any() {
            Verdict::Serves
        } else {
            Verdict::OthersFirst
        }
    }
}

/// The order of the verdicts in an explanation.
pub(super) fn nearest_first(a: &PoolVerdict, b: &PoolVerdict) -> Ordering {
    (&a.verdict, &a.pool).cmp(&(&b.verdict, &b.pool))
}
