//! One call: a decision, then attempts.
//!
//! The parts are apart, because each of them follows other rules. A [`Decision`] is made once, from one configuration
//! (gRFC A31). An [`Attempt`] begins with a pick and has one typed outcome, which balancing policies get. [`Retry`]
//! decides from that outcome if there is another attempt (gRFC A6, A44), and knows neither sockets nor clocks. The code
//! in this file only moves values between the three.

mod attempt;
mod decision;
mod failed;
mod filter;
mod orca;
mod recording;
mod retry;
mod throttle;

use std::sync::Arc;

use http::{HeaderName, Request, Response};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tonic::body::Body;
use tonic::{Code, Status};

use self::attempt::Attempt;
pub(crate) use self::attempt::InFlight;
use self::decision::Decision;
pub(crate) use self::decision::USER_AGENT;
use self::failed::{CallError, Failed};
pub(crate) use self::filter::{Filters, RouteFilters};
use self::recording::Recording;
pub(crate) use self::retry::RetrySettings;
use self::retry::{Next, Retry};
pub(crate) use self::throttle::RetryThrottle;
use crate::channel::ChannelContext;
use crate::named::named;
use crate::transport::{ReplayBody, ResponseBody};

/// The metadata with the number of attempts before the present one, for servers and callers (gRFC A6).
static PREVIOUS_ATTEMPTS: HeaderName = HeaderName::from_static("grpc-previous-rpc-attempts");

/// A request extension: makes a call wait for a usable backend, and for a configuration, where it
/// would otherwise fail at once.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(crowfly::WaitForReady(true));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitForReady(pub bool);

/// A request extension: calls with the same hash go to the same backend, if their cluster balances by `ring_hash`. The
/// hash decides before the hash policies of the call's route (gRFC A42). A call without a hash may go to any backend.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(crowfly::RequestHash(42));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHash(pub u64);

/// Runs one call to the head of its response. The text of a failure names the node.
pub(crate) async fn run(
    channel: Arc<ChannelContext>,
    request: Request<Body>,
) -> Result<Response<ResponseBody<InFlight>>, Status> {
    let recording = Recording::begin(&channel, &request);
    let (head, body) = request.into_parts();
    let mut head = Request::from_parts(head, ());
    let status = match attempts(&channel, &mut head, body, &recording).await {
        Ok(response) => {
            recording.decided(None);
            return Ok(response);
        }
        Err(CallError::Body(status)) => status,
        Err(CallError::Ours(status)) => named(status, &channel.node),
    };
    recording.decided(Some(&status));
    match status.code() {
        // A filter ended the call with OK, which is a response and not an error (gRFC A33).
        Code::Ok => Ok(status.into_http()),
        _ => Err(status),
    }
}

async fn attempts(
    channel: &ChannelContext,
    head: &mut Request<()>,
    body: Body,
    recording: &Recording,
) -> Result<Response<ResponseBody<InFlight>>, CallError> {
    channel.activity.mark();
    let decision = Decision::make(channel, head, recording).await?;
    let body = ReplayBody::new(body, channel.retries.buffer);
    let policy = decision.routed.forward.retry.as_deref();
    let deadline = decision.deadline.at().map(Instant::into_std);
    let mut retry = Retry::new(policy, &channel.retries, deadline);
    loop {
        let previous = retry.previous_attempts();
        let failed = match attempt(channel, &decision, &body, previous).await {
            Ok(response) => {
                // gRFC A6: the head of a response commits the call.
                body.commit();
                return Ok(response);
            }
            Err(failed) => failed,
        };
        if !channel.is_alive() {
            return failed.into_result(None);
        }
        let (can_repeat, now) = (body.can_replay(), Instant::now().into_std());
        match retry.attempt_ended(failed.ended, can_repeat, now, fastrand::f64()) {
            Next::SendAt(at) => {
                // The stream of a response that is not used is reset before the next attempt.
                drop(failed);
                // The driver must be given the chance to publish a picker without the endpoint that
                // failed.
                yield_now().await;
                sleep_until(at.into()).await;
            }
            Next::OutOfTime(note) => {
                let what = format!("another attempt: {}", failed.text(note));
                drop(failed);
                if let Some(end) = decision.deadline.at() {
                    sleep_until(end).await;
                }
                return Err(decision.deadline.exceeded(&what).into());
            }
            Next::GiveUp(note) => {
                body.commit();
                return failed.into_result(note);
            }
        }
    }
}

async fn attempt(
    channel: &ChannelContext,
    decision: &Decision<'_>,
    body: &ReplayBody<Body>,
    previous: u32,
) -> Result<Response<ResponseBody<InFlight>>, Failed> {
    let attempt = Attempt::pick(decision, channel, previous).await?;
    attempt.send(decision, body, channel, previous).await
}
