//! Texts that earlier versions wrote: what says the same as a text of this version stays as it is, so that an upgrade writes
//! nothing because of a word.

use std::borrow::Cow;

/// How an earlier version ended a part of a message, before and after a number, and how this one does: it counts nothing in
/// the messages of those who wait, so that they change only with what they tell of (SEL-7).
const REWORDED: [(&str, &str, &str); 3] = [
    ("and ", " more", "and others"),
    (
        ": none of its ",
        " scopes matches",
        ": none of its scopes matches",
    ),
    (
        ": ",
        " older load balancers wait for its free addresses",
        ": older load balancers wait for its free addresses",
    ),
];

/// Whether a stored message differs from the one of this version by nothing but its words.
pub fn says_the_same(stored: &str, now: &str) -> bool {
    stored
        .split("; ")
        .map(in_words_of_today)
        .eq(now.split("; "))
}

fn in_words_of_today(part: &str) -> Cow<'_, str> {
    for (before, after, now) in REWORDED {
        let Some(counted) = part.strip_suffix(after) else {
            continue;
        };
        let text = counted.trim_end_matches(|c: char| c.is_ascii_digit());
        if text.len() < counted.len()
            && let Some(start) = text.strip_suffix(before)
        {
            return Cow::Owned(format!("{start}{now}"));
        }
    }
    Cow::Borrowed(part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sel_7_numbers_of_earlier_versions_say_nothing_else() {
        let stored = "pool a: 17 older load balancers wait for its free addresses; \
            pool b: none of its 2 scopes matches; pool c: has no scope; and 12 more";
        let now = "pool a: older load balancers wait for its free addresses; \
            pool b: none of its scopes matches; pool c: has no scope; and others";
        assert!(says_the_same(stored, now));
        assert!(says_the_same(now, now));
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
        ] {
            assert!(!says_the_same(stored, now), "{stored}");
        }
    }
}
