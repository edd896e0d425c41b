//! One attempt of a call: a pick, a request, and the one outcome that it ends with.
//!
//! Load reports, outlier detection, retries and custom policies all count attempts by their outcome. So one type owns
//! the balancer's token from the pick to the last byte of the response. Each way to end it gives a [`CallOutcome`]. An
//! attempt that is dropped was cancelled.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use crowfly_lb::{Call, CallContext, CallOutcome, Demand, Pick};
use http::{HeaderMap, Response};
use pin_project_lite::pin_project;
use tokio::time::Instant;
use tonic::body::Body;
use tonic::{Code, Status};

use super::PREVIOUS_ATTEMPTS;
use super::decision::Decision;
use super::failed::{CallError, Failed};
use super::orca::OrcaLoadReport;
use super::recording::AttemptRecord;
use super::retry::{Ended, How, Pushback};
use super::throttle::Tally;
use crate::channel::ChannelContext;
use crate::clusters::{Balancing, Cluster};
use crate::deadline::{Deadline, Timer};
use crate::driver::Query;
use crate::named::named;
use crate::not_grpc;
use crate::request_headers::RequestHeaders;
use crate::routing::Routing;
use crate::transport::{
    Guard, ReplayBody, ResponseBody, SendError, SendErrorKind, Sender, grpc_status,
};

/// An attempt on one endpoint. If it is dropped without an outcome, its outcome is that the caller cancelled
/// it.
pub(super) struct Attempt {
    token: Call<Sender>,
    record: AttemptRecord,
    /// The status in the head of a response. A response with such a status has neither messages nor trailers.
    in_head: Option<i32>,
}

impl Attempt {
    /// Picks an endpoint. Waits until there is one, but not past the deadline.
    pub(super) async fn pick(
        decision: &Decision<'_>,
        channel: &ChannelContext,
        previous_attempts: u32,
    ) -> Result<Self, Failed> {
        let cluster = &decision.routed.cluster.name;
        let record = decision.recording.attempt(cluster, previous_attempts);
        match Self::pick_token(decision, channel).await {
            Ok(token) => Ok(Self {
                record: record.picked(&token),
                token,
                in_head: None,
            }),
            Err(failed) => {
                record.end(failed.ended.how.outcome());
                Err(failed)
            }
        }
    }

    async fn pick_token(
        decision: &Decision<'_>,
        channel: &ChannelContext,
    ) -> Result<Call<Sender>, Failed> {
        let cluster: &Cluster = &decision.routed.cluster;
        // One seed for all looks. With a new one for each look, a call that waits would be dropped more
        // often than others.
        let seed = fastrand::u64(..);
        let look = |balancing: &Balancing| look(balancing, seed, decision, channel);
        let picked = match look(&cluster.balancing.load()) {
            Some(picked) => picked,
            None => {
                let found = cluster.balancing.find(look);
                let found = decision.deadline.bound(found, || unusable(cluster)).await;
                let outcome = How::Outcome(CallOutcome::DeadlineExceeded);
                found.map_err(|status| Failed::with_error(outcome.into(), status))?
            }
        };
        picked.map_err(|(how, text)| {
            let text = match &**channel.routing.load() {
                Routing::Ready(router) => router.with_notes(text),
                _ => text,
            };
            Failed::with_error(how.into(), Status::unavailable(text))
        })
    }

    /// Sends the request, and waits for the head of the response. The rest of the attempt belongs to
    /// the response's body.
    pub(super) async fn send(
        self,
        decision: &Decision<'_>,
        body: &ReplayBody<Body>,
        channel: &ChannelContext,
        previous_attempts: u32,
    ) -> Result<Response<ResponseBody<InFlight>>, Failed> {
        let transport = self.token.transport();
        let request = || {
            let head = decision.head_for(transport.hostname(), previous_attempts);
            (head, self.record.metered(body.attempt()))
        };
        let response = transport.send_with(request);
        let what = || format!("a response from {}", self.address());
        let mut timer = decision.deadline.timer();
        let response = decision
            .deadline
            .bound_by(timer.as_mut(), response, what)
            .await;
        match response {
            Ok(Ok(mut response)) => {
                let headers = response.headers_mut();
                if previous_attempts > 0 {
                    headers.insert(&PREVIOUS_ATTEMPTS, previous_attempts.into());
                }
                if let Some(session) = &decision.session {
                    session.answered(&decision.routed.cluster.name, &self.token, headers);
                }
                self.answered(response, timer, decision, channel)
            }
            Ok(Err(error)) => Err(self.failed(&error)),
            Err(status) => Err(self.failed_with(CallOutcome::DeadlineExceeded, status)),
        }
    }

    fn answered(
        mut self,
        response: Response<ResponseBody>,
        timer: Option<Timer>,
        decision: &Decision<'_>,
        channel: &ChannelContext,
    ) -> Result<Response<ResponseBody<InFlight>>, Failed> {
        self.in_head = grpc_status(response.headers());
        match self.in_head {
            // The caller of a Trailers-Only response need not read its body.
            Some(code) => {
                self.record_metrics(response.headers());
                self.token.will_end(CallOutcome::Status(code));
                self.record.will_end(CallOutcome::Status(code));
            }
            None => {
                if let Some(status) = not_grpc::status_of(&response, self.address()) {
                    let outcome = CallOutcome::Status(status.code().into());
                    return Err(self.failed_with(outcome, status));
                }
            }
        }
        // gRFC A6: only a Trailers-Only response leaves the call free for another attempt.
        let status = self.in_head.map(CallOutcome::Status);
        let failure = status.filter(|status| *status != CallOutcome::OK);
        let deadline = decision.deadline;
        let in_flight = InFlight {
            attempt: Some(self),
            deadline,
            node: Arc::clone(&channel.node),
            timer,
            // The retry machine counts the failures that it hears of.
            tally: match failure {
                Some(_) => None,
                None => Tally::of(&channel.retries, &decision.routed.forward),
            },
        };
        let response = response.map(|body| body.guarded(in_flight));
        match failure {
            Some(outcome) => {
                let how = How::Outcome(outcome);
                let pushback = Pushback::of(response.headers());
                Err(Failed::with_response(Ended { how, pushback }, response))
            }
            None => Ok(response),
        }
    }

    /// Adds the metrics that the backend sent with the end of the attempt to the load of the cluster.
    fn record_metrics(&self, trailers: &HeaderMap) {
        if self.token.wants_metrics()
            && let Some(report) = OrcaLoadReport::find(trailers)
        {
            self.token.record_metrics(&report.metrics());
        }
    }

    fn failed(self, error: &SendError) -> Failed {
        let status = error.to_status();
        let outcome = outcome_of(error.kind());
        let error = match error.kind() {
            SendErrorKind::RequestBody => CallError::Body(status),
            _ => CallError::Ours(status),
        };
        self.failed_with(outcome, error)
    }

    fn failed_with(self, outcome: CallOutcome, error: impl Into<CallError>) -> Failed {
        self.finish(outcome);
        Failed::with_error(How::Outcome(outcome).into(), error)
    }

    /// Ends an attempt whose response ended: with the status in its trailers if it has some, or by an
    /// error of its stream.
    fn ended(self, end: Result<Option<i32>, SendErrorKind>) -> CallOutcome {
        let outcome = match end {
            // gRPC's HTTP/2 protocol: a response without a status has the status UNKNOWN.
            Ok(in_trailers) => {
                let status = in_trailers.or(self.in_head);
                CallOutcome::Status(status.unwrap_or_else(|| Code::Unknown.into()))
            }
            Err(kind) => outcome_of(kind),
        };
        self.finish(outcome);
        outcome
    }

    fn finish(self, outcome: CallOutcome) {
        self.token.finish(outcome);
        self.record.end(outcome);
    }

    fn address(&self) -> SocketAddr {
        self.token.transport().address()
    }
}

/// The outcome of an attempt whose stream failed.
fn outcome_of(error: SendErrorKind) -> CallOutcome {
    match error {
        SendErrorKind::Invalid => CallOutcome::Invalid,
        SendErrorKind::Lost => CallOutcome::ConnectionLost,
        SendErrorKind::NeverSent => CallOutcome::NeverSent,
        SendErrorKind::Refused => CallOutcome::Refused,
        // The caller's body failed, which cancelled the stream.
        SendErrorKind::RequestBody => CallOutcome::Cancelled,
        SendErrorKind::Stream(_) => CallOutcome::Status(error.code().into()),
    }
}

/// Picks from a picker. The error is the kind and the text of the failure. `None` if the call has to wait for the next
/// picker.
fn look(
    balancing: &Balancing,
    seed: u64,
    decision: &Decision<'_>,
    channel: &ChannelContext,
) -> Option<Result<Call<Sender>, (How, String)>> {
    let (picker, may_wait) = match balancing {
        Balancing::Last(picker) => (picker, false),
        Balancing::Live(picker) => (picker, decision.wait_for_ready),
        Balancing::Pending => return None,
    };
    let headers = RequestHeaders(decision.headers());
    let cx = CallContext::new(seed);
    let mut cx = cx.with_hash(decision.hash).with_headers(&headers);
    if let Some(session) = &decision.session {
        cx = cx.with_session(session.addresses(), Instant::now().into_std());
    }
    match picker.pick(&cx) {
        Pick::Ready(token) => {
            if let Some(endpoint) = token.wakes() {
                wake(channel, endpoint.into());
            }
            Some(Ok(token))
        }
        Pick::Drop(dropped) => Some(Err((How::Dropped, dropped.to_string()))),
        Pick::Fail(_) if may_wait => None,
        Pick::Fail(failure) => Some(Err((How::Unpicked, failure.to_string()))),
        Pick::Queue => None,
        Pick::Wake(demand) => {
            wake(channel, demand);
            None
        }
    }
}

/// Sends the driver the demand of a call, once.
fn wake(channel: &ChannelContext, demand: Demand) {
    // The driver is gone when the channel is.
    let _ = channel.queries.unbounded_send(Query::Demand(demand));
}

/// The reason why there was no endpoint, for a call whose deadline passed before it was sent.
fn unusable(cluster: &Cluster) -> String {
    let balancing = cluster.balancing.load();
    let failure = match &**balancing {
        Balancing::Last(picker) | Balancing::Live(picker) => picker.failure(),
        Balancing::Pending => None,
    };
    let why = failure.map_or_else(
        || format!("cluster {}: no connection is ready yet", cluster.name),
        ToString::to_string,
    );
    format!("a backend: {why}")
}

pin_project! {
    /// The part of a call that is kept with the body of its response: the attempt and the deadline. The default belongs
    /// to no call.
    #[derive(Default)]
    pub struct InFlight {
        attempt: Option<Attempt>,
        deadline: Deadline,
        // Named by the failures of the call.
        node: Arc<str>,
        timer: Option<Timer>,
        // Counts the end of the call for the channel's throttle.
        tally: Option<Tally>,
    }
}

impl Guard for InFlight {
    fn poll_end(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Status> {
        let this = self.project();
        let Some(timer) = this.timer else {
            return Poll::Pending;
        };
        ready!(timer.as_mut().poll(cx));
        let Some(attempt) = this.attempt.take() else {
            return Poll::Pending;
        };
        let what = format!("the rest of a response from {}", attempt.address());
        attempt.finish(CallOutcome::DeadlineExceeded);
        Poll::Ready(this.deadline.exceeded(&what))
    }

    fn received(self: Pin<&mut Self>, data: &Bytes) {
        if let Some(attempt) = self.project().attempt {
            attempt.record.received(data);
        }
    }

    fn worded(&self, status: Status) -> Status {
        named(status, &self.node)
    }

    fn trailers(self: Pin<&mut Self>, trailers: &HeaderMap) {
        if let Some(attempt) = self.project().attempt {
            attempt.record_metrics(trailers);
        }
    }

    fn ended(self: Pin<&mut Self>, end: Result<Option<i32>, SendErrorKind>) {
        let this = self.project();
        if let Some(attempt) = this.attempt.take() {
            let outcome = attempt.ended(end);
            if let Some(tally) = this.tally {
                tally.count(outcome);
            }
        }
    }
}
