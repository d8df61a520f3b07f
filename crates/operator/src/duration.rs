//! Parsing of durations in flags.

use std::time::Duration;

/// Parses a duration such as `15s`, `500ms`, `2m`, or a number of seconds.
///
/// # Errors
/// Any other text; the message says how to write it.
pub fn parse(text: &str) -> Result<Duration, String> {
    let number = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let unit = &text[number.len()..];
    let value: u64 = number
        .parse()
        .map_err(|_| format!("{text:?} is not a duration; write it like 15s, 500ms or 2m"))?;
    match unit {
        "ms" => Ok(Duration::from_millis(value)),
        "s" | "" => Ok(Duration::from_secs(value)),
        "m" => Ok(Duration::from_secs(value.saturating_mul(60))),
        _ => Err(format!(
            "{text:?} has the unknown unit {unit:?}; use ms, s or m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations() {
        assert_eq!(parse("15s"), Ok(Duration::from_secs(15)));
        assert_eq!(parse("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse("2m"), Ok(Duration::from_mins(2)));
        assert_eq!(parse("7"), Ok(Duration::from_secs(7)));
        for bad in ["", "s", "-1s", "1h", "1.5s"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
