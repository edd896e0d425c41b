//! The rules of gRFC A17 about one connection, without I/O.
//!
//! The rules are about order and time, so tests must control both. The driver is in `watch.rs`.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use crowfly_xds::Backoff;
use tonic::{Code, Status};

use super::Health;
use super::proto::ServingStatus;

/// The check of one connection, which is a series of Watch calls.
#[derive(Debug)]
pub(super) struct Machine {
    service: Arc<str>,
    backoff: Backoff,
    /// True if the Watch call that is open has had an answer.
    is_answered: bool,
}

/// The step that follows the end of a Watch call.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// The next Watch call begins at this moment. Until then the health is this one.
    OpenAt(Instant, Health),
    /// No further Watch call is made, because the server has no health service.
    Stop,
}

impl Machine {
    pub(super) fn new(service: Arc<str>, backoff: Backoff) -> Self {
        Self {
            service,
            backoff,
            is_answered: false,
        }
    }

    /// Records that a Watch call begins.
    pub(super) fn opened(&mut self) -> Health {
        self.is_answered = false;
        Health::Unknown
    }

    /// Handles an answer of the server.
    pub(super) fn answered(&mut self, status: i32) -> Health {
        self.is_answered = true;
        self.backoff.reset();
        match ServingStatus::try_from(status) {
            Ok(ServingStatus::Serving) => Health::Healthy,
            Ok(status) => self.unhealthy(format_args!("is {status}")),
            Err(_) => self.unhealthy(format_args!("has the status {status}, which is unknown")),
        }
    }

    /// Handles the end of a Watch call. A call that had an answer is replaced at once, so its end says nothing about
    /// the server. Any other is replaced after a wait, and the server counts as unhealthy meanwhile.
    pub(super) fn ended(&mut self, status: &Status, now: Instant) -> Next {
        if status.code() == Code::Unimplemented {
            return Next::Stop;
        }
        if self.is_answered {
            return Next::OpenAt(now, Health::Unknown);
        }
        let (code, message) = (status.code(), status.message());
        let health = self.unhealthy(format_args!("cannot be watched: {code:?}: {message}"));
        Next::OpenAt(now + self.backoff.next_wait(), health)
    }

    fn unhealthy(&self, why: fmt::Arguments<'_>) -> Health {
        let reason = match &*self.service {
            "" => format!("health check: the server {why}"),
            service => format!("health check: service {service} {why}"),
        };
        Health::Unhealthy(reason.into())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const SERVING: i32 = ServingStatus::Serving as i32;

    fn machine() -> Machine {
        Machine::new("payments".into(), Backoff::new(7))
    }

    fn unhealthy(reason: &str) -> Health {
        Health::Unhealthy(reason.into())
    }

    /// gRFC A17: READY is for SERVING alone, and a server may go from unhealthy to healthy at once.
    #[test]
    fn only_serving_is_healthy() {
        let mut machine = machine();
        assert_eq!(machine.opened(), Health::Unknown);
        for (status, said) in [
            (0, "is UNKNOWN"),
            (2, "is NOT_SERVING"),
            (3, "is SERVICE_UNKNOWN"),
            (4, "has the status 4, which is unknown"),
        ] {
            let reason = format!("health check: service payments {said}");
            assert_eq!(machine.answered(status), unhealthy(&reason));
            assert_eq!(machine.answered(SERVING), Health::Healthy);
        }
        let mut whole = Machine::new("".into(), Backoff::new(7));
        let reason = "health check: the server is NOT_SERVING";
        assert_eq!(whole.answered(2), unhealthy(reason));
    }

    /// gRFC A17: a server without the method counts as healthy, and is not asked again.
    #[test]
    fn unimplemented_stops_the_check() {
        let (mut machine, now) = (machine(), Instant::now());
        machine.opened();
        assert_eq!(machine.ended(&Status::unimplemented(""), now), Next::Stop);
    }

    /// gRFC A17: the waits between calls without an answer grow. An answer resets that, and the call after it is made
    /// at once.
    #[test]
    fn calls_without_an_answer_back_off() {
        let (mut machine, now) = (machine(), Instant::now());
        let failed = Status::unavailable("no");
        let mut wait = || {
            machine.opened();
            let Next::OpenAt(at, health) = machine.ended(&failed, now) else {
                panic!("there is another call");
            };
            let reason = "health check: service payments cannot be watched: Unavailable: no";
            assert_eq!(health, unhealthy(reason));
            at - now
        };
        let waits = [wait(), wait(), wait()];
        assert!(waits.is_sorted(), "{waits:?}");
        assert!(waits[0] >= Duration::from_millis(800), "{waits:?}");
        assert!(waits[2] > waits[0] * 3 / 2, "{waits:?}");

        machine.opened();
        machine.answered(SERVING);
        let at_once = Next::OpenAt(now, Health::Unknown);
        assert_eq!(machine.ended(&failed, now), at_once);
        machine.opened();
        let Next::OpenAt(at, _) = machine.ended(&failed, now) else {
            panic!("there is another call");
        };
        assert!(at - now <= Duration::from_millis(1200), "{:?}", at - now);
    }

    /// gRFC A17 has no status but UNIMPLEMENTED that ends the check: a stream that ends with OK is opened
    /// again, too.
    #[test]
    fn a_stream_that_ends_well_is_opened_again() {
        let (mut machine, now) = (machine(), Instant::now());
        machine.opened();
        let next = machine.ended(&Status::ok(""), now);
        assert!(matches!(next, Next::OpenAt(at, _) if at > now), "{next:?}");
    }
}
