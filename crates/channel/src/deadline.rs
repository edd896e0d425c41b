//! The deadline of a call, from its `grpc-timeout` header.

use std::future::Future;
use std::time::Duration;

use http::HeaderMap;
use tokio::time::{Instant, timeout_at};
use tonic::Status;

const HEADER: &str = "grpc-timeout";

/// When a call must be over, if ever.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline(Option<(Instant, Duration)>);

impl Deadline {
    /// Reads the header, as tonic clients set it. A malformed one is the caller's error.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Self, Status> {
        let Some(value) = headers.get(HEADER) else {
            return Ok(Self(None));
        };
        let timeout = value.to_str().ok().and_then(parse).ok_or_else(|| {
            Status::invalid_argument(format!(
                "{HEADER}: expected up to 8 digits and a unit (H M S m u n), got {value:?}"
            ))
        })?;
        // Too far away to be represented is as good as never.
        let at = Instant::now().checked_add(timeout);
        Ok(Self(at.map(|at| (at, timeout))))
    }

    /// The moment itself.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0.map(|(at, _)| at)
    }

    /// Runs `step`, but not past the deadline; `what` says what was waited for.
    pub(crate) async fn bound<F: Future>(
        &self,
        step: F,
        what: impl FnOnce() -> String,
    ) -> Result<F::Output, Status> {
        match self.0 {
            None => Ok(step.await),
            Some((at, _)) => timeout_at(at, step)
                .await
                .map_err(|_| self.exceeded(&what())),
        }
    }

    /// Fails if the time is up; `what` says what was waited for.
    pub(crate) fn check(&self, what: impl FnOnce() -> String) -> Result<(), Status> {
        match self.0 {
            Some((at, _)) if at <= Instant::now() => Err(self.exceeded(&what())),
            _ => Ok(()),
        }
    }

    /// The status of a call whose time is up.
    pub(crate) fn exceeded(&self, what: &str) -> Status {
        let timeout = self.0.map(|(_, timeout)| timeout).unwrap_or_default();
        Status::deadline_exceeded(format!(
            "the call's {timeout:?} ended while waiting for {what}"
        ))
    }
}

/// `TimeoutValue TimeoutUnit` of gRPC's HTTP/2 protocol.
fn parse(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    if digits.is_empty() || digits.len() > 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let value: u64 = digits.parse().ok()?;
    Some(match unit {
        "H" => Duration::from_secs(value * 3600),
        "M" => Duration::from_secs(value * 60),
        "S" => Duration::from_secs(value),
        "m" => Duration::from_millis(value),
        "u" => Duration::from_micros(value),
        "n" => Duration::from_nanos(value),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_of_grpc_timeout_is_understood() {
        for (text, expected) in [
            ("2H", Duration::from_secs(7200)),
            ("3M", Duration::from_secs(180)),
            ("4S", Duration::from_secs(4)),
            ("5m", Duration::from_millis(5)),
            ("6u", Duration::from_micros(6)),
            ("99999999n", Duration::from_nanos(99_999_999)),
        ] {
            assert_eq!(parse(text), Some(expected), "{text}");
        }
    }

    #[test]
    fn a_malformed_grpc_timeout_is_refused() {
        for text in ["", "S", "1", "-1S", "1s", "123456789S", "1.5S", "5é"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
