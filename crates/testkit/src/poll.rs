//! Owns waiting: [`eventually`] for a condition, [`consistently`] for what must not happen. Tests use them instead of sleeping.

use std::future::Future;
use std::time::Duration;

use anyhow::{Context, anyhow};
use tokio::time::Instant;

/// Pauses between two polls. Short, because most conditions hold within a second; not shorter, and longer for what takes longer,
/// because polling slows down the machine that works on the condition.
const INTERVALS: [Duration; 2] = [Duration::from_millis(50), Duration::from_millis(250)];
/// The part of the time waited so far that a pause may take.
const SHARE: u32 = 20;
/// The same for [`consistently`]. Longer, because a violation that lasts is found at the end at the latest.
const SLOW_INTERVAL: Duration = Duration::from_millis(250);

/// Polls `probe` until it returns a value.
///
/// `Ok(None)` and errors mean not yet; on timeout, the last error is in the message.
pub async fn eventually<T, F, Fut>(what: &str, timeout: Duration, mut probe: F) -> anyhow::Result<T>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<Option<T>>>,
{
    let began = Instant::now();
    let deadline = began + timeout;
    let mut last = String::from("the condition did not hold");
    loop {
        match tokio::time::timeout_at(deadline, probe()).await {
            Ok(Ok(Some(value))) => return Ok(value),
            Ok(Ok(None)) => {}
            Ok(Err(error)) => last = format!("{error:#}"),
            Err(_) => return Err(anyhow!("{what}: not within {timeout:?}: {last}")),
        }
        let interval = interval(began.elapsed());
        if Instant::now() + interval >= deadline {
            return Err(anyhow!("{what}: not within {timeout:?}: {last}"));
        }
        tokio::time::sleep(interval).await;
    }
}

/// The pause after the condition was waited for this long.
fn interval(waited: Duration) -> Duration {
    let [least, most] = INTERVALS;
    (waited / SHARE).clamp(least, most)
}

/// Polls `probe` for this time: it must succeed each time, at the beginning and at the end too.
///
/// # Errors
/// The first error of `probe`.
pub async fn consistently<F, Fut>(what: &str, time: Duration, mut probe: F) -> anyhow::Result<()>
where
    F: FnMut() -> Fut,
    Fut: Future<Output = anyhow::Result<()>>,
{
    let began = Instant::now();
    loop {
        let passed = began.elapsed();
        probe()
            .await
            .with_context(|| format!("{what}: not after {passed:?}"))?;
        let left = time.saturating_sub(passed);
        if left.is_zero() {
            return Ok(());
        }
        tokio::time::sleep(left.min(SLOW_INTERVAL)).await;
    }
}

#[cfg(test)]
mod tests {
    use anyhow::ensure;

    use super::*;

    const TIME: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn what_takes_long_is_asked_for_less_often() {
        let (began, mut polls) = (Instant::now(), Vec::new());
        let outcome = eventually("never", TIME * 30, || {
            polls.push(began.elapsed());
            std::future::ready(Ok(None::<()>))
        });
        assert!(outcome.await.is_err());
        let within = |time: Duration| polls.iter().filter(|at| **at < time).count();
        assert_eq!(within(TIME), 20);
        assert!(within(TIME * 30) < 200, "{}", polls.len());
        let longest = polls.windows(2).map(|pair| pair[1].abs_diff(pair[0])).max();
        assert_eq!(longest, Some(INTERVALS[1]));
    }

    #[tokio::test(start_paused = true)]
    async fn what_holds_is_looked_at_for_the_whole_time() {
        let (began, mut polls) = (Instant::now(), Vec::new());
        let outcome = consistently("nothing", TIME, || {
            polls.push(began.elapsed());
            std::future::ready(Ok(()))
        });
        outcome.await.unwrap();
        assert_eq!(polls.first(), Some(&Duration::ZERO));
        assert_eq!(polls.last(), Some(&TIME));
    }

    #[tokio::test(start_paused = true)]
    async fn what_happens_meanwhile_is_an_error_at_once() {
        for at in [Duration::ZERO, TIME / 2, TIME] {
            let began = Instant::now();
            let outcome = consistently("nothing", TIME, || async {
                ensure!(began.elapsed() < at, "it happened");
                Ok(())
            });
            let text = format!("{:#}", outcome.await.unwrap_err());
            assert!(text.contains("it happened"), "{text}");
            assert_eq!(
                began.elapsed(),
                at,
                "the polls are at a quarter of the time each"
            );
        }
    }
}
