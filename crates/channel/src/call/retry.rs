//! The machine that decides if a call is sent again.
//!
//! It has no I/O and no clock, because its rules are about time and order, and tests must control both. Its
//! only input is the outcome of each attempt.
//!
//! The rules are those of gRFC A6's transparent retries, which apply to every call. The retry policies
//! of routes (gRFC A44) will add theirs here, for outcomes that transparent retries do not cover: a
//! number of attempts, and a later moment in [`Next::SendAt`].

use std::time::Instant;

use crowfly_lb::CallOutcome;

/// The attempts of one call, as far as they matter for the next one.
#[derive(Debug)]
pub(super) struct Retry {
    deadline: Option<Instant>,
    was_refused: bool,
}

/// The step of a call that follows a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The call fails as its last attempt did.
    GiveUp,
    /// There would be another attempt, but the deadline of the call has passed.
    OutOfTime,
    /// The call is picked and sent again at this moment.
    SendAt(Instant),
}

impl Retry {
    /// A call that has not been sent yet.
    pub(super) fn new(deadline: Option<Instant>) -> Self {
        Self {
            deadline,
            was_refused: false,
        }
    }

    /// Takes in that an attempt failed before its response began. `can_repeat` is false if the request
    /// is no longer there to be sent again.
    pub(super) fn attempt_ended(
        &mut self,
        outcome: CallOutcome,
        can_repeat: bool,
        now: Instant,
    ) -> Next {
        if !can_repeat || !self.is_transparent(outcome) {
            return Next::GiveUp;
        }
        match self.deadline {
            Some(deadline) if deadline <= now => Next::OutOfTime,
            _ => Next::SendAt(now),
        }
    }

    /// gRFC A6: an attempt that never left the client is repeated until the deadline. One that the
    /// server's application did not see is repeated once, because it put load on the network.
    fn is_transparent(&mut self, outcome: CallOutcome) -> bool {
        match outcome {
            CallOutcome::NeverSent => true,
            CallOutcome::Refused => !std::mem::replace(&mut self.was_refused, true),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// gRFC A6: the number of such attempts has no limit but the deadline.
    #[test]
    fn a_call_that_never_left_is_sent_again_until_its_deadline() {
        let start = Instant::now();
        let mut retry = Retry::new(Some(start + Duration::from_secs(10)));
        for second in 0..10 {
            let now = start + Duration::from_secs(second);
            let next = retry.attempt_ended(CallOutcome::NeverSent, true, now);
            assert_eq!(next, Next::SendAt(now));
        }
        let end = start + Duration::from_secs(10);
        let next = retry.attempt_ended(CallOutcome::NeverSent, true, end);
        assert_eq!(next, Next::OutOfTime);
    }

    #[test]
    fn without_a_deadline_there_is_always_time() {
        let start = Instant::now();
        let mut retry = Retry::new(None);
        for year in 0..100 {
            let now = start + Duration::from_secs(year * 365 * 24 * 60 * 60);
            let next = retry.attempt_ended(CallOutcome::NeverSent, true, now);
            assert_eq!(next, Next::SendAt(now));
        }
    }

    /// gRFC A6: what the server refused is repeated once, however often the call did not leave in
    /// between.
    #[test]
    fn a_refused_call_is_sent_again_once() {
        let now = Instant::now();
        let mut retry = Retry::new(None);
        let outcomes = [
            CallOutcome::NeverSent,
            CallOutcome::Refused,
            CallOutcome::NeverSent,
            CallOutcome::Refused,
        ];
        let next = outcomes.map(|outcome| retry.attempt_ended(outcome, true, now));
        let again = Next::SendAt(now);
        assert_eq!(next, [again, again, again, Next::GiveUp]);
    }

    #[test]
    fn a_refused_call_is_not_sent_after_its_deadline() {
        let now = Instant::now();
        let mut retry = Retry::new(Some(now));
        let next = retry.attempt_ended(CallOutcome::Refused, true, now);
        assert_eq!(next, Next::OutOfTime);
    }

    /// gRFC A6: a call whose request is no longer buffered is committed.
    #[test]
    fn a_request_that_is_gone_is_not_sent_again() {
        let now = Instant::now();
        for outcome in [CallOutcome::NeverSent, CallOutcome::Refused] {
            let mut retry = Retry::new(Some(now));
            let next = retry.attempt_ended(outcome, false, now);
            assert_eq!(next, Next::GiveUp, "{outcome:?}");
        }
    }

    /// gRFC A6: a server that may have acted on a request is not asked again, unless a policy says so.
    #[test]
    fn a_call_that_a_server_may_have_seen_is_not_sent_again() {
        let now = Instant::now();
        for outcome in [
            CallOutcome::Cancelled,
            CallOutcome::ConnectionLost,
            CallOutcome::DeadlineExceeded,
            CallOutcome::Invalid,
            CallOutcome::Status(14),
        ] {
            let mut retry = Retry::new(None);
            let next = retry.attempt_ended(outcome, true, now);
            assert_eq!(next, Next::GiveUp, "{outcome:?}");
        }
    }
}
