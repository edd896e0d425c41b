//! The end of one attempt: how it came about, and what it counts as.
//!
//! Custom policies, load reports, outlier detection and retries all ask how an attempt ended, and
//! each of them draws its own conclusion. [`CallOutcome`] is the one answer that they share. The
//! rules by which it is counted are here, because two copies of a rule would come to differ.
//!
//! Attempts are counted, not calls. A call that is sent again is picked again, and each of its picks has
//! an outcome of its own.

/// How one attempt of a call ended.
///
/// Every pick that gave a [`Call`](crate::Call) has exactly one outcome.
///
/// ```
/// use crowfly_lb::{CallOutcome, Counted};
///
/// let lost = CallOutcome::ConnectionLost;
/// assert_eq!(lost.code(), 14); // UNAVAILABLE, which is what the caller sees
/// assert_eq!(lost.for_load_reports(), Counted::Failure);
/// assert_eq!(lost.for_outlier_detection(), Some(Counted::Failure));
/// assert_eq!(CallOutcome::NeverSent.for_outlier_detection(), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum CallOutcome {
    /// The caller gave the call up: it dropped the call or the rest of the response, or its own request
    /// body failed. A message that the caller's codec refuses ends here as well, because the caller
    /// drops the response without reading its status.
    Cancelled,
    /// The connection ended after some of the request was written. The server may have acted on it.
    ConnectionLost,
    /// The call's deadline passed while the attempt was under way.
    DeadlineExceeded,
    /// HTTP/2 cannot carry the request, for example because of a `connection` header. None of it was
    /// sent, and no other endpoint could take it.
    Invalid,
    /// The connection ended, or stopped taking streams, before any byte of the request was written.
    NeverSent,
    /// The server promised that it did not act on the request: by REFUSED_STREAM, or by a GOAWAY with a
    /// lower last stream id.
    Refused,
    /// The server ended the attempt with this gRPC status code; 0 is OK.
    ///
    /// If a server ends the attempt without a gRPC status, gRPC derives one: from the HTTP status
    /// or from the code of RST_STREAM. It is UNKNOWN for a response that just ends.
    Status(i32),
}

/// The count that an attempt adds one to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Counted {
    /// The attempts that failed.
    Failure,
    /// The attempts that succeeded.
    Success,
}

impl CallOutcome {
    /// The attempt succeeded.
    pub const OK: Self = Self::Status(0);

    /// The gRPC status code that a caller sees if the attempt is the last one of its call.
    pub fn code(self) -> i32 {
        match self {
            Self::Cancelled => 1,
            Self::DeadlineExceeded => 4,
            Self::Invalid => 13,
            Self::ConnectionLost | Self::NeverSent | Self::Refused => 14,
            Self::Status(code) => code,
        }
    }

    /// The attempt as load reports count it (gRFC A27).
    ///
    /// An attempt is issued when its pick is complete. It is a success if its status is OK and an
    /// error in every other case. That includes attempts that were cancelled or never sent, because
    /// issued attempts must add up to those in progress, the successes and the errors. The
    /// `xds_cluster_impl` of gRPC C-core counts so: a call tracker that goes away without a status
    /// is an error.
    pub fn for_load_reports(self) -> Counted {
        match self {
            Self::OK => Counted::Success,
            _ => Counted::Failure,
        }
    }

    /// The attempt as outlier detection counts it (gRFC A50); `None` if it is left out.
    ///
    /// A50 counts an endpoint's calls when they finish. Attempts of which nothing was sent are left
    /// out, because they say nothing about the endpoint. The `outlier_detection` of gRPC C-core
    /// does the same: a call tracker that goes away without a status counts as nothing. A cancelled
    /// attempt is a failure there and here.
    pub fn for_outlier_detection(self) -> Option<Counted> {
        match self {
            Self::Invalid | Self::NeverSent => None,
            Self::OK => Some(Counted::Success),
            _ => Some(Counted::Failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// gRFC A27, as gRPC C-core counts: OK is a success, and everything else is an error.
    #[test]
    fn load_reports_count_every_attempt() {
        let count = |outcome: CallOutcome| outcome.for_load_reports();
        assert_eq!(count(CallOutcome::Status(0)), Counted::Success);
        for outcome in ENDED_BADLY.into_iter().chain(NOTHING_SENT) {
            assert_eq!(count(outcome), Counted::Failure, "{outcome:?}");
        }
    }

    /// gRFC A50, as gRPC C-core counts: an endpoint is not blamed for what was not sent to it.
    #[test]
    fn outlier_detection_leaves_out_what_was_never_sent() {
        let count = |outcome: CallOutcome| outcome.for_outlier_detection();
        assert_eq!(count(CallOutcome::Status(0)), Some(Counted::Success));
        for outcome in ENDED_BADLY {
            assert_eq!(count(outcome), Some(Counted::Failure), "{outcome:?}");
        }
        for outcome in NOTHING_SENT {
            assert_eq!(count(outcome), None, "{outcome:?}");
        }
    }

    /// gRPC's `statuscodes.md` names the codes that a client makes for itself.
    #[test]
    fn an_outcome_stands_for_the_status_that_the_caller_sees() {
        for (outcome, code) in [
            (CallOutcome::Cancelled, 1),
            (CallOutcome::DeadlineExceeded, 4),
            (CallOutcome::Status(7), 7),
            (CallOutcome::Invalid, 13),
            (CallOutcome::ConnectionLost, 14),
            (CallOutcome::NeverSent, 14),
            (CallOutcome::Refused, 14),
        ] {
            assert_eq!(outcome.code(), code, "{outcome:?}");
        }
    }

    const ENDED_BADLY: [CallOutcome; 6] = [
        CallOutcome::Cancelled,
        CallOutcome::ConnectionLost,
        CallOutcome::DeadlineExceeded,
        CallOutcome::Refused,
        CallOutcome::Status(1),
        CallOutcome::Status(14),
    ];

    const NOTHING_SENT: [CallOutcome; 2] = [CallOutcome::Invalid, CallOutcome::NeverSent];
}
