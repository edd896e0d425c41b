//! The throttle of retries (gRFC A6): a channel whose calls mostly fail stops repeating them.
//!
//! Servers that are overloaded fail calls, and repeated calls overload them more. So the channel counts failures and
//! successes in one number of tokens, which all of its calls share. Retries need more than half of the tokens.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crowfly_lb::CallOutcome;
use crowfly_model::grpc::route::{Forward, StatusCodes};

use super::retry::RetrySettings;

/// Tokens are counted in thousandths, because that is how finely a ratio can be set (gRFC A6).
const TOKEN: u32 = 1000;

/// The most tokens that can be set (gRFC A6).
const MOST_TOKENS: u32 = 1000;

/// The tokens of a channel.
///
/// The state is one atomic number without a lock. The order in which concurrent calls count does not matter, because
/// each of them adds or takes an amount of its own.
#[derive(Debug)]
pub(crate) struct RetryThrottle {
    max: u32,
    gain: u32,
    tokens: AtomicU32,
}

impl RetryThrottle {
    /// A full bucket of `max_tokens`, of which every success refills `token_ratio`. The error says which of
    /// the two is out of the range of gRFC A6.
    pub(crate) fn new(max_tokens: u32, token_ratio: f64) -> Result<Self, String> {
        if !(1..=MOST_TOKENS).contains(&max_tokens) {
            return Err(format!(
                "expected 1 to {MOST_TOKENS} tokens at most, got {max_tokens}"
            ));
        }
        // Digits after the third do not count (gRFC A6). A cast of a float saturates, and NaN becomes 0.
        let gain = (token_ratio * f64::from(TOKEN)) as u32;
        if gain == 0 {
            return Err(format!(
                "expected a ratio of at least 0.001, got {token_ratio}"
            ));
        }
        let max = max_tokens * TOKEN;
        Ok(Self {
            max,
            gain: gain.min(max),
            tokens: AtomicU32::new(max),
        })
    }

    /// Counts a failure. False if no call may be repeated now.
    pub(super) fn failed(&self) -> bool {
        let less = |tokens: u32| tokens.saturating_sub(TOKEN);
        self.update(less) > self.max / 2
    }

    /// Counts a success.
    pub(super) fn succeeded(&self) {
        // A healthy channel is full. Then its calls only read the number, and share it between processors.
        if self.tokens.load(Relaxed) < self.max {
            self.update(|tokens| (tokens + self.gain).min(self.max));
        }
    }

    /// The thousandths of tokens that are left.
    #[cfg(test)]
    pub(super) fn tokens(&self) -> u32 {
        self.tokens.load(Relaxed)
    }

    /// The number of tokens after the change.
    fn update(&self, change: impl Fn(u32) -> u32) -> u32 {
        let before = self
            .tokens
            .fetch_update(Relaxed, Relaxed, |tokens| Some(change(tokens)));
        match before {
            Ok(before) | Err(before) => change(before),
        }
    }
}

/// The count of a call whose response has begun. The call will not be repeated, but its end counts like any other (gRFC
/// A6).
#[derive(Debug)]
pub(super) struct Tally {
    throttle: Arc<RetryThrottle>,
    /// The codes that count as failures.
    codes: StatusCodes,
}

impl Tally {
    /// `None` on a channel without a throttle.
    pub(super) fn of(settings: &RetrySettings, route: &Forward) -> Option<Self> {
        let throttle = settings.throttle.clone()?;
        let codes = route.retry.as_ref().map(|policy| policy.retry_on);
        Some(Self {
            throttle,
            codes: codes.unwrap_or_default(),
        })
    }

    /// Counts the end of the call.
    pub(super) fn count(&self, outcome: CallOutcome) {
        match outcome {
            CallOutcome::OK => self.throttle.succeeded(),
            // The end that the caller chose says nothing about the servers.
            CallOutcome::Cancelled | CallOutcome::DeadlineExceeded => {}
            _ if self.codes.contains(outcome.code()) => {
                self.throttle.failed();
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A6: integers from 1 to 1000, and a ratio above 0 with three digits.
    #[test]
    fn settings() {
        for (max, ratio) in [(1, 0.001), (10, 0.1), (1000, 1e9), (3, f64::INFINITY)] {
            assert!(RetryThrottle::new(max, ratio).is_ok(), "{max}, {ratio}");
        }
        for (max, ratio) in [(0, 0.1), (1001, 0.1), (10, 0.0), (10, 0.0009), (10, -1.0)] {
            assert!(RetryThrottle::new(max, ratio).is_err(), "{max}, {ratio}");
        }
        assert_eq!(
            RetryThrottle::new(0, 0.1).unwrap_err(),
            "expected 1 to 1000 tokens at most, got 0"
        );
        assert_eq!(
            RetryThrottle::new(10, f64::NAN).unwrap_err(),
            "expected a ratio of at least 0.001, got NaN"
        );
    }

    /// gRFC A6: retries need more than half of the tokens.
    #[test]
    fn the_threshold_is_half() {
        let throttle = RetryThrottle::new(4, 0.5).unwrap();
        assert!(throttle.failed(), "3 of 4 are left");
        assert!(!throttle.failed(), "2 of 4 are left");
        throttle.succeeded();
        throttle.succeeded();
        assert!(!throttle.failed(), "2 again");
        for _ in 0..3 {
            throttle.succeeded();
        }
        assert!(throttle.failed(), "2.5 of 4 are left");
        // An odd number: half of 3 is 1.5.
        let throttle = RetryThrottle::new(3, 0.1).unwrap();
        assert!(throttle.failed(), "2");
        assert!(!throttle.failed(), "1");
    }

    /// gRFC A6: digits after the third are ignored.
    #[test]
    fn a_ratio_has_three_digits() {
        let throttle = RetryThrottle::new(2, 0.5466).unwrap();
        throttle.failed();
        throttle.succeeded();
        assert_eq!(throttle.tokens(), 1546);
    }

    /// gRFC A6: the number stays between 0 and the most.
    #[test]
    fn tokens_have_bounds() {
        let throttle = RetryThrottle::new(2, 1e9).unwrap();
        for _ in 0..5 {
            throttle.failed();
        }
        assert_eq!(throttle.tokens(), 0);
        for _ in 0..5 {
            throttle.succeeded();
        }
        assert_eq!(throttle.tokens(), 2000);
    }

    /// grpc-go's numbers for this sequence (`TestRetryThrottling`), in tokens of 10 with a ratio of 0.5.
    #[test]
    fn a_known_sequence() {
        let throttle = RetryThrottle::new(10, 0.5).unwrap();
        let (ok, failed) = (|| throttle.succeeded(), || throttle.failed());
        ok();
        assert!(failed() && failed());
        ok(); // 8.5
        assert!(failed() && failed());
        ok(); // 7
        assert!(failed(), "6");
        assert!(!failed(), "5");
        assert!(!failed(), "4");
        for _ in 0..5 {
            ok(); // 6.5
        }
        assert!(failed(), "5.5");
        ok(); // 6
        assert!(!failed(), "5");
    }
}
