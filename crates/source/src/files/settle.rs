//! Waits until files that are being written have come to rest.
//!
//! A program that writes `> mesh.yaml` truncates the file first and fills it later. What a reader
//! sees in between is well-formed and deletes everything. So a file is read once it has been
//! unchanged for a while.

use std::future::Future;
use std::time::Duration;

use tokio::time::{Instant, timeout};
use tracing::warn;

/// The time that files must be unchanged before they are read.
pub(super) const QUIET: Duration = Duration::from_millis(100);

/// The time that files may change without a rest before the log says so.
const PATIENCE: Duration = Duration::from_secs(5);

/// Something that may be changing.
pub(super) trait Unrest {
    /// Its state at one moment.
    type Seen: PartialEq;

    /// Its state now. This is what counts, because network file systems tell of no events.
    fn look(&mut self) -> impl Future<Output = Self::Seen> + Send;

    /// Waits until something is said to have changed.
    fn event(&mut self) -> impl Future<Output = ()> + Send;
}

/// Returns the state of `files` once nothing has changed, and no event has come, for [`QUIET`].
pub(super) async fn settled<U: Unrest>(files: &mut U) -> U::Seen {
    let begin = Instant::now();
    let mut warned = false;
    let mut seen = files.look().await;
    loop {
        let is_quiet = timeout(QUIET, files.event()).await.is_err();
        let now = files.look().await;
        if is_quiet && now == seen {
            return now;
        }
        seen = now;
        if !warned && begin.elapsed() >= PATIENCE {
            warned = true;
            warn!(
                "the configuration has been changing for {PATIENCE:?}; it is read once it has been \
                 unchanged for {QUIET:?}"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{sleep, sleep_until};

    use super::*;

    const STEP: Duration = Duration::from_millis(60);

    /// A file that is written letter by letter, one each [`STEP`], from when it is made.
    struct Written {
        begin: Instant,
        letters: u32,
        has_events: bool,
    }

    impl Written {
        fn begin(letters: u32, has_events: bool) -> Self {
            let begin = Instant::now();
            Self {
                begin,
                letters,
                has_events,
            }
        }

        fn steps(&self) -> u32 {
            let steps = self.begin.elapsed().as_millis() / STEP.as_millis();
            u32::try_from(steps).unwrap()
        }
    }

    impl Unrest for Written {
        type Seen = u32;

        async fn look(&mut self) -> u32 {
            self.steps().min(self.letters)
        }

        async fn event(&mut self) {
            match self.steps() {
                steps if self.has_events && steps < self.letters => {
                    sleep_until(self.begin + STEP * (steps + 1)).await;
                }
                _ => std::future::pending().await,
            }
        }
    }

    /// Time stands still until everything waits, so these times are exact.
    #[tokio::test(start_paused = true)]
    async fn a_file_is_read_once_it_was_unchanged_for_100_ms() {
        let mut file = Written::begin(6, true);
        assert_eq!(settled(&mut file).await, 6);
        assert_eq!(file.begin.elapsed(), STEP * 6 + QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_at_rest_is_read_after_100_ms() {
        let mut file = Written::begin(0, true);
        assert_eq!(settled(&mut file).await, 0);
        assert_eq!(file.begin.elapsed(), QUIET);
    }

    /// Network file systems send no events.
    #[tokio::test(start_paused = true)]
    async fn a_change_without_an_event_is_noticed() {
        let mut file = Written::begin(6, false);
        assert_eq!(settled(&mut file).await, 6);
        assert!(file.begin.elapsed() >= STEP * 6 + QUIET);
    }

    /// Three events, and nothing to see: a program that touches a file may not be done with it.
    struct Touched(u32);

    impl Unrest for Touched {
        type Seen = ();

        async fn look(&mut self) {}

        async fn event(&mut self) {
            match self.0 {
                0 => std::future::pending().await,
                _ => {
                    self.0 -= 1;
                    sleep(STEP).await;
                }
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_without_a_change_is_waited_for() {
        let begin = Instant::now();
        settled(&mut Touched(3)).await;
        assert_eq!(begin.elapsed(), STEP * 3 + QUIET);
    }
}
