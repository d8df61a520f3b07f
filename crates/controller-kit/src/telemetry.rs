//! Logging: one line per event on standard error, as text on a terminal, else as JSON.

use std::io::IsTerminal;

use anyhow::Context;
use tracing_subscriber::EnvFilter;

/// Starts logging at a level (`error`, `warn`, `info`, `debug`, `trace`) or with a filter in the syntax of
/// `tracing_subscriber`. The level names of logrus, which the Go operator accepted, work too.
pub fn init(level: &str) -> anyhow::Result<()> {
    let level = match level.to_ascii_lowercase().as_str() {
        "warning" => "warn".to_owned(),
        "fatal" | "panic" => "error".to_owned(),
        _ => level.to_owned(),
    };
    // The client logs each failed request; so does the caller, which knows its purpose.
    let level = format!("kube_client=off,{level}");
    let filter = EnvFilter::try_new(&level)
        .with_context(|| format!("--loglevel {level:?} is neither a level nor a filter"))?;
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
