//! Fault injection (gRFC A33): delays and aborts of calls, before anything is sent.
//!
//! [`Injection::decide`] has all the rules, and neither a clock nor randomness, so that tests can check every rule.
//! The rest waits and counts.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crowfly_client::code_of_http;
use crowfly_model::grpc::filter::{
    AbortWith, DelayBy, FaultAbort, FaultConfig, FaultDelay, FaultShare,
};
use http::{HeaderMap, StatusCode};
use tokio::time::sleep;
use tonic::{Code, Status};

use crate::deadline::Deadline;

/// The headers by which a caller asks for faults, if the configuration lets it.
const DELAY: &str = "x-envoy-fault-delay-request";
const DELAY_PERCENTAGE: &str = "x-envoy-fault-delay-request-percentage";
const ABORT_HTTP: &str = "x-envoy-fault-abort-request";
const ABORT_GRPC: &str = "x-envoy-fault-abort-grpc-request";
const ABORT_PERCENTAGE: &str = "x-envoy-fault-abort-request-percentage";

/// The calls of this process that have a fault now. gRFC A33 limits them for the entire process.
static ACTIVE: ActiveFaults = ActiveFaults(AtomicU32::new(0));

/// A fault filter, for the calls of one route.
#[derive(Debug)]
pub(super) struct Fault {
    config: Arc<FaultConfig>,
    /// The filter and the route, as texts name them.
    named: String,
}

impl Fault {
    pub(super) fn new(config: Arc<FaultConfig>, filter: &str, route: &str) -> Self {
        let named = format!("filter {filter} ({route})");
        Self { config, named }
    }

    /// Delays the call, aborts it, does both, or lets it pass.
    pub(super) async fn inject(
        &self,
        headers: &HeaderMap,
        deadline: Deadline,
    ) -> Result<(), Status> {
        let injection = Injection::decide(&self.config, headers, || fastrand::u64(..));
        if injection.is_none() {
            return Ok(());
        }
        // One place for both faults of the call, until the call goes on or ends.
        let Some(_active) = ACTIVE.begin(self.config.max_active) else {
            return Ok(());
        };
        if let Some(time) = injection.delay {
            let what = || format!("the end of a delay that {} injected", self.named);
            deadline.bound(sleep(time), what).await?;
        }
        match injection.abort {
            Some(code) => {
                let text = format!("Fault injected by {}", self.named);
                Err(Status::new(code, text))
            }
            None => Ok(()),
        }
    }
}

/// The faults of one call. A delay comes before an abort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Injection {
    delay: Option<Duration>,
    abort: Option<Code>,
}

impl Injection {
    /// Decides about a call with these headers. Each fault takes a number of its own from `draw`, uniform over all
    /// of `u64`, because faults must be independent of each other.
    fn decide(config: &FaultConfig, headers: &HeaderMap, mut draw: impl FnMut() -> u64) -> Self {
        let delay = config.delay.and_then(|delay| delay_of(delay, headers));
        let abort = config.abort.and_then(|abort| abort_of(abort, headers));
        Self {
            delay: delay.and_then(|(time, share)| share.takes(draw()).then_some(time)),
            abort: abort.and_then(|(code, share)| share.takes(draw()).then_some(code)),
        }
    }

    fn is_none(self) -> bool {
        self == Self::default()
    }
}

/// The delay that a call may get, and the share of calls that get it.
fn delay_of(delay: FaultDelay, headers: &HeaderMap) -> Option<(Duration, FaultShare)> {
    match delay.by {
        DelayBy::Fixed(time) => Some((time, delay.share)),
        DelayBy::Header => {
            let time = number(headers, DELAY, |millis: u64| {
                let time = Duration::from_millis(millis);
                (!time.is_zero()).then_some(time)
            })?;
            Some((time, capped(delay.share, headers, DELAY_PERCENTAGE)))
        }
    }
}

/// The status that a call may be aborted with, and the share of calls that are.
fn abort_of(abort: FaultAbort, headers: &HeaderMap) -> Option<(Code, FaultShare)> {
    let code = match abort.with {
        AbortWith::Grpc(status) => return Some((grpc_code(status)?, abort.share)),
        AbortWith::Http(status) => return Some((http_code(status)?, abort.share)),
        // Envoy's order: the HTTP status first.
        AbortWith::Header => number(headers, ABORT_HTTP, http_code)
            .or_else(|| number(headers, ABORT_GRPC, grpc_code))?,
    };
    Some((code, capped(abort.share, headers, ABORT_PERCENTAGE)))
}

/// The share that a header asks for, which is never more than the configured one.
fn capped(share: FaultShare, headers: &HeaderMap, name: &str) -> FaultShare {
    number(headers, name, Some).map_or(share, |numerator| share.at_most(numerator))
}

/// The first value of a header that is a number and that `read` takes. gRFC A33 ignores all others.
fn number<N: std::str::FromStr, T>(
    headers: &HeaderMap,
    name: &str,
    read: impl Fn(N) -> Option<T>,
) -> Option<T> {
    let mut values = headers.get_all(name).iter();
    values.find_map(|value| read(value.to_str().ok()?.trim().parse().ok()?))
}

fn grpc_code(status: u32) -> Option<Code> {
    let status = i32::try_from(status).ok().filter(|status| *status <= 16)?;
    Some(Code::from(status))
}

/// The code by gRPC's mapping of HTTP statuses, where 200 is UNKNOWN (gRFC A33).
fn http_code(status: u16) -> Option<Code> {
    let status = Some(status).filter(|status| (200..600).contains(status))?;
    StatusCode::from_u16(status).ok().map(code_of_http)
}

/// A count of the calls that have a fault.
#[derive(Debug)]
struct ActiveFaults(AtomicU32);

impl ActiveFaults {
    /// Counts a call until the guard is dropped; `None` if as many as `max` calls have a fault already.
    fn begin(&self, max: Option<u32>) -> Option<ActiveFault<'_>> {
        let max = max.unwrap_or(u32::MAX);
        let next = |active: u32| active.checked_add(1).filter(|next| *next <= max);
        let counted = self
            .0
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        // The guard is made only if the call is counted, because its drop takes the call off again.
        counted.is_ok().then(|| ActiveFault(self))
    }
}

/// A call that has a fault.
struct ActiveFault<'a>(&'a ActiveFaults);

impl Drop for ActiveFault<'_> {
    fn drop(&mut self) {
        let ActiveFaults(active) = self.0;
        active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests;
