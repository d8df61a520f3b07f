//! Owns waiting: a bounded wait for a condition, which is what the tests have in place of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::anyhow;
use tokio::time::Instant;

/// Pause between two looks. Short, because most conditions hold within a second; not shorter,
/// because the machine is busy bringing the condition about.
const INTERVAL: Duration = Duration::from_millis(50);

/// Asks `probe` again and again until it gives a value.
///
/// `Ok(None)` means not yet, an error too; the last error is in the message when the time is over.
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
