//! Owns waiting: a bounded wait for a condition, which the tests use instead of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::Instant;

/// Pause between two polls. Short, because most conditions hold within a second; not shorter, because polling would
/// slow down the machine that works on the condition.
const INTERVAL: Duration = Duration::from_millis(50);

/// Polls `probe` until it returns a value.
///
/// `Ok(None)` and errors mean not yet; on timeout, the last error is in the message.
pub async fn eventually<T, F, Fut>(what: &str, timeout: Duration, mut probe: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<Option<T>>>,
{
    let deadline = Instant::now() + timeout;
    let mut last = String::from("the condition did not hold");
    loop {
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => return Err(anyhow!("{what}: not within {timeout:?}: {last}")),
        }
        if Instant::now() + INTERVAL >= deadline {
            return Err(anyhow!("{what}: not within {timeout:?}: {last}"));
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
