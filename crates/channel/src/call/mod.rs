//! One call: a decision, then attempts.
//!
//! These are apart because each of them is asked for by other rules. A [`Decision`] is made once, from
//! one configuration (gRFC A31). An [`Attempt`] begins with a pick and has one typed outcome, which
//! balancing policies hear. [`Retry`] decides from that outcome if there is another attempt (gRFC A6),
//! and knows neither sockets nor clocks. This file only moves values between the three.

mod attempt;
mod decision;
mod retry;

use std::sync::Arc;

use http::{Request, Response};
use tokio::task::yield_now;
use tokio::time::{Instant, sleep_until};
use tonic::Status;
use tonic::body::Body;

pub(crate) use self::attempt::InFlight;
use self::attempt::{Attempt, Failed};
use self::decision::Decision;
use self::retry::{Next, Retry};
use crate::channel::ChannelContext;
use crate::named::named;
use crate::transport::{DEFAULT_REPLAY_LIMIT, ReplayBody, ResponseBody};

/// A request extension: makes a call wait for a usable backend, and for a configuration, where it
/// would otherwise fail at once.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(crowfly::WaitForReady(true));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WaitForReady(pub bool);

/// A request extension: calls with the same hash go to the same backend, if their cluster balances by
/// `ring_hash`. A call without one goes anywhere.
///
/// ```
/// let mut request = tonic::Request::new(());
/// request.extensions_mut().insert(crowfly::RequestHash(42));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHash(pub u64);

/// Runs one call to the head of its response. Its failures name the node.
pub(crate) async fn run(
    channel: Arc<ChannelContext>,
    request: Request<Body>,
) -> Result<Response<ResponseBody<InFlight>>, Status> {
    let response = attempts(&channel, request).await;
    response.map_err(|error| match error {
        CallError::Body(status) => status,
        CallError::Ours(status) => named(status, &channel.node),
    })
}

async fn attempts(
    channel: &ChannelContext,
    request: Request<Body>,
) -> Result<Response<ResponseBody<InFlight>>, CallError> {
    channel.activity.mark();
    let (request, body) = request.into_parts();
    let decision = Decision::make(channel, request).await?;
    let body = ReplayBody::new(body, DEFAULT_REPLAY_LIMIT);
    let mut retry = Retry::new(decision.deadline.at().map(Instant::into_std));
    loop {
        let attempt = Attempt::pick(&decision, channel).await?;
        let Failed { outcome, error } = match attempt.send(&decision, &body, &channel.node).await {
            Ok(response) => {
                // gRFC A6: the head of a response commits the call.
                body.commit();
                return Ok(response);
            }
            Err(failed) => failed,
        };
        let can_repeat = body.can_replay() && channel.is_alive();
        match retry.attempt_ended(outcome, can_repeat, Instant::now().into_std()) {
            Next::SendAt(at) => {
                // The driver must be given the chance to publish a picker without the endpoint that
                // failed.
                yield_now().await;
                sleep_until(at.into()).await;
            }
            Next::OutOfTime => {
                let what = format!("another connection: {}", error.status().message());
                return Err(decision.deadline.exceeded(&what).into());
            }
            Next::GiveUp => return Err(error),
        }
    }
}

/// The reason for which a call ended before its response began.
enum CallError {
    /// The caller's own body failed. Its status is handed back unchanged, because it is the caller's.
    Body(Status),
    Ours(Status),
}

impl CallError {
    fn status(&self) -> &Status {
        match self {
            Self::Body(status) | Self::Ours(status) => status,
        }
    }
}

impl From<Status> for CallError {
    fn from(status: Status) -> Self {
        Self::Ours(status)
    }
}
