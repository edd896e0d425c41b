//! The state machine that decides whether a call is sent again.
//!
//! The machine has no I/O and no clock, because its rules are about time and order, and tests must control both. The
//! only input is the end of each attempt.
//!
//! Two sets of rules apply, both of gRFC A6. Transparent retries repeat attempts that no server has acted on, for every
//! call. The retry policy of a route (gRFC A44) repeats attempts that failed with certain status codes.

#[cfg(test)]
mod tests;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crowfly_lb::CallOutcome;
use crowfly_model::grpc::route::RetryPolicy;
use http::HeaderMap;
use tonic::Code;

use super::throttle::RetryThrottle;
use crate::transport::DEFAULT_REPLAY_LIMIT;

/// The metadata in which a server says when to send the call again, or that it must not be sent again (gRFC A6).
const PUSHBACK: &str = "grpc-retry-pushback-ms";

/// A longer wait is shortened to this one, so that the end of every wait can be computed.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 60 * 60);

/// The settings of a channel that are about retries.
#[derive(Clone, Debug)]
pub(crate) struct RetrySettings {
    /// False if retry policies are not used. Transparent retries are made all the same (gRFC A6).
    pub(crate) policies: bool,
    /// The number of bytes of a request that are kept for another attempt.
    pub(crate) buffer: usize,
    /// The throttle that all calls of the channel share.
    pub(crate) throttle: Option<Arc<RetryThrottle>>,
}

impl Default for RetrySettings {
    fn default() -> Self {
        Self {
            policies: true,
            buffer: DEFAULT_REPLAY_LIMIT,
            throttle: None,
        }
    }
}

/// The attempts of one call, as far as they matter for the next one.
#[derive(Debug)]
pub(super) struct Retry<'a> {
    policy: Option<&'a RetryPolicy>,
    throttle: Option<&'a RetryThrottle>,
    deadline: Option<Instant>,
    was_refused: bool,
    /// The attempts that have ended, without those that were followed by a transparent retry.
    attempts: u32,
    /// The retries since the backoff began with its first interval.
    backoffs: u32,
}

/// The end of an attempt that failed before its response began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) how: How,
    pub(super) pushback: Option<Pushback>,
}

/// The way in which an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// The balancer dropped the call, because the control plane or a limit asks for it.
    Dropped,
    /// An endpoint was picked, and the attempt had this outcome.
    Outcome(CallOutcome),
    /// The balancer had no endpoint.
    Unpicked,
}

impl How {
    /// The outcome of the attempt. One without an endpoint ends as UNAVAILABLE.
    pub(super) fn outcome(self) -> CallOutcome {
        match self {
            Self::Outcome(outcome) => outcome,
            Self::Dropped | Self::Unpicked => CallOutcome::Status(Code::Unavailable.into()),
        }
    }
}

/// The answer of a server about the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pushback {
    /// The next attempt comes after exactly this time.
    After(Duration),
    /// The server forbids a next attempt.
    Never,
}

/// The step of a call that follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The call fails as its last attempt did. The note belongs to the text of the failure.
    GiveUp(Option<Note>),
    /// The next attempt would come after the deadline of the call.
    OutOfTime(Option<Note>),
    /// The call is picked and sent again at this moment.
    SendAt(Instant),
}

impl<'a> Retry<'a> {
    /// A call that has not been sent yet.
    pub(super) fn new(
        policy: Option<&'a RetryPolicy>,
        settings: &'a RetrySettings,
        deadline: Option<Instant>,
    ) -> Self {
        Self {
            policy: policy.filter(|_| settings.policies),
            throttle: settings.throttle.as_deref(),
            deadline,
            was_refused: false,
            attempts: 0,
            backoffs: 0,
        }
    }

    /// The number of attempts before the present one. Transparent retries do not count (gRFC A6).
    pub(super) fn previous_attempts(&self) -> u32 {
        self.attempts
    }

    /// Handles an attempt that failed before its response began. `can_repeat` is false if the request is no longer
    /// there to be sent again. `random` is from 0 to 1.
    pub(super) fn attempt_ended(
        &mut self,
        ended: Ended,
        can_repeat: bool,
        now: Instant,
        random: f64,
    ) -> Next {
        if can_repeat && self.is_transparent(ended.how) {
            return self.send_after(Duration::ZERO, now);
        }
        self.attempts += 1;
        match self.wait(ended, can_repeat, random) {
            Ok(wait) => self.send_after(wait, now),
            Err(why) => Next::GiveUp(self.note(why)),
        }
    }

    /// gRFC A6: an attempt that never left the client is repeated until the deadline. One that the
    /// server's application did not see is repeated once, because it put load on the network.
    fn is_transparent(&mut self, how: How) -> bool {
        match how {
            How::Outcome(CallOutcome::NeverSent) => true,
            How::Outcome(CallOutcome::Refused) => !std::mem::replace(&mut self.was_refused, true),
            _ => false,
        }
    }

    /// The wait before the next attempt, or the reason why the policy allows none.
    ///
    /// The order of the checks is that of gRPC C-core. The throttle counts every failure with a code of the policy,
    /// even if there is another reason against a retry.
    fn wait(&mut self, ended: Ended, can_repeat: bool, random: f64) -> Result<Duration, Why> {
        let code = ended.how.code()?;
        let policy = self.policy.filter(|policy| policy.retry_on.contains(code));
        let Some(policy) = policy else {
            // gRFC A6: a failure with any code counts if the server wants no retry.
            if ended.pushback == Some(Pushback::Never) {
                self.throttle.map(RetryThrottle::failed);
            }
            return Err(Why::NotListed);
        };
        if self.throttle.is_some_and(|throttle| !throttle.failed()) {
            return Err(Why::Throttled);
        }
        if !can_repeat {
            return Err(Why::Outgrown);
        }
        if self.attempts >= policy.max_attempts {
            return Err(Why::Exhausted(policy.max_attempts));
        }
        match ended.pushback {
            Some(Pushback::Never) => Err(Why::PushedBack),
            Some(Pushback::After(time)) => {
                self.backoffs = 0;
                Ok(time)
            }
            None => {
                let factor = 2_u32.saturating_pow(self.backoffs);
                self.backoffs += 1;
                let interval = policy.base_interval.saturating_mul(factor);
                let interval = interval.min(policy.max_interval).min(LONGEST_WAIT);
                Ok(interval.mul_f64(0.8 + 0.4 * random))
            }
        }
    }

    fn send_after(&self, wait: Duration, now: Instant) -> Next {
        let at = now + wait;
        match self.deadline {
            Some(deadline) if deadline <= at => Next::OutOfTime(self.note(Why::Fatal)),
            _ => Next::SendAt(at),
        }
    }

    /// The note of a call that fails; `None` if its policy had no part in that.
    fn note(&self, why: Why) -> Option<Note> {
        let attempts = self.attempts;
        let is_plain = matches!(why, Why::Dropped | Why::Fatal | Why::NotListed);
        let least = if is_plain { 2 } else { 1 };
        (self.policy.is_some() && attempts >= least).then_some(Note { attempts, why })
    }
}

impl How {
    /// The status code by which a policy judges the attempt, or the reason why no policy repeats it.
    fn code(self) -> Result<i32, Why> {
        match self {
            // gRFC A6: a drop fails at once, without retries.
            Self::Dropped => Err(Why::Dropped),
            // The call's own end, and a request that nothing can carry. The deadline covers all attempts.
            Self::Outcome(
                CallOutcome::Cancelled | CallOutcome::DeadlineExceeded | CallOutcome::Invalid,
            ) => Err(Why::Fatal),
            Self::Outcome(outcome) => Ok(outcome.code()),
            // gRFC A6: the policy handles a pick that failed.
            Self::Unpicked => Ok(Code::Unavailable.into()),
        }
    }
}

impl From<How> for Ended {
    /// The end of an attempt for which the server asked nothing.
    fn from(how: How) -> Self {
        Self {
            how,
            pushback: None,
        }
    }
}

impl Pushback {
    /// Reads the metadata of a response. A negative value, an unreadable value, or two values mean no retry (gRFC A6;
    /// for two values, grpc-go).
    pub(super) fn of(headers: &HeaderMap) -> Option<Self> {
        let mut values = headers.get_all(PUSHBACK).iter();
        let value = values.next()?;
        let text = value.to_str().ok().filter(|_| values.next().is_none());
        let millis = text.and_then(|text| text.parse::<i32>().ok());
        let millis = millis.and_then(|millis| u64::try_from(millis).ok());
        Some(millis.map_or(Self::Never, |millis| {
            Self::After(Duration::from_millis(millis))
        }))
    }
}

/// The number of attempts that were made, and the reason why there are no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Note {
    attempts: u32,
    why: Why,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Why {
    Dropped,
    Exhausted(u32),
    Fatal,
    NotListed,
    Outgrown,
    PushedBack,
    Throttled,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts {
            1 => f.write_str("after 1 attempt")?,
            attempts => write!(f, "after {attempts} attempts")?,
        }
        match self.why {
            Why::Dropped => f.write_str("; a dropped call is not retried"),
            Why::Exhausted(max) => write!(f, "; the retry policy allows {max}"),
            Why::Fatal => Ok(()),
            Why::NotListed => f.write_str("; the retry policy does not list this status"),
            Why::Outgrown => f.write_str("; the request outgrew the retry buffer"),
            Why::PushedBack => f.write_str("; the server asked for no retry"),
            Why::Throttled => f.write_str("; retries are throttled, because too many calls fail"),
        }
    }
}
