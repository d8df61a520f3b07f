//! Logging: one line per event on standard error, as text on a terminal, else as JSON.

use std::io::IsTerminal;

use anyhow::{Context, bail};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::LevelFilter;

/// What is valid, for messages.
const VALID: &str =
    "error, warn, info, debug, trace or off, or a filter of them such as info,kube=debug";

/// Starts logging at a level (`error`, `warn`, `info`, `debug`, `trace`) or with a filter in the syntax of
/// `tracing_subscriber`. The level names of logrus, which the Go operator accepted, work too.
pub fn init(level: &str) -> anyhow::Result<()> {
    let filter = filter(level)?;
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    if std::io::stderr().is_terminal() {
        log.try_init()
    } else {
        log.json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .try_init()
    }
    .map_err(|error| anyhow::anyhow!("the log cannot be started: {error}"))
}

/// The filter; an empty text, as of a variable without a value, is the level `info`. A word that is no level would be the name of a
/// module, of which all is logged and of the rest nothing.
fn filter(level: &str) -> anyhow::Result<EnvFilter> {
    let mut directives = Vec::new();
    for directive in level.split(',').map(str::trim).filter(|it| !it.is_empty()) {
        let known = match &*directive.to_ascii_lowercase() {
            "warning" => "warn",
            "fatal" | "panic" => "error",
            _ => directive,
        };
        let is_level = known.parse::<LevelFilter>().is_ok();
        if !is_level && !known.contains(['=', '[']) {
            bail!("--loglevel {level:?}: {directive:?} is no level; valid are {VALID}");
        }
        directives.push(known);
    }
    if directives.is_empty() {
        directives.push("info");
    }
    // The client logs each failed request; so does the caller, which knows its purpose.
    let all = format!("kube_client=off,{}", directives.join(","));
    EnvFilter::try_new(all)
        .with_context(|| format!("--loglevel {level:?} is no filter; valid are {VALID}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_1_levels_and_filters_are_taken() {
        for (level, wanted) in [
            ("info", LevelFilter::INFO),
            ("", LevelFilter::INFO),
            (" , ", LevelFilter::INFO),
            ("debug,", LevelFilter::DEBUG),
            ("DEBUG", LevelFilter::DEBUG),
            ("off", LevelFilter::OFF),
            ("Warning", LevelFilter::WARN),
            ("fatal", LevelFilter::ERROR),
            ("panic", LevelFilter::ERROR),
            ("info,kube=debug", LevelFilter::DEBUG),
            ("warning, kube::client=trace", LevelFilter::TRACE),
            ("error,[span]=info", LevelFilter::INFO),
        ] {
            let filter = filter(level).unwrap();
            assert_eq!(filter.max_level_hint(), Some(wanted), "{level}: {filter}");
            assert!(filter.to_string().contains("kube_client=off"), "{filter}");
        }
    }

    #[test]
    fn section_1_a_mistyped_level_is_refused_with_what_is_valid() {
        for level in ["inof", "info,debg", "kube::client", "kube=debg", "=["] {
            let refused = filter(level).unwrap_err().to_string();
            assert!(refused.contains(&format!("{level:?}")), "{refused}");
            assert!(refused.contains("info,kube=debug"), "{refused}");
        }
    }
}
