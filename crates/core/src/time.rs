//! Times in text. The time itself is always an argument.

use harvester_lb_ipam::Micros;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

/// Seconds resolution, as conditions carry it.
pub fn rfc3339(at: Micros) -> String {
    format!("{:.0}", timestamp(at))
}

/// Microseconds resolution, as records carry it.
pub fn rfc3339_micros(at: Micros) -> String {
    format!("{:.6}", timestamp(at))
}

/// Reads what [`rfc3339_micros`] wrote, or any other RFC 3339 time.
pub fn parse(text: &str) -> Option<Micros> {
    text.parse::<Timestamp>()
        .ok()
        .map(|t| Micros(t.as_microsecond()))
}

/// When an object was made; the time's beginning if it does not say.
pub fn created(meta: &ObjectMeta) -> Micros {
    meta.creation_timestamp.as_ref().map_or(Micros(0), of)
}

/// A time in metadata.
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
