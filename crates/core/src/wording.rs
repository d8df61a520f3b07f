//! Texts of conditions that earlier versions wrote. A stored condition that says the same in such a text stays as it is, so
//! that an upgrade writes no status and no Event because a text was reworded. And what texts have in common: their limits.

use std::borrow::Cow;

use harvester_lb_api::condition::{self, Condition, ConditionStatus};

/// Maximum length of a LoadBalancer's condition message, in bytes: enough to explain, no place to store data.
pub const MESSAGE_LIMIT: usize = 1024;

/// Longest encoding of a character, in bytes: a message that was cut between characters is shorter than the limit by less.
const CHARACTER: usize = 4;

/// Separates the parts of a message.
pub const SEPARATOR: &str = "; ";

/// A text of an earlier version, and the text of this one. Each is a part of a message, or a whole message. `{}` stands for a
/// value in both, `{_}` for one that only the earlier text has.
const REWORDED: [(&str, &str); 20] = [
    // These messages count nothing any more: they change only with the reason to wait (SEL-7).
    ("and {_} more", "and others"),
    (
        "{}: none of its {_} scopes matches",
        "{}: none of its scopes matches",
    ),
    (
        "{}: {_} older load balancers wait for its free addresses",
        "{}: older load balancers wait for its free addresses",
    ),
    (
        "{}: all IPv4 addresses are taken, and a load balancer of workload type vm gets no other",
        "{}: all IPv4 addresses are taken, and a load balancer of workload type vm can use no other",
    ),
    (
        "{}: has IPv6 addresses alone, and a load balancer of workload type vm gets none of those: name a pool with IPv4 addresses",
        "{}: has only IPv6 addresses, which a load balancer of workload type vm cannot use: name a pool with IPv4 addresses",
    ),
    (
        "{}: matches only loosely, and {} is chosen before that",
        "{}: matches only loosely, and {} takes precedence",
    ),
    (
        "{}: IPAllocation {} cannot be read; repair or delete it",
        "{}: IPAllocation {} unreadable; its address stays blocked until the object is repaired or deleted",
    ),
    (
        "Service {_} has no external address yet; kube-vip is to announce {}",
        "waiting for kube-vip to announce {}",
    ),
    (
        "the IPAllocation of {} cannot be written: its address is still recorded for LoadBalancer {}, which is gone; that record could not be released yet",
        "the IPAllocation of {} cannot be written: its address still belongs to LoadBalancer {}, which is deleted; that IPAllocation could not be released yet",
    ),
    (
        "nothing of the load balancer is made, changed or released",
        "nothing of the load balancer is created, changed or released",
    ),
    (
        "it is kept until the load balancer goes",
        "it stays allocated as long as a load balancer has it",
    ),
    (
        "it stays allocated until the load balancer is deleted",
        "it stays allocated as long as a load balancer has it",
    ),
    ("{} was given instead", "{} was allocated instead"),
    (
        "no backend was judged yet",
        "no backend has a health check result yet",
    ),
    (
        "what one gives out is taken for the other",
        "an address allocated from one is taken in both",
    ),
    (
        "IPPool {}: this version does not support the annotation {}, so nothing new is handed out",
        "IPPool {}: this version does not support the annotation {}, so no new address is allocated",
    ),
    ("what is held stays", "addresses in use stay allocated"),
    (
        "{}: this version does not support its annotation {}, so nothing new is handed out",
        "{}: this version does not support its annotation {}, so no new address is allocated",
    ),
    ("left out: {}", "excluded from the backends: {}"),
    (
        "they are kept until their owners go",
        "they stay allocated until their owners are deleted",
    ),
];

/// A name of at most this many bytes, and an ellipsis if it is cut.
pub(crate) fn shortened(name: &str, limit: usize) -> Cow<'_, str> {
    if name.len() <= limit {
        return Cow::Borrowed(name);
    }
    Cow::Owned(format!("{}...", &name[..name.floor_char_boundary(limit)]))
}

/// As [`condition::set`], but a stored condition whose message only differs in its wording stays as it is.
pub fn set(
    conditions: &mut Vec<Condition>,
    type_: &str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
    now: &str,
) {
    let same = condition::find(conditions, type_).is_some_and(|stored| {
        stored.status == status.as_str()
            && stored.reason.as_deref() == Some(reason)
            && says_the_same(stored.message.as_deref().unwrap_or_default(), message)
    });
    if !same {
        condition::set(conditions, type_, status, reason, message, now);
    }
}

/// Whether a stored message and that of this version differ at most in their wording. Of a message that was cut at
/// [`MESSAGE_LIMIT`], the last part is not complete and is not compared.
pub fn says_the_same(stored: &str, now: &str) -> bool {
    let is_said = |stored: &str, now: &str| part(stored).is_some_and(|text| text == now);
    if stored == now || is_said(stored, now) {
        return true;
    }
    let is_cut = stored.len() + CHARACTER > MESSAGE_LIMIT;
    let mut is_reworded = false;
    let mut parts = now.split(SEPARATOR);
    let mut earlier = stored.split(SEPARATOR).peekable();
    while let Some(stored) = earlier.next() {
        // Part by part: a text that both versions have may be an earlier form of another one too.
        let now = parts.next();
        if now.is_some_and(|now| is_said(stored, now)) {
            is_reworded = true;
        } else if now != Some(stored) {
            let is_last = earlier.peek().is_none();
            return is_cut && is_reworded && is_last && now.is_some();
        }
    }
    parts.next().is_none() || is_cut && is_reworded
}

/// A part of a message, or a whole one, in the words of this version, if an earlier one worded it differently.
fn part(text: &str) -> Option<String> {
    REWORDED.iter().find_map(|(before, now)| {
        let mut values = values(before, text)?.into_iter();
        let mut pieces = now.split("{}");
        let first = pieces.next()?.to_owned();
        Some(pieces.fold(first, |said, piece| {
            said + values.next().unwrap_or_default() + piece
        }))
    })
}

/// What a text says where its template has `{}`; `None` if it is not of this template. No value is empty or spans parts.
fn values<'a>(template: &str, text: &'a str) -> Option<Vec<&'a str>> {
    let mut pieces = template.split('{');
    let mut rest = text.strip_prefix(pieces.next()?)?;
    let mut values = Vec::new();
    let mut pieces = pieces.peekable();
    while let Some(piece) = pieces.next() {
        let (hole, literal) = piece.split_once('}')?;
        let is_last = pieces.peek().is_none();
        let (value, after) = if is_last {
            (rest.strip_suffix(literal)?, "")
        } else {
            rest.split_once(literal)?
        };
        if value.is_empty() || value.contains(SEPARATOR) {
            return None;
        }
        if hole.is_empty() {
            values.push(value);
        }
        rest = after;
    }
    rest.is_empty().then_some(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A message in the words of this version.
    fn reworded(message: &str) -> String {
        part(message).unwrap_or_else(|| {
            let parts = message.split(SEPARATOR);
            let parts = parts.map(|text| part(text).unwrap_or_else(|| text.to_owned()));
            parts.collect::<Vec<_>>().join(SEPARATOR)
        })
    }

    /// A template with values: those of `{}` by the first function, those of `{_}` by the second.
    fn filled(template: &str, kept: impl Fn(usize) -> String, gone: &str) -> String {
        let mut pieces = template.split("{}");
        let first = pieces.next().unwrap().to_owned();
        let text = pieces
            .enumerate()
            .fold(first, |text, (at, piece)| text + &kept(at) + piece);
        text.replace("{_}", gone)
    }

    #[test]
    fn sel_7_each_earlier_text_says_the_same_with_the_same_values_alone() {
        let value = |at: usize| format!("pool \"ns/a-{at}\", fd10::{at}");
        for (before, now) in REWORDED {
            let holes = before.matches("{}").count();
            assert_eq!(holes, now.matches("{}").count(), "{before}");
            assert!(!now.contains("{_}"), "{now}");
            let told = filled(now, value, "");
            for gone in ["1", "17", "ns/name"] {
                let stored = filled(before, value, gone);
                assert!(says_the_same(&stored, &told), "{stored}");
                // Between other parts of a message.
                let amid =
                    |text: &str| format!("pool z: has no scope; {text}; pool y: has no scope");
                if !before.contains(SEPARATOR) {
                    assert!(says_the_same(&amid(&stored), &amid(&told)), "{stored}");
                }
                for other in 0..holes {
                    let changed = |at| value(if at == other { 9 } else { at });
                    let stored = filled(before, changed, gone);
                    assert!(!says_the_same(&stored, &told), "{stored}");
                }
            }
            assert!(!says_the_same(
                &filled(before, value, "1"),
                "something else"
            ));
            // This version's own text stays its own.
            assert_eq!(reworded(&told), told);
        }
    }

    #[test]
    fn sel_7_numbers_of_earlier_versions_say_nothing_else() {
        let stored = "pool a: 17 older load balancers wait for its free addresses; \
            pool b: none of its 2 scopes matches; pool c: has no scope; and 12 more";
        let now = "pool a: older load balancers wait for its free addresses; \
            pool b: none of its scopes matches; pool c: has no scope; and others";
        assert!(says_the_same(stored, now));
        assert!(says_the_same(now, now));
        let counted = "excluded from the backends: a; b; and 2 more";
        assert!(says_the_same("left out: a; b; and 2 more", counted));
        let held = "IPPool p: this version does not support the annotation x/y, so nothing new is handed out; \
            what is held stays";
        let kept = "IPPool p: this version does not support the annotation x/y, so no new address is allocated; \
            addresses in use stay allocated";
        assert!(says_the_same(held, kept));
        for (stored, now) in [
            ("pool a: all addresses are taken", "pool a: does not exist"),
            (
                "pool a: has no scope; and 2 more",
                "pool a: has no scope; pool b: has no scope",
            ),
            (
                "pool a: has no scope; and more",
                "pool a: has no scope; and others",
            ),
            ("pool a: has no scope; and 2 more", "pool a: has no scope"),
            // Where this version counts, another number is another message.
            ("left out: a; and 2 more", "left out: a; and 3 more"),
            (
                "left out: a; and 2 more",
                "excluded from the backends: a; and 3 more",
            ),
        ] {
            assert!(!says_the_same(stored, now), "{stored}");
        }
    }

    #[test]
    fn section_9_what_is_left_of_a_message_that_was_cut_is_compared() {
        let message = |scopes: &str| -> String {
            let pool =
                |at: u8| format!("pool {}{at}: none of its {scopes}matches", "p".repeat(200));
            (0..8).map(pool).collect::<Vec<_>>().join(SEPARATOR)
        };
        let cut = |text: String| text[..MESSAGE_LIMIT].to_owned();
        let stored = cut(message("2 scopes "));
        let now = cut(message("scopes "));
        assert!(says_the_same(&stored, &now));
        assert!(!says_the_same(&stored.replace("p0", "p9"), &now));
        assert!(!says_the_same(&now.replace("p0", "p9"), &now));
        assert!(!says_the_same(&"x".repeat(MESSAGE_LIMIT), &now));
    }
}
