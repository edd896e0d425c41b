//! The deadline of a call.
//!
//! Tonic's clients set it only in the `grpc-timeout` header, so it is read from there. The route of the call may allow
//! less time (gRFC A31). The deadline bounds every wait of the call, because a server that hangs cannot be relied on to
//! keep it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{HeaderMap, HeaderName, HeaderValue};
use pin_project_lite::pin_project;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;

/// The name of the header. The name is parsed once and not for each call, like all names that calls look for.
pub(crate) static HEADER: HeaderName = HeaderName::from_static("grpc-timeout");

/// The units of the header's value in nanoseconds, from the finest.
const UNITS: [(u128, char); 6] = [
    (1, 'n'),
    (1_000, 'u'),
    (1_000_000, 'm'),
    (1_000_000_000, 'S'),
    (60 * 1_000_000_000, 'M'),
    (3600 * 1_000_000_000, 'H'),
];

/// The value has at most 8 digits.
const MAX_VALUE: u128 = 99_999_999;

/// The moment at which a call must be over; `None` if it may take any time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deadline(Option<End>);

#[derive(Clone, Copy, Debug)]
struct End {
    at: Instant,
    limit: TimeLimit,
}

/// The time that a call may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimeLimit {
    pub(crate) time: Duration,
    pub(crate) set_by: LimitSetter,
}

/// The side that limits the time of a call. An error names the side, so that a reader knows where the limit can be
/// changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LimitSetter {
    Caller,
    Listener,
    Route,
}

impl Deadline {
    /// Reads the header of a call that began at `start`, as tonic clients set it. A malformed one is an
    /// error of the caller.
    pub(crate) fn of(headers: &HeaderMap, start: Instant) -> Result<Self, Status> {
        let Some(value) = headers.get(&HEADER) else {
            return Ok(Self(None));
        };
        let time = value.to_str().ok().and_then(parse).ok_or_else(|| {
            Status::invalid_argument(format!(
                "{HEADER}: expected up to 8 digits and a unit (H M S m u n), got {value:?}"
            ))
        })?;
        let set_by = LimitSetter::Caller;
        Ok(Self(End::new(start, TimeLimit { time, set_by })))
    }

    /// The earlier of this deadline and the end of `limit`, which counts from the start of the call (gRFC
    /// A31).
    pub(crate) fn limited(self, limit: Option<TimeLimit>, start: Instant) -> Self {
        let other = limit.and_then(|limit| End::new(start, limit));
        match (self.0, other) {
            (Some(own), Some(other)) if other.at < own.at => Self(Some(other)),
            (own, other) => Self(own.or(other)),
        }
    }

    /// The time that is left, as a header for a server that is sent the call at this moment.
    pub(crate) fn header(&self) -> Option<HeaderValue> {
        let at = self.at()?;
        format(at.saturating_duration_since(Instant::now()))
    }

    /// The moment at which the call must be over.
    pub(crate) fn at(&self) -> Option<Instant> {
        self.0.map(|end| end.at)
    }

    /// Runs `step`, but not past the deadline. `what` names the awaited thing for the error.
    pub(crate) async fn bound<F: Future>(
        &self,
        step: F,
        what: impl Fn() -> String,
    ) -> Result<F::Output, Status> {
        let mut timer = self.timer();
        self.bound_by(timer.as_mut(), step, what).await
    }

    /// The timer for [`bound_by`](Self::bound_by); `None` without a deadline. The timer is used for one wait after the
    /// other.
    pub(crate) fn timer(&self) -> Option<Timer> {
        self.at().map(|at| Box::pin(sleep_until(at)))
    }

    /// Runs `step` as [`bound`](Self::bound) does, with a timer that its caller keeps. The function is not an
    /// `async fn`, because that would move the step, which may be large.
    pub(crate) fn bound_by<F: Future, W: Fn() -> String>(
        &self,
        timer: Option<&mut Timer>,
        step: F,
        what: W,
    ) -> impl Future<Output = Result<F::Output, Status>> {
        Bound {
            step,
            timer,
            what,
            deadline: *self,
        }
    }

    /// The status of a call that was waiting for `what` when its time ended.
    pub(crate) fn exceeded(&self, what: &str) -> Status {
        let limit = self.0.map(|end| end.limit.to_string()).unwrap_or_default();
        Status::deadline_exceeded(format!("{limit} ended while waiting for {what}"))
    }
}

/// The timer of a deadline. The timer is boxed, because most calls have none and should not be larger for it.
pub(crate) type Timer = Pin<Box<Sleep>>;

pin_project! {
    /// A step that ends at its deadline at the latest.
    struct Bound<'t, F, W> {
        #[pin]
        step: F,
        timer: Option<&'t mut Timer>,
        deadline: Deadline,
        what: W,
    }
}

impl<F: Future, W: Fn() -> String> Future for Bound<'_, F, W> {
    type Output = Result<F::Output, Status>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.project();
        if let Poll::Ready(output) = this.step.poll(cx) {
            return Poll::Ready(Ok(output));
        }
        match this.timer {
            Some(timer) => ready!(timer.as_mut().poll(cx)),
            None => return Poll::Pending,
        }
        Poll::Ready(Err(this.deadline.exceeded(&(this.what)())))
    }
}

impl End {
    /// `None` if the end is too far away for `Instant`, which counts as no deadline.
    fn new(start: Instant, limit: TimeLimit) -> Option<Self> {
        let at = start.checked_add(limit.time)?;
        Some(Self { at, limit })
    }
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time;
        match self.set_by {
            LimitSetter::Caller => write!(f, "the call's {time:?}"),
            LimitSetter::Listener => write!(f, "the {time:?} that the listener allows for a call"),
            LimitSetter::Route => write!(f, "the {time:?} that the route allows for a call"),
        }
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

/// The inverse of [`parse`], in the finest unit that the value has room for. The value is rounded up, because the
/// client's own deadline is the exact one.
fn format(left: Duration) -> Option<HeaderValue> {
    let nanos = left.as_nanos().max(1);
    let mut values = UNITS
        .map(|(unit, name)| (nanos.div_ceil(unit), name))
        .into_iter();
    let (value, unit) = values.find(|(value, _)| *value <= MAX_VALUE)?;
    HeaderValue::try_from(format!("{value}{unit}")).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timeout_is_written_in_the_finest_unit_there_is_room_for() {
        for (left, expected) in [
            (Duration::ZERO, "1n"),
            (Duration::from_nanos(99_999_999), "99999999n"),
            (Duration::from_nanos(100_000_001), "100001u"),
            (Duration::from_secs(20), "20000000u"),
            (Duration::from_secs(100), "100000m"),
            (Duration::from_secs(100_000), "100000S"),
            (Duration::from_secs(100_000_000), "1666667M"),
            (Duration::from_secs(99_999_999 * 60 + 1), "1666667H"),
        ] {
            let written = format(left).unwrap();
            assert_eq!(written, expected);
            assert!(parse(written.to_str().unwrap()).unwrap() >= left);
        }
    }

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
