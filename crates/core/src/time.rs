//! Conversion of times from and to text. The current time is always an argument.

use harvester_lb_ipam::Micros;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// RFC 3339 in UTC with whole seconds, as in conditions (section 9). A time outside the years -9999 to 9999 becomes the Unix
/// epoch.
pub fn rfc3339(at: Micros) -> String {
    format!("{:.0}", timestamp(at))
}

/// RFC 3339 in UTC with microseconds, as in IPAllocations (section 6.5). Range as in [`rfc3339`].
pub fn rfc3339_micros(at: Micros) -> String {
    format!("{:.6}", timestamp(at))
}

/// Parses an RFC 3339 time, with or without fractions of a second; `None` for any other text. Digits below a microsecond
/// are dropped.
pub fn parse(text: &str) -> Option<Micros> {
    text.parse::<Timestamp>()
        .ok()
        .map(|t| Micros(t.as_microsecond()))
}

/// The creationTimestamp of an object; the Unix epoch if it has none.
pub fn created(meta: &ObjectMeta) -> Micros {
    meta.creation_timestamp.as_ref().map_or(Micros(0), of)
}

/// Converts a time of the metadata.
pub fn of(time: &Time) -> Micros {
    Micros(time.0.as_microsecond())
}

fn timestamp(at: Micros) -> Timestamp {
    Timestamp::from_microsecond(at.0).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_round_trip() {
        let at = Micros(1_767_225_600_123_456);
        assert_eq!(rfc3339(at), "2026-01-01T00:00:00Z");
        assert_eq!(rfc3339_micros(at), "2026-01-01T00:00:00.123456Z");
        assert_eq!(parse(&rfc3339_micros(at)), Some(at));
        assert_eq!(
            parse("2026-01-01T01:00:00+01:00"),
            Some(Micros(1_767_225_600_000_000))
        );
        assert_eq!(parse("yesterday"), None);
        assert_eq!(rfc3339(Micros(i64::MAX)), "1970-01-01T00:00:00Z");
    }
}
