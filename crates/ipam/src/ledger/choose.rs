//! Which pool a load balancer is served from, and the words for why it is not.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::Ledger;
use super::decision::{Request, Withheld};
use crate::select::{self, Explanation, PoolVerdict, Verdict};

/// How many answers of section 5 are kept between two changes of pools. Tenants choose what is
/// asked, so there must be a limit; those that wait seldom ask for more than a few dozen things.
const SELECTIONS: usize = 4096;
/// The same of explanations, each of which is some hundred bytes.
const EXPLANATIONS: usize = 512;

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

    /// The same as far as it follows from the selectors alone.
    fn explain_choice(&mut self, request: &Request) -> Explanation {
        let namespace = request.owner.id.namespace();
        let requirement = request.requirement.clone().or_namespace(namespace);
        if let Some(known) = self.explained[request.workload as usize].get(&requirement) {
            return known.clone();
        }
        let mut verdicts = select::explain(self.pools.selectors(), &requirement, request.workload);
        let unchosen = |it: &&mut PoolVerdict| it.verdict != Verdict::Serves;
        for verdict in verdicts.iter_mut().filter(unchosen) {
            // Its selector is not known: it might be the one.
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

/// The order in which verdicts are told.
pub(super) fn nearest_first(a: &PoolVerdict, b: &PoolVerdict) -> Ordering {
    (&a.verdict, &a.pool).cmp(&(&b.verdict, &b.pool))
}
