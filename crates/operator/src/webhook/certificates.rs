//! Which certificates the webhook needs (section 1): a sans-IO machine. Each replica runs one over the two Secrets and the
//! bundles that the API server has; any of them may act, and the resource version of a Secret decides who was first.
//!
//! A request is refused by the API server if the serving certificate is signed by an authority that is not in the bundle
//! it knows. So the order is:
//!
//! 1. A new authority replaces the present one in its Secret, which keeps the certificate of the present one as a
//!    *previous* authority. The bundle is both.
//! 2. The serving certificate stays as it is until every configuration has had the new authority in its bundle for
//!    [`Lifetimes::settle`]. Then it is signed by the new authority.
//! 3. The previous authority leaves the bundle [`Lifetimes::retain`] later.
//!
//! The authority of another program, such as the Go operator's, is replaced in the same way: its key may be unusable
//! here, and its serving certificate continues to serve until step 2. If nothing usable serves, the serving certificate
//! is signed at once, since there is nothing to lose. A replica that has served one serves it on until step 2, if both
//! Secrets are lost.

use std::time::Duration;

use rustls::sign::CertifiedKey;

use self::x509::{Authority, Certificate, Pair, server_key};

pub mod x509;

/// Most previous authorities in a bundle. There is one, or two if a takeover meets a rotation; more is a loop of somebody
/// else's that must not grow the configurations.
const MOST_PREVIOUS: usize = 4;

/// How long certificates live. Renewal begins when a third of the life is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lifetimes {
    /// Life of an authority.
    pub authority: Duration,
    /// Life of a serving certificate.
    pub leaf: Duration,
    /// Time that a new authority is in all bundles before it signs.
    pub settle: Duration,
    /// Time that a previous authority stays in the bundle after the last certificate that it signed was replaced.
    pub retain: Duration,
}

/// The content of the authority's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuthoritySecret {
    /// The present authority.
    pub present: Pair,
    /// Certificates of previous authorities, PEM.
    pub previous: String,
}

/// What a replica knows of the cluster.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// The authority's Secret; `None` if there is none.
    pub authority: Option<&'a AuthoritySecret>,
    /// The Secret of the serving certificate; `None` if there is none.
    pub leaf: Option<&'a Pair>,
    /// The bundle in each configuration through which the API server calls this webhook.
    pub bundles: &'a [String],
}

/// What has to be written.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// The authority's Secret: a new authority, with these previous ones.
    NewAuthority {
        /// Certificates of previous authorities.
        previous: Vec<Certificate>,
        /// Why.
        reason: &'static str,
    },
    /// The Secret of the serving certificate: a new one, signed by the present authority.
    NewLeaf {
        /// Why.
        reason: &'static str,
    },
    /// The authority's Secret: the present authority alone, with these previous ones.
    SetPrevious {
        /// Certificate of the present authority. Its key stays.
        present: Certificate,
        /// Certificates of previous authorities.
        previous: Vec<Certificate>,
        /// Why.
        reason: &'static str,
    },
}

impl Action {
    /// Whether it writes the authority's Secret; otherwise it writes that of the serving certificate.
    pub const fn is_of_authority(&self) -> bool {
        !matches!(self, Self::NewLeaf { .. })
    }
}

/// The decision at one moment.
#[derive(Debug)]
pub struct Plan {
    /// What to write first; everything is decided again afterwards.
    pub action: Option<Action>,
    /// The certificate and key to serve with; `None`: none is usable.
    pub serve: Option<CertifiedKey>,
    /// The bundle that belongs into the configurations, PEM. Empty: the Secret lacks the authority of what serves, so the
    /// API server would refuse that.
    pub bundle: String,
    /// When the present authority and the serving certificate expire, in seconds since 1970.
    pub expiry: [Option<i64>; 2],
    /// When the time alone may change the decision, in seconds since 1970.
    pub again_at: i64,
}

/// The machine. It remembers since when all bundles have had the present authority, and what it served last.
#[derive(Debug)]
pub struct Machine {
    lifetimes: Lifetimes,
    dns_name: String,
    /// The last serving certificate that every bundle accepted, for the time in which its Secret lacks such a one.
    served: Option<Pair>,
    /// The authority, and the time since which it has been in all bundles.
    settled: Option<(Certificate, i64)>,
}

impl Machine {
    /// A machine for the certificate of a DNS name.
    pub const fn new(lifetimes: Lifetimes, dns_name: String) -> Self {
        Self {
            lifetimes,
            dns_name,
            served: None,
            settled: None,
        }
    }

    /// Decides at a time, in seconds since 1970.
    pub fn plan(&mut self, now: i64, known: Known<'_>) -> Plan {
        let present = known.authority.and_then(|secret| usable(secret, now));
        let listed = known.authority.map_or_else(Vec::new, |secret| {
            let all = [&*secret.present.certificate, &*secret.previous].concat();
            valid(&all, now)
        });
        let bundles: Vec<_> = known.bundles.iter().map(|text| valid(text, now)).collect();
        let is_accepted = |leaf: &Certificate| is_accepted(leaf, &bundles, &listed);
        let (leaf, is_stored) = self.leaf(now, known.leaf, is_accepted);
        let certificate = present.as_ref().map(|authority| &authority.certificate);
        self.settle(now, certificate, known.bundles);

        let leaf_certificate = leaf.as_ref().map(|(certificate, _)| certificate);
        let is_known = leaf_certificate.is_some_and(|leaf| leaf.is_signed_by_any(&listed));
        let bundle = if is_known { &*listed } else { &[] };
        let mut plan = Plan {
            action: None,
            serve: None,
            bundle: bundle.iter().map(|c| &*c.pem).collect(),
            expiry: [certificate, leaf_certificate].map(|c| c.map(|c| c.not_after)),
            again_at: i64::MAX,
        };
        let new_authority = |reason| {
            let previous = previous(&listed, leaf_certificate, &bundles);
            Some(Action::NewAuthority { previous, reason })
        };
        plan.action = match certificate {
            None => new_authority("there is no usable authority of this program"),
            Some(c) if c.remaining(now) < third(self.lifetimes.authority) => {
                new_authority("the authority expires")
            }
            Some(c) => {
                plan.wake(c.not_after - third(self.lifetimes.authority) + 1);
                let old: Vec<Certificate> = listed.iter().filter(|o| *o != c).cloned().collect();
                match leaf_certificate {
                    // Each bundle has its authority, so a new bundle must have it too.
                    Some(leaf) if !is_known && is_accepted(leaf) => Some(Action::SetPrevious {
                        present: c.clone(),
                        previous: previous(&old, Some(leaf), &bundles),
                        reason: "the authority of the certificate that serves is missing",
                    }),
                    leaf => {
                        let leaf = leaf.map(|leaf| (leaf, is_stored));
                        self.with_authority(now, c, leaf, &old, &mut plan)
                    }
                }
            }
        };
        if plan.action.is_none()
            && let (Some(secret), Some(present)) = (known.authority, certificate)
        {
            let kept: Vec<Certificate> = listed.iter().skip(1).cloned().collect();
            if Certificate::parse_all(&secret.previous).len() > kept.len() {
                plan.action = Some(Action::SetPrevious {
                    present: present.clone(),
                    previous: kept,
                    reason: "a previous authority has expired or cannot be used",
                });
            }
        }
        plan.serve = leaf.map(|(_, key)| key);
        plan
    }

    /// Decides about the serving certificate while the present authority is fine.
    fn with_authority(
        &self,
        now: i64,
        present: &Certificate,
        leaf: Option<(&Certificate, bool)>,
        old: &[Certificate],
        plan: &mut Plan,
    ) -> Option<Action> {
        const NONE: Action = Action::NewLeaf {
            reason: "there is no usable serving certificate",
        };
        let Some((leaf, is_stored)) = leaf else {
            return Some(NONE);
        };
        plan.wake(leaf.not_after);
        if !leaf.is_signed_by(present) {
            if !leaf.is_signed_by_any(old) {
                return Some(Action::NewLeaf {
                    reason: "the authority of the serving certificate is unknown",
                });
            }
            return match &self.settled {
                Some((_, since)) if now - since >= x509::seconds(self.lifetimes.settle) => {
                    Some(Action::NewLeaf {
                        reason: "the authority is new",
                    })
                }
                Some((_, since)) => {
                    plan.wake(since + x509::seconds(self.lifetimes.settle));
                    None
                }
                None => None,
            };
        }
        if !is_stored {
            return Some(NONE);
        }
        if leaf.remaining(now) < third(self.lifetimes.leaf) {
            return Some(Action::NewLeaf {
                reason: "the serving certificate expires",
            });
        }
        plan.wake(leaf.not_after - third(self.lifetimes.leaf) + 1);
        if old.is_empty() {
            return None;
        }
        let until = leaf.made_at() + x509::seconds(self.lifetimes.retain);
        if now >= until {
            return Some(Action::SetPrevious {
                present: present.clone(),
                previous: Vec::new(),
                reason: "the previous authorities have signed nothing that serves",
            });
        }
        plan.wake(until);
        for authority in old {
            plan.wake(authority.not_after);
        }
        None
    }

    /// Notes since when the present authority has been in all bundles.
    fn settle(&mut self, now: i64, present: Option<&Certificate>, bundles: &[String]) {
        let in_all = |c: &Certificate| {
            let mut all = bundles.iter();
            all.all(|bundle| Certificate::parse_all(bundle).contains(c))
        };
        self.settled = match (self.settled.take(), present) {
            (_, Some(c)) if !in_all(c) => None,
            (Some((same, since)), Some(c)) if same == *c => Some((same, since.min(now))),
            (_, Some(c)) => Some((c.clone(), now)),
            (_, None) => None,
        };
    }

    /// The certificate to serve with, and whether it is the Secret's: while that has none that every bundle accepts, the
    /// last one is served on if they accept that.
    fn leaf(
        &mut self,
        now: i64,
        stored: Option<&Pair>,
        is_accepted: impl Fn(&Certificate) -> bool,
    ) -> (Option<(Certificate, CertifiedKey)>, bool) {
        let server = |pair: &Pair| self.server(pair, now);
        let found = stored.and_then(server);
        if found.as_ref().is_some_and(|(leaf, _)| is_accepted(leaf)) {
            self.served = stored.cloned();
            return (found, true);
        }
        let served = self.served.as_ref().and_then(server);
        match served.filter(|(leaf, _)| is_accepted(leaf)) {
            Some(served) => (Some(served), false),
            None => (found, true),
        }
    }

    /// What the Secret of the serving certificate has to serve with, while nothing else is known.
    pub fn usable(&self, leaf: &Pair, now: i64) -> Option<CertifiedKey> {
        self.server(leaf, now).map(|(_, key)| key)
    }

    /// The serving certificate, if clients accept it now as far as that does not depend on their bundle.
    fn server(&self, pair: &Pair, now: i64) -> Option<(Certificate, CertifiedKey)> {
        let (certificate, key) = server_key(pair).ok()?;
        let named = certificate.names.contains(&self.dns_name);
        (named && certificate.is_valid_at(now)).then_some((certificate, key))
    }
}

impl Plan {
    fn wake(&mut self, at: i64) {
        self.again_at = self.again_at.min(at);
    }
}

/// The present authority, if it is this program's and can sign now.
fn usable(secret: &AuthoritySecret, now: i64) -> Option<Authority> {
    let authority = Authority::parse(&secret.present).ok()?;
    authority.certificate.is_valid_at(now).then_some(authority)
}

/// The different authorities of a text that are valid now, in order.
fn valid(text: &str, now: i64) -> Vec<Certificate> {
    let mut found: Vec<Certificate> = Vec::new();
    for certificate in Certificate::parse_all(text) {
        let is_usable = certificate.is_authority && certificate.is_valid_at(now);
        if is_usable && !found.contains(&certificate) && found.len() <= MOST_PREVIOUS {
            found.push(certificate);
        }
    }
    found
}

/// Whether the API server accepts a serving certificate in every call, by the valid authorities of the bundles.
fn is_accepted(leaf: &Certificate, bundles: &[Vec<Certificate>], listed: &[Certificate]) -> bool {
    match bundles {
        // Nothing is registered yet.
        [] => leaf.is_signed_by_any(listed),
        bundles => bundles.iter().all(|bundle| leaf.is_signed_by_any(bundle)),
    }
}

/// The previous authorities beside a present one: those of the Secret, and whatever in the bundles has signed the
/// certificate that serves now, in case the Secret was lost.
fn previous(
    listed: &[Certificate],
    leaf: Option<&Certificate>,
    bundles: &[Vec<Certificate>],
) -> Vec<Certificate> {
    let has_signed = |authority: &Certificate| leaf.is_some_and(|l| l.is_signed_by(authority));
    let mut found: Vec<Certificate> = Vec::new();
    // First, since the last ones are left out: without it the certificate that serves would be refused.
    let all = listed.iter().chain(bundles.iter().flatten());
    let signers = all.filter(|authority| has_signed(authority));
    for authority in signers.chain(listed) {
        if !found.contains(authority) {
            found.push(authority.clone());
        }
    }
    found.truncate(MOST_PREVIOUS);
    found
}

/// A third of a life, in seconds.
fn third(life: Duration) -> i64 {
    x509::seconds(life) / 3
}

#[cfg(test)]
mod tests;
